"""Known answers of each statistic, from published examples, and what must hold for every sample."""

from __future__ import annotations

import math
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fabric_health.verdict.intervals import (
    attained_level,
    fewest_pairs,
    rank_sum,
    ranks_can_tell,
    sign_flip,
    signed_rank,
    students_t,
    widened,
)

# Hollander, Wolfe and Chicken, table 3.1: Hamilton depression scale before and after tranquillizer, nine patients.
DEPRESSION_BEFORE = [1.83, 0.50, 1.62, 2.48, 1.68, 1.88, 1.55, 3.06, 1.30]
DEPRESSION_AFTER = [0.878, 0.647, 0.598, 2.05, 1.06, 1.29, 1.06, 3.14, 1.29]
# The same, table 4.1: permeability of the chorioamnion at term and at 12 to 26 weeks.
AT_TERM = [0.80, 0.83, 1.89, 1.04, 1.45, 1.38, 1.91, 1.64, 0.73, 1.46]
EARLY = [1.15, 0.88, 0.90, 0.74, 1.21]
# Darwin's maize, in eighths of an inch, as Fisher has it in The Design of Experiments, table 3.
MAIZE = [49, -67, 8, 16, 6, 23, 28, 41, 14, 29, 56, 24, 75, 60, -48]

samples = st.lists(st.floats(-1, 1).map(lambda x: round(x, 6)), min_size=1, max_size=40)


def test_the_depression_scale_factor() -> None:
    found = signed_rank(np.subtract(DEPRESSION_BEFORE, DEPRESSION_AFTER))
    assert found.shift == pytest.approx(0.46)
    # Hollander and Wolfe give the 96 % interval .010 to .786, the shortest exact one of at least 95 %.
    assert (found.low, found.high) == (pytest.approx(0.010), pytest.approx(0.786))
    assert found.p_greater == pytest.approx(0.01953125)


def test_the_permeability_of_the_chorioamnion() -> None:
    found = rank_sum(AT_TERM, EARLY)
    assert found.shift == pytest.approx(0.305)
    assert (found.low, found.high) == (pytest.approx(-0.15), pytest.approx(0.76))
    assert found.p_greater == pytest.approx(0.1272, abs=5e-5)


def test_fishers_sign_flips_of_darwins_maize() -> None:
    assert sign_flip(MAIZE) == 863 / 32768


def test_many_sign_flips_are_drawn_and_the_same_each_time() -> None:
    many = [*MAIZE, 12, -9, 22, 5, -14, 30]
    p = sign_flip(many)
    assert p == sign_flip(many)
    assert p == pytest.approx(stats.ttest_1samp(many, 0, alternative="greater").pvalue, rel=0.15)


@pytest.mark.parametrize("n", [6, 12, 59, 60, 61, 400, 401, 900])
def test_signed_ranks_agree_with_scipy_and_with_the_definition(n: int) -> None:
    d = np.random.default_rng(n).standard_t(3, n) + 0.2
    found = signed_rank(d)
    assert found.p_greater == pytest.approx(stats.wilcoxon(d, alternative="greater").pvalue, rel=0.02)
    i, j = np.triu_indices(n)
    assert found.shift == pytest.approx(float(np.median((d[i] + d[j]) / 2)), abs=1e-12)


@pytest.mark.parametrize(("n", "m"), [(1, 40), (2, 14), (4, 4), (10, 12), (16, 200)])
def test_rank_sums_agree_with_scipy(n: int, m: int) -> None:
    random = np.random.default_rng(n)
    x, y = random.normal(0.3, 1, n), random.normal(0, 1, m)
    method = "exact" if n * m < 2500 else "asymptotic"
    expected = stats.mannwhitneyu(x, y, alternative="greater", method=method).pvalue
    assert rank_sum(x, y).p_greater == pytest.approx(expected, rel=1e-3)


def test_exact_levels_are_those_that_counting_gives() -> None:
    d = np.array([0.3, -0.1, 0.7, 0.9, 0.2, 1.1, -0.05])
    ranks = stats.rankdata(abs(d))
    observed = ranks[d > 0].sum()
    reached = [
        sum(r for r, s in zip(ranks, signs, strict=True) if s) >= observed for signs in product((0, 1), repeat=7)
    ]
    assert signed_rank(d).p_greater == pytest.approx(np.mean(reached))
    x, y = [3.0, 5.0, 6.0], [1.0, 2.0, 4.0, 4.5]
    both = [*x, *y]
    greater = sum(a > b for a in x for b in y)
    orders = [
        sum(both[i] > both[j] for i in chosen for j in range(7) if j not in chosen) >= greater
        for chosen in combinations(range(7), 3)
    ]
    assert rank_sum(x, y).p_greater == pytest.approx(np.mean(orders))


def test_five_pairs_say_nothing_at_95_percent_and_six_do() -> None:
    assert fewest_pairs() == 6
    assert fewest_pairs(0.9) == 5
    assert math.isinf(signed_rank([1, 2, 3, 4, 5]).high)
    assert signed_rank([1, 2, 3, 4, 5, 6]).low == 1
    assert attained_level(5, 0) == 0
    assert attained_level(6, 0) == 1 / 64


def test_how_many_control_units_a_unit_needs() -> None:
    assert not ranks_can_tell(1, 38)
    assert ranks_can_tell(1, 39)
    assert not ranks_can_tell(2, 7)
    assert ranks_can_tell(2, 8)
    assert not ranks_can_tell(0, 50)
    assert not ranks_can_tell(3, 0)
    assert math.isinf(rank_sum([1.0, 2.0], [0.0] * 3).high)


def test_students_t_is_that_of_the_sleep_data() -> None:
    # Student, Biometrika 1908;6:1: hours of sleep gained by ten patients, second drug less the first: t = 4.0621.
    d = np.array([1.2, 2.4, 1.3, 1.3, 0.0, 1.0, 1.8, 0.8, 4.6, 1.4])
    found = students_t(float(d.mean()), float(d.std(ddof=1) / math.sqrt(10)), 9)
    assert found.shift / found.standard_error == pytest.approx(4.0621, abs=5e-5)
    assert found.p_greater == pytest.approx(0.002833 / 2, abs=1e-6)
    assert (found.low, found.high) == (pytest.approx(0.7001142, abs=1e-6), pytest.approx(2.4598858, abs=1e-6))


@pytest.mark.parametrize(("error", "df"), [(0.0, 5), (math.nan, 5), (1.0, 0)])
def test_without_noise_known_t_says_nothing(error: float, df: float) -> None:
    found = students_t(0.1, error, df)
    assert (found.low, found.high, found.p_greater) == (-math.inf, math.inf, 1.0)


def test_a_shared_variance_widens_in_quadrature() -> None:
    found = students_t(0.1, 0.03, math.inf)
    wide = widened(found, 0.04**2)
    assert wide.high == pytest.approx(0.1 + stats.norm.isf(0.025) * 0.05)
    assert wide.p_greater == pytest.approx(stats.norm.sf(2))
    assert widened(found, 0.0) == found


@pytest.mark.parametrize("bad", [[], [1.0, math.nan], [math.inf]])
def test_what_is_no_sample_is_refused(bad: list[float]) -> None:
    for call in (signed_rank, sign_flip):
        with pytest.raises(ValueError, match="finite"):
            call(bad)
    with pytest.raises(ValueError, match="finite"):
        rank_sum(bad, [1.0])


@given(samples, st.floats(0.001, 1000), st.randoms())
def test_signed_ranks_do_not_care_for_scale_or_order_and_turn_with_the_sign(
    d: list[float], scale: float, random: object
) -> None:
    found = signed_rank(d)
    other = signed_rank(list(reversed([x * scale for x in d])))
    assert other.shift == pytest.approx(found.shift * scale, abs=1e-9)
    assert other.low == pytest.approx(found.low * scale, abs=1e-9)
    turned = signed_rank([-x for x in d])
    assert turned.shift == pytest.approx(-found.shift, abs=1e-12)
    assert turned.high == pytest.approx(-found.low, abs=1e-12)
    assert found.low <= found.shift <= found.high


@given(samples, samples, st.floats(0, 1))
def test_more_shift_gives_more_loss_and_a_smaller_p(x: list[float], y: list[float], more: float) -> None:
    found, greater = rank_sum(x, y), rank_sum([v + more for v in x], y)
    assert greater.shift >= found.shift - 1e-12
    assert greater.low >= found.low - 1e-12
    assert greater.p_greater <= found.p_greater + 1e-12
    moved, rest = signed_rank([v + more for v in x]), signed_rank(x)
    assert moved.shift == pytest.approx(rest.shift + more, abs=1e-9)
    assert moved.p_greater <= rest.p_greater + 1e-12


@given(st.lists(st.floats(-1, 1), min_size=6, max_size=25, unique_by=lambda x: round(abs(x), 5)))
def test_interval_and_p_value_never_contradict_each_other(d: list[float]) -> None:
    found = signed_rank(d)
    if found.low > 0:
        assert found.p_greater <= 0.025
    if found.p_greater <= 0.025:
        assert found.low >= 0
