"""perftest (``ib_write_bw``, ``ib_send_lat``, ...): its text of every release, and ``--out_json``.

Bandwidth is MiB/s unless ``--report_gbits`` was given, whatever the header calls it (``MB/sec`` until 24.04,
``MiB/sec`` after); JSON names no unit, so the reader must be told. Releases up to 23.10 write JSON with bare keys and
trailing commas.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

from fabric_health.checks.collectives.parsers.reading import count, number

GBIT_PER_MIB = 8 * (1 << 20) / 1e9
_MAX_TEXT = 1 << 22
_TEST = re.compile(
    r"\s+((?:RDMA_\w+|Send|Atomic[\w ]{0,20}|Raw\w*)[\w ]{0,40}(?:BW|Latency))(?: Test| post_list[\w ]*)?\s*$"
)
_COLUMN = re.compile(
    r"#bytes|#iterations|#sl|BW (?:peak|average|Port\d)\[[^\]\s]{1,10}\]|MsgRate(?: Port\d)?\[[^\]\s]{1,10}\]|"
    r"CPU_Util\[%\]|t_\w{1,12}\[usec\]|[\d.]{1,6}% percentile\[usec\]|tps average"
)
_PAIRS = re.compile(r"(Device|Transport type|Mtu|Link type)\s*:\s*(\S{1,40})")
_ERROR = re.compile(
    r"below bw limit|Couldn't|Failed to|Unable to|Completion with error|No space left|not found|unexpected|Error:", re.I
)
_BARE_KEY = re.compile(r"([{,]\s*)([A-Za-z_][\w.]{0,40})\s*:")
_TRAILING = re.compile(r",(\s*[}\]])")
_LATENCY = {
    "t_min": "latency_min_us",
    "t_max": "latency_max_us",
    "t_typical": "latency_typical_us",
    "t_avg": "latency_avg_us",
    "99% percentile": "latency_p99_us",
    "99.9% percentile": "latency_p999_us",
    "percentile_99": "latency_p99_us",
    "percentile_99.9": "latency_p999_us",
}


@dataclass(frozen=True)
class PairLine:
    """One row: ``values`` by column of the table ``point_to_point`` (Gb/s, us, 1e6 messages/s)."""

    size_bytes: int
    iterations: int | None
    values: dict[str, float]


@dataclass
class PairReading:
    """What one launch of perftest says; ``faults`` as of the other readers."""

    test: str | None = None
    device: str | None = None
    transport: str | None = None
    link_layer: str | None = None
    mtu_bytes: int | None = None
    lines: list[PairLine] = field(default_factory=list)
    faults: list[tuple[str, str]] = field(default_factory=list)


def read_perftest(text: str) -> PairReading:
    """Read the text output. Never raises; client and server may both have written it, with warnings in between."""
    reading = PairReading()
    columns: list[tuple[str, str]] = []
    for line in text[:_MAX_TEXT].splitlines():
        if line.lstrip().startswith("#bytes"):
            columns = [_split(c) for c in _COLUMN.findall(line[:600])]
        elif columns and (words := line[:600].split()) and words[0].isdecimal():
            row = _row(words, columns)
            if row is None:
                reading.faults.append(("output_readable", f"a row does not fit its header: {line.strip()[:120]!r}"))
            elif row.size_bytes not in {x.size_bytes for x in reading.lines[-64:]}:
                reading.lines.append(row)
        elif (test := _TEST.match(line[:200])) is not None:
            reading.test = reading.test or test[1].strip()
        elif _ERROR.search(line[:400]):
            reading.faults.append(("tool_reports_no_error", line.strip()[:160]))
        else:
            for pair in _PAIRS.finditer(line[:400]):
                _set(reading, pair[1], pair[2])
    if not reading.lines:
        reading.faults.append(("output_readable", "no row of results"))
    return reading


def read_perftest_json(text: str, *, gbits: bool) -> PairReading | None:
    """Read an ``--out_json`` file; ``gbits`` says whether ``--report_gbits`` was given. None when it is not one."""
    raw = _loads(text[:_MAX_TEXT])
    info, results = (raw.get("test_info"), raw.get("results")) if isinstance(raw, dict) else (None, None)
    if not isinstance(info, dict) or not isinstance(results, dict):
        return None
    reading = PairReading(test=str(info["test"]).removesuffix(" Test").strip()[:60] if "test" in info else None)
    for name, key in (
        ("Device", "Device"),
        ("Transport type", "Transport_type"),
        ("Mtu", "Mtu"),
        ("Link type", "Link_type"),
    ):
        if key in info:
            _set(reading, name, str(info[key])[:40])
    size = count(results.get("MsgSize"))
    values: dict[str, float] = {}
    factor = 1.0 if gbits else GBIT_PER_MIB
    for key, column, scale in (
        ("BW_peak", "bw_peak_gbitps", factor),
        ("BW_average", "bw_average_gbitps", factor),
        ("MsgRate", "message_rate_mpps", 1.0),
        *((k, c, 1.0) for k, c in _LATENCY.items()),
    ):
        value = number(results.get(key))
        if value is not None:
            values[column] = value * scale
    if size is None or not ({"bw_average_gbitps", "latency_avg_us"} & set(values)):
        reading.faults.append(("output_readable", "the JSON has no size or no result"))
        return reading
    reading.lines.append(PairLine(size, count(results.get("n_iterations")), values))
    return reading


def _loads(text: str) -> Any:
    for attempt in (text, _TRAILING.sub(r"\1", _BARE_KEY.sub(r'\1"\2":', text))):
        try:
            return json.loads(attempt)
        except (ValueError, RecursionError):
            continue
    return None


def _split(column: str) -> tuple[str, str]:
    name, _, unit = column.partition("[")
    return name.strip(), unit.rstrip("]")


def _row(words: list[str], columns: list[tuple[str, str]]) -> PairLine | None:
    numbers = [number(w) for w in words]
    if len(numbers) != len(columns) or any(n is None for n in numbers):
        return None
    size = iterations = None
    values: dict[str, float] = {}
    for (name, unit), word, value in zip(columns, words, numbers, strict=True):
        if value is None:
            return None
        if name == "#bytes":
            size = count(word)
        elif name == "#iterations":
            iterations = count(word)
        elif name.startswith("BW ") and name != "BW Port1" and name != "BW Port2":
            key = "bw_peak_gbitps" if name == "BW peak" else "bw_average_gbitps"
            factor = {"Gb/sec": 1.0, "MB/sec": GBIT_PER_MIB, "MiB/sec": GBIT_PER_MIB}.get(unit)
            if factor is None:
                return None
            values[key] = value * factor
        elif name == "MsgRate":
            values["message_rate_mpps"] = value
        elif name in _LATENCY:
            values[_LATENCY[name]] = value
    if size is None or not values:
        return None
    return PairLine(size, iterations, values)


def _set(reading: PairReading, name: str, value: str) -> None:
    if name == "Device":
        reading.device = reading.device or value
    elif name == "Transport type":
        reading.transport = reading.transport or value
    elif name == "Link type":
        reading.link_layer = reading.link_layer or value
    elif name == "Mtu" and reading.mtu_bytes is None:
        reading.mtu_bytes = count(value.removesuffix("[B]"))
