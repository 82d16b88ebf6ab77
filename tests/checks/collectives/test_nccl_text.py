"""nccl-tests' text of every release, and what a log of 24 ranks does to it."""

# ruff: noqa: E501  the tool's lines are as long as they are

from __future__ import annotations

import random

import pytest
from nccl_output import COLUMNS, Run, body, connection_log, floats, footer, header, preamble, text

from fabric_health.checks.collectives.parsers.nccl_log import read_log, split
from fabric_health.checks.collectives.parsers.nccl_text import hosts_in, read_text, version_of
from fabric_health.checks.collectives.parsers.reading import Reading


def read(output: str) -> Reading:
    lines, _ = split(output, hosts_in(output))
    return read_text(lines)


def test_current_release() -> None:
    reading = read(text(Run()))
    assert reading.faults == []
    assert (reading.collective, reading.tool_version, reading.library_version) == ("all_reduce", "2.19.6", "2.28.9")
    assert (reading.concluded, reading.out_of_bounds, reading.iterations) == (True, 0, 20)
    assert len(reading.devices) == 24
    assert (reading.devices[23].host, reading.devices[23].device) == ("gpu-003", 7)
    assert [(x.size_bytes, x.in_place) for x in reading.lines[:2]] == [(8 << 20, False), (8 << 20, True)]
    assert reading.lines[0].busbw_gbps == pytest.approx(100 * 2 * 23 / 24, abs=0.06)


def test_the_recorded_24_ranks_over_tcp_are_read_as_printed() -> None:
    rows = [
        "     8388608       2097152     float     sum      -1   103954    0.08    0.15      0   113322    0.07    0.14      0",
        "   134217728      33554432     float     sum      -1   479106    0.28    0.54      0   476898    0.28    0.54      0",
    ]
    reading = read("\n".join([*header(Run(), ""), *COLUMNS, *rows, *footer(Run(), concluded=False)]))
    assert reading.faults == []
    assert [x.time_us for x in reading.lines] == [103954, 113322, 479106, 476898]
    assert reading.lines[2].busbw_gbps == 0.54
    assert reading.lines[2].busbw_rounding == pytest.approx(0.005)
    assert reading.tool_version is None


def test_release_before_2_12_has_its_own_columns() -> None:
    head = "#       size         count    type   redop     time   algbw   busbw  error     time   algbw   busbw  error"
    row = "    33554432       8388608   float     sum   335.54  100.00  191.67  1e-06   335.54  100.00  191.67  1e-06"
    reading = read(
        "\n".join([*header(Run(), ""), head, row, "# Out of bounds values : 0 OK", "# Avg bus bandwidth : 1"])
    )
    assert reading.faults == []
    assert [(x.redop, x.root, x.wrong) for x in reading.lines] == [("sum", -1, 0)] * 2


def test_old_release_without_reduction_or_root() -> None:
    head = "#       size         count    type     time   algbw   busbw  error     time   algbw   busbw  error"
    row = "    33554432       8388608   float   335.54  100.00   95.83  0e+00   335.54  100.00   95.83  N/A"
    reading = read(
        "\n".join([*header(Run(), ""), head, row, "# Out of bounds values : 0 OK", "# Avg bus bandwidth : 1"])
    )
    assert [(x.redop, x.root, x.wrong) for x in reading.lines] == [("none", -1, 0), ("none", -1, None)]


def test_old_release_with_values_out_of_bounds_has_no_clean_row() -> None:
    head = "#       size         count    type   redop     time   algbw   busbw  error     time   algbw   busbw  error"
    row = "    33554432       8388608   float     sum   335.54  100.00  191.67  3e+04   335.54  100.00  191.67  1e-06"
    reading = read("\n".join([head, row, "# Out of bounds values : 1 FAILED", "# Avg bus bandwidth : 1"]))
    assert reading.out_of_bounds == 1
    assert [x.wrong for x in reading.lines] == [None, None]


def test_time_stamp_and_per_iteration_columns() -> None:
    stamp = COLUMNS[1] + "            timestamp"
    row = preamble(Run(), 8 << 20) + body(Run(), 8 << 20) * 2 + "  2026-11-30 08:00:01"
    assert [x.time_us for x in read("\n".join([stamp, row])).lines] == [83.89, 83.89]
    one = "time algbw busbw #wrong i_min i_max i_p99 i_cv%"
    fine = f"# size count type redop root {one} {one}"
    half = body(Run(), 8 << 20) + "    80.10    90.20    90.10     2.50"
    reading = read("\n".join([fine, preamble(Run(), 8 << 20) + half * 2]))
    assert [(x.time_min_us, x.time_max_us, x.time_p99_us, x.time_cv) for x in reading.lines] == [
        (80.1, 90.2, 90.1, 0.025)
    ] * 2


def test_cpu_time_exponents_not_checked_and_trace_replay() -> None:
    head = COLUMNS[1].replace("   time", "cputime")
    run = Run(algbw=0.001)
    row = preamble(run, 1 << 30) + body(run, 1 << 30, wrong="N/A") * 2
    assert "e+" in row
    reading = read("\n".join([head, row]))
    assert [(x.time_us, x.wrong) for x in reading.lines] == [(pytest.approx(1.1e9), None)] * 2
    assert reading.lines[0].time_rounding == pytest.approx(5e7)
    only = read("\n".join([COLUMNS[1], preamble(Run(), 8 << 20) + " " * 32 + body(Run(), 8 << 20)]))
    assert [x.in_place for x in only.lines] == [True]


@pytest.mark.parametrize("seed", range(6))
def test_24_ranks_whose_log_breaks_into_rows(seed: int) -> None:
    """The first half of a row is printed before the collective connects; the log of all ranks follows in its line."""
    run, dice = Run(), random.Random(seed)
    log = connection_log(run)
    cut = dice.randrange(len(log))
    output = "\n".join(log[:3]) + "\n" + "\n".join([*header(run), *COLUMNS]) + "\n"
    for i, size in enumerate(run.sizes):
        noise = log[3:cut] if i == 0 else log[cut:] if i == 1 else []
        output += preamble(run, size) + "\n".join(noise) + ("\n" if noise else "")
        output += body(run, size) + body(run, size) + "\n"
    output += "\n".join(footer(run))
    lines, entries = split(output, hosts_in(output))
    reading = read_text(lines)
    assert reading.faults == []
    assert reading.lines == read(text(run)).lines
    found = read_log(entries)
    assert found.version == "2.28.9"
    assert found.transports() == "NET/IB/GDRDMA,P2P"
    assert found.nics() == "mlx5_7"
    assert (found.nvls, found.sharp) == (False, True)


def test_same_output_without_a_log_is_untouched() -> None:
    lines, entries = split(text(Run()), frozenset())
    assert lines == text(Run()).splitlines()
    assert entries == []


def test_log_names_algorithm_protocol_and_warnings() -> None:
    from nccl_output import info

    _, entries = split(
        "\n".join(
            [
                info("a", 0, "AllReduce: 8388608 Bytes -> Algo 1 proto 2 time 12.3"),
                info("a", 0, "AllReduce: 1073741824 Bytes -> Algo NVLS proto SIMPLE channel{Lo..Hi}={0..15}"),
                "[2026-11-30 08:00:00] a:1:2 [0] NCCL WARN NET/IB: Got completion from peer with status=12 opcode=0",
                info("a", 0, "CollNet 00/0 : 3 [send] via COLLNET/SHARP/0/GDRDMA"),
                info("a", 0, "AllGather: 4096 Bytes -> Algo 1 proto 0 time 2.0"),
            ]
        ),
        frozenset(),
    )
    log = read_log(entries)
    assert log.tuning("all_reduce", 8388608) == ("RING", "SIMPLE")
    assert log.tuning("all_reduce", 1 << 30) == ("NVLS", "SIMPLE")
    assert log.tuning("all_reduce", 5) == (None, None)
    assert log.tuning("all_gather", 5) == ("RING", "LL")
    assert log.sharp is True
    assert log.warnings == ["a: NET/IB: Got completion from peer with status=12 opcode=0"]


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("# Reducing maxBytes to 1048576 due to memory limitation", "sizes_reached"),
        ("# error: unhandled system error", "tool_reports_no_error"),
        ("# skipping json output; /x not accessible", "artefact_written"),
        ("# Avg bus bandwidth    : 1.2 FAILED", "tool_reports_no_error"),
        ("gpu-001: Test NCCL failure common.cu:1005 'unhandled system error'", "tool_reports_no_error"),
        ("    8388608  2097152  float  sum  -1  12.3  4", "output_readable"),
        ("    8388608  2097152  float  sum  -1  nan  nan  nan  0  nan  nan  nan  0", "output_readable"),
        ("    8388608  2097152  float  sum  -1  1  inf  1  0  1  1  1  0", "output_readable"),
        ("#  Rank  0 Group  0 Pid 9 on gpu-001 device  0 [0x00] NVIDIA H100", "ranks_once"),
    ],
)
def test_what_is_wrong_is_a_fault(line: str, rule: str) -> None:
    reading = read("\n".join([*header(Run()), *COLUMNS, line]))
    assert [r for r, _ in reading.faults] == [rule]


@pytest.mark.parametrize(("code", "version"), [(22809, "2.28.9"), ("2804", "2.8.4"), (0, None), ("x", None)])
def test_version_codes(code: int | str, version: str | None) -> None:
    assert version_of(code) == version


def test_shortened_numbers_of_the_writer() -> None:
    assert [floats(v, 7).strip() for v in (0.5, 12345.0, 123456.0, 1234567.0, 1.1e9)] == [
        "0.50", "12345.0", "123456", "1234567", "1.1e+09",
    ]  # fmt: skip
