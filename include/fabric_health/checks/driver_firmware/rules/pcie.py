"""PCIe rules: links at full width, and at the generation that the SKU and the device can do."""

from __future__ import annotations

from collections.abc import Iterator

from fabric_health.checks.driver_firmware.rules.rule import NVIDIA_SMI, deviation
from fabric_health.checks.driver_firmware.view import NodeView, Part
from fabric_health.datasets.tables import Finding, Severity

PCI_SYSFS = "https://docs.kernel.org/PCI/sysfs-pci.html"
ACTION = "Drain the node; reseat the card, check riser and retimer, look for PCIe errors (AER) in the kernel log."


def pcie_findings(view: NodeView) -> Iterator[Finding]:
    """Judge the PCIe links of GPUs and NICs."""
    for part in (*view.gpus, *view.nics):
        yield from _width(view, part)
    for gpu in view.gpus:
        yield from _gpu_generation(view, gpu)
    for nic in view.nics:
        yield from _nic_generation(view, nic)


def _width(view: NodeView, part: Part) -> Iterator[Finding]:
    width = view.number(part, "pcie_width")
    able = view.number(part, "pcie_width_max")
    # The SKU's width is that of its GPUs; a NIC may be a x8 card by design, so it is held to its own capability.
    wanted = max((w for w in (able, view.node.sku.pcie_width if part.kind == "gpu" else None) if w), default=None)
    if width is None or wanted is None or width >= wanted:
        return
    yield deviation(
        part,
        "pcie_width",
        "pcie_width",
        Severity.WARNING,
        f"PCIe link of {part.unit} runs {width} lanes wide instead of {wanted}",
        expected=f"x{wanted}",
        actual=f"x{width}",
        action=ACTION,
        source=NVIDIA_SMI if part.kind == "gpu" else PCI_SYSFS,
        command=view.command(part, "pcie_width"),
    )


def _gpu_generation(view: NodeView, gpu: Part) -> Iterator[Finding]:
    # Only the highest possible generation: the current one drops when a GPU idles, which is normal.
    able, wanted = view.number(gpu, "pcie_gen_max"), view.node.sku.pcie_gen
    if able is None or wanted is None or able >= wanted:
        return
    yield deviation(
        gpu,
        "pcie_generation",
        "pcie_gen_max",
        Severity.WARNING,
        f"{gpu.unit} can reach PCIe generation {able} at most; its SKU has generation {wanted}",
        expected=str(wanted),
        actual=str(able),
        action="Check the slot's speed setting in the BIOS and the riser or retimer of this GPU.",
        source=NVIDIA_SMI,
        command=view.command(gpu, "pcie_gen_max"),
    )


def _nic_generation(view: NodeView, nic: Part) -> Iterator[Finding]:
    current, able = view.number(nic, "pcie_gen"), view.number(nic, "pcie_gen_max")
    if current is None or able is None or current >= able:
        return
    yield deviation(
        nic,
        "pcie_generation",
        "pcie_gen",
        Severity.WARNING,
        f"PCIe link of {nic.unit} runs at generation {current} instead of {able}",
        expected=str(able),
        actual=str(current),
        action=ACTION,
        source=PCI_SYSFS,
        command=view.command(nic, "pcie_gen"),
    )
