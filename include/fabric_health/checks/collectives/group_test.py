"""One test of isolation: an all_reduce of a few nodes or ranks, and the bandwidth it gave."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from fabric_health.checks.check import Launch
from fabric_health.checks.collectives.launches import fleet_spec
from fabric_health.checks.collectives.parse import parse
from fabric_health.checks.collectives.peers import largest_size
from fabric_health.checks.collectives.settings import NcclSettings
from fabric_health.checks.collectives.tables import Collective, LaunchProblem
from fabric_health.checks.collectives.validate import OF_THE_GROUP
from fabric_health.evidence import ReachStatus, UnitEvidence
from fabric_health.jobs.spec import JobSpec
from fabric_health.site import Node, Site

COLLECTIVE = "all_reduce"


@dataclass(frozen=True)
class GroupResult:
    """Bus bandwidth in GB/s, or None with the ``reason``; ``excused`` when that says nothing about the nodes."""

    busbw_gbps: float | None
    reason: str = ""
    excused: bool = False


def group_spec(
    nccl: NcclSettings, name: str, nodes: Sequence[Node], rail: int | None, *, lab: str | None = None
) -> JobSpec:
    """Return the job of one test: rings over all GPUs of ``nodes``, or over the one GPU of each that is on ``rail``.

    Rings, because they cross the network on every rail with equal shares: on two nodes NCCL's own choice is limited by
    NVLink and hides a slow rail. A rail alone uses its own NIC only, so that no other NIC stands in for it.

    :raises ValueError: no GPU is on that rail.
    """
    env = {**nccl.env, "NCCL_ALGO": "Ring"}
    if rail is not None:
        nic = next((n for n in nodes[0].sku.nics if n.rail == rail and n.gpu is not None), None)
        if nic is None:
            raise ValueError(f"{nodes[0].sku_name} has no GPU on rail {rail}")
        env |= {"NCCL_TESTS_DEVICE": str(nic.gpu), "NCCL_IB_HCA": f"={nic.name}"}
    chosen = nccl.model_copy(update={"min_bytes": nccl.max_bytes, "per_iteration": False, "env": env})
    each = None if rail is None else 1
    return fleet_spec(chosen, name, COLLECTIVE, "all", nodes, lab=lab, ranks_per_node=each)


def group_result(launch: Launch, evidence: UnitEvidence, site: Site) -> GroupResult:
    """Return what a test gave. Never raises for anything it printed; fails closed as the check itself does."""
    if evidence.status is not ReachStatus.OK:
        hung = evidence.status is ReachStatus.HUNG
        return GroupResult(None, f"{evidence.status.value}: {evidence.detail}"[:300], excused=not hung)
    rows = parse(launch, evidence, site)
    # Any other refusal is of the launch, not of its members.
    broken = [p for p in rows if isinstance(p, LaunchProblem) and (p.refuses or p.rule in OF_THE_GROUP)]
    if broken:
        worst = min(broken, key=lambda p: (p.rule not in OF_THE_GROUP, p.rule))
        return GroupResult(None, f"{worst.rule}: {worst.detail}"[:300], excused=worst.rule not in OF_THE_GROUP)
    found = [r for r in rows if isinstance(r, Collective) and r.group_kind in ("all", "ranks")]
    if not found:
        return GroupResult(None, "the launch gave no number", excused=True)
    return GroupResult(median(r.busbw_gbps for r in largest_size(found)))
