"""The answer of `lspci -Dnnvv` (pciutils 3.7, as root): bridges, GPUs, NVSwitches, NICs and drives of a node."""

from __future__ import annotations

from dataclasses import dataclass

from fabric_health.lab.nodes.hardware import Hardware

# Speed of a lane by PCIe generation.
SPEEDS = {1: "2.5GT/s", 2: "5GT/s", 3: "8GT/s", 4: "16GT/s", 5: "32GT/s", 6: "64GT/s", 7: "128GT/s"}
_NVSWITCHES = ("0000:05:00.0", "0000:06:00.0", "0000:07:00.0", "0000:08:00.0")
_ACS_ON = "SrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans-"
_ACS_OFF = "SrcValid- TransBlk- ReqRedir- CmpltRedir- UpstreamFwd- EgressCtrl- DirectTrans-"

_FUNCTION = """\
{address} {name}
\tSubsystem: {subsystem}
\tControl: I/O- Mem+ BusMaster+ SpecCycle- MemWINV- VGASnoop- ParErr+ Stepping- SERR+ FastB2B- DisINTx+
\tStatus: Cap+ 66MHz- UDF- FastB2B- ParErr- DEVSEL=fast >TAbort- <TAbort- <MAbort- >SERR- <PERR- INTx-
\tLatency: 0
\tInterrupt: pin A routed to IRQ {irq}
\tNUMA node: {numa}
{group}\tCapabilities: [60] Express (v2) {port}, MSI 00
\t\tDevCap:\tMaxPayload 512 bytes, PhantFunc 0
\t\t\tExtTag+ RBE+
\t\tDevCtl:\tCorrErr+ NonFatalErr+ FatalErr+ UnsupReq-
\t\t\tRlxdOrd+ ExtTag+ PhantFunc- AuxPwr- NoSnoop-
\t\t\tMaxPayload 256 bytes, MaxReadReq 4096 bytes
\t\tDevSta:\tCorrErr- NonFatalErr- FatalErr- UnsupReq- AuxPwr- TransPend-
\t\tLnkCap:\tPort #0, Speed {speed_max}, Width x{width_max}, ASPM not supported
\t\t\tClockPM- Surprise- LLActRep- BwNot- ASPMOptComp+
\t\tLnkCtl:\tASPM Disabled; RCB 64 bytes, Disabled- CommClk+
\t\t\tExtSynch- ClockPM- AutWidDis- BWInt- AutBWInt-
\t\tLnkSta:\tSpeed {speed} ({speed_note}), Width x{width} ({width_note})
\t\t\tTrErr- Train- SlotClk+ DLActive- BWMgmt- ABWMgmt-
\tCapabilities: [100 v2] Advanced Error Reporting
\t\tUESta:\tDLP- SDES- TLP- FCP- CmpltTO- CmpltAbrt- UnxCmplt- RxOF- MalfTLP- ECRC- UnsupReq- ACSViol-
{acs}\tKernel driver in use: {driver}
"""

_ACS = """\
\tCapabilities: [148 v1] Access Control Services
\t\tACSCap:\tSrcValid+ TransBlk+ ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl+ DirectTrans+
\t\tACSCtl:\t{control}
"""


@dataclass(frozen=True)
class _Function:
    """One PCI function. Generations and lanes: what it can do and how it trained."""

    address: str
    name: str
    subsystem: str
    driver: str
    gen_max: int
    gen: int
    width_max: int
    width: int
    bridge: bool = False


def text(hardware: Hardware) -> str:
    """Return what `lspci -Dnnvv` prints for the node, in order of address."""
    functions = sorted(
        (*_bridges(hardware), *_gpus(hardware), *_switches(hardware), *_nics(hardware), *_drives(hardware)),
        key=lambda f: f.address,
    )
    return "\n".join(_print(hardware, f, i) for i, f in enumerate(functions)) + "\n"


def iommu_groups(hardware: Hardware) -> int:
    """Return how many IOMMU groups the node has: none when its IOMMU is off, else one for every function."""
    if (hardware.node.sku.iommu or "off") == "off":
        return 0
    switches = len(_NVSWITCHES) if _has_nvswitches(hardware) else 0
    return 2 * len(hardware.gpus) + len(hardware.nics) + len(hardware.drives) + switches


def _print(hardware: Hardware, function: _Function, order: int) -> str:
    acs = hardware.node.sku.acs or "off"
    return _FUNCTION.format(
        address=function.address,
        name=function.name,
        subsystem=function.subsystem,
        irq=40 + order,
        numa=int(int(function.address[5:7], 16) >= 0x80),
        group=f"\tIOMMU group: {order}\n" if iommu_groups(hardware) else "",
        port="Downstream Port (Slot+)" if function.bridge else "Endpoint",
        speed_max=SPEEDS[function.gen_max],
        speed=SPEEDS[function.gen],
        speed_note=_note(function.gen, function.gen_max),
        width_max=function.width_max,
        width=function.width,
        width_note=_note(function.width, function.width_max),
        acs=_ACS.format(control=_ACS_ON if acs == "on" else _ACS_OFF) if function.bridge else "",
        driver=function.driver,
    )


def _note(trained: int, possible: int) -> str:
    return "ok" if trained == possible else "downgraded" if trained < possible else "strange"


def _bridges(hardware: Hardware) -> list[_Function]:
    """Return the PCIe switch port above each GPU; the link below a port trains as its GPU does."""
    return [
        _Function(
            f"{g.bus[:5]}{int(g.bus[5:7], 16) - 1:02x}:01.0",
            "PCI bridge [0604]: Broadcom / LSI PEX890xx PCIe Gen 5 Switch [1000:c030] (rev b0)",
            "Broadcom / LSI PEX890xx PCIe Gen 5 Switch [1000:100b]",
            "pcieport",
            g.gen,
            g.gen,
            g.width_max,
            g.width,
            bridge=True,
        )
        for g in hardware.gpus
    ]


def _gpus(hardware: Hardware) -> list[_Function]:
    model = hardware.gpu_model
    chip, _, revision = model.lspci_name.partition(" (")
    name = f"3D controller [0302]: NVIDIA Corporation {chip} [10de:{model.pci_device.lower()}] ({revision}"
    subsystem = f"NVIDIA Corporation Device [10de:{model.subsystem.lower()}]"
    return [_Function(g.bus, name, subsystem, "nvidia", g.gen, g.gen, g.width_max, g.width) for g in hardware.gpus]


def _has_nvswitches(hardware: Hardware) -> bool:
    return bool(hardware.gpus) and hardware.node.sku.has_fabric_manager


def _switches(hardware: Hardware) -> list[_Function]:
    if not _has_nvswitches(hardware):
        return []
    name = "Bridge [0680]: NVIDIA Corporation GH100 [H100 NVSwitch] [10de:22a3] (rev a1)"
    subsystem = "NVIDIA Corporation Device [10de:1796]"
    return [_Function(a, name, subsystem, "nvidia-nvswitch", 4, 4, 2, 2) for a in _NVSWITCHES]


def _nics(hardware: Hardware) -> list[_Function]:
    infiniband = hardware.node.sku.link_layer == "InfiniBand"
    kind = "Infiniband controller [0207]" if infiniband else "Ethernet controller [0200]"
    ids = {4129: "1021", 4123: "101b"}
    return [
        _Function(
            n.bus,
            f"{kind}: {n.model.lspci_name} [15b3:{ids[n.model.part_id]}]",
            "Mellanox Technologies Device [15b3:0041]",
            "mlx5_core",
            n.gen,
            n.gen,
            n.width,
            n.width,
        )
        for n in hardware.nics
    ]


def _drives(hardware: Hardware) -> list[_Function]:
    name = "Non-Volatile memory controller [0108]: Samsung Electronics Co Ltd NVMe SSD Controller PM1743 [144d:a826]"
    subsystem = "Samsung Electronics Co Ltd Device [144d:aa0a]"
    return [_Function(d.bus, name, subsystem, "nvme", 4, 4, 4, 4) for d in hardware.drives]
