"""The launches of a run: which benchmark, how often, on which nodes, in an order that the run's name seeds.

Order matters: what runs last finds warmer hardware. Shuffling spreads that over all benchmarks instead of always
charging it to the same one (https://github.com/NVIDIA/DCGM/issues/272 shows the effect).
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from fabric_health.checks.check import Launch
from fabric_health.checks.collectives.asked import LAB_PROGRAM, SPLIT, Asked
from fabric_health.checks.collectives.pair_plan import pair_launches
from fabric_health.checks.collectives.settings import GlooSettings, NcclSettings, Settings, settings
from fabric_health.jobs.spec import JobSpec, Resources
from fabric_health.site import Node, Site

LOCAL_UNIT = "localhost"
JSON_FILE = "nccl-tests.json"
_MIB = 1 << 20
# What NCCL logs of one rank at NCCL_DEBUG=INFO with all its channels, generously.
_LOG_BYTES_PER_RANK = 48 << 10


def launches(site: Site, nodes: tuple[Node, ...], run: str) -> tuple[Launch, ...]:
    """Return the launches for ``nodes`` in the order they are to run. Raises SiteError for settings at fault."""
    chosen = settings(site)
    plan: list[Launch] = []
    for engine in chosen.engines:
        if engine == "gloo":
            plan += gloo_launches(chosen)
        elif engine == "perftest":
            plan += pair_launches(chosen, nodes, run)
        else:
            plan += _fleet_launches(chosen, nodes, lab=run if engine == "lab_fleet" else None)
    random.Random(f"collectives {run}").shuffle(plan)  # noqa: S311  an order, not a secret
    return tuple(plan)


def gloo_launches(chosen: Settings) -> list[Launch]:
    """Return the launches of the gloo engine, on the machine that runs jobs: sweeps, and pairs of ranks."""
    plan = []
    for i in range(1, chosen.launches + 1):
        plan.append(gloo_launch(f"gloo-{i}", gloo_spec(chosen.gloo, f"gloo-{i}")))
        if groups := chosen.gloo.pair_groups:
            plan.append(gloo_launch(f"gloo-pairs-{i}", ranks_spec(chosen.gloo, f"gloo-pairs-{i}", groups)))
    return plan


def gloo_launch(name: str, spec: JobSpec) -> Launch:
    """Return a launch of the gloo engine; it measures the machine that runs it."""
    return Launch(name, spec, (LOCAL_UNIT,), origin="measured", unit_kind="machine")


def ranks_spec(gloo: GlooSettings, name: str, groups: Sequence[Sequence[int]]) -> JobSpec:
    """Return the job that measures groups of ranks, one after the other: they share the CPUs.

    An all_reduce of one size that is small, because there a moment without other load is found more easily.
    """
    chosen = gloo.model_copy(
        update={
            "collectives": ("all_reduce",),
            "min_bytes": gloo.pair_bytes,
            "max_bytes": gloo.pair_bytes,
            "iterations": gloo.pair_iterations,
        }
    )
    return gloo_spec(chosen, name, groups)


def gloo_spec(gloo: GlooSettings, name: str, groups: Sequence[Sequence[int]] = ()) -> JobSpec:
    """Return the job of one gloo sweep of all ranks together, or of each of ``groups`` by itself."""
    ranks = max((len(g) for g in groups), default=gloo.ranks)
    options = [
        "--ranks", str(ranks),
        "--collectives", ",".join(gloo.collectives),
        "--min-bytes", str(gloo.min_bytes),
        "--max-bytes", str(gloo.max_bytes),
        "--factor", str(gloo.factor),
        "--iterations", str(gloo.iterations),
        "--warmup", str(gloo.warmup),
        "--timeout", f"{gloo.time_limit_s:g}",
    ]  # fmt: skip
    if groups:
        options += ["--groups", "/".join(",".join(str(m) for m in group) for group in groups)]
    return JobSpec(
        name=name,
        tool="collectives",
        argv=("{python}", "{tool}/" + gloo.program, *options),
        env=dict(gloo.env),
        ranks_per_node=ranks,
        resources=Resources(cpu=float(ranks), memory_mib=1024 + 512 * ranks),
        # The sweep ends itself at its own limit and says where it was; the backend's limit is for one that cannot.
        time_limit_s=gloo.time_limit_s + 60,
    )


def _fleet_launches(chosen: Settings, nodes: Sequence[Node], *, lab: str | None) -> Iterator[Launch]:
    by_sku: dict[str, list[Node]] = {}
    for node in nodes:
        if node.sku.gpus > 0:
            by_sku.setdefault(node.sku_name, []).append(node)
    engine = "nccl" if lab is None else "lab"
    for number, (_, members) in enumerate(sorted(by_sku.items()), 1):
        prefix = engine if len(by_sku) == 1 else f"{engine}-sku{number}"
        for grouping, collective in _benchmarks(chosen.nccl, len(members)):
            for i in range(1, chosen.launches + 1):
                name = f"{prefix}-{collective.replace('_', '-')}-{grouping}-{i}"
                spec = fleet_spec(chosen.nccl, name, collective, grouping, members, lab=lab)
                yield Launch(name, spec, tuple(n.name for n in members))


def _benchmarks(nccl: NcclSettings, nodes: int) -> Iterator[tuple[str, str]]:
    """Yield (grouping, collective). On one node every grouping is the node itself, so it is measured once."""
    for grouping in dict.fromkeys(nccl.groups if nodes > 1 else ("all",)):
        for collective in nccl.collectives if grouping == "all" else nccl.group_collectives:
            yield grouping, collective


def again(launch: Launch, of: Asked, units: Sequence[str], name: str, site: Site, run: str) -> Launch:
    """Return a launch of the fleet again, under another name and on some of its nodes."""
    nodes = [n for n in map(site.unit, units) if isinstance(n, Node)]
    lab = run if of.engine == "lab_fleet" else None
    spec = fleet_spec(settings(site).nccl, name, of.workload, of.grouping, nodes, lab=lab)
    return Launch(name, spec, tuple(n.name for n in nodes), origin=launch.origin)


def fleet_spec(
    nccl: NcclSettings,
    name: str,
    collective: str,
    grouping: str,
    nodes: Sequence[Node],
    *,
    lab: str | None = None,
    ranks_per_node: int | None = None,
) -> JobSpec:
    """Return the job of one nccl-tests program (or the lab's stand-in for it) on ``nodes`` of one SKU.

    ``grouping`` ``node`` and ``rail`` run a communicator per node, or per GPU index across nodes, at the same time.
    ``lab`` names the run whose noise the lab's fleet model draws; None is the real tool. ``ranks_per_node`` GPUs
    of each node take part, None for all of them.
    """
    gpus = nodes[0].sku.gpus
    each = ranks_per_node or gpus
    ranks = each * len(nodes)
    env = dict(nccl.env)
    if grouping != "all":
        env[SPLIT] = f"{'DIV' if grouping == 'node' else 'MOD'} {gpus}"
    options = [
        "-b", str(nccl.min_bytes), "-e", str(nccl.max_bytes), "-f", str(nccl.factor), "-g", "1", "-t", "1",
        "-n", str(nccl.iterations), "-w", str(nccl.warmup), "-c", "1", "-a", "3",
    ]  # fmt: skip
    if nccl.per_iteration:
        options += ["-I", "1", "-J", "{artefacts}/" + JSON_FILE]
    if lab is not None:
        start = ["{python}", "-m", LAB_PROGRAM, collective, "--hosts", "{hosts}", "--run", lab, "--launch", name]
    else:
        start = [w.replace("{ranks_per_node}", str(each)) for w in nccl.mpirun]
        start += ["-np", str(ranks), "--host", "{hosts}"]
        start += [word for key in sorted(env) for word in ("-x", key)]
        # Rank 0 writes the JSON where mpirun put it, which is not where mpirun runs.
        start += ["{rank}", f"{nccl.binaries}/{collective}_perf"]
    return JobSpec(
        name=name,
        tool="nccl-tests" if lab is None else "self",
        argv=(*start, *options),
        env=env,
        nodes=tuple(n.name for n in nodes),
        ranks_per_node=each,
        resources=_resources(nccl, nodes[0], gpus) if lab is None else Resources(),
        time_limit_s=nccl.time_limit_s,
        artefacts=(JSON_FILE,) if nccl.per_iteration else (),
        artefact_max_bytes=64 * _MIB,
        output_max_bytes=min(256 * _MIB, 16 * _MIB + _LOG_BYTES_PER_RANK * ranks),
    )


def _resources(nccl: NcclSettings, node: Node, gpus: int) -> Resources:
    return Resources(
        cpu=nccl.cpu_per_node,
        memory_mib=nccl.memory_mib_per_node,
        gpu=gpus,
        rdma=1 if node.sku.nics else 0,
        shared_memory_mib=nccl.shared_memory_mib,
    )
