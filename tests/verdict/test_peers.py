from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric_health.verdict.outcome import Layer, Outcome
from fabric_health.verdict.peers import CUT, judge_peers, modified_z

# Two wild values of ten. Plain z-scores cannot exceed (n - 1) / sqrt(n) = 2.85 here (Shiffler, Am. Stat. 1988;42:79);
# modified ones, 0.6745 (x - median) / MAD, with median 2.45 and MAD 0.15, find both.
MASKED = [2.1, 2.6, 2.4, 2.5, 2.3, 2.1, 2.3, 2.6, 8.2, 8.3]


def test_modified_z_finds_outliers_that_hide_each_other() -> None:
    scores = modified_z(np.array(MASKED))
    assert scores[8] == pytest.approx(0.6745 * 5.75 / 0.15)
    assert scores[9] == pytest.approx(26.3055, abs=1e-4)
    assert np.abs(scores[:8]).max() < 1.6
    plain = (np.array(MASKED) - np.mean(MASKED)) / np.std(MASKED, ddof=1)
    assert plain.max() < 3


def test_a_deviation_of_zero_is_floored() -> None:
    same = np.array([1.0] * 9 + [1.001])
    assert modified_z(same)[-1] == math.inf
    assert modified_z(same, 0.01)[-1] == pytest.approx(0.06745)


def run(fleets: SimpleNamespace, loss: float, units: int = 16, launches: int = 3, sd: float = 0.005) -> list:
    values = np.random.default_rng(4).normal(6, sd, (1, launches, units))
    values[0, :, 3] += np.log1p(-loss)
    return list(judge_peers(fleets.panel(values)))


def test_a_slow_unit_is_named_and_a_fast_one_is_not(fleets: SimpleNamespace) -> None:
    slow = run(fleets, 0.1)
    assert slow[3].outcome is Outcome.REGRESSED
    assert slow[3].layer is Layer.PEERS
    assert slow[3].loss == pytest.approx(0.1, abs=0.01)
    assert [j.outcome for j in slow].count(Outcome.REGRESSED) == 1
    assert run(fleets, -0.1)[3].outcome is Outcome.PASS


def test_a_gap_that_does_not_matter_is_no_regression_however_clear(fleets: SimpleNamespace) -> None:
    small = run(fleets, 0.02, sd=0.0005)[3]
    assert "modified z" in small.reason
    assert float(small.reason.rpartition(" ")[2]) > CUT
    assert small.outcome is Outcome.PASS  # 2 % for certain: a loss of 3 % is ruled out


def test_seven_units_are_too_few(fleets: SimpleNamespace) -> None:
    judged = run(fleets, 0.5, units=7)
    assert {j.outcome for j in judged} == {Outcome.INCONCLUSIVE}
    assert judged[0].settle == "1 more units, or a history"


def test_one_launch_or_none_is_never_a_pass(fleets: SimpleNamespace) -> None:
    assert Outcome.PASS not in {j.outcome for j in run(fleets, 0.0, launches=1)}
    values = np.full((1, 3, 16), 6.0)
    values[0, :, 5] = np.nan
    judged = judge_peers(fleets.panel(values))
    assert judged[5].outcome is Outcome.INCONCLUSIVE
    assert judged[5].loss is None
    assert {j.outcome for j in judge_peers(fleets.panel(np.full((1, 3, 16), np.nan)))} == {Outcome.INCONCLUSIVE}


@given(st.lists(st.floats(0.5, 2), min_size=8, max_size=20, unique=True), st.floats(0.001, 1000))
def test_scores_do_not_know_the_unit_of_measure(values: list[float], unit: float) -> None:
    one, other = modified_z(np.array(values)), modified_z(np.array(values) * unit)
    assert other == pytest.approx(one, rel=1e-6, abs=1e-9)
