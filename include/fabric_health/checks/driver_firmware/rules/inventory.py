"""Inventory rules: every GPU, NIC and drive of the SKU is there, and is what the SKU says."""

from __future__ import annotations

from collections.abc import Iterator

from fabric_health.checks.driver_firmware.rules.rule import NVIDIA_SMI, RDMA_CORE, SITE_FILE, deviation
from fabric_health.checks.driver_firmware.view import NodeView, Part, value_of
from fabric_health.datasets.tables import Finding, Severity

RESEAT = "Look for PCIe errors and Xid 79 in the kernel log; power-cycle the node, then reseat or replace it."


def inventory_findings(view: NodeView) -> Iterator[Finding]:
    """Judge which parts the node shows."""
    if view.node.sku.gpus:
        yield from _gpu_count(view)
        yield from _gpu_models(view)
    if view.node.sku.nics:
        yield from _nics(view)
    yield from _drives(view)


def _gpu_count(view: NodeView) -> Iterator[Finding]:
    wanted = view.node.sku.gpus
    count = view.number(view.part, "gpu_count", required=True)
    if count is None or count == wanted:
        return
    on_bus = view.number(view.part, "pci_gpu_count")
    command = view.command(view.part, "gpu_count")
    actual = f"{count} GPUs" + ("" if on_bus is None else f", {on_bus} on the PCI bus")
    if count > wanted:
        yield deviation(
            view.part,
            "gpu_count",
            "gpu_count",
            Severity.WARNING,
            f"{view.node.name} shows {count} GPUs, its SKU has {wanted}",
            expected=f"{wanted} GPUs",
            actual=actual,
            action="Correct the SKU of this node in the site file.",
            source=NVIDIA_SMI,
            command=command,
        )
        return
    # Numbers are exact when the plan gives addresses or the bus still shows every GPU; else only the count is sure.
    exact = len(view.node.sku.gpu_pci) == wanted or on_bus == wanted
    missing = [Part(u, "gpu") for u in (view.node.gpu_unit(i) for i in range(wanted)) if u not in view.facts]
    if not exact or len(missing) != wanted - count:
        missing = [view.part]
    for part in missing:
        one = part.kind == "gpu"
        gone = _gone(view)
        named = f" (gone since the previous run: {', '.join(gone)})" if gone else ""
        yield deviation(
            part,
            "gpu_present" if one else "gpu_count",
            "present" if one else "gpu_count",
            Severity.CRITICAL,
            f"{part.unit} is missing{named}; the node shows {actual}"
            if one
            else f"{part.unit} shows {count} of {wanted} GPUs{named}",
            expected="present" if one else f"{wanted} GPUs",
            actual=actual,
            action=RESEAT,
            source=NVIDIA_SMI,
            command=command,
        )


def _gone(view: NodeView) -> list[str]:
    """Return the PCI addresses of GPUs that the previous run saw and this one does not."""
    here = {view.peek(gpu, "pci_bus_id") for gpu in view.gpus}
    out = []
    for _, facts in sorted(view.earlier_facts.items()):
        address = value_of(facts.get("pci_bus_id"))
        if address and facts["pci_bus_id"].unit_kind == "gpu" and address not in here:
            out.append(address)
    return out


def _gpu_models(view: NodeView) -> Iterator[Finding]:
    wanted = view.node.sku.expected.get("gpu_model", view.node.sku.gpu_model)
    for gpu in view.gpus:
        model = view.text(gpu, "gpu_model")
        # The site file may give the short name: "H100 80GB HBM3" for "NVIDIA H100 80GB HBM3".
        if model is None or f" {wanted.casefold()} " in f" {' '.join(model.casefold().split())} ":
            continue
        yield deviation(
            gpu,
            "gpu_model",
            "gpu_model",
            Severity.WARNING,
            f"{gpu.unit} is a {model}, its SKU has {wanted}",
            expected=wanted,
            actual=model,
            action="Correct the SKU in the site file, or replace the GPU.",
            source=SITE_FILE,
            command=view.command(gpu, "gpu_model"),
        )


def _nics(view: NodeView) -> Iterator[Finding]:
    count = view.number(view.part, "nic_count", required=True)
    for nic in view.node.sku.nics:
        part = Part(view.node.nic_unit(nic.name), "nic")
        if count is not None and part.unit not in view.links:
            yield deviation(
                part,
                "nic_present",
                "present",
                Severity.CRITICAL,
                f"{part.unit} is missing: the node shows no RDMA device of that name ({count} in all)",
                expected="present",
                actual="missing",
                action=RESEAT,
                source=RDMA_CORE,
                command=view.command(view.part, "nic_count"),
            )
        psid = view.text(part, "psid") if nic.psid and part.unit in view.facts else None
        if psid is not None and psid != nic.psid:
            yield deviation(
                part,
                "nic_psid",
                "psid",
                Severity.WARNING,
                f"{part.unit} is a card with PSID {psid}, its SKU has {nic.psid}",
                expected=nic.psid,
                actual=psid,
                action="Check which card sits in this slot; correct the site file or swap the card.",
                source=SITE_FILE,
                command=view.command(part, "psid"),
            )


def _drives(view: NodeView) -> Iterator[Finding]:
    for path in view.node.sku.drives:
        unit = f"{view.node.name}/{path.rpartition('/')[2]}"
        facts = view.facts.get(unit, {})
        part = Part(unit, "drive")
        gone = next((f for f in facts.values() if "no such device" in (f.detail or "").lower()), None)
        if gone is not None:
            yield deviation(
                part,
                "drive_present",
                "present",
                Severity.CRITICAL,
                f"Drive {unit} is missing",
                expected="present",
                actual=gone.detail,
                action="Check nvme list and the kernel log; reseat or replace the drive.",
                source=SITE_FILE,
                command=gone.command,
            )
        elif not facts:
            view.gap(part, "", "drive", "nothing was read of it")
