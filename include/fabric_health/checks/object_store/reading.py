"""What any layout of a benchmark's result says, in one shape: all parsers of this check return a :class:`Reading`.

Numbers are None where the layout does not say them; a parser never fills one in.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Times:
    """Times of requests, in ms."""

    avg_ms: float | None = None
    p50_ms: float | None = None
    p90_ms: float | None = None
    p99_ms: float | None = None
    max_ms: float | None = None


@dataclass(frozen=True)
class Segments:
    """Throughput of equal parts of the window: MiB/s, or objects/s for operations without payload."""

    count: int | None = None
    seconds: float | None = None
    fastest: float | None = None
    median: float | None = None
    slowest: float | None = None


@dataclass(frozen=True)
class HostShare:
    """What one endpoint contributed."""

    host: str
    mib_per_s: float | None = None
    objects_per_s: float | None = None
    requests: int | None = None
    errors: int | None = None


SAMPLES, SEGMENT_MEANS = "samples", "segment_means"


@dataclass(frozen=True)
class Operation:
    """One operation of a result. ``problem`` says why there are no numbers, e.g. too few samples."""

    op: str
    hosts: tuple[str, ...] = ()
    clients: int | None = None
    concurrency: int | None = None
    object_bytes: int | None = None
    duration_s: float | None = None
    requests: int | None = None
    errors: int | None = None
    first_error: str | None = None
    mib_per_s: float | None = None
    objects_per_s: float | None = None
    ttfb: Times = Times()
    latency: Times = Times()
    percentiles: str | None = None
    segments: Segments = Segments()
    by_host: tuple[HostShare, ...] = ()
    problem: str | None = None


@dataclass(frozen=True)
class Reading:
    """A whole result. ``problems`` are about the text as a whole: with any, no number in it can be trusted."""

    layout: str
    operations: tuple[Operation, ...] = ()
    tool_version: str | None = None
    server: str | None = None
    problems: tuple[str, ...] = field(default=())
