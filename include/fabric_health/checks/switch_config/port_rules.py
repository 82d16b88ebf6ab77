"""Rules on every cabled port: there, up, set as its profile says, and wired as planned."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from fabric_health.checks.check import Context, RowSet
from fabric_health.checks.switch_config.cabling_rules import (
    Mismatch,
    both_ends_findings,
    explain_far_links,
    neighbor_findings,
)
from fabric_health.checks.switch_config.commands import SOURCES
from fabric_health.checks.switch_config.neighbors import Plan
from fabric_health.checks.switch_config.tables import PortWindow, SwitchPort
from fabric_health.checks.switch_config.unread import Gaps, inventory_was_read, unread_findings
from fabric_health.checks.switch_config.windows import window_findings
from fabric_health.datasets.tables import Finding, Severity, finding
from fabric_health.evidence import ReachStatus
from fabric_health.site import Cable, PortProfile, Switch, Thresholds

_PROFILE = "site file: port profile of the cable"
_PLAN = "site file: cabling plan"


def judged_switches(context: Context) -> list[Switch]:
    """Return the switches in scope whose answers may be judged; how the others failed is judged from their reach."""
    return [
        u
        for u in context.scope
        if isinstance(u, Switch)
        and (stored := context.reach.get(u.name)) is not None
        and stored.status in (ReachStatus.OK, ReachStatus.PARTIAL)
    ]


def port_findings(rows: RowSet, context: Context) -> list[Finding]:
    """Return the findings on all cabled ports of the judged switches.

    A port that is down has only its down finding. A value that the profile asks for and the switch did not show gives
    one ``not_judged`` finding per switch and metric.
    """
    return _PortJudge(rows, context).findings()


@dataclass(frozen=True)
class _Setting:
    """One metric of a port's profile: what is wanted and what is there, as text with units; None: not known."""

    metric: str
    title: str
    severity: Severity
    wanted: str | None
    actual: str | None
    agrees: bool
    action: str


@dataclass
class _PortJudge:
    rows: RowSet
    context: Context
    out: list[Finding] = field(default_factory=list)
    gaps: Gaps = field(default_factory=Gaps)
    mismatches: list[Mismatch] = field(default_factory=list)

    def findings(self) -> list[Finding]:
        plan = Plan(self.context.site)
        ports = {(p.switch, p.port): p for p in self.rows.of(SwitchPort)}
        windows = {(w.switch, w.port): w for w in self.rows.of(PortWindow)}
        last_windows = {(w.switch, w.port): w for w in self.context.previous.of(PortWindow)}
        switches = judged_switches(self.context)
        for switch in switches:
            inventory = inventory_was_read(switch, self.rows)
            for port_name, cable in plan.cables(switch.name).items():
                key = (switch.name, port_name)
                port = ports.get(key)
                if port is None:
                    self._absent(switch, cable, plan, inventory)
                elif self._state(switch, port, cable, plan):
                    self._settings(switch, port, cable)
                    self._neighbor(switch, port, cable, plan)
                    if key in windows:
                        limits = self.context.site.thresholds
                        self.out += window_findings(
                            windows[key], last_windows.get(key), limits, SOURCES[switch.platform]["counters"]
                        )
        judged = {s.name for s in switches}
        self.out += neighbor_findings(self.mismatches, plan, self.context.site)
        self.out += both_ends_findings(ports, judged, self.context.site, self.out)
        self.out = explain_far_links(self.out, self.context.site)
        for switch in switches:
            self.out += unread_findings(switch, self.rows, self.gaps, self.context)
        return self.out

    def _absent(self, switch: Switch, cable: Cable, plan: Plan, inventory: bool) -> None:
        if not inventory:
            self.gaps.add(switch.name, "state", cable.port)
            return
        unit = switch.port_unit(cable.port)
        self.out.append(
            finding(
                check="switch_config",
                rule="port_present",
                unit=unit,
                unit_kind="port",
                metric="state",
                severity=Severity.CRITICAL,
                summary=f"{unit} does not exist on the switch; the plan cables it to {plan.far_end(cable)}.",
                expected="present",
                actual="absent",
                action="Check the breakout mode of the port and the port name in the cabling plan.",
                source=_PLAN,
                command=SOURCES[switch.platform]["state"][0],
            )
        )

    def _state(self, switch: Switch, port: SwitchPort, cable: Cable, plan: Plan) -> bool:
        """Judge admin and link state; return whether anything else can be said of the port."""
        unit = switch.port_unit(port.port)
        if port.admin_up is None and port.oper_up is None:
            self.gaps.add(switch.name, "state", port.port)
            return False
        if port.admin_up is not False and port.oper_up is not False:
            if port.admin_up is None or port.oper_up is None:
                self.gaps.add(switch.name, "state", port.port)
            return True
        far = plan.far_end(cable)
        if port.admin_up is False:
            rule, what, action = "port_admin_up", "is shut down", "Enable the port, or take the cable out of the plan."
        else:
            rule, what = "port_up", "has no link"
            action = f"Check the far end ({far}), then the cable and both transceivers."
        self.out.append(
            finding(
                check="switch_config",
                rule=rule,
                unit=unit,
                unit_kind="port",
                metric="state",
                severity=Severity.CRITICAL,
                summary=f"{unit} {what}; the plan cables it to {far}.",
                expected="up",
                actual="administratively down" if port.admin_up is False else "down",
                action=action,
                source=_PLAN,
                command=SOURCES[switch.platform]["state"][0],
            )
        )
        return False

    def _settings(self, switch: Switch, port: SwitchPort, cable: Cable) -> None:
        unit = switch.port_unit(port.port)
        for s in _settings(port, cable.profile, self.context.site.thresholds):
            if s.wanted is None:
                continue
            if s.actual is None:
                self.gaps.add(switch.name, s.metric, port.port)
            elif not s.agrees:
                self.out.append(
                    finding(
                        check="switch_config",
                        rule=f"port_{s.metric}",
                        unit=unit,
                        unit_kind="port",
                        metric=s.metric,
                        severity=s.severity,
                        summary=f"{s.title} of {unit} is {s.actual}, expected {s.wanted} (cable to {cable.peer} "
                        f"{cable.peer_port}).",
                        expected=s.wanted,
                        actual=s.actual,
                        action=s.action,
                        source=_PROFILE,
                        command=SOURCES[switch.platform][s.metric][0],
                    )
                )

    def _neighbor(self, switch: Switch, port: SwitchPort, cable: Cable, plan: Plan) -> None:
        if port.neighbor is None:
            self.gaps.add(switch.name, "neighbor", port.port)
        elif not plan.agrees(cable, port.neighbor, port.neighbor_port):
            self.mismatches.append(Mismatch(switch, port, cable))


def _settings(port: SwitchPort, profile: PortProfile, limits: Thresholds) -> Iterator[_Setting]:
    mtu, wanted_mtu = port.mtu_bytes, profile.mtu_bytes
    yield _Setting(
        "speed",
        "Speed",
        Severity.CRITICAL,
        _unit(profile.speed_gbps, "Gb/s"),
        _unit(port.speed_gbps, "Gb/s"),
        port.speed_gbps == profile.speed_gbps,
        "Set the port's speed on both ends, or replace the transceiver if it cannot run it.",
    )
    yield _Setting(
        "mtu",
        "MTU",
        Severity.CRITICAL,
        _unit(wanted_mtu, "B"),
        _unit(mtu, "B"),
        mtu is not None and wanted_mtu is not None and abs(mtu - wanted_mtu) <= limits.mtu_tolerance_bytes,
        "Set the port's MTU to the profile's.",
    )
    yield _Setting(
        "fec",
        "FEC",
        Severity.WARNING,
        profile.fec,
        port.fec,
        port.fec == profile.fec,
        "Set the same FEC on both ends.",
    )
    wanted_pfc = None if profile.pfc_priorities is None else ",".join(map(str, sorted(set(profile.pfc_priorities))))
    yield _Setting(
        "pfc",
        "PFC priority set",
        Severity.CRITICAL,
        _set(wanted_pfc),
        _set(port.pfc_priorities),
        port.pfc_priorities == wanted_pfc,
        "Enable PFC on exactly the lossless priorities, on both ends.",
    )
    yield _Setting(
        "ecn",
        "ECN on the lossless queue",
        Severity.WARNING,
        _on(profile.ecn),
        _on(port.ecn),
        port.ecn == profile.ecn,
        "Restore the ECN thresholds of the lossless queue.",
    )
    yield _Setting(
        "vlan",
        "Access VLAN",
        Severity.CRITICAL,
        _unit(profile.vlan),
        _unit(port.vlan),
        port.vlan == profile.vlan,
        "Put the port into the planned VLAN.",
    )


def _unit(value: float | None, unit: str = "") -> str | None:
    return None if value is None else f"{value:g} {unit}".strip()


def _set(priorities: str | None) -> str | None:
    return "none" if priorities == "" else priorities


def _on(value: bool | None) -> str | None:
    return None if value is None else ("on" if value else "off")
