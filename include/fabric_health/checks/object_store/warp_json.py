"""Results of warp as JSON: the running aggregate of warp 1.1 and later, and the full analysis of earlier ones.

warp has no MiB/s field: throughput is bytes over the measured milliseconds. Request times come as percentiles of
segments of ten seconds for each client; what warp prints, and what is kept here, is their mean, which is not the
percentile of all requests, so rows say so. Merged segments hold sums that have to be divided by their number.
Source: https://github.com/minio/warp (pkg/aggregate).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from fabric_health.checks.object_store.documents import documents, moment, text, texts
from fabric_health.checks.object_store.quantities import MIB
from fabric_health.checks.object_store.reading import (
    SAMPLES,
    SEGMENT_MEANS,
    HostShare,
    Operation,
    Reading,
    Segments,
    Times,
)
from fabric_health.checks.untrusted import clip, count, listing, mapping, number

LAYOUT, FULL_LAYOUT = "warp json", "warp json, full"
TOO_FEW = "too few samples: a longer run is needed"


def read_warp_json(output: str) -> Reading | None:
    """Read the last result in ``output``; None when there is none in either JSON form."""
    found: Reading | None = None
    for document in documents(output):
        if isinstance(document.get("by_op_type"), dict) or isinstance(document.get("total"), dict):
            found = _aggregate(document)
        elif isinstance(document.get("operations"), list):
            found = _full(document)
    return found


def _aggregate(document: dict[str, Any]) -> Reading:
    problems = []
    if count(document.get("v")) != 2:
        problems.append(f"data version {clip(str(document.get('v')), 20)}; this reads version 2")
    if document.get("final") is not True:
        problems.append("an intermediate state, not the final result")
    by_op = {k: mapping(v) for k, v in mapping(document.get("by_op_type")).items() if isinstance(k, str)}
    operations = [_live(clip(op, 20).upper(), live) for op, live in sorted(by_op.items())]
    if len(operations) > 1:
        operations.append(_live("MIXED", mapping(document.get("total")), with_requests=False))
    if not operations:
        problems.append("no operation in the result")
    version = text(document.get("warp_version"))
    return Reading(LAYOUT, tuple(operations), version and clip(version, 40), problems=tuple(problems))


def _live(op: str, live: dict[str, Any], with_requests: bool = True) -> Operation:
    objects, total_bytes = count(live.get("total_objects")), count(live.get("total_bytes"))
    errors = texts(live.get("first_errors"))
    base = Operation(
        op,
        hosts=texts(live.get("hosts")),
        clients=len(texts(live.get("clients"))) or None,
        concurrency=count(live.get("concurrency")),
        object_bytes=_per_object(total_bytes, objects),
        requests=count(live.get("total_requests")),
        errors=count(live.get("total_errors")),
        first_error=clip(errors[0]) if errors else None,
    )
    through = mapping(live.get("throughput"))
    segments = _segments(mapping(through.get("segmented")))
    if segments is None or (segments.count or 0) < 2:
        return _without_numbers(base, TOO_FEW)
    latency, ttfb = _requests(live) if with_requests else (Times(), Times())
    seconds, mib, objects_rate = _rates(through)
    return Operation(
        **{
            **base.__dict__,
            "duration_s": seconds,
            "mib_per_s": mib,
            "objects_per_s": objects_rate,
            "segments": segments,
            "latency": latency,
            "ttfb": ttfb,
            "percentiles": SEGMENT_MEANS if latency != Times() else None,
            "by_host": _hosts(live),
            "problem": None if seconds and objects_rate is not None else "no throughput in the result",
        }
    )


def _without_numbers(base: Operation, problem: str) -> Operation:
    return Operation(**{**base.__dict__, "problem": problem})


def _per_object(total: int | None, objects: int | None) -> int | None:
    return round(total / objects) if total is not None and objects else None


def _rates(through: dict[str, Any]) -> tuple[float | None, float | None, float | None]:
    """Return window (s), MiB/s (None without payload) and objects/s of a throughput object."""
    millis, size, objects = (number(through.get(k)) for k in ("measure_duration_millis", "bytes", "objects"))
    if not millis:
        return None, None, None
    seconds = millis / 1000
    return seconds, size / seconds / MIB if size else None, None if objects is None else objects / seconds


def _segments(raw: dict[str, Any]) -> Segments | None:
    if not raw:
        return None
    parts = [number(raw.get(k)) for k in ("fastest_bps", "median_bps", "slowest_bps")]
    if not any(parts):
        parts = [number(raw.get(k)) for k in ("fastest_ops", "median_ops", "slowest_ops")]
    else:
        parts = [None if p is None else p / MIB for p in parts]
    millis = number(raw.get("segment_duration_millis"))
    return Segments(len(listing(raw.get("segments"))), millis / 1000 if millis else None, *parts)


def _hosts(live: dict[str, Any]) -> tuple[HostShare, ...]:
    shares = []
    for host, raw in sorted(mapping(live.get("throughput_by_host")).items()):
        one = mapping(raw)
        _, mib, objects = _rates(one)
        shares.append(HostShare(clip(host, 120), mib, objects, count(one.get("ops")), count(one.get("errors"))))
    return tuple(shares)


_FIELDS = ("dur_avg_millis", "dur_median_millis", "dur_90_millis", "dur_99_millis", "slowest_millis")
_TTFB_FIELDS = ("average_millis", "median_millis", "p90_millis", "p99_millis", "slowest_millis")


def _requests(live: dict[str, Any]) -> tuple[Times, Times]:
    """Return request times and times to first byte over the segments of all clients, weighted by their requests."""
    singles = []
    for segments in mapping(live.get("requests_by_client")).values():
        for segment in listing(segments):
            single = mapping(mapping(segment).get("single_sized_requests"))
            if single and single.get("skipped") is not True:
                singles.append(single)
    return _merged(singles, _FIELDS, lambda s: s), _merged(
        singles, _TTFB_FIELDS, lambda s: mapping(s.get("first_byte"))
    )


def _merged(
    singles: Iterable[dict[str, Any]], fields: tuple[str, ...], part: Callable[[dict[str, Any]], dict[str, Any]]
) -> Times:
    sums, weight, worst = [0.0] * (len(fields) - 1), 0.0, None
    for single in singles:
        values = [number(part(single).get(f)) for f in fields]
        requests, merged = number(single.get("requests")), number(single.get("merged_entries")) or 1.0
        if not requests:
            continue
        if None in values:
            # Part of the requests has no times: a mean over the others would pass for one over all.
            return Times()
        clean = [v for v in values if v is not None]
        sums = [s + v / merged * requests for s, v in zip(sums, clean[:-1], strict=True)]
        worst = max(worst or 0.0, clean[-1])
        weight += requests
    if not weight:
        return Times()
    avg, p50, p90, p99 = (s / weight for s in sums)
    return Times(avg, p50, p90, p99, worst)


def _full(document: dict[str, Any]) -> Reading:
    """Read the analysis of all requests that warp printed before 1.1, and prints for full data since."""
    operations = [_full_operation(mapping(raw)) for raw in listing(document.get("operations"))]
    if len(operations) > 1 and document.get("mixed") is True:
        operations.append(_full_total(document, operations))
    problems = () if operations else ("no operation in the result",)
    return Reading(FULL_LAYOUT, tuple(operations), problems=problems)


def _full_operation(raw: dict[str, Any]) -> Operation:
    through, single = mapping(raw.get("throughput")), mapping(raw.get("single_sized_requests"))
    errors, names = texts(raw.get("first_errors")), texts(raw.get("host_names"))
    objects = count(raw.get("objects_per_operation"))
    size = count(single.get("obj_size"))
    base = Operation(
        clip(text(raw.get("type")) or "?", 20).upper(),
        hosts=names,
        clients=count(raw.get("clients")),
        concurrency=count(raw.get("concurrency")),
        object_bytes=round(size / objects) if size is not None and objects else size,
        requests=count(raw.get("n")),
        errors=count(raw.get("errors")),
        first_error=clip(errors[0]) if errors else None,
    )
    if raw.get("skipped") is True:
        return _without_numbers(base, TOO_FEW)
    seconds, mib, rate = _full_rates(through)
    has_times = bool(single) and single.get("skipped") is not True
    shares = []
    for host, one in sorted(mapping(raw.get("throughput_by_host")).items()):
        _, host_mib, host_rate = _full_rates(mapping(one))
        shares.append(HostShare(clip(host, 120), host_mib, host_rate, errors=count(mapping(one).get("errors"))))
    return Operation(
        **{
            **base.__dict__,
            "duration_s": seconds,
            "mib_per_s": mib,
            "objects_per_s": rate,
            "segments": _segments(mapping(through.get("segmented"))) or Segments(),
            "latency": _times(single, _FIELDS) if has_times else Times(),
            "ttfb": _times(mapping(single.get("first_byte")), _TTFB_FIELDS) if has_times else Times(),
            "percentiles": SAMPLES if has_times else None,
            "by_host": tuple(shares),
            "problem": None if seconds and rate is not None else "no throughput in the result",
        }
    )


def _full_rates(through: dict[str, Any]) -> tuple[float | None, float | None, float | None]:
    seconds, mib, rate = _rates(through)
    if seconds is None:
        start, end = moment(through.get("start_time")), moment(through.get("end_time"))
        seconds = (end - start).total_seconds() if start and end and end > start else None
    average = number(through.get("average_bps"))
    mib = average / MIB if average else mib
    ops = number(through.get("average_ops"))
    return seconds, mib, ops if ops is not None else rate


def _times(raw: dict[str, Any], fields: tuple[str, ...]) -> Times:
    return Times(*(number(raw.get(f)) for f in fields)) if raw else Times()


def _full_total(document: dict[str, Any], operations: list[Operation]) -> Operation:
    seconds, mib, rate = _full_rates(mapping(document.get("mixed_server_stats")))
    known = [o for o in operations if o.errors is not None]
    return Operation(
        "MIXED",
        hosts=tuple(sorted({h for o in operations for h in o.hosts})),
        concurrency=operations[0].concurrency,
        duration_s=seconds,
        requests=sum(o.requests or 0 for o in operations),
        errors=sum(o.errors or 0 for o in known) if len(known) == len(operations) else None,
        mib_per_s=mib,
        objects_per_s=rate,
        problem=None if seconds and rate is not None else "no throughput in the result",
    )
