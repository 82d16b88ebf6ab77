"""The whole load: checks the bucket, starts the processes, sums up their requests, removes what was written."""

from __future__ import annotations

import contextlib
import multiprocessing
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

import minio
from minio import Minio
from minio.deleteobjects import DeleteObject

from fabric_health import __version__
from fabric_health.workloads.s3_bench.client import FAILURES, connect
from fabric_health.workloads.s3_bench.options import PLACE, Options, WrongUsageError
from fabric_health.workloads.s3_bench.samples import MIB, Samples, segments, tally, times
from fabric_health.workloads.s3_bench.worker import WorkerResult, peak_rss_bytes, work

FORMAT, VERSION = "fabric-health/s3-bench", 1
START_DELAY_S = 0.2
# Time after the measured window in which requests still under way must come to an end.
FINISH_S = 120.0
PREPARE_S = 3600.0


class LoadError(Exception):
    """The load could not be run; the message says why."""


def measure(options: Options) -> dict[str, Any]:
    """Run the load and return its result as JSON-ready data.

    Raises WrongUsageError for a bucket that holds other data, LoadError when the store cannot be used at all.
    """
    client = connect(options)
    _check_bucket(client, options)
    remove_all(client, options)
    try:
        with _processes(options) as (pipes, started):
            results, start = _run(options, pipes, started)
    finally:
        left = remove_all(client, options)
    return _result(options, results, start) | ({"left_behind": left} if left else {})


def _check_bucket(client: Minio, options: Options) -> None:
    try:
        if not client.bucket_exists(options.bucket):
            client.make_bucket(options.bucket)
        for found in client.list_objects(options.bucket):
            if not str(found.object_name).startswith(f"{PLACE}/"):
                raise WrongUsageError(
                    f"bucket {options.bucket!r} holds other data ({str(found.object_name)[:80]!r}); expected a bucket "
                    "for benchmarks only"
                )
    except FAILURES as error:
        raise LoadError(f"{options.endpoint}, bucket {options.bucket!r}: {error}") from None


def remove_all(client: Minio, options: Options) -> int:
    """Remove this load's objects, also those an earlier try left; return how many could not be removed."""
    try:
        names = client.list_objects(options.bucket, prefix=options.prefix, recursive=True)
        doomed = (DeleteObject(str(o.object_name)) for o in names)
        return sum(1 for _ in client.remove_objects(options.bucket, doomed))
    except FAILURES:
        return 1


@contextlib.contextmanager
def _processes(options: Options) -> Iterator[tuple[list[Connection], list[BaseProcess]]]:
    """Start the processes; whatever happens, none is left when the block is left."""
    context = multiprocessing.get_context("fork")
    pipes: list[Connection] = []
    started: list[BaseProcess] = []
    try:
        for number in range(options.processes):
            ours, theirs = context.Pipe()
            process: BaseProcess = context.Process(target=work, args=(options, number, theirs), daemon=True)
            process.start()
            theirs.close()
            pipes.append(ours)
            started.append(process)
        yield pipes, started
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.join(2)
            if process.is_alive():
                process.kill()
                process.join()


def _run(options: Options, pipes: list[Connection], started: list[BaseProcess]) -> tuple[list[WorkerResult], float]:
    for pipe in pipes:
        problem = _receive(pipe, PREPARE_S, "preparing objects")
        if problem is not None:
            raise LoadError(f"preparing objects: {problem}")
    start = time.monotonic() + START_DELAY_S
    for pipe in pipes:
        pipe.send(start)
    limit = options.warmup_s + options.duration_s + FINISH_S if not options.requests else PREPARE_S
    results = []
    for pipe in pipes:
        result = _receive(pipe, limit, "measuring")
        if not isinstance(result, WorkerResult):
            raise LoadError(f"measuring: {result}")
        results.append(result)
    for process in started:
        process.join(2)
    return results, start


def _receive(pipe: Connection, limit_s: float, what: str) -> Any:
    try:
        if not pipe.poll(limit_s):
            raise LoadError(f"{what}: no answer of a process within {limit_s:.0f} s")
        return pipe.recv()
    except EOFError:
        raise LoadError(f"{what}: a process ended unexpectedly") from None


def _result(options: Options, results: list[WorkerResult], start: float) -> dict[str, Any]:
    begin, end = _window(options, results, start)
    operations = sorted({op for r in results for t in r.threads for op in t.samples})
    errors = [e for r in results for e in r.first_errors][:10]
    described = [_operation(op, [op], options, results, begin, end, errors) for op in operations]
    if options.load == "mixed":
        described.append(_operation("MIXED", operations, options, results, begin, end, errors))
    peak = peak_rss_bytes() + sum(r.peak_rss_bytes for r in results)
    return {
        "format": FORMAT,
        "v": VERSION,
        "tool_version": f"{__version__}, minio {minio.__version__}",
        "server": next((r.server for r in results if r.server), None),
        "load": options.load,
        "processes": options.processes,
        "warmup_s": options.warmup_s,
        "peak_rss_bytes": peak,
        "cpu_s": round(sum(r.cpu_s for r in results), 3),
        "operations": described,
    }


def _window(options: Options, results: list[WorkerResult], start: float) -> tuple[float, float]:
    """Return the measured window.

    It ends with the time, or when the first thread found nothing left to delete, so that all were at work in it. A
    count of requests is measured to its last one.
    """
    drained = [t.drained_at for r in results for t in r.threads if t.drained_at is not None]
    if options.requests:
        return start, max([start + 1e-6, *drained])
    begin = start + (options.warmup_s if options.load != "delete" else 0.0)
    return begin, max(begin + 1e-6, min([begin + options.duration_s, *drained]))


def _operation(
    op: str,
    parts: list[str],
    options: Options,
    results: list[WorkerResult],
    begin: float,
    end: float,
    errors: list[str],
) -> dict[str, Any]:
    threads = [[t.samples.get(p, Samples()) for p in parts] for r in results for t in r.threads]
    with_payload = any(p in ("GET", "PUT") for p in parts)
    found = tally(threads, begin, end, with_payload)
    seconds = end - begin
    return {
        "op": op,
        "hosts": [options.endpoint],
        "concurrency": found.threads,
        "object_bytes": round(found.whole_bytes / found.whole_objects) if found.whole_objects and len(parts) == 1
        and with_payload else None,
        "duration_s": round(seconds, 6),
        "requests": found.requests,
        "errors": found.errors,
        "first_errors": errors if found.errors else [],
        "mib_per_s": round(found.moved / seconds / MIB, 4) if with_payload else None,
        "objects_per_s": round(found.objects / seconds, 4),
        "ttfb": times(found.ttfbs),
        "latency": times(found.latencies) if len(parts) == 1 else None,
        "segments": segments(found.parts),
    }  # fmt: skip
