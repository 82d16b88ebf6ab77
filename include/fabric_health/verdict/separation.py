"""How well a split of units separates those that moved from those that did not, and how often chance does as well."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from scipy import special, stats

Floats = npt.NDArray[np.float64]
_DRAWS = 4000
_FEWEST_DRAWS = 400
# Bound of draws x splits x units: a second or two of work.
_MOST_WORK = 4_000_000_000
# Bound of draws x units: some 50 MB.
_MOST_CELLS = 12_000_000
_SEED = 20_261_130
_EQUAL = 1e-6


def log_ratio(moved_with: npt.ArrayLike, unmoved_with: npt.ArrayLike, moved: float, unmoved: float) -> Floats:
    """Return the one-sided log-likelihood ratio (nats, >= 0) of splits; the counts may be weighted.

    It compares "units on each side of the split move at a rate of their own" with "all move at one rate": half of
    Wilks' G statistic of the 2 x 2 table. It is 0 where units with the change did not move more often than the others.
    """
    a, b = np.asarray(moved_with, dtype=float), np.asarray(unmoved_with, dtype=float)
    c, d = np.maximum(moved - a, 0.0), np.maximum(unmoved - b, 0.0)
    one = _likelihood(np.asarray(moved, dtype=float), np.asarray(unmoved, dtype=float))
    ratio = _likelihood(a, b) + _likelihood(c, d) - one
    return np.where(a * d > b * c, np.maximum(ratio, 0.0), 0.0)


def _likelihood(moved: Floats, unmoved: Floats) -> Floats:
    """Return the log-likelihood of units of which so many moved, at their own rate."""
    total = np.maximum(moved + unmoved, np.finfo(float).tiny)
    out: Floats = special.xlogy(moved, moved / total) + special.xlogy(unmoved, unmoved / total)
    return out


def fisher(moved_with: int, unmoved_with: int, moved: int, unmoved: int) -> float:
    """Return the one-sided p of Fisher's exact test: so many, or more, of those that moved have the change."""
    return float(stats.hypergeom.sf(moved_with - 1, moved + unmoved, moved, moved_with + unmoved_with))


class Chance:
    """How well the best of some splits separates sets of units that are drawn at random.

    All sets are drawn where there are few, else some thousands with a fixed seed.
    """

    def __init__(self, splits: Collection[frozenset[int]], units: int, moved: int) -> None:
        rows = sorted({tuple(sorted(s)) for s in splits if s})
        self._exact = math.comb(units, moved) <= _DRAWS
        self._best = np.zeros(1)
        if not rows or not 0 < moved < units:
            return
        members = np.zeros((len(rows), units), dtype=np.float32)
        for i, row in enumerate(rows):
            members[i, list(row)] = 1
        draws = max(_FEWEST_DRAWS, min(_DRAWS, _MOST_WORK // (units * len(rows)), _MOST_CELLS // units))
        drawn = _all(units, moved) if self._exact else _some(units, moved, draws)
        with_it = (drawn @ members.T).astype(float)
        self._best = log_ratio(with_it, members.sum(axis=1) - with_it, moved, units - moved).max(axis=1)

    def of(self, ratio: float) -> float:
        """Return the share of random sets that some split separates with at least this (unweighted) ratio."""
        reached = int((self._best >= ratio - _EQUAL).sum())
        return reached / len(self._best) if self._exact else (reached + 1) / (len(self._best) + 1)


@lru_cache(maxsize=4)
def _all(units: int, moved: int) -> npt.NDArray[np.float32]:
    """Return every set of ``moved`` of the units, one a row, as ones and zeros."""
    return _rows(np.array(list(itertools.combinations(range(units), moved))), units)


@lru_cache(maxsize=4)
def _some(units: int, moved: int, draws: int) -> npt.NDArray[np.float32]:
    """Return sets of ``moved`` of the units drawn at random, one a row, as ones and zeros."""
    order = np.random.default_rng(_SEED).random((draws, units), dtype=np.float32)
    return _rows(order.argpartition(moved - 1, axis=1)[:, :moved], units)


def _rows(sets: npt.NDArray[np.int64], units: int) -> npt.NDArray[np.float32]:
    out = np.zeros((len(sets), units), dtype=np.float32)
    np.put_along_axis(out, sets, 1, axis=1)
    return out
