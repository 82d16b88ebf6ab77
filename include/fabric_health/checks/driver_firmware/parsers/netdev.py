"""Network devices: ``ip -j -s -d link``, ``ethtool -i``, ``-k`` and ``-S``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from fabric_health.checks.driver_firmware.parsers import cells
from fabric_health.checks.driver_firmware.parsers.cells import Cell
from fabric_health.checks.driver_firmware.parsers.text import json_value, lines

MAX_NETDEVS = 4096
MAX_COUNTER = 1 << 63
OFFLOADS: tuple[str, ...] = (
    "tcp-segmentation-offload",
    "generic-receive-offload",
    "large-receive-offload",
    "rx-checksumming",
    "tx-checksumming",
)


@dataclass(frozen=True)
class Netdev:
    """One network device as ``ip`` shows it; counters are cumulative, None where it gives none.

    ``admin_up`` is the flag ``UP``: it stays when the carrier is lost (``NO-CARRIER``), and goes when the device is
    shut.
    """

    name: str
    admin_up: bool | None
    mtu_bytes: int | None
    rx_packets: int | None
    tx_packets: int | None
    rx_errors: int | None
    carrier_changes: int | None


def parse_ip_link(text: str) -> dict[str, Netdev]:
    """Return network devices by name. Raises ValueError when the text is not ip's list of links."""
    found = json_value(text)
    if not isinstance(found, list):
        raise ValueError("expected a list of links")
    out: dict[str, Netdev] = {}
    for entry in found[:MAX_NETDEVS]:
        if not isinstance(entry, dict):
            raise ValueError("expected a list of objects")
        name = entry.get("ifname")  # iproute2 before 5.13 puts empty objects between links
        if isinstance(name, str) and name not in out:
            out[name] = _netdev(name, entry)
    return out


def _netdev(name: str, entry: dict[str, Any]) -> Netdev:
    return Netdev(
        name=name,
        admin_up=_admin_up(entry.get("flags")),
        mtu_bytes=_count(entry, "mtu"),
        rx_packets=_count(entry, "stats64", "rx", "packets"),
        tx_packets=_count(entry, "stats64", "tx", "packets"),
        rx_errors=_count(entry, "stats64", "rx", "errors"),
        carrier_changes=_count(entry, "stats64", "tx", "carrier_changes"),
    )


def _admin_up(flags: Any) -> bool | None:
    """Return whether ``UP`` is set; None for anything but a list of flags (no device is without any)."""
    if not isinstance(flags, list) or not flags or not all(isinstance(f, str) for f in flags):
        return None
    return "UP" in flags


def _count(entry: Any, *path: str) -> int | None:
    for key in path:
        entry = entry.get(key) if isinstance(entry, dict) else None
    return entry if isinstance(entry, int) and not isinstance(entry, bool) and 0 <= entry < MAX_COUNTER else None


@dataclass(frozen=True)
class DriverInfo:
    """``ethtool -i``: firmware version, PSID and PCI address of a network device; None where it gives none."""

    firmware: str | None
    psid: str | None
    pci: str | None


_FIRMWARE = re.compile(r"(\d{1,4}(?:\.\d{1,6}){1,3})(?: \(([A-Z0-9_]{4,32})\))?")
_PCI = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


def parse_driver_info(text: str) -> DriverInfo:
    """Read ``ethtool -i``."""
    fields: dict[str, str] = {}
    for line in lines(text):
        key, colon, given = line.partition(":")
        if colon:
            fields.setdefault(key.strip(), given.strip())
    firmware = _FIRMWARE.fullmatch(fields.get("firmware-version", "")[:80])
    pci = fields.get("bus-info", "").lower()
    return DriverInfo(
        firmware=firmware[1] if firmware else None,
        psid=firmware[2] if firmware else None,
        pci=pci if _PCI.fullmatch(pci) else None,
    )


_FEATURE = re.compile(r"\s{0,8}([a-z0-9-]{2,64}): (on|off)(?: \[(?:fixed|(?:not )?requested(?: on| off)?)\])?\s{0,8}")


def parse_features(text: str) -> dict[str, Cell]:
    """Return on/off of every feature in ``OFFLOADS``."""
    found: dict[str, str] = {}
    for line in lines(text):
        feature = _FEATURE.fullmatch(line)
        if feature:
            found.setdefault(feature[1], feature[2])
    return {
        name: cells.value(found[name]) if name in found else cells.error(f"{name} is not listed") for name in OFFLOADS
    }


_STATISTIC = re.compile(r"\s{0,16}(\w{1,64}): (\d{1,19})\s{0,8}")


def parse_statistics(text: str) -> dict[str, int]:
    """Return the counters of ``ethtool -S``; the set depends on the firmware, so one that is absent is not zero."""
    out: dict[str, int] = {}
    for line in lines(text):
        found = _STATISTIC.fullmatch(line)
        if found and int(found[2]) < MAX_COUNTER and len(out) < 65536:
            out.setdefault(found[1], int(found[2]))
    return out
