"""Where every unit of the last run stands: against its own past, net of what the fleet and its group did.

A unit without enough past is held against its peers of the same run instead. Differences are of log performance,
before minus now: positive is a loss.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fabric_health.verdict import robust
from fabric_health.verdict.effects import Past, cells_of, kinds_of, past_of, variance_of
from fabric_health.verdict.panel import Floats, Panel
from fabric_health.verdict.robust import Ints
from fabric_health.verdict.settings import Settings
from fabric_health.verdict.shifts import Bools, Shifts, shifts_of

_LOOK_BACK = 3
"""How many times ``history`` runs are looked through, for units that are not measured every week."""


@dataclass(frozen=True)
class Standing:
    """Per unit of the last run: its ``difference``, the ``variance`` of it, and ``df``; NaN: not measured.

    ``launch`` is the variance of one launch, ``fixed`` the part of the variance that more launches do not lessen.
    ``best`` is the difference of its best launch alone. ``own``: held against its own past, else against its peers.
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
    best = np.where(np.isfinite(performance[-1]), performance[-1], -np.inf).max(axis=0)
    return Standing(
        difference=difference,
        variance=cells.error()[-1] + fixed,
        df=np.maximum(cells.df, 1.0),
        launch=cells.error()[-1] * np.maximum(cells.launches[-1], 1),
        fixed=fixed,
        best=difference + cells.value[-1] - best,
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


def _from_peers(value: Floats, now: Floats) -> tuple[Floats, Floats]:
    """Return how far each unit is below the median of the run, and by how much units differ anyway (variance)."""
    apart = np.asarray(float(robust.median(value)) - value)
    between = variance_of(apart, np.where(np.isfinite(apart), now, np.nan))
    count = max(1, int(np.isfinite(value).sum()))
    # The median of normal data has pi / 2 times the variance of the mean.
    return apart, np.full(value.shape, between + np.pi / 2 * (between + float(np.nanmean(now))) / count)
