from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fabric_health.verdict.fleet import judge_fleet, suspects
from fabric_health.verdict.outcome import Judgement, Layer, Outcome
from fabric_health.verdict.panel import Floats
from fabric_health.verdict.settings import DEFAULTS, Round, Settings

ONE_LOOK = replace(DEFAULTS, rounds=())


def blamed(judgements: tuple[Judgement, ...]) -> set[str]:
    return {j.subject for j in judgements if j.outcome is Outcome.REGRESSED}


def lost(values: Floats, units: slice | int, loss: float) -> Floats:
    after = values.copy()
    after[-1, :, units] += np.log1p(-loss)
    return after


def sound(values: Floats, unit: int, launches: int, seed: int = 1) -> Floats:
    """Return launches of a unit in the last run as it was before: its own level, and what the run did to all."""
    run = np.nanmedian(values[-1, :3]) - np.nanmedian(values[:-1])
    return np.asarray(np.nanmedian(values[:-1, :, unit]) + run + np.random.default_rng(seed).normal(0, 0.02, launches))


def test_a_healthy_fleet_is_quiet_and_everybody_is_judged(fleets: SimpleNamespace) -> None:
    for seed in range(6):
        judged = judge_fleet(fleets.panel(fleets.performance(seed), fleets.racks(32, 8)))
        assert blamed(judged) == set()
        assert [j.subject for j in judged[:5]] == ["fleet", "rack-00", "rack-01", "rack-02", "rack-03"]
        assert len(judged) == 5 + 32
    assert Counter(j.outcome for j in judged)[Outcome.PASS] > 20


def test_a_unit_that_lost_ten_percent_is_blamed_alone_with_an_honest_interval(fleets: SimpleNamespace) -> None:
    judged = judge_fleet(fleets.panel(lost(fleets.performance(1, launch=0.01), 5, 0.1), fleets.racks(32, 8)))
    assert blamed(judged) == {"gpu-0005"}
    it = fleets.of("gpu-0005", judged)
    assert it.layer is Layer.POOLED
    assert it.loss_low < 0.1 < it.loss_high
    assert it.loss_high - it.loss_low < 0.04
    assert it.p_adjusted < DEFAULTS.alpha
    assert (it.runs_before, it.launches_before, it.launches_after) == (8, 24, 3)
    assert "slower than its 8 runs before" in it.reason


def test_a_unit_that_gained_is_improved(fleets: SimpleNamespace) -> None:
    judged = judge_fleet(fleets.panel(lost(fleets.performance(1, launch=0.01), 5, -0.1)))
    assert fleets.of("gpu-0005", judged).outcome is Outcome.IMPROVED
    assert blamed(judged) == set()


def test_two_bad_launches_of_three_are_not_proof_and_more_of_them_clear_the_unit(fleets: SimpleNamespace) -> None:
    values = fleets.performance(2)
    values[-1, :2, 7] -= 0.2
    it = fleets.of("gpu-0007", judge_fleet(fleets.panel(values)))
    assert it.outcome is Outcome.INCONCLUSIVE
    assert "can be bad by chance" in it.reason
    assert "more launches" in it.settle
    assert suspects(fleets.panel(values))["gpu-0007"] == DEFAULTS.rounds[0].launches
    cleared = fleets.more(values, 7, sound(values, 7, DEFAULTS.extra))
    assert fleets.of("gpu-0007", judge_fleet(fleets.panel(cleared))).outcome is Outcome.PASS


def test_a_switch_that_lost_is_named_once_and_none_of_its_units_passes(fleets: SimpleNamespace) -> None:
    panel = fleets.panel(lost(fleets.performance(3), slice(8, 16), 0.08), fleets.racks(32, 8))
    judged = judge_fleet(panel)
    assert blamed(judged) == {"rack-01"}
    rack = fleets.of("rack-01", judged)
    assert (rack.subject_kind, rack.units) == ("rack", 8)
    assert rack.loss_low < 0.08 < rack.loss_high
    inside = [fleets.of(f"gpu-{u:04d}", judged) for u in range(8, 16)]
    assert {j.outcome for j in inside} == {Outcome.INCONCLUSIVE}
    assert "moved with rack rack-01" in inside[0].reason
    assert len(set(suspects(panel)) & {j.subject for j in inside}) <= 3


def test_half_a_fleet_that_lost_is_blamed_and_not_the_other_half_praised(fleets: SimpleNamespace) -> None:
    judged = judge_fleet(fleets.panel(lost(fleets.performance(4), slice(0, 16), 0.1), fleets.racks(32, 16)))
    assert blamed(judged) == {"rack-00"}
    assert Outcome.IMPROVED not in {j.outcome for j in judged}


def test_a_rack_that_always_moves_by_itself_blames_nobody(fleets: SimpleNamespace) -> None:
    values = fleets.performance(5, units=64)
    moves = np.random.default_rng(5).normal(0, 0.02, (9, 4))
    values += np.repeat(moves, 16, axis=1)[:, None, :]
    values[-1, :, 16:32] -= 0.03
    judged = judge_fleet(fleets.panel(values, fleets.racks(64, 16)))
    assert blamed(judged) == set()


def test_a_whole_fleet_that_lost_is_not_explained_away_as_that_run(fleets: SimpleNamespace) -> None:
    judged = judge_fleet(fleets.panel(lost(fleets.performance(6), slice(None), 0.12), fleets.racks(32, 8)))
    assert blamed(judged) == {"fleet"}
    fleet = fleets.of("fleet", judged)
    assert fleet.layer is Layer.HISTORY
    assert fleet.loss_low < 0.12 < fleet.loss_high
    assert fleet.loss_high - fleet.loss_low > 0.02  # runs differ by 1 %: no number of launches makes that smaller


def test_a_unit_without_a_past_is_held_against_its_peers(fleets: SimpleNamespace) -> None:
    values = lost(fleets.performance(7), 9, 0.2)
    values[:-1, :, 9] = np.nan
    it = fleets.of("gpu-0009", judge_fleet(fleets.panel(values), ONE_LOOK))
    assert (it.layer, it.outcome, it.runs_before) == (Layer.PEERS, Outcome.REGRESSED, 0)
    first = judge_fleet(fleets.panel(values[-1:]), ONE_LOOK)
    assert blamed(first) == {"gpu-0009"}
    assert fleets.of("fleet", first).outcome is Outcome.INCONCLUSIVE


def test_few_units_are_held_against_their_own_past(fleets: SimpleNamespace) -> None:
    values = lost(fleets.performance(8, units=4, launch=0.005), 1, 0.3)
    judged = judge_fleet(fleets.panel(values))
    assert {j.layer for j in judged} == {Layer.HISTORY}
    assert blamed(judged) == {"gpu-0001"}
    assert suspects(fleets.panel(values)) == {}


def test_what_is_not_measured_is_never_a_pass(fleets: SimpleNamespace) -> None:
    values = fleets.performance(9)
    values[-1, :, 0] = np.nan
    values[-1, 1:, 1] = np.nan
    judged = judge_fleet(fleets.panel(values))
    for name in ("gpu-0000", "gpu-0001"):
        it = fleets.of(name, judged)
        assert it.outcome is Outcome.INCONCLUSIVE
        assert it.loss is None
        assert it.settle
    values[-1] = np.nan
    assert {j.outcome for j in judge_fleet(fleets.panel(values))} == {Outcome.INCONCLUSIVE}
    assert {j.outcome for j in judge_fleet(fleets.panel(values[:, :1]))} == {Outcome.INCONCLUSIVE}


def test_a_unit_that_is_measured_every_third_week_has_its_own_past(fleets: SimpleNamespace) -> None:
    values = lost(fleets.performance(10, runs=25, launch=0.01), 3, 0.1)
    values[1:-1:3, :, 3] = np.nan
    values[2:-1:3, :, 3] = np.nan
    it = fleets.of("gpu-0003", judge_fleet(fleets.panel(values)))
    assert (it.runs_before, it.outcome) == (8, Outcome.REGRESSED)


def test_screening_asks_round_by_round_and_ends(fleets: SimpleNamespace) -> None:
    values = lost(fleets.performance(11), 5, 0.04)
    asked_of, rounds = [], 0
    while asked := suspects(fleets.panel(values)):
        asked_of.append(asked.get("gpu-0005", 0))
        for name, launches in asked.items():
            unit = int(name[-4:])
            again = sound(values, unit, launches, seed=100 * rounds + unit)
            values = fleets.more(values, unit, again + np.log1p(-0.04) * (unit == 5))
        rounds += 1
        assert rounds <= len(DEFAULTS.rounds)
    assert asked_of == [r.launches for r in DEFAULTS.rounds]
    judged = judge_fleet(fleets.panel(values))
    assert blamed(judged) == {"gpu-0005"}
    assert fleets.of("gpu-0005", judged).launches_after == 3 + DEFAULTS.extra


def test_a_unit_that_is_slow_beyond_doubt_is_not_launched_again_and_again(fleets: SimpleNamespace) -> None:
    values = lost(fleets.performance(11), 5, 0.2)
    taken = 0
    while launches := suspects(fleets.panel(values)).get("gpu-0005", 0):
        taken += launches
        values = fleets.more(values, 5, sound(values, 5, launches, seed=taken) + np.log1p(-0.2))
    assert taken == sum(r.launches for r in DEFAULTS.rounds[:2])
    assert blamed(judge_fleet(fleets.panel(values))) == {"gpu-0005"}


def test_failed_launches_do_not_keep_a_round_open(fleets: SimpleNamespace) -> None:
    values = lost(fleets.performance(12), 5, 0.04)
    ends = np.cumsum([r.launches for r in DEFAULTS.rounds])
    taken = int(ends[3]) - 2  # two of the ten launches of the fourth round gave nothing
    values = fleets.more(values, 5, np.full(taken, values[-1, 0, 5]))
    assert suspects(fleets.panel(values))["gpu-0005"] == ends[4] - taken


def test_extra_launches_are_bounded_and_the_slowest_come_first(fleets: SimpleNamespace) -> None:
    values = fleets.performance(13)
    values[-1, :, :15] -= np.linspace(1.5, 0.1, 15)
    few = Settings(rounds=(Round(1.0, 10),), most_extra=0.0)
    assert list(suspects(fleets.panel(values), few)) == ["gpu-0000", "gpu-0001", "gpu-0002", "gpu-0003"]


@pytest.mark.parametrize(
    "wrong",
    [{"alpha": 0.6}, {"panels": 0}, {"history": 1}, {"unit_share": 0.95}, {"min_units": 2}, {"most_extra": -1.0}],
)
def test_settings_that_mean_nothing_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="expected"):
        Settings(**wrong)  # type: ignore[arg-type]


def test_more_panels_and_more_units_make_it_stricter(fleets: SimpleNamespace) -> None:
    panel = fleets.panel(lost(fleets.performance(14, launch=0.01), 5, 0.1))
    one = fleets.of("gpu-0005", judge_fleet(panel))
    ten = fleets.of("gpu-0005", judge_fleet(panel, replace(DEFAULTS, panels=10)))
    assert ten.p_adjusted == pytest.approx(10 * one.p_adjusted)
    assert ten.detectable_loss > one.detectable_loss


def numbers(judgements: tuple[Judgement, ...]) -> list[float]:
    return [x for j in judgements for x in (j.loss, j.loss_low, j.p_value) if x is not None]


def test_it_does_not_know_the_unit_of_measure(fleets: SimpleNamespace) -> None:
    values = lost(fleets.performance(15), 5, 0.1)
    one = judge_fleet(fleets.panel(values, fleets.racks(32, 8)))
    other = judge_fleet(fleets.panel(values + math.log(1e3 / 8), fleets.racks(32, 8)))
    assert [j.outcome for j in one] == [j.outcome for j in other]
    assert numbers(one) == pytest.approx(numbers(other), abs=1e-5)


def test_the_order_of_units_and_launches_does_not_matter(fleets: SimpleNamespace) -> None:
    values, rng = lost(fleets.performance(16), 5, 0.1), np.random.default_rng(1)
    order, launches = rng.permutation(32), rng.permutation(3)
    one = judge_fleet(fleets.panel(values))
    other = judge_fleet(fleets.panel(values[:, launches][:, :, order]))
    by_unit = [other[0], *(other[1 + int(np.flatnonzero(order == u)[0])] for u in range(32))]
    assert [j.outcome for j in one] == [j.outcome for j in by_unit]
    assert numbers(one) == pytest.approx(numbers(tuple(by_unit)), abs=1e-5)


def test_a_larger_loss_is_never_less_certain(fleets: SimpleNamespace) -> None:
    values = fleets.performance(17)
    told = [
        fleets.of("gpu-0005", judge_fleet(fleets.panel(lost(values, 5, x)), ONE_LOOK)) for x in np.linspace(0, 0.3, 13)
    ]
    assert all(a.loss < b.loss and a.p_value >= b.p_value for a, b in pairwise(told))
    bad = [j.outcome is Outcome.REGRESSED for j in told]
    assert bad == sorted(bad)
    assert bad[-1]
    assert not bad[0]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.integers(0, 4), st.integers(1, 3), st.integers(1, 10), st.integers(0, 2**32),
    st.sampled_from([0.0, 1e-9, 1.0, 30.0]), st.sampled_from([0.0, 0.3, 0.9, 1.0]),
)  # fmt: skip
def test_no_panel_crashes_it_or_passes_without_two_launches(
    fleets: SimpleNamespace, past: int, launches: int, units: int, seed: int, scale: float, missing: float
) -> None:
    rng = np.random.default_rng(seed)
    values = rng.normal(0, 1, (past + 1, launches, units)) * scale
    values[rng.random(values.shape) < missing] = rng.choice([np.nan, np.inf, -np.inf])
    panel = fleets.panel(values, fleets.racks(units, 4))
    taken = np.isfinite(values[-1]).sum(axis=0)
    suspects(panel)
    for j in judge_fleet(panel):
        if j.outcome is Outcome.PASS and j.subject.startswith("gpu"):
            assert taken[int(j.subject[-4:])] >= 2
        assert j.outcome is not Outcome.INCONCLUSIVE or j.settle
