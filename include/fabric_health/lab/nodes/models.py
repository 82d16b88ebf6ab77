"""Data sheets of the GPU and NIC models that the lab can play: what their tools print that no site file gives.

The GPU layouts follow `nvidia-smi -q -x` of Hopper boards; for an unlisted model the H100's figures are used with
the site file's name.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class GpuModel:
    """One GPU model. Memory in MiB, clocks in MHz, power in W, NVLink rate in GB/s per link and direction."""

    architecture: str
    pci_device: str
    subsystem: str
    lspci_name: str
    board_part: str
    gpu_part: str
    vbios: str
    memory_mib: int
    bar1_mib: int
    power_w: int
    sm_clock_mhz: int
    memory_clock_mhz: int
    pcie_gen: int
    remap_banks: int
    nvlinks: int
    nvlink_gbps: str


@dataclass(frozen=True)
class NicModel:
    """One NIC model. ``part_id`` is the PCI device id in decimal, ``kind`` the name in mlxfwmanager."""

    kind: str
    ca_type: str
    part_id: int
    part_number: str
    psid: str
    firmware: str
    description: str
    lspci_name: str


_H100 = GpuModel(
    "Hopper", "2330", "16C1", "GH100 [H100 SXM5 80GB] (rev a1)", "692-2G520-0200-000", "2330-885-A1",
    "96.00.99.00.01", 81559, 131072, 700, 1980, 2619, 5, 2560, 18, "26.562",
)  # fmt: skip
_H200 = GpuModel(
    "Hopper", "2335", "18BE", "GH100 [H200 SXM 141GB] (rev a1)", "692-2G520-0280-000", "2335-885-A1",
    "96.00.BC.00.01", 143771, 262144, 700, 1980, 3201, 5, 3072, 18, "26.562",
)  # fmt: skip
_B200 = GpuModel(
    "Blackwell", "2901", "1999", "GB100 [B200] (rev a1)", "692-2G525-0220-000", "2901-886-A1",
    "97.00.88.00.0F", 183359, 262144, 1000, 1965, 3996, 5, 3840, 18, "53.125",
)  # fmt: skip
_GPUS = {"H200": _H200, "B200": _B200, "H100": _H100}

_CX7 = NicModel(
    "ConnectX7", "MT4129", 4129, "MCX75310AAS-NEA_Ax", "MT_0000000838", "28.43.2026",
    "NVIDIA ConnectX-7 HHHL Adapter card; 400GbE / NDR IB (default mode); Single-port OSFP; PCIe 5.0 x16; "
    "Crypto Disabled; Secure Boot Enabled",
    "Mellanox Technologies MT2910 Family [ConnectX-7]",
)  # fmt: skip
_CX6 = NicModel(
    "ConnectX6", "MT4123", 4123, "MCX653105A-HDA_Ax", "MT_0000000223", "20.43.2026",
    "ConnectX-6 VPI adapter card; HDR IB (200Gb/s) and 200GbE; single-port QSFP56; PCIe4.0 x16; tall bracket; ROHS R6",
    "Mellanox Technologies MT28908 Family [ConnectX-6]",
)  # fmt: skip


def gpu_model(name: str) -> GpuModel:
    """Return the data sheet of the GPU model that the site file names, the H100's for an unlisted one."""
    return next((m for key, m in _GPUS.items() if key in name), _H100)


def nic_model(rate_gbps: float) -> NicModel:
    """Return the NIC model for a port rate in Gb/s: ConnectX-6 up to 200, ConnectX-7 above."""
    return _CX6 if rate_gbps <= 200 else _CX7
