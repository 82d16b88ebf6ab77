"""Sweep collectives over torch.distributed's gloo backend and print one line of JSON: the embedded benchmark engine.

It starts its own ranks on this machine, measures what nccl-tests measures (size / time, and the factor of each
collective: https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md), checks every result, and times each
iteration by its slowest rank. Of an iteration count the fastest is reported: on shared CPUs the others mostly measure
who else was running. Exit code 0 only for a complete sweep without a wrong value.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import signal
import socket
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
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


def sweep(options: argparse.Namespace, group: Sequence[int], member: int, folder: Path) -> int:
    """Run ``member``'s part of the sweep of its group; the first member leaves the result in ``folder``. Returns 0."""
    import torch
    import torch.distributed as dist

    # The names used are those that every torch since 2.1 has; newer ones announce others.
    warnings.simplefilter("ignore", FutureWarning)
    rank, name = group.index(member), _name(group)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder / name}",
        rank=rank,
        world_size=len(group),
        timeout=timedelta(seconds=options.timeout),
    )
    places: list[Any] = [None] * len(group)
    dist.all_gather_object(places, {"member": member, "host": socket.gethostname(), "pid": os.getpid()})
    results = []
    for collective in options.collectives:
        size = options.min_bytes
        while size <= options.max_bytes:
            results.append(measure(torch, dist, collective, size, options))
            size *= options.factor
    dist.destroy_process_group()
    if rank == 0:
        (folder / f"{name}.json").write_text(json.dumps({"ranks": places, "results": results}))
    return 0


def supervise(options: argparse.Namespace) -> int:
    """Sweep one group after the other and print what all gave. Returns the exit code.

    Ranks are forks of this process: it has loaded torch once for all of them, and has no threads yet.
    """
    deadline = time.monotonic() + options.timeout
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        import torch.distributed
    except ImportError as error:
        sys.stderr.write(f"torch cannot be loaded: {error}\n")
        return 1
    out: dict[str, Any] = {
        "tool": "gloo_sweep",
        "format": FORMAT,
        "torch": torch.__version__,
        "ranks": [],
        "warmup": options.warmup,
        "iterations": options.iterations,
        "results": [],
        "complete": True,
    }
    with tempfile.TemporaryDirectory(prefix="gloo-sweep-") as folder:
        for number, group in enumerate(options.groups):
            code = _run(options, group, Path(folder), deadline)
            if code != 0:
                return code
            found = json.loads((Path(folder) / f"{_name(group)}.json").read_text())
            first = len(out["ranks"])
            out["ranks"] += [{"rank": first + i, **place, "group": number} for i, place in enumerate(found["ranks"])]
            out["results"] += [{**result, "group": number} for result in found["results"]]
    sys.stdout.write(json.dumps(out) + "\n")
    sys.stdout.flush()
    return 1 if any(r["nwrong"] for r in out["results"]) else 0


def _name(group: Sequence[int]) -> str:
    return "-".join(str(m) for m in group)


def _run(options: argparse.Namespace, group: Sequence[int], folder: Path, deadline: float) -> int:
    """Start one process per member, wait for all, and end all as soon as one fails. Returns the exit code."""
    fork = multiprocessing.get_context("fork")
    ranks = [fork.Process(target=_as_rank, args=(options, group, m, folder)) for m in group]
    try:
        for process in ranks:
            process.start()
        return _wait(ranks, group, deadline, options)
    finally:
        for process in ranks:
            if process.pid is not None:
                process.kill()
                process.join()


def _as_rank(options: argparse.Namespace, group: Sequence[int], member: int, folder: Path) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    sys.exit(sweep(options, group, member, folder))


def _wait(ranks: Sequence[Any], group: Sequence[int], deadline: float, options: argparse.Namespace) -> int:
    while True:
        codes = [p.exitcode for p in ranks]
        failed = [(m, c) for m, c in zip(group, codes, strict=True) if c not in (None, 0)]
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
    parser.add_argument("--groups", default="", help="groups of ranks, each swept by itself: 0,1/2,3")
    parser.add_argument("--collectives", default=",".join(KINDS), help="comma separated")
    parser.add_argument("--min-bytes", type=int, default=64 << 10)
    parser.add_argument("--max-bytes", type=int, default=16 << 20)
    parser.add_argument("--factor", type=int, default=4)
    parser.add_argument("--iterations", type=int, default=5)
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds for the whole sweep")
    options = parser.parse_args(argv)
    options.collectives = options.collectives.split(",")
    unknown = [c for c in options.collectives if c not in KINDS]
    if unknown:
        parser.error(f"no collective {unknown[0]!r}; known: {', '.join(KINDS)}")
    asked = options.groups or options.members or ",".join(str(r) for r in range(options.ranks))
    try:
        options.groups = [[int(m) for m in group.split(",")] for group in asked.split("/")]
    except ValueError:
        parser.error(f"ranks {asked!r}: expected numbers, as 0,1 or in groups 0,1/2,3")
    if any(len(set(group)) != len(group) or len(group) < 2 for group in options.groups):
        parser.error("a sweep needs two or more different ranks")
    if options.iterations < 1 or options.factor < 2 or options.min_bytes < ELEMENT_BYTES:
        parser.error("iterations of 1 or more, a factor of 2 or more and sizes of 4 bytes or more are needed")
    return options


def main(argv: list[str] | None = None) -> int:
    """Run the sweep. Returns the exit code."""
    return supervise(_options(sys.argv[1:] if argv is None else argv))


if __name__ == "__main__":
    sys.exit(main())
