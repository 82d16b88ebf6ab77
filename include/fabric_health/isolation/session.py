"""Driving an isolation on any runner, round by round."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from fabric_health.isolation.planning import plan
from fabric_health.isolation.state import Measurement, Result, State, Test
from fabric_health.isolation.verdict import Verdict, verdict

Runner = Callable[[Sequence[Test]], Sequence[Measurement]]
"""Runs the tests of one round side by side and returns a measurement for each, in any order."""


def update(state: State, tests: Sequence[Test], measurements: Sequence[Measurement]) -> State:
    """Return ``state`` with one more round.

    A test without a measurement was not run: it counts, says nothing about its nodes, and is not a pass. A number that
    is not finite and positive is no number.

    :raises ValueError: a measurement of a test that is not in the round, or two of one test.
    """
    by_name = {m.test: m for m in measurements}
    unknown = sorted(set(by_name) - {t.name for t in tests})
    if unknown or len(by_name) != len(measurements):
        raise ValueError(f"measurements: expected one for each test of the round, got others or twice: {unknown[:5]}")
    missing = "the runner returned nothing for this test"
    found = (by_name.get(t.name, Measurement(t.name, None, missing, excused=True)) for t in tests)
    done = tuple(Result(t, _checked(m)) for t, m in zip(tests, found, strict=True))
    return replace(state, rounds=(*state.rounds, done))


def _checked(m: Measurement) -> Measurement:
    if m.relative is None or 0.0 < m.relative < 10.0:
        return m
    return Measurement(m.test, None, f"relative bandwidth {m.relative!r} is outside 0..10", excused=True)


def run(state: State, runner: Runner, save: Callable[[State], None]) -> tuple[State, Verdict]:
    """Measure until nothing is left to ask or to spend; ``save`` is called after each round.

    Continuing from a saved state gives the tests and the verdict of an uninterrupted session.
    """
    while tests := plan(state):
        state = update(state, tests, runner(tests))
        save(state)
    return state, verdict(state)
