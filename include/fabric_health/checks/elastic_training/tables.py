"""Tables of elastic training: what happened when, how each launch ended, how each fault was survived, node checks."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from fabric_health.datasets.contracts import Row, column, optional


@dataclass(frozen=True)
class ElasticEvent(Row):
    TABLE: ClassVar[str] = "elastic_events"
    KEY: ClassVar[tuple[str, ...]] = ("run", "launch", "seq")
    DESCRIPTION: ClassVar[str] = (
        "What happened in a launch of elastic training, in the order of time: the timeline of the run. Of many steps "
        "only some are kept, evenly; all other events are."
    )

    launch: str = column("launch")
    seq: int = column("number of the event within its launch, in the order of time", minimum=0)
    source: str = column("who tells of it: `master`, `agent`, `training`, `injector` or `kubernetes`")
    kind: str = column("kind of the event, e.g. `start`, `step`, `rendezvous`, `worker_failed`, `kill-rank`")
    event_at: datetime | None = optional("when, UTC; null where the line has no time that lies within the launch")
    node: str | None = optional("node, where known; else the rank of the node within the job, or the pod")
    rank: int | None = optional("rank of the process", minimum=0)
    world_size: int | None = optional(
        "processes that train together; of a rendezvous without that, its nodes", minimum=0
    )
    step: int | None = optional("training step", minimum=0)
    restart_count: int | None = optional("restarts of the node's workers so far", minimum=0)
    loss: float | None = optional("loss of the step")
    detail: str | None = optional("more about it, untrusted text")


@dataclass(frozen=True)
class ElasticRun(Row):
    TABLE: ClassVar[str] = "elastic_runs"
    KEY: ClassVar[tuple[str, ...]] = ("run", "launch")
    DESCRIPTION: ClassVar[str] = (
        "One row per launch of elastic training: how it was asked for and how it ended. Where `problem` is set the "
        "evidence does not tell what happened, and nothing of it is compared."
    )

    launch: str = column("launch")
    backend: str = column("`local`: agents on one machine; `kubernetes`: an ElasticJob with a pod per node")
    workers: int = column("agents or worker pods that were asked for", minimum=1)
    min_workers: int = column("workers with which training may go on", minimum=1)
    max_restarts: int = column("restarts that a worker may use", minimum=0)
    final_status: str = column(
        "`succeeded`: ended by itself with exit code 0, trained to the last step; `failed`, `no_steps` (exit code 0 "
        "without training), `unfinished` (exit code 0 before the last step), `hung`, `limit` (out of time), `unknown`"
    )
    restarts: int = column("restarts that were seen, the highest of all workers", minimum=0)
    comparability: str = column("what must be equal for two results to be compared")
    checkpoint_every: int | None = optional("steps between checkpoints", unit="steps", minimum=1)
    started_at: datetime | None = optional("start of the job, UTC")
    start_s: float | None = optional("from the start of the job to the first step", unit="s", minimum=0)
    steps: int | None = optional("last step that was seen", unit="steps", minimum=0)
    steps_asked: int | None = optional("steps that were asked for", unit="steps", minimum=0)
    loss_first: float | None = optional("median loss of the first steps, at most ten")
    loss_last: float | None = optional("median loss of the last steps, at most ten")
    world_first: int | None = optional("processes that trained together at the first step", minimum=0)
    world_last: int | None = optional("processes that trained together at the last step", minimum=0)
    stall_s: float | None = optional(
        "longest time between two steps of the job, times around faults left out", unit="s", minimum=0
    )
    exit_code: int | None = optional("exit code of the job")
    peak_memory_mib: float | None = optional("peak memory of all its processes", unit="MiB", minimum=0)
    reason: str | None = optional("what the job says of its end, untrusted text")
    left_over: str | None = optional("processes and files that the job left behind, untrusted text")
    unread: str | None = optional("evidence that is missing, cut or damaged, comma separated")
    versions: str | None = optional("versions of DLRover, torch and Python, as the job says")
    problem: str | None = optional("why the launch cannot be judged; null when it can")


@dataclass(frozen=True)
class ElasticRecovery(Row):
    TABLE: ClassVar[str] = "elastic_recoveries"
    KEY: ClassVar[tuple[str, ...]] = ("run", "launch", "fault")
    DESCRIPTION: ClassVar[str] = (
        "How training went on after each fault that was injected. Times count from the fault; null means that it was "
        "not seen, and `problem` says what that means."
    )

    launch: str = column("launch")
    fault: int = column("number of the fault within its launch, in the order of time, from 1", minimum=1)
    kind: str = column(
        "`kill-rank`, `hang-rank`, `lose-agent`, `delete-worker`; `return-agent` is no fault: a lost agent comes back"
    )
    injected_at: datetime = column("when, UTC")
    node: str | None = optional("node, where known; else the rank of the node within the job, or the pod")
    rank: int | None = optional("rank that the fault hit", minimum=0)
    detected_s: float | None = optional("until a log says that something failed", unit="s", minimum=0)
    rendezvous_s: float | None = optional("until the workers have met again", unit="s", minimum=0)
    resumed_s: float | None = optional("until the first step after that", unit="s", minimum=0)
    replaced_s: float | None = optional("until another worker pod of the same rank runs", unit="s", minimum=0)
    step_at_fault: int | None = optional(
        "last step before the fault; of an agent's return: before the workers restart for it", unit="steps", minimum=0
    )
    step_resumed: int | None = optional("step of the checkpoint that training went on from", unit="steps", minimum=0)
    lost_steps: int | None = optional("steps that were trained twice: the one minus the other", unit="steps", minimum=0)
    world_before: int | None = optional("processes that trained together before", minimum=0)
    world_after: int | None = optional("processes that trained together at the first step after", minimum=0)
    loss_before: float | None = optional("median loss of the steps before the fault, at most ten")
    loss_after: float | None = optional("median loss of the last steps before the next fault or the end, at most ten")
    loaded_from: str | None = optional("`memory` or `storage`, where DLRover says which checkpoint it took")
    problem: str | None = optional("what was not seen; null when training went on and all of it was seen")


@dataclass(frozen=True)
class ElasticNodeCheck(Row):
    TABLE: ClassVar[str] = "elastic_node_checks"
    KEY: ClassVar[tuple[str, ...]] = ("run", "launch", "round", "node")
    DESCRIPTION: ClassVar[str] = "DLRover's check of nodes before training: one row per round and node."

    launch: str = column("launch")
    round: int = column("round, as numbered by who tells of it", minimum=0)
    node: str = column("node, where known; else its rank within the job")
    elapsed_s: float | None = optional("time of matrix products and an all_gather on the node", unit="s", minimum=0)
    passed: bool | None = optional("whether the node passed")
    straggler: bool | None = optional("whether DLRover says that it is one: beyond twice the median of all nodes")
