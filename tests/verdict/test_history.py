from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import numpy as np
import pytest

from fabric_health.verdict.history import judge_changes, judge_history, levels
from fabric_health.verdict.outcome import Layer, Outcome

START = datetime(2026, 1, 5, tzinfo=UTC)


def store(runs: int = 9, loss: float = 0.0, seed: int = 1, from_run: int | None = None) -> np.ndarray:
    """One unit without peers: runs differ by 1 %."""
    rng = np.random.default_rng(seed)
    values = 6 + rng.normal(0, 0.01, (runs, 1, 1)) + rng.normal(0, 0.003, (runs, 3, 1))
    values[-1 if from_run is None else from_run :] += np.log1p(-loss)
    return values


def test_a_loss_outside_the_band_is_blamed_and_a_usual_run_is_not(fleets: SimpleNamespace) -> None:
    (bad,) = judge_history(fleets.panel(store(loss=0.15)))
    assert (bad.layer, bad.outcome, bad.runs_before) == (Layer.HISTORY, Outcome.REGRESSED, 8)
    assert bad.loss_low < 0.15 < bad.loss_high
    assert sum(judge_history(fleets.panel(store(seed=s)))[0].outcome is Outcome.REGRESSED for s in range(60)) <= 6


def test_it_begins_with_the_fourth_run(fleets: SimpleNamespace) -> None:
    (third,) = judge_history(fleets.panel(store(runs=3, loss=0.5)))
    assert third.outcome is Outcome.INCONCLUSIVE
    assert third.settle == "more comparable runs"
    (fourth,) = judge_history(fleets.panel(store(runs=4, loss=0.5)))
    assert fourth.outcome is Outcome.REGRESSED


def test_runs_that_happen_to_agree_do_not_make_a_narrow_band(fleets: SimpleNamespace) -> None:
    values = np.full((5, 3, 1), 6.0) + np.array([-0.03, 0.0, 0.03])[None, :, None]
    (it,) = judge_history(fleets.panel(values))
    assert it.loss_high - it.loss_low > 0.04


def test_an_accepted_change_begins_a_new_past(fleets: SimpleNamespace) -> None:
    values = store(runs=14, loss=0.2, from_run=6)
    assert judge_history(fleets.panel(values[:8]))[0].outcome is not Outcome.PASS
    (after,) = judge_history(fleets.panel(values), since=START + timedelta(weeks=6))
    assert after.runs_before == 7
    assert after.outcome is not Outcome.REGRESSED
    (fresh,) = judge_history(fleets.panel(values), since=START + timedelta(weeks=12))
    assert fresh.runs_before == 1
    assert fresh.outcome is Outcome.INCONCLUSIVE


def test_one_old_outlier_does_not_widen_the_band_much(fleets: SimpleNamespace) -> None:
    values = store(runs=9)
    width = [j.loss_high - j.loss_low for j in judge_history(fleets.panel(values))]
    values[2] -= 0.5
    assert [j.loss_high - j.loss_low for j in judge_history(fleets.panel(values))] < [2.5 * w for w in width]


def test_what_the_run_did_to_all_is_removed_where_peers_show_it(fleets: SimpleNamespace) -> None:
    values = fleets.performance(1, units=16, launch=0.003)
    values[-1] -= 0.1
    level, _ = levels(fleets.panel(values))
    assert np.abs(level[-1] - np.median(level[:-1], axis=0)).max() < 0.02
    alone, _ = levels(fleets.panel(values[:, :, :4]))
    assert (np.median(alone[:-1], axis=0) - alone[-1]).min() > 0.05


@pytest.mark.parametrize("values", [np.full((6, 2, 2), np.nan), np.empty((0, 1, 1)), np.full((5, 1, 3), 6.0)])
def test_nothing_crashes_it_and_one_launch_after_several_is_no_pass(
    fleets: SimpleNamespace, values: np.ndarray
) -> None:
    judged = judge_history(fleets.panel(values))
    if not np.isfinite(values).any():
        assert {j.outcome for j in judged} <= {Outcome.INCONCLUSIVE}
    three = store()
    three[-1, 1:] = np.nan
    assert judge_history(fleets.panel(three))[0].outcome is not Outcome.PASS


def test_a_change_of_level_is_dated(fleets: SimpleNamespace) -> None:
    values = fleets.performance(2, units=12, runs=20, launch=0.005)
    values[13:, :, 4] += np.log1p(-0.06)
    (it,) = judge_changes(fleets.panel(values))
    assert (it.subject, it.layer, it.outcome) == ("gpu-0004", Layer.CHANGE_POINT, Outcome.REGRESSED)
    assert "since run run-13 of 06 Apr 2026" in it.reason
    assert it.loss == pytest.approx(0.06, abs=0.01)
    assert (it.runs_before, it.launches_after) == (13, 21)
    assert judge_changes(fleets.panel(values[:9])) == ()
    assert judge_changes(fleets.panel(values), since=START + timedelta(weeks=13)) == ()
