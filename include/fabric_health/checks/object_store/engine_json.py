"""Results of the embedded engine: one JSON object, written by ``fabric_health.workloads.s3_bench``."""

from __future__ import annotations

from typing import Any

from fabric_health.checks.object_store.documents import documents, text, texts
from fabric_health.checks.object_store.reading import SAMPLES, HostShare, Operation, Reading, Segments, Times
from fabric_health.checks.untrusted import clip, count, listing, mapping, number

FORMAT = "fabric-health/s3-bench"
VERSION = 1
LAYOUT = "s3-bench json"


def read_engine_json(output: str) -> Reading | None:
    """Read the last result in ``output``; None when there is none."""
    found = None
    for document in documents(output):
        if document.get("format") == FORMAT:
            found = _reading(document)
    return found


def _reading(document: dict[str, Any]) -> Reading:
    problems = []
    if count(document.get("v")) != VERSION:
        problems.append(f"version {clip(str(document.get('v')), 20)}; this reads version {VERSION}")
    operations = tuple(_operation(mapping(raw)) for raw in listing(document.get("operations")))
    if not operations:
        problems.append("no operation in the result")
    version, server = text(document.get("tool_version")), text(document.get("server"))
    return Reading(
        LAYOUT,
        operations,
        version and clip(version, 60),
        server and clip(server, 120),
        tuple(problems),
    )


def _operation(raw: dict[str, Any]) -> Operation:
    errors = texts(raw.get("first_errors"))
    hosts = texts(raw.get("hosts"))
    segments = mapping(raw.get("segments"))
    requests, failed = count(raw.get("requests")), count(raw.get("errors"))
    mib, rate, seconds = (number(raw.get(k)) for k in ("mib_per_s", "objects_per_s", "duration_s"))
    problem = None
    if not seconds or rate is None or requests is None or failed is None:
        problem = "no throughput in the result"
    elif requests <= failed:
        problem = "no request succeeded"
    return Operation(
        clip(text(raw.get("op")) or "?", 20),
        hosts=hosts,
        clients=1,
        concurrency=count(raw.get("concurrency")),
        object_bytes=count(raw.get("object_bytes")),
        duration_s=seconds,
        requests=requests,
        errors=failed,
        first_error=clip(errors[0]) if errors else None,
        mib_per_s=mib,
        objects_per_s=rate,
        ttfb=_times(raw.get("ttfb")),
        latency=_times(raw.get("latency")),
        percentiles=SAMPLES,
        segments=Segments(
            count(segments.get("count")),
            *(number(segments.get(k)) for k in ("seconds", "fastest", "median", "slowest")),
        ),
        by_host=(HostShare(hosts[0], mib, rate, requests, failed),) if len(hosts) == 1 else (),
        problem=problem,
    )


def _times(raw: object) -> Times:
    times = mapping(raw)
    return Times(*(number(times.get(k)) for k in ("avg_ms", "p50_ms", "p90_ms", "p99_ms", "max_ms")))
