"""Results of warp as tables: all requests (``.csv.zst``), and throughput in time segments (``--analyze.out``).

Both are separated by tabs and have had columns added over the years, so columns are found by name. From all requests
true percentiles are taken, which no other layout of warp gives.
"""

from __future__ import annotations

import csv
import itertools
import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from statistics import median

from fabric_health.checks.object_store.documents import moment
from fabric_health.checks.object_store.quantities import MIB
from fabric_health.checks.object_store.reading import SAMPLES, HostShare, Operation, Reading, Segments, Times
from fabric_health.checks.untrusted import clip

LAYOUT, SEGMENT_LAYOUT = "warp csv", "warp segments"
_REQUEST_COLUMNS = frozenset({"idx", "thread", "op", "bytes", "error", "start", "end", "duration_ns"})
_SEGMENT_COLUMNS = frozenset({"index", "op", "duration_s", "mb_per_sec", "errors"})
MAX_LINES = 5_000_000
MAX_FIELD = 4096


def read_warp_requests(output: str) -> Reading | None:
    """Read a table of all requests; None when its header is not there."""
    table = _table(output, _REQUEST_COLUMNS)
    if table is None:
        return None
    header, lines = table
    by_op: dict[str, _Requests] = defaultdict(_Requests)
    bad = 0
    for cells in lines:
        bad += not _take(dict(zip(header, cells, strict=False)) if len(cells) == len(header) else {}, by_op)
    problems = [f"{bad} lines that are no requests"] if bad else []
    operations = [requests.operation(op) for op, requests in sorted(by_op.items())]
    if not operations:
        problems.append("no request in the result")
    if len(operations) > 1:
        together = _Requests()
        for requests in by_op.values():
            together.join(requests)
        operations.append(together.operation("MIXED"))
    return Reading(LAYOUT, tuple(operations), problems=tuple(problems))


def _table(output: str, wanted: frozenset[str]) -> tuple[list[str], Iterator[list[str]]] | None:
    """Return header and lines of the first table whose header has ``wanted``; comment lines are passed over."""
    lines = output.splitlines()[: MAX_LINES + 1]
    for at, line in enumerate(lines[:200]):
        header = line.strip().split("\t")
        if wanted <= set(header) and len(header) == len(set(header)):
            body = (x for x in itertools.islice(lines, at + 1, None) if x.strip() and not x.startswith("#"))
            return header, _rows(body)
    return None


def _rows(lines: Iterator[str]) -> Iterator[list[str]]:
    for line in lines:
        # One line at a time: an open quote must not swallow the rest of the file.
        try:
            yield next(csv.reader([line], delimiter="\t"), [])
        except csv.Error:
            yield []


@dataclass
class _Requests:
    """Requests of one operation."""

    starts: list[float] = field(default_factory=list)
    ends: list[float] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    objects: list[int] = field(default_factory=list)
    hosts: list[str] = field(default_factory=list)
    failed: list[bool] = field(default_factory=list)
    ttfb: list[float] = field(default_factory=list)
    threads: set[tuple[str, str]] = field(default_factory=set)
    clients: set[str] = field(default_factory=set)
    first_error: str | None = None

    def join(self, other: _Requests) -> None:
        for name in ("starts", "ends", "sizes", "objects", "hosts", "failed"):
            getattr(self, name).extend(getattr(other, name))
        self.threads |= other.threads
        self.clients |= other.clients
        self.first_error = self.first_error or other.first_error

    def operation(self, op: str) -> Operation:
        good = [i for i, failed in enumerate(self.failed) if not failed]
        begin, end = min(self.starts), max(self.ends)
        seconds = end - begin
        payload, objects = sum(self.sizes[i] for i in good), sum(self.objects[i] for i in good)
        hosts = sorted(set(self.hosts) - {""})
        base = Operation(
            op,
            hosts=tuple(hosts),
            clients=len(self.clients) or None,
            concurrency=len(self.threads),
            object_bytes=round(payload / objects) if objects else None,
            requests=len(self.starts),
            errors=len(self.starts) - len(good),
            first_error=self.first_error,
        )
        if seconds < 2 or not good:
            return Operation(**{**base.__dict__, "problem": "too few samples: a longer run is needed"})
        times = [(self.ends[i] - self.starts[i]) * 1000 for i in good]
        return Operation(
            **{
                **base.__dict__,
                "duration_s": seconds,
                "mib_per_s": payload / seconds / MIB if payload else None,
                "objects_per_s": objects / seconds,
                "latency": _times(times) if op != "MIXED" else Times(),
                "ttfb": _times(self.ttfb) if len(self.ttfb) == len(good) else Times(),
                "percentiles": SAMPLES if op != "MIXED" else None,
                "segments": self._segments(good, begin, seconds, bool(payload)),
                "by_host": tuple(self._share(h, seconds) for h in hosts),
            }
        )

    def _segments(self, good: list[int], begin: float, seconds: float, by_bytes: bool) -> Segments:
        """Spread each request evenly over its time and sum it up by whole seconds."""
        parts = [0.0] * min(int(seconds), 100_000)
        for i in good:
            amount = self.sizes[i] / MIB if by_bytes else float(self.objects[i])
            start, end = self.starts[i] - begin, self.ends[i] - begin
            rate = amount / max(end - start, 1e-9)
            for s in range(int(start), min(int(end) + 1, len(parts))):
                parts[s] += rate * max(0.0, min(end, s + 1) - max(start, s))
        if len(parts) < 2:
            return Segments()
        ordered = sorted(parts)
        return Segments(len(parts), 1.0, ordered[-1], median(ordered), ordered[0])

    def _share(self, host: str, seconds: float) -> HostShare:
        mine = [i for i, h in enumerate(self.hosts) if h == host]
        good = [i for i in mine if not self.failed[i]]
        payload = sum(self.sizes[i] for i in good)
        return HostShare(
            host,
            payload / seconds / MIB if payload else None,
            sum(self.objects[i] for i in good) / seconds,
            len(mine),
            len(mine) - len(good),
        )


def _take(cells: dict[str, str], by_op: dict[str, _Requests]) -> bool:
    """Add one line; False when it is no request."""
    op = cells.get("op", "")
    start, end = moment(cells.get("start")), moment(cells.get("end"))
    size, objects = _whole(cells.get("bytes")), _whole(cells.get("n_objects", "1"))
    if not op.isalpha() or len(op) > 20 or start is None or end is None or end < start or None in (size, objects):
        return False
    requests = by_op[op.upper()]
    began = start.timestamp()
    requests.starts.append(began)
    requests.ends.append(began + (end - start).total_seconds())
    requests.sizes.append(size or 0)
    requests.objects.append(objects or 0)
    requests.hosts.append(clip(cells.get("endpoint", ""), 120))
    error = cells.get("error", "")
    requests.failed.append(bool(error))
    requests.first_error = requests.first_error or (clip(error) if error else None)
    requests.threads.add((cells.get("client_id", ""), cells.get("thread", "")))
    if cells.get("client_id"):
        requests.clients.add(cells["client_id"])
    first: datetime | None = moment(cells.get("first_byte"))
    if first is not None and first >= start and not error:
        requests.ttfb.append((first - start).total_seconds() * 1000)
    return True


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 19 else None


def _times(values: list[float]) -> Times:
    if not values:
        return Times()
    ordered = sorted(values)
    p50, p90, p99 = (ordered[math.ceil(p * len(ordered)) - 1] for p in (0.5, 0.9, 0.99))
    return Times(sum(ordered) / len(ordered), p50, p90, p99, ordered[-1])


def read_warp_segments(output: str) -> Reading | None:
    """Read the table of ``--analyze.out``; ``mb_per_sec`` in it is MiB/s. None when its header is not there.

    It says nothing of request times, concurrency and object size, so by itself it cannot show that the launch
    measured what was asked.
    """
    table = _table(output, _SEGMENT_COLUMNS)
    if table is None:
        return None
    header, lines = table
    totals: dict[str, list[tuple[float, float, float]]] = defaultdict(list)
    hosts: dict[str, dict[str, list[tuple[float, float, float]]]] = defaultdict(lambda: defaultdict(list))
    errors: dict[str, int] = defaultdict(int)
    bad = 0
    for cells in lines:
        row = dict(zip(header, cells, strict=False)) if len(cells) == len(header) else {}
        op = row.get("op", "")
        # Before there was a column for objects, requests that ended stood for those of one object each.
        rate = "objs_per_sec" if "objs_per_sec" in row or row.get("objects_per_op") != "1" else "ops_ended_per_sec"
        values = [_real(row.get(k)) for k in ("duration_s", "mb_per_sec", rate)]
        failed = _whole(row.get("errors"))
        if not op.isalpha() or len(op) > 20 or failed is None or None in values or not values[0]:
            bad += 1
            continue
        part = (values[0] or 0.0, values[1] or 0.0, values[2] or 0.0)
        host = clip(row.get("host", ""), 120)
        if "://" in host or ":" in host:
            hosts[op.upper()][host].append(part)
        else:
            totals[op.upper()].append(part)
            errors[op.upper()] += failed
    problems = [f"{bad} lines that are no segments"] if bad else []
    operations = tuple(_of_segments(op, parts, errors[op], hosts[op]) for op, parts in sorted(totals.items()))
    if not operations:
        problems.append("no segment in the result")
    return Reading(SEGMENT_LAYOUT, operations, problems=tuple(problems))


def _of_segments(
    op: str, parts: list[tuple[float, float, float]], errors: int, hosts: dict[str, list[tuple[float, float, float]]]
) -> Operation:
    seconds, mib, rate = _mean(parts)
    ordered = sorted(p[1] if mib else p[2] for p in parts)
    problem = None if len(parts) > 1 else "too few samples: a longer run is needed"
    shares = tuple(HostShare(h, _mean(p)[1], _mean(p)[2]) for h, p in sorted(hosts.items()))
    if problem:
        return Operation(op, hosts=tuple(sorted(hosts)), errors=errors, problem=problem)
    return Operation(
        op,
        hosts=tuple(sorted(hosts)),
        duration_s=seconds,
        errors=errors,
        mib_per_s=mib,
        objects_per_s=rate,
        segments=Segments(len(parts), parts[0][0], ordered[-1], median(ordered), ordered[0]),
        by_host=shares,
    )


def _mean(parts: list[tuple[float, float, float]]) -> tuple[float, float | None, float]:
    seconds = sum(p[0] for p in parts)
    mib = sum(p[0] * p[1] for p in parts) / seconds
    return seconds, mib or None, sum(p[0] * p[2] for p in parts) / seconds


def _real(text: str | None) -> float | None:
    if text is None or len(text) > 40:
        return None
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and 0 <= value < 2**62 else None
