"""What all RDMA and network tools of one node said, side by side, so that each NIC can be merged from them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from fabric_health.checks.check import read_at
from fabric_health.checks.driver_firmware.parsers import cells, firmware, netdev, rdma
from fabric_health.checks.driver_firmware.parsers.cells import Cell
from fabric_health.evidence import CommandResult, UnitEvidence
from fabric_health.site import Nic, Node

T = TypeVar("T")
SOURCES = ("ibstat", "rdma_link", "ibv_devinfo", "sysfs")


@dataclass(frozen=True)
class Answers:
    """Parsed answers by tool; ``problems`` holds, by command, why a tool gave none.

    ``listed`` is False when no tool listed the RDMA devices of the node, so that a NIC which is not shown cannot be
    called missing. Counters were read at ``counted_at``.
    """

    devices: Mapping[str, Mapping[str, rdma.Device]]
    sysfs: Mapping[str, str]
    links: Mapping[str, netdev.Netdev]
    info: Mapping[str, netdev.DriverInfo]
    features: Mapping[str, Mapping[str, Cell]]
    statistics: Mapping[str, Mapping[str, int]]
    flashed: tuple[firmware.FlashedDevice, ...]
    flint: Mapping[str, firmware.FlashedDevice]
    problems: Mapping[str, Cell]
    listed: bool
    counted_at: datetime

    def views(self, nic: str) -> list[tuple[rdma.Device, str]]:
        """Return the NIC as each tool that shows it does, best source first, with the command."""
        found = [(self.devices.get(source, {}).get(nic), source) for source in SOURCES]
        return [(device, source) for device, source in found if device is not None]

    def problem(self, *commands: str) -> Cell:
        """Return why the first of ``commands`` gave no value."""
        return next((self.problems[c] for c in commands if c in self.problems), cells.error("not in the answer"))


def read_answers(node: Node, evidence: UnitEvidence) -> Answers:
    """Read every RDMA and network tool of the node."""
    problems: dict[str, Cell] = {}

    def ask(command: str, parse: Callable[[str], T], nothing: T, any_exit: bool = False) -> T:
        result = evidence.result(command)
        problem = cells.failure(result, any_exit=any_exit)
        if problem is None and result is not None:
            try:
                found = parse(result.stdout)
            except ValueError as cause:
                problem = cells.said(result) if result.exit_code else cells.error(str(cause))
            else:
                if found:
                    return found
                problem = cells.said(result) if result.exit_code else cells.error("no device is listed")
        problems[command] = problem or cells.error("not run")
        return nothing

    none: dict[str, rdma.Device] = {}
    no_files: dict[str, str] = {}
    # grep exits 2 when any one file is missing; what it printed is complete.
    sysfs = ask("sysfs", rdma.parse_sysfs, no_files, any_exit=True)
    by_sysfs = {nic.name: rdma.sysfs_device(nic.name, sysfs) for nic in node.sku.nics}
    devices = {
        "ibstat": ask("ibstat", rdma.parse_ibstat, none),
        "ibv_devinfo": ask("ibv_devinfo", rdma.parse_devinfo, none),
        "rdma_link": ask("rdma_link", rdma.parse_rdma_link, none),
        "sysfs": {name: device for name, device in by_sysfs.items() if device is not None},
    }
    netdevs = [nic.netdev for nic in node.sku.nics if nic.netdev]
    info = {n: ask(f"ethtool_i:{n}", netdev.parse_driver_info, None) for n in netdevs}
    flint = {nic.name: ask(f"mstflint:{nic.name}", firmware.parse_mstflint, None) for nic in node.sku.nics if nic.pci}
    return Answers(
        devices=devices,
        sysfs=sysfs,
        links=ask("ip_link", netdev.parse_ip_link, {}),
        info={n: found for n, found in info.items() if found is not None},
        features={n: ask(f"ethtool_k:{n}", netdev.parse_features, {}) for n in netdevs},
        statistics={n: ask(f"ethtool_S:{n}", netdev.parse_statistics, {}) for n in netdevs},
        # Exit code 1: one device could not be queried, the others are printed.
        flashed=ask("mlxfwmanager", firmware.parse_mlxfwmanager, (), any_exit=True),
        flint={n: found for n, found in flint.items() if found is not None},
        problems=problems,
        listed=any(devices[s] for s in SOURCES[:3]) or _says_none(evidence.result("ibv_devinfo")),
        counted_at=read_at(evidence, ("sysfs", "ethtool_S")),
    )


def _says_none(devinfo: CommandResult | None) -> bool:
    """Return True when ibv_devinfo says that there is no device; an empty answer alone is not believed."""
    if devinfo is None or not devinfo.ran:
        return False
    return "No IB devices found" in devinfo.stderr[:4096] or "No IB devices found" in devinfo.stdout[:4096]


def flashed_device(answers: Answers, nic: Nic, pci: str | None, guid: str | None) -> firmware.FlashedDevice | None:
    """Return the NIC's entry of mlxfwmanager: by PCI slot, or by GUID where it names devices its own way."""
    slot = firmware.slot(nic.pci or pci)
    for device in answers.flashed:
        if (slot is not None and device.slot == slot) or (guid is not None and device.guid == guid):
            return device
    return None
