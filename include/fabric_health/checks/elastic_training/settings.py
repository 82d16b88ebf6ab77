"""Settings of the check, under ``checks.elastic_training`` of a site file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from fabric_health.errors import SiteError, settings_error
from fabric_health.site import Site

PAGE = "docs/checks/elastic_training.md"
Fault = Literal["kill-rank", "lose-agent", "return-agent", "hang-rank", "delete-worker"]
Backend = Literal["local", "kubernetes"]
LOCAL_FAULTS: tuple[Fault, ...] = ("kill-rank", "lose-agent", "return-agent", "hang-rank")
# A job that hangs is ended and fails: that is asked for on purpose only.
USUAL_FAULTS: tuple[Fault, ...] = LOCAL_FAULTS[:3]
CLUSTER_FAULTS: tuple[Fault, ...] = ("delete-worker",)
# With three running nodes or fewer DLRover ends the whole group at the first node that fails its check, or that is
# excluded (dlrover/python/elastic_agent/torch/training.py, NodeCheckElasticAgent.run).
LEAST_WORKERS = 4
LEAST_AGENTS = 2
OUR_PROGRAM = "{tool}/train.py"
OUR_TRAINING = (
    OUR_PROGRAM,
    "--steps",
    "{steps}",
    "--checkpoint-every",
    "{checkpoint_every}",
    "--disk-every",
    "1",
    "--checkpoints",
    "{checkpoints}",
)
_Word = Annotated[str, StringConstraints(min_length=1, max_length=4096, pattern=r"^[^\x00-\x1f]+$")]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, str_strip_whitespace=True)


class Limits(_Model):
    """What a launch is held to. Times in s."""

    start_s: float = Field(
        300, gt=0, le=86_400, description="D1: from the start of the job to the first step, images being there"
    )
    node_check_ratio: float = Field(
        2.0, gt=1, le=100, description="D2: time of a node's check / lower median of all nodes"
    )
    replaced_s: float = Field(
        120, gt=0, le=86_400, description="D3: until another pod runs in place of one that was deleted"
    )
    resumed_s: float = Field(300, gt=0, le=86_400, description="D4: from a fault to the first step after it")
    resumed_after_hang_s: float = Field(
        600, gt=0, le=86_400, description="D4 of a silent fault: DLRover's heartbeat window is 300 s"
    )
    lost_steps: int | None = Field(
        None, ge=0, le=1_000_000_000, description="steps that a fault may cost; default: checkpoint_every"
    )
    loss_rise: float = Field(
        0.3, ge=0, le=10, description="D5: share by which the loss after a fault may lie above the one before it"
    )


class Resources(_Model):
    """Of one worker pod, on Kubernetes."""

    cpu: float = Field(8, gt=0, le=10_000, description="CPUs of a worker")
    memory_mib: int = Field(32_768, ge=256, le=100_000_000, description="memory of a worker, MiB")
    gpu: int | None = Field(None, ge=0, le=64, description="GPUs of a worker; default: all of its node")
    rdma: bool = Field(True, description="ask for the node's RDMA devices, where its SKU has NICs")
    shared_memory_mib: int = Field(
        16_384, ge=64, le=100_000_000, description="shared memory, MiB: DLRover keeps checkpoints there"
    )


class Settings(_Model):
    """How elastic training is run, disturbed and judged."""

    launches: int = Field(1, ge=1, le=20, description="independent repetitions")
    workers: int | None = Field(
        None, ge=1, le=4096, description="agents (local, default 2) or worker pods (Kubernetes, default 4, at least 4)"
    )
    min_workers: int | None = Field(
        None, ge=1, le=4096, description="workers with which training may go on; default: one less than workers"
    )
    steps: int = Field(400, ge=20, le=1_000_000_000, description="training steps of a launch")
    checkpoint_every: int = Field(5, ge=1, le=1_000_000, description="steps between checkpoints")
    max_restarts: int = Field(3, ge=1, le=100, description="restarts that a worker may use; DLRover's own default is 0")
    faults: tuple[Fault, ...] | None = Field(
        None,
        max_length=8,
        description="faults that are injected, in this order; default: kill-rank, lose-agent, return-agent (local), "
        "delete-worker (Kubernetes)",
    )
    node_check: bool = Field(True, description="DLRover's check of nodes; locally a launch of its own")
    exclude_straggler: bool = Field(True, description="Kubernetes: nodes that the node check finds slow are left out")
    program: str = Field(
        "elastic_smoke.py",
        pattern=r"^[\w./-]+$",
        max_length=200,
        description="local: program in the tool's folder; lab faults wrap it",
    )
    launcher: tuple[_Word, ...] = Field(
        ("dlrover-run",), min_length=1, max_length=16, description="Kubernetes: what starts an agent in each pod"
    )
    training: tuple[_Word, ...] = Field(
        OUR_TRAINING,
        min_length=1,
        max_length=64,
        description="Kubernetes: training program with its arguments; {steps}, {checkpoint_every} and {checkpoints} "
        "are filled in",
    )
    checkpoints: str = Field(
        "{models}/elastic-training",
        min_length=1,
        max_length=1024,
        description="Kubernetes: folder of checkpoints that all pods share; a folder of the launch is made in it",
    )
    processes: int | None = Field(
        None, ge=1, le=64, description="training processes of a worker; default: one for each GPU, at least one"
    )
    join_timeout_s: int = Field(
        600, ge=1, le=86_400, description="Kubernetes: how long agents wait for enough others, and for a place"
    )
    lastcall_timeout_s: int = Field(
        30, ge=1, le=3600, description="Kubernetes: how long those that are there wait for more"
    )
    fault_at_step: int = Field(
        20, ge=1, le=1_000_000_000, description="Kubernetes: step at which a worker pod is deleted"
    )
    fault_latest_s: float = Field(
        600, ge=1, le=86_400, description="Kubernetes: a pod that has run this long is deleted at whatever step it is"
    )
    env: dict[str, str] = Field(
        default_factory=lambda: {"OMP_NUM_THREADS": "1"}, max_length=100, description="environment of the training"
    )
    resources: Resources = Resources()
    time_limit_s: float | None = Field(
        None, gt=0, le=86_400, description="of a launch; default: 300 (local), 1800 (Kubernetes)"
    )
    stall_limit_s: float | None = Field(
        None,
        gt=0,
        le=86_400,
        description="without any step for this long, training hangs; default: 60 (local), 600 (Kubernetes)",
    )
    limits: Limits = Limits()

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.workers is not None and self.min_workers is not None and self.min_workers > self.workers:
            raise ValueError(f"min_workers is {self.min_workers}, more than the {self.workers} workers")
        if self.checkpoint_every * 2 > self.steps:
            raise ValueError(
                f"checkpoint_every is {self.checkpoint_every} of {self.steps} steps; expected at most half of them: "
                "else training cannot go on from a checkpoint"
            )
        if self.fault_at_step >= self.steps:
            raise ValueError(f"fault_at_step is {self.fault_at_step} of {self.steps} steps; expected an earlier one")
        return self


class Asked(_Model):
    """What a site asks for, with what follows from its backend filled in."""

    backend: Backend
    workers: int
    min_workers: int
    faults: tuple[Fault, ...]
    time_limit_s: float
    stall_limit_s: float
    lost_steps: int
    steps: int | None
    own: Settings


def backend_of(site: Site) -> Backend:
    """Return where the site runs its jobs."""
    return "kubernetes" if site.jobs.get("backend") == "kubernetes" else "local"


def image_of(site: Site, tool: str) -> str | None:
    """Return the image that the site names for a tool, None where it names none."""
    cluster = site.jobs.get("kubernetes")
    images = cluster.get("images") if isinstance(cluster, Mapping) else None
    image = images.get(tool) if isinstance(images, Mapping) else None
    return image if isinstance(image, str) else None


def settings(site: Site) -> Settings:
    """Return the site's settings. Raises SiteError naming each key at fault and what was expected."""
    try:
        chosen = Settings.model_validate(dict(site.checks.get("elastic_training", {})))
    except ValidationError as error:
        raise settings_error(error, str(site.path), "checks.elastic_training", PAGE) from None
    fault = _misfit(chosen, backend_of(site))
    if fault:
        raise SiteError(f"{site.path}: checks.elastic_training.{fault}")
    return chosen


def asked(site: Site) -> Asked:
    """Return what the site asks for on its backend. Raises SiteError like :func:`settings`."""
    own = settings(site)
    backend = backend_of(site)
    local = backend == "local"
    workers = own.workers or (LEAST_AGENTS if local else LEAST_WORKERS)
    known = local or any("{steps}" in word for word in own.training)
    return Asked(
        backend=backend,
        workers=workers,
        min_workers=own.min_workers or max(1, workers - 1),
        faults=own.faults if own.faults is not None else USUAL_FAULTS if local else CLUSTER_FAULTS,
        time_limit_s=own.time_limit_s or (300 if local else 1800),
        stall_limit_s=own.stall_limit_s or (60 if local else 600),
        lost_steps=own.checkpoint_every if own.limits.lost_steps is None else own.limits.lost_steps,
        steps=own.steps if known else None,
        own=own,
    )


def _misfit(chosen: Settings, backend: Backend) -> str:
    """Say which key does not fit the backend, and what was expected; empty when all do."""
    local = backend == "local"
    workers = chosen.workers or (LEAST_AGENTS if local else LEAST_WORKERS)
    if not local and workers < LEAST_WORKERS:
        return (
            f"workers: {workers}; expected {LEAST_WORKERS} or more: with three running nodes or fewer DLRover ends the "
            "whole group at a failed node, or at a slow one that it leaves out"
        )
    if local and workers < LEAST_AGENTS:
        return f"workers: {workers}; expected {LEAST_AGENTS} or more: one agent has nobody to lose"
    possible = LOCAL_FAULTS if local else CLUSTER_FAULTS
    faults = chosen.faults if chosen.faults is not None else USUAL_FAULTS if local else CLUSTER_FAULTS
    wrong = [f for f in faults if f not in possible]
    if wrong:
        return f"faults: {', '.join(wrong)}; the {backend} backend has {', '.join(possible)}"
    if faults.count("delete-worker") > 1:
        return "faults: delete-worker more than once; expected it once: a launch deletes one pod. Set launches for more"
    if fault := _misordered(faults, workers, chosen.min_workers or max(1, workers - 1)):
        return f"faults: {fault}"
    if not local and chosen.exclude_straggler and not chosen.node_check:
        return "exclude_straggler: true without node_check, which finds stragglers; expected both, or neither"
    return ""


def _misordered(faults: Sequence[Fault], workers: int, least: int) -> str:
    """Say which fault cannot come where it stands, and why; empty when all can."""
    alive = workers
    for n, fault in enumerate(faults):
        if fault in ("lose-agent", "delete-worker"):
            alive -= 1
            if alive < least:
                return f"{fault} leaves {alive} of {workers} workers, and training goes on with {least} or more only"
            alive += fault == "delete-worker"  # the cluster makes another pod
        if fault == "return-agent":
            alive += 1
            if alive > workers:
                return "return-agent without a lose-agent before it"
        if fault == "hang-rank" and n + 1 < len(faults):
            return "something comes after hang-rank; expected it last: a job that hangs is ended"
    return ""
