from __future__ import annotations

import json
import time
from datetime import UTC, datetime

import pytest

from fabric_health.checks.driver_firmware.parsers.kernel_log import LogEvent, parse_dmesg, parse_journal

AT = datetime(2026, 8, 21, 8, 54, 1, tzinfo=UTC)


def entry(message: object, transport: str = "kernel", stamp: object = "1787302441000000") -> str:
    return json.dumps({"__REALTIME_TIMESTAMP": stamp, "_TRANSPORT": transport, "MESSAGE": message})


def events(message: str, transport: str = "kernel") -> tuple[LogEvent, ...]:
    return parse_journal(entry(message, transport) + "\n").events


@pytest.mark.parametrize(
    ("message", "code", "pci"),
    [
        (
            "NVRM: Xid (PCI:0000:9b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
            79,
            "0000:9b:00",
        ),
        ("NVRM: Xid (PCI:0000:9b:00): 79, GPU has fallen off the bus.", 79, "0000:9b:00"),
        ("NVRM: Xid (PCI:0000:9b:00): 45, pid=1, name=a, Ch 00000001 caused by previous Xid 94", 45, "0000:9b:00"),
        (
            "NVRM: Xid (PCI:0000:9b:00 GPU-I:05 GPU-CI:00): 94, pid=2, name=b, Contained: CE User Channel",
            94,
            "0000:9b:00",
        ),
        ("NVRM: Xid (PCI:0000:9b:00): 31, pid=71, Ch 00000010, MMU Fault", 31, "0000:9b:00"),
        ("NVRM: Xid (0000:03:00): 14, Channel 00000001", 14, "0000:03:00"),
        ("NVRM: Xid (PCI:0000:9B:00): 154, GPU recovery action changed from 0x0 (None) to 0x1", 154, "0000:9b:00"),
        ("NVRM: Xid (PCI:0000:9b:00): 149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 01 (0x1 0x2)", 149, "0000:9b:00"),
    ],
)
def test_xid_of_every_driver_generation(message: str, code: int, pci: str) -> None:
    (event,) = events(message)
    assert (event.kind, event.code, event.pci, event.at, event.message) == (
        "xid",
        code,
        pci,
        AT,
        " ".join(message.split()),
    )


@pytest.mark.parametrize(
    "message",
    [
        "NVRM: GPU at PCI:0000:9b:00: GPU-6a4f1c2e-11d0-4b7a-9c55-0d2f7be4a101",
        "NVRM: GPU 0000:29:00.0: GPU has fallen off the bus.",
        "NVRM: Xid (PCI:0000:9b:00): many",
        "traps: NVRM: Xid (PCI:0000:9b:00): 79, x[12] trap",
        "fake: ens1np0: Lost carrier",
        "mlx5_core 0000:5e:00.0 ens1np0: Link up",
        "nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Data {0x00000001}",
        "nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Severity 0 Engine instance 32",
        "",
    ],
)
def test_lines_that_are_no_event(message: str) -> None:
    assert events(message) == ()


def test_xid_lines_count_from_the_kernel_only() -> None:
    assert events("NVRM: Xid (PCI:0000:9b:00): 79, GPU has fallen off the bus.", "syslog") == ()


def test_sxid_and_carrier() -> None:
    (sxid,) = events("nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 19084, Fatal, Link 32 AN1 Heartbeat Timeout")
    assert (sxid.kind, sxid.code, sxid.pci) == ("sxid", 19084, "0000:05:00")
    (down,) = events("mlx5_core 0000:5e:00.1 ens1f1np1: Link down")
    assert (down.kind, down.pci, down.netdev, down.writer) == ("lost_carrier", "0000:5e:00.1", "ens1f1np1", "kernel")
    (lost,) = events("ens1f1np1: Lost carrier", "journal")
    assert (lost.kind, lost.netdev, lost.writer) == ("lost_carrier", "ens1f1np1", "networkd")
    (early,) = events("systemd-networkd[812]: ens1f1np1: Lost carrier")
    assert early.netdev == "ens1f1np1"


def test_message_of_bytes_and_odd_times() -> None:
    message = "NVRM: Xid (PCI:0000:9b:00): 79, name=\x1b[31mred\x07"
    (event,) = parse_journal(entry(list(message.encode()))).events
    assert event.message == "NVRM: Xid (PCI:0000:9b:00): 79, name=red\ufffd"
    for stamp in ("soon", 17, None, "9" * 40, "999999999999999999"):
        assert [e.at for e in parse_journal(entry(message, stamp=stamp)).events] == [None]


def test_message_is_cut() -> None:
    (event,) = events("NVRM: Xid (PCI:0000:9b:00): 79, " + "x" * 9000)
    assert len(event.message) == 500


@pytest.mark.parametrize(
    ("text", "entries", "unreadable"),
    [
        ("", 0, 0),
        ("-- No entries --\n", 0, 0),
        ("Hint: You are currently not seeing messages from other users and the system.\n", 0, 1),
        (entry("a") + "\n" + entry("b")[:30] + "\n", 1, 1),
        ('{"MESSAGE":"Xid (" }\n', 1, 0),
        ('{"MESSAGE":"Xid (", }\n', 0, 1),
        ('{"Xid (":' + "[" * 30_000 + "}\n", 0, 1),
        ('{"MESSAGE":["Xid ("]}\n', 1, 1),
        ("<html>\n<b>\n", 0, 2),
    ],
)
def test_lines_are_counted(text: str, entries: int, unreadable: int) -> None:
    log = parse_journal(text)
    assert (log.entries, log.unreadable) == (entries, unreadable)


def test_dmesg() -> None:
    log = parse_dmesg(
        "2026-08-21T08:54:01,123456+02:00 NVRM: Xid (PCI:0000:9b:00): 79, GPU has fallen off the bus.\n"
        "[   12.345678] mlx5_core 0000:5e:00.0 ens1np0: Link down\n"
        " a second line of a message\n"
        "2026-99-99T08:54:01,123456+02:00 NVRM: Xid (PCI:0000:9b:00): 48, DBE\n"
    )
    assert [(e.kind, e.code) for e in log.events] == [("xid", 79), ("lost_carrier", None), ("xid", 48)]
    assert [e.at for e in log.events] == [datetime(2026, 8, 21, 6, 54, 1, 123456, tzinfo=UTC), None, None]
    assert (log.entries, log.unreadable) == (3, 1)


def test_huge_lines_cost_little() -> None:
    begin = time.process_time()
    for text in ('{"MESSAGE":"Xid (' + "a" * (50 << 20) + '"}', "[" * (50 << 20), "Xid (" * (10 << 20)):
        assert parse_journal(text).events == ()
        assert parse_dmesg(text).events == ()
    assert time.process_time() - begin < 5
