"""What comparing a run with earlier ones landed, read back for its page; with the last runs of what got slower."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from statistics import median
from typing import TYPE_CHECKING

from fabric_health.checks.collectives.tables import Collective
from fabric_health.compared import PART, RUN
from fabric_health.datasets import reading
from fabric_health.datasets.store import ObjectStore
from fabric_health.datasets.verdict_tables import Attribution, Verdict
from fabric_health.history import load_part
from fabric_health.report.data import Level, Trend, VerdictResults
from fabric_health.run_document import RunDocument
from fabric_health.verdict.comparability import fields_of
from fabric_health.verdict.outcome import Outcome

if TYPE_CHECKING:
    import pyarrow as pa

CHECK, METRIC = "collectives", "busbw_gbps"
TRENDS_SHOWN = 6
RUNS_SHOWN = 12
# Runs that are looked through for those that measured the benchmark.
_RUNS_BACK = 40


def verdict_results(store: ObjectStore, run: RunDocument) -> VerdictResults | None:
    """Return the verdicts of a run, None when it was not compared with earlier ones."""
    rows = load_part(store, Verdict, run.key, PART)
    if not any(r.subject_kind == RUN for r in rows):
        return None
    return VerdictResults(
        rows=tuple(rows),
        attributions=tuple(load_part(store, Attribution, run.key, PART)),
        change=run.change,
        trends=_trends(store, run, rows),
    )


def _trends(store: ObjectStore, run: RunDocument, rows: Sequence[Verdict]) -> tuple[Trend, ...]:
    """Return the bus bandwidth of the units that lost most, over the last runs that measured it in the same way."""
    lost = [
        r
        for r in rows
        if r.outcome == Outcome.REGRESSED and r.check == CHECK and r.metric == METRIC and r.subject_kind != "set"
    ]
    lost = sorted(lost, key=lambda r: (-(r.loss or 0), r.subject))[:TRENDS_SHOWN]
    if not lost:
        return ()
    earlier = islice(reading.concluded(store, run.key.site, before=run.key.started_at), _RUNS_BACK)
    measured = [held for held in earlier if CHECK in held.checks][: RUNS_SHOWN - 1]
    at = [(held.run, held.week, held.started_at) for held in reversed(measured)]
    levels: list[list[Level]] = [[] for _ in lost]
    for name, week, started_at in (*at, (run.key.run, run.key.week, run.key.started_at)):
        table = _of_keys(reading.table(store, Collective, run.key.site, run=name, weeks=[week]), lost)
        for of, r in zip(levels, lost, strict=True):
            values = _values(table, r)
            if values:
                of.append(Level(name, started_at, median(values), min(values), max(values), len(values)))
    found = zip(lost, levels, strict=True)
    return tuple(Trend(r.subject, _what(r), r.margin or 0.0, tuple(of)) for r, of in found if len(of) > 1)


def _what(r: Verdict) -> str:
    return f"{fields_of(r.comparability).get('collective', CHECK)} {METRIC}"


def _of_keys(table: pa.Table, lost: Sequence[Verdict]) -> pa.Table:
    import pyarrow as pa
    import pyarrow.compute as pc

    return table.filter(pc.is_in(table["comparability"], pa.array(sorted({r.comparability for r in lost}))))


def _values(table: pa.Table, r: Verdict) -> list[float]:
    """Return the launches of one unit: of all ranks together, which the engine stands for, or of its own group."""
    import pyarrow.compute as pc

    if r.subject_kind == "benchmark":
        mask = pc.and_(pc.equal(table["group_kind"], "all"), pc.equal(table["engine"], r.subject))
    else:
        mask = pc.and_(pc.equal(table["group_kind"], r.subject_kind), pc.equal(table["group"], r.subject))
    mask = pc.and_(mask, pc.equal(table["comparability"], r.comparability))
    found = table.filter(pc.and_(mask, pc.equal(pc.fill_null(table["wrong"], 0), 0)))
    return [v for v in found[METRIC].to_pylist() if v is not None and v > 0]
