"""Hold what a run has landed, with the runs before it, against the suites, through Great Expectations.

Great Expectations takes seconds to import, so it is imported when it is used and never while a DAG is parsed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import islice
from statistics import median
from typing import TYPE_CHECKING

from fabric_health.checks import registry
from fabric_health.checks.driver_firmware.tables import Link
from fabric_health.checks.switch_config.tables import SwitchConfig, SwitchPort
from fabric_health.datasets import arrow, reading
from fabric_health.datasets.contracts import Row, columns
from fabric_health.datasets.landing import table_key
from fabric_health.datasets.registry import all_tables
from fabric_health.datasets.run import RunKey
from fabric_health.datasets.store import ObjectMissing, ObjectStore
from fabric_health.datasets.tables import (
    Coverage,
    CoverageState,
    Fact,
    Finding,
    QualityResult,
    Quarantine,
    Run,
    Severity,
)
from fabric_health.quality import suites
from fabric_health.site import Node, Site

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

HISTORY_RUNS = 8
MIN_HISTORY_RUNS = 3
HISTORY_WEEKS = 26
TREND_WEEKS = 8


@dataclass(frozen=True)
class Batch:
    """A frame and the rules it is held against. ``suite`` is the table; ``name`` is unique within an evaluation."""

    name: str
    suite: str
    frame: pd.DataFrame
    rules: tuple[suites.Rule, ...]


@dataclass(frozen=True)
class QualityOutcome:
    """Results for table ``quality_results``, Data Docs by file name, and what failed critically, in words."""

    results: tuple[QualityResult, ...]
    docs: Mapping[str, bytes]
    critical_failures: tuple[str, ...]


def evaluate(
    store: ObjectStore, site: Site, key: RunKey, scope: Sequence[str], checks: Sequence[str]
) -> QualityOutcome:
    """Evaluate the suites of a run whose checks have landed their rows, findings and coverage.

    ``scope`` are the units the run was asked for, ``checks`` the names of its checks. The outcome depends on what
    is stored only, not on the clock. Raises StoreError and ContractError; data that fails is a result.
    """
    return _outcome(_batches(store, site, key, scope, checks), key)


def evaluate_trends(store: ObjectStore, site: Site, key: RunKey, weeks: int = TREND_WEEKS) -> QualityOutcome:
    """Evaluate the tables of the last ``weeks`` weeks as a whole, as of ``key.started_at``.

    Besides each row's contract this finds rows that two runs landed under one key, and a weekly run that has stopped
    running. Raises StoreError and ContractError; data that fails is a result.
    """
    import pandas as pd

    monday = date.fromisoformat(key.week)
    partitions = [(monday - timedelta(weeks=n)).isoformat() for n in range(weeks)]
    batches = []
    for row_type in all_tables():
        if row_type is Quarantine:
            continue
        rules = tuple(suites.contract_rules(row_type, site.origin, of_many_runs=True))
        frame = _frame(row_type, reading.table(store, row_type, site.name, weeks=partitions))
        batches.append(Batch(row_type.TABLE, row_type.TABLE, frame, rules))
    latest = next(reading.concluded(store, site.name), None)
    age = (key.started_at - latest.started_at) / timedelta(days=1) if latest else float("inf")
    frame = pd.DataFrame({"days": [max(age, 0.0)]})
    return _outcome([*batches, Batch("runs_fresh", Run.TABLE, frame, (suites.fresh_now(),))], key)


def _outcome(batches: Sequence[Batch], key: RunKey) -> QualityOutcome:
    from fabric_health.quality import expectations

    results, docs = expectations.validate(batches, key)
    failed = tuple(
        f"{r.suite}: {r.description} ({r.observed or 'no value'})"
        for r in results
        if not r.success and r.severity == Severity.CRITICAL
    )
    return QualityOutcome(tuple(results), docs, failed)


def _batches(store: ObjectStore, site: Site, key: RunKey, scope: Sequence[str], checks: Sequence[str]) -> list[Batch]:
    of_checks = [t for name in checks for t in registry.check(name).tables]
    row_types = tuple(dict.fromkeys((*of_checks, Finding, Coverage, Quarantine)))
    tables = {t: reading.table(store, t, site.name, run=key.run, weeks=[key.week]) for t in row_types}
    batches = [
        Batch(t.TABLE, t.TABLE, _frame(t, tables[t]), tuple(rules))
        for t, rules in suites.suites(row_types, site.origin).items()
    ]
    batches.append(_judgements(tables[Quarantine]))
    batches += _completeness(site, tables, scope, checks)
    return batches + _history(store, site, key, tables, checks)


def _judgements(quarantine: pa.Table) -> Batch:
    """Return one row per finding or coverage row that did not land: without it a run looks better than it is."""
    names = ("check", "target_table", "reason")
    rows = zip(*(quarantine.column(n).to_pylist() for n in names), strict=True)
    lost = [
        f"{table} of {check}: {reason}"
        for check, table, reason in rows
        if table in (Finding.TABLE, Coverage.TABLE) and not reason.endswith(arrow.SAME_ROW)
    ]
    return _complete(Quarantine, lost or [None], "every finding and coverage row", Severity.CRITICAL)


def _frame(row_type: type[Row], table: pa.Table) -> pd.DataFrame:
    """Return the columns that rules look at; numbers as floats, since a nullable whole number has no other form."""
    wanted: set[str] = set()
    for rule in suites.contract_rules(row_type, "", of_many_runs=True):
        wanted.update(rule.arguments.get("column_list", ()))
        if "column" in rule.arguments:
            wanted.add(rule.arguments["column"])
    frame = table.select([n for n in table.column_names if n in wanted]).to_pandas()
    numbers = {c.name: "float64" for c in columns(row_type) if c.type in (int, float) and c.name in wanted}
    typed: pd.DataFrame = frame.astype(numbers)
    return typed


def _completeness(
    site: Site, tables: Mapping[type[Row], pa.Table], scope: Sequence[str], checks: Sequence[str]
) -> list[Batch]:
    """Return one batch per table that must have something for every unit of the site in scope."""
    coverage = tables[Coverage]
    states = {
        (c, u): s for c, u, s in zip(*(coverage.column(n).to_pylist() for n in ("check", "unit", "state")), strict=True)
    }
    units = [site.unit(name) for name in scope]
    asked = [(c, u) for c in checks for u in units if u.kind == registry.check(c).unit_kind]
    missing = [None if (c, u.name) in states else f"{u.name} ({c})" for c, u in asked]
    batches = [_complete(Coverage, missing, "coverage of every unit in scope", Severity.CRITICAL)]
    for check in checks:
        of_check = registry.check(check).tables
        judged = [
            u for c, u in asked if c == check and states.get((c, u.name), CoverageState.NOT_JUDGED) != "not_judged"
        ]
        if Fact in of_check:
            have = {u.split("/", 1)[0] for u in tables[Fact].column("unit").to_pylist()}
            missing = [None if u.name in have else u.name for u in judged]
            batches.append(
                _complete(Fact, missing, f"a fact of every unit that {check} judged", Severity.CRITICAL, check)
            )
        if Link in of_check:
            have = set(tables[Link].column("nic").to_pylist())
            nics = [u.nic_unit(n.name) for u in judged if isinstance(u, Node) for n in u.sku.nics]
            missing = [None if n in have else n for n in nics]
            batches.append(_complete(Link, missing, "a link of every NIC of every judged node", Severity.WARNING))
        if SwitchConfig in of_check:
            have = set(tables[SwitchConfig].column("switch").to_pylist())
            missing = [None if u.name in have else u.name for u in judged]
            batches.append(_complete(SwitchConfig, missing, "the config of every judged switch", Severity.WARNING))
        if SwitchPort in of_check:
            t = tables[SwitchPort]
            seen = set(zip(t.column("switch").to_pylist(), t.column("port").to_pylist(), strict=True))
            ports = [(u.name, c.port) for u in judged for c in site.cables_of(u.name)]
            missing = [None if p in seen else f"{p[0]}/{p[1]}" for p in ports]
            batches.append(_complete(SwitchPort, missing, "every cabled port of every judged switch", Severity.WARNING))
    return batches


def _complete(
    row_type: type[Row], missing: Sequence[str | None], what: str, severity: Severity, of: str = "all"
) -> Batch:
    import pandas as pd

    frame = pd.DataFrame({"missing": pd.Series(missing, dtype="object")})
    return Batch(f"{row_type.TABLE}_complete_{of}", row_type.TABLE, frame, (suites.complete(what, severity),))


def _history(
    store: ObjectStore, site: Site, key: RunKey, tables: Mapping[type[Row], pa.Table], checks: Sequence[str]
) -> list[Batch]:
    """Return batches that compare this run with the concluded runs before it; none where there are too few."""
    import pandas as pd

    concluded = reading.concluded(store, site.name, before=key.started_at, max_weeks=HISTORY_WEEKS)
    past = [RunKey(site.name, r.run, r.started_at, site.origin) for r in islice(concluded, HISTORY_RUNS)]
    if not past:
        return []
    days = (key.started_at - past[0].started_at) / timedelta(days=1)
    batches = [Batch("runs_fresh", Run.TABLE, pd.DataFrame({"days": [days]}), (suites.fresh(),))]
    for check in checks:
        judged_now = _judged(tables[Coverage], check)
        judged_then = [_judged_in(store, run, check) for run in past]
        for row_type in registry.check(check).tables:
            if row_type not in suites.STEADY or not judged_now:
                continue
            counts = [arrow.count(store, table_key(row_type, run, check)) for run in past]
            earlier = [n / units for n, units in zip(counts, judged_then, strict=True) if units]
            if len(earlier) < MIN_HISTORY_RUNS or not median(earlier):
                continue
            now = arrow.count(store, table_key(row_type, key, check)) / judged_now
            frame = pd.DataFrame({"ratio": [now / median(earlier)]})
            rule = suites.steady_rows(check)
            batches.append(Batch(f"{row_type.TABLE}_rows_{check}", row_type.TABLE, frame, (rule,)))
    return batches


def _judged_in(store: ObjectStore, key: RunKey, check: str) -> int:
    try:
        return _judged(arrow.read(store.get(table_key(Coverage, key, check))), check)
    except ObjectMissing:
        return 0


def _judged(coverage: pa.Table, check: str) -> int:
    pairs = zip(coverage.column("check").to_pylist(), coverage.column("state").to_pylist(), strict=True)
    return sum(c == check and s != CoverageState.NOT_JUDGED for c, s in pairs)
