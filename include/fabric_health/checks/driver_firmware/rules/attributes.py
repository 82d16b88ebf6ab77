"""Which attributes are held to a norm, which have a default, and what to do when one is off."""

from __future__ import annotations

from fabric_health.checks.driver_firmware.view import PartKind
from fabric_health.site import Sku

# Judged for equality across a SKU when nothing is pinned. Serials, addresses, counters and temperatures never are.
UNIFORM: dict[PartKind, tuple[str, ...]] = {
    "node": (
        "driver_version",
        "cuda_driver_version",
        "kernel_module_flavor",
        "ofed_version",
        "doca_version",
        "kernel_release",
        "os_release",
        "bios_version",
        "iommu_mode",
        "acs_state",
        "nvidia_peermem",
    ),
    "gpu": ("vbios_version", "persistence_mode", "mig_mode", "ecc_mode", "max_sm_clock_mhz", "power_limit_w"),
    "nic": (
        "psid",
        "nic_type",
        "part_number",
        "fw_version",
        "pcie_gen_max",
        "pcie_width_max",
        "offload:tcp-segmentation-offload",
        "offload:generic-receive-offload",
        "offload:large-receive-offload",
        "offload:rx-checksumming",
        "offload:tx-checksumming",
    ),
    "drive": ("firmware_version",),
}
# Need no vote: a GPU node has these unless the site file pins otherwise.
DEFAULTS: dict[str, str] = {"persistence_mode": "enabled", "mig_mode": "disabled", "ecc_mode": "enabled"}
# What the driver brings along: not news when the node's whole stack is of the same, wrong version.
STACK: tuple[str, ...] = ("kernel_module_version", "fabric_manager_version", "gsp_firmware_version")
# What a different card in the slot changes as well.
OF_CARD: frozenset[str] = frozenset({"nic_type", "part_number", "pcie_gen_max", "pcie_width_max"})

_PINNED_ELSEWHERE = frozenset(
    {"gpu_model", "iommu_mode", "acs_state", "nvidia_peermem", "fabric_manager_state", "persistenced_state"}
)
ALIGN = "Bring it in line with the other units of its SKU, or pin the value you want in the site file."
ACTIONS: dict[str, str] = {
    "driver_version": "Drain the node, install the expected driver with its fabric manager, and reboot.",
    "fw_version": "Flash the expected firmware (mlxfwmanager or mstflint), then reset the NIC or reboot.",
    "vbios_version": "Update the GPU's firmware bundle with the server vendor's tool, then power-cycle.",
    "bios_version": "Update the BIOS at the next maintenance.",
    "kernel_release": "Install the expected kernel, check its NVIDIA and OFED modules, and reboot.",
    "ofed_version": "Install the expected OFED or DOCA release and reboot.",
    "persistence_mode": "systemctl enable --now nvidia-persistenced",
    "mig_mode": "nvidia-smi -mig 0 on the drained GPU, or pin mig_mode in the site file.",
    "ecc_mode": "nvidia-smi -e 1, then reset the GPU.",
}


def judged_elsewhere(sku: Sku, attribute: str) -> bool:
    """Return True when a rule of its own holds this attribute to a value that the site file gives."""
    by_sku = {
        "iommu_mode": sku.iommu is not None,
        "acs_state": sku.acs is not None,
        "psid": any(nic.psid for nic in sku.nics),
    }
    return by_sku.get(attribute, False) or (attribute in _PINNED_ELSEWHERE and attribute in sku.expected)
