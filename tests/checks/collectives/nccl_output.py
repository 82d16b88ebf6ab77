"""Writes what nccl-tests prints, in the layout of each release, for any placement; a fault is one argument."""

# ruff: noqa: E501  the tool's lines are as long as they are

from __future__ import annotations

import json
from dataclasses import dataclass, field


@dataclass
class Run:
    """One run of a program: who takes part, which sizes, how fast (GB/s of algorithm bandwidth)."""

    collective: str = "all_reduce"
    hosts: tuple[str, ...] = ("gpu-001", "gpu-002", "gpu-003")
    per_host: int = 8
    sizes: tuple[int, ...] = (8 << 20, 16 << 20, 32 << 20)
    algbw: float = 100.0
    wrong: int = 0
    split: str = ""
    slow: dict[int, float] = field(default_factory=dict)  # group -> factor on its time

    @property
    def ranks(self) -> int:
        return len(self.hosts) * self.per_host

    def group(self, rank: int) -> int:
        return {"": 0, "DIV": rank // self.per_host, "MOD": rank % self.per_host}[self.split]

    @property
    def group_ranks(self) -> int:
        return sum(self.group(r) == 0 for r in range(self.ranks))

    @property
    def factor(self) -> float:
        n = self.group_ranks
        return {"all_reduce": 2 * (n - 1) / n, "broadcast": 1.0, "sendrecv": 1.0}.get(self.collective, (n - 1) / n)

    def time(self, size: int, group: int | None = None) -> float:
        slowest = max(self.slow.values(), default=1.0) if group is None else self.slow.get(group, 1.0)
        return size / self.algbw / 1e3 * slowest


def floats(value: float, width: int) -> str:
    """The tool's own shortening of numbers to a width."""
    power = len(str(int(value))) if value >= 1 else 0
    if power < width - 2:
        return f"{value:{width}.2f}"
    if power < width - 1:
        return f"{value:{width}.1f}"
    if power < width + 1:
        return f"{value:{width}.0f}"
    return f"{value:{width}.1e}"


def header(run: Run, version: str = "2.19.6") -> list[str]:
    lines = []
    if version:
        lines += [
            f"# nccl-tests version {version} nccl-headers=22809 nccl-library=22809",
            f"# Collective test starting: {run.collective}_perf",
        ]
    lines += [
        f"# nThread 1 nGpus 1 minBytes {run.sizes[0]} maxBytes {run.sizes[-1]} step: 2(factor) warmup iters: 5 "
        "iters: 20 agg iters: 1 validation: 1 graph: 0",
        "#",
        "# Using devices",
    ]
    for rank in range(run.ranks):
        host, device = run.hosts[rank // run.per_host], rank % run.per_host
        lines.append(
            f"#  Rank {rank:2d} Group {run.group(rank):2d} Pid {1000 + rank:6d} on {host:>10s} device {device:2d} "
            f"[0000:{0x18 + device:02x}:00] NVIDIA H100 80GB HBM3"
        )
    return [*lines, "#"]


COLUMNS = [
    "#                                                              out-of-place                       in-place          ",
    "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong",
    "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)       ",
]


def preamble(run: Run, size: int) -> str:
    redop = "sum" if run.collective in ("all_reduce", "reduce_scatter") else "none"
    root = 0 if run.collective == "broadcast" else -1
    return f"{size:12d}  {size // 4:12d}  {'float':>8s}  {redop:>6s}  {root:>6d}"


def body(run: Run, size: int, *, wrong: str | None = None) -> str:
    time = run.time(size)
    algbw = size / time / 1e3
    shown = f"{run.wrong:>5d}" if wrong is None else f"{wrong:>5s}"
    return f"  {floats(time, 7)}  {floats(algbw, 6)}  {floats(algbw * run.factor, 6)}  {shown}"


def footer(run: Run, *, concluded: bool = True) -> list[str]:
    lines = [
        f"# Out of bounds values : {run.wrong} {'FAILED' if run.wrong else 'OK'}",
        f"# Avg bus bandwidth    : {run.algbw * run.factor:g} ",
        "#",
    ]
    return [*lines, f"# Collective test concluded: {run.collective}_perf", ""] if concluded else lines


def text(run: Run, version: str = "2.19.6") -> str:
    in_place = "N/A" if run.collective in ("alltoall", "sendrecv") else None
    rows = [preamble(run, s) + body(run, s) + body(run, s, wrong=in_place) for s in run.sizes]
    return "\n".join([*header(run, version), *COLUMNS, *rows, *footer(run, concluded=bool(version))]) + "\n"


def as_json(run: Run, version: int = 3, iterations: int = 4) -> str:
    def half(size: int, checked: bool) -> dict[str, object]:
        time = run.time(size)
        algbw = size / time / 1e3
        wrong = float(run.wrong) if checked else None
        return {"time": time, "alg_bw": algbw, "bus_bw": algbw * run.factor, "nwrong": wrong}

    def samples(size: int) -> dict[str, object]:
        processes = [
            [run.time(size, run.group(r)) * (1 + 0.001 * i) for i in range(iterations)] for r in range(run.ranks)
        ]
        times = [max(step) for step in zip(*processes, strict=True)]
        return {"min_us": min(times), "max_us": max(times), "cv_pct": 0.1, "times_us": times,
                "per_process_max_times_us": processes}  # fmt: skip

    average, bandwidth = (
        ("average_bus_bandwidith", "bandwidith") if version == 1 else ("average_bus_bandwidth", "bandwidth")
    )
    document = {
        "version": version,
        "start_time": "2026-11-30 08:00:00",
        "args": [f"/opt/nccl-tests/bin/{run.collective}_perf", "-b", str(run.sizes[0])],
        "env": ["HF_TOKEN=very-secret", "NCCL_DEBUG=INFO"],
        "nccl_version": 22809,
        "config": {
            "nthreads": 1,
            "ngpus": 1,
            "iterations": 20,
            "blocking_collectives": "false",
            "devices": [
                {
                    "rank": r,
                    "group": run.group(r),
                    "pid": 1000 + r,
                    "hostname": run.hosts[r // run.per_host],
                    "device": r % run.per_host,
                    "device_hex": "0000:18:00",
                    "device_info": "NVIDIA H100 80GB HBM3",
                }
                for r in range(run.ranks)
            ],
        },
        "results": [
            {
                "size": s,
                "count": s // 4,
                "type": "float",
                "redop": "sum",
                "root": f"{0 if run.collective == 'broadcast' else -1:6d}",
                "out_of_place": half(s, True),
                "in_place": half(s, run.collective not in ("alltoall", "sendrecv")),
                "out_of_place_per_iter": samples(s),
                "in_place_per_iter": samples(s),
                "actual_iterations": iterations,
                "experiment_name": "x",
            }
            for s in run.sizes
        ],
        "out_of_bounds": {"count": run.wrong, "okay": "true" if not run.wrong else "false"},
        average: {bandwidth: run.algbw * run.factor, "okay": "unchecked"},
        "errors": [""],
    }
    return json.dumps(document)


def info(host: str, device: int, message: str, pid: int = 1000) -> str:
    return f"{host}:{pid}:{pid + 40} [{device}] NCCL INFO {message}"


def connection_log(run: Run, network: str = "IB") -> list[str]:
    """What NCCL logs of every rank while it connects, rank after rank."""
    lines = ["NCCL version 2.28.9+cuda12.9"]
    using = " ".join(f"[{i}]mlx5_{i}:1/RoCE" for i in range(run.per_host))
    for rank in range(run.ranks):
        host, device = run.hosts[rank // run.per_host], rank % run.per_host
        after = (rank + (run.per_host if run.split == "MOD" else 1)) % run.ranks
        if run.split == "DIV":
            after = rank // run.per_host * run.per_host + (rank + 1) % run.per_host
        lines.append(info(host, device, f"NET/IB : Using {using} [RO]; OOB eth0:10.0.0.{rank}<0>", 1000 + rank))
        lines.append(info(host, device, f"Using network {network}", 1000 + rank))
        if after // run.per_host == rank // run.per_host:
            how = "P2P/CUMEM/read"
        else:
            how = "NET/Socket/0" if network == "Socket" else f"NET/{network}/{device}/GDRDMA"
        lines.append(info(host, device, f"Channel 00/0 : {rank}[{device}] -> {after}[0] via {how}", 1000 + rank))
        lines.append(
            info(host, device, "24 coll channels, 24 collnet channels, 0 nvls channels, 32 p2p channels", 1000 + rank)
        )
    return lines
