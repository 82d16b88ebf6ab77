"""Rules on single faults: training goes on, soon, from its checkpoint, with as many workers as there are."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence

from fabric_health.checks.elastic_training.events import Kind
from fabric_health.checks.elastic_training.launches import PODS_FILE
from fabric_health.checks.elastic_training.recoveries import NO_ANCHOR, UNEVEN
from fabric_health.checks.elastic_training.rules import (
    AGENT,
    OPERATOR,
    SITE_FILE,
    deviation,
    not_judged,
    plural,
    training_known,
)
from fabric_health.checks.elastic_training.settings import Asked
from fabric_health.checks.elastic_training.tables import ElasticRecovery, ElasticRun
from fabric_health.datasets.tables import Finding, Severity

FAULT_TOLERANCE = "https://github.com/intelligent-machine-learning/dlrover/blob/master/docs/blogs/flash_checkpoint.md"
_WORDS = {
    Kind.KILL_RANK: "a killed rank",
    Kind.HANG_RANK: "a rank that hangs",
    Kind.LOSE_AGENT: "a lost agent",
    Kind.RETURN_AGENT: "the return of a lost agent",
    Kind.DELETE_WORKER: "a deleted worker pod",
}


def recovery_findings(
    runs: Mapping[str, ElasticRun], rows: Sequence[ElasticRecovery], wanted: Asked
) -> Iterator[Finding]:
    """Judge every fault; what several launches show alike is one finding, on the worst of them."""
    judged = [r for r in rows if r.launch in runs and runs[r.launch].problem is None]
    kinds: dict[str, list[ElasticRecovery]] = defaultdict(list)
    for row in judged:
        kinds[row.kind].append(row)
    for kind, found in sorted(kinds.items()):
        yield from _resumes(kind, found, runs)
        yield from _in_time(kind, found, wanted)
        yield from _from_checkpoint(kind, found, wanted)
        yield from _loss(kind, found, wanted)
        yield from _world(kind, found, runs)
        if kind == Kind.DELETE_WORKER:
            yield from _replaced(kind, found, runs, wanted)


def _worst(
    rows: Sequence[ElasticRecovery], bad: Callable[[ElasticRecovery], float | None]
) -> tuple[ElasticRecovery, str] | None:
    """Return the row that is worst by a measure (None: not bad), with words for the others."""
    found = [(value, row) for row in rows if (value := bad(row)) is not None]
    if not found:
        return None
    worst = max(found, key=lambda p: (p[0], p[1].launch))[1]
    return worst, f" ({len(found)} of {len(rows)} times)" if len(rows) > 1 else ""


def _of(kind: str) -> str:
    return _WORDS.get(Kind(kind), kind)


def _step(step: int | None) -> str:
    return "?" if step is None else str(step)


def _resumes(kind: str, rows: Sequence[ElasticRecovery], runs: Mapping[str, ElasticRun]) -> Iterator[Finding]:
    lost = [r for r in rows if r.resumed_s is None]
    known = [r for r in lost if training_known(runs[r.launch]) and NO_ANCHOR not in (r.problem or "")]
    if known:
        row = known[0]
        yield deviation(
            "training_resumes",
            f"{kind}.resumed",
            Severity.CRITICAL,
            f"{row.launch}: training never went on after {_of(kind)} at step {_step(row.step_at_fault)} "
            f"({len(known)} of {len(rows)} times): {row.problem}",
            expected="a step of restarted workers",
            actual="none",
            action="Read the logs of master and agents from the fault on: detection, rendezvous, restart, checkpoint.",
            source=AGENT,
            launch=row.launch,
        )
    elif lost:
        yield not_judged(
            "training_resumes",
            f"{kind}.resumed",
            f"{lost[0].launch}: whether training went on after {_of(kind)} is not known: "
            f"{runs[lost[0].launch].unread or lost[0].problem}",
            action="Let the program print EV lines of kind start, resume and step (docs/checks/elastic_training.md).",
            launch=lost[0].launch,
        )


def _in_time(kind: str, rows: Sequence[ElasticRecovery], wanted: Asked) -> Iterator[Finding]:
    limits = wanted.own.limits
    limit = limits.resumed_after_hang_s if kind == Kind.HANG_RANK else limits.resumed_s
    found = _worst(rows, lambda r: r.resumed_s if r.resumed_s is not None and r.resumed_s > limit else None)
    if found is None:
        return
    row, more = found
    parts = [
        f"{name} {seconds:.1f} s"
        for name, seconds in (("detected", row.detected_s), ("rendezvous", row.rendezvous_s))
        if seconds is not None
    ]
    yield deviation(
        "recovers_in_time",
        f"{kind}.resumed_s",
        Severity.WARNING,
        f"{row.launch}: after {_of(kind)} the next step came after {row.resumed_s:.1f} s{more}"
        + (f" ({', '.join(parts)})" if parts else ""),
        expected=f"<= {limit:g} s",
        actual=f"{row.resumed_s:.1f} s",
        action="See which part is long: detection (heartbeats), rendezvous (timeouts), or start and loading.",
        source=SITE_FILE,
        launch=row.launch,
    )


def _from_checkpoint(kind: str, rows: Sequence[ElasticRecovery], wanted: Asked) -> Iterator[Finding]:
    from_zero = _worst(rows, lambda r: float(r.step_at_fault or 0) if _lost_all(r, wanted) else None)
    uneven = next((r for r in rows if UNEVEN in (r.problem or "")), None)
    if from_zero is not None or uneven is not None:
        row, more = from_zero or (rows[0], "")
        row = uneven if from_zero is None and uneven is not None else row
        what = "resumed from step 0, as if there were no checkpoint" if from_zero else f"{row.problem}"
        yield deviation(
            "resumes_from_checkpoint",
            f"{kind}.step_resumed",
            Severity.CRITICAL,
            f"{row.launch}: after {_of(kind)} at step {row.step_at_fault}: {what}{more}",
            expected=f"a checkpoint of at most {plural(wanted.lost_steps, 'step')} before",
            actual=f"step {row.step_resumed}",
            action="See whether checkpoints are written, and where to: all workers need the same folder.",
            source=FAULT_TOLERANCE,
            launch=row.launch,
        )
        return
    found = _worst(rows, lambda r: float(r.lost_steps or 0) if (r.lost_steps or 0) > wanted.lost_steps else None)
    if found is not None:
        row, more = found
        yield deviation(
            "lost_steps_within_checkpoint",
            f"{kind}.lost_steps",
            Severity.WARNING,
            f"{row.launch}: {_of(kind)} cost {plural(row.lost_steps or 0, 'step')}{more}: training went on from step "
            f"{row.step_resumed} after step {row.step_at_fault}",
            expected=f"<= {plural(wanted.lost_steps, 'step')}",
            actual=plural(row.lost_steps or 0, "step"),
            action="See which checkpoint was taken (memory or storage) and how often each is written.",
            source=FAULT_TOLERANCE,
            launch=row.launch,
        )


def _lost_all(row: ElasticRecovery, wanted: Asked) -> bool:
    due = row.step_at_fault is not None and row.step_at_fault > wanted.own.checkpoint_every
    return due and row.resumed_s is not None and row.step_resumed == 0


def _loss(kind: str, rows: Sequence[ElasticRecovery], wanted: Asked) -> Iterator[Finding]:
    rise = wanted.own.limits.loss_rise

    def worse(row: ElasticRecovery) -> float | None:
        if row.loss_before is None or row.loss_after is None:
            return None
        more = row.loss_after - row.loss_before
        return more if more > rise * abs(row.loss_before) else None

    found = _worst(rows, worse)
    if found is not None:
        row, more = found
        yield deviation(
            "loss_continues",
            f"{kind}.loss",
            Severity.CRITICAL,
            f"{row.launch}: after {_of(kind)} the loss is {row.loss_after:.4g}, it was {row.loss_before:.4g}{more}: "
            "what training went on with is not what it had",
            expected=f"<= {(row.loss_before or 0) + rise * abs(row.loss_before or 0):.4g}",
            actual=f"{row.loss_after:.4g}",
            action="See whether model and optimiser are both restored, and whether the data go on where they were.",
            source=SITE_FILE,
            launch=row.launch,
        )


def _world(kind: str, rows: Sequence[ElasticRecovery], runs: Mapping[str, ElasticRun]) -> Iterator[Finding]:
    for row in rows:
        if row.world_before is None or row.world_after is None:
            continue
        each = _processes(runs[row.launch])
        expected = {
            Kind.LOSE_AGENT: (row.world_before - each, row.world_before),
            Kind.DELETE_WORKER: (row.world_before - each, row.world_before),
            Kind.RETURN_AGENT: (row.world_before + each,),
        }.get(Kind(kind), (row.world_before,))
        if row.world_after in expected:
            continue
        yield deviation(
            "world_size_follows",
            f"{kind}.world_size",
            Severity.WARNING,
            f"{row.launch}: after {_of(kind)} {plural(row.world_after, 'process')} trained together, "
            f"{row.world_before} before",
            expected=" or ".join(str(e) for e in expected),
            actual=str(row.world_after),
            action="Look for workers that did not come to the rendezvous, and for a second fault.",
            source=AGENT,
            launch=row.launch,
        )
        return


def _processes(run: ElasticRun) -> int:
    """Return the processes of a worker, as the world at the first step shows; 1 where it does not."""
    world = run.world_first or 0
    return world // run.workers if world and world % run.workers == 0 else 1


def _replaced(
    kind: str, rows: Sequence[ElasticRecovery], runs: Mapping[str, ElasticRun], wanted: Asked
) -> Iterator[Finding]:
    limit = wanted.own.limits.replaced_s

    def late(row: ElasticRecovery) -> float | None:
        if row.replaced_s is None:
            return None if PODS_FILE in (runs[row.launch].unread or "") else float("inf")
        return row.replaced_s if row.replaced_s > limit else None

    found = _worst(rows, late)
    if found is not None:
        row, more = found
        took = "no pod took its place" if row.replaced_s is None else f"another ran after {row.replaced_s:.0f} s"
        yield deviation(
            "worker_replaced_in_time",
            f"{kind}.replaced_s",
            Severity.WARNING,
            f"{row.launch}: a worker pod was deleted, and {took}{more}",
            expected=f"<= {limit:g} s",
            actual="none" if row.replaced_s is None else f"{row.replaced_s:.0f} s",
            action="Look at events of the job's pods and at the log of DLRover's master: quota, room, image.",
            source=OPERATOR,
            launch=row.launch,
        )
