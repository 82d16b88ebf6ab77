"""Plays the lab's switches through the check's own commands and parsers, without SSH."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from fabric_health.checks.check import Context, RowSet
from fabric_health.checks.switch_config import SWITCH_CONFIG
from fabric_health.checks.switch_config.tables import SwitchPort
from fabric_health.datasets.contracts import Row
from fabric_health.datasets.tables import Finding
from fabric_health.evidence import CommandResult, CommandStatus, ReachStatus, StoredEvidence, UnitEvidence
from fabric_health.lab.state import Fault, LabState
from fabric_health.lab.switches import answer
from fabric_health.site import Site, Switch

LAB = Path(__file__).parents[2] / "include" / "sites" / "lab.yaml"
UP = datetime(2026, 11, 23, 8, 0, tzinfo=UTC)
BEFORE = UP + timedelta(hours=1)
NOW = BEFORE + timedelta(days=7)
SINCE = NOW - timedelta(minutes=20)


def state(*faults: tuple[str, str, str | None]) -> LabState:
    return LabState(UP, tuple(Fault(kind, unit, value, SINCE) for kind, unit, value in faults))


def collect(site: Site, switch: Switch, lab: LabState, now: datetime) -> UnitEvidence:
    """Ask a lab switch everything that the check asks."""
    results = []
    for c in SWITCH_CONFIG.commands(switch, site):
        a = answer(switch, site, lab, " ".join(c.argv), now)
        results.append(CommandResult(c.name, c.argv, CommandStatus.EXITED, a.exit_code, a.stdout, a.stderr, now, now))
    return UnitEvidence(switch.name, "switch", "switch_config", ReachStatus.OK, "", now, now, tuple(results))


def parsed(site: Site, lab: LabState, now: datetime) -> list[Row]:
    rows: list[Row] = []
    for switch in site.switches:
        rows += SWITCH_CONFIG.parse(switch, collect(site, switch, lab, now), site)
    return rows


def ports(rows: list[Row]) -> dict[str, SwitchPort]:
    return {f"{r.switch}/{r.port}": r for r in rows if isinstance(r, SwitchPort)}


def judged(
    site: Site, lab: LabState, now: datetime, previous: tuple[RowSet, datetime] | None = None
) -> tuple[RowSet, list[Finding]]:
    """Run parse, derive and judge over all switches; return all rows and the findings."""
    rows = parsed(site, lab, now)
    context = Context(
        site=site,
        run="run",
        started_at=now,
        scope=site.switches,
        reach={s.name: StoredEvidence(s.name, s.name, "0" * 64, ReachStatus.OK) for s in site.switches},
        previous=previous[0] if previous else RowSet(),
        previous_at={s.name: previous[1] for s in site.switches} if previous else {},
    )
    derived = SWITCH_CONFIG.derive(RowSet.gather(rows), context)
    everything = RowSet.gather([*rows, *derived])
    return everything, SWITCH_CONFIG.judge(everything, context)
