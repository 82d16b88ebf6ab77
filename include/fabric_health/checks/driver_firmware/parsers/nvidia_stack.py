"""The rest of the NVIDIA stack: kernel module, fabric manager, services."""

from __future__ import annotations

import re
from dataclasses import dataclass

from fabric_health.checks.driver_firmware.parsers import cells
from fabric_health.checks.driver_firmware.parsers.cells import Cell
from fabric_health.checks.driver_firmware.parsers.text import lines, one_line

_MODULE = re.compile(r"NVRM version:.{0,120}?\bModule(?: for \S{1,32})?\s{1,8}([0-9][0-9.]{2,30})\b.{0,400}")
_FABRIC_MANAGER = re.compile(r"Fabric Manager version is\s{0,8}:\s{0,8}(\S{1,40})", re.I)
_UNIT_STATES = frozenset(
    {"active", "inactive", "failed", "activating", "deactivating", "reloading", "maintenance", "refreshing"}
)


@dataclass(frozen=True)
class KernelModule:
    """Version of the loaded module, and ``open`` or ``proprietary``."""

    version: Cell
    flavor: Cell


def parse_module(text: str) -> KernelModule:
    """Read /proc/driver/nvidia/version of the open and the proprietary module."""
    for line in lines(text):
        found = _MODULE.fullmatch(line.strip())
        if found:
            flavor = "open" if "Open Kernel Module" in line else "proprietary"
            return KernelModule(cells.version(found[1]), cells.value(flavor))
    problem = cells.error(f"no NVRM version: {one_line(text) or 'empty'}")
    return KernelModule(problem, problem)


def parse_fabric_manager(text: str) -> Cell:
    """Return the version that ``nv-fabricmanager --version`` prints."""
    for line in lines(text):
        found = _FABRIC_MANAGER.search(line)
        if found:
            return cells.version(found[1])
    return cells.error(f"no fabric manager version: {one_line(text) or 'empty'}")


def parse_services(text: str) -> dict[str, Cell]:
    """Return ActiveState by service name from ``systemctl show``; ``not-found`` for a service that is not there."""
    out: dict[str, Cell] = {}
    block: dict[str, str] = {}
    for raw in [*lines(text), ""]:
        line = raw.strip()
        key, equals, given = line.partition("=")
        if equals:
            block[key] = given
            continue
        if not line and block:
            name = block.get("Id", "").removesuffix(".service")
            if name:
                out[name] = _service(block)
            block = {}
    return out


def _service(block: dict[str, str]) -> Cell:
    if block.get("LoadState") == "not-found":
        return cells.value("not-found")
    state = block.get("ActiveState", "")
    return cells.value(state) if state in _UNIT_STATES else cells.error(f"ActiveState {state!r}")
