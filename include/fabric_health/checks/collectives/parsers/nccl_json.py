"""The file that nccl-tests writes with ``-J`` (2.17.3 on): versions 1 to 3 of its layout.

Odd on purpose in the tool: booleans and ``nan`` are strings, the root is a padded string, a count of wrong elements
is a float, and 2.17.3 to 2.17.8 misspell the average bandwidth's keys. ``env`` may hold secrets and is never read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from fabric_health.checks.collectives.parsers.nccl_text import version_of
from fabric_health.checks.collectives.parsers.reading import (
    MAX_LINES,
    MAX_SAMPLES,
    Device,
    Line,
    Reading,
    count,
    number,
    spread,
)

_PLACES = (("out_of_place", False), ("in_place", True))


def read_json(text: str) -> Reading | None:
    """Read one file. Returns None when it is not such a file at all (cut off, other content); never raises."""
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(raw, dict) or not isinstance(raw.get("results"), list) or len(raw["results"]) > MAX_LINES:
        return None
    reading = Reading()
    config = _mapping(raw.get("config"))
    code = count(raw.get("nccl_version"))
    reading.library_version = None if code is None else version_of(code)
    reading.iterations = count(config.get("iterations"))
    reading.collective = _collective(raw)
    devices = config.get("devices")
    for entry in devices if isinstance(devices, list) else ():
        _device(reading, _mapping(entry))
    budget = MAX_SAMPLES
    for entry in raw["results"]:
        budget = _result(reading, _mapping(entry), budget)
    bounds = _mapping(raw.get("out_of_bounds"))
    reading.out_of_bounds = count(bounds.get("count"))
    average = _mapping(raw.get("average_bus_bandwidth") or raw.get("average_bus_bandwidith"))
    reading.concluded = bool(average) and reading.out_of_bounds is not None
    if str(average.get("okay")).lower() == "false":
        reading.fault("tool_reports_no_error", "average bus bandwidth below NCCL_TESTS_MIN_BW")
    errors = raw.get("errors")
    for error in errors if isinstance(errors, list) else ():
        if isinstance(error, str) and error.strip():
            reading.fault("tool_reports_no_error", error.strip()[:300])
    return reading


def _collective(raw: Mapping[str, Any]) -> str | None:
    arguments = raw.get("args")
    first = arguments[0] if isinstance(arguments, list) and arguments else None
    found = re.search(r"(?:^|/)(\w{1,40})_perf$", first) if isinstance(first, str) else None
    return found[1] if found else None


def _device(reading: Reading, entry: Mapping[str, Any]) -> None:
    rank, host = count(entry.get("rank")), entry.get("hostname")
    if rank is None or not isinstance(host, str) or not host:
        reading.fault("output_readable", "a device without rank or hostname")
        return
    reading.devices.append(Device(rank, count(entry.get("group")) or 0, host[:255], count(entry.get("device"))))


def _result(reading: Reading, entry: Mapping[str, Any], budget: int) -> int:
    size = count(entry.get("size"))
    root = str(entry.get("root", "-1")).strip()
    if size is None or not root.removeprefix("-").isdecimal() or len(root) > 8:
        reading.fault("output_readable", f"a result of size {entry.get('size')!r} and root {root[:20]!r}"[:160])
        return budget
    for name, in_place in _PLACES:
        half = entry.get(name)
        if half is None:
            continue
        half = _mapping(half)
        time = number(half.get("time", half.get("cpu_time")))
        algbw, busbw = number(half.get("alg_bw")), number(half.get("bus_bw"))
        if time is None or algbw is None or busbw is None:
            reading.fault("output_readable", f"{name} of size {size} has no time or bandwidth")
            continue
        samples = _mapping(entry.get(f"{name}_per_iter"))
        times, budget = _times(samples.get("times_us"), budget)
        processes, budget = _processes(samples.get("per_process_max_times_us"), budget)
        low, high, p99, cv = spread(times) if times else (None, None, None, None)
        reading.lines.append(
            Line(
                size_bytes=size,
                dtype=str(entry.get("type", "?"))[:16],
                redop=str(entry.get("redop") or "none")[:16],
                root=int(root),
                in_place=in_place,
                time_us=time,
                algbw_gbps=algbw,
                busbw_gbps=busbw,
                wrong=count(half.get("nwrong")),
                time_rounding=5e-7,
                algbw_rounding=5e-7,
                busbw_rounding=5e-7,
                iterations=count(entry.get("actual_iterations")),
                time_min_us=low,
                time_max_us=high,
                time_p99_us=p99,
                time_cv=cv,
                times_us=times,
                process_times_us=processes,
            )
        )
    return budget


def _times(raw: object, budget: int) -> tuple[tuple[float, ...], int]:
    """Return the list of times, empty unless every one of them is a number and they fit into ``budget``."""
    if not isinstance(raw, list) or len(raw) > budget:
        return (), budget
    times = [number(t) for t in raw]
    known = tuple(t for t in times if t is not None)
    return (known, budget - len(known)) if len(known) == len(times) else ((), budget)


def _processes(raw: object, budget: int) -> tuple[tuple[tuple[float, ...], ...], int]:
    if not isinstance(raw, list):
        return (), budget
    out = []
    for entry in raw:
        times, budget = _times(entry, budget)
        if not times:
            return (), budget
        out.append(times)
    return tuple(out), budget


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
