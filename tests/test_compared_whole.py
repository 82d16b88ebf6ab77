"""The verdict on a run, where what was measured is not all comparable."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from fabric_health.compared import ASKED_FOR, Judged, findings, observed_otherwise, whole
from fabric_health.datasets.tables import Severity
from fabric_health.measured import Incomparable, Measured
from fabric_health.verdict.metrics import JUDGED
from fabric_health.verdict.outcome import Judgement, Layer, Outcome
from fabric_health.verdict.panel import Panel

START = datetime(2026, 11, 2, tzinfo=UTC)
BUSBW = JUDGED["busbw_gbps"]
KEY = "engine=nccl-tests;collective=all_reduce;nodes={nodes};library_version={nccl};transport=NET/IB"
WHY = "the latest earlier run"


def judged(outcome: Outcome) -> Judged:
    at = (START, START + timedelta(weeks=1))
    panel = Panel(BUSBW, KEY, "node", ("r0", "r1"), at, ("gpu-001",), np.log(np.full((2, 1, 1), 100.0)))
    loss = 0.1 if outcome is Outcome.REGRESSED else 0.0
    told = Judgement("gpu-001", "node", BUSBW.name, KEY, Layer.POOLED, outcome, "because", BUSBW.margin, loss=loss)
    return Judged(told, Measured(panel, "collectives", "GB/s", "lab"))


def odd(nodes: int = 16, nccl: str = "2.27", closest: str | None = KEY.format(nodes=16, nccl="2.26")) -> Incomparable:
    return Incomparable("collectives", BUSBW.name, "node", KEY.format(nodes=nodes, nccl=nccl), closest, ("a", "b"))


def test_what_ran_in_another_way_is_no_pass_however_well_the_rest_does() -> None:
    got = whole([judged(Outcome.PASS)], [odd()], change=False, why=WHY)
    assert got.outcome is Outcome.NOT_COMPARABLE
    assert "library_version 2.26 -> 2.27" in got.reason
    assert got.settle is not None
    (told,) = findings([], [odd()], WHY)
    assert told.severity == Severity.WARNING


def test_a_regression_is_told_before_what_cannot_be_compared() -> None:
    assert whole([judged(Outcome.REGRESSED)], [odd()], change=False, why=WHY).outcome is Outcome.REGRESSED


def test_other_nodes_or_a_new_benchmark_were_asked_for_and_hold_nothing_up() -> None:
    fewer = odd(nodes=4, nccl="2.26")
    assert not observed_otherwise(fewer)
    assert whole([judged(Outcome.PASS)], [fewer], change=False, why=WHY).outcome is Outcome.PASS
    (told,) = findings([], [fewer], WHY)
    assert told.severity == Severity.INFO


def test_a_first_run_is_no_difference() -> None:
    first = odd(closest=None)
    assert not observed_otherwise(first)
    assert whole([], [first], change=False, why=WHY).outcome is Outcome.INCONCLUSIVE


@pytest.mark.parametrize("field", ["tool_version", "library_version", "transport", "algorithm", "protocol", "nvls"])
def test_what_a_tool_was_seen_to_do_is_never_taken_for_what_was_asked(field: str) -> None:
    assert field not in ASKED_FOR


def test_a_comparison_of_different_things_is_no_pass() -> None:
    got = whole([judged(Outcome.NOT_COMPARABLE)], [], change=False, why=WHY)
    assert (got.outcome, got.reason.startswith("1 of 1 comparisons settle nothing")) == (Outcome.INCONCLUSIVE, True)


MODEL = "model={model};revision={revision};scheme=base;version=1"


@pytest.mark.parametrize(("model", "news"), [("m", True), ("n", False)])
def test_the_same_model_of_other_weights_is_news_and_another_model_is_not(model: str, news: bool) -> None:
    before, now = MODEL.format(model="m", revision="abc"), MODEL.format(model=model, revision="def")
    assert observed_otherwise(Incomparable("model_eval", "accuracy", "model", now, before, (model,))) is news
