"""PCI devices: ``lspci -Dnnvv`` and the link files of sysfs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fabric_health.checks.driver_firmware.parsers import cells
from fabric_health.checks.driver_firmware.parsers.cells import Cell
from fabric_health.checks.driver_firmware.parsers.text import lines, one_line

MAX_DEVICES = 16384
_GENERATIONS = {"2.5": 1, "5": 2, "8": 3, "16": 4, "32": 5, "64": 6}


@dataclass(frozen=True)
class PciLink:
    """Generation and width of a PCIe link, now and at most; None where not given."""

    gen: int | None = None
    gen_max: int | None = None
    width: int | None = None
    width_max: int | None = None


@dataclass(frozen=True)
class PciDevice:
    """One PCI function. ``redirects`` is None when the device shows no access control (ACS) register."""

    address: str
    gpu: bool
    bridge: bool
    link: PciLink
    redirects: bool | None
    denied: bool


_HEADER = re.compile(r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}:[0-9a-f]{2}\.[0-7]) (.{1,80}?)(?: \[([0-9a-f]{4})\])?: (.+)")
_VENDOR = re.compile(r"\[([0-9a-f]{4}):[0-9a-f]{4}\]")
_SPEED = re.compile(r"Speed (\d{1,3}(?:\.\d)?)GT/s")
_WIDTH = re.compile(r"Width x(\d{1,2})")
# Each of these makes a switch send peer-to-peer traffic up to the root complex.
_REDIRECTS = re.compile(r"\b(?:SrcValid|ReqRedir|CmpltRedir|UpstreamFwd)\+")


def parse_lspci(text: str) -> tuple[PciDevice, ...]:
    """Return the devices in the order listed, with or without numeric ids."""
    out: list[PciDevice] = []
    header: re.Match[str] | None = None
    body: list[str] = []
    for line in lines(text):
        found = _HEADER.fullmatch(line[:400]) if line[:1] not in ("\t", " ", "") else None
        if found:
            if header:
                out.append(_device(header, body))
            header, body = found, []
            if len(out) >= MAX_DEVICES:
                break
        elif len(body) < 400:
            body.append(line.strip())
    if header:
        out.append(_device(header, body))
    return tuple(out)


def _device(header: re.Match[str], body: Sequence[str]) -> PciDevice:
    domain, rest, class_name, class_id, name = header.groups()
    vendors = _VENDOR.findall(name)
    nvidia = vendors[-1] == "10de" if vendors else name.startswith("NVIDIA")
    display = class_id in ("0300", "0302") if class_id else class_name in ("3D controller", "VGA compatible controller")
    capability = next((line for line in body if line.startswith("LnkCap:")), "")
    status = next((line for line in body if line.startswith("LnkSta:")), "")
    control = next((line for line in body if line.startswith("ACSCtl:")), None)
    return PciDevice(
        address=f"{(domain or '0000')[-4:]}:{rest}",
        gpu=nvidia and display,
        bridge=class_id == "0604" if class_id else class_name == "PCI bridge",
        link=PciLink(
            gen=_generation(_SPEED.search(status)),
            gen_max=_generation(_SPEED.search(capability)),
            width=_lanes(_WIDTH.search(status)),
            width_max=_lanes(_WIDTH.search(capability)),
        ),
        redirects=None if control is None else bool(_REDIRECTS.search(control)),
        denied=any("<access denied>" in line for line in body),
    )


def _generation(found: re.Match[str] | None) -> int | None:
    return _GENERATIONS.get(found[1].removesuffix(".0")) if found else None


def _lanes(found: re.Match[str] | None) -> int | None:
    lanes = int(found[1]) if found else 0
    return lanes or None


def acs_state(devices: Sequence[PciDevice]) -> Cell:
    """Return ``on`` when any PCI bridge redirects or validates peer-to-peer traffic, else ``off``."""
    bridges = [d for d in devices if d.bridge]
    if any(d.redirects for d in bridges):
        return cells.value("on")
    if any(d.denied for d in bridges) or not any(d.link.width_max for d in devices):
        return cells.error("permission: capabilities are not shown; lspci -vv needs root")
    return cells.value("off")


_SYSFS_SPEED = re.compile(r"(\d{1,3}(?:\.\d)?) GT/s(?: PCIe)?")


def sysfs_link(device: str, files: Mapping[str, str]) -> PciLink:
    """Return the link of the PCI function behind an RDMA device, from :func:`rdma.parse_sysfs`."""
    base = f"/sys/class/infiniband/{device}/device"
    return PciLink(
        gen=_generation(_SYSFS_SPEED.fullmatch(files.get(f"{base}/current_link_speed", ""))),
        gen_max=_generation(_SYSFS_SPEED.fullmatch(files.get(f"{base}/max_link_speed", ""))),
        width=_lanes(re.fullmatch(r"(\d{1,2})", files.get(f"{base}/current_link_width", ""))),
        width_max=_lanes(re.fullmatch(r"(\d{1,2})", files.get(f"{base}/max_link_width", ""))),
    )


def nothing_listed(text: str) -> Cell:
    """Return the error for an lspci that lists no device: every node has some."""
    return cells.error(f"no PCI device is listed: {one_line(text) or 'empty'}")
