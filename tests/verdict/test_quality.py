from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from fabric_health.verdict.outcome import Metric, Outcome
from fabric_health.verdict.quality import (
    Answers,
    accuracy_interval,
    answers_of,
    detectable_accuracy_loss,
    items_needed,
    judge_likelihood,
    judge_quality,
    mcnemar,
    recovery,
)

ACCURACY = Metric("accuracy", higher_is_better=True, margin=0.02)
counts = st.integers(0, 60)
answers = st.builds(Answers, counts, counts, counts, counts)


def items(lost: int, gained: int, count: int = 200, right: int = 150) -> tuple[dict[str, bool], dict[str, bool]]:
    """Return ``count`` items, ``right`` of which are right before; some get lost and some gained."""
    before = {f"item-{i:03}": i < right for i in range(count)}
    after = dict(before)
    after |= {f"item-{i:03}": False for i in range(lost)}
    after |= {f"item-{count - 1 - i:03}": True for i in range(gained)}
    return before, after


def test_agrestis_approval_of_the_prime_minister() -> None:
    # Agresti, Categorical Data Analysis, table 10.1: 1,600 British adults asked twice; z squared is 17.36.
    asked = Answers(kept=794, lost=150, gained=86, wrong=570)
    one, two = mcnemar(asked.lost, asked.gained)
    assert two == pytest.approx(2 * stats.binom.sf(149, 236, 0.5), rel=1e-9)
    assert one == pytest.approx(two / 2)
    assert asked.loss == pytest.approx(0.04)
    low, high = accuracy_interval(asked)
    assert (low, high) == (pytest.approx(0.0212, abs=5e-4), pytest.approx(0.0588, abs=5e-4))


def test_fifteen_against_five_is_significant_and_no_change_is_not() -> None:
    assert mcnemar(15, 5)[1] == pytest.approx(0.04139, abs=5e-6)
    assert mcnemar(0, 0) == (1.0, 1.0)
    assert mcnemar(5, 0)[0] == 1 / 32


def test_tangos_interval_of_airway_responsiveness() -> None:
    # Bentur et al. 2009, as in Fagerland, Lydersen and Laake, Statistical Analysis of Contingency Tables, chapter 8:
    # 21 children before and after a stem cell transplantation; the interval is given as -0.517 to -0.026.
    low, high = accuracy_interval(Answers(kept=1, lost=1, gained=7, wrong=12))
    assert (low, high) == (pytest.approx(-0.517, abs=5e-4), pytest.approx(-0.026, abs=5e-4))


@pytest.mark.parametrize("case", [Answers(100, 40, 20, 0), Answers(30, 3, 9, 8), Answers(50, 2, 9, 1)])
def test_tangos_interval_ends_where_the_score_test_rejects(case: Answers) -> None:
    z, n = 1.959964, case.items
    for loss in accuracy_interval(case):
        # The likelihood of the four cells, greatest under this loss, by brute force.
        back = np.linspace(max(1e-12, -loss), (1 - loss) / 2, 400_001)
        with np.errstate(divide="ignore"):
            fit = case.lost * np.log(back + loss) + case.gained * np.log(back)
            fit += (n - case.lost - case.gained) * np.log1p(-2 * back - loss)
        best = back[np.argmax(np.where(np.isfinite(fit), fit, -np.inf))]
        score = (case.lost - case.gained - n * loss) / math.sqrt(n * (2 * best + loss * (1 - loss)))
        assert abs(score) == pytest.approx(z, abs=2e-3)


def test_no_changed_item_still_leaves_doubt() -> None:
    low, high = accuracy_interval(Answers(150, 0, 0, 50))
    assert high == pytest.approx(1.959964**2 / (200 + 1.959964**2), abs=1e-6)
    assert low == pytest.approx(-high)
    assert accuracy_interval(Answers(0, 0, 0, 0)) == (-1.0, 1.0)
    assert accuracy_interval(Answers(0, 9, 0, 0))[1] == 1.0


def test_ten_percent_of_200_items_is_a_loss_and_one_percent_is_not() -> None:
    ten = judge_quality(*items(20, 0), metric=ACCURACY, subject="tiny-llama-w8a8")
    assert ten.outcome is Outcome.REGRESSED
    assert ten.loss == pytest.approx(0.10)
    assert ten.loss_low is not None
    assert ten.loss_low > 0.05
    one = judge_quality(*items(2, 0), metric=ACCURACY, subject="tiny-llama-w8a8")
    assert one.outcome is Outcome.INCONCLUSIVE
    assert one.settle is not None
    assert "items to show or rule out a loss of 2.0 %" in one.settle
    assert one.detectable_loss == pytest.approx(0.043, abs=0.002)


def test_what_changes_both_ways_is_no_loss() -> None:
    churn = judge_quality(*items(12, 10), metric=ACCURACY, subject="m")
    assert churn.outcome is Outcome.INCONCLUSIVE
    assert judge_quality(*items(3, 2, 2000, 1500), metric=ACCURACY, subject="m").outcome is Outcome.PASS
    assert judge_quality(*items(0, 20), metric=ACCURACY, subject="m").outcome is Outcome.IMPROVED


def test_other_items_are_not_comparable_and_no_items_say_nothing() -> None:
    before, after = items(0, 0)
    del after["item-007"]
    found = judge_quality(before, after, metric=ACCURACY, subject="m")
    assert found.outcome is Outcome.NOT_COMPARABLE
    assert "item-007" in found.reason
    assert judge_quality({}, {}, metric=ACCURACY, subject="m").outcome is Outcome.INCONCLUSIVE
    assert judge_likelihood({}, {}, metric=ACCURACY, subject="m").outcome is Outcome.INCONCLUSIVE


def test_recovery_is_the_share_that_is_kept() -> None:
    found = recovery(Answers(135, 15, 0, 50))
    assert found.ratio == pytest.approx(0.9)
    assert found.low == pytest.approx(0.85, abs=0.015)
    assert found.high == pytest.approx(0.945, abs=0.015)
    assert found == recovery(Answers(135, 15, 0, 50))
    assert math.isnan(recovery(Answers(0, 0, 5, 5)).ratio)


@pytest.mark.parametrize(("count", "churn"), [(200, 0.01), (500, 0.05), (2000, 0.02)])
def test_the_detectable_loss_is_detected_in_four_of_five(count: int, churn: float) -> None:
    loss = detectable_accuracy_loss(count, churn)
    random = np.random.default_rng(3)
    drawn = random.multinomial(count, [loss + churn, churn, 1 - loss - 2 * churn], 2000)
    lost, changed = drawn[:, 0], drawn[:, 0] + drawn[:, 1]
    p = stats.binom.sf(lost - 1, changed, 0.5)
    assert np.mean(p <= 0.025) == pytest.approx(0.8, abs=0.08)


def test_items_that_are_said_to_suffice_do() -> None:
    needed = items_needed(0.02, 0.05)
    assert needed is not None
    assert detectable_accuracy_loss(needed, 0.05) <= 0.02 < detectable_accuracy_loss(needed - 1, 0.05)
    assert items_needed(1e-5, 0.2) is None
    assert detectable_accuracy_loss(0, 0.1) == 1.0


def likelihoods(shift: float, count: int = 200, noise: float = 0.05) -> tuple[dict[str, float], dict[str, float]]:
    random = np.random.default_rng(5)
    before = {str(i): float(x) for i, x in enumerate(random.normal(-3, 2, count))}
    return before, {k: v - shift + float(random.normal(0, noise)) for k, v in before.items()}


def test_likelihoods_see_what_right_and_wrong_do_not() -> None:
    worse = judge_likelihood(*likelihoods(0.05), metric=ACCURACY, subject="m")
    assert worse.outcome is Outcome.REGRESSED
    assert worse.loss == pytest.approx(0.05, abs=0.01)
    assert judge_likelihood(*likelihoods(0.0), metric=ACCURACY, subject="m").outcome is Outcome.PASS
    assert judge_likelihood(*likelihoods(-0.05), metric=ACCURACY, subject="m").outcome is Outcome.IMPROVED
    few = judge_likelihood(*likelihoods(0.02, 12, 0.2), metric=ACCURACY, subject="m")
    assert few.outcome is Outcome.INCONCLUSIVE
    assert few.settle is not None


def test_the_bootstrap_of_a_mean_agrees_with_students_interval() -> None:
    before, after = likelihoods(0.03, 400)
    found = judge_likelihood(before, after, metric=ACCURACY, subject="m")
    d = np.array([before[k] - after[k] for k in before])
    expected = stats.t.interval(0.95, 399, d.mean(), d.std(ddof=1) / 20)
    assert found.loss_low == pytest.approx(1 - math.exp(-expected[0]), abs=5e-4)
    assert found.loss_high == pytest.approx(1 - math.exp(-expected[1]), abs=5e-4)


@pytest.mark.parametrize("bad", [math.nan, -math.inf])
def test_a_likelihood_that_is_no_number_is_never_passed(bad: float) -> None:
    before, after = likelihoods(0.0)
    found = judge_likelihood(before, after | {"3": bad}, metric=ACCURACY, subject="m")
    assert found.outcome is Outcome.INCONCLUSIVE
    assert "1 items have no finite likelihood" in found.reason


@settings(max_examples=60)
@given(answers)
def test_interval_holds_the_loss_and_turns_with_the_order(case: Answers) -> None:
    low, high = accuracy_interval(case)
    turned = accuracy_interval(Answers(case.kept, case.gained, case.lost, case.wrong))
    assert -1 <= low <= high <= 1
    assert turned == (pytest.approx(-high, abs=1e-6), pytest.approx(-low, abs=1e-6))
    if case.items:
        assert low <= case.loss + 1e-9
        assert high >= case.loss - 1e-9


@settings(max_examples=30)
@given(st.integers(0, 40), st.integers(0, 40), st.integers(1, 20))
def test_more_lost_items_never_look_better(lost: int, gained: int, more: int) -> None:
    rank = [Outcome.REGRESSED, Outcome.INCONCLUSIVE, Outcome.PASS, Outcome.IMPROVED]
    less = judge_quality(*items(lost, gained), metric=ACCURACY, subject="m").outcome
    worse = judge_quality(*items(lost + more, gained), metric=ACCURACY, subject="m").outcome
    assert rank.index(worse) <= rank.index(less)


@given(
    st.dictionaries(st.sampled_from("abcdef"), st.booleans()), st.dictionaries(st.sampled_from("abcdef"), st.booleans())
)
def test_a_handful_of_items_never_pass(before: dict[str, bool], after: dict[str, bool]) -> None:
    found = judge_quality(before, after, metric=ACCURACY, subject="m").outcome
    assert found is not Outcome.PASS
    assert answers_of(before, after).items == len(before.keys() & after.keys())
