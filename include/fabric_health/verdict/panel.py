"""Measurements of one metric and one comparability key as runs x launches x units."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

import numpy as np
import numpy.typing as npt

from fabric_health.verdict.outcome import Metric

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Value:
    """One value of one unit in one launch of one run, in the metric's own unit of measure."""

    run: str
    at: datetime
    launch: int
    unit: str
    value: float


@dataclass(frozen=True)
class Panel:
    """``performance`` is the natural logarithm of the metric, of its inverse where lower is better: more is better.

    Its shape is runs x launches x units; NaN is "not measured", never zero. Runs are in the order of time; the last
    is the one to be judged. Launches of a run have no order that matters. ``groups`` names, per kind of group (e.g.
    ``rack``, ``leaf``, ``sku``), the group of each unit, in the order of ``units``.
    """

    metric: Metric
    comparability: str
    unit_kind: str
    runs: tuple[str, ...]
    at: tuple[datetime, ...]
    units: tuple[str, ...]
    performance: Floats
    groups: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        shape = self.performance.shape
        if len(shape) != 3 or (shape[0], shape[2]) != (len(self.runs), len(self.units)) or len(self.at) != shape[0]:
            wanted = f"{len(self.runs)} runs x launches x {len(self.units)} units"
            raise ValueError(f"performance has shape {shape}; expected {wanted}, and a time for each run")
        if any(len(g) != len(self.units) for g in self.groups.values()):
            raise ValueError("every kind of group needs one name for each unit")

    def only(self, units: Iterable[str]) -> Panel:
        """Return the panel of some of its units, in its own order; units that it lacks are left out."""
        wanted = set(units)
        at = [i for i, u in enumerate(self.units) if u in wanted]
        return replace(
            self,
            units=tuple(self.units[i] for i in at),
            performance=self.performance[:, :, at],
            groups={kind: tuple(names[i] for i in at) for kind, names in self.groups.items()},
        )

    def of_runs(self, runs: Collection[str]) -> Panel:
        """Return the panel of some of its runs, in its own order; runs that it lacks are left out."""
        at = [i for i, r in enumerate(self.runs) if r in runs]
        return replace(
            self,
            runs=tuple(self.runs[i] for i in at),
            at=tuple(self.at[i] for i in at),
            performance=self.performance[at],
        )


def panel_of(
    metric: Metric,
    comparability: str,
    unit_kind: str,
    values: Sequence[Value],
    groups: dict[str, dict[str, str]] | None = None,
) -> Panel:
    """Arrange values as a panel. A value that is no positive finite number is not measured; a repeat is a launch.

    ``groups`` gives, per kind of group, the group of each unit; a unit that it lacks is in group ``?``.
    Raises ValueError when there is no value at all.
    """
    if not values:
        raise ValueError("a panel needs at least one value")
    started = {v.run: v.at for v in values}
    runs = tuple(sorted(started, key=lambda r: (started[r], r)))
    units = tuple(sorted({v.unit for v in values}))
    run_at, unit_at = {r: i for i, r in enumerate(runs)}, {u: i for i, u in enumerate(units)}
    cells: dict[tuple[int, int], list[float]] = {}
    for v in sorted(values, key=lambda v: (v.run, v.unit, v.launch)):
        cells.setdefault((run_at[v.run], unit_at[v.unit]), []).append(v.value)
    launches = max(map(len, cells.values()))
    raw = np.full((len(runs), launches, len(units)), np.nan)
    for (r, u), held in cells.items():
        raw[r, : len(held), u] = held
    performance = performance_of(metric, raw)
    named = {kind: tuple(of.get(u, "?") for u in units) for kind, of in (groups or {}).items()}
    return Panel(metric, comparability, unit_kind, runs, tuple(started[r] for r in runs), units, performance, named)


def performance_of(metric: Metric, values: Floats) -> Floats:
    """Return log performance of values of a metric; NaN for what is no positive finite number: not measured."""
    measured = np.where(np.isfinite(values) & (values > 0), values, np.nan)
    return np.asarray(np.log(measured) if metric.higher_is_better else -np.log(measured))


def loss_of(difference: float) -> float:
    """Return the loss (share of performance) of a difference of ``performance``, before minus after."""
    return float(-np.expm1(-difference))


def finite_loss_of(difference: float) -> float:
    """Return the loss, also of nonsense such as a unit that became 1e300 times as fast: a finite number."""
    return loss_of(max(difference, -100.0))


def difference_of(loss: float) -> float:
    """Return the difference of ``performance``, before minus after, that is a loss. Raises ValueError from 1 on."""
    if not loss < 1:
        raise ValueError(f"a loss of {loss} is no share of performance; expected less than 1")
    return float(-np.log1p(-loss))
