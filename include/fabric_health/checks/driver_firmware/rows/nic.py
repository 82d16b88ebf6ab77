"""NIC facts and links."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from fabric_health.checks.driver_firmware.parsers import cells, pci
from fabric_health.checks.driver_firmware.parsers.cells import VERSION, Cell
from fabric_health.checks.driver_firmware.parsers.netdev import OFFLOADS
from fabric_health.checks.driver_firmware.rows.fact import fact, merged
from fabric_health.checks.driver_firmware.rows.link import link_row
from fabric_health.checks.driver_firmware.rows.rdma_answers import SOURCES, Answers, flashed_device
from fabric_health.datasets.contracts import Row
from fabric_health.datasets.tables import Fact
from fabric_health.site import Nic, Node, Site

_PSID = re.compile(r"[A-Z][A-Z0-9_]{3,31}")
_TYPE = re.compile(r"MT\d{4,6}")
_PART = re.compile(r"[A-Za-z0-9][\w-]{2,48}")
_LINK_ATTRIBUTES = ("pcie_gen", "pcie_gen_max", "pcie_width", "pcie_width_max")


def nic_rows(node: Node, site: Site, answers: Answers, devices: Sequence[pci.PciDevice]) -> list[Row]:
    """Return facts and link of every NIC of the SKU that the node shows.

    A NIC that no tool shows gets no row at all, which the rules call missing. When no tool could list the devices,
    its facts say so and its link has no state.
    """
    out: list[Row] = [_nic_count(node, answers)]
    for nic in node.sku.nics:
        if answers.views(nic.name) or not answers.listed:
            out += _facts(node, nic, answers, devices)
            out.append(link_row(node, nic, site, answers))
    return out


def nic_units(node: Node, answers: Answers) -> dict[str, str]:
    """Return the unit id of each NIC by its network device and by its PCI address."""
    out: dict[str, str] = {}
    for nic in node.sku.nics:
        unit = node.nic_unit(nic.name)
        names = {nic.netdev, *(device.port.netdev for device, _ in answers.views(nic.name))}
        for name in (*names, _address(nic, answers)):
            if name:
                out.setdefault(name, unit)
    return out


def _nic_count(node: Node, answers: Answers) -> Fact:
    for source in SOURCES[:3]:
        found = answers.devices[source]
        if found:
            # Software devices (rxe, siw) have no hardware type; rdma(8) does not print one.
            count = sum(d.type is not None or source == "rdma_link" for d in found.values())
            return fact(node.name, "node", "nic_count", cells.value(str(count)), source)
    if answers.listed:
        return fact(node.name, "node", "nic_count", cells.value("0"), "ibv_devinfo")
    return fact(node.name, "node", "nic_count", answers.problem(*SOURCES), "ibstat")


def _address(nic: Nic, answers: Answers) -> str | None:
    info = answers.info.get(nic.netdev or "")
    return nic.pci or (info.pci if info else None)


def _facts(node: Node, nic: Nic, answers: Answers, devices: Sequence[pci.PciDevice]) -> list[Row]:
    unit = node.nic_unit(nic.name)
    views = answers.views(nic.name)
    info = answers.info.get(nic.netdev or "")
    guid = next((d.guid for d, _ in views if d.guid), None)
    flashed = flashed_device(answers, nic, _address(nic, answers), guid)
    flint = answers.flint.get(nic.name)
    ethtool = f"ethtool_i:{nic.netdev}"
    flash = [(flashed, "mlxfwmanager"), (flint, f"mstflint:{nic.name}")]

    def known(found: list[tuple[str | None, str]], pattern: re.Pattern[str], what: str) -> list[tuple[Cell, str]]:
        return [(cells.matching(text, pattern, what), command) for text, command in found if text is not None]

    running = [(d.firmware, command) for d, command in views]
    running += [(info.firmware if info else None, ethtool), (flint.running if flint else None, f"mstflint:{nic.name}")]
    psids = [(d.psid, command) for d, command in views] + [(info.psid if info else None, ethtool)]
    psids += [(f.psid if f else None, command) for f, command in flash]
    parts = [(f.part_number if f else None, command) for f, command in flash]
    types = known([(d.type, command) for d, command in views], _TYPE, "a type such as MT4129")
    nothing = [(answers.problem(*SOURCES), "ibstat")]
    versions = known(running, VERSION, "a firmware version")
    out: list[Row] = [
        merged(unit, "nic", "nic_type", types or nothing),
        merged(unit, "nic", "fw_version", versions or nothing),
        merged(unit, "nic", "psid", known(psids, _PSID, "a PSID") or nothing),
        merged(unit, "nic", "part_number", known(parts, _PART, "a part number") or _no_flash_tool(node, nic, answers)),
    ]
    current = next((c.value for c, _ in versions if c.value), None)
    for device, command in flash:
        if device and device.flashed and current and device.flashed != current:
            out.append(fact(unit, "nic", "fw_version_pending", cells.value(device.flashed), command))
            break
    out += _pcie(unit, nic, answers, devices)
    if nic.netdev:
        command = f"ethtool_k:{nic.netdev}"
        features = answers.features.get(nic.netdev) or dict.fromkeys(OFFLOADS, answers.problem(command))
        out += [fact(unit, "nic", f"offload:{name}", cell, command) for name, cell in features.items()]
    return out


def _no_flash_tool(node: Node, nic: Nic, answers: Answers) -> list[tuple[Cell, str]]:
    """Return why the flash could not be asked; a node may do without the tools unless the site pins part numbers."""
    problem = answers.problem("mlxfwmanager", f"mstflint:{nic.name}")
    if problem.detail == "not installed" and "part_number" not in node.sku.expected:
        problem = cells.unsupported("neither mlxfwmanager nor mstflint is installed")
    return [(problem, "mlxfwmanager")]


def _pcie(unit: str, nic: Nic, answers: Answers, devices: Sequence[pci.PciDevice]) -> list[Row]:
    """Return the PCIe link from sysfs, which needs no root, else from lspci."""
    address = _address(nic, answers)
    by_sysfs = pci.sysfs_link(nic.name, answers.sysfs)
    by_lspci = next((d.link for d in devices if d.address == address), pci.PciLink())
    get: dict[str, Callable[[pci.PciLink], int | None]] = {
        "pcie_gen": lambda link: link.gen,
        "pcie_gen_max": lambda link: link.gen_max,
        "pcie_width": lambda link: link.width,
        "pcie_width_max": lambda link: link.width_max,
    }
    out: list[Row] = []
    for attribute in _LINK_ATTRIBUTES:
        found = [(get[attribute](by_sysfs), "sysfs"), (get[attribute](by_lspci), "lspci")]
        answers_ = [(cells.value(str(n)), command) for n, command in found if n is not None]
        out.append(merged(unit, "nic", attribute, answers_ or [(answers.problem("sysfs"), "sysfs")]))
    return out
