"""What is slow, how sure that is, and what stays undecided and why."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from fabric_health.isolation.belief import Belief, Suspicion, believe, common_loss
from fabric_health.isolation.case import ONE_RAIL, Stage, stage_of
from fabric_health.isolation.fleet import TOGETHER, WHOLE, Component, Kind
from fabric_health.isolation.state import State

# An undecided suspicion is reported when it is at least this probable.
REPORTED = 0.2
# "Healthy" is refused when a fault of the smallest loss of interest is left with at least this probability.
MISSED = 0.2


@dataclass(frozen=True)
class Blame:
    """``component`` is slow by ``loss`` (fraction; 95 % interval ``low`` to ``high``; 1.0 gives no number at all).

    ``rails`` says how the loss is spread: ``rail`` (the component names it), ``whole`` (all rails), ``together`` (only
    when all rails run at once), ``not told`` (rails undecided). ``confidence`` is the posterior probability of exactly
    this. ``tests`` are the names of the tests that speak for it.
    """

    component: Component
    rails: str
    confidence: float
    loss: float
    low: float
    high: float
    tests: tuple[str, ...]


@dataclass(frozen=True)
class Undecided:
    """Something looks slow with ``probability``; it may be any of ``candidates``; ``reason`` says why no more."""

    candidates: tuple[Component, ...]
    probability: float
    loss: float
    reason: str
    tests: tuple[str, ...]


@dataclass(frozen=True)
class Verdict:
    """The answer. ``healthy`` only when nothing is blamed or undecided and every node and domain was measured.

    ``detectable_loss`` is the loss (fraction) that a screening group would have shown with 95 % probability at the
    session's ``noise``; ``missed`` the probability that a fault of ``min_loss`` or more is left.
    """

    blamed: tuple[Blame, ...]
    undecided: tuple[Undecided, ...]
    healthy: bool
    reason: str
    tests: int
    rounds: int
    minutes: float
    noise: float
    run_effect: float
    missed: float
    detectable_loss: float
    not_measured: tuple[str, ...]


def verdict(state: State) -> Verdict:
    """Return what the measurements of ``state`` allow to say now."""
    belief = believe(state)
    blamed: list[Blame] = []
    undecided: list[Undecided] = []
    if common := common_loss(state):
        reason = (
            f"the groups are slow by {common:.0%} alike: no matter of one unit; compare transport, algorithm and "
            "versions with those of the history that the expectation is from"
        )
        undecided.append(Undecided((), 0.99, common, reason, tuple(r.test.name for r in state.rounds[0])))
    for suspicion in () if common else belief.suspicions:
        if (blame := _blame(state, suspicion)) is not None:
            blamed.append(blame)
        elif suspicion.odds / (1 + suspicion.odds) >= REPORTED:
            undecided.append(_undecided(state, suspicion))
    undecided += _slow_as_a_whole(state, belief)
    missing = tuple(_not_measured(state))
    missed = 1 - math.exp(-belief.missed)
    # A group is looked into from about two noises on; 1.645 more is missed once in twenty.
    detectable = 1 - math.exp(-max(3.6 * belief.noise, -math.log1p(-state.settings.min_loss)))
    healthy = not blamed and not undecided and not missing and missed < MISSED
    return Verdict(
        tuple(blamed),
        tuple(undecided),
        healthy,
        _reason(state, blamed, undecided, missing, missed, detectable),
        len(state.results),
        len(state.rounds),
        state.minutes,
        belief.noise,
        belief.run_effect,
        missed,
        detectable,
        missing,
    )


def _blame(state: State, suspicion: Suspicion) -> Blame | None:
    """Return whom to blame: a settled suspicion, or a sure place whose rail could not be told."""
    stage = stage_of(state, suspicion)
    if stage not in (Stage.SETTLED, Stage.RAILS):
        return None
    (kind, place), share = max(suspicion.places().items(), key=lambda item: item[1])
    probability = suspicion.odds / (1 + suspicion.odds)
    if stage is Stage.RAILS and suspicion.odds * share < 1 / state.settings.false_blame:
        return None
    top = suspicion.members[0]
    component, how = top.hypothesis.component, top.hypothesis.how or "rail"
    told = top.share >= ONE_RAIL * share and (how in (WHOLE, TOGETHER) or component.rail is not None)
    if not told:
        component, how = Component(kind, place), "not told" if state.fleet.rails > 1 else WHOLE
    confidence = probability * (top.share if told else share)
    return Blame(component, how, confidence, suspicion.loss, suspicion.loss_low, suspicion.loss_high, suspicion.tests)


def _undecided(state: State, suspicion: Suspicion) -> Undecided:
    places = sorted(suspicion.places().items(), key=lambda item: -item[1])
    candidates = tuple(Component(kind, place) for (kind, place), _ in places)
    spent = state.spent()
    if len(candidates) > 1:
        why = f"{len(candidates)} candidates could not be told apart"
    else:
        why = f"a loss of {suspicion.loss:.0%} is too little to be sure at this noise, or too few partners are left"
    return Undecided(
        candidates,
        suspicion.odds / (1 + suspicion.odds),
        suspicion.loss,
        f"{why}: {spent}" if spent else why,
        suspicion.tests,
    )


def _slow_as_a_whole(state: State, belief: Belief) -> Iterator[Undecided]:
    """A group that was slow twice though its parts pass and nothing else explains it."""
    slow: dict[frozenset[str], list[str]] = {}
    losses: dict[str, float] = {}
    for r in state.results:
        if r.test.name in belief.unexplained and r.test.rail is None and not r.measurement.excused:
            slow.setdefault(frozenset(r.test.nodes), []).append(r.test.name)
            losses[r.test.name] = 1.0 - (r.measurement.relative or 0.0)
    for nodes, tests in slow.items():
        if len(tests) > 1:
            candidates = tuple(Component(Kind.NODE, n) for n in state.fleet.nodes if n in nodes)
            reason = "slow twice as a whole while its parts pass: a load that only the whole group makes"
            yield Undecided(candidates, 0.9, min(losses[t] for t in tests), reason, tuple(tests))


def _not_measured(state: State) -> Iterator[str]:
    """Nodes in no test that gave a number, then domains whose way out was in none."""
    gave = [r.test for r in state.results if r.measurement.relative is not None]
    seen = {n for t in gave for n in t.nodes}
    yield from (n for n in state.fleet.nodes if n not in seen)
    if len(state.fleet.domains) > 1:
        out = {d for t in gave if t.crosses for d in state.fleet.domains_of(t.nodes)}
        yield from (f"{d} (traffic to other domains)" for d in state.fleet.domains if d not in out)


def _reason(
    state: State,
    blamed: list[Blame],
    undecided: list[Undecided],
    missing: tuple[str, ...],
    missed: float,
    detectable: float,
) -> str:
    if not state.rounds:
        return "nothing was measured yet"
    parts = [f"{len(blamed)} slow: " + ", ".join(str(b.component) for b in blamed)] if blamed else []
    parts += [f"undecided: {u.reason}" for u in undecided]
    more = f" and {len(missing) - 5} more" if missing[5:] else ""
    if missing:
        parts.append(f"not measured: {', '.join(missing[:5])}{more}")
    if missed >= MISSED:
        parts.append(f"a loss of {state.settings.min_loss:.0%} could still hide with probability {missed:.0%}")
    return "; ".join(parts) or (
        f"every node and every way between domains was measured and none is slow by {detectable:.0%} or more"
    )
