from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric_health.verdict.decision import decide
from fabric_health.verdict.outcome import Outcome
from fabric_health.verdict.panel import difference_of

P, R, G, Q = Outcome.PASS, Outcome.REGRESSED, Outcome.IMPROVED, Outcome.INCONCLUSIVE
RANK = {Outcome.REGRESSED: 0, Outcome.INCONCLUSIVE: 1, Outcome.PASS: 2, Outcome.IMPROVED: 3}


@pytest.mark.parametrize(
    ("loss", "low", "high", "outcome"),
    [
        (0.094, 0.08, 0.11, R),
        (0.0, -0.01, 0.01, P),
        (0.0, -0.05, 0.05, Q),
        (0.012, 0.01, 0.014, P),  # real, and certainly below the margin
        (0.028, 0.02, 0.036, R),  # real, and as large as the margin may be
        (0.012, 0.001, 0.04, Q),  # real, yet nobody can say whether it matters
        (0.06, -0.01, 0.13, Q),
        (-0.05, -0.06, -0.04, G),
        (-0.01, -0.012, -0.008, P),  # faster, by less than the margin
        (-0.05, -0.2, 0.01, P),
        (math.nan, 0.0, 0.0, Q),
        (0.0, -math.inf, math.inf, Q),
        (0.1, -math.inf, 0.02, P),
    ],
)
def test_an_interval_is_read_against_the_margin(loss: float, low: float, high: float, outcome: Outcome) -> None:
    as_log = [difference_of(x) if math.isfinite(x) else x for x in (loss, low, high)]
    assert decide(*as_log, margin=0.03) is outcome


@given(st.floats(-0.5, 0.5), st.floats(0, 0.3), st.floats(0, 0.3), st.floats(0, 0.3), st.floats(0.001, 0.2))
def test_a_greater_loss_never_looks_better(
    difference: float, below: float, above: float, more: float, margin: float
) -> None:
    less = decide(difference, difference - below, difference + above, margin)
    worse = decide(difference + more, difference + more - below, difference + more + above, margin)
    assert RANK[worse] <= RANK[less]


@given(st.floats(-0.5, 0.5), st.floats(0, 0.3), st.floats(0, 0.3), st.floats(0.001, 0.2))
def test_a_pass_excludes_the_margin_and_a_regression_excludes_no_loss(
    difference: float, below: float, above: float, margin: float
) -> None:
    low, high = difference - below, difference + above
    outcome = decide(difference, low, high, margin)
    if outcome is Outcome.PASS:
        assert high < difference_of(margin)
    if outcome is Outcome.REGRESSED:
        assert low > 0
        assert high >= difference_of(margin)
