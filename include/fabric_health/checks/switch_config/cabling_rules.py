"""Rules on both ends of a cable: LLDP neighbours against the plan, and lossless priorities equal at both ends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from fabric_health.checks.switch_config.commands import SOURCES
from fabric_health.checks.switch_config.neighbors import Plan
from fabric_health.checks.switch_config.tables import SwitchPort
from fabric_health.datasets.tables import Finding, Severity, finding
from fabric_health.site import Cable, Site, Switch

_MAX_SWAP_SEARCH = 2_000


@dataclass(frozen=True)
class Mismatch:
    """A port whose LLDP neighbour is not the planned one."""

    switch: Switch
    port: SwitchPort
    cable: Cable

    @property
    def unit(self) -> str:
        """Unit id of the port."""
        return self.switch.port_unit(self.port.port)


def neighbor_findings(mismatches: Sequence[Mismatch], plan: Plan, site: Site) -> list[Finding]:
    """Return a finding per mismatch; two ports that see each other's neighbour are told to be swapped.

    On a cable between switches the end that the plan names as its peer is explained by the other end.
    """
    by_unit = {m.unit: _neighbor_finding(m, plan, _swapped(m, mismatches, plan)) for m in mismatches}
    for near, far in _switch_cables(site):
        if near in by_unit and far in by_unit:
            by_unit[far] = replace(by_unit[far], explained_by=by_unit[near].finding)
    return list(by_unit.values())


def explain_far_links(findings: Sequence[Finding], site: Site) -> list[Finding]:
    """Let one end of a dead switch-to-switch cable explain the other: a shut port takes its peer's link down too."""
    down = {f.unit: f for f in findings if f.rule in ("port_admin_up", "port_up")}
    causes: dict[str, str] = {}
    for near, far in _switch_cables(site):
        if near in down and far in down:
            if down[near].rule == "port_up" and down[far].rule == "port_admin_up":
                near, far = far, near
            if down[far].rule == "port_up":
                causes[down[far].finding] = down[near].finding
    return _explained(findings, causes)


def explain_far_speeds(findings: Sequence[Finding], with_line: frozenset[str], site: Site) -> list[Finding]:
    """Let one end of a switch-to-switch cable that runs at a wrong speed explain the other, which had to follow.

    ``with_line`` holds the findings whose config line is known to have changed: that end is the cause.
    """
    slow = {f.unit: f for f in findings if f.rule == "port_speed"}
    causes: dict[str, str] = {}
    for near, far in _switch_cables(site):
        if near in slow and far in slow and slow[near].actual == slow[far].actual:
            if slow[far].finding in with_line and slow[near].finding not in with_line:
                near, far = far, near
            if slow[far].finding not in with_line:
                causes[slow[far].finding] = slow[near].finding
    return _explained(findings, causes)


def _switch_cables(site: Site) -> Iterator[tuple[str, str]]:
    """Yield both ends of every cable between switches as port units, the plan's own side first."""
    for cable in site.cables:
        if cable.peer_kind == "switch":
            yield f"{cable.switch}/{cable.port}", f"{cable.peer}/{cable.peer_port}"


def _explained(findings: Sequence[Finding], causes: Mapping[str, str]) -> list[Finding]:
    return [replace(f, explained_by=causes[f.finding]) if f.finding in causes else f for f in findings]


def _swapped(mismatch: Mismatch, others: Sequence[Mismatch], plan: Plan) -> Mismatch | None:
    if len(others) > _MAX_SWAP_SEARCH:
        return None
    return next(
        (o for o in others if o is not mismatch and _sees(mismatch, o.cable, plan) and _sees(o, mismatch.cable, plan)),
        None,
    )


def _sees(mismatch: Mismatch, cable: Cable, plan: Plan) -> bool:
    system = mismatch.port.neighbor
    return system is not None and plan.agrees(cable, system, mismatch.port.neighbor_port)


def _neighbor_finding(mismatch: Mismatch, plan: Plan, other: Mismatch | None) -> Finding:
    unit, port = mismatch.unit, mismatch.port
    seen = " ".join(t for t in (port.neighbor, port.neighbor_port) if t)
    planned = plan.far_end(mismatch.cable)
    summary = f"{unit} is connected to {seen}, the plan says {planned}"
    if other is not None:
        summary += f": swapped with {other.unit}"
        action = f"Swap the cables of {unit} and {other.unit} back, or correct the cabling plan."
    else:
        action = "Move the cable to the planned port, or correct the cabling plan."
    return finding(
        check="switch_config",
        rule="port_neighbor",
        unit=unit,
        unit_kind="port",
        metric="neighbor",
        severity=Severity.CRITICAL,
        summary=summary + ".",
        expected=planned,
        actual=seen,
        action=action,
        source="site file: cabling plan",
        command=SOURCES[mismatch.switch.platform]["neighbor"][0],
    )


def both_ends_findings(
    ports: Mapping[tuple[str, str], SwitchPort], judged: set[str], site: Site, so_far: Sequence[Finding]
) -> list[Finding]:
    """Return a finding per cable between judged switches whose ends differ in their lossless priorities.

    A pause that only one end understands is lost. Where an end already breaks its profile, that finding explains this.
    """
    pfc = {f.unit: f for f in so_far if f.rule == "port_pfc"}
    out = []
    for cable in site.cables:
        if cable.peer_kind != "switch" or not {cable.switch, cable.peer} <= judged:
            continue
        near, far = ports.get((cable.switch, cable.port)), ports.get((cable.peer, cable.peer_port))
        if near is None or far is None or near.oper_up is False or far.oper_up is False:
            continue
        here, there = near.pfc_priorities, far.pfc_priorities
        if here is None or there is None or here == there:
            continue
        unit, far_unit = f"{cable.switch}/{cable.port}", f"{cable.peer}/{cable.peer_port}"
        cause = pfc.get(unit) or pfc.get(far_unit)
        out.append(
            finding(
                check="switch_config",
                rule="port_pfc_both_ends",
                unit=unit,
                unit_kind="port",
                metric="pfc",
                severity=Severity.CRITICAL,
                summary=f"PFC is on for priorities {here or 'none'} at {unit} and {there or 'none'} at {far_unit}.",
                expected=f"the same priorities at both ends ({far_unit}: {there or 'none'})",
                actual=here or "none",
                action="Enable PFC on the same priorities at both ends.",
                source="IEEE 802.1Q priority-based flow control: both ends of a link must agree",
                command="pfc",
                explained_by=cause.finding if cause else None,
            )
        )
    return out
