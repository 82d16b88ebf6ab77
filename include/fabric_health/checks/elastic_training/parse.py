"""One launch's evidence to rows: its timeline, how each fault was survived, the node check, how it ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from fabric_health.checks.check import Launch, Unit
from fabric_health.checks.elastic_training.comparability import comparability
from fabric_health.checks.elastic_training.events import Event, Kind
from fabric_health.checks.elastic_training.gathered import Gathered, gather
from fabric_health.checks.elastic_training.launches import injects_faults
from fabric_health.checks.elastic_training.node_checks import node_checks
from fabric_health.checks.elastic_training.recoveries import recoveries, recovering
from fabric_health.checks.elastic_training.settings import LEAST_WORKERS, Asked, asked
from fabric_health.checks.elastic_training.tables import ElasticEvent, ElasticRecovery, ElasticRun
from fabric_health.checks.elastic_training.timeline import Timeline, longest_stall, median_loss, timeline
from fabric_health.datasets.contracts import Row
from fabric_health.errors import SiteError
from fabric_health.evidence import CommandResult, CommandStatus, UnitEvidence
from fabric_health.site import Site

# Rows of a launch's timeline. Of steps only so many are kept, evenly; they are the many.
MAX_STEPS_KEPT = 1000
MAX_EVENTS_KEPT = 5000
MAX_UNREAD = 1000
SUCCEEDED, FAILED, NO_STEPS, UNFINISHED = "succeeded", "failed", "no_steps", "unfinished"
HUNG, LIMIT, UNKNOWN = "hung", "limit", "unknown"


def parse(unit: Unit, evidence: UnitEvidence, site: Site) -> list[Row]:
    """Return the rows of one launch; there is always one in ``elastic_runs``. Never raises for anything it printed."""
    job = evidence.result("job")
    if not isinstance(unit, Launch) or job is None:
        return []
    try:
        wanted = asked(site)
    except SiteError:
        # Planning has said so already; without settings there is nothing to hold the launch against.
        return []
    local = not unit.spec.nodes
    workers = len(unit.spec.nodes) or wanted.workers
    if local and not injects_faults(unit.name):
        workers = max(LEAST_WORKERS, wanted.workers)
    found = gather(unit.name, evidence, workers, local)
    told = timeline(found.texts, *_span(job, found), found.names)
    survived = recoveries(unit.name, told)
    run = _run(unit, job, wanted, workers, found, told, survived)
    versions = found.report.versions if found.report else {}
    run = replace(run, comparability=comparability(unit, wanted, workers, site, versions))
    kept = _kept(told)
    if len(kept) > MAX_EVENTS_KEPT:
        more = f"timeline: {len(kept) - MAX_EVENTS_KEPT} events more than are kept"
        run = replace(run, unread=", ".join(filter(None, (run.unread, more))))
    return [
        run,
        *survived,
        *node_checks(unit.name, found.checks, found.ranks, found.names),
        *(_event_row(unit.name, seq, e) for seq, e in enumerate(kept[:MAX_EVENTS_KEPT])),
    ]


def _span(job: CommandResult, found: Gathered) -> tuple[float, float]:
    """Return start and end of the job, seconds since 1970: of a cluster's from when its first pod was made."""
    begun = [e.at for text in found.texts for e in text if e.kind is Kind.POD_CREATED and e.at is not None]
    started = job.started_at.timestamp()
    # A pod may wait for its image for hours; a time before that is another job's.
    early = [at for at in begun if started - 86_400 <= at <= started]
    return min((started, *early)), max(job.ended_at.timestamp(), started)


def _run(
    unit: Launch,
    job: CommandResult,
    wanted: Asked,
    workers: int,
    found: Gathered,
    told: Timeline,
    survived: Sequence[ElasticRecovery],
) -> ElasticRun:
    trains = injects_faults(unit.name)
    steps, report = told.steps, found.report
    stall = longest_stall(told, recovering(survived))
    status = _status(job, wanted, found, told, stall, trains)
    return ElasticRun(
        launch=unit.name,
        backend=wanted.backend,
        workers=workers,
        min_workers=wanted.min_workers if trains else max(1, workers - 1),
        max_restarts=wanted.own.max_restarts,
        final_status=status,
        restarts=_restarts(told, wanted.own.max_restarts),
        comparability="",
        checkpoint_every=wanted.own.checkpoint_every,
        started_at=datetime.fromtimestamp(told.started_at, UTC),
        start_s=max(0.0, (steps[0].at or 0.0) - told.started_at) if steps else None,
        steps=told.last_step,
        steps_asked=wanted.steps if trains else 0,
        loss_first=median_loss(steps or told.untimed_steps, first=True),
        loss_last=median_loss(steps or told.untimed_steps),
        world_first=next((e.world for e in steps if e.world is not None), None),
        world_last=next((e.world for e in reversed(steps) if e.world is not None), None),
        stall_s=stall,
        exit_code=job.exit_code,
        peak_memory_mib=report.peak_memory_mib if report else None,
        reason=(report.problem or None) if report else None,
        left_over="; ".join(report.left)[:MAX_UNREAD] if report and report.left else None,
        unread=", ".join(found.unread)[:MAX_UNREAD] or None,
        versions=",".join(f"{k}={v}" for k, v in report.versions.items()) if report else None,
        problem=found.problem or _not_as_asked(wanted, workers, found, trains) or _not_fresh(told) or None,
    )


def _status(
    job: CommandResult, wanted: Asked, found: Gathered, told: Timeline, stall: float | None, trains: bool
) -> str:
    """Say how the launch ended. Exit code 0 alone is no success: training must have gone to its last step."""
    hung = bool(found.report and found.report.stalled) or (stall is not None and stall > wanted.stall_limit_s)
    if job.status is CommandStatus.TIMEOUT:
        return HUNG if hung else LIMIT
    if job.exit_code is None:
        return UNKNOWN
    if job.exit_code != 0 or (found.report and found.report.problem):
        return HUNG if hung and not told.of(Kind.DONE) else FAILED
    if not trains:
        return SUCCEEDED
    if told.last_step is None:
        return NO_STEPS
    finished = wanted.steps is None or told.last_step >= wanted.steps
    return SUCCEEDED if finished else UNFINISHED


def _restarts(told: Timeline, allowed: int) -> int:
    """Return the restarts that were used: as agents count down, else as training is told of its restarts."""
    left = [e.value for e in told.events if e.kind is Kind.RESTARTS_LEFT and e.value is not None]
    relaunched = [e.restart for e in told.events if e.kind.value.startswith("pod_") and e.restart is not None]
    counted = [
        e.restart
        for e in told.events
        if e.kind in (Kind.START, Kind.RESUME, Kind.STEP, Kind.RENDEZVOUS) and e.restart is not None
    ]
    used = max(0, allowed - min(left)) if left else max(counted, default=0)
    return max((used, *relaunched))


def _not_as_asked(wanted: Asked, workers: int, found: Gathered, trains: bool) -> str:
    report = found.report
    if report is None:
        return ""
    least = wanted.min_workers if trains else workers - 1
    pairs = [("agents", report.agents, workers), ("min_agents", report.min_agents, least)]
    if trains:
        pairs += [
            ("checkpoint_every", report.checkpoint_every, wanted.own.checkpoint_every),
            ("max_restarts", report.max_restarts, wanted.own.max_restarts),
        ]
    wrong = [f"{name} {value} instead of {expected}" for name, value, expected in pairs if value != expected]
    return f"it ran with {', '.join(wrong)}" if wrong else ""


def _not_fresh(told: Timeline) -> str:
    """Say that training did not begin at step 0: it went on from what another launch left."""
    first = next(iter(told.of(Kind.RESUME, Kind.STEP)), None)
    if first is not None and first.kind is Kind.RESUME and first.step:
        return f"training began at step {first.step}: it went on from what an earlier launch left"
    return ""


def _kept(told: Timeline) -> list[Event]:
    """Return the events that become rows: of plain steps only some, evenly, and the last one."""
    steps = [i for i, e in enumerate(told.events) if e.kind is Kind.STEP and e.detail is None]
    every = -(-len(steps) // MAX_STEPS_KEPT) if steps else 1
    dropped = set(steps) - set(steps[::every]) - set(steps[-1:])
    return [e for i, e in enumerate(told.events) if i not in dropped]


def _event_row(launch: str, seq: int, event: Event) -> ElasticEvent:
    return ElasticEvent(
        launch=launch,
        seq=seq,
        source=event.source.value,
        kind=event.kind.value,
        event_at=None if event.at is None else datetime.fromtimestamp(event.at, UTC),
        node=event.node,
        rank=event.rank,
        world_size=event.world,
        step=event.step,
        restart_count=event.restart,
        loss=event.loss,
        detail=event.detail,
    )
