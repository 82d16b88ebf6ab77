"""GPU facts, and which number a GPU has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fabric_health.checks.driver_firmware.parsers import cells, nvidia_smi, pci
from fabric_health.checks.driver_firmware.parsers.cells import Cell
from fabric_health.checks.driver_firmware.parsers.nvidia_smi import GPU_ATTRIBUTES, NVLINK_ATTRIBUTES, NvLinks, Smi
from fabric_health.checks.driver_firmware.rows.fact import fact, facts
from fabric_health.datasets.tables import Fact
from fabric_health.evidence import UnitEvidence
from fabric_health.site import Node

SMI = "nvidia_smi"
NVLINK = "nvlink"


@dataclass(frozen=True)
class Gpus:
    """What nvidia-smi said, and the number of each GPU by its PCI address.

    Numbers follow PCI bus order. The addresses of the site file or of lspci take part, so that a GPU which nvidia-smi
    cannot open does not hand its number to its neighbour.
    """

    smi: Smi
    number: dict[str, int]

    def unit(self, node: Node, slot: str | None) -> str | None:
        """Return the unit id of the GPU in PCI ``slot`` (``0000:9b:00``), None when no GPU is known there."""
        for address, index in self.number.items():
            if slot is not None and address.startswith(slot + "."):
                return node.gpu_unit(index)
        return None


def read_gpus(node: Node, evidence: UnitEvidence, devices: Sequence[pci.PciDevice]) -> Gpus:
    """Read nvidia-smi and number the GPUs of the node."""
    smi = _smi(evidence)
    planned = node.sku.gpu_pci
    seen = {g.pci for g in smi.gpus} | {d.address for d in devices if d.gpu}
    # Known addresses first: a card that nobody planned must not renumber the others.
    order = [*dict.fromkeys(planned), *sorted(seen - set(planned))]
    return Gpus(smi, {address: i for i, address in enumerate(order)})


def _smi(evidence: UnitEvidence) -> Smi:
    result = evidence.result(SMI)
    problem = cells.failure(result, any_exit=True)
    if problem is None and result is not None:
        smi = nvidia_smi.parse_smi(result.stdout)
        if smi.problem is None:
            # The exit code may tell of one GPU that could not be opened while all others are printed.
            return smi
        problem = cells.said(result) if result.exit_code else smi.problem
    problem = problem or cells.error("not run")
    return Smi(problem, problem, problem=problem)


def gpu_rows(node: Node, evidence: UnitEvidence, gpus: Gpus, pci_count: Cell) -> list[Fact]:
    """Return the facts of every GPU, and the node's counts and driver versions."""
    smi = gpus.smi
    count = smi.problem or cells.value(str(len(smi.gpus)))
    out = [
        fact(node.name, "node", "driver_version", smi.driver_version, SMI),
        fact(node.name, "node", "cuda_driver_version", smi.cuda_version, SMI),
        fact(node.name, "node", "gpu_count", count, SMI),
        fact(node.name, "node", "pci_gpu_count", pci_count, "lspci"),
    ]
    if smi.problem is not None:
        for i in range(node.sku.gpus):
            out += facts(node.gpu_unit(i), "gpu", dict.fromkeys(GPU_ATTRIBUTES, smi.problem), SMI)
    for gpu in smi.gpus:
        out += facts(node.gpu_unit(gpus.number[gpu.pci]), "gpu", gpu.cells, SMI)
    if node.sku.nvlinks_per_gpu:
        out += _nvlink_rows(node, evidence, gpus)
    return out


def _nvlink_rows(node: Node, evidence: UnitEvidence, gpus: Gpus) -> list[Fact]:
    result = evidence.result(NVLINK)
    problem = cells.failure(result)
    links = () if problem or result is None else nvidia_smi.parse_nvlink(result.stdout)
    if problem is None and not links:
        problem = cells.error("no GPU is listed")
    units = {node.gpu_unit(gpus.number[g.pci]): (i, g.cells["uuid"].value) for i, g in enumerate(gpus.smi.gpus)}
    if gpus.smi.problem is not None:
        units = {node.gpu_unit(i): (i, None) for i in range(node.sku.gpus)}
    out: list[Fact] = []
    for unit, (index, uuid) in units.items():
        found = None if problem else _of(links, index, uuid, len(units))
        missing = problem or cells.error("the GPU is not listed")
        answers = (found.active, found.inactive) if found else (missing, missing)
        out += facts(unit, "gpu", dict(zip(NVLINK_ATTRIBUTES, answers, strict=True)), NVLINK)
    return out


def _of(links: Sequence[NvLinks], index: int, uuid: str | None, expected: int) -> NvLinks | None:
    """Return the entry of a GPU by UUID; by number only where one side has none and no GPU is missing."""
    same = [entry for entry in links if uuid is not None and entry.uuid == uuid]
    if not same and len(links) == expected:
        same = [e for e in links if e.index == index and (uuid is None or e.uuid is None)]
    return same[0] if len(same) == 1 else None
