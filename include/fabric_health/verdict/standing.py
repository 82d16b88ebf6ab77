"""Where every unit of the last run stands: against its own past, net of what the fleet and its group did.

A unit without enough past is held against its peers of the same run instead. Differences are of log performance,
before minus now: positive is a loss.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import special

from fabric_health.verdict import robust
from fabric_health.verdict.effects import Past, cells_of, kinds_of, past_of, variance_of
from fabric_health.verdict.panel import Floats, Panel
from fabric_health.verdict.robust import Ints
from fabric_health.verdict.settings import Settings
from fabric_health.verdict.shifts import Bools, Shifts, shifts_of

BAD_LAUNCH = 0.02
"""Share of launches that are slow for no lasting reason; ours, as in the lab's fleet model."""
_RARE = 1e-5
_LOOK_BACK = 3
"""How many times ``history`` runs are looked through, for units that are not measured every week."""


@dataclass(frozen=True)
class Standing:
    """Per unit of the last run: its ``difference``, the ``variance`` of it, and ``df``; NaN: not measured.

    ``launch`` is the variance of one launch, ``fixed`` the part of the variance that more launches do not lessen.
    ``best`` is the difference, in standard errors, of its best launches alone: without as many of the worst as can be
    bad by chance. ``own``: held against its own past, else against its peers.
    ``level`` is the probability of a false alarm that each unit is allowed.
    """

    difference: Floats
    variance: Floats
    df: Floats
    launch: Floats
    fixed: Floats
    best: Floats
    own: Bools
    launches: Ints
    level: float
    past: Past
    shifts: Shifts

    @property
    def z(self) -> Floats:
        """Standard errors above zero; NaN where nothing was measured."""
        return np.asarray(self.difference / np.sqrt(self.variance))

    @property
    def measured(self) -> Bools:
        """Which units the last run measured."""
        return np.asarray(np.isfinite(self.difference) & np.isfinite(self.variance))


def standing_of(panel: Panel, settings: Settings) -> Standing:
    """Return where every unit stands. Raises ValueError when the last run measured fewer than ``min_units``."""
    performance, weeks = recent(panel, settings)
    measured = int(np.isfinite(performance[-1]).any(axis=0).sum())
    if measured < settings.min_units:
        raise ValueError(f"{measured} units measured in the last run; expected {settings.min_units} or more")
    cells = cells_of(performance)
    kinds = kinds_of(panel.groups, settings.min_group)
    past = past_of(cells, weeks, kinds)
    own = past.runs >= settings.min_history
    now = cells.error()[-1] + past.unit_run
    before = np.where(own, past.level_error + past.slope * past.age**2, np.nan)
    loss = np.where(own, past.level, np.nan) - cells.value[-1]
    shifts = shifts_of(loss, now + before, kinds, past, settings)
    apart, between = _from_peers(cells.value[-1], now)
    difference = np.where(own, loss - shifts.common, apart)
    fixed = np.where(own, before + shifts.error, between) + past.unit_run
    launch = cells.error()[-1] * np.maximum(cells.launches[-1], 1)
    best, count = _best(performance[-1], cells.launches[-1])
    return Standing(
        difference=difference,
        variance=cells.error()[-1] + fixed,
        df=np.maximum(cells.df, 1.0),
        launch=launch,
        fixed=fixed,
        best=(difference + cells.value[-1] - best) / np.sqrt(launch / count + fixed),
        own=own,
        launches=cells.launches[-1],
        level=settings.alpha * settings.unit_share / measured / settings.panels,
        past=past,
        shifts=shifts,
    )


def recent(panel: Panel, settings: Settings) -> tuple[Floats, Floats]:
    """Return performance of the last run and of each unit's last ``history`` runs, and their times in weeks.

    A past run in which fewer than ``min_units`` were measured is left out: what it did to all cannot be told.
    """
    first = max(0, len(panel.runs) - 1 - settings.history * _LOOK_BACK)
    performance = np.array(panel.performance[first:], dtype=np.float64)
    performance[~np.isfinite(performance)] = np.nan
    weeks = np.array([(t - panel.at[-1]).total_seconds() for t in panel.at[first:]]) / (7 * 86400)
    measured = np.asarray(np.isfinite(performance[:-1]).any(axis=1))
    enough = measured.sum(axis=1) >= settings.min_units
    counted = np.flip(np.cumsum(np.flip(measured & enough[:, None], 0), axis=0), 0) <= settings.history
    use: Bools = np.asarray(counted & enough[:, None])
    performance[:-1] = np.where(use[:, None, :], performance[:-1], np.nan)
    keep = np.append(np.isfinite(performance[:-1]).any(axis=(1, 2)), True)
    return performance[keep], weeks[keep]


def _best(performance: Floats, launches: Ints) -> tuple[Floats, Ints]:
    """Return the mean of each unit's best launches, without as many of the worst as can be bad by chance, and how many.

    Of every 50 launches one is slow for no lasting reason. So many are left out that more happen once in 100,000 times:
    two of three, four of eleven, six of forty-one.
    """
    ordered = -np.sort(-np.where(np.isfinite(performance), performance, -np.inf), axis=0)
    out = np.array([_by_chance(int(n)) for n in range(len(performance) + 1)])[launches]
    count = np.maximum(launches - out, 1)
    within = np.arange(len(ordered))[:, None] < count
    return np.asarray(np.where(within & np.isfinite(ordered), ordered, 0.0).sum(axis=0) / count), np.asarray(count)


def _by_chance(launches: int) -> int:
    left_out = 0
    while left_out < launches and special.bdtrc(left_out, launches, BAD_LAUNCH) > _RARE:
        left_out += 1
    return left_out


def _from_peers(value: Floats, now: Floats) -> tuple[Floats, Floats]:
    """Return how far each unit is below the median of the run, and by how much units differ anyway (variance)."""
    apart = np.asarray(float(robust.median(value)) - value)
    between = variance_of(apart, np.where(np.isfinite(apart), now, np.nan))
    count = max(1, int(np.isfinite(value).sum()))
    # The median of normal data has pi / 2 times the variance of the mean.
    return apart, np.full(value.shape, between + np.pi / 2 * (between + float(np.nanmean(now))) / count)
