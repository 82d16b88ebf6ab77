"""Which nodes are measured two by two, and the job of such a pair.

Rotating pairs are drawn with the run's name as seed: over the runs every pair comes up, and ``coverage`` remembers
which have. Within a run no pair comes twice (the circle method of round-robin tournaments). A ring is the same in each
run: every node writes to the next one, so that every NIC sends once and receives once.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from fabric_health.checks.check import Launch
from fabric_health.checks.collectives.settings import NcclSettings, PerftestSettings, Settings
from fabric_health.jobs.spec import JobSpec, Resources
from fabric_health.site import Nic, Node

RUNNER = "perftest_pair.py"
# Beside the transfer: memory is registered, queue pairs are connected, the tool warms up and writes its report.
_TEST_SLACK_S = 30
_START_S = 60
_PER_TEST_S = 4


def pair_launches(chosen: Settings, nodes: Sequence[Node], run: str) -> list[Launch]:
    """Return the launches of a run: pairs of nodes of one SKU, at most ``max_launches``.

    A node without a NIC on the rails asked for is left out, and so is one without a partner.
    """
    perftest = chosen.perftest
    by_sku: dict[str, list[Node]] = {}
    for node in nodes:
        if nics_of(node, perftest):
            by_sku.setdefault(node.sku_name, []).append(node)
    pairs: list[tuple[Node, Node]] = []
    for name, members in sorted(by_sku.items()):
        if perftest.pairs == "ring":
            pairs += ring(members)
        else:
            pairs += rotating(members, perftest.rounds, f"perftest {run} {name}")
    # Which ones a budget leaves out is drawn too, or the last ones would never be measured.
    random.Random(f"perftest budget {run}").shuffle(pairs)  # noqa: S311  an order, not a secret
    out = []
    for number, (client, server) in enumerate(pairs[: perftest.max_launches], 1):
        name = f"perftest-{number}"
        spec = pair_spec(perftest, chosen.nccl, name, server, client)
        out.append(Launch(name, spec, (server.name, client.name), unit_kind="pair"))
    return out


def rotating(nodes: Sequence[Node], rounds: int, seed: str) -> list[tuple[Node, Node]]:
    """Return (client, server) of ``rounds`` rounds; in each a node is in one pair at most, and no pair comes twice."""
    draw = random.Random(seed)  # noqa: S311  which pairs come first, not a secret
    circle: list[Node | None] = [*nodes]
    draw.shuffle(circle)
    if len(circle) % 2:
        circle.append(None)  # whoever meets it rests in this round
    out: list[tuple[Node, Node]] = []
    half = len(circle) // 2
    for _ in range(min(rounds, len(circle) - 1) if len(nodes) > 1 else 0):
        for a, b in zip(circle[:half], reversed(circle[half:]), strict=True):
            if a is not None and b is not None:
                out.append((a, b) if draw.random() < 0.5 else (b, a))
        circle = [circle[0], circle[-1], *circle[1:-1]]
    return out


def ring(nodes: Sequence[Node]) -> list[tuple[Node, Node]]:
    """Return (client, server): each node writes to the next one, the last to the first."""
    if len(nodes) < 2:
        return []
    return list(zip(nodes, [*nodes[1:], nodes[0]], strict=True))


def nics_of(node: Node, perftest: PerftestSettings) -> tuple[Nic, ...]:
    """Return the NICs of a node that are measured; from GPU to GPU only those that have one."""
    return tuple(
        n
        for n in node.sku.nics
        if (not perftest.rails or n.rail in perftest.rails) and (n.gpu is not None or not perftest.gpudirect)
    )


def pair_spec(perftest: PerftestSettings, nccl: NcclSettings, name: str, server: Node, client: Node) -> JobSpec:
    """Return the job in which ``client`` measures against ``server``, each NIC with the one of the same name."""
    nics = nics_of(server, perftest)
    tests = len(nics) * len(perftest.sizes)
    test_limit_s = perftest.duration_s + _TEST_SLACK_S
    # A test that hangs takes its whole limit; all of them would not be worth the wait.
    limit_s = _START_S + 4 * _TEST_SLACK_S + tests * (perftest.duration_s + _PER_TEST_S)
    return JobSpec(
        name=name,
        tool="nccl-tests",
        argv=(
            *(w.replace("{ranks_per_node}", "1") for w in nccl.mpirun),
            "-np", "2", "--host", "{hosts}",
            "{python}", "{tool}/" + RUNNER,
            "--hosts", "{hosts}",
            "--token", name,
            "--devices", ",".join(n.name for n in nics),
            *(("--gpus", ",".join(str(n.gpu) for n in nics)) if perftest.gpudirect else ()),
            "--sizes", ",".join(str(s) for s in perftest.sizes),
            "--port", str(perftest.port),
            "--limit", str(limit_s),
            "--test-limit", str(test_limit_s),
            "--", f"{perftest.binaries}/{perftest.test}", *_options(perftest),
        ),
        nodes=(server.name, client.name),
        ranks_per_node=1,
        resources=Resources(
            cpu=perftest.cpu_per_node,
            memory_mib=perftest.memory_mib_per_node,
            gpu=server.sku.gpus if perftest.gpudirect else 0,
            rdma=1,
        ),
        time_limit_s=limit_s + _START_S,
    )  # fmt: skip


def _options(perftest: PerftestSettings) -> list[str]:
    """Return the tool's options that both ends must share."""
    options = ["-D", str(perftest.duration_s), "-q", str(perftest.queue_pairs), "-F", "--report_gbits"]
    if perftest.mtu_bytes is not None:
        options += ["-m", str(perftest.mtu_bytes)]
    if perftest.gid_index is not None:
        options += ["-x", str(perftest.gid_index)]
    if perftest.rdma_cm:
        options.append("-R")
    return options
