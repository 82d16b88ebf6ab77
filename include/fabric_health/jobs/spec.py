"""What a workload is, independent of where it runs, and what running it gave."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Literal

from fabric_health.errors import UsageError
from fabric_health.evidence import MIB


@dataclass(frozen=True)
class SecretReference:
    """A secret by reference: ``connection`` id and ``field`` (``login``, ``password``, ``extra.<key>``), never a value.

    On Kubernetes it becomes a reference to Secret ``connection`` with key ``field``.
    """

    connection: str
    field: str


@dataclass(frozen=True)
class Resources:
    """Per node of the job. ``rdma`` is the count of the cluster's RDMA device resource; memory in MiB."""

    cpu: float = 1.0
    memory_mib: int = 1024
    gpu: int = 0
    rdma: int = 0
    shared_memory_mib: int = 64


class RetryClass(StrEnum):
    """What may be tried again: a measured failure is a result; only trouble of the infrastructure is retried."""

    NEVER = "never"
    INFRASTRUCTURE = "infrastructure"


@dataclass(frozen=True)
class Disturbance:
    """A fault made on purpose: one worker pod of an elastic job is deleted, once, while the job trains.

    The worker is the one whose rank among the job's nodes is ``rank_index``, from 0. It is deleted when a worker's log
    has a line ``EV {json}`` of kind ``step`` with a step of ``at_step`` or more, at the latest when the worker has run
    for ``at_latest_s`` seconds. Raises UsageError for values that are out of range.
    """

    rank_index: int = 1
    at_step: int = 20
    at_latest_s: float = 600.0

    def __post_init__(self) -> None:
        for name, value, least in (
            ("rank_index", self.rank_index, 0),
            ("at_step", self.at_step, 1),
            ("at_latest_s", self.at_latest_s, 1),
        ):
            if not least <= value < 1 << 31:
                raise UsageError(f"disturbance: {name} is {value}; expected {least} or more")


@dataclass(frozen=True)
class JobSpec:
    """One workload.

    ``tool`` names the locked environment of the local backend (``include/tools/<tool>``; "" and "self" are the
    interpreter that runs fabric-health) and the key of the image in the site's ``images``; ``argv`` is a list
    (``{python}`` stands for the environment's interpreter, ``{tool}`` for the tool's folder, ``{artefacts}`` for the
    directory whose files are kept, ``{hosts}`` for the comma-separated host list, ``{models}`` for the folder in which
    models stay from job to job; so they do in values of ``env``). The word ``{rank}``, before the
    ranks' command line within the launcher's, says that rank 0 writes the artefacts, on a node that need not be the
    launcher's. ``env`` holds plain values, ``secrets`` references. ``nodes`` are the units it must run on,
    ``ranks_per_node`` processes on each.
    ``artefacts`` are file names below the artefact directory that are kept as evidence, each at most
    ``artefact_max_bytes``. ``family`` says how a job's nodes work together: ``mpi`` (one launcher starts the ranks
    over SSH; ``argv`` is the launcher's) or ``elastic`` (``argv`` runs on every node, and a node may be replaced).
    ``disturb`` asks the backend to take a worker away from an elastic job. Kubernetes alone does; the local backend
    refuses, since programs there make their faults themselves.
    """

    name: str
    tool: str
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, SecretReference] = field(default_factory=dict)
    nodes: tuple[str, ...] = ()
    ranks_per_node: int = 1
    resources: Resources = Resources()
    time_limit_s: float = 600.0
    artefacts: tuple[str, ...] = ()
    artefact_max_bytes: int = 16 * MIB
    output_max_bytes: int = 16 * MIB
    retry: RetryClass = RetryClass.INFRASTRUCTURE
    family: Literal["mpi", "elastic"] = "mpi"
    disturb: Disturbance | None = None


class JobStatus(StrEnum):
    """How a job ended. ``EXITED`` says nothing about success: its exit code and its output do."""

    EXITED = "exited"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    LOST = "lost"
    NOT_STARTED = "not_started"


@dataclass(frozen=True)
class JobResult:
    """What running a job gave. ``reason`` is for a person: what kept it from starting or ended it, and what to do.

    ``exit_code`` is 128 + n for a process that signal n ended, as shells have it. ``truncated`` says that output was
    cut or lost, so that it is not the whole answer; an artefact that is missing or too large is absent and named in
    ``reason``.
    """

    name: str
    status: JobStatus
    exit_code: int | None
    stdout: str
    stderr: str
    started_at: datetime
    ended_at: datetime
    reason: str = ""
    artefacts: Mapping[str, bytes] = field(default_factory=dict)
    hosts: tuple[str, ...] = ()
    truncated: bool = False
