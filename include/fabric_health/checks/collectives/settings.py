"""Settings of the check, under ``checks.collectives`` of a site file."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from fabric_health.errors import settings_error
from fabric_health.site import Site

CollectiveName = Literal["all_reduce", "all_gather", "reduce_scatter", "alltoall", "broadcast", "sendrecv"]
Grouping = Literal["all", "node", "rail"]
Engine = Literal["gloo", "nccl-tests", "lab_fleet", "perftest"]
ALL_COLLECTIVES: tuple[CollectiveName, ...] = (
    "all_reduce", "all_gather", "reduce_scatter", "alltoall", "broadcast", "sendrecv",
)  # fmt: skip
MIB = 1 << 20
GIB = 1 << 30
LEAST_PAIRS = 3
# Of Open MPI 4 and 5: rows of results and what ranks send back could not be read any more.
_MARKS_OUTPUT = re.compile(r"--?(tag-output|timestamp-output|output-filename|output-directory|output|xml|xterm)")


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, str_strip_whitespace=True)


class _Sweep(_Model):
    min_bytes: int = Field(ge=1, le=1 << 44, description="smallest size")
    max_bytes: int = Field(ge=1, le=1 << 44, description="largest size")
    factor: int = Field(2, ge=2, le=1024, description="each size is the one before times this")

    @model_validator(mode="after")
    def _ordered(self) -> _Sweep:
        if self.min_bytes > self.max_bytes:
            raise ValueError("min_bytes is larger than max_bytes")
        return self

    @property
    def sizes(self) -> tuple[int, ...]:
        """The sizes of the sweep, ascending, in bytes."""
        out = [self.min_bytes]
        while out[-1] * self.factor <= self.max_bytes:
            out.append(out[-1] * self.factor)
        return tuple(out)


class GlooSettings(_Sweep):
    """Engine ``gloo``: torch.distributed on the CPUs of the machine that runs the job."""

    min_bytes: int = Field(64 << 10, ge=4, le=GIB, description="smallest size")
    max_bytes: int = Field(16 * MIB, ge=4, le=GIB, description="largest size")
    factor: int = Field(4, ge=2, le=1024, description="each size is the one before times this")
    ranks: int = Field(2, ge=2, le=64, description="processes")
    collectives: tuple[CollectiveName, ...] = Field(ALL_COLLECTIVES, min_length=1)
    iterations: int = Field(5, ge=3, le=10_000, description="timed iterations at each size; the fastest counts")
    warmup: int = Field(2, ge=0, le=1000)
    pairs: int = Field(0, ge=0, le=32, description="pairs of ranks that are held against each other; 0: none")
    pair_bytes: int = Field(64 << 10, ge=4, le=GIB, description="size of a pair's all_reduce")
    pair_iterations: int = Field(300, ge=3, le=100_000, description="of a pair; the fastest counts")
    pair_noise: float = Field(0.15, gt=0, lt=0.25, description="usual spread of a pair's launches, as a share")
    pair_gap: float = Field(0.45, gt=0, lt=0.5, description="gap to the other pairs below which nothing is said")
    time_limit_s: float = Field(300, gt=0, le=86_400)
    program: str = Field(
        "gloo_sweep.py",
        pattern=r"^[\w./-]+$",
        max_length=200,
        description="program in the tool's folder; lab faults wrap it",
    )
    env: dict[str, str] = Field(
        default_factory=lambda: {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}, description="its environment"
    )

    @model_validator(mode="after")
    def _enough(self) -> GlooSettings:
        if 0 < self.pairs < LEAST_PAIRS:
            raise ValueError(f"pairs is {self.pairs}; expected 0, or {LEAST_PAIRS} or more: of two, none is usual")
        return self

    @property
    def pair_groups(self) -> tuple[tuple[int, int], ...]:
        """The pairs of neighbouring ranks, from rank 0 on."""
        return tuple((2 * i, 2 * i + 1) for i in range(self.pairs))


class NcclSettings(_Sweep):
    """Engines ``nccl-tests`` and ``lab_fleet``: one process per GPU, started by mpirun."""

    min_bytes: int = Field(
        8 * MIB, ge=4, description="smallest size; small ones say more about latency than about links"
    )
    max_bytes: int = Field(8 * GIB, ge=4, description="largest size: the one that is judged")
    collectives: tuple[CollectiveName, ...] = Field(
        ALL_COLLECTIVES, min_length=1, description="run on all nodes together"
    )
    groups: tuple[Grouping, ...] = Field(("all", "node", "rail"), min_length=1)
    group_collectives: tuple[CollectiveName, ...] = Field(("all_reduce",), description="run per node and per rail")
    iterations: int = Field(20, ge=1, le=100_000)
    warmup: int = Field(5, ge=0, le=1000)
    per_iteration: bool = Field(True, description="-I 1 and -J: single iterations and groups; needs nccl-tests 2.19")
    binaries: str = Field(
        "/opt/nccl-tests/bin", pattern=r"^/[\w./-]*$", max_length=201, description="folder of the programs"
    )
    mpirun: tuple[str, ...] = Field(
        ("mpirun", "--allow-run-as-root", "--bind-to", "none", "--map-by", "ppr:{ranks_per_node}:node:OVERSUBSCRIBE"),
        description="command before -np and --host; {ranks_per_node} is filled in",
    )
    env: dict[str, str] = Field(
        default_factory=lambda: {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,ENV,NET,TUNING"},
        description="NCCL's settings; NCCL_DEBUG=INFO is what the transport is read from",
    )
    cpu_per_node: float = Field(32, gt=0)
    memory_mib_per_node: int = Field(65_536, ge=256)
    shared_memory_mib: int = Field(16_384, ge=64)
    time_limit_s: float = Field(900, gt=0, le=86_400)

    @field_validator("mpirun")
    @classmethod
    def _plain_output(cls, words: tuple[str, ...]) -> tuple[str, ...]:
        for word in words:
            if _MARKS_OUTPUT.fullmatch(word):
                raise ValueError(f"{word} marks or moves the output of ranks; expected mpirun to pass it on as it is")
        return words


class PairFloor(_Model):
    """A bandwidth that one link of a SKU must reach, in place of ``min_share`` of its rate."""

    sku: str
    bw_gbitps: float = Field(gt=0, description="Gb/s, 1e9 bits per second, one direction")
    source: str = Field(min_length=3, description="where the figure comes from")


class PerftestSettings(_Model):
    """Engine ``perftest``: one node writes to another, rail by rail; a launch is a pair of nodes."""

    test: Literal["ib_write_bw", "ib_read_bw", "ib_send_bw"] = "ib_write_bw"
    pairs: Literal["rotating", "ring"] = Field(
        "rotating", description="rotating: other pairs in each run; ring: each node writes to the next one"
    )
    rounds: int = Field(1, ge=1, le=64, description="of rotating pairs; each has every node in one pair")
    max_launches: int = Field(64, ge=1, le=10_000, description="pairs that a run measures at most")
    rails: tuple[int, ...] = Field((), description="rails that are measured; all when empty")
    sizes: tuple[int, ...] = Field((MIB,), min_length=1, max_length=8, description="message sizes; the largest counts")
    duration_s: int = Field(5, ge=2, le=600, description="of one test; a launch has one for each rail and size")
    queue_pairs: int = Field(1, ge=1, le=1024)
    mtu_bytes: Literal[256, 512, 1024, 2048, 4096] | None = Field(
        None, description="path MTU that is asked for; the port's own when left out"
    )
    rdma_cm: bool = Field(False, description="-R: connect by rdma_cm, over the IPv4 address of each device")
    gid_index: int | None = Field(None, ge=0, le=255, description="-x; the tool's own choice when left out")
    gpudirect: bool = Field(False, description="--use_cuda: from GPU to GPU; needs perftest built with CUDA")
    min_share: float = Field(
        0.9, gt=0, le=1, description="share of the NIC's rate that a link must reach, where no floor is given"
    )
    floors: tuple[PairFloor, ...] = ()
    binaries: str = Field("/usr/bin", pattern=r"^/[\w./-]*$", max_length=201, description="folder of the programs")
    port: int = Field(18515, ge=1024, le=65_000, description="TCP port on the server's node; the next one is used too")
    cpu_per_node: float = Field(4, gt=0)
    memory_mib_per_node: int = Field(4096, ge=256)

    @field_validator("sizes")
    @classmethod
    def _sizes(cls, sizes: tuple[int, ...]) -> tuple[int, ...]:
        if any(not 2 <= s <= GIB for s in sizes):
            raise ValueError(f"sizes are 2 to {GIB} bytes")
        return tuple(sorted(set(sizes)))


class Floor(_Model):
    """A bus bandwidth that a SKU must reach. Nothing is a floor unless a site says so, with its source."""

    sku: str
    collective: CollectiveName = "all_reduce"
    group: Grouping = "all"
    min_bytes: int = Field(GIB, ge=1, description="sizes from this one on are held against the floor")
    min_nodes: int = Field(1, ge=1)
    max_nodes: int = Field(100_000, ge=1)
    busbw_gbps: float = Field(gt=0, description="GB/s, 1e9 bytes per second")
    source: str = Field(min_length=3, description="where the figure comes from")


class PeerSettings(_Model):
    """When a node or rail is slower than its peers of the same run."""

    modified_z: float = Field(3.5, gt=0, description="Iglewicz and Hoaglin, How to Detect and Handle Outliers, 1993")
    gap: float = Field(0.03, gt=0, lt=1, description="practical gap to the median below which nothing is said")
    minimum: int = Field(8, ge=3, description="peers below which no outlier can be told from spread")
    mad_floor: float = Field(0.005, gt=0, lt=1, description="least spread assumed, as a share of the median")


class IsolationSettings(_Model):
    """How a slow node or rail is looked into once the run's launches have shown it."""

    enabled: bool = Field(True, description="false: what is slow is reported as the launches show it")
    max_tests: int = Field(
        60, ge=4, le=10_000, description="launches that isolating may make in a run, all cases together"
    )
    max_minutes: float = Field(30, gt=0, le=55, description="minutes of launches after which no other is started")
    max_rounds: int = Field(10, ge=2, le=100, description="rounds of a case")
    min_loss: float = Field(0.03, gt=0, lt=0.5, description="smallest loss that matters (that of peers), as a share")
    noise: float = Field(0.02, gt=0, lt=0.5, description="usual spread of a launch's bandwidth, as a share")
    false_blame: float = Field(0.005, gt=0, lt=0.5, description="accepted probability that a blamed unit is innocent")
    parallel: int = Field(1, ge=1, le=64, description="launches at once, on different nodes")
    hang_limit_s: float = Field(
        180, ge=10, le=3600, description="seconds after which a group hangs, where launches of all nodes failed"
    )


class ConfirmSettings(_Model):
    """More launches of nodes and rails that look slower than before, until it is certain either way."""

    enabled: bool = Field(True, description="false: what the run's own launches show decides, however little that is")
    max_launches: int = Field(80, ge=1, le=10_000, description="launches that confirming may make in a run")
    max_minutes: float = Field(30, gt=0, le=55, description="minutes of launches after which no other is started")


class Settings(_Model):
    """What is launched and how it is judged."""

    engines: tuple[Engine, ...] = Field(("gloo",), min_length=1)
    launches: int = Field(3, ge=1, le=100, description="independent repetitions of each benchmark")
    gloo: GlooSettings = GlooSettings()
    nccl: NcclSettings = NcclSettings()
    perftest: PerftestSettings = PerftestSettings()
    transport: Literal["rdma", "any"] = Field("rdma", description="what must carry traffic between nodes")
    floors: tuple[Floor, ...] = ()
    peers: PeerSettings = PeerSettings()
    isolation: IsolationSettings = IsolationSettings()
    confirm: ConfirmSettings = ConfirmSettings()
    iteration_cv: float = Field(
        0.05, gt=0, description="spread of iterations that is worth a note (nccl-tests' own 5 %)"
    )


def settings(site: Site) -> Settings:
    """Return the site's settings of the check. Raises SiteError naming each key and what was expected."""
    try:
        return Settings.model_validate(dict(site.checks.get("collectives", {})))
    except ValidationError as error:
        page = "docs/checks/collectives.md"
        raise settings_error(error, str(site.path), "checks.collectives", page) from None
