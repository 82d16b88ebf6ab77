"""From one node's evidence to rows: facts, links, kernel events."""

from __future__ import annotations

from fabric_health.checks.check import Unit
from fabric_health.checks.driver_firmware.parsers import cells
from fabric_health.checks.driver_firmware.rows.drive import drive_rows
from fabric_health.checks.driver_firmware.rows.events import event_rows
from fabric_health.checks.driver_firmware.rows.gpu import gpu_rows, read_gpus
from fabric_health.checks.driver_firmware.rows.nic import nic_rows, nic_units
from fabric_health.checks.driver_firmware.rows.node import node_rows, read_lspci
from fabric_health.checks.driver_firmware.rows.rdma_answers import read_answers
from fabric_health.datasets.contracts import Row
from fabric_health.evidence import UnitEvidence
from fabric_health.site import Node, Site


def parse(unit: Unit, evidence: UnitEvidence, site: Site) -> list[Row]:
    """Return the rows of one node; never raises, whatever the node answered.

    What could not be read is a fact in state ``error`` with the reason, or a null column. Evidence without any
    answer (the node was not reached) gives no row: the run says so itself.
    """
    if not isinstance(unit, Node) or not evidence.results:
        return []
    devices, pci_problem = read_lspci(evidence)
    gpus = read_gpus(unit, evidence, devices)
    answers = read_answers(unit, evidence)
    rows: list[Row] = [*node_rows(unit, evidence, devices, pci_problem)]
    if unit.sku.gpus:
        pci_count = pci_problem or cells.value(str(sum(d.gpu for d in devices)))
        rows += gpu_rows(unit, evidence, gpus, pci_count)
    if unit.sku.nics:
        rows += nic_rows(unit, site, answers, devices)
    rows += drive_rows(unit, evidence)
    rows += event_rows(unit, evidence, site, gpus, nic_units(unit, answers))
    return rows
