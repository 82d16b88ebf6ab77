"""The question that operators ask (NVIDIA/nccl-tests#297), answered without an expert.

"362 GB/s became 328 GB/s after a driver update on two nodes: is it real, and is it the driver?"
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from fabric_health.verdict.outcome import Metric, Outcome
from fabric_health.verdict.paired import Comparison, assess, assess_panels
from fabric_health.verdict.panel import Value, panel_of

BUSBW = Metric("busbw_gbps", higher_is_better=True, margin=0.03)
BEFORE, AFTER = 362.0, 328.0
LOSS = 1 - AFTER / BEFORE
TWO = ("gpu-001", "gpu-002")
REST = tuple(f"gpu-{i:03}" for i in range(3, 17))
NOISE = 0.02
Launches = dict[str, list[float]]


def measure(units: tuple[str, ...], level: float, launches: int, seed: int) -> Launches:
    random = np.random.default_rng(seed)
    return {u: list(level * np.exp(random.normal(0, NOISE, launches))) for u in units}


def ask(launches: int, controls: tuple[str, ...] = (), *, controls_after: float = BEFORE, seed: int = 1) -> Comparison:
    beside = (measure(controls, BEFORE, launches, seed + 2), measure(controls, controls_after, launches, seed + 3))
    before, after = measure(TWO, BEFORE, launches, seed), measure(TWO, AFTER, launches, seed + 1)
    return assess(before, after, metric=BUSBW, controls=beside if controls else None)


def test_one_number_each_says_nothing_yet_and_what_would_settle_it_is_said() -> None:
    found = assess({"gpu-[001-002]": [BEFORE]}, {"gpu-[001-002]": [AFTER]}, metric=BUSBW).judgement
    assert found.outcome is Outcome.INCONCLUSIVE
    assert found.loss == pytest.approx(0.0939, abs=1e-4)
    assert found.loss_low is None
    assert "one launch each says nothing of the noise" in found.reason
    assert found.settle is not None
    assert "10 launches" in found.settle
    assert "3 others that the change does not touch" in found.settle


@pytest.mark.parametrize("controls", [(), REST[:2]])
def test_one_launch_on_each_of_the_two_nodes_is_no_better(controls: tuple[str, ...]) -> None:
    found = ask(1, controls).judgement
    assert found.outcome is Outcome.INCONCLUSIVE
    assert found.settle is not None
    assert "launches" in found.settle


def test_ten_launches_alone_show_that_it_is_real_between_these_runs_but_not_why() -> None:
    found = ask(10).judgement
    assert found.outcome is Outcome.INCONCLUSIVE
    assert found.loss_low is not None
    assert found.loss_low > 0.07
    assert "a change of the whole fabric would look the same" in found.reason
    assert "that the change does not touch" in str(found.settle)


@pytest.mark.parametrize("controls", [REST[:2], REST[:4], REST])
@pytest.mark.parametrize("seed", range(1, 41, 10))
def test_ten_launches_beside_quiet_controls_settle_it(controls: tuple[str, ...], seed: int) -> None:
    answer = ask(10, controls, seed=seed)
    found = answer.judgement
    assert found.outcome is Outcome.REGRESSED
    assert answer.blames_change
    assert found.loss == pytest.approx(LOSS, abs=0.025)
    assert found.loss_low is not None
    assert found.loss_high is not None
    assert 0.03 < found.loss_low < LOSS < found.loss_high < 0.15
    assert {j.subject: j.outcome for j in answer.units} == dict.fromkeys(TWO, Outcome.REGRESSED)


def test_it_is_not_the_driver_when_nodes_without_it_lost_as_much() -> None:
    answer = ask(10, REST, controls_after=AFTER)
    assert answer.judgement.outcome is Outcome.REGRESSED
    assert not answer.blames_change
    assert "It is real, and the change is not the reason" in answer.judgement.reason
    assert answer.judgement.loss == pytest.approx(LOSS, abs=0.01)


def test_it_is_neither_when_nccl_chose_another_algorithm() -> None:
    panels = []
    for run, (level, algorithm) in enumerate([(BEFORE, "NVLS"), (AFTER, "RING")]):
        key = f"engine=nccl-tests;collective=all_reduce;size_bytes=8589934592;algorithm={algorithm}"
        at = datetime(2026, 11, 2, tzinfo=UTC) + timedelta(weeks=run)
        launches = measure(TWO + REST, level, 10, run)
        values = [Value(f"run-{run}", at, i, u, x) for u, held in launches.items() for i, x in enumerate(held)]
        panels.append(panel_of(BUSBW, key, "node", values))
    found = assess_panels(panels[0], panels[1], changed=TWO, controls=REST).judgement
    assert found.outcome is Outcome.NOT_COMPARABLE
    assert "algorithm was NVLS, is RING" in found.reason
    assert found.loss is None


def test_how_often_the_answer_is_wrong_on_two_nodes() -> None:
    assert all(ask(10, REST, seed=10 * i).judgement.outcome is Outcome.REGRESSED for i in range(60))
    false = 0
    for i in range(5000, 6000, 10):
        nothing = measure(TWO, BEFORE, 10, i), measure(TWO, BEFORE, 10, i + 1)
        beside = measure(REST, BEFORE, 10, i + 2), measure(REST, BEFORE, 10, i + 3)
        false += assess(*nothing, metric=BUSBW, controls=beside).judgement.outcome is Outcome.REGRESSED
    # At most 2.5 % for the set and 2.5 % for its units together.
    assert false <= 5
