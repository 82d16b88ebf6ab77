from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fabric_health.verdict.noise import noise_of
from fabric_health.verdict.outcome import Metric
from fabric_health.verdict.panel import Panel

BUSBW = Metric("busbw_gbps", higher_is_better=True, margin=0.03)
START = datetime(2026, 1, 5, tzinfo=UTC)


def panel(performance: np.ndarray) -> Panel:
    runs, _, units = performance.shape
    at = tuple(START + timedelta(weeks=i) for i in range(runs))
    return Panel(BUSBW, "k", "node", tuple(map(str, at)), at, tuple(f"u{i}" for i in range(units)), performance)


def simulated(
    runs: int, launches: int, units: int, *, launch: float, unit: float, run: float, seed: int = 1
) -> np.ndarray:
    random = np.random.default_rng(seed)
    levels = random.normal(5, 0.01, units) + random.normal(0, run, (runs, 1)) + random.normal(0, unit, (runs, units))
    return levels[:, None, :] + random.normal(0, launch, (runs, launches, units))


@pytest.mark.parametrize(("launch", "unit", "run"), [(0.02, 0.0, 0.0), (0.02, 0.01, 0.0), (0.01, 0.004, 0.02)])
def test_the_three_noises_are_told_apart(launch: float, unit: float, run: float) -> None:
    performance = simulated(40, 3, 64, launch=launch, unit=unit, run=run)
    performance[5, :, 7] = math.nan
    performance[9, 1, 3] -= 0.5
    found = noise_of(panel(performance))
    assert found is not None
    assert found.launch == pytest.approx(launch, rel=0.05)
    assert found.unit == pytest.approx(unit, rel=0.15, abs=0.0035)
    assert found.run == pytest.approx(run, rel=0.3, abs=0.0015)


def test_one_unit_has_only_runs_and_launches() -> None:
    found = noise_of(panel(simulated(60, 5, 1, launch=0.01, unit=0.0, run=0.02)))
    assert found is not None
    assert found.unit == 0
    assert found.run == pytest.approx(0.02, rel=0.3)


def test_too_little_says_nothing() -> None:
    enough = simulated(4, 3, 8, launch=0.02, unit=0.0, run=0.0)
    assert noise_of(panel(enough)) is not None
    assert noise_of(panel(enough[:3])) is None
    assert noise_of(panel(enough[:, :1])) is None
    assert noise_of(panel(np.full((6, 3, 4), math.nan))) is None
    assert noise_of(panel(np.full((6, 3, 4), 5.0))) is None
    assert noise_of(panel(np.empty((0, 0, 0)))) is None


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 6), st.integers(0, 3), st.integers(0, 5), st.floats(0, 1), st.integers(0, 99))
def test_any_holes_are_borne(runs: int, launches: int, units: int, missing: float, seed: int) -> None:
    random = np.random.default_rng(seed)
    performance = random.normal(5, 0.02, (runs, launches, units))
    performance[random.random(performance.shape) < missing] = math.nan
    found = noise_of(panel(performance))
    assert found is None or found.launch > 0
