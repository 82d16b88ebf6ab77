"""RDMA devices: ``ibstat``, ``ibv_devinfo -v``, ``rdma -j link show`` and the sysfs files behind them.

Each tool names states its own way; all are turned into the names of the ``links`` table. A state that none of them
documents becomes None, never the nearest guess.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fabric_health.checks.driver_firmware.parsers import text as text_

MAX_DEVICES = 256
_LOGICAL = {
    "DOWN": "DOWN",
    "INIT": "INIT",
    "INITIALIZING": "INIT",
    "ARMED": "ARMED",
    "ACTIVE": "ACTIVE",
    "ACTIVE_DEFER": "ACTIVE_DEFER",
    "NOP": "NOP",
}
_PHYSICAL = {
    "LINKUP": "LINK_UP",
    "SLEEP": "SLEEP",
    "POLLING": "POLLING",
    "DISABLED": "DISABLED",
    "PORTCONFIGURATIONTRAINING": "PORT_CONFIGURATION_TRAINING",
    "PORTCONFIGURATIONTRAINNING": "PORT_CONFIGURATION_TRAINING",  # ibv_devinfo spells it so
    "LINKERRORRECOVERY": "LINK_ERROR_RECOVERY",
    "LINKERRORRECOVER": "LINK_ERROR_RECOVERY",
    "PHYTEST": "PHY_TEST",
}
_LINK_LAYERS = {"infiniband": "InfiniBand", "ethernet": "Ethernet"}


@dataclass(frozen=True)
class Port:
    """What one tool says about port 1 of a device; None where it says nothing usable. Rate in Gb/s, MTU in bytes."""

    state: str | None = None
    phys_state: str | None = None
    rate_gbps: float | None = None
    width: str | None = None
    link_layer: str | None = None
    active_mtu_bytes: int | None = None
    netdev: str | None = None


@dataclass(frozen=True)
class Device:
    """One RDMA device as one tool shows it."""

    name: str
    type: str | None = None
    firmware: str | None = None
    psid: str | None = None
    guid: str | None = None
    port: Port = field(default_factory=Port)


def logical_state(text: str | None) -> str | None:
    """Return the logical state's name: ``ACTIVE`` for ``Active``, ``PORT_ACTIVE (4)``, ``4: ACTIVE``."""
    word = _bare(text)
    return _LOGICAL.get(word.removeprefix("PORT_"))


def physical_state(text: str | None) -> str | None:
    """Return the physical state's name: ``LINK_UP`` for ``LinkUp``, ``LINK_UP (5)``, ``5: LinkUp``."""
    word = _bare(text)
    # rdma(8) prints state 4 with the logical state's name.
    if word == "ARMED":
        return "PORT_CONFIGURATION_TRAINING"
    return _PHYSICAL.get(re.sub(r"[ _]", "", word))


def _bare(text: str | None) -> str:
    word = (text or "")[:64].strip().upper()
    word = re.sub(r"^\d{1,2}: *", "", word)
    return re.sub(r" *\(\d{1,3}\)$", "", word)


def link_layer(text: str | None) -> str | None:
    """Return ``InfiniBand`` or ``Ethernet``, None for anything else."""
    return _LINK_LAYERS.get((text or "")[:32].strip().casefold())


_RATE = re.compile(r"(\d{1,5}(?:\.\d{1,3})?)(?: Gb/sec)?(?: \((?:(\d{1,2}X)[^)]{0,20}|FDR10)\))?")


def rate(text: str | None) -> tuple[float | None, str | None]:
    """Return (Gb/s, width) of ``400``, ``40 (FDR10)`` or ``400 Gb/sec (4X NDR)``."""
    found = _RATE.fullmatch((text or "")[:64].strip())
    return (float(found[1]), found[2]) if found else (None, None)


_IBSTAT_CA = re.compile(r"CA '([\w.-]{1,64})'")
_IBSTAT_PORT = re.compile(r"Port (\d{1,3}):")


def parse_ibstat(text: str) -> dict[str, Device]:
    """Return the devices of ``ibstat`` by name. A device whose block is cut short keeps what was printed of it."""
    blocks: dict[str, dict[str, str]] = {}
    here: dict[str, str] | None = None
    port = 0
    for raw in text_.lines(text):
        line = raw.strip()
        ca = _IBSTAT_CA.fullmatch(line)
        if ca:
            port = 0
            here = blocks.setdefault(ca[1], {}) if len(blocks) < MAX_DEVICES else None
            continue
        number = _IBSTAT_PORT.fullmatch(line)
        if number:
            port = int(number[1])
            continue
        key, colon, given = line.partition(":")
        if here is not None and colon and port <= 1:
            here.setdefault(key.strip().casefold(), given.strip())
    return {name: _ibstat_device(name, block) for name, block in blocks.items()}


def _ibstat_device(name: str, block: Mapping[str, str]) -> Device:
    gbps, width = rate(block.get("rate"))
    port = Port(
        state=logical_state(block.get("state")),
        phys_state=physical_state(block.get("physical state")),
        rate_gbps=gbps,
        width=width,
        link_layer=link_layer(block.get("link layer")),
    )
    return Device(
        name,
        type=_word(block.get("ca type")),
        firmware=_word(block.get("firmware version")),
        guid=_guid(block.get("system image guid") or block.get("node guid")),
        port=port,
    )


_DEVINFO_CA = re.compile(r"hca_id:\s{0,8}([\w.-]{1,64})")
_DEVINFO_MTU = re.compile(r"(256|512|1024|2048|4096) \([1-5]\)")
_DEVINFO_WIDTH = re.compile(r"((?:1|2|4|8|12)X) \(\d{1,2}\)")
_DEVINFO_LANE = re.compile(r"(\d{1,4}(?:\.\d{1,2})?) Gbps \(\d{1,4}\)")


def parse_devinfo(text: str) -> dict[str, Device]:
    """Return the devices of ``ibv_devinfo -v`` by name; ``active_speed`` is per lane, so it is multiplied."""
    blocks: dict[str, dict[str, str]] = {}
    here: dict[str, str] | None = None
    port = 0
    for raw in text_.lines(text):
        line = raw.strip()
        ca = _DEVINFO_CA.fullmatch(line)
        if ca:
            port = 0
            here = blocks.setdefault(ca[1], {}) if len(blocks) < MAX_DEVICES else None
            continue
        key, colon, given = line.partition(":")
        if not colon or here is None:
            continue
        given = given.strip()
        if key == "port":
            port = int(given) if given.isascii() and given.isdigit() and len(given) < 4 else port + 1
        elif port <= 1:
            here.setdefault(key.strip(), given)
    return {name: _devinfo_device(name, block) for name, block in blocks.items()}


def _devinfo_device(name: str, block: Mapping[str, str]) -> Device:
    width = _DEVINFO_WIDTH.fullmatch(block.get("active_width", "")[:32])
    lane = _DEVINFO_LANE.fullmatch(block.get("active_speed", "")[:32])
    mtu = _DEVINFO_MTU.fullmatch(block.get("active_mtu", "")[:32])
    port = Port(
        state=logical_state(block.get("state")),
        phys_state=physical_state(block.get("phys_state")),
        rate_gbps=float(lane[1]) * int(width[1].removesuffix("X")) if lane and width else None,
        width=width[1] if width else None,
        link_layer=link_layer(block.get("link_layer")),
        active_mtu_bytes=int(mtu[1]) if mtu else None,
    )
    part = block.get("vendor_part_id", "")
    return Device(
        name,
        type=f"MT{part}" if re.fullmatch(r"\d{4,6}", part) and block.get("vendor_id", "").lower() == "0x02c9" else None,
        firmware=_word(block.get("fw_ver")),
        psid=_word(block.get("board_id")),
        guid=_guid(block.get("sys_image_guid") or block.get("node_guid")),
        port=port,
    )


def parse_rdma_link(text: str) -> dict[str, Device]:
    """Return the devices of ``rdma -j link show`` by name. Raises ValueError when it is not a list of links."""
    found = text_.json_value(text)
    if not isinstance(found, list):
        raise ValueError("expected a list of links")
    out: dict[str, Device] = {}
    for entry in found[: 4 * MAX_DEVICES]:
        if not isinstance(entry, dict):
            raise ValueError("expected a list of objects")
        name = _text(entry, "ifname")
        if name is None or entry.get("port", 1) != 1 or name in out:
            continue
        port = Port(
            state=logical_state(_text(entry, "state")),
            phys_state=physical_state(_text(entry, "physical_state")),
            netdev=_word(_text(entry, "netdev")),
        )
        out[name] = Device(name, port=port)
    return out


def parse_sysfs(text: str) -> dict[str, str]:
    """Return ``path -> value`` of ``grep -H . FILE...``, only paths under /sys; a path given twice keeps the first."""
    out: dict[str, str] = {}
    for line in text_.lines(text):
        path, colon, given = line.partition(":")
        if colon and path.startswith("/sys/") and len(out) < 64 * MAX_DEVICES:
            out.setdefault(path, given.strip())
    return out


def sysfs_device(name: str, files: Mapping[str, str]) -> Device | None:
    """Return a device from the sysfs files of :func:`parse_sysfs`, None when none of them is its."""
    base = f"/sys/class/infiniband/{name}"
    port = f"{base}/ports/1"
    if not any(path.startswith(f"{base}/") for path in files):
        return None
    gbps, width = rate(files.get(f"{port}/rate"))
    return Device(
        name,
        type=_word(files.get(f"{base}/hca_type")),
        firmware=_word(files.get(f"{base}/fw_ver")),
        psid=_word(files.get(f"{base}/board_id")),
        port=Port(
            state=logical_state(files.get(f"{port}/state")),
            phys_state=physical_state(files.get(f"{port}/phys_state")),
            rate_gbps=gbps,
            width=width,
            link_layer=link_layer(files.get(f"{port}/link_layer")),
        ),
    )


def _word(text: str | None) -> str | None:
    """Return one short printable word, None for anything else."""
    return text if text is not None and re.fullmatch(r"[\w.:+-]{1,64}", text) else None


def _text(entry: Mapping[str, Any], key: str) -> str | None:
    found = entry.get(key)
    return found if isinstance(found, str) else None


def _guid(text: str | None) -> str | None:
    """Return a GUID as 16 hex digits, lower case."""
    digits = (text or "")[:32].strip().lower().removeprefix("0x").replace(":", "")
    return digits if re.fullmatch(r"[0-9a-f]{16}", digits) else None
