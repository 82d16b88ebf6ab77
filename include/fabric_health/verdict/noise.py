"""How much launches, units and whole runs vary while nothing is wrong, from the history of a metric."""

from __future__ import annotations

import math
import warnings

import numpy as np

from fabric_health.verdict.launches import launch_noise, location
from fabric_health.verdict.panel import Panel
from fabric_health.verdict.power import Noise

LEAST_RUNS = 4
_SD_OF_MAD = 1.4826
_PRICE_OF_MEDIAN = math.pi / 2


def noise_of(panel: Panel, least_runs: int = LEAST_RUNS) -> Noise | None:
    """Return the noise that the runs of a panel show, all of them counted as sound; None: too little to say.

    Leave out the run that is to be judged. A level is what a unit is, plus what the run did to all, plus what the run
    did to this unit, plus launches. What is found of one is taken off the next, never below zero. A real change in the
    history counts as noise: verdicts get more careful, not bolder.
    """
    performance = panel.performance
    if not performance.size:
        return None
    cells = [c[np.isfinite(c)] for c in np.moveaxis(performance, 1, 2).reshape(-1, performance.shape[1])]
    sigma, df = launch_noise(cells)
    if not df or not sigma > 0:
        return None
    runs, _, units = performance.shape
    levels = np.array([location(c, sigma) if len(c) else math.nan for c in cells]).reshape(runs, units)
    counts = np.isfinite(performance).sum(axis=1)
    levels = levels[(counts > 0).any(axis=1)][:, (counts > 0).sum(axis=0) >= 2]
    if levels.shape[0] < least_runs or not levels.shape[1]:
        return None
    launches = sigma**2 * float(np.mean(1 / counts[counts > 0]))
    with warnings.catch_warnings():
        # A run in which none of these units was measured has no level of its own.
        warnings.simplefilter("ignore", RuntimeWarning)
        apart = levels - np.nanmedian(levels, axis=0)
        together = np.nanmedian(apart, axis=1)
    together = together[np.isfinite(together)]
    if len(together) < least_runs:
        return None
    rest = apart - np.nanmedian(apart, axis=1, keepdims=True) if levels.shape[1] > 1 else np.zeros_like(apart)
    rest = rest[np.isfinite(rest)]
    many, width = levels.shape
    freedom = (1 - 1 / many) * (1 - 1 / width) if width > 1 else 1.0
    spread = (_SD_OF_MAD * float(np.median(np.abs(rest)))) ** 2 / freedom
    unit = max(0.0, spread - launches) if width > 1 else 0.0
    own = (launches + unit) * (_PRICE_OF_MEDIAN if width > 2 else 1.0) / width
    run = max(0.0, float(np.var(together, ddof=1)) - own)
    return Noise(sigma, math.sqrt(unit), math.sqrt(run))
