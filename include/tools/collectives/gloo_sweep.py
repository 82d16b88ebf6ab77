"""Sweep collectives over torch.distributed's gloo backend and print one line of JSON: the embedded benchmark engine.

It starts its own ranks on this machine, measures what nccl-tests measures (size / time, and the factor of each
collective: https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md), checks every result, and times each
iteration by its slowest rank. Of an iteration count the fastest is reported: on shared CPUs the others mostly measure
who else was running. Exit code 0 only for a complete sweep without a wrong value.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

FORMAT = 1
ELEMENT_BYTES = 4


@dataclass
class Buffers:
    """What one collective reads and writes at one size; ``reset`` fills the input, ``wrong`` counts bad elements."""

    run: Callable[[], None]
    reset: Callable[[], None]
    wrong: Callable[[], int]


@dataclass(frozen=True)
class Kind:
    """A collective: how it is prepared, its bus factor for n ranks, and how nccl-tests would print it."""

    prepare: Callable[[Any, Any, int, int, int], Buffers]
    factor: Callable[[int], float]
    redop: str = "none"
    root: int = -1
    in_place: bool = False
    shared: bool = False


def _all_reduce(torch: Any, dist: Any, elements: int, rank: int, ranks: int) -> Buffers:
    x = torch.empty(elements)
    expected = ranks * (ranks + 1) / 2
    return Buffers(lambda: dist.all_reduce(x), lambda: x.fill_(rank + 1), lambda: int((x != expected).sum()))


def _all_gather(torch: Any, dist: Any, elements: int, rank: int, ranks: int) -> Buffers:
    x, y = torch.full((elements // ranks,), float(rank + 1)), torch.empty(elements)
    expected = torch.arange(1, ranks + 1, dtype=torch.float32).repeat_interleave(elements // ranks)
    return Buffers(lambda: dist.all_gather_into_tensor(y, x), lambda: y.zero_(), lambda: int((y != expected).sum()))


def _reduce_scatter(torch: Any, dist: Any, elements: int, rank: int, ranks: int) -> Buffers:
    x, y = torch.full((elements,), float(rank + 1)), torch.empty(elements // ranks)
    expected = ranks * (ranks + 1) / 2
    return Buffers(lambda: dist.reduce_scatter_tensor(y, x), lambda: y.zero_(), lambda: int((y != expected).sum()))


def _alltoall(torch: Any, dist: Any, elements: int, rank: int, ranks: int) -> Buffers:
    piece = elements // ranks
    x, y = torch.full((elements,), float(rank + 1)), torch.empty(elements)
    expected = torch.arange(1, ranks + 1, dtype=torch.float32).repeat_interleave(piece)
    return Buffers(lambda: dist.all_to_all_single(y, x), lambda: y.zero_(), lambda: int((y != expected).sum()))


def _broadcast(torch: Any, dist: Any, elements: int, rank: int, _ranks: int) -> Buffers:
    x = torch.empty(elements)
    return Buffers(
        lambda: dist.broadcast(x, 0), lambda: x.fill_(7.0 if rank == 0 else 0.0), lambda: int((x != 7.0).sum())
    )


def _sendrecv(torch: Any, dist: Any, elements: int, rank: int, ranks: int) -> Buffers:
    x, y = torch.full((elements,), float(rank + 1)), torch.empty(elements)
    behind, ahead = (rank - 1) % ranks, (rank + 1) % ranks

    def run() -> None:
        operations = [dist.P2POp(dist.isend, x, ahead), dist.P2POp(dist.irecv, y, behind)]
        for request in dist.batch_isend_irecv(operations):
            request.wait()

    return Buffers(run, lambda: y.zero_(), lambda: int((y != float(behind + 1)).sum()))


def _others(ranks: int) -> float:
    return (ranks - 1) / ranks


KINDS: dict[str, Kind] = {
    "all_reduce": Kind(_all_reduce, lambda n: 2 * _others(n), redop="sum", in_place=True),
    "all_gather": Kind(_all_gather, _others, shared=True),
    "reduce_scatter": Kind(_reduce_scatter, _others, redop="sum", shared=True),
    "alltoall": Kind(_alltoall, _others, shared=True),
    "broadcast": Kind(_broadcast, lambda _: 1.0, root=0, in_place=True),
    "sendrecv": Kind(_sendrecv, lambda _: 1.0),
}


def measure(torch: Any, dist: Any, name: str, size: int, options: argparse.Namespace) -> dict[str, Any]:
    """Return one result of a collective at ``size`` bytes; called by every rank, equal on all of them."""
    rank, ranks, kind = dist.get_rank(), dist.get_world_size(), KINDS[name]
    elements = size // ELEMENT_BYTES
    if kind.shared:
        elements = max(ranks, elements // ranks * ranks)
    buffers = kind.prepare(torch, dist, elements, rank, ranks)
    for _ in range(options.warmup):
        buffers.reset()
        buffers.run()
    mine = torch.empty(options.iterations, dtype=torch.float64)
    wrong = 0
    for i in range(options.iterations):
        buffers.reset()
        dist.barrier()
        start = time.perf_counter()
        buffers.run()
        mine[i] = (time.perf_counter() - start) * 1e6
        wrong += buffers.wrong()
    dist.all_reduce(mine, op=dist.ReduceOp.MAX)
    total = torch.tensor([wrong], dtype=torch.int64)
    dist.all_reduce(total)
    best = round(float(mine.min()), 3)
    algbw = elements * ELEMENT_BYTES / best / 1e3
    return {
        "collective": name,
        "size": elements * ELEMENT_BYTES,
        "dtype": "float",
        "redop": kind.redop,
        "root": kind.root,
        "in_place": kind.in_place,
        "time_us": best,
        "alg_bw": round(algbw, 6),
        "bus_bw": round(algbw * kind.factor(ranks), 6),
        "nwrong": int(total),
        "times_us": [round(float(t), 3) for t in mine],
    }


def sweep(options: argparse.Namespace) -> int:
    """Run this rank's part of the sweep; rank 0 prints the result. Returns the exit code."""
    import torch
    import torch.distributed as dist

    # The names used are those that every torch since 2.1 has; newer ones announce others.
    warnings.simplefilter("ignore", FutureWarning)
    members = options.members
    rank = members.index(options.member)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{options.rendezvous}",
        rank=rank,
        world_size=len(members),
        timeout=timedelta(seconds=options.timeout),
    )
    places: list[Any] = [None] * len(members)
    here = {"rank": rank, "member": options.member, "host": socket.gethostname(), "pid": os.getpid()}
    dist.all_gather_object(places, here)
    results = []
    for name in options.collectives:
        size = options.min_bytes
        while size <= options.max_bytes:
            results.append(measure(torch, dist, name, size, options))
            size *= options.factor
    dist.destroy_process_group()
    if rank == 0:
        out = {
            "tool": "gloo_sweep",
            "format": FORMAT,
            "torch": torch.__version__,
            "ranks": places,
            "warmup": options.warmup,
            "iterations": options.iterations,
            "results": results,
            "complete": True,
        }
        sys.stdout.write(json.dumps(out) + "\n")
        sys.stdout.flush()
    return 1 if any(r["nwrong"] for r in results) else 0


def supervise(options: argparse.Namespace, argv: list[str]) -> int:
    """Start one process per member, wait for all, and end all as soon as one fails. Returns the exit code."""
    deadline = time.monotonic() + options.timeout
    with tempfile.TemporaryDirectory(prefix="gloo-sweep-") as folder:
        rendezvous = Path(folder) / "rendezvous"
        # A wrapper that started this program must start its ranks too: its name is passed on, not this file's.
        command = [sys.executable, sys.argv[0], *argv, "--rendezvous", str(rendezvous)]
        ranks = [subprocess.Popen([*command, "--member", str(m)]) for m in options.members]
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        try:
            return _wait(ranks, deadline, options)
        finally:
            for process in ranks:
                process.kill()
            for process in ranks:
                process.wait()


def _wait(ranks: list[subprocess.Popen[bytes]], deadline: float, options: argparse.Namespace) -> int:
    while True:
        codes = [p.poll() for p in ranks]
        failed = [(m, c) for m, c in zip(options.members, codes, strict=True) if c not in (None, 0)]
        if failed:
            sys.stderr.write(f"rank {failed[0][0]} ended with exit code {failed[0][1]}\n")
            return 1
        if all(c == 0 for c in codes):
            return 0
        if time.monotonic() > deadline:
            sys.stderr.write(f"not finished after {options.timeout:g} s\n")
            return 124
        time.sleep(0.02)


def _options(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--ranks", type=int, default=2, help="processes")
    parser.add_argument("--members", default="", help="ranks that take part, comma separated; default: all")
    parser.add_argument("--collectives", default=",".join(KINDS), help="comma separated")
    parser.add_argument("--min-bytes", type=int, default=64 << 10)
    parser.add_argument("--max-bytes", type=int, default=16 << 20)
    parser.add_argument("--factor", type=int, default=4)
    parser.add_argument("--iterations", type=int, default=5)
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds for the whole sweep")
    parser.add_argument("--rendezvous", default="", help=argparse.SUPPRESS)
    parser.add_argument("--member", type=int, default=None, help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    options.collectives = options.collectives.split(",")
    unknown = [c for c in options.collectives if c not in KINDS]
    if unknown:
        parser.error(f"no collective {unknown[0]!r}; known: {', '.join(KINDS)}")
    options.members = [int(m) for m in options.members.split(",")] if options.members else list(range(options.ranks))
    if len(set(options.members)) != len(options.members) or len(options.members) < 2:
        parser.error("a sweep needs two or more different ranks")
    if options.iterations < 1 or options.factor < 2 or options.min_bytes < ELEMENT_BYTES:
        parser.error("iterations of 1 or more, a factor of 2 or more and sizes of 4 bytes or more are needed")
    return options


def main(argv: list[str] | None = None) -> int:
    """Run the sweep. Returns the exit code."""
    given = sys.argv[1:] if argv is None else argv
    options = _options(given)
    return supervise(options, given) if options.member is None else sweep(options)


if __name__ == "__main__":
    sys.exit(main())
