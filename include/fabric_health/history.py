"""Earlier runs of a site: what each unit was like when it was last judged."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeVar

from fabric_health.checks.check import Check, RowSet
from fabric_health.datasets import arrow, reading
from fabric_health.datasets.contracts import Row
from fabric_health.datasets.landing import table_key
from fabric_health.datasets.run import RunKey
from fabric_health.datasets.store import ObjectMissing, ObjectStore
from fabric_health.datasets.tables import Coverage, CoverageState, Finding

R = TypeVar("R", bound=Row)
MAX_RUNS_BACK = 60


def judged_part(check: str) -> str:
    """Return the part under which quarantine of a check's findings is kept, apart from that of its measured rows."""
    return f"{check}.judged"


@dataclass(frozen=True)
class Previous:
    """Per unit, the latest earlier concluded run that judged it: when, and what it held."""

    at: dict[str, datetime] = field(default_factory=dict)
    rows: RowSet = field(default_factory=RowSet)
    findings: dict[str, Finding] = field(default_factory=dict)
    runs: tuple[RunKey, ...] = ()


def load_part(store: ObjectStore, row_type: type[R], key: RunKey, part: str) -> list[R]:
    """Return the rows of one part of a run's table, in key order; none when the run never wrote it."""
    try:
        data = store.get(table_key(row_type, key, part))
    except ObjectMissing:
        return []
    return arrow.rows(row_type, arrow.read(data))


def previous(store: ObjectStore, key: RunKey, check: Check, units: set[str]) -> Previous:
    """Return what each of ``units`` was like in the latest earlier run that judged it with ``check``."""
    left = set(units)
    out = Previous()
    rows: list[Row] = []
    used: list[RunKey] = []
    for n, past in enumerate(reading.concluded(store, key.site, before=key.started_at)):
        if not left or n >= MAX_RUNS_BACK:
            break
        if check.name not in past.row.checks.split(","):
            continue
        earlier = RunKey(key.site, past.run, past.started_at, key.origin)
        covered = load_part(store, Coverage, earlier, check.name)
        judged = {c.unit for c in covered if c.state != CoverageState.NOT_JUDGED} & left
        if not judged:
            continue
        left -= judged
        used.append(earlier)
        out.at.update(dict.fromkeys(judged, earlier.started_at))
        for row_type in check.tables:
            rows += [r for r in load_part(store, row_type, earlier, check.name) if check.unit_of(r) in judged]
        for f in load_part(store, Finding, earlier, check.name):
            if f.unit.split("/", 1)[0] in judged:
                out.findings[f.finding] = f
    return Previous(out.at, RowSet.gather(rows), out.findings, tuple(used))
