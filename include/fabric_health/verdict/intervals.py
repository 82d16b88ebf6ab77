"""Estimates with intervals that assume little: signed ranks, rank sums, sign flips, and Student's t where they cannot.

Intervals come from inverting the exact test, so interval and p-value never contradict each other. Sources: Hodges and
Lehmann, Ann. Math. Stat. 1963;34:598; Moses's and Tukey's intervals in Hollander, Wolfe and Chicken, *Nonparametric
Statistical Methods*, 3.1-3.3 and 4.1-4.3; Fisher, *The Design of Experiments*, section 21 (sign flips).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from scipy import special

from fabric_health.verdict.panel import Floats

Places = npt.NDArray[np.intp]

EXACT_PAIRS = 60
"""Pairs up to which the distribution of the signed ranks is computed; beyond, the normal one differs by < 0.001."""
EXACT_CELLS = 2500
"""Size of one group times that of the other up to which the distribution of the rank sum is computed."""
FLIPS = 20
"""Pairs up to which all 2^n sign flips are tried; beyond, ``DRAWS`` of them are drawn from a fixed seed."""
DRAWS = 99_999


@dataclass(frozen=True)
class Estimate:
    """A shift with its interval and its one-sided p-value for "greater than zero". Infinite where data say nothing.

    ``standard_error`` is that of the estimate, from the interval where the method has no other.
    """

    shift: float
    low: float
    high: float
    p_greater: float
    standard_error: float


def signed_rank(differences: Sequence[float] | Floats, confidence: float = 0.95) -> Estimate:
    """Estimate the centre of symmetric differences: the median of their pairwise means, and Tukey's interval.

    The interval is infinite below 6 pairs at 95 %: no five pairs can be significant (p = 2/32). Raises ValueError on
    an empty or not finite sample.
    """
    d = _sample(differences)
    n = len(d)
    count = n * (n + 1) // 2
    cut = (
        _cut(_signed_rank_null(n), confidence) if n <= EXACT_PAIRS else _normal_cut(n * (n + 1) / 4, _sd(n), confidence)
    )
    centre = (_walsh(d, (count + 1) // 2) + _walsh(d, count // 2 + 1)) / 2
    low = _walsh(d, cut) if cut >= 1 else -math.inf
    high = _walsh(d, count + 1 - cut) if cut >= 1 else math.inf
    statistic = int(_positive_walsh(d))
    if n <= EXACT_PAIRS:
        p = float(_signed_rank_null(n)[math.ceil(statistic) :].sum())
    else:
        p = float(special.ndtr(-((statistic - 0.5 - n * (n + 1) / 4) / _sd(n))))
    return Estimate(centre, low, high, min(p, 1.0), _error(low, high, confidence))


def rank_sum(greater: Sequence[float] | Floats, other: Sequence[float] | Floats, confidence: float = 0.95) -> Estimate:
    """Estimate by how much the first sample lies above the second: median of all differences, and Moses's interval.

    The interval is infinite where the samples are too small to say anything at this confidence. Raises ValueError on
    an empty or not finite sample.
    """
    x, y = _sample(greater), _sample(other)
    n, m = len(x), len(y)
    gaps = np.sort((x[:, None] - y[None, :]).ravel())
    exact = n * m <= EXACT_CELLS
    sd = math.sqrt(n * m * (n + m + 1) / 12)
    cut = _cut(_rank_sum_null(n, m), confidence) if exact else _normal_cut(n * m / 2, sd, confidence)
    low = float(gaps[cut - 1]) if cut >= 1 else -math.inf
    high = float(gaps[n * m - cut]) if cut >= 1 else math.inf
    # Of equal values half is counted, rounded against the claim that the first sample is greater.
    statistic = math.floor((gaps > 0).sum() + 0.5 * (gaps == 0).sum())
    if exact:
        p = float(_rank_sum_null(n, m)[statistic:].sum())
    else:
        p = float(special.ndtr(-((statistic - 0.5 - n * m / 2) / sd)))
    return Estimate(float(np.median(gaps)), low, high, min(p, 1.0), _error(low, high, confidence))


def students_t(shift: float, standard_error: float, df: float, confidence: float = 0.95) -> Estimate:
    """Return the interval and p-value of a shift with a known or estimated standard error (``df`` infinite: known)."""
    if not (math.isfinite(shift) and standard_error > 0 and df > 0):
        return Estimate(shift, -math.inf, math.inf, 1.0, math.inf)
    z = shift / standard_error
    if math.isinf(df):
        quantile, p = _normal(confidence), float(special.ndtr(-z))
    else:
        quantile, p = -float(special.stdtrit(df, (1 - confidence) / 2)), float(special.stdtr(df, -z))
    return Estimate(shift, shift - quantile * standard_error, shift + quantile * standard_error, p, standard_error)


def sign_flip(differences: Sequence[float] | Floats, seed: int = 1) -> float:
    """Return the one-sided p-value of Fisher's test for a mean above zero: of all sign flips, how many reach it.

    Exact up to ``FLIPS`` pairs; beyond, ``DRAWS`` flips from ``seed``, the observed one included, so never zero.
    """
    d = _sample(differences)
    tiny = 1e-12 * float(np.abs(d).sum())
    if len(d) <= FLIPS:
        sums = np.zeros(1)
        for x in d:
            sums = np.concatenate([sums - x, sums + x])
        return float((sums >= d.sum() - tiny).mean())
    random = np.random.default_rng(seed)
    reached = 0
    at_once = max(1, 2_000_000 // len(d))
    for start in range(0, DRAWS, at_once):
        signs = random.integers(0, 2, (min(at_once, DRAWS - start), len(d)), dtype=np.int8) * 2.0 - 1.0
        reached += int((signs @ d >= d.sum() - tiny).sum())
    return (reached + 1) / (DRAWS + 1)


def widened(estimate: Estimate, variance: float, confidence: float = 0.95) -> Estimate:
    """Add a variance that all samples share, and that their spread cannot show, to an estimate's uncertainty.

    Half-widths are added in quadrature: exact for normal errors, and for the ranks' intervals close to it.
    """
    if variance <= 0 or not math.isfinite(estimate.standard_error):
        return estimate
    z = _normal(confidence)
    low = estimate.shift - math.hypot(estimate.shift - estimate.low, z * math.sqrt(variance))
    high = estimate.shift + math.hypot(estimate.high - estimate.shift, z * math.sqrt(variance))
    error = math.hypot(estimate.standard_error, math.sqrt(variance))
    p = max(estimate.p_greater, float(special.ndtr(-(estimate.shift / error))))
    return Estimate(estimate.shift, low, high, p, error)


def fewest_pairs(confidence: float = 0.95) -> int:
    """Return how many pairs the signed ranks need before they can say anything: 6 at 95 %."""
    return math.ceil(math.log2(2 / (1 - confidence)) - 1e-9)


def ranks_can_tell(n: int, m: int, confidence: float = 0.95) -> bool:
    """Tell whether ``n`` units against ``m`` control units can be significant at all by their ranks."""
    return n > 0 and m > 0 and 2 / math.comb(n + m, n) <= 1 - confidence


def attained_level(n: int, m: int, confidence: float = 0.95) -> float:
    """Return the one-sided level at which ranks really decide: being discrete, they stay below the one asked for.

    ``m`` is 0 for pairs. Zero: they cannot decide at all.
    """
    if n > EXACT_PAIRS or n * m > EXACT_CELLS:
        return (1 - confidence) / 2
    null = _rank_sum_null(n, m) if m else _signed_rank_null(n)
    return float(null[: _cut(null, confidence)].sum())


def _sample(values: Sequence[float] | Floats) -> Floats:
    sample = np.sort(np.asarray(values, dtype=np.float64))
    if not len(sample) or not np.isfinite(sample).all():
        raise ValueError("expected a sample of one or more finite numbers")
    return sample


def _normal(confidence: float) -> float:
    return -float(special.ndtri((1 - confidence) / 2))


@lru_cache(maxsize=64)
def pairs(n: int, diagonal: int) -> tuple[Places, Places]:
    """Return the places of all pairs of ``n`` values, each with itself too when ``diagonal`` is 0, not when it is 1."""
    return np.triu_indices(n, diagonal)


def _sd(n: int) -> float:
    return math.sqrt(n * (n + 1) * (2 * n + 1) / 24)


@lru_cache(maxsize=128)
def _signed_rank_null(n: int) -> Floats:
    """Probabilities of the sum of the positive ranks when every sign is as likely as the other."""
    p = np.ones(1)
    for rank in range(1, n + 1):
        p = (np.concatenate([p, np.zeros(rank)]) + np.concatenate([np.zeros(rank), p])) / 2
    return p


@lru_cache(maxsize=128)
def _rank_sum_null(n: int, m: int) -> Floats:
    """Probabilities of the number of pairs in which the first sample is greater, when all orders are as likely.

    By whose is the greatest value: with probability n/(n+m) it is one of the n, which exceeds all m others.
    """
    row = [np.ones(1) for _ in range(m + 1)]
    for i in range(1, n + 1):
        new = [np.ones(1)]
        for j in range(1, m + 1):
            p = np.zeros(i * j + 1)
            p[j:] += row[j] * (i / (i + j))
            p[: i * (j - 1) + 1] += new[j - 1] * (j / (i + j))
            new.append(p)
        row = new
    return row[m]


def _cut(null: Floats, confidence: float) -> int:
    """Return the rank from either end at which an interval ends that the null distribution leaves out too rarely."""
    return int(np.searchsorted(np.cumsum(null), (1 - confidence) / 2 + 1e-12, side="right"))


def _normal_cut(mean: float, sd: float, confidence: float) -> int:
    return max(0, math.floor(mean - _normal(confidence) * sd + 0.5))


def _error(low: float, high: float, confidence: float) -> float:
    return (high - low) / (2 * _normal(confidence))


def _positive_walsh(d: Floats) -> float:
    """Return how many pairwise means are above zero: the sum of the positive ranks. Half of the zeros, rounded down."""
    reach = len(d) - np.maximum(np.searchsorted(d, -d, side="right"), np.arange(len(d)))
    touch = len(d) - np.maximum(np.searchsorted(d, -d, side="left"), np.arange(len(d)))
    return math.floor(int(reach.sum()) + 0.5 * int(touch.sum() - reach.sum()))


def _walsh(d: Floats, rank: int) -> float:
    """Return the ``rank``-th smallest (from 1) of the means of all pairs of sorted ``d``, each with itself too.

    For many units the means do not fit in memory: their count below a value is found by binary search instead.
    """
    if len(d) <= 400:
        i, j = pairs(len(d), 0)
        return float(np.partition((d[i] + d[j]) / 2, rank - 1)[rank - 1])
    low, high = float(d[0]), float(d[-1])
    at = np.arange(len(d))
    for _ in range(60):
        middle = (low + high) / 2
        below = int(np.maximum(np.searchsorted(d, 2 * middle - d, side="right") - at, 0).sum())
        low, high = (low, middle) if below >= rank else (middle, high)
    return high
