"""Values before and after in verdicts: of a unit, of a set, of all; whoever was launched more often counts no more."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from fabric_health.compared import Judged, row, run_row, whole
from fabric_health.measured import Measured
from fabric_health.verdict.metrics import JUDGED
from fabric_health.verdict.outcome import Judgement, Layer, Outcome
from fabric_health.verdict.panel import Panel

KEY = "engine=nccl-tests;collective=all_reduce"


def judged(subject: str, metric: str = "busbw_gbps", members: tuple[str, ...] = ()) -> Judged:
    """Return a judgement on three nodes at 400, the first at 200 in the last run, where it was launched most often."""
    values = np.full((2, 9, 3), np.nan)
    values[:, :2, :] = 400.0
    values[1, :, 0] = 200.0
    of = JUDGED[metric]
    performance = np.log(values) if of.higher_is_better else -np.log(values)
    at = datetime(2026, 11, 30, tzinfo=UTC)
    panel = Panel(of, KEY, "node", ("a", "b"), (at - timedelta(7), at), ("n1", "n2", "n3"), performance)
    judgement = Judgement(subject, "node", metric, KEY, Layer.PAIRED, Outcome.PASS, "reason", of.margin)
    return Judged(judgement, Measured(panel, "collectives", "GB/s", "lab"), None, members)


@pytest.mark.parametrize(
    ("subject", "members", "after"),
    [("n1", (), 200.0), ("n2", (), 400.0), ("touched", ("n1",), 200.0), ("controls", ("n2", "n3"), 400.0)],
)
@pytest.mark.parametrize("metric", ["busbw_gbps", "ttfb_p50_ms"])
def test_values_are_those_of_the_units_that_are_judged(
    subject: str, members: tuple[str, ...], after: float, metric: str
) -> None:
    found = row(judged(subject, metric, members), "history")
    assert found.value_before == pytest.approx(400.0)
    assert found.value_after == pytest.approx(after)


def test_a_unit_that_was_launched_more_often_counts_no_more_than_the_others() -> None:
    assert row(judged("fleet"), "history").value_after == pytest.approx(400.0)


def test_the_row_of_the_whole_says_what_it_was_compared_with_and_which_change_fits() -> None:
    found = run_row(
        whole([judged("n1")], [], change=False, why="the run before"), "history", "the run before: r1", "no"
    )
    assert (found.outcome, found.compared_with, found.explanation) == ("PASS", "the run before: r1", "no")
