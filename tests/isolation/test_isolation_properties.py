"""What holds for every fleet and every answer."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fabric_health.isolation.fleet import Component, Fleet, Kind
from fabric_health.isolation.planning import plan, screen_groups
from fabric_health.isolation.session import run, update
from fabric_health.isolation.state import Measurement, Settings, State
from fabric_health.isolation.verdict import verdict

sizes = st.lists(st.integers(1, 20), min_size=1, max_size=8).filter(lambda s: sum(s) >= 2)


def fleet_of(domain_sizes: list[int], rails: int = 4) -> Fleet:
    return Fleet.of({f"d{i}": [f"d{i}n{k}" for k in range(n)] for i, n in enumerate(domain_sizes)}, rails=rails)


@given(sizes)
@settings(max_examples=60, deadline=None)
def test_screen_covers_every_node_once(domain_sizes):
    fleet = fleet_of(domain_sizes)
    groups = screen_groups(fleet)
    assert sorted(n for g in groups for n in g) == sorted(fleet.nodes)
    assert all(len(g) >= 2 for g in groups)


@given(sizes)
@settings(max_examples=25, deadline=None)
def test_noiseless_healthy_fleet_is_never_blamed(domain_sizes):
    fleet = fleet_of(domain_sizes)
    _, found = run(State(fleet), lambda tests: [Measurement(t.name, 1.0) for t in tests], lambda _s: None)
    assert not found.blamed
    assert not found.undecided
    assert not found.not_measured


@given(sizes, st.integers(0, 2**32), st.integers(1, 40), st.integers(1, 6))
@settings(max_examples=25, deadline=None)
def test_any_answers_end_within_budget_in_disjoint_tests(domain_sizes, seed, max_tests, max_rounds):
    """Random numbers, hangs and lost tests: the session ends, tests are disjoint, names are unique."""
    fleet, rng = fleet_of(domain_sizes), random.Random(seed)

    def answer(name: str) -> Measurement:
        kind = rng.random()
        if kind < 0.1:
            return Measurement(name, None, "hang", excused=rng.random() < 0.5)
        return Measurement(name, rng.choice([1.0, 0.9, 0.5, rng.uniform(0.01, 2)]))

    state = State(fleet, Settings(max_tests=max_tests, max_rounds=max_rounds))
    while tests := plan(state):
        taken = [(n, r) for t in tests for n in t.nodes for r in (range(fleet.rails) if t.rail is None else [t.rail])]
        assert len(taken) == len(set(taken))
        assert all(len(set(t.nodes)) >= 2 for t in tests)
        assert all(t.crosses == (len({fleet.nodes[n].domain for n in t.nodes}) > 1) for t in tests)
        state = update(state, tests, [answer(t.name) for t in tests if rng.random() < 0.97])
    assert len(state.results) <= max_tests
    assert len(state.rounds) <= max_rounds
    names = [r.test.name for r in state.results]
    assert len(names) == len(set(names))
    found = verdict(state)
    assert all(0 <= b.confidence <= 1 and 0 < b.loss <= 1 for b in found.blamed)
    assert found.healthy is False or not (found.blamed or found.undecided or found.not_measured)


@pytest.mark.parametrize("seed", range(3))
def test_resumed_session_equals_uninterrupted(fleet, fabric, seed):
    """The runner's answers are by test name, as a cluster's would be; each round goes through JSON."""
    slow = {Component(Kind.NODE, "gpu-011", 3): 0.15, Component(Kind.UPLINK, "leaf-0"): 0.2}

    def runner(tests):
        return [m for t in tests for m in fabric(fleet, slow, noise=0.02, seed=hash((seed, t.name)))([t])]

    once, at_once = run(State(fleet), runner, lambda _s: None)
    state = State(fleet)
    while tests := plan(state):
        state = State.from_json(update(state, tests, runner(tests)).to_json())
    assert state == once
    assert verdict(state) == at_once


def test_state_survives_json_and_refuses_what_it_did_not_write(fleet, fabric):
    state, _ = run(State(fleet), fabric(fleet, noise=0.02), lambda _s: None)
    assert State.from_json(state.to_json()) == state
    assert State.from_json(state.to_json()).to_json() == state.to_json()
    for text in ("{}", "[]", '{"version": 2}', "nonsense", state.to_json().replace('"crosses"', '"crossing"')):
        with pytest.raises(ValueError):  # noqa: PT011 - each names its own trouble
            State.from_json(text)


@pytest.mark.parametrize("seed", range(4))
def test_the_names_and_order_of_nodes_carry_no_meaning(fabric, seed):
    rng = random.Random(seed)
    names = [f"n{i:02d}" for i in range(32)]
    rng.shuffle(names)
    fleet = Fleet.of({f"leaf-{d}": names[d * 8 : d * 8 + 8] for d in range(4)})
    slow = Component(Kind.NODE, names[rng.randrange(32)], rng.randrange(8))
    _, found = run(State(fleet), fabric(fleet, {slow: 0.15}, noise=0.01, seed=seed), lambda _s: None)
    assert {b.component for b in found.blamed} == {slow}


def test_rates_on_a_noisy_fleet(fleet, fabric):
    """10 % loss at 2 % noise: found nearly always; healthy: blamed nearly never. The bench has the rates."""
    right = wrong = 0
    for seed in range(40):
        slow = Component(Kind.NODE, f"gpu-{random.Random(seed).randrange(32):03d}")
        _, found = run(State(fleet), fabric(fleet, {slow: 0.1}, noise=0.02, seed=seed), lambda _s: None)
        right += {b.component for b in found.blamed} == {slow}
        _, found = run(State(fleet), fabric(fleet, noise=0.02, seed=seed), lambda _s: None)
        wrong += bool(found.blamed)
    assert right >= 38
    assert wrong <= 1
