"""One process of the load: prepares its objects, waits for the common start, makes requests on its threads."""

from __future__ import annotations

import os
import random
import resource
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

from fabric_health.workloads.s3_bench.client import FAILURES, Done, Store
from fabric_health.workloads.s3_bench.options import Options, share
from fabric_health.workloads.s3_bench.samples import Samples

MAX_ERRORS_KEPT = 10
# Shares of a mixed load, in percent: those that warp has by default.
MIXED = {"GET": 45, "STAT": 30, "PUT": 15, "DELETE": 10}
# A store that refuses everything must not be asked as fast as it can refuse.
AFTER_FAILURE_S = 0.05


def peak_rss_bytes() -> int:
    """Return the peak resident memory of this process, in bytes.

    Linux's ``VmHWM``: ``ru_maxrss`` also holds what the process that started this one had before it became this one.
    """
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        status = ""
    for line in status.splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@dataclass
class ThreadResult:
    """What one thread did: samples by operation, and when it had nothing left to do (monotonic s, None: never)."""

    samples: dict[str, Samples] = field(default_factory=dict)
    drained_at: float | None = None


@dataclass
class WorkerResult:
    """What one process did."""

    threads: list[ThreadResult] = field(default_factory=list)
    first_errors: list[str] = field(default_factory=list)
    server: str | None = None
    peak_rss_bytes: int = 0
    cpu_s: float = 0.0


def prepared_name(options: Options, process: int, number: int) -> str:
    """Return the name of a prepared object."""
    return f"{options.prefix}o/{process}-{number}"


def work(options: Options, process: int, pipe: Connection) -> None:
    """Run one process of the load; talks over ``pipe``: ready or an error, then the start, then the result."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        # Inherited from the parent, whose business cleaning up is.
        signal.signal(number, signal.SIG_DFL)
    try:
        worker = _Worker(options, process)
        worker.prepare()
        pipe.send(None)
        start: float | None = pipe.recv()
        if start is not None:
            pipe.send(worker.run(start))
    except (EOFError, BrokenPipeError):
        return
    except FAILURES as error:
        pipe.send(f"{type(error).__name__}: {error}")
    finally:
        pipe.close()


class _Worker:
    def __init__(self, options: Options, process: int) -> None:
        self.options, self.process = options, process
        self.threads = options.threads_of(process)
        self.store = Store(options)
        self.result = WorkerResult()
        self.parent = os.getppid()
        # Requests left, None for as many as there is time for. All threads take from it, so that a slow one does not
        # keep a part of its own until the others have gone.
        self.left = share(options.requests, options.processes, process) if options.requests else None
        self._lock = threading.Lock()
        own = share(options.objects, options.processes, process) if options.load != "put" else 0
        self.mine = [prepared_name(options, process, n) for n in range(own)]
        # Read are the objects of all processes: what one wrote itself may sit in a cache close by.
        self.everything = [
            prepared_name(options, p, n)
            for p in range(options.processes)
            for n in range(share(options.objects, options.processes, p))
        ]

    def prepare(self) -> None:
        """Write this process's objects; raises the first failure."""
        queue = iter(self.mine)
        failures: list[Exception] = []

        def put_all() -> None:
            while not failures:
                with self._lock:
                    name = next(queue, None)
                if name is None:
                    return
                try:
                    self.store.put(name)
                except FAILURES as error:
                    failures.append(error)

        _on_threads([put_all] * self.threads)
        if failures:
            raise failures[0]

    def run(self, start: float) -> WorkerResult:
        self.result.threads = [ThreadResult() for _ in range(self.threads)]
        loops = [_Loop(self, n).run for n in range(self.threads)]
        self.until = (
            start + self.options.warmup_s + self.options.duration_s if not self.options.requests else float("inf")
        )
        time.sleep(max(0.0, start - time.monotonic()))
        spent = time.process_time()
        _on_threads(loops)
        self.result.cpu_s = time.process_time() - spent
        self.result.peak_rss_bytes = peak_rss_bytes()
        return self.result

    def failed(self, error: BaseException) -> None:
        with self._lock:
            if len(self.result.first_errors) < MAX_ERRORS_KEPT:
                self.result.first_errors.append(f"{type(error).__name__}: {error}"[:300])

    def take(self) -> bool:
        """Return whether there is another request to make, which is then the caller's."""
        if self.left is None:
            return time.monotonic() < self.until
        with self._lock:
            self.left -= 1
            return self.left >= 0

    def next_to_delete(self) -> str | None:
        with self._lock:
            return self.mine.pop() if self.mine else None


class _Loop:
    """The requests of one thread, one after the other."""

    def __init__(self, worker: _Worker, thread: int) -> None:
        self.worker, self.thread = worker, thread
        self.result = worker.result.threads[thread]
        options = worker.options
        self.random = random.Random(f"{options.name}/{worker.process}/{thread}")  # noqa: S311
        self.keep = max(1, options.max_stored_bytes // options.object_bytes // options.concurrency)
        self.written: list[str] = []
        self.puts = 0

    def run(self) -> None:
        next_request = {
            "get": lambda: ("GET", self._any()),
            "stat": lambda: ("STAT", self._any()),
            "put": lambda: ("PUT", self._new()),
            "delete": lambda: ("DELETE", self.worker.next_to_delete()),
            "mixed": self._mixed,
        }[self.worker.options.load]
        store = self.worker.store
        make: dict[str, Callable[[str], Done]] = {
            "GET": store.get, "PUT": store.put, "STAT": store.stat, "DELETE": store.delete,
        }  # fmt: skip
        while os.getppid() == self.worker.parent and self.worker.take():
            op, name = next_request()
            if name is None:
                self.result.drained_at = time.monotonic()
                return
            self._timed(op, make[op], name)
        if self.worker.left is not None:
            self.result.drained_at = time.monotonic()

    def _timed(self, op: str, make: Callable[[str], Done], name: str) -> None:
        samples = self.result.samples.setdefault(op, Samples())
        start = time.monotonic()
        try:
            done = make(name)
        except FAILURES as error:
            samples.add(start, time.monotonic(), None, 0, True)
            self.worker.failed(error)
            time.sleep(AFTER_FAILURE_S)
            return
        samples.add(start, time.monotonic(), done.first_byte, done.moved, False)
        if done.server and self.worker.result.server is None:
            self.worker.result.server = done.server

    def _any(self) -> str:
        return self.random.choice(self.worker.everything)

    def _new(self) -> str:
        self.puts += 1
        return f"{self.worker.options.prefix}p/{self.worker.process}-{self.thread}-{self.puts % self.keep}"

    def _mixed(self) -> tuple[str, str]:
        op = self.random.choices(tuple(MIXED), tuple(MIXED.values()))[0]
        if op == "DELETE" and not self.written:
            op = "PUT"
        if op == "DELETE":
            return op, self.written.pop(0)
        if op == "PUT":
            name = self._new()
            if name not in self.written[-self.keep :]:
                self.written.append(name)
            return op, name
        return op, self._any()


def _on_threads(functions: list[Callable[[], None]]) -> None:
    threads = [threading.Thread(target=f, daemon=True) for f in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
