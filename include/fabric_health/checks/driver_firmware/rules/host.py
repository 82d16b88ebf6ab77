"""Host rules: fabric manager and persistence daemon, IOMMU and ACS, GPUDirect RDMA, NFS over RDMA."""

from __future__ import annotations

from collections.abc import Iterator

from fabric_health.checks.driver_firmware.rules.rule import (
    FABRIC_MANAGER,
    NCCL,
    NFS_RDMA,
    PERSISTENCE,
    deviation,
)
from fabric_health.checks.driver_firmware.view import NodeView
from fabric_health.datasets.tables import Finding, Severity

PEERMEM = "https://docs.nvidia.com/datacenter/cloud-native/gpu-operator/latest/gpu-operator-rdma.html"


def host_findings(view: NodeView) -> Iterator[Finding]:
    """Judge services and settings of the node itself."""
    if view.node.sku.gpus:
        yield from _services(view)
    yield from _setting(view, "iommu_mode", view.node.sku.iommu, "Set iommu= on the kernel command line and reboot.")
    yield from _setting(view, "acs_state", view.node.sku.acs, "Set ACS in the BIOS, or with setpci at boot.")
    yield from _peermem(view)
    yield from _nfs(view)


def _services(view: NodeView) -> Iterator[Finding]:
    node, sku = view.part, view.node.sku
    if sku.has_fabric_manager:
        wanted = sku.expected.get("fabric_manager_state", "active")
        state = view.text(node, "fabric_manager_state", required=True)
        if state is not None and state != wanted:
            yield deviation(
                node,
                "fabric_manager_active",
                "fabric_manager_state",
                Severity.CRITICAL,
                f"Fabric manager on {node.unit} is {state}: CUDA cannot initialise GPUs behind NVSwitch (error 802)",
                expected=wanted,
                actual=state,
                action="Read journalctl -u nvidia-fabricmanager, then systemctl restart nvidia-fabricmanager.",
                source=FABRIC_MANAGER,
                command=view.command(node, "fabric_manager_state"),
            )
    wanted = sku.expected.get("persistenced_state", "active")
    state = view.text(node, "persistenced_state")
    if state is not None and state != wanted:
        yield deviation(
            node,
            "persistence_daemon_active",
            "persistenced_state",
            Severity.WARNING,
            f"Persistence daemon on {node.unit} is {state}: GPUs lose their state when the last job ends",
            expected=wanted,
            actual=state,
            action="systemctl enable --now nvidia-persistenced",
            source=PERSISTENCE,
            command=view.command(node, "persistenced_state"),
        )


def _setting(view: NodeView, attribute: str, of_sku: str | None, action: str) -> Iterator[Finding]:
    wanted = view.node.sku.expected.get(attribute, of_sku)
    if wanted is None:
        return
    actual = view.text(view.part, attribute, required=True)
    if actual is not None and actual != wanted:
        yield deviation(
            view.part,
            attribute,
            attribute,
            Severity.WARNING,
            f"{attribute} of {view.node.name} is {actual}, its SKU wants {wanted} (GPUDirect goes through the root)",
            expected=wanted,
            actual=actual,
            action=action,
            source=NCCL,
            command=view.command(view.part, attribute),
        )


def _peermem(view: NodeView) -> Iterator[Finding]:
    # Not wanted by default: kernels from 5.12 with the open modules do GPUDirect RDMA through dma-buf instead.
    wanted = view.node.sku.expected.get("nvidia_peermem")
    if wanted is None:
        return
    actual = view.text(view.part, "nvidia_peermem", required=True)
    if actual is not None and actual != wanted:
        yield deviation(
            view.part,
            "peermem",
            "nvidia_peermem",
            Severity.WARNING,
            f"nvidia_peermem is {actual} on {view.node.name}: without it NICs may copy through host memory",
            expected=wanted,
            actual=actual,
            action="modprobe nvidia_peermem, and add it to /etc/modules-load.d.",
            source=PEERMEM,
            command=view.command(view.part, "nvidia_peermem"),
        )


def _nfs(view: NodeView) -> Iterator[Finding]:
    for mount in view.node.sku.nfs_mounts:
        attribute = f"nfs_proto:{mount}"
        proto = view.text(view.part, attribute, required=True)
        if proto is None or proto == "rdma":
            continue
        there = proto not in ("not-mounted", "not-nfs")
        yield deviation(
            view.part,
            "nfs_over_rdma" if there else "nfs_mounted",
            attribute,
            Severity.WARNING,
            f"{mount} on {view.node.name} is {f'mounted over {proto}, not RDMA' if there else proto.replace('-', ' ')}",
            expected="rdma",
            actual=proto,
            action=f"Mount {mount} with -o proto=rdma,port=20049 (needs the module rpcrdma on both sides).",
            source=NFS_RDMA,
            command=view.command(view.part, attribute),
        )
