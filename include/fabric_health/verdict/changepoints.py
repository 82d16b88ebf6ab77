"""Where the level of a series changed: energy distances to find the place, Student's t to believe it.

Splits as E-Divisive does (Matteson and James, J. Am. Stat. Assoc. 2014;109:334), but tests as Hunter does (Fleming and
others, ICPE 2023, https://doi.org/10.1145/3578244.3583719): first with a lenient level, then the weakest points are
dropped until all that are left hold. Apache Otava is the successor of Hunter; a test holds this against its answers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
from scipy import special

from fabric_health.verdict.panel import Floats

_LENIENT = 10.0
WINDOW: Final = 50
"""Runs that are looked at together; half a window further on each time: an old change does not hide a new one."""


@dataclass(frozen=True)
class ChangePoint:
    """``index`` is the first value of the new level. ``before`` and ``after`` are the means of the two segments.

    ``variance`` is that of their difference, from the spread inside the two segments; ``p_value`` is two-sided and says
    how rare such a difference is at a place that was given beforehand.
    """

    index: int
    before: float
    after: float
    variance: float
    p_value: float


def change_points(
    series: Floats, max_p: float = 0.001, min_size: float = 0.0, min_segment: int = 1, window: int = WINDOW
) -> tuple[ChangePoint, ...]:
    """Return the change points of a series without NaN, in order.

    ``min_size`` is the smallest difference of levels that is told, in the units of the series; ``min_segment`` the
    fewest values on either side. ``window`` values are looked at together. Raises ValueError for values that are not
    finite.
    """
    x = np.asarray(series, dtype=np.float64)
    if x.ndim != 1 or not np.isfinite(x).all():
        raise ValueError("expected one series of finite numbers")
    lenient = max_p * (_LENIENT if max_p < 0.05 else 2.0)
    found: set[int] = set()
    start = 0
    while start < len(x):
        new = _split(x, start, min(start + window, len(x)), lenient, min_segment)
        found |= set(new)
        start = max(max(new, default=0), start + max(1, window // 2))
    return _merge(x, sorted(found), max_p, min_size)


def _split(x: Floats, start: int, end: int, max_p: float, min_segment: int) -> list[int]:
    """Split where the energy distance is largest, again and again, until a split is not significant."""
    found: list[int] = []
    while True:
        edges = [start, *found, end]
        best = max(
            (_best_split(x[a:b], min_segment, a) for a, b in pairwise(edges)),
            default=(-math.inf, 0, 0, 0),
        )
        size, index, low, high = best
        if not math.isfinite(size) or _point(x, low, index, high).p_value > max_p:
            return found
        found = sorted([*found, index])


def _best_split(x: Floats, min_segment: int, start: int) -> tuple[float, int, int, int]:
    """Return the largest energy distance of two neighbouring pieces, where it splits, and the ends of ``x``."""
    n = len(x)
    if n < 2 * max(1, min_segment):
        return -math.inf, 0, start, start + n
    distances = energy(x)
    if min_segment > 1:
        split, end = np.indices(distances.shape)
        distances = np.where((split + 1 >= min_segment) & (end + 2 - (split + 1) >= min_segment), distances, -np.inf)
    at = int(np.argmax(distances))
    return float(distances.flat[at]), at // distances.shape[1] + 1 + start, start, start + n


def energy(x: Floats) -> Floats:
    """Return the energy distance of ``x[:t]`` and ``x[t:k]`` in row t - 1 and column k - 2; -inf where k <= t.

    ``2 m n / (m + n) * mean |a - b| - ...`` with the mean distances inside each piece taken off, as in the article.
    """
    n = len(x)
    apart = np.abs(x[:, None] - x[None, :])
    block = np.zeros((n + 1, n + 1))
    block[1:, 1:] = apart.cumsum(axis=0).cumsum(axis=1)
    t, k = np.arange(1, n)[:, None], np.arange(2, n + 1)[None, :]
    inside_left = block[t, t] / 2
    across = block[t, k] - block[t, t]
    inside_right = (block[k, k] - block[k, t] - block[t, k] + block[t, t]) / 2
    left, right = t, k - t
    with np.errstate(divide="ignore", invalid="ignore"):
        size = 2 / k * across
        size = size - np.where(left > 1, 2 * right / k / np.maximum(left - 1, 1) * inside_left, 0.0)
        size = size - np.where(right > 1, 2 * left / k / np.maximum(right - 1, 1) * inside_right, 0.0)
    return np.where(k > t, size, -np.inf)


def _merge(x: Floats, indices: list[int], max_p: float, min_size: float) -> tuple[ChangePoint, ...]:
    """Drop the weakest point until every one that is left is significant and large enough."""
    while True:
        edges = [0, *indices, len(x)]
        points = [_point(x, edges[i], edges[i + 1], edges[i + 2]) for i in range(len(indices))]
        if not points:
            return ()
        weakest = max(points, key=lambda p: p.p_value)
        if weakest.p_value < max_p:
            weakest = min(points, key=lambda p: abs(p.before - p.after))
            if abs(weakest.before - weakest.after) > min_size:
                return tuple(points)
        indices.remove(weakest.index)


def _point(x: Floats, start: int, index: int, end: int) -> ChangePoint:
    """Compare two neighbouring segments by Student's t with a common variance."""
    left, right = x[start:index], x[index:end]
    before, after = float(left.mean()), float(right.mean())
    df = len(left) + len(right) - 2
    if df < 1:
        return ChangePoint(index, before, after, math.inf, 1.0)
    inside = float(((left - before) ** 2).sum() + ((right - after) ** 2).sum())
    # Rounding leaves a trace of variance in segments of equal values: a gap of that size is none.
    inside = max(inside, (1e-12 * max(abs(before), abs(after))) ** 2)
    variance = inside / df * (1 / len(left) + 1 / len(right))
    gap, error = abs(before - after), math.sqrt(variance)
    if not error:
        return ChangePoint(index, before, after, variance, 0.0 if gap else 1.0)
    return ChangePoint(index, before, after, variance, 2 * float(special.stdtr(df, -gap / error)))
