"""What each unit's launches say of a change: its shift, and how sure the launches alone make us of it.

Launches are independent repetitions; iterations within a launch are not, and never get here. A launch now and then is
slow for reasons of its own, so the level of a unit is Huber's M-estimate (*Ann. Math. Stat.* 1964;35:73) and the noise
is Shamos's (median of the differences between all pairs of launches of a cell), pooled over all cells: three launches
of one unit say little of the noise, those of sixteen units say much. All launches of a run share that run's own effect;
what is said here of two runs is not yet said of the change between them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from fabric_health.verdict.intervals import pairs
from fabric_health.verdict.panel import Floats, Panel

Launches = Mapping[str, Sequence[float]]
"""Per unit, the values of a metric in the launches of one run, in the metric's own unit of measure."""
Logs = dict[str, Floats]
"""Per unit, log performance of its launches: more is better, nothing missing, no unit without launches."""

HUBER = 2.0
SHAMOS = 1.0483
"""Median difference of two normal values to their standard deviation: 1 / (sqrt(2) x 0.6745)."""
EFFICIENCY = 0.6
"""Degrees of freedom that are left by a median: simulated 0.5 at 3 launches a cell, 0.6 to 0.7 at 2, 5 and 10."""
UNUSUAL = 0.001
"""A unit whose launches scatter so much more than the others' that this happens by chance this rarely has its own."""


@dataclass(frozen=True)
class Shifts:
    """Per unit, the difference of log performance, before minus after (positive: a loss).

    ``variances`` are those that the scatter of launches gives each difference, NaN where it is not known; ``sigma`` is
    the pooled standard deviation of a launch and ``df`` its degrees of freedom (0: not known; infinite: from history).
    """

    units: tuple[str, ...]
    differences: Floats
    variances: Floats
    before: tuple[int, ...]
    after: tuple[int, ...]
    sigma: float
    df: float

    def __len__(self) -> int:
        """Return the number of units."""
        return len(self.units)

    def only(self, units: Iterable[str]) -> Shifts:
        """Return those of some units, with the noise of all."""
        wanted = set(units)
        return self.at([i for i, u in enumerate(self.units) if u in wanted])

    def at(self, at: Sequence[int]) -> Shifts:
        """Return those at some places, with the noise of all."""
        return Shifts(
            tuple(self.units[i] for i in at),
            self.differences[list(at)],
            self.variances[list(at)],
            tuple(self.before[i] for i in at),
            tuple(self.after[i] for i in at),
            self.sigma,
            self.df,
        )


def logs_of(launches: Launches, *, higher_is_better: bool) -> Logs:
    """Return log performance. A value that is no positive finite number is not measured."""
    logs: Logs = {}
    for unit in sorted(launches):
        values = np.asarray(launches[unit], dtype=np.float64).ravel()
        values = np.log(values[np.isfinite(values) & (values > 0)])
        if len(values):
            logs[unit] = values if higher_is_better else -values
    return logs


def logs_of_panel(panel: Panel, run: int = -1) -> Logs:
    """Return log performance of one run of a panel, by default the last."""
    if not panel.runs:
        return {}
    columns = ((u, panel.performance[run, :, i]) for i, u in enumerate(panel.units))
    return {u: c[np.isfinite(c)] for u, c in columns if np.isfinite(c).any()}


def shifts(before: Logs, after: Logs, known_sigma: float | None = None) -> Shifts:
    """Return the shift of every unit that was measured both before and after, in the order of their names.

    ``known_sigma`` is the noise of a launch from history; without it, it is estimated from these launches.
    """
    units = tuple(sorted(before.keys() & after.keys()))
    cells = [of[u] for u in units for of in (before, after)]
    sigma, df = (known_sigma, math.inf) if known_sigma else launch_noise(cells)
    levels = [(location(before[u], sigma), location(after[u], sigma)) for u in units]
    return Shifts(
        units,
        np.array([b - a for b, a in levels], dtype=np.float64),
        np.array([_variance(before[u], sigma, df) + _variance(after[u], sigma, df) for u in units], dtype=np.float64),
        tuple(len(before[u]) for u in units),
        tuple(len(after[u]) for u in units),
        sigma,
        df,
    )


def launch_noise(cells: Sequence[Floats]) -> tuple[float, float]:
    """Return the standard deviation of a launch pooled over cells (unit x run), and its degrees of freedom.

    NaN and 0 where no cell has two launches.
    """
    gaps = [np.abs(c[i] - c[j]) for c in cells if len(c) > 1 for i, j in [pairs(len(c), 1)]]
    if not gaps:
        return math.nan, 0.0
    return SHAMOS * float(np.median(np.concatenate(gaps))), EFFICIENCY * sum(len(c) - 1 for c in cells if len(c))


def location(values: Floats, sigma: float) -> float:
    """Return the level of a unit: Huber's M-estimate with a known scale; the mean where the scale is not known."""
    level = float(np.median(values))
    if not sigma > 0 or len(values) < 3:
        return float(np.mean(values))
    for _ in range(20):
        step = float(np.mean(np.clip(values - level, -HUBER * sigma, HUBER * sigma)))
        level += step
        if abs(step) < 1e-6 * sigma:
            break
    return level


def _variance(values: Floats, sigma: float, df: float) -> float:
    """Return the variance of the level of a cell: by the pooled noise, by its own where that is beyond the usual."""
    if not df:
        return math.nan
    variance = sigma**2
    if len(values) > 2:
        own, own_df = launch_noise([values])
        finite = math.isfinite(df)
        limit = special.fdtri(own_df, df, 1 - UNUSUAL) if finite else special.chdtri(own_df, UNUSUAL) / own_df
        if own**2 > float(limit) * variance:
            variance = own**2
    return variance / len(values)
