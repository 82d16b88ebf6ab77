"""Earlier runs of a site: what each unit was like when it was last judged."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from datetime import datetime
from typing import Generic, TypeVar

from fabric_health.checks.check import Check, RowSet
from fabric_health.datasets import arrow, reading
from fabric_health.datasets.contracts import Row
from fabric_health.datasets.landing import table_key
from fabric_health.datasets.run import RunKey
from fabric_health.datasets.store import ObjectMissing, ObjectStore
from fabric_health.datasets.tables import Coverage, CoverageState, Finding

R = TypeVar("R", bound=Row)
MAX_RUNS_BACK = 60
# Runs that are looked through for findings only, of units that were judged in part since.
PARTIAL_RUNS_BACK = 8


@dataclass(frozen=True)
class Comparable(Generic[R]):
    """Rows of earlier runs that may be compared with this run's, and per comparability the start (UTC) of theirs."""

    rows: tuple[R, ...] = ()
    at: dict[str, datetime] = field(default_factory=dict)


def judged_part(check: str) -> str:
    """Return the part under which quarantine of a check's findings is kept, apart from that of its measured rows."""
    return f"{check}.judged"


@dataclass(frozen=True)
class Previous:
    """Per unit, the latest earlier concluded run that judged it: when, and what it held; findings by their id.

    ``carried_at`` says, by unit and table, when rows were landed that the unit's latest run could not give.
    """

    at: dict[str, datetime] = field(default_factory=dict)
    rows: RowSet = field(default_factory=RowSet)
    carried_at: dict[tuple[str, str], datetime] = field(default_factory=dict)
    findings: dict[str, Finding] = field(default_factory=dict)
    runs: tuple[RunKey, ...] = ()

    def seen_at(self, row_type: type[Row]) -> dict[str, datetime]:
        """Return, per unit, the start of the run that its rows of one type are of."""
        return self.at | {unit: at for (unit, table), at in self.carried_at.items() if table == row_type.TABLE}


def load_part(store: ObjectStore, row_type: type[R], key: RunKey, part: str) -> list[R]:
    """Return the rows of one part of a run's table, in key order; none when the run never wrote it."""
    try:
        data = store.get(table_key(row_type, key, part))
    except ObjectMissing:
        return []
    return arrow.rows(row_type, arrow.read(data))


def previous(store: ObjectStore, key: RunKey, check: Check, units: set[str]) -> Previous:
    """Return what each of ``units`` was like in the latest earlier run that judged it with ``check``.

    ``units`` are what the check asks, of a benchmark what its launches measure (which gives no rows here). A unit's
    rows are of the latest run that judged it at least in part; a table of which that run read nothing, say the config
    of a switch that gave its ports only, is of the latest run before that has it. Its findings go on to the latest run
    that judged it in full: a run that could not see a finding does not end its series. Findings on what is no unit (a
    SKU, a benchmark) are those of the latest run that looked at most of ``units``.
    """
    left, unsettled = set(units), set(units)
    out = Previous()
    rows: list[Row] = []
    missing: dict[type[Row], set[str]] = {}
    used: list[RunKey] = []
    runs = further = 0
    whole = False
    for past in reading.concluded(store, key.site, before=key.started_at):
        if not unsettled or runs >= MAX_RUNS_BACK or further >= PARTIAL_RUNS_BACK:
            break
        if check.name not in past.checks:
            continue
        runs, further = runs + 1, further + (not left)
        earlier = RunKey(key.site, past.run, past.started_at, key.origin)
        states = {c.unit: c.state for c in load_part(store, Coverage, earlier, check.name)}
        judged = {u for u, s in states.items() if s != CoverageState.NOT_JUDGED} & unsettled
        if not judged:
            continue
        latest = judged & left
        if latest:
            left -= latest
            used.append(earlier)
            out.at.update(dict.fromkeys(latest, earlier.started_at))
        for row_type in () if check.launches else check.tables:
            carried = missing.setdefault(row_type, set()) & judged
            wanted = latest | carried
            found = (
                [r for r in load_part(store, row_type, earlier, check.name) if check.unit_of(r) in wanted]
                if wanted
                else []
            )
            rows += found
            having = {check.unit_of(r) for r in found}
            out.carried_at.update({(u, row_type.TABLE): earlier.started_at for u in having & carried})
            # What a run that saw the whole unit does not have is not there.
            whole_units = {u for u in wanted if states[u] == CoverageState.JUDGED}
            missing[row_type] = (missing[row_type] | latest) - having - whole_units
        first_whole = not whole and 2 * len(states.keys() & units) > len(units)
        whole = whole or first_whole
        for f in load_part(store, Finding, earlier, check.name):
            owner = f.unit.split("/", 1)[0]
            if owner in judged or (first_whole and owner not in states):
                out.findings.setdefault(f.finding, f)
        unsettled -= {u for u in judged if states[u] == CoverageState.JUDGED}
    return Previous(out.at, RowSet.gather(rows), out.carried_at, out.findings, tuple(used))


def comparable(
    store: ObjectStore,
    key: RunKey,
    check: str,
    row_type: type[R],
    now: Collection[R],
    key_of: Callable[[R], str | None],
) -> Comparable[R]:
    """Return, for each comparability of the rows of ``now``, the rows of the latest earlier concluded run that has it.

    ``key_of`` gives a row's comparability, None where the row is no measurement.
    """
    left = {k for k in map(key_of, now) if k is not None}
    found: list[R] = []
    at: dict[str, datetime] = {}
    for n, past in enumerate(reading.concluded(store, key.site, before=key.started_at)):
        if not left or n >= MAX_RUNS_BACK:
            break
        if check not in past.checks:
            continue
        earlier = RunKey(key.site, past.run, past.started_at, key.origin)
        rows = [(key_of(r), r) for r in load_part(store, row_type, earlier, check)]
        held = [(k, r) for k, r in rows if k in left]
        found += [r for _, r in held]
        for k, _ in held:
            if k is not None:
                at[k] = earlier.started_at
        left -= at.keys()
    return Comparable(tuple(found), at)
