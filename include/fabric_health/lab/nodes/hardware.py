"""What a lab node is made of, as its site file and the active faults say, before any tool prints it.

Everything here is a pure function of (node, site, active faults). Values that the site file does not give (serial
numbers, GUIDs, MACs, temperatures, traffic) come from a hash of the unit id, so every unit differs from its
neighbour in the harmless ways real ones do and stays the same for as long as the lab exists.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from fabric_health.lab.nodes.models import GpuModel, NicModel, gpu_model, nic_model
from fabric_health.lab.state import Fault, LabState
from fabric_health.site import Cable, Nic, Node, Site, Sku

# When neither the site file nor a fault says which version is there.
DRIVER = "580.126.09"
PERIOD = timedelta(hours=24)
BEFORE_FAULT = timedelta(hours=2)


def spread(unit: str, what: str, low: int, high: int) -> int:
    """Return a number in ``low..high`` (inclusive) that is always the same for this unit and purpose."""
    digest = hashlib.blake2b(f"{unit}\0{what}".encode(), digest_size=8).digest()
    return low + int.from_bytes(digest, "big") % (high - low + 1)


def hex_digits(unit: str, what: str, digits: int) -> str:
    """Return ``digits`` lower-case hex digits that are always the same for this unit and purpose (at most 64)."""
    return hashlib.sha256(f"{unit}\0{what}".encode()).hexdigest()[:digits]


@dataclass(frozen=True)
class Gpu:
    """One GPU; ``bus`` is ``0000:1b:00.0``, lower case. ``width`` is the trained PCIe width in lanes."""

    unit: str
    index: int
    bus: str
    serial: str
    uuid: str
    vbios: str
    gen: int
    width: int
    width_max: int
    remap_pending: bool
    xid: Fault | None


@dataclass(frozen=True)
class LabNic:
    """One NIC port: identity, firmware and how its link stands. Rates in Gb/s."""

    unit: str
    index: int
    name: str
    netdev: str | None
    bus: str
    psid: str
    model: NicModel
    part_number: str
    firmware: str
    guid: str
    mac: str
    admin_up: bool
    link_up: bool
    rate_gbps: float
    gen: int
    width: int
    flap: Fault | None
    remote_down: Fault | None
    disabled: Fault | None


@dataclass(frozen=True)
class Drive:
    """One NVMe controller. ``temperature_c`` is in degrees Celsius, ``percentage_used`` in percent of its life."""

    unit: str
    device: str
    bus: str
    model: str
    serial: str
    firmware: str
    temperature_c: int
    percentage_used: int
    power_on_hours: int


@dataclass(frozen=True)
class Hardware:
    """A node with its active faults applied. ``booted_at`` (UTC) lies days before the lab came up."""

    node: Node
    driver: str
    fabric_manager: str
    kernel_module: str
    cuda: str
    gsp: str
    booted_at: datetime
    gpus: tuple[Gpu, ...]
    nics: tuple[LabNic, ...]
    drives: tuple[Drive, ...]
    gpu_model: GpuModel

    def expected(self, attribute: str, default: str) -> str:
        """Return what the site file pins for ``attribute``, else ``default``."""
        return self.node.sku.expected.get(attribute, default)

    def seconds_up(self, now: datetime) -> int:
        """Return the node's uptime in seconds."""
        return max(0, int((now - self.booted_at).total_seconds()))


def cables(node: Node, site: Site) -> dict[str, Cable]:
    """Return the planned cables of a node by NIC name; nothing else of the plan is looked at twice."""
    return {c.peer_port: c for c in site.cables if c.peer_kind == "node" and c.peer == node.name}


def relevant(node: Node, plan: dict[str, Cable], state: LabState) -> tuple[Fault, ...]:
    """Return the active faults that can change what ``node`` answers: its own, and those of its switches' ports."""
    switches = {c.switch for c in plan.values()}
    return tuple(
        f
        for f in state.faults
        if f.unit == node.name or f.unit.startswith(node.name + "/") or f.unit.partition("/")[0] in switches
    )


def build(node: Node, plan: dict[str, Cable], state: LabState) -> Hardware:
    """Return the node with the faults of ``state`` applied."""
    sku, name = node.sku, node.name
    model = gpu_model(sku.gpu_model)
    pinned = sku.expected.get("driver_version", DRIVER)
    other = state.on(name, "driver-version")
    driver = (other.value if other else None) or pinned
    same = driver == pinned
    buses = _buses(node)
    return Hardware(
        node=node,
        driver=driver,
        # A pin of one part of the stack holds only for the pinned driver: another driver brings its own parts.
        fabric_manager=sku.expected.get("fabric_manager_version", driver) if same else driver,
        kernel_module=sku.expected.get("kernel_module_version", driver) if same else driver,
        cuda=sku.expected.get("cuda_driver_version", _cuda(driver)) if same else _cuda(driver),
        gsp=sku.expected.get("gsp_firmware_version", driver) if same else driver,
        booted_at=state.up_since - timedelta(days=3, minutes=spread(name, "boot", 0, 50_000)),
        gpus=tuple(_gpu(node, i, bus, model, state) for i, bus in enumerate(_gpu_buses(sku, buses))),
        nics=tuple(_nic(node, i, n, n.pci or next(buses), plan.get(n.name), state) for i, n in enumerate(sku.nics)),
        drives=tuple(_drive(node, d, next(buses)) for d in sku.drives),
        gpu_model=model,
    )


def _buses(node: Node) -> Iterator[str]:
    """Yield PCI addresses in rising order that no GPU or NIC of the site file takes."""
    planned = [*node.sku.gpu_pci, *(n.pci.lower() for n in node.sku.nics if n.pci)]
    taken = {address[5:7] for address in planned if address.startswith("0000:")}
    free = [b for b in range(0x1B, 0xFF) if f"{b:02x}" not in taken]
    gpus = max(0, node.sku.gpus - len(node.sku.gpu_pci))
    wanted = gpus + sum(n.pci is None for n in node.sku.nics) + len(node.sku.drives)
    step = max(1, len(free) // max(1, wanted))
    for k in range(wanted):
        yield f"0000:{free[(k * step) % len(free)]:02x}:00.0"


def _gpu_buses(sku: Sku, others: Iterator[str]) -> list[str]:
    """Return the PCI addresses of the GPUs: those of the site file, others where it gives none."""
    return [*sku.gpu_pci[: sku.gpus], *(next(others) for _ in range(sku.gpus - len(sku.gpu_pci)))]


def _gpu(node: Node, index: int, bus: str, model: GpuModel, state: LabState) -> Gpu:
    unit = node.gpu_unit(index)
    sku = node.sku
    width = sku.pcie_width or 16
    narrow = state.on(unit, "pcie-degraded")
    raw = hex_digits(unit, "uuid", 32)
    return Gpu(
        unit=unit,
        index=index,
        bus=bus,
        serial=f"16{spread(unit, 'serial', 10**10, 10**11 - 1)}",
        uuid=f"GPU-{raw[:8]}-{raw[8:12]}-{raw[12:16]}-{raw[16:20]}-{raw[20:32]}",
        vbios=sku.expected.get("vbios_version", model.vbios),
        gen=sku.pcie_gen or model.pcie_gen,
        width=int(narrow.value) if narrow and narrow.value and narrow.value.isdecimal() else width,
        width_max=width,
        remap_pending=state.on(unit, "remap-pending") is not None,
        xid=state.on(unit, "xid"),
    )


def _nic(node: Node, index: int, nic: Nic, bus: str, cable: Cable | None, state: LabState) -> LabNic:
    unit, sku = node.nic_unit(nic.name), node.sku
    model = nic_model(sku.nic_rate_gbps)
    psid = nic.psid or model.psid
    older = state.on(unit, "nic-firmware")
    disabled = state.on(unit, "nic-down")
    port = _port(cable, state) if cable else None
    remote_down = state.on(port, "port-down") if port else None
    slower = state.on(port, "port-speed") if port else None
    guid = f"a088c203{hex_digits(unit, 'guid', 8)}"
    return LabNic(
        unit=unit,
        index=index,
        name=nic.name,
        netdev=nic.netdev,
        bus=bus.lower(),
        psid=psid,
        model=model,
        part_number=sku.expected.get("part_number", model.part_number),
        firmware=(older.value if older else None) or sku.nic_firmware.get(psid, model.firmware),
        guid=guid,
        mac=":".join((guid[:6] + guid[-6:])[i : i + 2] for i in range(0, 12, 2)),
        admin_up=disabled is None,
        link_up=disabled is None and remote_down is None,
        rate_gbps=_speed(slower, sku.nic_rate_gbps),
        gen=sku.pcie_gen or 5,
        width=sku.pcie_width or 16,
        flap=state.on(unit, "link-flap"),
        remote_down=remote_down,
        disabled=disabled,
    )


def _port(cable: Cable, state: LabState) -> str:
    """Return the switch port at the far end of a cable, after any swap of cables (`miscabled`) on its switch."""
    own = f"{cable.switch}/{cable.port}"
    swapped = state.on(own, "miscabled")
    if swapped and swapped.value:
        return f"{cable.switch}/{swapped.value}"
    for fault in state.faults:
        if fault.kind == "miscabled" and fault.value == cable.port and fault.unit.startswith(cable.switch + "/"):
            return fault.unit
    return own


def _speed(fault: Fault | None, nominal: float) -> float:
    """Return the link's rate in Gb/s: both ends of a link run at the port's speed, never above the NIC's own."""
    if fault is None or not fault.value:
        return nominal
    try:
        return min(nominal, float(fault.value))
    except ValueError:
        return nominal


def _drive(node: Node, device: str, bus: str) -> Drive:
    unit = f"{node.name}/{device.removeprefix('/dev/')}"
    expected = node.sku.expected
    return Drive(
        unit=unit,
        device=device,
        bus=bus,
        model=expected.get("drive_model", "SAMSUNG MZWLO3T8HCLS-00A07"),
        serial=f"S7CBNE0{hex_digits(unit, 'serial', 7).upper()}",
        firmware=expected.get("firmware_version", "OPPA3B5Q"),
        temperature_c=spread(unit, "temperature", 31, 44),
        percentage_used=spread(unit, "used", 1, 9),
        power_on_hours=spread(unit, "hours", 4_000, 16_000),
    )


# https://docs.nvidia.com/cuda/cuda-toolkit-release-notes/ : CUDA version that each driver branch reports.
_CUDA = {
    535: "12.2", 545: "12.3", 550: "12.4", 555: "12.5", 560: "12.6", 565: "12.7",
    570: "12.8", 575: "12.9", 580: "13.0", 590: "13.1", 595: "13.2",
}  # fmt: skip


def _cuda(driver: str) -> str:
    branch = branch_of(driver)
    return _CUDA[max((b for b in _CUDA if b <= branch), default=535)]


def branch_of(driver: str) -> int:
    """Return the branch of a driver version: 580 for ``580.126.09``, the newest known one when it is no number."""
    head = driver.partition(".")[0]
    return int(head) if head.isdecimal() and len(head) <= 4 else 580


def moments(fault: Fault, count: int, since: datetime, until: datetime) -> tuple[datetime, ...]:
    """Return when an event that comes ``count`` times a day since two hours before ``fault`` happened.

    The pattern repeats every 24 hours, so at any time after the fault began exactly ``count`` of the moments lie
    within the last 24 hours, and a moment once reported stays where it is. Only moments in (since, until].
    """
    first = fault.since - BEFORE_FAULT
    out: list[datetime] = []
    start = first + PERIOD * max(0, (since - first) // PERIOD)
    while start <= until and len(out) < 10_000:
        out.extend(at for i in range(count) if since < (at := start + BEFORE_FAULT * i / count) <= until)
        start += PERIOD
    return tuple(out)
