"""Known faults are named, healthy fleets are not blamed, and what cannot be known is said."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from fabric_health.isolation.fleet import Component, Fleet, Kind
from fabric_health.isolation.planning import plan
from fabric_health.isolation.session import run, update
from fabric_health.isolation.state import Measurement, Settings, State, Test
from fabric_health.isolation.verdict import verdict


def solve(fleet, runner, **settings):
    return run(State(fleet, Settings(**settings)), runner, lambda _state: None)


def blamed(verdict_) -> set[Component]:
    return {b.component for b in verdict_.blamed}


@pytest.mark.parametrize("loss", [0.08, 0.15, 0.4])
@pytest.mark.parametrize(
    "slow",
    [
        Component(Kind.NODE, "gpu-011"),
        Component(Kind.NODE, "gpu-011", 3),
        Component(Kind.LEAF, "leaf-2"),
        Component(Kind.UPLINK, "leaf-2"),
        Component(Kind.PATH, "leaf-0 - leaf-3"),
        Component(Kind.SPINE, "all domains"),
    ],
    ids=str,
)
def test_one_slow_place_is_named(fleet, fabric, slow, loss):
    state, found = solve(fleet, fabric(fleet, {slow: loss}, noise=0.005))
    assert blamed(found) == {slow}, found.reason
    (blame,) = found.blamed
    assert blame.rails == ("rail" if slow.rail is not None else "whole")
    assert blame.confidence > 0.95
    assert blame.low * 0.8 <= loss <= blame.high * 1.25
    assert not found.healthy
    assert not found.undecided
    assert set(blame.tests) <= {r.test.name for r in state.results}


def test_healthy_fleet_ends_after_screening(fleet, fabric):
    state, found = solve(fleet, fabric(fleet))
    assert found.healthy
    assert not found.blamed
    assert not found.undecided
    assert found.rounds == 2
    assert found.tests == len(state.results) <= 8
    assert found.reason.startswith("every node and every way between domains was measured and none is slow by")
    assert f"{found.detectable_loss:.0%}" in found.reason


def test_two_slow_nodes_of_one_group_are_both_named(fleet, fabric):
    slow = {Component(Kind.NODE, "gpu-001"): 0.3, Component(Kind.NODE, "gpu-002", 5): 0.12}
    _, found = solve(fleet, fabric(fleet, slow, noise=0.01))
    assert blamed(found) == set(slow)


def test_two_slow_rails_of_one_node_are_both_named(fleet, fabric):
    slow = {Component(Kind.NODE, "gpu-020", 1): 0.2, Component(Kind.NODE, "gpu-020", 6): 0.2}
    _, found = solve(fleet, fabric(fleet, slow, noise=0.005))
    assert blamed(found) == set(slow)


def test_loss_that_shows_only_with_all_rails_together(fleet, fabric):
    healthy = fabric(fleet, noise=0.005)

    def runner(tests: Sequence[Test]) -> list[Measurement]:
        return [
            Measurement(t.name, m.relative * 0.8) if "gpu-005" in t.nodes and t.rail is None else m
            for t, m in zip(tests, healthy(tests), strict=True)
        ]

    _, found = solve(fleet, runner)
    (blame,) = found.blamed
    assert (blame.component, blame.rails) == (Component(Kind.NODE, "gpu-005"), "together")


def test_node_that_hangs_every_group_is_named(fleet, fabric):
    _, found = solve(fleet, fabric(fleet, {Component(Kind.NODE, "gpu-030"): 1.0}, noise=0.005))
    (blame,) = found.blamed
    assert (blame.component.kind, blame.component.place) == (Kind.NODE, "gpu-030")
    assert blame.loss == 1.0


def test_both_halves_pass_but_not_together(fabric):
    two = Fleet.of({"rack-a": [f"a{i}" for i in range(4)], "rack-b": [f"b{i}" for i in range(4)]})
    state, found = solve(two, fabric(two, {Component(Kind.PATH, "rack-a - rack-b"): 0.2}, noise=0.005))
    assert all(r.measurement.relative > 0.95 for r in state.rounds[0])
    assert blamed(found) == {Component(Kind.PATH, "rack-a - rack-b")}


def test_boundary_of_pods(fabric):
    domains = {f"leaf-{d}": [f"n{d}{i}" for i in range(4)] for d in range(6)}
    fleet = Fleet.of(domains, {d: f"pod-{int(d[-1]) // 2}" for d in domains})
    slow = Component(Kind.POD, "pod-1")
    _, found = solve(fleet, fabric(fleet, {slow: 0.2}, noise=0.005))
    assert blamed(found) == {slow}


def test_slow_only_as_a_whole_stays_undecided_with_the_reason(fleet, fabric):
    healthy = fabric(fleet)

    def runner(tests: Sequence[Test]) -> list[Measurement]:
        whole = {"gpu-000", "gpu-003", "gpu-007"}
        return [
            Measurement(t.name, 0.6) if whole <= set(t.nodes) and not t.crosses else m
            for t, m in zip(tests, healthy(tests), strict=True)
        ]

    _, found = solve(fleet, runner)
    assert not found.blamed
    assert not found.healthy
    assert any("as a whole" in u.reason for u in found.undecided)


def test_noise_that_hides_the_loss_is_undecided_not_healthy_by_default(fleet, fabric):
    _, found = solve(fleet, fabric(fleet, {Component(Kind.NODE, "gpu-011"): 0.1}, noise=0.02), max_tests=12)
    assert not found.blamed
    assert not found.healthy
    assert "budget of 12 tests" in found.reason


def test_a_whole_run_that_is_slow_blames_nobody(fleet, fabric):
    everywhere = fabric(fleet, noise=0.01)
    _, found = solve(fleet, lambda tests: [Measurement(m.test, m.relative * 0.75) for m in everywhere(tests)])
    assert not found.blamed
    assert not found.healthy
    assert "slow by 25% alike" in found.reason
    assert found.rounds == 1


@pytest.mark.parametrize(
    "slow", [Component(Kind.SPINE, "all domains"), Component(Kind.PATH, "r02 - r09"), None], ids=str
)
def test_domains_smaller_than_a_screening_group(fabric, slow):
    """Racks of two nodes: every screening group crosses, and still a slow spine is not taken for a slow run."""
    racks = Fleet.of({f"r{r:02d}": [f"n{r:02d}-{i}" for i in range(2)] for r in range(16)})
    _, found = solve(racks, fabric(racks, {slow: 0.2} if slow else {}, noise=0.005))
    assert blamed(found) == ({slow} if slow else set()), found.reason
    assert found.healthy is (slow is None)


def test_nothing_measured_is_not_healthy(fleet):
    found = verdict(State(fleet))
    assert not found.healthy
    assert found.reason == "nothing was measured yet"


def test_runner_that_returns_nothing_never_ends_healthy(fleet):
    state, found = solve(fleet, lambda _tests: [])
    assert not found.healthy
    assert not found.blamed
    assert set(fleet.nodes) <= set(found.not_measured)
    assert len(state.results) <= state.settings.max_tests


@pytest.mark.parametrize("number", [float("nan"), float("inf"), 0.0, -1.0])
def test_a_number_that_is_none_is_no_pass(fleet, number):
    _, found = solve(fleet, lambda tests: [Measurement(t.name, number) for t in tests])
    assert not found.healthy
    assert not found.blamed


def test_foreign_or_double_measurements_are_refused(fleet):
    state = State(fleet)
    tests = plan(state)
    with pytest.raises(ValueError, match="expected one for each test"):
        update(state, tests, [Measurement("other", 1.0)])
    with pytest.raises(ValueError, match="expected one for each test"):
        update(state, tests, [Measurement(tests[0].name, 1.0)] * 2)


def test_fleets_and_settings_out_of_range_are_refused():
    with pytest.raises(ValueError, match="at least two nodes"):
        Fleet.of({"leaf": ["only"]})
    with pytest.raises(ValueError, match="rails per node"):
        Fleet.of({"leaf": ["a", "b"]}, rails=0)
    with pytest.raises(ValueError, match="min_loss"):
        Settings(min_loss=0.0)
    with pytest.raises(ValueError, match="max_tests"):
        Settings(max_tests=0)


def test_a_fault_whose_tests_the_others_explain_better_is_no_suspicion():
    """Measured in a session with two slow nodes of one leaf, from ``bench/isolation.py --nodes 16 --seed 42``."""
    state = State.from_json((Path(__file__).parent / "explained_away.json").read_text())
    found = verdict(state)
    assert {m.place for m in blamed(found)} <= {"n0004", "n0006"}
    plan(state)
