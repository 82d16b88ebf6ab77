"""From each injected fault to the first training step after it: how long, from where, with how many.

Recovery counts from the moment of the fault to the first step of the workers that were started after it: a step of the
old workers, which may still be told of then, is none. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from fabric_health.checks.elastic_training.events import FAILURES, FAULTS, Event, Kind
from fabric_health.checks.elastic_training.tables import ElasticRecovery
from fabric_health.checks.elastic_training.timeline import Timeline, median_loss

# Steps of workers that have not noticed the fault yet end within this time: a collective of theirs waits by then.
NOTICED_S = 30.0
NO_STEP = "no step came after it"
NO_ANCHOR = "steps came after it, but neither a start of workers nor a rendezvous: which is the first is not known"
NOT_BEFORE = "no step was seen before it"
UNEVEN = "ranks went on from different steps"


@dataclass(frozen=True)
class _Span:
    """What was told before and after a fault, up to the next one. ``fresh`` began with the last start before it."""

    fault: Event
    at: float
    fresh: Sequence[Event]
    before: Sequence[Event]
    after: Sequence[Event]

    def first(self, *kinds: Kind) -> Event | None:
        return next((e for e in self.after if e.kind in kinds), None)


def recoveries(launch: str, told: Timeline) -> list[ElasticRecovery]:
    """Return one row for each event that was injected, in the order of time."""
    return [_recovery(launch, n, _span(told, fault)) for n, fault in enumerate(told.injected, 1)]


def recovering(rows: Sequence[ElasticRecovery]) -> list[tuple[float, float]]:
    """Return the spans (seconds since 1970) from each fault to the first step after it, or without an end."""
    begins = [row.injected_at.timestamp() for row in rows]
    return [
        (at, float("inf") if row.resumed_s is None else at + row.resumed_s)
        for at, row in zip(begins, rows, strict=True)
    ]


def _span(told: Timeline, fault: Event) -> _Span:
    at = fault.at or 0.0
    # An agent that comes back before training went on is part of the recovery from its loss.
    until = min((f.at for f in told.faults if f.at is not None and f.at > at), default=float("inf"))
    timed = [e for e in told.events if e.at is not None]
    before = [e for e in timed if (e.at or 0.0) <= at and e is not fault]
    begins = [i for i, e in enumerate(before) if e.kind is Kind.START or e.kind is Kind.RESUME]
    fresh = before[begins[-1] :] if begins else before
    after = [e for e in timed if at < (e.at or 0.0) < until]
    return _Span(fault, at, fresh, before, after)


def _recovery(launch: str, number: int, span: _Span) -> ElasticRecovery:
    begun = _begun(span)
    met = span.first(Kind.RENDEZVOUS)
    anchor = begun or met
    step = _first_step(span, anchor)
    from_steps, loaded_from = _resumed_from(span, step)
    at_fault = _last_step(span, begun)
    resumed = min(from_steps) if from_steps else None
    lost = max(0, at_fault - resumed) if at_fault is not None and resumed is not None else None
    problems = []
    if step is None:
        went_on = anchor is None and span.first(Kind.STEP) is not None and not _only_trailing(span)
        problems.append(NO_ANCHOR if went_on else NO_STEP)
    if at_fault is None:
        problems.append(NOT_BEFORE)
    if len(from_steps) > 1:
        problems.append(f"{UNEVEN}: {', '.join(str(s) for s in sorted(from_steps)[:8])}")
    losses = [e for e in span.after if e.kind is Kind.STEP and step is not None and (e.at or 0) >= (step.at or 0)]
    failure = next((e for e in span.after if e.kind in FAILURES), None)
    return ElasticRecovery(
        launch=launch,
        fault=number,
        kind=span.fault.kind.value,
        injected_at=datetime.fromtimestamp(span.at, UTC),
        node=span.fault.node,
        rank=span.fault.rank,
        detected_s=_since(span, failure) if span.fault.kind in FAULTS else None,
        rendezvous_s=_since(span, met),
        resumed_s=_since(span, step),
        replaced_s=_since(span, _replacement(span)),
        step_at_fault=at_fault,
        step_resumed=resumed,
        lost_steps=lost,
        world_before=_world(span.before),
        world_after=_world_after(span, step),
        loss_before=median_loss([e for e in span.before if e.kind is Kind.STEP]),
        loss_after=median_loss(losses),
        loaded_from=loaded_from,
        problem="; ".join(problems) or None,
    )


def _begun(span: _Span) -> Event | None:
    """Return the first start of workers after the fault; after an agent's return the first with more of them."""
    before = _world(span.before)
    grown = span.fault.kind is Kind.RETURN_AGENT and before is not None
    return next(
        (
            e
            for e in span.after
            if e.kind in (Kind.START, Kind.RESUME) and (not grown or e.world is None or e.world > (before or 0))
        ),
        None,
    )


def _world(before: Sequence[Event]) -> int | None:
    told = (e.world for e in reversed(before) if e.kind in (Kind.START, Kind.RESUME, Kind.STEP) and e.world is not None)
    return next(told, None)


def _since(span: _Span, event: Event | None) -> float | None:
    return None if event is None or event.at is None else round(event.at - span.at, 6)


def _first_step(span: _Span, anchor: Event | None) -> Event | None:
    if anchor is None:
        return None
    return next((e for e in span.after if e.kind is Kind.STEP and (e.at or 0.0) >= (anchor.at or 0.0)), None)


def _resumed_from(span: _Span, step: Event | None) -> tuple[set[int], str | None]:
    """Return the steps that ranks went on from, as they say, and where DLRover took the checkpoint from."""
    if step is None or step.step is None:
        return set(), None
    early = [e for e in span.after if (e.at or 0.0) <= (step.at or 0.0) and e.step is not None]
    loaded = [e for e in early if e.kind is Kind.CHECKPOINT_LOADED]
    told = {e.step for e in early if e.kind is Kind.RESUME and e.step is not None}
    told = told or {e.step for e in loaded if e.step is not None} or {max(0, step.step - 1)}
    return told, (loaded[-1].detail if loaded else None)


def _last_step(span: _Span, begun: Event | None) -> int | None:
    """Return the last step before the fault; right after a start it is the one that the workers began with.

    While an agent that comes back starts, the others train on: their last step before they restart is meant then.
    """
    told = list(span.fresh)
    if span.fault.kind is Kind.RETURN_AGENT and begun is not None:
        told += [e for e in span.after if (e.at or 0.0) < (begun.at or 0.0)]
    steps = [e.step for e in told if e.kind in (Kind.STEP, Kind.RESUME) and e.step is not None]
    return max(steps, default=span.fault.step)


def _only_trailing(span: _Span) -> bool:
    """Tell whether the steps after a fault are of workers that had not noticed it yet: a few, at once."""
    late = [e for e in span.after if e.kind is Kind.STEP and (e.at or 0.0) > span.at + NOTICED_S]
    return not late


def _world_after(span: _Span, step: Event | None) -> int | None:
    if step is None:
        return None
    if step.world is not None:
        return step.world
    early = [e for e in span.after if (e.at or 0.0) <= (step.at or 0.0)]
    return next((e.world for e in reversed(early) if e.kind is Kind.RENDEZVOUS and e.world is not None), None)


def _replacement(span: _Span) -> Event | None:
    """Return when another pod of the deleted one's rank runs: a new id, the same rank."""
    if span.fault.kind is not Kind.DELETE_WORKER or span.fault.peer is None:
        return None
    of_rank = [e for e in span.before if e.kind is Kind.POD_RUNNING and e.peer == span.fault.peer]
    gone = {e.value for e in of_rank if e.value is not None}
    return next(
        (
            e
            for e in span.after
            if e.kind is Kind.POD_RUNNING and e.peer == span.fault.peer and (e.value is None or e.value not in gone)
        ),
        None,
    )
