from __future__ import annotations

import math
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fabric_health.verdict.launches import launch_noise, location, logs_of, shifts
from fabric_health.verdict.outcome import Layer, Metric, Outcome
from fabric_health.verdict.paired import Comparison, PairedSettings, assess, assess_panels, compare
from fabric_health.verdict.panel import Panel, Value, panel_of
from fabric_health.verdict.power import Noise

BUSBW = Metric("busbw_gbps", higher_is_better=True, margin=0.03)
LATENCY = Metric("latency_p99_ms", higher_is_better=False, margin=0.03)
START = datetime(2026, 1, 5, tzinfo=UTC)
NODES = tuple(f"gpu-{i:03}" for i in range(1, 17))
RANK = [Outcome.REGRESSED, Outcome.INCONCLUSIVE, Outcome.PASS, Outcome.IMPROVED]

Launches = dict[str, list[float]]


def launches(
    units: tuple[str, ...], count: int, seed: int, loss: float = 0.0, noise: float = 0.02, only: tuple[str, ...] = ()
) -> Launches:
    """Return ``count`` launches of units that each have a level of their own; ``only`` some of them lose."""
    random = np.random.default_rng(seed)
    lost = {u: 1 - loss if not only or u in only else 1.0 for u in units}
    return {
        u: list(360 * (1 + 0.001 * i) * lost[u] * np.exp(random.normal(0, noise, count))) for i, u in enumerate(units)
    }


def change(
    units: int, controls: int, count: int, loss: float, *, everywhere: float = 0.0, **more: object
) -> Comparison:
    touched, calm = NODES[:units], NODES[units : units + controls]
    both = 1 - (1 - loss) * (1 - everywhere)
    beside = (launches(calm, count, 3), launches(calm, count, 4, everywhere)) if controls else None
    return assess(launches(touched, count, 1), launches(touched, count, 2, both), metric=BUSBW, controls=beside, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(("units", "controls"), [(1, 4), (2, 2), (2, 14), (4, 12), (6, 0), (16, 0), (8, 8), (1, 15)])
def test_a_loss_of_ten_percent_is_found_and_none_is_passed(units: int, controls: int) -> None:
    bad = change(units, controls, 10, 0.10).judgement
    assert bad.outcome is Outcome.REGRESSED
    assert bad.loss == pytest.approx(0.10, abs=0.02)
    assert bad.loss_low is not None
    assert bad.loss_low > 0.05
    assert bad.p_value is not None
    assert bad.p_value <= 0.025
    assert (bad.layer, bad.units, bad.launches_before, bad.launches_after) == (Layer.PAIRED, units, 10, 10)
    good = change(units, controls, 30, 0.0).judgement
    assert good.outcome is Outcome.PASS
    assert good.loss_high is not None
    assert good.loss_high < BUSBW.margin
    assert good.settle is None


@pytest.mark.parametrize(("units", "controls"), [(2, 14), (8, 0)])
def test_a_gain_is_improved(units: int, controls: int) -> None:
    found = change(units, controls, 10, -0.10).judgement
    assert found.outcome is Outcome.IMPROVED
    assert "gained 9." in found.reason or "gained 10." in found.reason


@pytest.mark.parametrize("units", [1, 2, 5])
def test_few_units_with_nothing_beside_them_are_never_decided(units: int) -> None:
    for loss in (0.0, 0.1, 0.3):
        found = change(units, 0, 10, loss).judgement
        assert found.outcome is Outcome.INCONCLUSIVE
        assert found.loss == pytest.approx(loss, abs=0.03)
        assert found.settle is not None
        assert "that the change does not touch" in found.settle


def test_history_stands_in_for_control_units() -> None:
    known = PairedSettings(noise=Noise(0.02, 0.002, run=0.003))
    assert change(2, 0, 10, 0.10, settings=known).judgement.outcome is Outcome.REGRESSED
    assert change(2, 0, 40, 0.0, settings=known).judgement.outcome is Outcome.PASS
    wild = PairedSettings(noise=Noise(0.02, 0.002, run=0.05))
    doubtful = change(2, 0, 10, 0.10, settings=wild).judgement
    assert doubtful.outcome is Outcome.INCONCLUSIVE
    assert doubtful.settle is not None
    assert "control units" in doubtful.settle
    assert change(8, 0, 10, 0.05, settings=wild).judgement.outcome is Outcome.INCONCLUSIVE
    assert change(8, 0, 10, 0.05).judgement.outcome is Outcome.REGRESSED


def test_without_control_units_the_reason_says_so() -> None:
    assert "Nothing was measured beside it" in change(8, 0, 10, 0.10).judgement.reason
    assert not change(8, 0, 10, 0.10).blames_change
    assert change(8, 8, 10, 0.10).blames_change


def test_too_noisy_is_inconclusive_and_says_how_many_launches_would_do() -> None:
    found = change(2, 3, 3, 0.02).judgement
    assert found.outcome is Outcome.INCONCLUSIVE
    assert found.detectable_loss is not None
    assert found.detectable_loss > BUSBW.margin
    assert found.settle is not None
    assert found.settle.startswith("Measure")
    assert "3.0 %" in found.settle


def test_control_units_that_fell_too_take_the_blame_from_the_change() -> None:
    found = change(2, 14, 10, 0.0, everywhere=0.10)
    assert found.judgement.outcome is Outcome.REGRESSED
    assert not found.blames_change
    assert "the change is not the reason" in found.judgement.reason
    assert found.controls is not None
    assert found.controls.outcome is Outcome.REGRESSED
    assert found.judgement.loss == found.controls.loss


def test_a_loss_beyond_that_of_the_control_units_is_still_the_change() -> None:
    found = change(4, 12, 10, 0.10, everywhere=0.10)
    assert found.judgement.outcome is Outcome.REGRESSED
    assert found.blames_change
    assert found.judgement.loss == pytest.approx(0.10, abs=0.02)
    assert "The control units lost" in found.judgement.reason


def test_nothing_passes_while_control_units_fall_unexplained() -> None:
    # One launch each on four and four: ranks can compare the two sets, nothing can say whether both moved.
    for seed in range(20):
        units, calm = NODES[:4], NODES[4:8]
        found = compare(
            launches(units, 1, seed, noise=0.002),
            launches(units, 1, seed + 100, 0.10, noise=0.002),
            metric=BUSBW,
            controls=(launches(calm, 1, seed + 200, noise=0.002), launches(calm, 1, seed + 300, 0.10, noise=0.002)),
        )
        assert found.outcome is Outcome.INCONCLUSIVE
        assert "The control units, which the change did not touch, lost" in found.reason


def test_control_units_that_moved_make_no_improvement() -> None:
    found = change(4, 12, 10, -0.111, everywhere=0.10).judgement
    assert found.outcome is Outcome.INCONCLUSIVE
    assert "Find out what happened to the control units" in str(found.settle)


@pytest.mark.parametrize("controls", [0, 12])
def test_one_slow_unit_of_a_set_is_named(controls: int) -> None:
    units, calm = NODES[:4], NODES[4 : 4 + controls]
    beside = (launches(calm, 10, 3), launches(calm, 10, 4)) if controls else None
    after = launches(units, 10, 2, 0.10, only=("gpu-003",))
    found = assess(launches(units, 10, 1), after, metric=BUSBW, controls=beside)
    slow = [j.subject for j in found.units if j.outcome is Outcome.REGRESSED]
    assert slow == ["gpu-003"]
    assert found.judgement.outcome is Outcome.REGRESSED
    assert "1 of 4 changed units lost: gpu-003" in found.judgement.reason
    assert found.judgement.loss == pytest.approx(0.10, abs=0.03)
    assert found.blames_change is bool(controls)


def test_units_as_good_as_others_that_are_slow_too_do_not_pass() -> None:
    found = change(5, 0, 30, 0.10)
    assert found.judgement.outcome is Outcome.INCONCLUSIVE
    assert all(j.outcome is Outcome.INCONCLUSIVE for j in found.units)


def test_each_unit_is_judged_at_a_level_that_all_share() -> None:
    found = change(4, 12, 30, 0.0)
    assert [j.subject for j in found.units] == list(NODES[:4])
    assert all(j.confidence == pytest.approx(1 - 0.05 / 4) for j in found.units)
    assert all(j.p_adjusted is not None and j.p_value is not None and j.p_adjusted >= j.p_value for j in found.units)


def test_a_unit_that_was_not_measured_again_makes_a_pass_impossible() -> None:
    before, after = launches(NODES, 10, 1), launches(NODES, 10, 2)
    assert compare(before, after, metric=BUSBW).outcome is Outcome.PASS
    del after["gpu-007"]
    found = compare(before, after, metric=BUSBW)
    assert found.outcome is Outcome.INCONCLUSIVE
    assert "gpu-007" in found.reason
    assert "gpu-007" in str(found.settle)
    worse = compare(before, {u: [0.9 * x for x in v] for u, v in after.items()}, metric=BUSBW)
    assert worse.outcome is Outcome.REGRESSED


def test_a_slow_launch_now_and_then_moves_nothing() -> None:
    before, after = launches(NODES[:2], 10, 1), launches(NODES[:2], 10, 2)
    calm = (launches(NODES[2:8], 10, 3), launches(NODES[2:8], 10, 4))
    after["gpu-001"][3] *= 0.5
    found = compare(before, after, metric=BUSBW, controls=calm)
    assert found.outcome is not Outcome.REGRESSED
    assert found.loss == pytest.approx(0.0, abs=0.012)


def test_a_unit_whose_launches_scatter_by_far_more_gets_its_own_noise() -> None:
    before, after = launches(NODES, 10, 1), launches(NODES, 10, 2)
    after["gpu-001"] = [360 * math.exp(x) for x in np.random.default_rng(9).normal(0, 0.2, 10)]
    logs = [logs_of(x, higher_is_better=True) for x in (before, after)]
    found = shifts(*logs)
    assert found.sigma == pytest.approx(0.02, rel=0.1)
    assert found.variances[0] > 20 * found.variances[1]


def test_the_noise_of_launches_is_estimated_without_bias() -> None:
    random = np.random.default_rng(1)
    cells = [random.normal(5, 0.02, 3) for _ in range(400)]
    cells[7] = cells[7] - [0, 0, 3.0]
    sigma, df = launch_noise(cells)
    assert sigma == pytest.approx(0.02, rel=0.05)
    assert df == pytest.approx(0.6 * 800)
    assert launch_noise([np.array([1.0])]) == (pytest.approx(math.nan, nan_ok=True), 0.0)
    assert location(np.array([1.0, 1.1, 0.9, 50.0]), 0.1) == pytest.approx(1.066667, abs=1e-5)


def panel(
    units: tuple[str, ...], seed: int, loss: float, key: str = "algorithm=RING;size_bytes=8", metric: Metric = BUSBW
) -> Panel:
    found = launches(units, 10, seed, loss)
    return panel_of(
        metric, key, "node", [Value(f"run-{seed}", START, i, u, x) for u, v in found.items() for i, x in enumerate(v)]
    )


def test_panels_give_what_values_give() -> None:
    units, calm = NODES[:4], NODES[4:]
    found = assess_panels(panel(NODES, 1, 0.0), panel(NODES, 2, 0.1), changed=units, controls=calm)
    before, after = launches(NODES, 10, 1), launches(NODES, 10, 2, 0.1)
    one, two = ({u: x[u] for u in units} for x in (before, after))
    beside = ({u: before[u] for u in calm}, {u: after[u] for u in calm})
    key = "algorithm=RING;size_bytes=8"
    same = assess(one, two, metric=BUSBW, controls=beside, comparability=key)
    assert found.judgement.loss == pytest.approx(same.judgement.loss)
    assert replace(found.judgement, loss=0, loss_low=0, loss_high=0, p_value=0, detectable_loss=0) == replace(
        same.judgement, loss=0, loss_low=0, loss_high=0, p_value=0, detectable_loss=0
    )


def test_another_algorithm_is_not_comparable() -> None:
    after = panel(NODES, 2, 0.1, "algorithm=NVLS;size_bytes=8")
    found = assess_panels(panel(NODES, 1, 0.0), after, changed=NODES[:2], controls=NODES[2:]).judgement
    assert found.outcome is Outcome.NOT_COMPARABLE
    assert "algorithm was RING, is NVLS" in found.reason
    assert "size_bytes" not in found.reason
    other = assess_panels(panel(NODES, 1, 0.0), panel(NODES, 2, 0.0, metric=LATENCY), changed=NODES).judgement
    assert other.outcome is Outcome.NOT_COMPARABLE
    assert "metric was busbw_gbps, is latency_p99_ms" in other.reason


def test_a_changed_unit_that_no_panel_has_is_missing() -> None:
    found = assess_panels(panel(NODES, 1, 0.0), panel(NODES, 2, 0.0), changed=[*NODES, "gpu-099"]).judgement
    assert found.outcome is Outcome.INCONCLUSIVE
    assert "gpu-099" in found.reason


def test_where_less_is_better_more_is_a_loss() -> None:
    before, after = launches(NODES, 5, 1), launches(NODES, 5, 2, -0.10)
    assert compare(before, after, metric=LATENCY).outcome is Outcome.REGRESSED
    assert compare(after, before, metric=LATENCY).outcome is Outcome.IMPROVED


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, {}),
        ({"a": []}, {"a": [1.0]}),
        ({"a": [1.0]}, {"b": [1.0]}),
        ({"a": [math.nan, -1.0, 0.0]}, {"a": [math.inf]}),
        ({u: [0.0] for u in NODES}, {u: [360.0] for u in NODES}),
    ],
)
def test_nothing_is_never_a_pass(before: Launches, after: Launches) -> None:
    for controls in (None, ({}, {}), (launches(NODES, 3, 1), launches(NODES, 3, 2)), (before, after)):
        found = compare(before, after, metric=BUSBW, controls=controls)
        assert found.outcome is Outcome.INCONCLUSIVE
        assert found.loss is None
        assert found.settle


values = st.lists(st.one_of(st.floats(), st.floats(1, 1000)), max_size=4)
measured = st.dictionaries(st.sampled_from("abcdefgh"), values, max_size=8)


@settings(max_examples=60, deadline=None)
@given(measured, measured, measured, measured)
def test_no_values_crash_it_and_what_is_said_is_in_order(b: Launches, a: Launches, cb: Launches, ca: Launches) -> None:
    found = assess(b, a, metric=BUSBW, controls=(cb, ca))
    for j in (found.judgement, *found.units, *([found.controls] if found.controls else [])):
        assert j.reason
        assert (j.settle is not None) == (j.outcome in (Outcome.INCONCLUSIVE, Outcome.NOT_COMPARABLE))
        if j.loss is not None and j.loss_low is not None and j.loss_high is not None:
            assert j.loss_low <= j.loss + 1e-9
            assert j.loss <= j.loss_high + 1e-9
        if j.outcome in (Outcome.PASS, Outcome.REGRESSED, Outcome.IMPROVED):
            assert j.loss_low is not None
            assert j.units > 0


sets = st.tuples(st.integers(1, 9), st.integers(0, 7), st.integers(1, 6), st.floats(-0.2, 0.2))


@settings(max_examples=20, deadline=None)
@given(sets, st.floats(1e-3, 1e3), st.permutations(NODES))
def test_neither_unit_of_measure_nor_names_nor_order_matter(
    case: tuple[int, int, int, float], scale: float, names: list[str]
) -> None:
    units, controls, count, loss = case
    new = dict(zip(NODES, names, strict=True))
    touched, calm = NODES[:units], NODES[units : units + controls]
    before, after = launches(touched, count, 1), launches(touched, count, 2, loss)
    beside = launches(calm, count, 3), launches(calm, count, 4)
    one = compare(before, after, metric=BUSBW, controls=beside)

    def other(of: Launches) -> Launches:
        return {new[u]: [x * scale for x in reversed(v)] for u, v in reversed(of.items())}

    two = compare(other(before), other(after), metric=BUSBW, controls=(other(beside[0]), other(beside[1])))
    assert two.outcome is one.outcome
    for name in ("loss", "loss_low", "loss_high", "p_value", "detectable_loss"):
        assert getattr(two, name) == pytest.approx(getattr(one, name), abs=1e-6)


@settings(max_examples=20, deadline=None)
@given(sets, st.floats(0, 0.3))
def test_a_greater_loss_never_looks_better(case: tuple[int, int, int, float], more: float) -> None:
    units, controls, count, loss = case
    less = change(units, controls, count, loss).judgement
    worse = change(units, controls, count, 1 - (1 - loss) * (1 - more)).judgement
    assert RANK.index(worse.outcome) <= RANK.index(less.outcome)
    if (
        less.p_value is not None
        and worse.p_value is not None
        and "changed units lost" not in less.reason + worse.reason
    ):
        assert worse.p_value <= less.p_value + 1e-9
