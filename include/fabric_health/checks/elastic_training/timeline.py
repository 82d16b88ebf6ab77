"""All that is known of a launch in the order of time, and what can be read off it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median

from fabric_health.checks.elastic_training.events import FAULTS, INJECTED, Event, Kind, Source

# Clocks of pods and of ours may be this far apart, and a pod may speak a little before its job is seen to start.
CLOCK_SLACK_S = 120.0
# Two times that differ by less are the same, written by different hands.
INSTANT_S = 0.001
# How many losses a median is taken of: single ones jump.
LOSSES = 10


@dataclass(frozen=True)
class Timeline:
    """Events in the order of time. ``started_at`` and ``ended_at`` are those of the job, seconds since 1970."""

    events: tuple[Event, ...]
    started_at: float
    ended_at: float

    def of(self, *kinds: Kind) -> list[Event]:
        """Return the events of these kinds that have a time, in its order."""
        return [e for e in self.events if e.kind in kinds and e.at is not None]

    @property
    def injected(self) -> list[Event]:
        """What was injected: faults, and agents that came back."""
        return self.of(*INJECTED)

    @property
    def faults(self) -> list[Event]:
        """The faults that were injected."""
        return self.of(*FAULTS)

    @property
    def steps(self) -> list[Event]:
        """Training steps, with their time."""
        return self.of(Kind.STEP)

    @property
    def untimed_steps(self) -> list[Event]:
        """Training steps whose line has no time, or one that does not lie within the launch."""
        return [e for e in self.events if e.kind is Kind.STEP and e.at is None]

    @property
    def last_step(self) -> int | None:
        """The highest step that was told of, whether or not its time is known."""
        told = [e.step for e in self.events if e.kind in (Kind.STEP, Kind.DONE) and e.step is not None]
        return max(told, default=None)


def timeline(
    texts: Iterable[Sequence[Event]], started_at: float, ended_at: float, names: Mapping[int, str]
) -> Timeline:
    """Return the events of all texts as one timeline; ``names`` is the node by its rank within the job.

    An event without a time stands after the one before it in its text. A time that does not lie within the launch is
    taken off: it is of another clock or another run.
    """
    first, last = started_at - CLOCK_SLACK_S, ended_at + CLOCK_SLACK_S
    placed: list[tuple[float, int, Event]] = []
    for text in texts:
        at = first
        for event in text:
            known = event.at if event.at is not None and first <= event.at <= last else None
            at = known if known is not None else at
            placed.append((at, len(placed), replace(event, at=known, node=_named(event, names))))
    placed.sort(key=lambda p: p[:2])
    return Timeline(tuple(e for _, _, e in placed), started_at, ended_at)


def _named(event: Event, names: Mapping[int, str]) -> str | None:
    if event.node is not None and event.node.isascii() and event.node.isdigit() and len(event.node) < 10:
        return names.get(int(event.node), event.node)
    if event.node is None and event.peer is not None:
        return names.get(event.peer)
    return event.node


def node_names(pods: Sequence[Event]) -> dict[int, str]:
    """Return the node by the rank of its worker; of a replaced pod the newer one's node."""
    return {e.peer: e.node for e in pods if e.source is Source.KUBERNETES and e.peer is not None and e.node}


def longest_stall(told: Timeline, recovering: Iterable[tuple[float, float]]) -> float | None:
    """Return the longest time without a step, s; None without steps. Spans of recovery from a fault are left out.

    The time from the last step to the end of the job counts, unless training says that it is done.
    """
    times = sorted({e.at for e in told.steps if e.at is not None})
    if not times:
        return None
    if not told.of(Kind.DONE):
        times.append(max(told.ended_at, times[-1]))
    spans = list(recovering)
    # The gap that begins where a recovery ends is none of it.
    gaps = [b - a for a, b in pairwise(times) if not any(begin < b and a < end - INSTANT_S for begin, end in spans)]
    return max(gaps, default=0.0)


def median_loss(steps: Sequence[Event], *, first: bool = False) -> float | None:
    """Return the median loss of the last (or first) few steps that have one, None when there is none."""
    losses = [e.loss for e in steps if e.loss is not None]
    return median(losses[:LOSSES] if first else losses[-LOSSES:]) if losses else None
