"""The JSON that ``include/tools/collectives/gloo_sweep.py`` prints as the last line of its output."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

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

FORMAT = 1
_MARK = '{"tool": "gloo_sweep"'


def read_gloo(text: str) -> Reading:
    """Read a sweep's output. Never raises; what cannot be read is a fault, and nothing after it is a number."""
    reading = Reading()
    line = next((x for x in reversed(text.splitlines()) if x.startswith(_MARK)), None)
    if line is None:
        reading.fault("output_readable", "the sweep printed no result")
        return reading
    try:
        raw = json.loads(line)
    except (ValueError, RecursionError):
        reading.fault("output_readable", "the sweep's result is cut off or not JSON")
        return reading
    if not isinstance(raw, dict) or raw.get("format") != FORMAT or not isinstance(raw.get("results"), list):
        reading.fault("output_readable", f"the sweep's result is not of format {FORMAT}")
        return reading
    reading.tool_version = str(FORMAT)
    reading.library_version = f"torch {raw['torch']}"[:60] if isinstance(raw.get("torch"), str) else None
    ranks = raw.get("ranks")
    for entry in ranks if isinstance(ranks, list) else ():
        found = entry if isinstance(entry, dict) else {}
        rank, group, host = count(found.get("rank")), count(found.get("group", 0)), found.get("host")
        if rank is None or group is None or not isinstance(host, str) or not host:
            reading.fault("output_readable", "a rank without number, group or host")
            continue
        reading.devices.append(Device(rank, group, host[:255], count(found.get("member"))))
    groups, budget = {d.group for d in reading.devices}, MAX_SAMPLES
    for entry in raw["results"][:MAX_LINES]:
        row, budget = _line(entry if isinstance(entry, dict) else {}, budget)
        if row is None:
            reading.fault("output_readable", f"a result that is not one: {str(entry)[:120]}")
        elif groups and row.group not in groups:
            reading.fault("output_readable", f"a result of group {row.group}, which no rank is in")
        else:
            reading.lines.append(row)
    reading.concluded = raw.get("complete") is True
    return reading


def _line(entry: Mapping[str, Any], budget: int) -> tuple[Line | None, int]:
    size, time, group = count(entry.get("size")), number(entry.get("time_us")), count(entry.get("group", 0))
    algbw, busbw, wrong = number(entry.get("alg_bw")), number(entry.get("bus_bw")), count(entry.get("nwrong"))
    collective, root, samples = entry.get("collective"), entry.get("root"), entry.get("times_us")
    if size is None or group is None or time is None or algbw is None or busbw is None:
        return None, budget
    if not isinstance(collective, str):
        return None, budget
    if not isinstance(root, int) or isinstance(root, bool) or abs(root) > 1 << 30 or not isinstance(samples, list):
        return None, budget
    times = tuple(t for t in map(number, samples) if t is not None)
    if not times or len(times) != len(samples) or len(times) > budget:
        return None, budget
    low, high, p99, cv = spread(times)
    line = Line(
        size_bytes=size,
        dtype=str(entry.get("dtype", "?"))[:16],
        redop=str(entry.get("redop", "none"))[:16],
        root=root,
        in_place=entry.get("in_place") is True,
        time_us=time,
        algbw_gbps=algbw,
        busbw_gbps=busbw,
        wrong=wrong,
        time_rounding=5e-4,
        algbw_rounding=5e-7,
        busbw_rounding=5e-7,
        collective=collective[:32],
        iterations=len(times),
        time_min_us=low,
        time_max_us=high,
        time_p99_us=p99,
        time_cv=cv,
        times_us=times,
        group=group,
    )
    return line, budget - len(times)
