"""Elastic training on the page: how each launch ended, how long every fault cost, and the run along its time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from fabric_health.checks.elastic_training.tables import ElasticEvent, ElasticNodeCheck, ElasticRecovery, ElasticRun
from fabric_health.report.data import ReportData

CHECKS_SHOWN = 64
_TRAINED = frozenset({"step", "resume", "done"})
NAMES = {
    "kill-rank": "a rank killed",
    "hang-rank": "a rank stopped",
    "lose-agent": "an agent lost",
    "return-agent": "the agent back",
    "delete-worker": "a worker pod deleted",
}


@dataclass(frozen=True)
class Step:
    """A training step: seconds since the start of the job, its number, and the processes that trained it."""

    at_s: float
    step: int
    world: int | None


@dataclass(frozen=True)
class Mark:
    """A fault on the timeline: when (s since the start), what, and when the first step came after it."""

    at_s: float
    name: str
    until_s: float | None


@dataclass(frozen=True)
class NodeChecks:
    """DLRover's check of one node over its rounds: times in s, whether it passed, whether it is a straggler."""

    node: str
    elapsed_s: tuple[float, ...]
    passed: bool | None
    straggler: bool


@dataclass(frozen=True)
class Launch:
    """One launch of elastic training."""

    run: ElasticRun
    origin: str
    recoveries: tuple[ElasticRecovery, ...]
    steps: tuple[Step, ...]
    marks: tuple[Mark, ...]
    checks: tuple[NodeChecks, ...]

    @property
    def ended_well(self) -> bool:
        """Whether it trained to its last step and ended by itself."""
        return self.run.final_status == "succeeded"


def name_of(kind: str) -> str:
    """Return a fault in words."""
    return NAMES.get(kind, kind)


def launches(data: ReportData) -> tuple[Launch, ...]:
    """Return every launch of the run, in the order of their names."""
    found = data.elastic
    if found is None:
        return ()
    return tuple(
        Launch(
            run=run,
            origin=found.origins.get(run.launch, data.key.origin),
            recoveries=tuple(r for r in found.recoveries if r.launch == run.launch),
            steps=_steps(run, [e for e in found.events if e.launch == run.launch]),
            marks=_marks(run, [r for r in found.recoveries if r.launch == run.launch]),
            checks=_checks([c for c in found.node_checks if c.launch == run.launch]),
        )
        for run in sorted(found.runs, key=lambda r: r.launch)
    )


def _steps(run: ElasticRun, events: Sequence[ElasticEvent]) -> tuple[Step, ...]:
    if run.started_at is None:
        return ()
    trained = [e for e in events if e.kind in _TRAINED]
    known = [(e.event_at, e.step, e.world_size) for e in trained if e.event_at and e.step is not None]
    return tuple(Step(_since(run.started_at, at), step, world) for at, step, world in sorted(known, key=lambda k: k[0]))


def _marks(run: ElasticRun, recoveries: Sequence[ElasticRecovery]) -> tuple[Mark, ...]:
    start = run.started_at
    if start is None:
        return ()
    return tuple(
        Mark(at, name_of(r.kind), None if r.resumed_s is None else at + r.resumed_s)
        for r in recoveries
        for at in (_since(start, r.injected_at),)
    )


def _since(start: datetime, at: datetime) -> float:
    return (at - start).total_seconds()


def _checks(rows: Sequence[ElasticNodeCheck]) -> tuple[NodeChecks, ...]:
    """Return one line a node, stragglers and failed ones first, then the slowest."""
    out = []
    for node in dict.fromkeys(r.node for r in rows):
        of = sorted((r for r in rows if r.node == node), key=lambda r: r.round)
        verdicts = [r.passed for r in of if r.passed is not None]
        out.append(
            NodeChecks(
                node=node,
                elapsed_s=tuple(r.elapsed_s for r in of if r.elapsed_s is not None),
                # A node that fails beside a bad partner passes in the round after: the last round decides.
                passed=verdicts[-1] if verdicts else None,
                straggler=any(r.straggler for r in of),
            )
        )
    return tuple(sorted(out, key=lambda c: (not c.straggler, c.passed is not False, -max(c.elapsed_s, default=0.0))))
