"""Which launches a run makes: on one machine agents and a master; on a cluster an ElasticJob that loses a worker."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

from fabric_health.checks.check import Launch
from fabric_health.checks.elastic_training.settings import LEAST_WORKERS, Asked, asked
from fabric_health.jobs.spec import Disturbance, JobSpec, Resources
from fabric_health.site import Node, Site

# What a launch measures: the job as a whole. Its nodes are as good as their own checks say.
UNIT, UNIT_KIND = "elastic", "job"
TOOL = "dlrover"
JOB_FILE, TRAINING_FILE, FAULTS_FILE, PODS_FILE = "job.json", "training.jsonl", "faults.jsonl", "pods.jsonl"
MASTER_LOG = "master.log"
# Beside what the program allows itself: the backend's limit is for one that cannot end.
SLACK_S = 60.0
_MIB = 1 << 20
CHECK, FAULTS = "elastic-check", "elastic"


def launches(site: Site, nodes: tuple[Node, ...], run: str) -> tuple[Launch, ...]:
    """Return the run's launches; none where fewer nodes are fit than workers were asked for.

    Raises SiteError for settings that cannot be used.
    """
    wanted = asked(site)
    if wanted.backend == "local":
        return tuple(_local_launches(wanted))
    chosen = chosen_nodes(wanted, nodes, run)
    if not chosen:
        return ()
    names = [f"{FAULTS}-{i}" for i in range(1, wanted.own.launches + 1)]
    return tuple(_launch(name, _cluster_spec(wanted, name, chosen, run)) for name in names)


def injects_faults(name: str) -> bool:
    """Tell whether a launch of that name injects faults; the other kind checks nodes."""
    return not name.startswith(f"{CHECK}-")


def chosen_nodes(wanted: Asked, nodes: Sequence[Node], run: str) -> tuple[Node, ...]:
    """Return as many fit nodes of one SKU as there are workers, others in each run; empty where there are not enough.

    Of one SKU: among different ones the slower would be a straggler by its make.
    """
    by_sku: dict[str, list[Node]] = {}
    for node in nodes:
        by_sku.setdefault(node.sku_name, []).append(node)
    gpus = wanted.own.resources.gpu
    able = [
        members
        for _, members in sorted(by_sku.items())
        if len(members) >= wanted.workers and (members[0].sku.gpus >= gpus if gpus else True)
    ]
    if gpus is None:
        # Without a word about GPUs, nodes that have some go first.
        able = [m for m in able if m[0].sku.gpus > 0] or able
    if not able:
        return ()
    draw = random.Random(f"elastic_training {run}")  # noqa: S311  which nodes come first, not a secret
    return tuple(draw.sample(draw.choice(able), wanted.workers))


def _local_launches(wanted: Asked) -> list[Launch]:
    plan = []
    faults = ("--faults", ",".join(wanted.faults)) if wanted.faults else ()
    for i in range(1, wanted.own.launches + 1):
        if wanted.own.node_check:
            plan.append(_local(wanted, f"{CHECK}-{i}", max(LEAST_WORKERS, wanted.workers), ("--node-check",)))
        plan.append(_local(wanted, f"{FAULTS}-{i}", wanted.workers, faults))
    return plan


def _launch(name: str, spec: JobSpec) -> Launch:
    return Launch(name, spec, (UNIT,), origin="measured", unit_kind="job")


def _local(wanted: Asked, name: str, agents: int, more: tuple[str, ...]) -> Launch:
    own = wanted.own
    least = wanted.min_workers if injects_faults(name) else agents - 1
    spec = JobSpec(
        name=name,
        tool=TOOL,
        argv=(
            "{python}", "{tool}/" + own.program,
            "--out", "{artefacts}",
            "--agents", str(agents),
            "--min-agents", str(least),
            "--steps", str(own.steps),
            "--checkpoint-every", str(own.checkpoint_every),
            # What is in the memory of a lost node is lost with it: each checkpoint goes to the shared folder, too.
            "--disk-every", "1",
            "--max-restarts", str(own.max_restarts),
            *more,
            "--stall-limit", f"{wanted.stall_limit_s:g}",
            "--limit", f"{wanted.time_limit_s:g}",
        ),
        env={**own.env, "TZ": "UTC"},
        resources=Resources(cpu=float(agents), memory_mib=2048 + 1024 * agents),
        time_limit_s=wanted.time_limit_s + SLACK_S,
        artefacts=tuple(local_files(name, agents)),
    )  # fmt: skip
    return _launch(name, spec)


def local_files(name: str, agents: int) -> list[str]:
    """Return the files that a launch on one machine leaves; of agents that came back, where any does."""
    logs = [MASTER_LOG, *(f"agent-{i}.log" for i in range(agents))]
    if not injects_faults(name):
        return [JOB_FILE, *logs]
    return [JOB_FILE, TRAINING_FILE, FAULTS_FILE, *logs, *(f"agent-{i}-again.log" for i in range(1, agents))]


def _cluster_spec(wanted: Asked, name: str, nodes: Sequence[Node], run: str) -> JobSpec:
    own, sku = wanted.own, nodes[0].sku
    gpus = sku.gpus if own.resources.gpu is None else own.resources.gpu
    processes = own.processes or max(1, gpus)
    # Of this run alone: training would go on from what another one left.
    folder = "/".join((own.checkpoints.rstrip("/"), re.sub(r"[^\w.-]+", "-", run)[:100], name))
    times = f"join_timeout={own.join_timeout_s},lastcall_timeout={own.lastcall_timeout_s}"
    options = [
        f"--nnodes={wanted.min_workers}:{wanted.workers}",
        f"--nproc_per_node={processes}",
        f"--max_restarts={own.max_restarts}",
        "--rdzv_conf", f"{times},pend_timeout={own.join_timeout_s}",
    ]  # fmt: skip
    options += ["--network-check"] if own.node_check else []
    options += ["--exclude-straggler"] if own.node_check and own.exclude_straggler else []
    return JobSpec(
        name=name,
        tool=TOOL,
        argv=(*own.launcher, *options, *(_filled(word, wanted, folder) for word in own.training)),
        env={**own.env, "TZ": "UTC"},
        nodes=tuple(n.name for n in nodes),
        ranks_per_node=processes,
        resources=Resources(
            cpu=own.resources.cpu,
            memory_mib=own.resources.memory_mib,
            gpu=gpus,
            rdma=1 if own.resources.rdma and sku.nics else 0,
            shared_memory_mib=own.resources.shared_memory_mib,
        ),
        time_limit_s=wanted.time_limit_s,
        output_max_bytes=32 * _MIB,
        family="elastic",
        disturb=_disturbance(wanted),
    )


def _disturbance(wanted: Asked) -> Disturbance | None:
    if "delete-worker" not in wanted.faults:
        return None
    # Rank 0 keeps what others need to meet again, so another one goes.
    return Disturbance(rank_index=1, at_step=wanted.own.fault_at_step, at_latest_s=wanted.own.fault_latest_s)


def _filled(word: str, wanted: Asked, folder: str) -> str:
    """Return a word of the training's command line with what the check knows; the backend fills in the rest."""
    values = {
        "{steps}": str(wanted.own.steps),
        "{checkpoint_every}": str(wanted.own.checkpoint_every),
        "{checkpoints}": folder,
    }
    for placeholder, value in values.items():
        word = word.replace(placeholder, value)
    return word
