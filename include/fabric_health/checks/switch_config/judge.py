"""One cause, one primary finding: port rules and golden drift brought together.

A drifted line and the port that shows its effect are one cause. The port finding leads, names the line and carries
the commands that restore it; the drift finding says that it is explained by it. A line of the whole switch that
many ports suffer from leads itself.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from fabric_health.checks.check import Context, RowSet
from fabric_health.checks.switch_config.cabling_rules import explain_far_speeds
from fabric_health.checks.switch_config.derive import GOLDEN
from fabric_health.checks.switch_config.drift_findings import drift_findings
from fabric_health.checks.switch_config.port_rules import judged_switches, port_findings
from fabric_health.checks.switch_config.tables import ConfigDrift
from fabric_health.datasets.tables import Finding, FindingKind

# Which config topics can bring a port rule down. Queue settings often sit in service profiles and policies.
_TOPICS: dict[str, frozenset[str]] = {
    "port_mtu": frozenset({"mtu"}),
    "port_speed": frozenset({"speed"}),
    "port_fec": frozenset({"fec"}),
    "port_pfc": frozenset({"pfc", "qos"}),
    "port_pfc_both_ends": frozenset({"pfc", "qos"}),
    "port_ecn": frozenset({"ecn", "qos"}),
    "port_vlan": frozenset({"vlan"}),
    "port_admin_up": frozenset({"admin"}),
}
_NAMED_LINES = 3
_MAX_LINE = 120


def judge(rows: RowSet, context: Context) -> list[Finding]:
    """Return the findings of the switches that answered: ports, drift, and what could not be judged."""
    judged = {s.name for s in judged_switches(context)}
    drifts = [f for f in drift_findings(rows, context) if f.unit.split("/", 1)[0] in judged]
    lines: dict[str, list[ConfigDrift]] = defaultdict(list)
    for row in rows.of(ConfigDrift):
        if row.against == GOLDEN and row.switch in judged:
            lines[row.switch].append(row)
    causes: dict[tuple[str, str], Finding] = {(f.unit.split("/", 1)[0], f.metric): f for f in drifts}
    explained: dict[str, str] = {}
    ports = [_with_cause(f, lines, causes, explained) for f in port_findings(rows, context)]
    ports = explain_far_speeds(ports, frozenset(explained.values()), context.site)
    return [*ports, *(replace(f, explained_by=explained.get(f.finding, f.explained_by)) for f in drifts)]


def _with_cause(
    port_finding: Finding,
    lines: dict[str, list[ConfigDrift]],
    causes: dict[tuple[str, str], Finding],
    explained: dict[str, str],
) -> Finding:
    """Return the port finding with its config lines, and note in ``explained`` which drift findings it explains."""
    topics = _TOPICS.get(port_finding.rule)
    if topics is None or port_finding.kind != FindingKind.DEVIATION.value or port_finding.explained_by:
        return port_finding
    switch, _, port = port_finding.unit.partition("/")
    about = [row for row in lines.get(switch, ()) if row.topic in topics]
    own = [row for row in about if row.port == port]
    if not own:
        whole = next(
            (causes[switch, row.path] for row in about if row.port is None and (switch, row.path) in causes), None
        )
        return replace(port_finding, explained_by=whole.finding) if whole else port_finding
    for row in own:
        cause = causes.get((switch, row.path))
        if cause is not None:
            explained.setdefault(cause.finding, port_finding.finding)
    said = "; ".join(_line(row) for row in own[:_NAMED_LINES])
    more = f" and {len(own) - _NAMED_LINES} more" if len(own) > _NAMED_LINES else ""
    commands = "\n".join(dict.fromkeys(row.remediation for row in own if row.remediation))
    return replace(
        port_finding,
        summary=f"{port_finding.summary.removesuffix('.')}; {said}{more}.",
        action=commands or port_finding.action,
    )


def _line(row: ConfigDrift) -> str:
    # A JSON value says nothing without the name of its leaf; a CLI line names itself.
    leaf = f"{row.path.rsplit('/', 1)[-1]} " if row.path.startswith("/") else ""
    expected, actual = _short(row.expected), _short(row.actual)
    if row.change == "missing":
        return f"config line gone: {leaf}{expected}"
    if row.change == "extra":
        return f"config line added: {leaf}{actual}"
    return f"config line changed: {leaf}{expected} -> {actual}"


def _short(text: str | None) -> str:
    line = " ".join((text or "").split()) or "(empty)"
    return line if len(line) <= _MAX_LINE else line[: _MAX_LINE - 3] + "..."
