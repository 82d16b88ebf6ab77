"""perftest's text of every release, its JSON, and units: MiB/s is not Gb/s."""

from __future__ import annotations

import json

import pytest

from fabric_health.checks.collectives.parsers.perftest import GBIT_PER_MIB, read_perftest, read_perftest_json

HEAD = """\
---------------------------------------------------------------------------------------
                    RDMA_Write BW Test
 Dual-port       : OFF\t\tDevice         : mlx5_0
 Number of qps   : 1\t\tTransport type : IB
 Connection type : RC\t\tUsing SRQ      : OFF
 PCIe relax order: ON
 ibv_wr* API     : ON
 TX depth        : 128
 CQ Moderation   : 1
 Mtu             : 4096[B]
 Link type       : Ethernet
 GID index       : 3
 Max inline data : 0[B]
 rdma_cm QPs\t : OFF
 Data ex. method : Ethernet
---------------------------------------------------------------------------------------
 local address: LID 0000 QPN 0x0127 PSN 0x85bd04 RKey 0x1fff00 VAddr 0x007f
 GID: 00:00:00:00:00:00:00:00:00:00:255:255:10:00:00:01
---------------------------------------------------------------------------------------
"""
NOISE = "Conflicting CPU frequency values detected: 800.0 != 3400.0. CPU Frequency is not max.\n"


def bandwidth(unit: str, row: str) -> str:
    return (
        HEAD
        + f" #bytes     #iterations    BW peak[{unit}]    BW average[{unit}]   MsgRate[Mpps]\n"
        + NOISE
        + row
        + "\n"
    )


@pytest.mark.parametrize("unit", ["MB/sec", "MiB/sec"])
def test_default_unit_is_mib_whatever_it_is_called(unit: str) -> None:
    reading = read_perftest(bandwidth(unit, " 65536      5000             23532.10            23530.87\t\t   0.376494"))
    assert reading.faults == []
    assert (reading.test, reading.device, reading.mtu_bytes, reading.link_layer) == (
        "RDMA_Write BW", "mlx5_0", 4096, "Ethernet",
    )  # fmt: skip
    (line,) = reading.lines
    assert (line.size_bytes, line.iterations) == (65536, 5000)
    assert line.values["bw_peak_gbitps"] == pytest.approx(23532.10 * 8 * 1048576 / 1e9)
    assert line.values["message_rate_mpps"] == pytest.approx(0.376494)


def test_gigabits_and_both_ends_printing() -> None:
    row = " 65536      20000            392.10             391.87    \t     0.747433"
    reading = read_perftest(bandwidth("Gb/sec", row + "\n" + row))
    (line,) = reading.lines
    assert line.values["bw_average_gbitps"] == 391.87


def test_cpu_column_qos_and_dual_port() -> None:
    head = " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]   CPU_Util[%]\n"
    assert len(read_perftest(HEAD + head + " 65536  5000  390.1  389.9  0.74  12.5\n").lines) == 1
    qos = " #sl   #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]\n"
    assert read_perftest(HEAD + qos + " 3 65536  5000  390.1  389.9  0.74\n").faults


def test_latency() -> None:
    text = (
        HEAD.replace("RDMA_Write BW", "RDMA_Write Latency")
        + " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   "
        "99% percentile[usec]   99.9% percentile[usec]\n"
        " 2       1000          1.45           5.10         1.50     \t       1.52     \t0.05   \t\t1.70    \t\t5.10\n"
    )
    reading = read_perftest(text)
    assert reading.faults == []
    assert reading.test == "RDMA_Write Latency"
    assert reading.lines[0].values == {
        "latency_min_us": 1.45, "latency_max_us": 5.1, "latency_typical_us": 1.5, "latency_avg_us": 1.52,
        "latency_p99_us": 1.7, "latency_p999_us": 5.1,
    }  # fmt: skip
    short = (
        HEAD
        + " #bytes        #iterations       t_avg[usec]    tps average\n"
        + " 2             9999            1.52    650000.0\n"
    )
    assert read_perftest(short).lines[0].values["latency_avg_us"] == 1.52


@pytest.mark.parametrize(
    "text", ["", HEAD, bandwidth("Gb/sec", " 65536 5000 nan nan nan"), bandwidth("TB", " 1 1 1 1 1")]
)
def test_no_result_is_a_fault(text: str) -> None:
    reading = read_perftest(text)
    assert reading.lines == []
    assert "output_readable" in {r for r, _ in reading.faults}


def test_error_with_numbers() -> None:
    text = bandwidth("Gb/sec", " 65536  5000  90.1  89.9  0.74") + "Error: BW result is below bw limit\n"
    assert {r for r, _ in read_perftest(text).faults} == {"tool_reports_no_error"}


INVALID = """{
test_info: {
test: "RDMA_Write_BW",
Device: "mlx5_0",
Mtu: 4096,
Link_type: "IB",
},
results: {
MsgSize: 65536,
n_iterations: 5000,
BW_peak: 390.10,
BW_average: 389.90,
MsgRate: 0.743,
}
}"""
VALID = json.dumps(
    {
        "test_info": {"test": "RDMA_Write BW Test", "Device": "mlx5_0", "Mtu": 4096, "Link_type": "IB"},
        "results": {"MsgSize": 65536, "n_iterations": 5000, "BW_peak": 390.1, "BW_average": 389.9, "MsgRate": 0.743},
    }
)


@pytest.mark.parametrize("text", [INVALID, VALID])
def test_json_of_both_kinds_and_its_silent_unit(text: str) -> None:
    reading = read_perftest_json(text, gbits=True)
    assert reading is not None
    assert reading.lines[0].values["bw_average_gbitps"] == 389.9
    assert (reading.device, reading.mtu_bytes) == ("mlx5_0", 4096)
    mib = read_perftest_json(text, gbits=False)
    assert mib is not None
    assert mib.lines[0].values["bw_average_gbitps"] == pytest.approx(389.9 * GBIT_PER_MIB)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"test_info": 1}', INVALID[:80], "null"])
def test_json_that_is_none(text: str) -> None:
    assert read_perftest_json(text, gbits=True) is None
