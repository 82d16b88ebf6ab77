"""The driver and firmware audit: what runs on every node, whether it is what should run, and whether it is healthy."""

from __future__ import annotations

from fabric_health.checks.check import Check
from fabric_health.checks.driver_firmware.commands import commands
from fabric_health.checks.driver_firmware.judge import judge
from fabric_health.checks.driver_firmware.parse import parse
from fabric_health.checks.driver_firmware.tables import KernelEvent, Link
from fabric_health.datasets.contracts import Row
from fabric_health.datasets.tables import Fact

DOC = """\
Reads drivers, firmware, GPU and NIC health, links, drives and the kernel log of every node in scope, with read-only
commands, and compares them with the site file, with the other nodes of the same SKU, and with the previous run.

How to read it: a *critical* finding names a unit that should not run jobs until the action is done (a GPU or NIC
that is missing, a failed row remap, a fatal Xid, a fabric manager that does not match the driver). A *warning* is a
unit that is degraded or drifts from the others. *Info* never changes the answer. A finding of kind `not_judged` means
that a tool gave no usable answer: run the command named in it by hand on that node.

What to do: one action is given per finding. Pin a value under `skus.<sku>.expected` (or `nic_firmware` per PSID) in
the site file when the majority is not the norm you want; raise a limit under `thresholds` when a limit does not fit.
"""


def unit_of(row: Row) -> str:
    """Return the node that a row of this check belongs to (its unit id up to the first slash)."""
    unit: str = row.node if isinstance(row, Link) else getattr(row, "unit", "")
    return unit.partition("/")[0]


DRIVER_FIRMWARE = Check(
    name="driver_firmware",
    title="Drivers, firmware and health of nodes",
    unit_kind="node",
    tables=(Fact, Link, KernelEvent),
    commands=commands,
    parse=parse,
    judge=judge,
    unit_of=unit_of,
    doc=DOC,
)
