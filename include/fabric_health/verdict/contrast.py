"""By how much changed units shifted beyond control units: by ranks where these can decide, else by launches.

The difference of two shifts is the difference-in-differences of Card and Krueger (*Am. Econ. Rev.* 1994;84:772). One
changed unit against a few control units is a case against a small norm: Crawford and Howell, *Clin. Neuropsychol.*
1998;12:482.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fabric_health.verdict.intervals import (
    Estimate,
    fewest_pairs,
    rank_sum,
    ranks_can_tell,
    signed_rank,
    students_t,
    widened,
)
from fabric_health.verdict.launches import Shifts
from fabric_health.verdict.panel import Floats
from fabric_health.verdict.power import Noise
from fabric_health.verdict.wording import percent

FEW_CONTROLS = 3
"""Control units from which their own spread says how much a unit wanders from run to run."""

MEDIAN_PRICE = math.pi / 2
"""Variance of a median of normal values, relative to the mean's."""


@dataclass(frozen=True)
class Contrast:
    """A loss of log performance with its interval, and in words how it was found.

    ``noise`` is what the data say of it, for the question how much more must be measured; None: nothing.
    """

    estimate: Estimate
    how: str
    noise: Noise | None


def contrast(changed: Shifts, calm: Shifts, confidence: float, noise: Noise | None) -> Contrast:
    """Estimate the loss of the typical changed unit beyond that of the control units. ``changed`` has a unit or more.

    ``noise`` is what history says; None: nothing. Without control units the estimate is of the shift between two
    runs, widened by the noise of runs where history has it.
    """
    n, m = len(changed), len(calm)
    seen = _noise(changed, calm, noise)
    if m and ranks_can_tell(n, m, confidence):
        estimate = rank_sum(changed.differences, calm.differences, confidence)
        return Contrast(estimate, "by the ranks of the units, exact", seen)
    if m or n < fewest_pairs(confidence):
        estimate, how = _by_launches(changed, calm, confidence, noise)
        return Contrast(estimate, how, seen)
    estimate = signed_rank(changed.differences, confidence)
    if noise is None or not noise.run:
        return Contrast(estimate, "by the signed ranks of the units, exact", seen)
    how = f"by the signed ranks of the units, with a run-to-run noise of {percent(noise.run)}"
    return Contrast(widened(estimate, 2 * noise.run**2, confidence), how, seen)


def one_against(own: Shifts, beside: Shifts, confidence: float, noise: Noise | None, *, sound: bool) -> Contrast:
    """Estimate the loss of a single unit beyond that of others, by launches and the spread of the others.

    ``sound`` False: the others were changed too and some may be slow: their median counts, their spread does not.
    """
    estimate, how = _by_launches(own, beside, confidence, noise, sound=sound)
    return Contrast(estimate, how, _noise(own, beside, noise))


def _by_launches(
    changed: Shifts, calm: Shifts, confidence: float, noise: Noise | None, *, sound: bool = True
) -> tuple[Estimate, str]:
    """Return the mean shift beyond the control units' with Student's t, on the scatter of launches and controls."""
    n, m = len(changed), len(calm)
    shift = float(np.mean(changed.differences)) - (_centre(calm, sound=sound) if m else 0.0)
    wander = 2 * noise.unit**2 if noise else 0.0
    own, beside = _mean(changed.variances) + wander, _mean(calm.variances) + wander
    df, how = changed.df, f"by the launches, which scatter by {percent(changed.sigma)}"
    if m >= FEW_CONTROLS and sound:
        spread = float(np.var(calm.differences, ddof=1))
        # Units may wander between runs by more than their launches show; then the control units say by how much.
        if not df or spread > beside:
            own = spread if not df else spread - beside + own
            beside, df = spread, m - 1
            how = f"by the spread of {m} units beside it"
    if not df:
        return students_t(shift, math.nan, 0, confidence), "one launch each says nothing of the noise"
    variance = own / n + (beside / m if m else 0.0) * (1.0 if sound else MEDIAN_PRICE)
    if not m and noise and noise.run:
        variance += 2 * noise.run**2
        how += f", with a run-to-run noise of {percent(noise.run)}"
    return students_t(shift, math.sqrt(variance), df, confidence), how


def _centre(calm: Shifts, *, sound: bool) -> float:
    return signed_rank(calm.differences).shift if sound else float(np.median(calm.differences))


def _noise(changed: Shifts, calm: Shifts, noise: Noise | None) -> Noise | None:
    """Return the noise of launches and units as the data or history have it; None: neither has."""
    if noise is not None:
        return noise
    if not changed.sigma > 0:
        return None
    excess = float(np.var(calm.differences, ddof=1)) - _mean(calm.variances) if len(calm) >= FEW_CONTROLS else 0.0
    return Noise(changed.sigma, math.sqrt(max(0.0, excess) / 2))


def _mean(variances: Floats) -> float:
    return float(np.mean(variances)) if len(variances) else 0.0
