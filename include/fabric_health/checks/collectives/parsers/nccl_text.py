"""The text of nccl-tests, of every release: rows are read by the header above them, never by a fixed index.

Releases differ in the columns before the times (``redop`` and ``root`` came with 2.12), in the last of each half
(``error``, then ``#wrong``), in ``-I 1`` (four more columns a half) and ``-S`` (a time stamp of two words).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from fabric_health.checks.collectives.arithmetic import half_unit
from fabric_health.checks.collectives.parsers.reading import MAX_LINES, Device, Line, Reading, count, number

_DEVICE = re.compile(
    r"#\s+Rank\s+(\d{1,7})\s+(?:Group\s+(\d{1,7})\s+)?Pid\s+(\d{1,10})\s+on\s+(\S{1,255})\s+device\s+(\d{1,4})\s+\["
)
_TOOL = re.compile(r"# nccl-tests version (\S{1,40})(?:.*nccl-library=(\d{1,8}))?")
_STARTING = re.compile(r"# Collective test starting: (\w{1,40}?)(?:_perf)?\s*$")
_ITERATIONS = re.compile(r"\biters: (\d{1,9}) agg iters")
_OUT_OF_BOUNDS = re.compile(r"# Out of bounds values\s*:\s*(\d{1,18})\s+(OK|FAILED)")
_AVERAGE = re.compile(r"# Avg bus bandwidth\s*:\s*(\S{1,40})(?:\s+(OK|FAILED))?")
_REDUCED = re.compile(r"# Reducing maxBytes to (\d{1,18}) due to memory limitation")
_JSON_FILE = re.compile(r"# Writing JSON output to (\S{1,4096})")
_FAILURE = re.compile(r"Test (?:NCCL|CUDA) failure|Test failure|: Test timeout|# error: |Invalid number of GPUs", re.I)
_TIMES = ("time", "cputime")
_MAX_ROW = 400
_SHOWN = 160


@dataclass(frozen=True)
class _Header:
    """Columns before the times and of one half; ``stamped`` when a time stamp ends each row."""

    preamble: tuple[str, ...]
    half: tuple[str, ...]
    halves: int
    stamped: bool


def version_of(code: str | int) -> str | None:
    """Return ``2.28.9`` for NCCL's version code 22809 (``2.8.4`` for 2804, the form before 2.9)."""
    try:
        value = int(code)
    except ValueError:
        return None
    if value <= 0:
        return None
    unit = 10_000 if value >= 10_000 else 1_000
    return f"{value // unit}.{value % unit // 100}.{value % 100}"


def hosts_in(text: str) -> frozenset[str]:
    """Return the hosts of the device lines in ``text``."""
    return frozenset(found[4] for found in _DEVICE.finditer(text))


def read_text(lines: list[str]) -> Reading:
    """Read the lines of one launch, NCCL's log taken out. Never raises; what cannot be read is a fault."""
    reading = Reading()
    header: _Header | None = None
    legacy = False
    pids: dict[int, str] = {}
    for line in lines[:MAX_LINES]:
        if line.lstrip().startswith("#"):
            header = _header(line) or header
            legacy = legacy or (header is not None and header.half[-1] == "error")
            _comment(reading, line.strip(), pids)
        elif header is not None and len(line) <= _MAX_ROW and _is_row(line):
            rows = _row(line.split(), header)
            if rows is None:
                reading.fault("output_readable", f"a row does not fit its header: {line.strip()[:_SHOWN]!r}")
            reading.lines += rows or ()
        elif _FAILURE.search(line[:_MAX_ROW]):
            reading.fault("tool_reports_no_error", line.strip()[:_SHOWN])
    if len(lines) > MAX_LINES:
        reading.fault("output_readable", f"more than {MAX_LINES} lines")
    if legacy and reading.out_of_bounds == 0:
        # Releases before 2.12 print the largest error instead of a count; their footer holds it against a bound.
        reading.lines = [replace(x, wrong=0 if x.wrong is None else None) for x in reading.lines]
    elif legacy:
        reading.lines = [replace(x, wrong=None) for x in reading.lines]
    return reading


def _header(line: str) -> _Header | None:
    columns = line.strip().lstrip("#").split()
    if columns[:1] != ["size"] or not any(t in columns for t in _TIMES):
        return None
    stamped = columns[-1] == "timestamp"
    columns = columns[:-1] if stamped else columns
    starts = [i for i, c in enumerate(columns) if c in _TIMES]
    halves = [tuple(columns[a:b]) for a, b in zip(starts, [*starts[1:], len(columns)], strict=True)]
    if len(set(halves)) != 1 or len(halves) > 2 or not {"algbw", "busbw"} <= set(halves[0]):
        return None
    return _Header(tuple(columns[: starts[0]]), halves[0], len(halves), stamped)


def _comment(reading: Reading, line: str, pids: dict[int, str]) -> None:
    if device := _DEVICE.match(line):
        rank = int(device[1])
        if rank in pids:
            reading.fault(
                "ranks_once",
                f"rank {rank} is there twice (processes {pids[rank]} and {device[3]}): independent tests ran instead "
                "of one; the program was built without MPI, or started without mpirun",
            )
        pids[rank] = device[3]
        reading.devices.append(Device(rank, int(device[2] or 0), device[4], int(device[5])))
    elif tool := _TOOL.match(line):
        reading.tool_version, reading.library_version = tool[1], version_of(tool[2] or 0)
    elif starting := _STARTING.match(line):
        reading.collective = starting[1]
    elif bounds := _OUT_OF_BOUNDS.match(line):
        reading.out_of_bounds = int(bounds[1])
        if bounds[2] == "FAILED" and reading.out_of_bounds == 0:
            reading.fault("tool_reports_no_error", line[:_SHOWN])
    elif average := _AVERAGE.match(line):
        reading.concluded = True
        if average[2] == "FAILED":
            reading.fault("tool_reports_no_error", f"below NCCL_TESTS_MIN_BW: {line[:_SHOWN]}")
    elif reduced := _REDUCED.match(line):
        reading.fault("sizes_reached", f"the tool lowered the largest size to {reduced[1]} B: not enough memory")
    elif written := _JSON_FILE.match(line):
        reading.json_file = written[1]
    elif line.startswith("# skipping json output"):
        reading.fault("artefact_written", line[:_SHOWN])
    elif iterations := _ITERATIONS.search(line[:_MAX_ROW]):
        reading.iterations = int(iterations[1])
    elif _FAILURE.search(line[:_MAX_ROW]):
        reading.fault("tool_reports_no_error", line[:_SHOWN])


def _is_row(line: str) -> bool:
    words = line.split(None, 3)
    return len(words) == 4 and words[0].isdecimal() and words[1].isdecimal() and words[2][:1].isalpha()


def _row(tokens: list[str], header: _Header) -> list[Line] | None:
    """Return the out-of-place and in-place measurements of a row, None when it does not fit its header."""
    if header.stamped:
        tokens = tokens[:-2]
    preamble, width = header.preamble, len(header.half)
    # A collective without reduction leaves that column blank in some releases.
    for columns in (preamble, tuple(c for c in preamble if c != "redop")):
        body = len(tokens) - len(columns)
        # Rows of a trace replay are in place only.
        if body in (width * header.halves, width) and body > 0:
            named = dict(zip(columns, tokens, strict=False))
            values = tokens[len(columns) :]
            parts = [values[i : i + width] for i in range(0, body, width)]
            places = (False, True)[-len(parts) :] if header.halves == 2 else (False,)
            lines = [_line(named, header.half, part, place) for part, place in zip(parts, places, strict=True)]
            if all(lines):
                return [x for x in lines if x is not None]
    return None


def _line(named: dict[str, str], half: tuple[str, ...], values: list[str], in_place: bool) -> Line | None:
    cells = dict(zip(half, values, strict=True))
    size, time = count(named.get("size")), number(cells.get("time", cells.get("cputime")))
    algbw, busbw = number(cells["algbw"]), number(cells["busbw"])
    wrong_text = cells.get("#wrong", cells.get("error", "N/A"))
    wrong = None if "error" in cells else count(wrong_text)
    root = named.get("root", "-1")
    root_ok = root.removeprefix("-").isdecimal() and len(root) <= 8
    readable = wrong_text == "N/A" or number(wrong_text) is not None
    if size is None or time is None or algbw is None or busbw is None or not root_ok or not readable:
        return None
    if "error" in cells and wrong_text == "N/A":
        wrong = -1  # not checked at all: told apart from an error that the footer judges
    cv = number(cells.get("i_cv%"))
    return Line(
        size_bytes=size,
        dtype=named.get("type", "?")[:16],
        redop=named.get("redop", "none")[:16],
        root=int(root),
        in_place=in_place,
        time_us=time,
        algbw_gbps=algbw,
        busbw_gbps=busbw,
        wrong=wrong,
        time_rounding=half_unit(cells.get("time", cells.get("cputime", ""))),
        algbw_rounding=half_unit(cells["algbw"]),
        busbw_rounding=half_unit(cells["busbw"]),
        time_min_us=number(cells.get("i_min")),
        time_max_us=number(cells.get("i_max")),
        time_p99_us=number(cells.get("i_p99")),
        time_cv=None if cv is None else cv / 100,
    )
