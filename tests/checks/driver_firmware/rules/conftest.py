"""A small healthy fleet as rows, to be changed by tests of rules."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from fabric_health.checks.check import Context, RowSet
from fabric_health.checks.driver_firmware.judge import judge
from fabric_health.checks.driver_firmware.tables import KernelEvent, Link
from fabric_health.datasets.contracts import Row
from fabric_health.datasets.tables import Fact, FactState, Finding
from fabric_health.evidence import ReachStatus, StoredEvidence
from fabric_health.site import Nic, Node, ReachProfile, Site, Sku, Storage, Thresholds

NOW = datetime(2026, 11, 30, 3, 0, tzinfo=UTC)
BEFORE = NOW - timedelta(days=7)
PSID = "MT_0000000838"
DRIVER = "580.126.09"

NODE_FACTS = {
    "nvidia_smi": {"driver_version": DRIVER, "cuda_driver_version": "13.0", "gpu_count": "4"},
    "nvidia_proc": {"kernel_module_version": DRIVER, "kernel_module_flavor": "open"},
    "fabric_manager": {"fabric_manager_version": DRIVER},
    "services": {"fabric_manager_state": "active", "persistenced_state": "active"},
    "ofed": {"ofed_version": "MLNX_OFED_LINUX-24.10-2.1.8.0"},
    "uname": {"kernel_release": "5.15.0-151-generic"},
    "os_release": {"os_release": "Ubuntu 22.04.5 LTS"},
    "bios": {"bios_version": "2.3.5"},
    "iommu_groups": {"iommu_mode": "pt"},
    "lspci": {"acs_state": "off", "pci_gpu_count": "4"},
    "modules": {"nvidia_peermem": "loaded"},
    "ibstat": {"nic_count": "2"},
    "mounts": {"nfs_proto:/data": "rdma"},
    "journal": {"kernel_log_source": "journal"},
}
GPU_FACTS = {
    "gpu_model": "NVIDIA H100 80GB HBM3",
    "vbios_version": "96.00.D9.00.01",
    "gsp_firmware_version": DRIVER,
    "persistence_mode": "enabled",
    "mig_mode": "disabled",
    "ecc_mode": "enabled",
    "ecc_mode_pending": "enabled",
    "pcie_gen": "1",  # idle: normal
    "pcie_gen_max": "5",
    "pcie_width": "16",
    "pcie_width_max": "16",
    "ecc_sram_correctable": "0",
    "ecc_sram_uncorrectable": "0",
    "ecc_sram_uncorrectable_volatile": "0",
    "ecc_dram_correctable": "3",
    "ecc_dram_uncorrectable": "0",
    "sram_threshold_exceeded": "no",
    "remapped_rows_correctable": "0",
    "remapped_rows_uncorrectable": "0",
    "remap_pending": "no",
    "remap_failure": "no",
    "recovery_action": "None",
    "throttle_reasons": "none",
    "fabric_state": "Completed",
    "fabric_status": "Success",
    "max_sm_clock_mhz": "1980",
    "power_limit_w": "700",
    "temperature_c": "41",
}
NIC_FACTS = {
    "nic_type": "MT4129",
    "fw_version": "28.43.2026",
    "psid": PSID,
    "part_number": "MCX75310AAS-NEAT",
    "pcie_gen": "5",
    "pcie_gen_max": "5",
    "pcie_width": "16",
    "pcie_width_max": "16",
    "offload:rx-checksumming": "on",
}
DRIVE_FACTS = {
    "drive_model": "SAMSUNG MZQL23T8",
    "firmware_version": "GDC5902Q",
    "smart_passed": "yes",
    "critical_warning": "0",
    "percentage_used": "3",
    "media_errors": "2",
    "temperature_c": "38",
    "available_spare": "100",
    "available_spare_threshold": "10",
}


def make_sku(**changes: Any) -> Sku:
    base: dict[str, Any] = {
        "gpu_model": "H100 80GB HBM3",
        "gpus": 4,
        "nvlinks_per_gpu": 18,
        "link_layer": "Ethernet",
        "nic_rate_gbps": 400,
        "nics": (
            Nic(name="mlx5_0", rail=0, netdev="eth0", psid=PSID),
            Nic(name="mlx5_1", rail=1, netdev="eth1", psid=PSID),
        ),
        "drives": ("/dev/nvme0",),
        "nfs_mounts": ("/data",),
        "netdev_mtu_bytes": 9000,
        "pcie_gen": 5,
        "pcie_width": 16,
        "expected": {"driver_version": DRIVER},
        "nic_firmware": {PSID: "28.43.2026"},
        "iommu": "pt",
        "acs": "off",
    }
    return Sku.model_validate({**base, **changes})


def make_site(sku: Sku, nodes: int = 5, **thresholds: Any) -> Site:
    names = [f"gpu-{i:03d}" for i in range(1, nodes + 1)]
    return Site(
        name="s",
        title="S",
        origin="lab",
        coverage_floor=0.9,
        nodes=tuple(Node(n, "h100", sku, "r1", n, ReachProfile()) for n in names),
        switches=(),
        cables=(),
        storage=Storage(),
        thresholds=Thresholds(**thresholds),
        sha256="0" * 64,
        path=Path("site.yaml"),
    )


def kind_of(unit: str) -> str:
    part = unit.partition("/")[2]
    return "gpu" if part.startswith("gpu") else "nic" if part.startswith("mlx5") else "drive" if part else "node"


@dataclass
class Fleet:
    """Rows of a fleet; every method changes one thing and ``judge`` gives the findings."""

    site: Site
    facts: dict[tuple[str, str], Fact] = field(default_factory=dict)
    links: dict[str, Link] = field(default_factory=dict)
    events: list[KernelEvent] = field(default_factory=list)
    earlier: list[Row] = field(default_factory=list)
    reach: dict[str, ReachStatus] = field(default_factory=dict)
    scope: tuple[str, ...] | None = None

    def set(self, unit: str, attribute: str, value: str) -> None:
        old = self.facts.get((unit, attribute))
        command = old.command if old else "nvidia_smi"
        self.facts[unit, attribute] = Fact(unit, kind_of(unit), attribute, FactState.VALUE, value, None, command)

    def error(self, unit: str, attribute: str, detail: str, state: FactState = FactState.ERROR) -> None:
        old = self.facts.get((unit, attribute))
        command = old.command if old else "nvidia_smi"
        self.facts[unit, attribute] = Fact(unit, kind_of(unit), attribute, state, None, detail, command)

    def drop(self, unit: str, attribute: str | None = None) -> None:
        for key in [k for k in self.facts if k[0] == unit and attribute in (None, k[1])]:
            del self.facts[key]
        if attribute is None:
            self.links.pop(unit, None)

    def link(self, nic: str, **changes: Any) -> None:
        self.links[nic] = replace(self.links[nic], **changes)

    def event(
        self, unit: str, kind: str, message: str = "m", code: int | None = None, at: datetime | None = NOW
    ) -> None:
        sequence = sum(e.unit == unit and e.kind == kind for e in self.events)
        self.events.append(KernelEvent(unit, kind_of(unit), kind, sequence, message, code, at))

    def remember(self) -> None:
        """Make what is there now the previous run."""
        self.earlier = self.rows()

    def rows(self) -> list[Row]:
        return [*self.facts.values(), *self.links.values(), *self.events]

    def context(self) -> Context:
        reach = {n.name: self.reach.get(n.name, ReachStatus.OK) for n in self.site.nodes}
        return Context(
            site=self.site,
            run="r",
            started_at=NOW,
            scope=tuple(n for n in self.site.nodes if self.scope is None or n.name in self.scope),
            reach={n: StoredEvidence(n, "k", "s", status) for n, status in reach.items()},
            previous=RowSet.gather(self.earlier),
            previous_at={n.name: BEFORE for n in self.site.nodes} if self.earlier else {},
        )

    def judge(self) -> list[Finding]:
        return judge(RowSet.gather(self.rows()), self.context())

    def only(self) -> Finding:
        """Return the one finding; fail with all of them otherwise."""
        found = self.judge()
        assert len(found) == 1, [(f.rule, f.unit, f.metric) for f in found]
        return found[0]


def healthy(site: Site) -> Fleet:
    fleet = Fleet(site)

    def put(unit: str, kind: str, values: dict[str, str], command: str) -> None:
        for attribute, value in values.items():
            fleet.facts[unit, attribute] = Fact(unit, kind, attribute, FactState.VALUE, value, None, command)

    for n, node in enumerate(site.nodes):
        for command, values in NODE_FACTS.items():
            put(node.name, "node", values, command)
        counts = {"gpu_count": str(node.sku.gpus), "pci_gpu_count": str(node.sku.gpus)}
        put(node.name, "node", counts, "nvidia_smi")
        for i in range(node.sku.gpus):
            own = {"serial": f"16{n:05d}{i:03d}", "pci_bus_id": f"0000:{0x10 + i:02x}:00.0"}
            put(node.gpu_unit(i), "gpu", {**GPU_FACTS, **own}, "nvidia_smi")
            put(node.gpu_unit(i), "gpu", {"nvlinks_active": "18", "nvlinks_inactive": "0"}, "nvlink")
        for nic in node.sku.nics:
            unit = node.nic_unit(nic.name)
            put(unit, "nic", NIC_FACTS, "mlxfwmanager")
            fleet.links[unit] = Link(
                node=node.name,
                nic=unit,
                port=1,
                rail=nic.rail,
                switch_port=f"leaf-1/swp{nic.rail + 1}",
                netdev=nic.netdev,
                admin_up=True if nic.netdev else None,
                link_layer=node.sku.link_layer,
                state="ACTIVE",
                phys_state="LINK_UP",
                rate_gbps=node.sku.nic_rate_gbps,
                width="4X",
                active_mtu_bytes=4096,
                netdev_mtu_bytes=node.sku.netdev_mtu_bytes,
                symbol_errors=0,
                link_downed=1,
                link_error_recovery=0,
                port_rcv_errors=0,
                port_xmit_discards=0,
                tx_packets=10**9,
                rx_packets=10**9,
                carrier_changes=2,
            )
        for path in node.sku.drives:
            name = path.rpartition("/")[2]
            put(f"{node.name}/{name}", "drive", DRIVE_FACTS, f"smartctl:{name}")
    return fleet


@pytest.fixture
def fleet() -> Fleet:
    """Five healthy nodes of 4 GPUs, 2 NICs and 1 drive."""
    return healthy(make_site(make_sku()))


@pytest.fixture
def make_fleet() -> Any:
    """``make_fleet(nodes=5, thresholds={}, **sku_changes)`` gives a healthy fleet of a changed SKU."""

    def make(nodes: int = 5, thresholds: dict[str, Any] | None = None, **changes: Any) -> Fleet:
        return healthy(make_site(make_sku(**changes), nodes, **(thresholds or {})))

    return make
