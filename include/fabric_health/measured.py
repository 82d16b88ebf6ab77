"""Measurements of a run and of earlier ones, arranged for verdicts: one panel per metric and comparability key."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fabric_health.datasets import sql
from fabric_health.datasets.run import RunKey
from fabric_health.datasets.store import ObjectStore
from fabric_health.site import Site
from fabric_health.verdict.comparability import differing, fields_of
from fabric_health.verdict.metrics import JUDGED
from fabric_health.verdict.panel import Panel, performance_of

_QUERY = """
SELECT run, produced_at, launch, "check", unit, unit_kind, metric, value, unit_of_measure, comparability, origin
FROM measurements
WHERE site = ? AND list_contains(?, metric) AND list_contains(?, run)
"""

# Kind of a rail of the nodes that a change left alone: beside the rails of all nodes, no unit of its own.
CONTROL_RAIL = "control_rail"


@dataclass(frozen=True)
class Measured:
    """A panel with what the statistics need not know: the check that measured, its unit of measure and origin."""

    panel: Panel
    check: str
    unit_of_measure: str
    origin: str


@dataclass(frozen=True)
class Incomparable:
    """A metric of this run whose key no earlier run has. ``closest`` is the earlier key that differs least, if any."""

    check: str
    metric: str
    unit_kind: str
    comparability: str
    closest: str | None
    units: tuple[str, ...]


@dataclass(frozen=True)
class Measurements:
    """What a run measured, beside earlier runs. ``controls``: rails of the nodes that a change left alone."""

    panels: tuple[Measured, ...] = ()
    incomparable: tuple[Incomparable, ...] = ()
    controls: tuple[Measured, ...] = ()

    @property
    def with_past(self) -> tuple[Measured, ...]:
        """The panels that an earlier run measured in the same way: only these can be compared."""
        return tuple(m for m in self.panels if len(m.panel.runs) > 1)


def read(store: ObjectStore, site: Site, key: RunKey, earlier: Sequence[str]) -> Measurements:
    """Return panels of everything that run ``key`` measured and that gets a verdict, with ``earlier`` runs before it.

    Of the sizes of one benchmark the largest counts: it is what the other rules judge, and the others follow it.
    Raises StoreError.
    """
    with sql.connect(store, key) as connection:
        runs = [*dict.fromkeys((*earlier, key.run))]
        table = connection.sql(_QUERY, params=[site.name, list(JUDGED), runs]).to_arrow_table()
    return arrange(table, key.run, groups_of(site))


def groups_of(site: Site) -> dict[str, dict[str, str]]:
    """Return, per kind of group, the group of each node and rail: its rack, its SKU, the leaf a rail is cabled to."""
    rails: dict[str, set[str]] = {}
    for cable in site.cables:
        if cable.rail is not None:
            rails.setdefault(f"rail-{cable.rail}", set()).add(cable.switch)
    return {
        "rack": {n.name: n.rack for n in site.nodes if n.rack},
        "sku": {n.name: n.sku_name for n in site.nodes},
        "leaf": {rail: "+".join(sorted(leaves)) for rail, leaves in rails.items()},
    }


def arrange(table: pa.Table, run: str, groups: Mapping[str, Mapping[str, str]] | None = None) -> Measurements:
    """Arrange rows of the view ``measurements`` as panels; ``run`` is the one to be judged. See :func:`read`.

    Rows of other runs whose key ``run`` does not have are no part of a panel; they serve to say what differs.
    """
    kinds = ("metric", "comparability", "check", "unit_kind", "unit_of_measure", "origin")
    keys = table.select([*kinds, "run"]).group_by([*kinds, "run"]).aggregate([]).to_pylist()
    now = [k for k in keys if k["run"] == run]
    before = [k for k in keys if k["run"] != run]
    panels: list[Measured] = []
    odd: list[Incomparable] = []
    controls: list[Measured] = []
    for k in _largest(now):
        mask = pc.equal(table["metric"], k["metric"])
        for name in ("comparability", "unit_kind", "check"):
            mask = pc.and_(mask, pc.equal(table[name], k[name]))
        rows = table.filter(mask)
        panel = _panel(rows, k, groups or {})
        beside = k["unit_kind"] == CONTROL_RAIL
        (controls if beside else panels).append(Measured(panel, k["check"], k["unit_of_measure"], k["origin"]))
        if beside or len(panel.runs) > 1:
            continue
        alike = [b["comparability"] for b in before if all(b[n] == k[n] for n in ("metric", "check", "unit_kind"))]
        closest = min(alike, key=lambda other: (len(differing(other, k["comparability"])), other), default=None)
        odd.append(Incomparable(k["check"], k["metric"], k["unit_kind"], k["comparability"], closest, panel.units))
    return Measurements(tuple(panels), tuple(odd), tuple(controls))


def _largest(keys: Iterable[Mapping[str, str]]) -> list[Mapping[str, str]]:
    """Return, of keys that differ only in their size (and in place or not), the largest out of place.

    Of loads of the same server that differ in their concurrency it is the highest: what throughput is judged by.
    """
    best: dict[tuple[object, ...], tuple[tuple[float, bool], Mapping[str, str]]] = {}
    for k in keys:
        held = fields_of(k["comparability"])
        size, in_place = held.pop("size_bytes", "0"), held.pop("in_place", "false")
        if k["unit_kind"] == "model":
            size = held.pop("concurrency", "0")
        rank = (float(size) if size.isdecimal() else 0.0, in_place != "true")
        family = (k["metric"], k["check"], k["unit_kind"], k["origin"], *sorted(held.items()))
        if family not in best or rank > best[family][0]:
            best[family] = (rank, k)
    return [k for _, k in sorted(best.values(), key=lambda item: (item[1]["check"], item[1]["comparability"]))]


def _panel(rows: pa.Table, k: Mapping[str, str], groups: Mapping[str, Mapping[str, str]]) -> Panel:
    """Arrange rows of one key without a loop over values: five years of a large fleet are tens of millions."""
    metric = JUDGED[k["metric"]]
    firsts = rows.group_by("run").aggregate([("produced_at", "min")]).to_pylist()
    starts = {r["run"]: r["produced_at_min"] for r in firsts}
    runs = sorted(starts, key=lambda r: (starts[r], r))
    units = sorted(pc.unique(rows["unit"]).to_pylist())
    run_at = pc.index_in(rows["run"], pa.array(runs)).to_numpy()
    unit_at = pc.index_in(rows["unit"], pa.array(units)).to_numpy()
    value = rows["value"].to_numpy()
    cell = run_at.astype(np.int64) * len(units) + unit_at
    order = np.lexsort((rows["launch"].to_numpy(), cell))
    cell, value = cell[order], value[order]
    first = np.flatnonzero(np.r_[True, cell[1:] != cell[:-1]])
    number = np.arange(len(cell)) - np.repeat(first, np.diff(np.r_[first, len(cell)]))
    raw = np.full((len(runs), int(number.max()) + 1, len(units)), np.nan)
    raw[cell // len(units), number, cell % len(units)] = value
    performance = performance_of(metric, raw)
    named = {kind: tuple(of.get(u, "?") for u in units) for kind, of in groups.items() if any(u in of for u in units)}
    at = tuple(_utc(starts[r]) for r in runs)
    return Panel(metric, k["comparability"], k["unit_kind"], tuple(runs), at, tuple(units), performance, named)


def _utc(at: datetime) -> datetime:
    return at.astimezone(UTC)
