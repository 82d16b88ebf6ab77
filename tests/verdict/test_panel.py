from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric_health.verdict.outcome import Metric
from fabric_health.verdict.panel import Panel, Value, difference_of, loss_of, panel_of

BUSBW = Metric("busbw_gbps", higher_is_better=True, margin=0.03)
LATENCY = Metric("latency_p99_ms", higher_is_better=False, margin=0.05)
START = datetime(2026, 1, 5, tzinfo=UTC)


def value(run: int, launch: int, unit: str, number: float) -> Value:
    return Value(f"run-{run}", START + timedelta(weeks=run), launch, unit, number)


def test_values_are_arranged_by_time_and_unit_and_what_is_missing_is_nan() -> None:
    values = [value(1, 0, "b", 200.0), value(0, 0, "a", 100.0), value(1, 1, "b", 210.0), value(1, 0, "a", 100.0)]
    panel = panel_of(BUSBW, "k", "node", values, {"rack": {"a": "r1"}})
    assert panel.runs == ("run-0", "run-1")
    assert panel.units == ("a", "b")
    assert panel.performance.shape == (2, 2, 2)
    assert panel.performance[1, :, 1].tolist() == [math.log(200), math.log(210)]
    assert np.isnan(panel.performance[0, :, 1]).all()
    assert panel.groups["rack"] == ("r1", "?")


def test_less_is_more_performance_where_lower_is_better() -> None:
    panel = panel_of(LATENCY, "k", "node", [value(0, 0, "a", 1.0), value(1, 0, "a", 2.0)])
    before, after = panel.performance[:, 0, 0]
    assert loss_of(before - after) == pytest.approx(0.5)


@pytest.mark.parametrize("bad", [0.0, -3.0, math.nan, math.inf])
def test_what_is_no_positive_number_is_not_measured(bad: float) -> None:
    panel = panel_of(BUSBW, "k", "node", [value(0, 0, "a", bad), value(0, 1, "a", 5.0)])
    assert np.isnan(panel.performance[0, 0, 0])
    assert panel.performance[0, 1, 0] == math.log(5.0)


def test_no_value_is_no_panel() -> None:
    with pytest.raises(ValueError, match="at least one value"):
        panel_of(BUSBW, "k", "node", [])


def test_some_units_of_a_panel_keep_their_order_and_groups() -> None:
    panel = panel_of(BUSBW, "k", "node", [value(0, 0, u, 5.0) for u in "abc"], {"rack": {"a": "1", "b": "2", "c": "3"}})
    some = panel.only(["c", "a", "none"])
    assert some.units == ("a", "c")
    assert some.groups["rack"] == ("1", "3")
    assert some.performance.shape == (1, 1, 2)


def test_a_panel_of_another_shape_is_refused() -> None:
    with pytest.raises(ValueError, match="expected 1 runs x launches x 1 units"):
        Panel(BUSBW, "k", "node", ("r",), (START,), ("a",), np.zeros((2, 1, 1)))


@given(st.floats(-5, 0.99))
def test_loss_and_difference_are_inverse(loss: float) -> None:
    assert loss_of(difference_of(loss)) == pytest.approx(loss, abs=1e-12)


@pytest.mark.parametrize("margin", [0.0, 1.0, -0.1])
def test_a_margin_is_a_fraction(margin: float) -> None:
    with pytest.raises(ValueError, match="expected a fraction"):
        Metric("x", higher_is_better=True, margin=margin)
