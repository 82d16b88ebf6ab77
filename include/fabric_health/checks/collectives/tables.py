"""Tables of the collectives check: launches and what was wrong with them, bandwidth by size, samples, node pairs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fabric_health.datasets.contracts import Row, column, optional

_GBPS = "GB/s"


@dataclass(frozen=True)
class CollectiveLaunch(Row):
    TABLE: ClassVar[str] = "collective_launches"
    KEY: ClassVar[tuple[str, ...]] = ("run", "launch")
    DESCRIPTION: ClassVar[str] = "One row per launch of a collective or point-to-point benchmark: asked, seen, usable."

    launch: str = column("launch: an independent repetition, unique within the run")
    engine: str = column("`nccl-tests`, `lab_fleet`, `gloo` or `perftest`")
    workload: str = column("collective, `sweep` for several in one launch, or the perftest program")
    grouping: str = column(
        "`all` ranks together, a group per `node`, a group per `rail`, groups of `ranks`, or a `pair` of nodes"
    )
    usable: bool = column("whether its numbers may be used: false where a rule in `collective_problems` refuses them")
    nodes_asked: int = column("nodes asked for; 0 where the launch runs on the machine that starts it", minimum=0)
    ranks_asked: int = column("ranks asked for", minimum=1)
    max_bytes_asked: int = column("largest size asked for", unit="B", minimum=0)
    hosts_seen: int | None = optional("hosts the tool reports", minimum=0)
    ranks_seen: int | None = optional("ranks the tool reports", minimum=0)
    max_bytes_reached: int | None = optional("largest size measured", unit="B", minimum=0)
    exit_code: int | None = optional("exit code of the job; null when it did not end by itself")
    duration_s: float | None = optional("wall-clock time of the job", unit="s", minimum=0)
    tool_version: str | None = optional("version of the tool, where it says")
    library_version: str | None = optional("version of NCCL, or of torch for gloo")
    transport: str | None = optional("transports between ranks as logged, e.g. `NET/IB,P2P`")
    nics: str | None = optional("NICs that carried traffic as logged, comma separated")


@dataclass(frozen=True)
class LaunchProblem(Row):
    TABLE: ClassVar[str] = "collective_problems"
    KEY: ClassVar[tuple[str, ...]] = ("run", "launch", "rule")
    DESCRIPTION: ClassVar[str] = "What was wrong with a launch: the rule it broke, what was expected and what came."

    launch: str = column("launch")
    rule: str = column("rule it broke, e.g. `hosts_as_asked`")
    refuses: bool = column("whether it makes the launch's numbers unusable")
    detail: str = column("what is wrong, for a person")
    expected: str | None = optional("what should be")
    actual: str | None = optional("what is")


@dataclass(frozen=True)
class Collective(Row):
    TABLE: ClassVar[str] = "collectives"
    KEY: ClassVar[tuple[str, ...]] = (
        "run", "launch", "group", "collective", "dtype", "redop", "root", "size_bytes", "in_place",
    )  # fmt: skip
    DESCRIPTION: ClassVar[str] = (
        "Time and bandwidth of a collective at one size. GB/s are 1e9 bytes per second, as nccl-tests prints them."
    )

    launch: str = column("launch: an independent repetition")
    group: str = column(
        "`all` ranks together; a node (`gpu-007`) or a rail (`rail-3`) by itself; two of gloo's ranks (`ranks-2-3`); "
        "`node:slowest` or `rail:slowest` where the tool reports only the slowest of its groups"
    )
    group_kind: str = column(
        "`all`, `node`, `rail` or `ranks`; `control_rail`: a rail of those nodes alone that a change did not touch"
    )
    collective: str = column("`all_reduce`, `all_gather`, `reduce_scatter`, `alltoall`, `broadcast`, `sendrecv`, ...")
    dtype: str = column("element type, e.g. `float`")
    redop: str = column("reduction, `none` where the collective has none")
    root: int = column("root rank, -1 where the collective has none")
    size_bytes: int = column("size as nccl-tests counts it: the larger side of the buffers", unit="B", minimum=0)
    in_place: bool = column("whether input and output share a buffer")
    time_us: float = column(
        "mean time of an iteration, of the slowest rank unless `timing` says otherwise", unit="us", minimum=0
    )
    algbw_gbps: float = column("size / time; GB = 1e9 bytes", unit=_GBPS, minimum=0)
    busbw_gbps: float = column(
        "algbw x factor of the collective and the group's ranks; GB = 1e9 bytes", unit=_GBPS, minimum=0
    )
    ranks: int = column("ranks of the group: the n of the bus bandwidth", minimum=1)
    ranks_per_node: int = column("ranks of the group on each of its nodes", minimum=1)
    nodes: int = column("nodes of the group", minimum=1)
    hosts_sha: str = column("first 16 hex digits of SHA-256 over the group's sorted hosts with their ranks")
    engine: str = column("`nccl-tests`, `lab_fleet` or `gloo`")
    timing: str = column("how ranks' times were joined: `max`, `avg`, `min` or `rank0`")
    comparability: str = column("canonical key of everything that must be equal for two rows to be compared")
    iterations: int | None = optional("timed iterations", minimum=0)
    wrong: int | None = optional("elements with a wrong value; null where the tool did not check", minimum=0)
    time_min_us: float | None = optional("fastest iteration", unit="us", minimum=0)
    time_max_us: float | None = optional("slowest iteration", unit="us", minimum=0)
    time_p99_us: float | None = optional("99th percentile of iterations", unit="us", minimum=0)
    time_cv: float | None = optional("standard deviation / mean over iterations", unit="1", minimum=0)
    transport: str | None = optional("transports between ranks as logged")
    nics: str | None = optional("NICs that carried traffic as logged")
    algorithm: str | None = optional("algorithm as logged, e.g. `RING`")
    protocol: str | None = optional("protocol as logged, e.g. `SIMPLE`")
    nvls: bool | None = optional("whether NVLink SHARP was set up, as logged")
    sharp: bool | None = optional("whether SHARP (CollNet) was set up, as logged")
    library_version: str | None = optional("version of NCCL, or of torch for gloo")
    tool_version: str | None = optional("version of the tool, where it says")
    sku: str | None = optional("SKU of the nodes, where the site knows them")


@dataclass(frozen=True)
class CollectiveSample(Row):
    TABLE: ClassVar[str] = "collective_samples"
    KEY: ClassVar[tuple[str, ...]] = (
        "run", "launch", "collective", "dtype", "redop", "root", "size_bytes", "in_place", "iteration",
    )  # fmt: skip
    DESCRIPTION: ClassVar[str] = (
        "Times of single iterations, where the tool gives them. Iterations of a launch are not independent samples."
    )

    launch: str = column("launch")
    collective: str = column("collective")
    dtype: str = column("element type")
    redop: str = column("reduction")
    root: int = column("root rank, -1 where the collective has none")
    size_bytes: int = column("size", unit="B", minimum=0)
    in_place: bool = column("whether input and output share a buffer")
    iteration: int = column("number of the iteration, from 0", minimum=0)
    time_us: float = column("time of the slowest rank", unit="us", minimum=0)


@dataclass(frozen=True)
class PointToPoint(Row):
    TABLE: ClassVar[str] = "point_to_point"
    KEY: ClassVar[tuple[str, ...]] = ("run", "launch", "device", "test", "size_bytes")
    DESCRIPTION: ClassVar[str] = (
        "perftest between two nodes: bandwidth in Gb/s (1e9 bits/s) or latency, by size. A link that gave no number "
        "has a row that says why."
    )

    launch: str = column("launch")
    pair: str = column("client and server, `gpu-001>gpu-002`")
    device: str = column("RDMA device, of the same name on either end")
    test: str = column("`RDMA_Write BW`, `Send Latency`, ...")
    size_bytes: int = column("message size", unit="B", minimum=0)
    iterations: int | None = optional("iterations", minimum=0)
    bw_peak_gbitps: float | None = optional("peak bandwidth", unit="Gb/s", minimum=0)
    bw_average_gbitps: float | None = optional("average bandwidth", unit="Gb/s", minimum=0)
    message_rate_mpps: float | None = optional("messages per second / 1e6", unit="1e6/s", minimum=0)
    latency_min_us: float | None = optional("fastest", unit="us", minimum=0)
    latency_typical_us: float | None = optional("median", unit="us", minimum=0)
    latency_avg_us: float | None = optional("mean", unit="us", minimum=0)
    latency_max_us: float | None = optional("slowest", unit="us", minimum=0)
    latency_p99_us: float | None = optional("99th percentile", unit="us", minimum=0)
    latency_p999_us: float | None = optional("99.9th percentile", unit="us", minimum=0)
    mtu_bytes: int | None = optional("path MTU in use", unit="B", minimum=0)
    link_layer: str | None = optional("`IB` or `Ethernet`")
    transport: str | None = optional("transport type, e.g. `IB`")
    rail: int | None = optional("rail of the device, where the site knows it", minimum=0)
    memory: str | None = optional("where data came from and went to: `host` or `gpu`")
    rate_gbitps: float | None = optional("rate of the NIC, as the site describes it", unit="Gb/s", minimum=0)
    sku: str | None = optional("SKU of the nodes, where the site knows them")
    problem: str | None = optional("why the link gave no number; null where it did")


@dataclass(frozen=True)
class Isolation(Row):
    TABLE: ClassVar[str] = "isolations"
    KEY: ClassVar[tuple[str, ...]] = ("run", "case", "number")
    DESCRIPTION: ClassVar[str] = (
        "What isolating a slow node or rail gave: the unit at fault, or why none could be named."
    )

    case: str = column(
        "what was looked into: `rail-2`, `nodes` (with the number of the SKU where there are several) or `ranks`"
    )
    number: int = column("number of the outcome within the case", minimum=0)
    outcome: str = column("`blamed`, `undecided` or `nothing` (the tests are not slow)")
    engine: str = column("`nccl-tests`, `lab_fleet` or `gloo`")
    tests: int = column("launches that tested groups", unit="launches", minimum=0)
    references: int = column("launches that measured what a sound group of the same shape reaches", minimum=0)
    rounds: int = column("rounds of tests", minimum=0)
    minutes: float = column("time that the case's launches took", unit="min", minimum=0)
    reason: str = column("in words: what was ruled out, or why nothing could be named")
    unit: str | None = optional(
        "unit at fault: `gpu-003/mlx5_2`, `gpu-003`, `leaf-3`, `rail-4`, `localhost/rank-3`; null when not blamed"
    )
    unit_kind: str | None = optional("`nic`, `node`, `switch`, `rail`, `path` or `rank`")
    rail: int | None = optional("rail that is slow, null when it is not one alone", minimum=0)
    extent: str | None = optional("`rail`, `whole` (every rail), `together` (only all rails at once) or `not told`")
    loss: float | None = optional("share of the bandwidth that is lost", unit="1", maximum=1)
    loss_low: float | None = optional("lower end of the 95 % interval of the loss", unit="1", maximum=1)
    loss_high: float | None = optional("upper end of the 95 % interval of the loss", unit="1", maximum=1)
    confidence: float | None = optional("posterior probability of exactly this", unit="1", minimum=0, maximum=1)
    partners: str | None = optional("nodes or ranks that the unit was slow with, comma separated")
    candidates: str | None = optional("what it may be, where that could not be told apart, comma separated")
