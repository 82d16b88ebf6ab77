"""What could not be judged: answers that could not be read, and values that a profile asks for and nothing showed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from fabric_health.checks.check import Context, RowSet
from fabric_health.checks.switch_config.commands import SOURCES
from fabric_health.checks.switch_config.tables import SwitchPort
from fabric_health.datasets.tables import Fact, FactState, Finding, FindingKind, Severity, finding
from fabric_health.evidence import ReachStatus
from fabric_health.site import Switch

ANSWER = "answer:"
"""Prefix of the facts that say which command's answer could not be read (state ``error``)."""
_NAMED_PORTS = 5
_TITLES = {
    "state": "The state",
    "speed": "The speed",
    "mtu": "The MTU",
    "fec": "The FEC",
    "pfc": "PFC",
    "ecn": "ECN",
    "vlan": "The access VLAN",
    "neighbor": "The LLDP neighbour",
}


@dataclass
class Gaps:
    """Ports whose metric is not known, by (switch, metric)."""

    ports: dict[tuple[str, str], list[str]] = field(default_factory=lambda: defaultdict(list))

    def add(self, switch: str, metric: str, port: str) -> None:
        """Note that ``metric`` of a port could not be judged."""
        self.ports[switch, metric].append(port)

    def of(self, switch: str) -> dict[str, list[str]]:
        """Return the gaps of one switch by metric."""
        return {metric: ports for (name, metric), ports in self.ports.items() if name == switch}


def unread_answers(switch: str, rows: RowSet) -> dict[str, str]:
    """Return the commands of a switch whose answer could not be read, with the reason; per-item commands as one."""
    out: dict[str, str] = {}
    for fact in rows.of(Fact):
        if fact.unit == switch and fact.attribute.startswith(ANSWER) and fact.state == FactState.ERROR.value:
            command = fact.attribute.removeprefix(ANSWER).partition(":")[0]
            out.setdefault(command, fact.detail or "unreadable")
    return out


def inventory_was_read(switch: Switch, rows: RowSet) -> bool:
    """Tell whether the list of the switch's ports is known, so that a port that is not on it is absent."""
    unread = unread_answers(switch.name, rows)
    if all(command in unread for command in SOURCES[switch.platform]["state"]):
        return False
    return any(p.switch == switch.name for p in rows.of(SwitchPort))


def unread_findings(switch: Switch, rows: RowSet, gaps: Gaps, context: Context) -> list[Finding]:
    """Return ``not_judged`` findings of one switch: one per unreadable answer, one per metric with gaps.

    A gap that an unreadable answer accounts for is explained by it. When the switch could not be asked, its reach
    finding says so and nothing is added here; one that answered in part has no such finding.
    """
    stored = context.reach.get(switch.name)
    if stored is None or stored.status not in (ReachStatus.OK, ReachStatus.PARTIAL):
        return []
    unread = unread_answers(switch.name, rows)
    missing = gaps.of(switch.name)
    sources = SOURCES[switch.platform]
    needed = {command for metric in missing for command in sources[metric]} | {"running_config"}
    answers = {
        command: _answer_finding(switch, command, detail, command in needed) for command, detail in unread.items()
    }
    out = list(answers.values())
    for metric, ports in missing.items():
        cause = next((answers[c] for c in sources[metric] if c in answers), None)
        out.append(_gap_finding(switch, metric, ports, sources, cause))
    return out


def _answer_finding(switch: Switch, command: str, detail: str, needed: bool) -> Finding:
    return finding(
        check="switch_config",
        rule="answer_readable",
        unit=switch.name,
        unit_kind="switch",
        metric=command,
        severity=Severity.WARNING if needed else Severity.INFO,
        kind=FindingKind.NOT_JUDGED,
        summary=f"What {switch.name} answered to {command} could not be read: {detail}",
        expected="a complete answer",
        actual=detail,
        action="Run the command by hand as the same user: rights, paging and the release's output format matter.",
        command=command,
    )


def _gap_finding(
    switch: Switch, metric: str, ports: list[str], sources: Mapping[str, tuple[str, ...]], cause: Finding | None
) -> Finding:
    first = ", ".join(ports[:_NAMED_PORTS]) + (", ..." if len(ports) > _NAMED_PORTS else "")
    count = f"{len(ports)} cabled port{'s' if len(ports) > 1 else ''}"
    return finding(
        check="switch_config",
        rule=f"port_{metric}_known",
        unit=switch.name,
        unit_kind="switch",
        metric=metric,
        severity=Severity.WARNING,
        kind=FindingKind.NOT_JUDGED,
        summary=f"{_TITLES[metric]} of {count} of {switch.name} could not be judged ({first}).",
        expected="shown by the switch",
        actual=f"not shown for {count}",
        action="Let the far ends run an LLDP agent." if metric == "neighbor" else "Look at the raw answer.",
        source="site file: port profile of the cable" if metric != "neighbor" else "site file: cabling plan",
        command=sources[metric][0],
        explained_by=cause.finding if cause else None,
    )
