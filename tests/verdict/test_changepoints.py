from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fabric_health.verdict.changepoints import change_points, energy

RECORDED = json.loads(
    (Path(__file__).parents[1] / "fixtures" / "verdict" / "change_points_apache_otava.json").read_text(encoding="utf-8")
)


@pytest.mark.parametrize("answer", RECORDED["answers"], ids=lambda a: f"{a['series']}, {a['max_p']}, {a['min_size']}")
def test_it_finds_the_change_points_that_apache_otava_finds(answer: dict) -> None:
    x = np.array(RECORDED["series"][answer["series"]])
    told = answer["change_points"]
    # Otava's smallest size is a share of the level: a difference of logarithms.
    found = change_points(np.log(x), answer["max_p"], answer["min_size"], window=2 * len(x))
    assert [p.index for p in found] == [c["index"] for c in told]
    plain = {p.index: p for p in change_points(x, answer["max_p"], window=2 * len(x))}
    for c in told:
        if answer["min_size"] == 0:
            assert plain[c["index"]].before == pytest.approx(c["before"], abs=1e-3)
            assert plain[c["index"]].after == pytest.approx(c["after"], abs=1e-3)


def test_energy_distance_known_answer() -> None:
    # x = 0, 0 | 4: 2/3 (4 + 4) - 2/3 * 1/1 * 0 = 16/3; x = 0 | 0, 4: 2/3 (0 + 4) - 2/3 * 1 * 4 = 0.
    distances = energy(np.array([0.0, 0.0, 4.0]))
    assert distances[1, 1] == pytest.approx(16 / 3)
    assert distances[0, 1] == pytest.approx(0.0)
    assert distances[1, 0] == -np.inf


def test_the_p_value_is_students() -> None:
    x = np.random.default_rng(1).normal(0, 1, 20) + np.repeat([0.0, 4.0], 10)
    (point,) = change_points(x)
    assert point.index == 10
    assert point.p_value == pytest.approx(stats.ttest_ind(x[:10], x[10:]).pvalue)
    assert (point.before - point.after) / point.variance**0.5 == pytest.approx(
        stats.ttest_ind(x[:10], x[10:]).statistic
    )


def test_noise_has_few_change_points_and_equal_values_none() -> None:
    rng = np.random.default_rng(2)
    assert sum(bool(change_points(rng.normal(0, 1, 30))) for _ in range(100)) <= 5
    assert change_points(np.full(30, 3.7)) == ()
    assert change_points(np.empty(0)) == ()
    assert change_points(np.array([1.0])) == ()


def test_segments_are_as_long_as_asked() -> None:
    x = np.array([0.0, 0.1, -0.1, 0.05, -0.05, 0.02, 0.0, 0.1, 9.0, 9.1])
    assert [p.index for p in change_points(x)] == [8]
    assert change_points(x, min_segment=3) == () or all(3 <= p.index <= 7 for p in change_points(x, min_segment=3))


def test_what_is_not_finite_is_refused() -> None:
    with pytest.raises(ValueError, match="finite"):
        change_points(np.array([1.0, np.nan, 2.0]))


@pytest.mark.parametrize("value", [0.0, 1e-320, -3.0, 1e6])
def test_equal_values_have_no_change_point(value: float) -> None:
    assert change_points(np.full(12, value)) == ()


@given(
    st.lists(st.floats(-10, 10), min_size=0, max_size=40), st.floats(-100, 100), st.sampled_from([0.25, 0.5, 2.0, 64.0])
)
def test_never_raises_and_does_not_know_the_unit_of_measure(values: list[float], move: float, stretch: float) -> None:
    x = np.round(np.array(values), 3)
    found = [p.index for p in change_points(x)]
    assert found == sorted(set(found))
    assert all(0 < i < len(x) for i in found)
    assert [p.index for p in change_points(x * stretch)] == found
