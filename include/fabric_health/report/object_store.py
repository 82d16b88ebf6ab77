"""The object store benchmark on the page: throughput, times and errors by operation and object size."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import median

from fabric_health.checks.object_store.tables import ObjectStoreResult
from fabric_health.report import text
from fabric_health.report.data import ReportData

LINES_SHOWN = 60


@dataclass(frozen=True)
class Spread:
    """A figure over launches: median, least and most."""

    median: float
    low: float
    high: float
    values: tuple[float, ...]


@dataclass(frozen=True)
class Line:
    """One operation at one object size. Times are medians over launches of each launch's own percentile, in ms.

    ``unit`` is MiB/s, or objects/s for operations without payload; ``before`` is in the same unit, and None where
    nothing compares or requests failed.
    """

    title: str
    setting: str
    object_bytes: int
    unit: str
    speed: Spread
    objects_per_s: Spread | None
    ttfb_p50_ms: float | None
    ttfb_p99_ms: float | None
    latency_p99_ms: float | None
    errors: int
    requests: int
    launches: int
    launched: int
    before: Spread | None = None
    before_at: datetime | None = None

    @property
    def change(self) -> float | None:
        """Change of the median, as a share of the earlier one."""
        return self.speed.median / self.before.median - 1 if self.before and self.before.median > 0 else None


@dataclass(frozen=True)
class Store:
    """What was measured of one object store. ``refused``: launches that are no measurement of what was asked."""

    name: str
    engine: str
    server: str
    origins: tuple[str, ...]
    lines: tuple[Line, ...]
    refused: tuple[tuple[str, str], ...]


def stores(data: ReportData) -> tuple[Store, ...]:
    """Return what was measured of each object store."""
    results = data.object_store
    if results is None:
        return ()
    out = []
    for name, engine in sorted({(r.store, r.engine) for r in results.rows}):
        rows = [r for r in results.rows if (r.store, r.engine) == (name, engine)]
        origins = {results.origins.get(r.launch, data.key.origin) for r in rows}
        servers = sorted({r.server for r in rows if r.server})
        refused = tuple((f"{r.launch}, {r.op}", r.problem) for r in rows if r.problem is not None)
        out.append(Store(name, engine, ", ".join(servers), tuple(sorted(origins)), _lines(data, rows), refused))
    return tuple(out)


def _lines(data: ReportData, rows: Sequence[ObjectStoreResult]) -> tuple[Line, ...]:
    results = data.object_store
    if results is None:
        return ()
    kinds: dict[str, list[ObjectStoreResult]] = defaultdict(list)
    launched: dict[tuple[str, str, int, int], set[str]] = defaultdict(set)
    for r in rows:
        launched[_asked(r)].add(r.launch)
        if r.problem is None:
            kinds[r.comparability].append(r)
    before: dict[str, list[ObjectStoreResult]] = defaultdict(list)
    for r in results.before.rows:
        before[r.comparability].append(r)
    lines = []
    for key, same in kinds.items():
        line = _line(same, before.get(key, ()), len(launched[_asked(same[0])]), results.before.at.get(key))
        if line is not None:
            lines.append(line)
    return tuple(sorted(lines, key=lambda x: (x.object_bytes, x.title, x.setting))[:LINES_SHOWN])


def _asked(r: ObjectStoreResult) -> tuple[str, str, int, int]:
    return r.op, r.load, r.asked_object_bytes, r.asked_concurrency


def _line(
    rows: Sequence[ObjectStoreResult], past: Sequence[ObjectStoreResult], launched: int, at: datetime | None
) -> Line | None:
    first, unit = rows[0], "MiB/s"
    speed, before = _spread(r.mib_per_s for r in rows), _spread(r.mib_per_s for r in past)
    if speed is None:
        unit = "objects/s"
        speed, before = _spread(r.objects_per_s for r in rows), _spread(r.objects_per_s for r in past)
    if speed is None:
        return None
    errors = sum(r.errors or 0 for r in rows)
    return Line(
        title=f"{first.op} {text.size(first.asked_object_bytes)}" + (" of mixed" if first.load == "mixed" else ""),
        setting=f"{first.asked_concurrency:,} at once",
        object_bytes=first.asked_object_bytes,
        unit=unit,
        speed=speed,
        objects_per_s=_spread(r.objects_per_s for r in rows),
        ttfb_p50_ms=text.median_of(r.ttfb_p50_ms for r in rows),
        ttfb_p99_ms=text.median_of(r.ttfb_p99_ms for r in rows),
        latency_p99_ms=text.median_of(r.latency_p99_ms for r in rows),
        errors=errors,
        requests=sum(r.requests or 0 for r in rows),
        launches=len({r.launch for r in rows}),
        launched=launched,
        before=None if errors else before,
        before_at=None if errors else at,
    )


def _spread(values: Iterable[float | None]) -> Spread | None:
    known = sorted(v for v in values if v is not None)
    return Spread(median(known), known[0], known[-1], tuple(known)) if known else None
