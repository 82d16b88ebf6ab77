"""What nccl-tests 2.19 prints (``src/util.cu``), and what NCCL logs beside it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

import numpy as np

from fabric_health.lab.fleet.session import Floats, Half, Line, Rank, Session

TOOL_VERSION = "2.19.6"
NCCL_CODE = 22809
NCCL_VERSION = "2.28.9"
CUDA = "cuda12.9"
ORIGIN = "# origin: lab fleet model (simulated; no hardware was measured)"
_UNCHECKED_IN_PLACE = ("alltoall", "sendrecv")
_PREAMBLE = "{:>10}  {:>12}  {:>8}  {:>6}  {:>6}"


def header(session: Session, version: bool = True) -> Iterator[str]:
    """Yield the lines above the results."""
    o = session.options
    step = (o.factor, "factor") if o.factor > 1 else (o.step_bytes, "bytes")
    if version:
        yield f"# nccl-tests version {TOOL_VERSION} nccl-headers={NCCL_CODE} nccl-library={NCCL_CODE}"
    yield ORIGIN
    yield f"# Collective test starting: {o.program}"
    yield (
        f"# nThread 1 nGpus {o.gpus_per_process} minBytes {o.smallest} maxBytes {o.largest} step: {step[0]}({step[1]}) "
        f"warmup iters: {o.warmup} iters: {o.iterations} agg iters: 1 validation: {o.check} graph: 0 unalign: 0"
    )
    if o.per_iteration:
        yield "# Per-Iteration Report: CUDA event timing; i_* uses max over process rows "
    if o.parallel_init:
        yield "# Parallel Init Enabled: threads call into NcclInitRank concurrently "
    yield "#"
    yield "# Using devices"
    model = session.fleet.fabric.gpu_model
    for r in session.ranks:
        yield (
            f"#  Rank {r.rank:2d} Group {r.group:2d} Pid {r.pid:6d} on {r.host:>10s} device {r.device:2d} "
            f"[{r.pci}] {model}"
        )


def table_header(session: Session) -> Iterator[str]:
    """Yield the header of the results."""
    o = session.options
    stamp, form = ("  timestamp", " %Y-%m-%d %H:%M:%S") if o.stamps else ("", "")
    more = ("i_min", "i_max", "i_p99", "i_cv%") if o.per_iteration else ()
    titles = _half_header("time", "algbw", "busbw", "#wrong", *more)
    units = _half_header("(us)", "(GB/s)", "(GB/s)", "", *(("(us)", "(us)", "(us)", "(%)") if more else ()))
    head = _PREAMBLE.format("", "", "", "", "")
    yield "#"
    if o.per_iteration:
        out, inside = "out-of-place (+ per-iteration)", "in-place (+ per-iteration)"
        yield f"# {head}{'':14}{out}{'':32}{inside}"
    else:
        yield f"# {head}           out-of-place                       in-place          "
    yield f"# {_PREAMBLE.format('size', 'count', 'type', 'redop', 'root')}{titles}{titles} {stamp}"
    yield f"# {_PREAMBLE.format('(B)', '(elements)', '', '', '')}{units}{units} {form}"


def row(session: Session, line: Line, now: datetime) -> str:
    """Return one row of results."""
    o = session.options
    op = o.op if o.collective in ("all_reduce", "reduce_scatter") else "none"
    start = f"{line.size:>12d}  {line.count:>12d}  {o.dtype:>8s}  {op:>6s}  {line.root:>6d}"
    outside = _half(line.out_of_place, checked=o.check > 0, per_iteration=o.per_iteration)
    checked = o.check > 0 and o.collective not in _UNCHECKED_IN_PLACE
    inside = _half(line.in_place, checked=checked, per_iteration=o.per_iteration)
    return start + outside + inside + (f"  {now:%Y-%m-%d %H:%M:%S}" if o.stamps else "")


def footer(session: Session, average_gbps: float, minimum_gbps: float | None) -> Iterator[str]:
    """Yield the lines below the results."""
    verdict = "" if minimum_gbps is None else "FAILED" if average_gbps < 0.9 * minimum_gbps else "OK"
    yield f"# {'Out of bounds values':<20s} : 0 OK"
    yield f"# {'Avg bus bandwidth':<20s} : {average_gbps:g} {verdict}"
    yield "#"
    yield f"# Collective test concluded: {session.options.program}"
    yield ""
    yield "#"


def log_of_start(session: Session) -> Iterator[str]:
    """Yield what NCCL logs at ``NCCL_DEBUG=INFO`` when communicators are made."""
    yield f"{_head(session.ranks[0])} NCCL INFO NCCL version {NCCL_VERSION}+{CUDA}"
    fabric, costs = session.fleet.fabric, session.fleet.costs
    layer = "RoCE" if fabric.ethernet else "IB"
    for first in {r.host: r for r in reversed(session.ranks)}.values():
        up = [n for n, d in zip(fabric.nics, costs.down[fabric.index[first.host]], strict=True) if not d]
        using = " ".join(f"[{i}]{n}:1/{layer}" for i, n in enumerate(up))
        yield f"{_head(first)} NCCL INFO NET/IB : Using {using} [RO]; OOB eth0:{_address(session, first)}<0>"
    nvls = 16 if session.fleet.domain.nvls and session.options.collective == "all_reduce" else 0
    members: dict[int, list[Rank]] = {}
    for r in session.ranks:
        members.setdefault(r.group, []).append(r)
    places = {r.rank: at for own in members.values() for at, r in enumerate(own)}
    crossing = {g for g, own in members.items() if len({r.host for r in own}) > 1}
    for r in session.ranks:
        yield from _channels(session, r, members[r.group], places[r.rank], r.group in crossing)
        yield (
            f"{_head(r)} NCCL INFO 16 coll channels, 0 collnet channels, {nvls} nvls channels, 16 p2p channels, "
            "2 p2p channels per peer"
        )


def log_of_size(session: Session, size_bytes: int) -> Iterator[str]:
    """Yield the algorithm and protocol that NCCL logs for a size, for collectives that have a choice."""
    choice = algorithm(session)
    if choice is not None:
        name = "".join(word.capitalize() for word in session.options.collective.split("_"))
        for first in {r.group: r for r in reversed(session.ranks)}.values():
            said = f"{name}: {size_bytes} Bytes -> Algo {choice} proto SIMPLE channel{{Lo..Hi}}={{0..15}}"
            yield f"{_head(first)} NCCL INFO {said}"


def algorithm(session: Session) -> str | None:
    """Return the algorithm that the model's law stands for; None for point-to-point collectives."""
    collective = session.options.collective
    if collective in ("alltoall", "sendrecv"):
        return None
    group = next(iter(session.groups.values()))
    if collective != "all_reduce" or session.ring_only or group.positions is not None or len(group.nodes) > 2:
        return "RING"
    nvls = session.fleet.domain.nvls
    if len(group.nodes) == 2:
        return "NVLS_TREE" if nvls else "TREE"
    return "NVLS" if nvls else "RING"


def _channels(session: Session, r: Rank, own: Sequence[Rank], at: int, crossing: bool) -> Iterator[str]:
    """Yield how a rank is connected: by its rail's NIC to the next node, by NVLink to the next GPU of its node."""
    if len(own) < 2:
        return
    there = (at + 1) % len(own)
    peer = own[there]
    ends = f"{at}[{r.device}] -> {there}[{peer.device}]"
    fabric, costs = session.fleet.fabric, session.fleet.costs
    up = np.flatnonzero(~costs.down[fabric.index[r.host]]).tolist()
    if crossing and up:
        carrier = next((j for j in up if j >= fabric.gpu_rails[r.device]), up[0])
        yield f"{_head(r)} NCCL INFO Channel {r.device:02d}/0 : {ends} [send] via NET/IB/{up.index(carrier)}/GDRDMA"
    if peer.host == r.host:
        yield f"{_head(r)} NCCL INFO Channel 00/0 : {ends} via P2P/CUMEM"


def _head(r: Rank) -> str:
    return f"{r.host}:{r.pid}:{r.pid + 40} [{r.device}]"


def _address(session: Session, r: Rank) -> str:
    number = session.hosts.index(r.host) + 1
    return f"10.0.{number // 250}.{number % 250}"


def _half_header(*columns: str) -> str:
    return "".join(f"  {c:>{6 if i in (1, 2, 3) else 7}}" for i, c in enumerate(columns))


def _half(half: Half, *, checked: bool, per_iteration: bool) -> str:
    wrong = f"  {0:6g}" if checked else "    N/A"
    text = f"  {number(half.time_us, 7)}  {number(half.algbw_gbps, 6)}  {number(half.busbw_gbps, 6)}{wrong}"
    if per_iteration:
        s = Statistics(half.times_us)
        text += "".join(f"  {number(v, 7)}" for v in (s.low, s.high, s.p99, s.cv_percent))
    return text


class Statistics:
    """Minimum, maximum, mean, percentiles (nearest rank) and spread of iterations, as the tool computes them."""

    def __init__(self, times: Floats) -> None:
        ordered = np.sort(times)
        n = len(ordered)
        self.low, self.high, self.mean = float(ordered[0]), float(ordered[-1]), float(ordered.mean())
        self.p50 = float(ordered[n // 2])
        self.p95, self.p99 = (float(ordered[min(n - 1, (n * p + 99) // 100 - 1)]) for p in (95, 99))
        self.deviation = float(ordered.std())
        self.cv_percent = self.deviation / self.mean * 100 if self.mean > 0 else 0.0


def number(value: float, width: int) -> str:
    """Return a number in ``width`` columns with as many decimals as fit, at most two (``getFloatStr``)."""
    power = 0
    while value >= 10**power:
        power += 1
    decimals = 2 if power < width - 2 else 1 if power < width - 1 else 0
    if power < width + 1:
        return f"{value:{width}.{decimals}f}"
    return f"{value:{width}.1e}" if width >= 7 else f"{value:{width}.0e}"


def indices(session: Session) -> Sequence[int]:
    """Return the ranks whose devices the JSON holds: of a process with several GPUs only the first is in it."""
    return range(0, len(session.ranks), session.options.gpus_per_process)
