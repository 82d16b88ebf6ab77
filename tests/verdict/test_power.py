from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fabric_health.verdict.intervals import rank_sum, signed_rank
from fabric_health.verdict.outcome import Metric
from fabric_health.verdict.panel import difference_of
from fabric_health.verdict.power import (
    Design,
    Noise,
    detectable_loss,
    detectable_shift,
    launches_needed,
    plan,
    standard_error,
    units_needed,
)

BUSBW = Metric("busbw_gbps", higher_is_better=True, margin=0.03)


def test_cohens_sample_sizes() -> None:
    # Cohen 1988, d = 0.5 at two-sided 5 % and 80 % power: 34 pairs (table 2.4.1 for pairs), 64 in each of two groups.
    for n, seen in ((33, False), (34, True)):
        assert (detectable_shift(1 / math.sqrt(n), n - 1, 0.025) <= 0.5) is seen
    for n, seen in ((63, False), (64, True)):
        assert (detectable_shift(math.sqrt(2 / n), 2 * n - 2, 0.025) <= 0.5) is seen


def test_with_known_noise_it_is_the_sum_of_two_normal_quantiles() -> None:
    assert detectable_shift(1.0, math.inf, 0.025, 0.8) == pytest.approx(1.959964 + 0.841621, abs=1e-6)
    assert detectable_shift(1.0, math.inf, 0.05 / 1000, 0.95) == pytest.approx(3.890592 + 1.644854, abs=1e-6)


def test_what_cannot_decide_sees_nothing() -> None:
    assert detectable_shift(0.01, 0, 0.025) == math.inf
    assert detectable_loss(Noise(0.02), Design(2, 2, 1, 1)) == 1.0


def test_the_parts_of_the_noise_add_up_as_variances() -> None:
    noise = Noise(0.02, 0.01, 0.005)
    alone = Design(units=4, launches_before=2, launches_after=4)
    assert standard_error(noise, alone) == pytest.approx(
        math.sqrt((0.02**2 * (1 / 2 + 1 / 4) + 2 * 0.01**2) / 4 + 2 * 0.005**2)
    )
    history = Design(units=1, controls=9, launches_before=3, launches_after=3, runs_before=8)
    unit = 0.02**2 * (1 / 24 + 1 / 3) + 0.01**2 * (1 + 1 / 8)
    assert standard_error(noise, history) == pytest.approx(math.sqrt(unit * (1 + 1 / 9)))


@pytest.mark.parametrize("design", [Design(8, 0, 1, 1), Design(16, 0, 3, 3), Design(3, 12, 3, 3), Design(10, 10, 1, 1)])
def test_what_is_said_to_be_seen_by_ranks_is_seen_in_four_of_five_simulated_changes(design: Design) -> None:
    noise, random = Noise(0.02), np.random.default_rng(7)
    assert design.by_ranks
    loss = difference_of(detectable_loss(noise, design))
    error = math.sqrt(noise.launch**2 * (1 / design.launches_before + 1 / design.launches_after))
    found = 0
    for _ in range(1000):
        changed = random.normal(loss, error, design.units)
        beside = random.normal(0, error, design.controls) if design.controls else None
        estimate = signed_rank(changed) if beside is None else rank_sum(changed, beside)
        found += estimate.low > 0
    assert found / 1000 == pytest.approx(0.8, abs=0.07)


def test_launches_that_are_said_to_suffice_do_and_one_fewer_does_not() -> None:
    noise, design = Noise(0.02), Design(units=2, controls=3)
    needed = launches_needed(noise, 0.03, design)
    assert needed is not None
    enough = Design(2, 3, needed, needed)
    assert detectable_loss(noise, enough) <= 0.03 < detectable_loss(noise, Design(2, 3, needed - 1, needed - 1))


def test_a_noise_that_all_units_share_is_not_measured_away() -> None:
    noise = Noise(0.02, run=0.03)
    assert launches_needed(noise, 0.03, Design(units=4)) is None
    assert units_needed(noise, 0.03, Design(units=4)) is None
    assert units_needed(noise, 0.03, Design(units=4, controls=30)) is not None
    assert "Measure control units" in plan(BUSBW, 0.03, noise, Design(units=4)).sentence


def test_the_past_bounds_what_launches_after_the_change_can_show() -> None:
    noise, design = Noise(0.02), Design(units=1, controls=5, launches_before=1)
    assert launches_needed(noise, 0.03, design, after_only=True) is None
    assert launches_needed(noise, 0.03, design) is not None


def test_a_plan_says_what_it_takes() -> None:
    found = plan(BUSBW, 0.03, Noise(0.02, 0.003), Design(units=2, controls=14))
    assert not found.enough
    assert found.launches == 7
    assert found.units == 4
    assert found.sentence.startswith("busbw_gbps: 2 units, 14 control units, 3 launches before and 3 after")
    assert "7 launches of each unit both before and after" in found.sentence
    fine = plan(BUSBW, 0.10, Noise(0.02, 0.003), Design(units=2, controls=14))
    assert fine.enough
    assert "enough for 10.0" in fine.sentence


def test_one_unit_of_a_fleet_against_its_history() -> None:
    # 5 % at 2 % noise with 8 runs of history, at 0.05 / 1000: three launches do not show it in 80 %, four do.
    design = Design(1, 999, 3, 3, runs_before=8, judged=1000, alpha=0.05, known=True)
    found = plan(BUSBW, 0.05, Noise(0.02), design)
    assert found.detectable_loss == pytest.approx(0.0564, abs=5e-4)
    assert found.launches_after == 4


@pytest.mark.parametrize(("loss", "power"), [(0.0, 0.8), (1.0, 0.8), (0.05, 1.0), (-0.1, 0.8)])
def test_a_plan_for_no_share_is_refused(loss: float, power: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        plan(BUSBW, loss, Noise(0.02), Design(), power)


@pytest.mark.parametrize("noise", [(0.0,), (-0.1,), (math.nan,), (0.02, -1.0)])
def test_a_noise_that_is_none_is_refused(noise: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="noises of 0 or more"):
        Noise(*noise)


@pytest.mark.parametrize("counts", [(0, 0), (1, -1), (1, 0, 0), (1, 0, 3, 0)])
def test_a_design_without_measurements_is_refused(counts: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="counts of 1 or more"):
        Design(*counts)


@settings(max_examples=40)
@given(st.floats(0.002, 0.1), st.integers(1, 12), st.integers(0, 12), st.integers(1, 12), st.booleans())
def test_more_launches_never_see_less_and_more_noise_never_more(
    noise: float, units: int, controls: int, launches: int, known: bool
) -> None:
    design = Design(units, controls, launches, launches, known=known)
    more = Design(units, controls, launches + 1, launches + 1, known=known)
    seen = detectable_loss(Noise(noise), design)
    assert 0 < seen <= 1
    assert detectable_loss(Noise(noise), more) <= seen + 1e-9
    assert detectable_loss(Noise(noise * 1.5), design) >= seen - 1e-9
