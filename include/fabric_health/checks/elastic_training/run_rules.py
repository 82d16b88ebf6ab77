"""Rules on whole launches: training starts, falls in loss, ends well, within its restarts, and leaves nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from fabric_health.checks.elastic_training.events import Kind
from fabric_health.checks.elastic_training.parse import FAILED, HUNG, LIMIT, NO_STEPS, SUCCEEDED, UNFINISHED, UNKNOWN
from fabric_health.checks.elastic_training.parsers.training_events import NOT_FINITE
from fabric_health.checks.elastic_training.rules import (
    AGENT,
    OPERATOR,
    SITE_FILE,
    deviation,
    not_judged,
    plural,
    training_known,
    trains,
    workload,
)
from fabric_health.checks.elastic_training.settings import Asked
from fabric_health.checks.elastic_training.tables import ElasticEvent, ElasticRecovery, ElasticRun
from fabric_health.datasets.tables import Finding, Severity

_SAID = {
    FAILED: "failed",
    NO_STEPS: "ended with exit code 0 without a single step",
    UNFINISHED: "ended with exit code 0 before its last step",
    HUNG: "hung and was ended",
    LIMIT: "did not end in time",
    UNKNOWN: "ended in a way that is not known",
}


def readable_findings(runs: Sequence[ElasticRun], answered: set[str]) -> Iterator[Finding]:
    """Say what cannot be judged for want of evidence. A launch that did not run has its finding already."""
    for run in runs:
        if run.problem is not None and run.launch in answered:
            yield not_judged(
                "launch_readable",
                workload(run),
                f"{run.launch} cannot be judged: {run.problem}",
                action="Read the launch's evidence; run the check again once the cause is gone.",
                launch=run.launch,
            )
        if run.unread is not None and run.launch in answered:
            yield not_judged(
                "evidence_complete",
                f"{workload(run)}.evidence",
                f"{run.launch}: not all evidence was read: {run.unread}",
                action="See the backend's limits on output; what is missing is never taken for good.",
                launch=run.launch,
            )


def run_findings(
    run: ElasticRun, events: Sequence[ElasticEvent], rows: Sequence[ElasticRecovery], wanted: Asked
) -> Iterator[Finding]:
    """Judge one launch; ``events`` and ``rows`` are its own."""
    yield from _in_play(run, events)
    yield from _restarts(run)
    yield from _left(run)
    yield from _stall(run, wanted)
    if run.problem is None and trains(run):
        yield from _start(run, wanted)
        yield from _loss(run, events)
        yield from _restored(run, rows)


def ending_findings(
    run: ElasticRun, rows: Sequence[ElasticRecovery], wanted: Asked, because: Mapping[str, str]
) -> Iterator[Finding]:
    """Judge how a launch ended, and whether its faults were made; ``because`` is what explains that, by launch."""
    ended = None
    if run.final_status != SUCCEEDED and (run.problem is None or run.final_status in (FAILED, HUNG, LIMIT)):
        known = run.final_status not in (NO_STEPS, UNFINISHED) or training_known(run)
        if known:
            ended = _ended(run, because.get(run.launch))
            yield ended
        else:
            yield not_judged(
                "training_completes",
                f"{workload(run)}.final_status",
                f"{run.launch}: whether training went to its last step is not known: {run.unread}",
                action="Read the launch's evidence; run the check again once the cause is gone.",
                launch=run.launch,
            )
    if run.problem is None and trains(run):
        made = Counter(r.kind for r in rows)
        missing = sorted((Counter[str](wanted.faults) - made).elements())
        if missing:
            yield not_judged(
                "fault_injected",
                f"{workload(run)}.faults",
                f"{run.launch}: {', '.join(missing)} did not happen, so nothing is known of recovery from it",
                action="More steps, or an earlier fault_at_step, where training was over before it.",
                launch=run.launch,
                explained_by=ended.finding if ended else None,
            )


def _ended(run: ElasticRun, because: str | None) -> Finding:
    code = "" if run.exit_code is None else f"exit code {run.exit_code}, "
    step = f"at step {'none' if run.steps is None else run.steps}"
    asked = f" of {run.steps_asked}" if run.steps_asked else ""
    said = f": {run.reason}" if run.reason else ""
    return deviation(
        "training_completes",
        f"{workload(run)}.final_status",
        Severity.CRITICAL,
        f"{run.launch} {_SAID[run.final_status]} ({code}{step}{asked}){said}",
        expected=SUCCEEDED,
        actual=run.final_status,
        action="Read the end of the agents' logs and of the master's in the evidence.",
        source=OPERATOR,
        launch=run.launch,
        explained_by=because,
    )


def _in_play(run: ElasticRun, events: Sequence[ElasticEvent]) -> Iterator[Finding]:
    said = next((e for e in events if e.kind == Kind.DOWNGRADED), None)
    if said is not None:
        yield deviation(
            "dlrover_in_play",
            f"{workload(run)}.launcher",
            Severity.CRITICAL,
            f"{run.launch}: DLRover gave up and torchrun went on alone: {said.detail}. Nothing here shows its recovery",
            expected="dlrover-run with a master",
            actual="torchrun",
            action="See why the agent does not find DLRover's master (DLROVER_MASTER_ADDR, versions of torch).",
            source=AGENT,
            launch=run.launch,
        )


def _restarts(run: ElasticRun) -> Iterator[Finding]:
    if run.restarts > run.max_restarts:
        yield deviation(
            "restarts_within_limit",
            f"{workload(run)}.restarts",
            Severity.WARNING,
            f"{run.launch} used {plural(run.restarts, 'restart')} of {run.max_restarts}",
            expected=f"<= {run.max_restarts}",
            actual=str(run.restarts),
            action="Look for faults beside the injected ones: each restart has its reason in the agents' logs.",
            source=OPERATOR,
            launch=run.launch,
        )


def _left(run: ElasticRun) -> Iterator[Finding]:
    if run.left_over is not None:
        yield deviation(
            "nothing_left",
            f"{workload(run)}.left_over",
            Severity.WARNING,
            f"{run.launch} left something behind: {run.left_over}",
            expected="nothing",
            actual=run.left_over,
            action="End the processes and remove the files; memory in /dev/shm stays taken until then.",
            source=SITE_FILE,
            launch=run.launch,
        )


def _stall(run: ElasticRun, wanted: Asked) -> Iterator[Finding]:
    if run.stall_s is not None and run.stall_s > wanted.stall_limit_s and training_known(run):
        yield deviation(
            "no_stall",
            f"{workload(run)}.stall_s",
            Severity.CRITICAL,
            f"{run.launch}: no step for {run.stall_s:.0f} s, without a fault that explains it: training hung",
            expected=f"<= {wanted.stall_limit_s:g} s between steps",
            actual=f"{run.stall_s:.0f} s",
            action="Take stacks of the ranks (py-spy) when it happens again; look at NCCL's timeouts and at storage.",
            source=SITE_FILE,
            launch=run.launch,
        )


def _start(run: ElasticRun, wanted: Asked) -> Iterator[Finding]:
    limit = wanted.own.limits.start_s
    if run.start_s is not None and run.start_s > limit:
        yield deviation(
            "starts_in_time",
            f"{workload(run)}.start_s",
            Severity.WARNING,
            f"{run.launch}: the first step came {run.start_s:.0f} s after the start of the job",
            expected=f"<= {limit:g} s",
            actual=f"{run.start_s:.0f} s",
            action="See the timeline for what took long: images, pods, node check, rendezvous or loading.",
            source=SITE_FILE,
            launch=run.launch,
        )
    if run.start_s is None and run.steps is not None:
        yield not_judged(
            "steps_timed",
            f"{workload(run)}.start_s",
            f"{run.launch}: no step has a time that lies within the launch, so no recovery can be timed",
            action="Let the program print EV lines with its time, and see that clocks agree and TZ is UTC.",
            launch=run.launch,
        )


def _loss(run: ElasticRun, events: Sequence[ElasticEvent]) -> Iterator[Finding]:
    bad = next((e for e in events if e.kind == Kind.STEP and (e.detail or "").startswith(NOT_FINITE)), None)
    if bad is not None:
        yield deviation(
            "loss_finite",
            f"{workload(run)}.loss",
            Severity.CRITICAL,
            f"{run.launch}: at step {bad.step} the {bad.detail}",
            expected="a number",
            actual=bad.detail or "",
            action="Compute the step again on other nodes: the same data and weights must give a number.",
            source=SITE_FILE,
            launch=run.launch,
        )
    elif run.steps and (run.loss_first is None or run.loss_last is None):
        yield not_judged(
            "loss_falls",
            f"{workload(run)}.loss",
            f"{run.launch}: steps come without a loss, so whether training learns is not known",
            action="Let the program tell the loss of its steps.",
            launch=run.launch,
        )
    elif run.loss_first is not None and run.loss_last is not None and run.loss_last >= run.loss_first:
        yield deviation(
            "loss_falls",
            f"{workload(run)}.loss",
            Severity.WARNING,
            f"{run.launch}: the loss went from {run.loss_first:.4g} to {run.loss_last:.4g}",
            expected=f"< {run.loss_first:.4g}",
            actual=f"{run.loss_last:.4g}",
            action="See the timeline: from which step on it does not fall, and what happened there.",
            source=SITE_FILE,
            launch=run.launch,
        )


def _restored(run: ElasticRun, rows: Sequence[ElasticRecovery]) -> Iterator[Finding]:
    """Whoever was replaced, or came back, must train at the end."""
    back = [r for r in rows if r.kind in (Kind.RETURN_AGENT, Kind.DELETE_WORKER) and r.resumed_s is not None]
    if not back or run.world_first is None or run.world_last is None or run.world_last >= run.world_first:
        return
    yield deviation(
        "world_size_restored",
        f"{workload(run)}.world_size",
        Severity.WARNING,
        f"{run.launch}: {run.world_last} of {run.world_first} processes trained at the end",
        expected=str(run.world_first),
        actual=str(run.world_last),
        action="See the timeline for a worker that never joined again, or let the job run longer.",
        source=AGENT,
        launch=run.launch,
    )
