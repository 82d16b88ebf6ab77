"""Answers of the logs: `journalctl -o json` over several boots, and `dmesg` for the running one."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from fabric_health.lab.answer import Answer
from fabric_health.lab.nodes.hardware import Gpu, Hardware, LabNic, hex_digits, moments, spread
from fabric_health.lab.nodes.traffic import carrier_losses, down_at

NETWORKD = "systemd-networkd"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
BACK_AFTER = timedelta(seconds=8)
# The network service hears of a carrier from the kernel.
_FOLLOWS = timedelta(milliseconds=3)

# Text after the number, as drivers from 570 on write it (no process: no pid and no name).
_XIDS = {
    13: "Graphics SM Warp Exception on (GPC 3, TPC 1, SM 0): Out Of Range Address",
    31: "MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_0 faulted @ 0x7f1c_e4000000. "
    "Fault is of type FAULT_PDE ACCESS_TYPE_READ",
    43: "Ch 00000008",
    45: "Ch 00000008, Preemptive Channel Removal",
    48: "An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer at partition 6, "
    "subpartition 0.",
    63: "Row Remapper: New row (0x0000000000012f4c) marked for remapping, reset gpu to activate.",
    64: "Row Remapper: All reserved rows for bank are remapped",
    74: "NVLink: fatal error detected on link 5(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)",
    79: "GPU has fallen off the bus.",
    92: "High single-bit ECC error rate",
    94: "Contained: SM (0x1). RST: No, D-RST: No",
    95: "Uncontained: LTC TAG (0x2,0x0). RST: Yes, D-RST: No",
    119: "Timeout after 6s of waiting for RPC response from GPU{index} GSP! "
    "Expected function 76 (GSP_RM_CONTROL) (0x2080a0a8 0x0).",
    145: "RLW_SRC_TRACK  Nonfatal XC0 i0 Link 11 (0x00000001 0x00000000 0x00000000 0x00000000 0x00000000 0x00000000)",
    154: "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)",
}  # fmt: skip


@dataclass(frozen=True)
class Line:
    """One line of a log at a time (UTC): from the kernel, or from the service ``source``."""

    at: datetime
    text: str
    source: str = "kernel"


def answer_journal(hardware: Hardware, arguments: tuple[str, ...], now: datetime) -> Answer:
    """Answer `journalctl -o json --since=-<n>s ... [matches]`: one object a line, newest first with ``--reverse``."""
    since = next((m for a in arguments if (m := re.fullmatch(r"--since=-(\d{1,9})s", a))), None)
    if since is None or "json" not in arguments:
        return Answer(stderr="Failed to parse timestamp: expected --since=-<seconds>s\n", exit_code=1)
    start = now - timedelta(seconds=int(since.group(1)))
    chosen = [line for line in log(hardware, start, now) if _matches(line, arguments)]
    chosen.sort(key=lambda line: line.at, reverse="--reverse" in arguments)
    return Answer("".join(_entry(hardware, line) for line in chosen))


def answer_dmesg(hardware: Hardware, arguments: tuple[str, ...], now: datetime) -> Answer:
    """Answer `dmesg --time-format iso`: the kernel's lines since boot."""
    if arguments != ("--time-format", "iso"):
        return Answer(stderr="dmesg: unrecognized option\n", exit_code=1)
    lines = sorted((x for x in log(hardware, hardware.booted_at, now) if x.source == "kernel"), key=lambda x: x.at)
    return Answer("".join(f"{x.at:%Y-%m-%dT%H:%M:%S},{x.at.microsecond:06d}+00:00 {x.text}\n" for x in lines))


def log(hardware: Hardware, since: datetime, until: datetime) -> Iterator[Line]:
    """Yield what the node logged in (since, until], UTC, in no particular order."""
    lines = [*_boot(hardware)]
    for gpu in hardware.gpus:
        lines += _gpu(gpu, since, until)
    for nic in hardware.nics:
        lines += _nic(hardware, nic, until)
    lines += _routine(hardware, since, until)
    return (line for line in lines if since < line.at <= until)


def _boot(hardware: Hardware) -> Iterator[Line]:
    at = hardware.booted_at
    kernel = hardware.expected("kernel_release", "5.15.0-151-generic")
    yield Line(at, f"Linux version {kernel} (buildd@lcy02-amd64-092) (gcc (Ubuntu 11.4.0) 11.4.0) #161-Ubuntu SMP")
    if hardware.gpus:
        yield Line(
            at + timedelta(seconds=19),
            f"NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  {hardware.kernel_module}  Release Build",
        )
    for nic in hardware.nics:
        yield Line(at + timedelta(seconds=12), f"mlx5_core {nic.bus}: firmware version: {nic.firmware}")
        if nic.netdev:
            yield Line(at + timedelta(seconds=31), f"mlx5_core {nic.bus} {nic.netdev}: Link up")
            yield Line(at + timedelta(seconds=31) + _FOLLOWS, f"{nic.netdev}: Gained carrier", NETWORKD)


def _gpu(gpu: Gpu, since: datetime, until: datetime) -> Iterator[Line]:
    if gpu.xid is None:
        return
    number = int(gpu.xid.value) if gpu.xid.value and gpu.xid.value.isdecimal() else 79
    text = _XIDS.get(number, "unspecified error").format(index=gpu.index)
    address = gpu.bus.rpartition(".")[0]
    for at in moments(gpu.xid, 1, since, until):
        yield Line(at - 21 * _MICROSECOND, f"NVRM: GPU at PCI:{address}: {gpu.uuid}")
        yield Line(at - 9 * _MICROSECOND, f"NVRM: GPU Board Serial Number: {gpu.serial}")
        yield Line(at, f"NVRM: Xid (PCI:{address}): {number}, {text}")


def _nic(hardware: Hardware, nic: LabNic, until: datetime) -> Iterator[Line]:
    """Yield lost and regained links, as the driver and the network service each write them."""
    stays_down = down_at(nic)
    for at in carrier_losses(hardware, nic, until):
        back = at + BACK_AFTER
        returns = at != stays_down
        if nic.netdev is None:
            # Without a network device nothing follows the carrier; the driver reports the cable.
            yield Line(at, f"mlx5_core {nic.bus}: Port module event: module 0, Cable unplugged")
            if returns:
                yield Line(back, f"mlx5_core {nic.bus}: Port module event: module 0, Cable plugged")
            continue
        yield Line(at, f"mlx5_core {nic.bus} {nic.netdev}: Link down")
        yield Line(at + _FOLLOWS, f"{nic.netdev}: Lost carrier", NETWORKD)
        if returns:
            yield Line(back, f"mlx5_core {nic.bus} {nic.netdev}: Link up")
            yield Line(back + _FOLLOWS, f"{nic.netdev}: Gained carrier", NETWORKD)


def _routine(hardware: Hardware, since: datetime, until: datetime) -> Iterator[Line]:
    """Yield the harmless lines that every node writes: one a day, at its own minute."""
    offset = timedelta(microseconds=spread(hardware.node.name, "routine", 0, 86_399_999_999))
    day = since.replace(hour=0, minute=0, second=0, microsecond=0)
    for _ in range(4_000):
        if day > until:
            return
        if day + offset > hardware.booted_at:
            yield Line(day + offset, 'audit: type=1400 apparmor="STATUS" operation="profile_replace" name="snapd"')
        day += timedelta(days=1)


def _matches(line: Line, arguments: tuple[str, ...]) -> bool:
    matches = [a for a in arguments if re.match(r"_?[A-Z][A-Z_]*=", a)]
    own = "_TRANSPORT=kernel" if line.source == "kernel" else f"SYSLOG_IDENTIFIER={line.source}"
    return not matches or own in matches


def _entry(hardware: Hardware, line: Line) -> str:
    """Return one line of `-o json`: the log's own fields always come along with the chosen ones."""
    stamp = (line.at - _EPOCH) // _MICROSECOND
    since_boot = max(0, (line.at - hardware.booted_at) // _MICROSECOND)
    boot = hex_digits(hardware.node.name, "boot id", 32)
    kernel = line.source == "kernel"
    entry = {
        "__CURSOR": f"s={hex_digits(hardware.node.name, 'journal', 32)};i={stamp // 1_000_000:x};b={boot};t={stamp:x}",
        "__REALTIME_TIMESTAMP": str(stamp),
        "__MONOTONIC_TIMESTAMP": str(since_boot),
        "_BOOT_ID": boot,
        "_TRANSPORT": "kernel" if kernel else "journal",
        "SYSLOG_IDENTIFIER": line.source,
        "MESSAGE": line.text,
    }
    return json.dumps(entry, separators=(",", ":")) + "\n"
