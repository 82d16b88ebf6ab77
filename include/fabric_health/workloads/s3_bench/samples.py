"""Times of single requests, and what they amount to over a window of time."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

MIB = 1 << 20
SEGMENT_S = 1.0
MAX_SEGMENTS = 100_000


@dataclass
class Samples:
    """Requests of one operation of one thread: start, end (monotonic s), first byte (NaN: none), bytes, failed."""

    start: array[float] = field(default_factory=lambda: array("d"))
    end: array[float] = field(default_factory=lambda: array("d"))
    first: array[float] = field(default_factory=lambda: array("d"))
    moved: array[int] = field(default_factory=lambda: array("q"))
    failed: array[int] = field(default_factory=lambda: array("b"))

    def add(self, start: float, end: float, first: float | None, moved: int, failed: bool) -> None:
        """Add one request."""
        self.start.append(start)
        self.end.append(end)
        self.first.append(math.nan if first is None else first)
        self.moved.append(moved)
        self.failed.append(failed)

    def __len__(self) -> int:
        return len(self.start)


@dataclass
class Tally:
    """What all threads did of one operation within a window."""

    requests: int = 0
    errors: int = 0
    threads: int = 0
    moved: float = 0.0
    objects: float = 0.0
    whole_bytes: int = 0
    whole_objects: int = 0
    latencies: list[float] = field(default_factory=list)
    ttfbs: list[float] = field(default_factory=list)
    parts: list[float] = field(default_factory=list)


def tally(threads: Iterable[Sequence[Samples]], begin: float, end: float, by_bytes: bool) -> Tally:
    """Sum up requests over the window from ``begin`` to ``end`` (monotonic s).

    Throughput is of the part of each good request that falls into the window, spread evenly over the request's time.
    Requests and times are of those that started in it. Errors are counted from the first request on.
    """
    out = Tally(parts=[0.0] * min(int((end - begin) / SEGMENT_S), MAX_SEGMENTS))
    for samples_of_thread in threads:
        seen = False
        for s in samples_of_thread:
            for i in range(len(s)):
                seen |= _take(out, s, i, begin, end, by_bytes)
        out.threads += seen
    return out


def _take(out: Tally, s: Samples, i: int, begin: float, end: float, by_bytes: bool) -> bool:
    start, stop, moved = s.start[i], s.end[i], s.moved[i]
    inside = begin <= start < end
    if s.failed[i]:
        out.errors += 1
        out.requests += 1
        return inside
    overlap = min(stop, end) - max(start, begin)
    if overlap > 0:
        share = overlap / (stop - start)
        out.moved += moved * share
        out.objects += share
        _spread(out.parts, start - begin, stop - begin, moved / MIB if by_bytes else 1.0)
    if inside:
        out.requests += 1
        out.whole_bytes += moved
        out.whole_objects += 1
        out.latencies.append((stop - start) * 1000)
        if not math.isnan(s.first[i]):
            out.ttfbs.append((s.first[i] - start) * 1000)
    return inside


def _spread(parts: list[float], start: float, stop: float, amount: float) -> None:
    rate = amount / (stop - start)
    for n in range(max(0, int(start / SEGMENT_S)), min(len(parts), int(stop / SEGMENT_S) + 1)):
        low, high = n * SEGMENT_S, (n + 1) * SEGMENT_S
        parts[n] += rate * max(0.0, min(stop, high) - max(start, low)) / SEGMENT_S


def times(values: list[float]) -> dict[str, float] | None:
    """Return mean, nearest-rank percentiles and maximum of true samples in ms; None when there are none."""
    if not values:
        return None
    ordered = sorted(values)

    def rank(p: float) -> float:
        return round(ordered[math.ceil(p * len(ordered)) - 1], 4)

    return {
        "avg_ms": round(sum(ordered) / len(ordered), 4),
        "p50_ms": rank(0.5),
        "p90_ms": rank(0.9),
        "p99_ms": rank(0.99),
        "max_ms": rank(1.0),
    }


def segments(parts: list[float]) -> dict[str, Any] | None:
    """Return fastest, median and slowest second; None when there are fewer than two."""
    if len(parts) < 2:
        return None
    ordered = sorted(parts)
    return {
        "count": len(ordered),
        "seconds": SEGMENT_S,
        "fastest": round(ordered[-1], 4),
        "median": round(median(ordered), 4),
        "slowest": round(ordered[0], 4),
    }
