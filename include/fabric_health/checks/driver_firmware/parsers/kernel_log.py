"""Xid, SXid and lost-carrier lines of the kernel log, from ``journalctl -o json`` or ``dmesg --time-format iso``.

Forms of all driver generations: with and without ``pid=`` and ``name=``, MIG instances, ancient addresses without
``PCI:``. NVSwitch prints one SXid over several lines; only the first counts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from fabric_health.checks.driver_firmware.parsers.text import MAX_CHARS, MAX_LINE, clean, one_line

MAX_ENTRY = 64 << 10
MAX_MESSAGE = 500
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class LogEvent:
    """One event. ``pci`` is ``0000:9b:00`` of a GPU or switch, ``0000:5e:00.0`` of a NIC's port; ``writer`` is
    ``kernel`` or the daemon that wrote the line.
    """

    kind: str
    code: int | None
    pci: str | None
    netdev: str | None
    at: datetime | None
    message: str
    writer: str


@dataclass(frozen=True)
class Log:
    """Events of a log, how many entries it had, and how many lines could not be read."""

    events: tuple[LogEvent, ...]
    entries: int
    unreadable: int


# Lines without any of these words are counted and not looked at; a JSON array is a message with odd bytes.
_CANDIDATE = re.compile(r'\bS?Xid \(|Lost carrier|Link down|"MESSAGE" ?: ?\[')
_HINT = re.compile(r"-- (?:No entries|Logs begin at|Journal begins at|Boot )")


def parse_journal(text: str) -> Log:
    """Read one JSON object a line. A line that is not one is counted as unreadable."""
    events: list[LogEvent] = []
    entries = unreadable = 0
    for line in text[:MAX_CHARS].split("\n"):
        if not line.strip("\ufeff \t\r"):
            continue
        if len(line) > MAX_ENTRY or not (line.lstrip("\ufeff \t").startswith("{") and line.rstrip().endswith("}")):
            unreadable += _HINT.match(line[:80]) is None
            continue
        if not _CANDIDATE.search(line):
            is_entry = '"MESSAGE"' in line
            entries += is_entry
            unreadable += not is_entry
            continue
        try:
            entry = json.loads(line.lstrip("\ufeff"))
        except (ValueError, RecursionError):
            unreadable += 1
            continue
        entries += 1
        message = _message(entry)
        if message is None:
            unreadable += 1
            continue
        writer = "kernel" if entry.get("_TRANSPORT") == "kernel" else "networkd"
        events.extend(_events(message, _journal_time(entry), writer))
    return Log(tuple(events), entries, unreadable)


def _message(entry: Any) -> str | None:
    found = entry.get("MESSAGE") if isinstance(entry, dict) else None
    if isinstance(found, str):
        return found
    if isinstance(found, list):  # bytes that are not printable UTF-8
        try:
            return bytes(found).decode("utf-8", "replace")
        except (ValueError, TypeError):
            return None
    return "" if isinstance(entry, dict) and "MESSAGE" in entry and found is None else None


def _journal_time(entry: dict[str, Any]) -> datetime | None:
    stamp = entry.get("__REALTIME_TIMESTAMP")
    if not isinstance(stamp, str) or not re.fullmatch(r"[0-9]{1,18}", stamp):
        return None
    try:
        return _EPOCH + timedelta(microseconds=int(stamp))
    except OverflowError:
        return None


_DMESG = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)[,.](\d{1,9})([+-]\d\d):?(\d\d) (.*)", re.S)
_DMESG_BOOT_TIME = re.compile(r"\[ {0,8}\d{1,10}\.\d{6}\] (.*)", re.S)


def parse_dmesg(text: str) -> Log:
    """Read dmesg lines with ISO times; lines with seconds since boot count too, without a time."""
    events: list[LogEvent] = []
    entries = unreadable = 0
    for line in text[:MAX_CHARS].split("\n"):
        stripped = line[:MAX_LINE].strip("\ufeff\r ")
        if not stripped:
            continue
        dated = _DMESG.fullmatch(stripped)
        relative = None if dated else _DMESG_BOOT_TIME.fullmatch(stripped)
        if dated is None and relative is None:
            unreadable += 1
            continue
        entries += 1
        message = dated[5] if dated else relative[1] if relative else ""
        events.extend(_events(message, _iso_time(dated) if dated else None, "kernel"))
    return Log(tuple(events), entries, unreadable)


def _iso_time(found: re.Match[str]) -> datetime | None:
    try:
        at = datetime.fromisoformat(f"{found[1]}.{found[2][:6]:0<6}{found[3]}:{found[4]}")
        return at.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


# All are matched at the start of the message: further in stands what user processes choose, their own names.
_XID = re.compile(
    r"NVRM: Xid \((?:PCI:)?(?P<pci>[0-9a-fA-F:.]{4,20})(?: GPU-I:\d{1,3})?(?: GPU-CI:\d{1,3})?\): (?P<code>\d{1,5}), ?"
)
_SXID = re.compile(
    r"nvidia-nvswitch\d{0,3}: SXid \((?:PCI:)?(?P<pci>[0-9a-fA-F:.]{4,20})\): (?P<code>\d{1,6}), ?(?P<rest>.{0,40})"
)
_LINK_DOWN = re.compile(
    r"mlx[45]_core (?P<pci>[0-9a-f:.]{7,14})(?:\([^)]{1,20}\))? (?P<netdev>[\w.@-]{1,32}): Link down"
)
_LOST_CARRIER = re.compile(r"(?:systemd-networkd\[\d{1,8}\]: )?(?P<netdev>[\w.@-]{1,32}): Lost carrier\b")


def _events(message: str, at: datetime | None, writer: str) -> Iterator[LogEvent]:
    text = clean(message[:MAX_LINE]).lstrip()
    shown = one_line(text, MAX_MESSAGE)
    if writer == "kernel":
        xid = _XID.match(text)
        if xid:
            yield LogEvent("xid", int(xid["code"]), slot(xid["pci"]), None, at, shown, writer)
            return
        sxid = _SXID.match(text)
        if sxid:
            # "Data {0x..}" and "Severity .." lines go on with the event of the line before.
            if not sxid["rest"].startswith(("Data", "Severity")):
                yield LogEvent("sxid", int(sxid["code"]), slot(sxid["pci"]), None, at, shown, writer)
            return
    carrier = _LINK_DOWN.match(text) or _LOST_CARRIER.match(text)
    if carrier:
        pci = carrier.groupdict().get("pci")
        yield LogEvent("lost_carrier", None, pci, carrier["netdev"], at, shown, writer)


def slot(pci: str | None) -> str | None:
    """Return ``0000:9b:00`` of ``0000:9b:00``, ``0000:9b:00.0`` or ``00000000:9B:00.0``; None for anything else."""
    found = re.fullmatch(r"(?:[0-9a-f]{4})?([0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2})(?:\.[0-7])?", (pci or "")[:32].lower())
    return found[1] if found else None
