"""Rails of the nodes that a change left alone, as controls of rails that all run through a touched node."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

import fabric_health
from fabric_health import compared
from fabric_health.beside import in_the_light_of, launches, of_controls
from fabric_health.checks.collectives.asked import asked
from fabric_health.checks.collectives.launches import launches as plan_of
from fabric_health.checks.collectives.tables import CollectiveLaunch
from fabric_health.compared import Judged
from fabric_health.launching import Plan
from fabric_health.maintenance import Change, declare, resolve
from fabric_health.measured import CONTROL_RAIL, Measured
from fabric_health.site import Site, load_site
from fabric_health.verdict.outcome import Judgement, Layer, Metric, Outcome
from fabric_health.verdict.panel import Value, panel_of

BUSBW = Metric("busbw_gbps", higher_is_better=True, margin=0.03)
RAILS = tuple(f"rail-{i}" for i in range(8))
KEY = "engine=lab_fleet;group_kind={kind};nodes={nodes};ranks={nodes};collective=all_reduce;size_bytes=4294967296"
AT = datetime(2026, 11, 25, 3, tzinfo=UTC)


@pytest.fixture(scope="module")
def site() -> Site:
    return load_site(Path(fabric_health.__file__).parents[1] / "sites" / "lab.yaml")


def rails(level: float, *, nodes: int = 16, kind: str = "rail", run: str = "now", seed: int = 1) -> Measured:
    """Three launches of eight rails at ``level`` GB/s, with 1 % of noise."""
    random = np.random.default_rng(seed)
    values = [Value(run, AT, i, r, level * float(np.exp(random.normal(0, 0.01)))) for r in RAILS for i in range(3)]
    panel = panel_of(BUSBW, KEY.format(kind=kind, nodes=nodes), kind, values)
    return Measured(panel, "collectives", "GB/s", "lab")


def open_verdict(outcome: Outcome = Outcome.INCONCLUSIVE, loss: float = 0.02) -> Judgement:
    return Judgement(
        "8 rails", "rail", "busbw_gbps", "", Layer.PAIRED, outcome, "8 units lost 2.0 %.", 0.03, loss=loss,
        loss_low=-0.01, loss_high=0.05, units=8, settle="more runs",
    )  # fmt: skip


def beside(level: float, seed: int = 2) -> list[Measured]:
    return [rails(level, nodes=12, kind=CONTROL_RAIL, seed=seed)]


@pytest.mark.parametrize("seed", range(2, 12))
def test_open_becomes_pass_where_the_touched_nodes_hold_up_nothing(seed: int) -> None:
    found = in_the_light_of(open_verdict(), rails(45.0), beside(45.0, seed))
    assert (found.outcome, found.settle, found.layer) == (Outcome.PASS, None, Layer.PEERS)
    assert found.loss_high is not None
    assert found.loss_high < 0.03
    assert "rails of the 12 nodes left alone" in found.reason
    assert "8 units lost 2.0 %." in found.reason


@pytest.mark.parametrize("seed", range(2, 12))
def test_a_loss_beyond_the_margin_is_never_passed(seed: int) -> None:
    slow = rails(45.0 * 0.95)
    found = in_the_light_of(open_verdict(loss=0.04), slow, beside(45.0, seed))
    assert found.outcome is Outcome.REGRESSED
    assert found.loss == pytest.approx(0.05, abs=0.015)
    # Slow now, and not slower than before: perhaps they always were.
    always = in_the_light_of(open_verdict(loss=0.0), slow, beside(45.0, seed))
    assert (always.outcome, always.loss) == (Outcome.INCONCLUSIVE, 0.0)
    assert "rails with the touched nodes lose " in always.reason


def test_what_rails_without_the_touched_nodes_did_too_was_the_day() -> None:
    for outcome, loss, level in ((Outcome.REGRESSED, 0.02, 44.0), (Outcome.IMPROVED, -0.02, 46.0)):
        found = in_the_light_of(open_verdict(outcome, loss), rails(level), beside(level))
        assert found.outcome is Outcome.PASS
        assert "Between the two runs: 8 units lost 2.0 %." in found.reason


def test_a_loss_beyond_the_margin_that_rails_without_the_touched_nodes_have_too_is_real_and_not_theirs() -> None:
    large = replace(open_verdict(Outcome.REGRESSED, 0.06), loss_low=0.04, loss_high=0.08)
    found = in_the_light_of(large, rails(43.0), beside(43.0))
    assert (found.outcome, found.loss) == (Outcome.REGRESSED, 0.06)
    assert "So the touched nodes are not what makes them slow." in found.reason
    gain = replace(open_verdict(Outcome.IMPROVED, -0.06), loss_low=-0.08, loss_high=-0.04)
    assert in_the_light_of(gain, rails(48.0), beside(48.0)).outcome is Outcome.IMPROVED


def test_only_the_same_benchmark_of_the_same_run_stands_beside() -> None:
    verdict = open_verdict()
    last_week = [rails(45.0, nodes=12, kind=CONTROL_RAIL, run="last week")]
    assert in_the_light_of(verdict, rails(45.0), last_week) is verdict
    other = beside(45.0)[0]
    other = replace(other, panel=replace(other.panel, comparability=other.panel.comparability + ";dtype=half"))
    assert in_the_light_of(verdict, rails(45.0), [other]) is verdict
    assert in_the_light_of(verdict, rails(45.0), []) is verdict
    passed = replace(verdict, outcome=Outcome.PASS)
    assert in_the_light_of(passed, rails(45.0), beside(45.0)) is passed


def change(site: Site, touched: str) -> Change:
    return resolve(declare({"touched": touched}), site)


def test_the_rails_are_launched_again_without_the_touched_nodes(site: Site) -> None:
    plan = Plan(plan_of(site, site.nodes, "run-1"))
    made = list(launches(plan, change(site, "gpu-[001-004]"), site, "run-1", "confirm-0-"))
    assert sorted(launch.name for launch in made) == [f"confirm-0-lab-all-reduce-rail-{i}" for i in (1, 2, 3)]
    for launch in made:
        assert launch.units == asked(launch).nodes == tuple(f"gpu-{i:03}" for i in range(5, 17))
        assert asked(launch).grouping == "rail"


@pytest.mark.parametrize("touched", ["leaf-2", "gpu-[001-013]"])
def test_without_touched_nodes_or_with_too_few_left_there_is_nothing_to_launch(site: Site, touched: str) -> None:
    plan = Plan(plan_of(site, site.nodes, "run-1"))
    assert list(launches(plan, change(site, touched), site, "run-1", "confirm-0-")) == []


def test_other_rows_of_such_a_launch_stay_as_they_are() -> None:
    row = object.__new__(CollectiveLaunch)
    assert of_controls(row) is row


def judged(outcome: Outcome, loss: float, kind: str = "rail") -> Judged:
    j = replace(open_verdict(outcome, loss), subject=compared.TOUCHED, subject_kind="set")
    return Judged(j, rails(45.0, kind=kind), "touched", RAILS)


def test_an_open_benchmark_of_all_nodes_together_holds_up_a_pass_only_when_it_looks_slower() -> None:
    def word(*items: Judged) -> Outcome:
        return compared.whole(items, (), change=True, why="run 1").outcome

    nodes, whole = judged(Outcome.PASS, 0.0, "node"), judged(Outcome.INCONCLUSIVE, 0.005, "benchmark")
    assert word(nodes, whole) is Outcome.PASS
    assert word(nodes, judged(Outcome.INCONCLUSIVE, 0.02, "benchmark")) is Outcome.INCONCLUSIVE
    assert word(nodes, judged(Outcome.INCONCLUSIVE, 0.005)) is Outcome.INCONCLUSIVE
    assert word(whole) is Outcome.INCONCLUSIVE
    assert word(nodes, judged(Outcome.REGRESSED, 0.05, "benchmark")) is Outcome.REGRESSED
    # Nor does it make an IMPROVED of it: the day may have.
    assert word(nodes, judged(Outcome.IMPROVED, -0.04, "benchmark")) is Outcome.PASS
    assert word(nodes, judged(Outcome.IMPROVED, -0.04)) is Outcome.IMPROVED


def test_a_small_loss_of_all_nodes_together_is_open_where_nodes_and_rails_pass_by_themselves() -> None:
    def verdict(*items: Judged) -> compared.Whole:
        return compared.whole(items, (), change=True, why="run 1")

    lost = judged(Outcome.REGRESSED, 0.036, "benchmark")
    pieces = judged(Outcome.PASS, 0.0, "node"), judged(Outcome.PASS, 0.0)
    found = verdict(*pieces, lost)
    assert found.outcome is Outcome.INCONCLUSIVE
    assert "judged by themselves, lost nothing" in found.reason
    assert "measure again" in (found.settle or "")
    # Nodes alone say nothing of the network; rails that are open contradict nothing; a large loss is no matter of days.
    assert verdict(pieces[0], lost).outcome is Outcome.REGRESSED
    assert verdict(pieces[0], judged(Outcome.INCONCLUSIVE, 0.02), lost).outcome is Outcome.REGRESSED
    large = replace(lost, judgement=replace(lost.judgement, loss=0.08, loss_low=0.05, loss_high=0.11))
    assert verdict(*pieces, large).outcome is Outcome.REGRESSED
    assert verdict(*pieces, lost, judged(Outcome.REGRESSED, 0.05, "node")).outcome is Outcome.REGRESSED
