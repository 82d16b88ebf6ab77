"""How far the case against one suspicion has come."""

from __future__ import annotations

from enum import Enum, auto

from fabric_health.isolation.belief import Suspicion
from fabric_health.isolation.fleet import Kind
from fabric_health.isolation.state import State, Test

# A place holds this share of its suspicion before it is confirmed alone.
ONE_PLACE = 0.95
# A rail, or "all rails", holds this share of its place before it is named.
ONE_RAIL = 0.98
# Different groups of others that a blamed place was slow with, at least.
PARTNERS = 2


class Stage(Enum):
    """What a suspicion needs next."""

    SPLIT = auto()  # several places may be at fault
    CONFIRM = auto()  # one place is left, too little speaks for it
    RAILS = auto()  # the place is sure, its rail is not
    SETTLED = auto()  # nothing more to ask


def stage_of(state: State, suspicion: Suspicion) -> Stage:
    """Return what ``suspicion`` needs next.

    A place is sure when it holds 95 % of the suspicion, the odds of a fault exceed 1 / ``false_blame``, and it was
    measured with two different groups of others; a rail when it holds 98 % of its place (the partner's rails passed
    before, so one slow launch of one rail beside the others' good ones may be enough).
    """
    (kind, place), share = max(suspicion.places().items(), key=lambda item: item[1])
    if share < ONE_PLACE:
        return Stage.SPLIT
    tests = _tests_of(state, kind, place)
    if not any(t.rail is None for t in tests) or not tests:
        return Stage.CONFIRM
    by_rail = [t for t in tests if t.rail is not None]
    sure = suspicion.odds * share >= 1 / state.settings.false_blame
    if state.fleet.rails > 1 and not by_rail and suspicion.odds * share >= 0.1 / state.settings.false_blame:
        # The rails' own tests are with other partners: they confirm the place as well.
        return Stage.RAILS
    if not sure or len({frozenset(t.nodes) for t in tests}) < PARTNERS:
        return Stage.CONFIRM
    if state.fleet.rails == 1:
        return Stage.SETTLED
    return Stage.SETTLED if suspicion.members[0].share >= ONE_RAIL * share else Stage.RAILS


def _tests_of(state: State, kind: Kind, place: str) -> list[Test]:
    """Return the tests that put the place alone to the test: of a node its pairs, else every group that shows it."""
    tests = [r.test for r in state.results if not r.measurement.excused]
    if kind is Kind.NODE:
        return [t for t in tests if place in t.nodes and len(t.nodes) == 2]
    if kind is Kind.LEAF:
        return [t for t in tests if place in state.fleet.domains_of(t.nodes)]
    fleet = state.fleet
    return [t for t in tests if t.crosses and fleet.shows_between(kind, place, fleet.domains_of(t.nodes))]
