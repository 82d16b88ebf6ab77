"""Facts of the node itself: NVIDIA stack, host software, mounts, PCI settings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from fabric_health.checks.driver_firmware.parsers import cells, host, nvidia_stack, pci
from fabric_health.checks.driver_firmware.parsers.cells import Cell
from fabric_health.checks.driver_firmware.rows.fact import fact, merged
from fabric_health.datasets.tables import Fact
from fabric_health.evidence import UnitEvidence
from fabric_health.site import Node

LSPCI = "lspci"


def node_rows(
    node: Node, evidence: UnitEvidence, devices: Sequence[pci.PciDevice], pci_problem: Cell | None
) -> list[Fact]:
    """Return the facts of the node that do not come from nvidia-smi or the RDMA tools."""
    sku = node.sku

    def read(attribute: str, command: str, parse: Callable[[str], Cell]) -> Fact:
        return fact(node.name, "node", attribute, cells.read(evidence.result(command), parse), command)

    out = [
        read("kernel_release", "uname", host.parse_uname),
        read("os_release", "os_release", host.parse_os_release),
        read("bios_version", "bios", host.parse_bios),
        fact(node.name, "node", "acs_state", pci_problem or pci.acs_state(devices), LSPCI),
        _iommu(node, evidence),
    ]
    if sku.gpus:
        out += _nvidia(node, evidence)
    if sku.gpus and sku.nics:
        out.append(read("nvidia_peermem", "modules", host.parse_peermem))
    for point in sku.nfs_mounts:
        out.append(read(f"nfs_proto:{point}", "mounts", partial(host.parse_nfs_proto, mount_point=point)))
    if sku.nics:
        out += _network_packages(node, evidence)
    return out


def read_lspci(evidence: UnitEvidence) -> tuple[tuple[pci.PciDevice, ...], Cell | None]:
    """Return the PCI devices, or why there are none to see."""
    result = evidence.result(LSPCI)
    problem = cells.failure(result)
    if problem is not None or result is None:
        return (), problem or cells.error("not run")
    devices = pci.parse_lspci(result.stdout)
    return devices, None if devices else pci.nothing_listed(result.stdout)


def _iommu(node: Node, evidence: UnitEvidence) -> Fact:
    mode = host.iommu_mode(evidence.result("iommu_groups"), evidence.result("cmdline"))
    return fact(node.name, "node", "iommu_mode", mode, "iommu_groups")


def _nvidia(node: Node, evidence: UnitEvidence) -> list[Fact]:
    result = evidence.result("nvidia_proc")
    problem = cells.failure(result)
    module = nvidia_stack.parse_module(result.stdout) if problem is None and result is not None else None
    version, flavor = (module.version, module.flavor) if module else (problem or cells.error("not run"),) * 2
    out = [
        fact(node.name, "node", "kernel_module_version", version, "nvidia_proc"),
        fact(node.name, "node", "kernel_module_flavor", flavor, "nvidia_proc"),
    ]
    services = {"persistenced_state": "nvidia-persistenced"}
    if node.sku.has_fabric_manager:
        services["fabric_manager_state"] = "nvidia-fabricmanager"
        cell = cells.read(evidence.result("fabric_manager"), nvidia_stack.parse_fabric_manager)
        out.append(fact(node.name, "node", "fabric_manager_version", cell, "fabric_manager"))
    answer = evidence.result("services")
    problem = cells.failure(answer)
    states = nvidia_stack.parse_services(answer.stdout) if problem is None and answer is not None else {}
    for attribute, service in services.items():
        state = states.get(service) or problem or cells.error(f"{service} is not in the answer")
        out.append(fact(node.name, "node", attribute, state, "services"))
    return out


def _network_packages(node: Node, evidence: UnitEvidence) -> list[Fact]:
    """Return OFED and DOCA versions: packages that a node may do without, unless the site pins them."""

    def optional(attribute: str, command: str, parse: Callable[[str], Cell]) -> tuple[Cell, str]:
        result = evidence.result(command)
        if cells.is_missing_tool(result) and attribute not in node.sku.expected:
            return cells.unsupported("not installed"), command
        return cells.read(result, parse), command

    ofed = optional("ofed_version", "ofed", host.parse_ofed)
    doca = [optional("doca_version", c, host.parse_packages) for c in ("doca_deb", "doca_rpm")]
    none_found = evidence.result("doca_deb")
    if none_found is not None and none_found.exit_code == 1 and "no packages found" in none_found.stderr[:4096]:
        doca[0] = (host.parse_packages(""), "doca_deb")
    return [fact(node.name, "node", "ofed_version", *ofed), merged(node.name, "node", "doca_version", doca)]
