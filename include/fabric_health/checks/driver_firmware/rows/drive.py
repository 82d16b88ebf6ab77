"""Facts of NVMe drives."""

from __future__ import annotations

from fabric_health.checks.driver_firmware.commands import drive_name
from fabric_health.checks.driver_firmware.parsers import cells, storage
from fabric_health.checks.driver_firmware.rows.fact import facts
from fabric_health.datasets.tables import Fact
from fabric_health.evidence import UnitEvidence
from fabric_health.site import Node


def drive_rows(node: Node, evidence: UnitEvidence) -> list[Fact]:
    """Return the facts of every drive of the SKU; one that does not open has all of them in state ``error``."""
    out: list[Fact] = []
    for device in node.sku.drives:
        name = drive_name(device)
        command = f"smartctl:{name}"
        result = evidence.result(command)
        problem = cells.failure(result, any_exit=True)
        if problem is not None or result is None:
            found = storage.all_cells(problem or cells.error("not run"))
        elif result.exit_code and not result.stdout.strip():
            found = storage.all_cells(cells.said(result))
        else:
            found = storage.parse_smartctl(result.stdout, result.exit_code)
        out += facts(f"{node.name}/{name}", "drive", found, command)
    return out
