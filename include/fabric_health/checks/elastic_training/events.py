"""What happened in a launch, in one shape, whoever tells of it; readers return these, rows are made of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Source(StrEnum):
    """Who tells of an event."""

    MASTER = "master"
    AGENT = "agent"
    TRAINING = "training"
    INJECTOR = "injector"
    KUBERNETES = "kubernetes"


class Kind(StrEnum):
    """What happened."""

    # Told by the training program.
    START = "start"
    RESUME = "resume"
    STEP = "step"
    SAVE = "save"
    DONE = "done"
    # Told by DLRover's master and agents.
    RENDEZVOUS = "rendezvous"
    CHECK_RENDEZVOUS = "check_rendezvous"
    NODE_CHECK = "node_check"
    NODE_CHECK_FAILED = "node_check_failed"
    STRAGGLER = "straggler"
    WORKER_FAILED = "worker_failed"
    NODE_LOST = "node_lost"
    RESTART = "restart"
    RESTARTS_LEFT = "restarts_left"
    CHECKPOINT_LOADED = "checkpoint_loaded"
    DOWNGRADED = "downgraded"
    PERFORMANCE = "performance"
    EXIT = "exit"
    STRUCTURED = "structured"
    # Injected.
    KILL_RANK = "kill-rank"
    HANG_RANK = "hang-rank"
    LOSE_AGENT = "lose-agent"
    RETURN_AGENT = "return-agent"
    DELETE_WORKER = "delete-worker"
    # Seen of pods.
    POD_CREATED = "pod_created"
    POD_RUNNING = "pod_running"
    POD_DELETED = "pod_deleted"
    POD_GONE = "pod_gone"
    POD_SUCCEEDED = "pod_succeeded"
    POD_FAILED = "pod_failed"


FAULTS = frozenset({Kind.KILL_RANK, Kind.HANG_RANK, Kind.LOSE_AGENT, Kind.DELETE_WORKER})
INJECTED = FAULTS | {Kind.RETURN_AGENT}
# What a log says of a failure. A restart counts: agents restart their workers when another node is lost.
FAILURES = frozenset({Kind.WORKER_FAILED, Kind.NODE_LOST, Kind.RESTART})


@dataclass(frozen=True)
class Event:
    """One event. ``at`` is seconds since 1970; ``node`` is a rank within the job, or a pod, until names are known.

    ``value`` is what the kind counts: restarts that are left. Of pods and of a deleted worker ``peer`` is the rank of
    its node within the job, which a pod made in its place keeps, and ``value`` its id, which it does not.
    """

    kind: Kind
    source: Source
    at: float | None = None
    node: str | None = None
    rank: int | None = None
    world: int | None = None
    step: int | None = None
    restart: int | None = None
    loss: float | None = None
    detail: str | None = None
    value: int | None = None
    peer: int | None = None


@dataclass(frozen=True)
class CheckLine:
    """What one line tells of a node check: by rank, or by node id where ``by_id``, whichever the line has."""

    round: int
    elapsed: Mapping[int, float] = field(default_factory=dict)
    passed: Mapping[int, bool] = field(default_factory=dict)
    stragglers: frozenset[int] = frozenset()
    by_id: bool = False


@dataclass
class Reading:
    """What one text gave. ``cut`` says that it has more events than are kept.

    ``ranks`` is rank by node id, as the master's rendezvous tell it. ``damaged`` counts lines that ought to be events
    and are none.
    """

    events: list[Event] = field(default_factory=list)
    checks: list[CheckLine] = field(default_factory=list)
    ranks: dict[int, int] = field(default_factory=dict)
    damaged: int = 0
    cut: bool = False
