from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric_health.verdict.multiple import benjamini_hochberg, holm, over_links, over_metrics
from fabric_health.verdict.outcome import Judgement, Layer, Outcome

# Benjamini and Hochberg 1995, section 3.2: rt-PA against APSAC in myocardial infarction.
INFARCTION = [
    0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459, 0.3240, 0.4262, 0.5719, 0.6528, 0.7590, 1.0,
]  # fmt: skip
p_values = st.lists(st.floats(0, 1), max_size=30)


def judgement(subject: str, p: float | None, outcome: Outcome = Outcome.REGRESSED) -> Judgement:
    return Judgement(subject, "node", "busbw_gbps", "k", Layer.PAIRED, outcome, "It lost.", 0.03, p_value=p)


def test_benjamini_and_hochberg_reject_four_of_their_example_and_holm_three() -> None:
    assert (benjamini_hochberg(INFARCTION) <= 0.05).sum() == 4
    assert (holm(INFARCTION) <= 0.05).sum() == 3
    assert benjamini_hochberg(INFARCTION)[3] == pytest.approx(0.0095 * 15 / 4)


def test_the_examples_of_stdlib_padjust() -> None:
    # https://stdlib.io/docs/api/latest/@stdlib/stats/padjust
    assert holm([0.319, 0.201, 0.4, 0.374, 0.113]) == pytest.approx([0.957, 0.804, 0.957, 0.957, 0.565])
    assert benjamini_hochberg([0.008, 0.03, 0.123, 0.6, 0.2]) == pytest.approx([0.04, 0.075, 0.205, 0.6, 0.25])


@given(p_values)
def test_adjusted_values_keep_the_order_and_are_never_smaller(p: list[float]) -> None:
    for adjust in (holm, benjamini_hochberg):
        adjusted = adjust(p)
        assert len(adjusted) == len(p)
        assert all(a >= x - 1e-12 and a <= 1 for a, x in zip(adjusted, p, strict=True))
        order = sorted(range(len(p)), key=p.__getitem__)
        assert all(adjusted[i] <= adjusted[j] + 1e-12 for i, j in pairwise(order))


@pytest.mark.parametrize("bad", [[-0.1], [1.1], [float("nan")]])
def test_what_is_no_probability_is_refused(bad: list[float]) -> None:
    for adjust in (holm, benjamini_hochberg):
        with pytest.raises(ValueError, match="between 0 and 1"):
            adjust(bad)


def test_of_many_metrics_one_that_barely_regressed_is_not_held_against_the_change() -> None:
    found = over_metrics([judgement("a", 0.02), judgement("b", 0.4, Outcome.PASS), judgement("c", 0.001)])
    assert [j.outcome for j in found] == [Outcome.INCONCLUSIVE, Outcome.PASS, Outcome.REGRESSED]
    assert found[0].p_adjusted == pytest.approx(0.04)
    assert found[0].settle
    assert "3 metrics" in found[0].reason


def test_the_same_judgement_alone_stands() -> None:
    assert over_metrics([judgement("a", 0.02)])[0].outcome is Outcome.REGRESSED


def test_links_are_adjusted_by_benjamini_and_hochberg() -> None:
    found = over_links([judgement(str(i), 0.02) for i in range(50)] + [judgement("x", 0.5, Outcome.PASS)])
    assert all(j.outcome is Outcome.REGRESSED for j in found[:50])
    assert found[0].p_adjusted == pytest.approx(0.0204)


def test_what_has_no_p_value_takes_no_part() -> None:
    untouched = judgement("gone", None, Outcome.NOT_COMPARABLE)
    found = over_metrics([untouched, judgement("a", 0.02)])
    assert found[0] == untouched
    assert found[1].p_adjusted == pytest.approx(0.02)
    assert over_links([]) == ()


@given(st.lists(st.tuples(st.floats(0, 1), st.sampled_from(list(Outcome))), max_size=12))
def test_correction_never_makes_anything_worse(cases: list[tuple[float, Outcome]]) -> None:
    before = [judgement(str(i), p, outcome) for i, (p, outcome) in enumerate(cases)]
    for adjust in (over_metrics, over_links):
        for old, new in zip(before, adjust(before), strict=True):
            assert new.outcome in (old.outcome, Outcome.INCONCLUSIVE)
            assert replace(new, outcome=old.outcome, reason=old.reason, settle=None, p_adjusted=None) == old
