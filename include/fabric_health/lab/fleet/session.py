"""One launch of the stand-in: which processes run where, in which groups, and what each of them takes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fabric_health.lab.fleet.laws import bus_factor
from fabric_health.lab.fleet.model import Fleet, Group
from fabric_health.lab.fleet.options import DTYPE_BYTES, ExitError, Options

Floats = npt.NDArray[np.float64]
_SHARED = ("all_gather", "reduce_scatter", "alltoall")
_PIECE_BYTES = 16
_MAX_TIMES = 20_000_000
_JITTER = 0.0005  # ours: how much earlier than the slowest process the others see the end of an iteration


@dataclass(frozen=True)
class Rank:
    """One GPU of the launch; ``group`` is the colour of its process."""

    rank: int
    process: int
    group: int
    pid: int
    host: str
    device: int
    pci: str


@dataclass(frozen=True)
class Half:
    """Times of one size out of place or in place: processes x iterations, and what a row says."""

    process_times_us: Floats
    time_us: float
    algbw_gbps: float
    busbw_gbps: float

    @property
    def times_us(self) -> Floats:
        """The slowest process's time of each iteration."""
        return np.asarray(self.process_times_us.max(axis=0))


@dataclass(frozen=True)
class Line:
    """One row of results. ``size`` is what the real tool prints; root is -1 where the collective has none."""

    size: int
    count: int
    root: int
    out_of_place: Half
    in_place: Half


@dataclass(frozen=True)
class Session:
    """All ranks of a launch and the groups they form."""

    options: Options
    fleet: Fleet
    ranks: tuple[Rank, ...]
    groups: dict[int, Group]
    ring_only: bool

    @classmethod
    def plan(
        cls, options: Options, fleet: Fleet, hosts: Sequence[str], split: str, algorithm: str, device: str = ""
    ) -> Session:
        """Return the launch on ``hosts``: all their GPUs, or one process a host from GPU ``device`` on.

        The texts are ``NCCL_TESTS_SPLIT``, ``NCCL_ALGO`` and ``NCCL_TESTS_DEVICE``. Raises ExitError for what the model
        cannot play.
        """
        gpus, each = fleet.fabric.gpus, options.gpus_per_process
        first = int(device) if device.isdecimal() and len(device) < 6 else 0
        wanted = first + each if device else -(-gpus // each) * each
        if wanted > gpus:
            found = f"Invalid number of GPUs: {wanted} requested but only {gpus} were found.\n"
            raise ExitError(1, stderr=found + "Please check the number of processes and GPUs per process.\n")
        per_node = 1 if device else gpus // each
        if len(hosts) * per_node * options.iterations > _MAX_TIMES:
            raise ExitError(2, stderr=f"the lab keeps at most {_MAX_TIMES} times a size: fewer iterations or hosts\n")
        ranks = []
        for rank in range(len(hosts) * per_node * each):
            process, host = rank // each, hosts[rank // (per_node * each)]
            pid = 4000 + 17 * (process % per_node) + sum(host.encode()) % 400
            device_number = first + rank % (per_node * each)
            ranks.append(
                Rank(
                    rank,
                    process,
                    colour(split, process),
                    pid,
                    host,
                    device_number,
                    _pci(fleet.fabric.gpu_pci, device_number),
                )
            )
        return cls(options, fleet, tuple(ranks), _groups(ranks, fleet, hosts, split), algorithm.upper() == "RING")

    @property
    def group_ranks(self) -> int:
        """The ranks of the first group: the n of every bandwidth that is printed."""
        return self.fleet.ranks(next(iter(self.groups.values())))

    @property
    def hosts(self) -> tuple[str, ...]:
        """Hosts in the order of their ranks."""
        return tuple(dict.fromkeys(r.host for r in self.ranks))

    def lines(self, run: str, launch: str) -> Iterator[Line]:
        """Yield a row for each size. Raises NoPathError where a group cannot work together."""
        options, n = self.options, self.group_ranks
        width = DTYPE_BYTES[options.dtype]
        root = options.root if options.collective == "broadcast" else -1
        for asked in options.sizes:
            if options.collective in _SHARED:
                count = asked // n // _PIECE_BYTES * _PIECE_BYTES // width
                size = count * n * width
            else:
                count = asked // width
                size = count * width
            if size > 0:
                halves = [self._half(size, run, launch, in_place=p) for p in (False, True)]
                yield Line(size, count, root, halves[0], halves[1])

    def _half(self, size: int, run: str, launch: str, *, in_place: bool) -> Half:
        options = self.options
        processes = {r.process: r.group for r in self.ranks}
        times = np.empty((len(processes), options.iterations))
        colours = np.array(list(processes.values()))
        for number, group in self.groups.items():
            found = self.fleet.measure(
                options.collective, group, size, launch, run,
                iterations=options.iterations, in_place=in_place, ring_only=self.ring_only,
            )  # fmt: skip
            own = np.flatnonzero(colours == number)
            rng = np.random.default_rng([size % 2**32, int(in_place), number, len(own)])
            early = rng.exponential(_JITTER, (len(own), options.iterations))
            early[rng.integers(len(own), size=options.iterations), np.arange(options.iterations)] = 0.0
            times[own] = found.times_us[None, :] * (1 - np.minimum(early, 0.01))
        means = times.mean(axis=1)
        time = float([means[0], means.mean(), means.min(), means.max()][options.average])
        algbw = size / time / 1e3
        return Half(times, time, algbw, algbw * bus_factor(options.collective, self.group_ranks))


def colour(split: str, process: int) -> int:
    """Return the group of a process as ``NCCL_TESTS_SPLIT`` gives it: ``DIV 8``, ``MOD 8``, ``AND 0x7``, ``OR 0x7``.

    Raises ExitError for another text; the real tool warns and runs unsplit, which nobody means.
    """
    words = split.upper().replace("%", "MOD ").replace("/", "DIV ").replace("&", "AND ").replace("|", "OR ").split()
    if not words:
        return 0
    try:
        value = int(words[1], 0)
        return {
            "DIV": lambda: process // value,
            "MOD": lambda: process % value,
            "AND": lambda: process & value,
            "OR": lambda: process | value,
        }[words[0]]()
    except (IndexError, ValueError, KeyError, ZeroDivisionError):
        raise ExitError(2, stderr=f"NCCL_TESTS_SPLIT={split!r}; expected e.g. DIV 8 or MOD 8\n") from None


def _groups(ranks: Sequence[Rank], fleet: Fleet, hosts: Sequence[str], split: str) -> dict[int, Group]:
    members: dict[int, list[Rank]] = {}
    for r in ranks:
        members.setdefault(r.group, []).append(r)
    out: dict[int, Group] = {}
    for number, own in members.items():
        devices = tuple(dict.fromkeys(r.device for r in own))
        nodes = tuple(dict.fromkeys(r.host for r in own))
        if len(own) != len(devices) * len(nodes) or len(own) * len(members) != len(ranks):
            raise ExitError(
                2, stderr=f"NCCL_TESTS_SPLIT={split!r}: the lab plays groups of equal size and shape only\n"
            )
        whole = len(devices) == fleet.fabric.gpus
        positions = None if whole else tuple(fleet.fabric.gpu_rails[d] for d in devices)
        out[number] = Group(nodes, positions, alone=len(members) == 1)
    return out


def _pci(addresses: Sequence[str], device: int) -> str:
    address = addresses[device] if device < len(addresses) else "0000:00:00.0"
    return address.rpartition(".")[0]
