from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric_health.verdict import robust


def test_medians_leave_out_what_is_not_measured() -> None:
    x = np.array([[1.0, np.nan, np.nan], [5.0, 2.0, np.nan], [3.0, 4.0, np.nan]])
    assert robust.median(x).tolist()[:2] == [3.0, 3.0]
    assert np.isnan(robust.median(x)[2])
    assert np.isnan(robust.median(np.empty((0, 2)))).all()


def test_a_location_is_the_mean_where_nothing_is_far_and_the_median_where_nothing_is_believed() -> None:
    x = np.array([1.0, 2.0, 3.0, 10.0])
    assert robust.location(x, 100.0) == pytest.approx(4.0)
    assert robust.location(x, 0.0) == pytest.approx(2.5)


def test_one_wild_value_moves_a_location_by_a_bounded_amount() -> None:
    x = np.random.default_rng(1).normal(0, 1, 30)
    usual = float(robust.location(x, 1.0))
    far = [float(robust.location(np.append(x, wild), 1.0)) for wild in (5.0, 50.0, 5e6)]
    assert far[1] == pytest.approx(far[2])
    assert usual < far[0] <= far[2] < usual + 1.5 * robust.BEND / 30


def test_huber_known_answer() -> None:
    # psi sums to zero at the location: 0, 0, 1 and a value cut at 1.5 give m with (0-m)+(0-m)+(1-m)+1.5 = 0.
    assert robust.location(np.array([0.0, 0.0, 1.0, 9.0]), 1.0) == pytest.approx(2.5 / 3, abs=1e-5)


def test_a_spread_is_right_for_normal_data_and_hardly_moved_by_tails() -> None:
    rng = np.random.default_rng(2)
    x = rng.normal(0, 3, 20_000)
    assert robust.spread(x) == pytest.approx(3, rel=0.03)
    x[:400] -= 100
    assert robust.spread(x) == pytest.approx(3, rel=0.08)


def test_variances_of_like_units_are_taken_together_and_a_noisy_unit_keeps_its_own() -> None:
    rng = np.random.default_rng(3)
    df = np.full(64, 16.0)
    like = rng.chisquare(16, 64) / 16
    together, weight = robust.moderated(like, df, 1.0)
    assert weight > 40
    assert together.std() < like.std() / 3
    mixed = like * np.where(np.arange(64) < 20, 9.0, 1.0)
    kept, weight = robust.moderated(mixed, df, 1.0)
    assert weight < 30
    assert kept[:20].mean() > 3
    alone, _ = robust.moderated(np.array([np.nan, 1.0]), np.array([0.0, 16.0]), 2.0)
    assert alone[0] == 2.0


@given(
    st.lists(st.floats(-100, 100), min_size=1, max_size=12), st.floats(0.01, 10), st.floats(-5, 5), st.floats(0.1, 10)
)
def test_a_location_moves_and_stretches_with_the_data(
    values: list[float], scale: float, move: float, stretch: float
) -> None:
    x = np.array(values)
    one = float(robust.location(x, scale, rounds=200))
    other = float(robust.location(x * stretch + move, scale * stretch, rounds=200))
    assert other == pytest.approx(one * stretch + move, abs=1e-3 * max(1.0, scale) * stretch + 1e-6)
    assert min(values) - 1e-9 <= one <= max(values) + 1e-9
