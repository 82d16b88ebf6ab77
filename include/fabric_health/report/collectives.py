"""Collective benchmarks on the page: bandwidth against size by engine; nodes and rails against their peers.

Only what was measured is shown: groups of one node give nodes, groups of one rail give rails, and no cell of a grid of
both is made up from the two.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import median

from fabric_health.checks.collectives.comparability import FIELDS, peer_key
from fabric_health.checks.collectives.peers import best_launch, largest_size
from fabric_health.checks.collectives.tables import Collective, Isolation
from fabric_health.datasets.tables import CoverageState, Finding, Severity
from fabric_health.report import fabric_map
from fabric_health.report.data import CollectiveResults, ReportData
from fabric_health.report.text import figure

CHECK = "collectives"
CURVES_SHOWN = 24
CELLS_A_ROW = 8
REFUSED_SHOWN = 50
# Groups that are held against each other; launches of the last kind are too noisy for shades to mean anything.
PEER_KINDS = ("node", "rail", "ranks")
UNSHADED = "ranks"
# Shares below the median of the peers from which a cell is shaded darker; no verdicts, those are findings.
SHADES = (0.01, 0.02, 0.05, 0.10)
_OF_A_CURVE = tuple(name for name in FIELDS if name != "size_bytes")


@dataclass(frozen=True)
class Point:
    """Bus bandwidth at one size over the launches, GB/s: median, least and most."""

    size_bytes: int
    median: float
    low: float
    high: float
    launches: int


@dataclass(frozen=True)
class Curve:
    """Bus bandwidth against size of one collective: of this run and of the latest earlier one that compares.

    ``launched``: how many launches were to measure it. ``before_at``: when the largest size was last measured.
    """

    title: str
    setting: str
    in_place: bool
    now: tuple[Point, ...]
    launched: int
    before: tuple[Point, ...] = ()
    before_at: datetime | None = None

    @property
    def top(self) -> Point:
        """The largest size."""
        return self.now[-1]

    @property
    def top_before(self) -> Point | None:
        """The same size in the earlier run, None where it has none."""
        return next((p for p in self.before if p.size_bytes == self.top.size_bytes), None)

    @property
    def change(self) -> float | None:
        """Change of the median at the largest size, as a share of the earlier one."""
        past = self.top_before
        return self.top.median / past.median - 1 if past and past.median > 0 else None


@dataclass(frozen=True)
class PeerCell:
    """A node or rail against its peers; ``share`` is what it differs by from their median, ``look`` a class."""

    name: str
    label: str
    share: float
    symbol: str
    look: str
    anchor: str | None = None


@dataclass(frozen=True)
class PeerMap:
    """Nodes, rails or pairs of ranks. ``median_gbps`` is that of all of them, each at its best launch, in GB/s."""

    kind: str
    collective: str
    setting: str
    size_bytes: int
    median_gbps: float
    rows: tuple[tuple[PeerCell, ...], ...]
    folded: tuple[tuple[PeerCell, ...], ...]


@dataclass(frozen=True)
class Engine:
    """The results of one engine. ``refused``: launches whose numbers are not used, with why."""

    name: str
    origins: tuple[str, ...]
    launches: int
    curves: tuple[Curve, ...]
    drawn: tuple[Curve, ...]
    maps: tuple[PeerMap, ...]
    refused: tuple[tuple[str, str], ...]
    isolations: tuple[Isolation, ...] = ()


def engines(data: ReportData, linked: frozenset[str]) -> tuple[Engine, ...]:
    """Return what each engine measured, what was measured on this machine first. ``linked``: findings on the page."""
    results = data.collectives
    if results is None:
        return ()
    findings = {
        (f.unit, f.metric): f for f in data.findings if f.check == CHECK and f.rule.endswith("_as_fast_as_peers")
    }
    out = []
    for name in sorted({x.engine for x in results.launches} | {r.engine for r in results.rows}):
        launched = [x for x in results.launches if x.engine == name]
        origins = {results.origins.get(x.launch, data.key.origin) for x in launched} or {data.key.origin}
        curves = tuple(_curves(results, name))
        placed = {(c.title, c.setting) for c in curves if not c.in_place}
        drawn = [c for c in curves if not c.in_place or (c.title, c.setting) not in placed]
        maps = tuple(_maps(results, name, findings, linked))
        refused = tuple(_refused(results, name))
        isolations = tuple(i for i in results.isolations if i.engine == name)
        shown = tuple(drawn[:CURVES_SHOWN])
        out.append(Engine(name, tuple(sorted(origins)), len(launched), curves, shown, maps, refused, isolations))
    return tuple(sorted(out, key=lambda e: (e.origins != ("measured",), e.name)))


def left_out(data: ReportData) -> list[tuple[str, str]]:
    """Return the units that the benchmarks were to measure and did not, with the reason."""
    return [
        (c.unit, c.reason or "no reason given")
        for c in data.coverage
        if c.check == CHECK and c.state == CoverageState.NOT_JUDGED
    ]


def _curves(results: CollectiveResults, engine: str) -> Iterator[Curve]:
    now = _by_curve([r for r in results.rows if r.engine == engine])
    before = _by_curve(results.before.rows)
    titles = {key: _title(rows[0]) for key, rows in now.items()}
    settings = _settings({key: rows[0] for key, rows in now.items()}, titles)
    for key in sorted(now, key=lambda k: (titles[k], settings[k], now[k][0].in_place)):
        rows, past = now[key], before.get(key, [])
        top = max(rows, key=lambda r: r.size_bytes)
        yield Curve(
            titles[key],
            settings[key],
            top.in_place,
            _points(rows),
            max(_launched(results, top), len({r.launch for r in rows})),
            _points(past),
            results.before.at.get(top.comparability),
        )


def _by_curve(rows: Sequence[Collective]) -> dict[tuple[object, ...], list[Collective]]:
    """Group the rows of all ranks, or of the slowest of a tool's groups; wrong values have no bandwidth."""
    curves: dict[tuple[object, ...], list[Collective]] = defaultdict(list)
    for r in rows:
        if (r.group_kind == "all" or r.group.endswith(":slowest")) and not r.wrong:
            curves[tuple(getattr(r, name) for name in _OF_A_CURVE)].append(r)
    return curves


def _points(rows: Sequence[Collective]) -> tuple[Point, ...]:
    sizes: dict[int, list[Collective]] = defaultdict(list)
    for r in rows:
        sizes[r.size_bytes].append(r)
    out = []
    for size, at in sorted(sizes.items()):
        values = [r.busbw_gbps for r in at]
        out.append(Point(size, median(values), min(values), max(values), len({r.launch for r in at})))
    return tuple(out)


def _title(row: Collective) -> str:
    return row.collective if row.group_kind == "all" else f"{row.collective}, slowest {row.group_kind}"


def _settings(
    rows: Mapping[tuple[object, ...], Collective], titles: Mapping[tuple[object, ...], str]
) -> dict[tuple[object, ...], str]:
    """Name nodes and ranks, and whatever else tells curves of one title apart."""
    told = {"in_place", "nodes", "ranks", "ranks_per_node", "group_kind", "collective"}
    out = {}
    for key, row in rows.items():
        alike = [r for k, r in rows.items() if titles[k] == titles[key] and r.in_place == row.in_place]
        odd = [f for f in _OF_A_CURVE if f not in told and len({getattr(r, f) for r in alike}) > 1]
        nodes = "1 node" if row.nodes == 1 else f"{row.nodes:,} nodes"
        ranks = "1 rank" if row.ranks_per_node == 1 else f"{row.ranks_per_node:,} ranks"
        out[key] = ", ".join([f"{nodes} × {ranks}", *(f"{f} {getattr(row, f)}" for f in odd)])
    return out


def _launched(results: CollectiveResults, row: Collective) -> int:
    return sum(
        x.engine == row.engine and x.workload in (row.collective, "sweep") and x.grouping == row.group_kind
        for x in results.launches
    )


def _refused(results: CollectiveResults, engine: str) -> Iterator[tuple[str, str]]:
    reasons: dict[str, list[str]] = defaultdict(list)
    for p in results.problems:
        if p.refuses:
            reasons[p.launch].append(f"{p.detail} (rule {p.rule})")
    for x in results.launches:
        if x.engine == engine and not x.usable:
            yield x.launch, "; ".join(reasons.get(x.launch, ["no reason was recorded"]))


def _maps(
    results: CollectiveResults, engine: str, findings: Mapping[tuple[str, str], Finding], linked: frozenset[str]
) -> Iterator[PeerMap]:
    grouped: dict[tuple[str, str], list[Collective]] = defaultdict(list)
    for r in results.rows:
        if r.engine == engine and r.group_kind in PEER_KINDS and not r.group.endswith(":slowest") and not r.wrong:
            grouped[r.group_kind, r.collective].append(r)
    for (kind, collective), rows in sorted(grouped.items()):
        peers: dict[str, list[Collective]] = defaultdict(list)
        for r in largest_size(rows):
            peers[peer_key(r)].append(r)
        for key, same in sorted(peers.items()):
            past = best_launch([r for r in results.before.rows if r.group_kind == kind and peer_key(r) == key])
            values = best_launch(same)
            middle = median(values.values())
            metric, shaded = f"{collective}.{kind}.busbw_gbps", kind != UNSHADED
            cells = [
                _cell(unit, value, middle, past.get(unit), findings.get((unit, metric)), linked, shaded=shaded)
                for unit, value in sorted(values.items(), key=lambda item: _natural(item[0]))
            ]
            setting = same[0].sku or ""
            yield _map(kind, collective, setting, same[0].size_bytes, middle, cells)


def _map(
    kind: str, collective: str, setting: str, size_bytes: int, middle: float, cells: Sequence[PeerCell]
) -> PeerMap:
    rows = [tuple(cells[i : i + CELLS_A_ROW]) for i in range(0, len(cells), CELLS_A_ROW)]
    folded: list[tuple[PeerCell, ...]] = []
    if len(rows) > fabric_map.ROWS_OPEN:
        folded = [r for r in rows if not any(c.symbol for c in r)]
        rows = [r for r in rows if any(c.symbol for c in r)]
    return PeerMap(kind, collective, setting, size_bytes, middle, tuple(rows), tuple(folded))


def _cell(
    unit: str,
    value: float,
    middle: float,
    past: float | None,
    found: Finding | None,
    linked: frozenset[str],
    *,
    shaded: bool,
) -> PeerCell:
    share = value / middle - 1 if middle > 0 else 0.0
    told = f"{unit}: {figure(value, 4)} GB/s, median of all {figure(middle, 4)} GB/s"
    told += f", before {figure(past, 4)} GB/s" if past is not None else ""
    if found is None:
        return PeerCell(unit, told, share, "", f"shade-{sum(share <= -limit for limit in SHADES) if shaded else 0}")
    look = fabric_map.CRITICAL if found.severity == Severity.CRITICAL else fabric_map.WARNING
    if found.acknowledged_by is not None:
        look = fabric_map.ACKNOWLEDGED
    elif found.explained_by is not None:
        look = fabric_map.EXPLAINED
    anchor = found.finding if found.finding in linked else None
    return PeerCell(unit, f"{told}. {found.summary}", share, look[0], look[2], anchor)


def _natural(name: str) -> tuple[str, int, str]:
    stem = name.rstrip("0123456789")
    digits = name[len(stem) :]
    return stem, int(digits) if digits.isascii() and 0 < len(digits) <= 9 else -1, name
