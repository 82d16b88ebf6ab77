"""The audit reads the lab's nodes: a healthy node gives the facts of its site file and no finding, a fault its own."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path

import pytest

from fabric_health.checks.check import Context, RowSet
from fabric_health.checks.driver_firmware import DRIVER_FIRMWARE
from fabric_health.checks.driver_firmware.tables import KernelEvent, Link
from fabric_health.datasets.contracts import Row
from fabric_health.datasets.tables import Fact, FactState, Finding, Severity, finding
from fabric_health.evidence import CommandResult, CommandStatus, ReachStatus, StoredEvidence, UnitEvidence
from fabric_health.explain import link_explanations
from fabric_health.lab.nodes import answer
from fabric_health.lab.state import Fault, LabState
from fabric_health.site import Nic, Node, Site, load_site

UP = datetime(2026, 11, 30, 8, tzinfo=UTC)
NOW = UP + timedelta(hours=5)
SINCE = NOW - timedelta(hours=1)
# What changes by itself between two looks at a healthy node.
VOLATILE = {"temperature_c"}


@pytest.fixture(scope="module")
def site() -> Site:
    return load_site(Path(__file__).parents[2] / "include/sites/lab.yaml")


def look(node: Node, site: Site, state: LabState, now: datetime = NOW) -> list[Row]:
    """Return the rows that the audit reads from one node's answers."""
    results = []
    for command in DRIVER_FIRMWARE.commands(node, site):
        given = answer(node, site, state, command.argv, now)
        status = CommandStatus.NOT_INSTALLED if given.exit_code == 127 else CommandStatus.EXITED
        results.append(
            CommandResult(command.name, command.argv, status, given.exit_code, given.stdout, given.stderr, now, now)
        )
    evidence = UnitEvidence(node.name, "node", "driver_firmware", ReachStatus.OK, "", now, now, tuple(results))
    return DRIVER_FIRMWARE.parse(node, evidence, site)


def fleet(site: Site, *faults: tuple[str, str, str | None], now: datetime = NOW) -> list[Row]:
    """Return the rows of all nodes; those that no fault names are read once (test_nodes proves them unchanged)."""
    state = LabState(UP, tuple(Fault(kind, unit, value, SINCE) for kind, unit, value in faults))
    cabled = {n.name: {f"{c.switch}/{c.port}" for c in site.cables if c.peer == n.name} for n in site.nodes}
    rows: list[Row] = []
    for node in site.nodes:
        if any(f.unit.partition("/")[0] == node.name or f.unit in cabled[node.name] for f in state.faults):
            rows += look(node, site, state, now)
        else:
            rows += _read_once(site.path, node.name, now)
    return rows


@lru_cache(maxsize=64)
def _read_once(path: Path, node: str, now: datetime) -> tuple[Row, ...]:
    site = load_site(path)
    unit = site.unit(node)
    assert isinstance(unit, Node)
    return tuple(look(unit, site, LabState(UP), now))


def judge(site: Site, rows: list[Row], previous: list[Row] | None = None) -> list[Finding]:
    reach = {n.name: StoredEvidence(n.name, "", "", ReachStatus.OK) for n in site.nodes}
    before = {n.name: NOW - timedelta(hours=3) for n in site.nodes} if previous else {}
    context = Context(site, "r2", NOW, site.nodes, reach, RowSet.gather(previous or []), before)
    return DRIVER_FIRMWARE.judge(RowSet.gather(rows), context)


def facts(rows: list[Row]) -> dict[tuple[str, str], str | None]:
    return {
        (r.unit, r.attribute): r.value if r.state == FactState.VALUE else f"{r.state}: {r.detail}"
        for r in rows
        if isinstance(r, Fact) and r.attribute not in VOLATILE
    }


def changed(site: Site, healthy: list[Row], *faults: tuple[str, str, str | None]) -> dict[tuple[str, str], str | None]:
    """Return the facts that the faults changed, with their new values."""
    before, after = facts(healthy), facts(fleet(site, *faults))
    assert before.keys() == after.keys()
    return {key: value for key, value in after.items() if before[key] != value}


@pytest.fixture(scope="module")
def healthy(site: Site) -> list[Row]:
    return fleet(site)


def test_a_healthy_node_shows_what_its_site_file_says(site: Site, healthy: list[Row]) -> None:
    node = site.nodes[0]
    sku = node.sku
    found = facts(healthy)
    assert found[node.name, "driver_version"] == sku.expected["driver_version"]
    for attribute in ("kernel_module_version", "fabric_manager_version"):
        assert found[node.name, attribute] == sku.expected["driver_version"]
    for attribute in ("kernel_release", "ofed_version", "bios_version"):
        assert found[node.name, attribute] == sku.expected[attribute]
    assert found[node.name, "gpu_count"] == found[node.name, "pci_gpu_count"] == str(sku.gpus)
    assert found[node.name, "nic_count"] == str(len(sku.nics))
    assert found[node.name, "iommu_mode"] == sku.iommu
    assert found[node.name, "acs_state"] == sku.acs
    assert found[node.name, "nvidia_peermem"] == "loaded"
    for index in range(sku.gpus):
        gpu = node.gpu_unit(index)
        assert found[gpu, "gpu_model"] == sku.gpu_model
        assert found[gpu, "nvlinks_active"] == str(sku.nvlinks_per_gpu)
        assert found[gpu, "pcie_width"] == found[gpu, "pcie_width_max"] == str(sku.pcie_width)
        assert str(found[gpu, "recovery_action"]).lower() == "none"
        assert found[gpu, "throttle_reasons"] == "none"
    for nic in sku.nics:
        unit = node.nic_unit(nic.name)
        assert nic.psid is not None
        assert found[unit, "fw_version"] == sku.nic_firmware[nic.psid]
        assert found[unit, "psid"] == nic.psid
        assert found[unit, "pcie_width"] == str(sku.pcie_width)
    assert not [key for key, value in found.items() if str(value).startswith("error")]


def test_links_of_a_healthy_node(site: Site, healthy: list[Row]) -> None:
    links = [r for r in healthy if isinstance(r, Link)]
    assert len(links) == sum(len(n.sku.nics) for n in site.nodes)
    for link in links:
        sku = site.nodes[0].sku
        assert (link.state, link.phys_state, link.link_layer) == ("ACTIVE", "LINK_UP", sku.link_layer)
        assert (link.rate_gbps, link.active_mtu_bytes) == (sku.nic_rate_gbps, 4096)
        assert link.netdev_mtu_bytes == sku.netdev_mtu_bytes
        assert link.switch_port is not None
        assert link.carrier_changes == 1


def test_a_healthy_lab_has_no_finding(site: Site, healthy: list[Row]) -> None:
    assert judge(site, healthy) == []
    later = fleet(site, now=NOW + timedelta(hours=2))
    assert judge(site, later, healthy) == []


def test_each_fault_changes_its_own_facts(site: Site, healthy: list[Row]) -> None:
    node = site.nodes[6].name
    assert changed(site, healthy, ("nic-firmware", f"{node}/mlx5_3", "28.39.1002")) == {
        (f"{node}/mlx5_3", "fw_version"): "28.39.1002"
    }
    assert changed(site, healthy, ("pcie-degraded", f"{node}/gpu2", "8")) == {(f"{node}/gpu2", "pcie_width"): "8"}
    assert changed(site, healthy, ("remap-pending", f"{node}/gpu2", None)) == {
        (f"{node}/gpu2", "remap_pending"): "yes",
        (f"{node}/gpu2", "remapped_rows_uncorrectable"): "1",
        (f"{node}/gpu2", "ecc_dram_uncorrectable"): "1",
    }
    stack = {(node, a): "570.148.08" for a in ("driver_version", "kernel_module_version", "fabric_manager_version")}
    stack |= {(f"{node}/gpu{i}", "gsp_firmware_version"): "570.148.08" for i in range(8)}
    assert changed(site, healthy, ("driver-version", node, "570.148.08")) == stack | {
        (node, "cuda_driver_version"): "12.8"
    }
    for kind, unit in (("nic-down", f"{node}/mlx5_1"), ("link-flap", f"{node}/mlx5_1"), ("xid", f"{node}/gpu2")):
        assert changed(site, healthy, (kind, unit, None)) == {}


def test_link_and_event_faults_change_their_own_rows(site: Site, healthy: list[Row]) -> None:
    node = site.nodes[11]
    nic = node.nic_unit("mlx5_6")
    rows = fleet(
        site, ("nic-down", nic, None), ("xid", f"{node.name}/gpu1", "79"), ("link-flap", f"{node.name}/mlx5_0", "7")
    )
    down = [r for r in rows if isinstance(r, Link) and r.state != "ACTIVE"]
    assert [(r.nic, r.state, r.phys_state, r.admin_up) for r in down] == [(nic, "DOWN", "DISABLED", False)]
    events = [(r.unit, r.kind, r.code) for r in rows if isinstance(r, KernelEvent)]
    assert sorted(set(events), key=str) == sorted(
        {(f"{node.name}/gpu1", "xid", 79), (nic, "lost_carrier", None), (f"{node.name}/mlx5_0", "lost_carrier", None)},
        key=str,
    )
    assert events.count((f"{node.name}/mlx5_0", "lost_carrier", None)) == 7


@pytest.mark.parametrize(
    ("kind", "part", "value"),
    [
        ("driver-version", "", "570.148.08"),
        ("nic-firmware", "/mlx5_3", "28.39.1002"),
        ("pcie-degraded", "/gpu2", "8"),
        ("nic-down", "/mlx5_6", None),
        ("link-flap", "/mlx5_6", "7"),
        ("remap-pending", "/gpu2", None),
        ("xid", "/gpu2", "79"),
    ],
)
@pytest.mark.parametrize("with_history", [False, True])
def test_each_fault_is_found_on_its_unit_and_nothing_else(
    site: Site, healthy: list[Row], kind: str, part: str, value: str | None, with_history: bool
) -> None:
    unit = site.nodes[6].name + part
    found = judge(site, fleet(site, (kind, unit, value)), healthy if with_history else None)
    assert found
    assert {f.unit for f in found} == {unit}
    # A second view of the same trouble (the counters of a flapping link) must say what explains it.
    assert len([f for f in found if f.explained_by is None]) == 1, [f.summary for f in found]


def test_seven_faults_at_once_are_seven_findings(site: Site, healthy: list[Row]) -> None:
    faults = (
        ("driver-version", "gpu-002", "570.148.08"),
        ("nic-firmware", "gpu-007/mlx5_3", "28.39.1002"),
        ("pcie-degraded", "gpu-007/gpu2", "8"),
        ("nic-down", "gpu-012/mlx5_6", None),
        ("link-flap", "gpu-007/mlx5_1", "7"),
        ("remap-pending", "gpu-009/gpu0", None),
        ("xid", "gpu-009/gpu7", "79"),
    )
    found = judge(site, fleet(site, *faults), healthy)
    assert sorted(f.unit for f in found if f.explained_by is None) == sorted(unit for _, unit, _ in faults)


@pytest.mark.parametrize(
    ("kind", "value", "rule"), [("port-down", None, "link_up"), ("port-speed", "200", "link_rate")]
)
def test_what_a_switch_port_does_to_its_nic(
    site: Site, healthy: list[Row], kind: str, value: str | None, rule: str
) -> None:
    node = site.nodes[3]
    cable = site.cable_of_nic(node.name, "mlx5_2")
    assert cable is not None
    found = judge(site, fleet(site, (kind, f"{cable.switch}/{cable.port}", value)), healthy)
    assert [(f.rule, f.unit) for f in found if f.explained_by is None] == [(rule, node.nic_unit("mlx5_2"))]


def _variant(site: Site, **changes: object) -> Site:
    """Return a site of four nodes whose SKU has ``changes``."""
    nodes = tuple(replace(n, sku=n.sku.model_copy(update=changes)) for n in site.nodes[:4])
    return replace(site, nodes=nodes, _by_name={})


def _every_row(site: Site) -> list[Row]:
    return [row for node in site.nodes for row in look(node, site, LabState(UP))]


def test_infiniband_nodes_with_and_without_network_devices(site: Site) -> None:
    for with_netdev in (False, True):
        nics = tuple(
            Nic(name=n.name, rail=n.rail, pci=n.pci, psid=n.psid, netdev=f"ib{n.rail}" if with_netdev else None)
            for n in site.nodes[0].sku.nics
        )
        variant = _variant(site, link_layer="InfiniBand", nics=nics, netdev_mtu_bytes=None)
        rows = _every_row(variant)
        links = [r for r in rows if isinstance(r, Link)]
        assert {(r.link_layer, r.state, r.rate_gbps, r.active_mtu_bytes) for r in links} == {
            ("InfiniBand", "ACTIVE", 400.0, 4096)
        }
        assert judge(variant, rows) == []


@pytest.mark.parametrize(
    ("layer", "shut", "lost"),
    [
        ("Ethernet", "(state DOWN, phys_state DISABLED)", "no carrier (state DOWN, phys_state DISABLED)"),
        ("InfiniBand", "(state DOWN, phys_state DISABLED)", "no link with its peer (state DOWN, phys_state POLLING)"),
    ],
)
def test_of_a_dead_link_the_end_that_was_shut_is_the_cause(site: Site, layer: str, shut: str, lost: str) -> None:
    mtu = site.nodes[0].sku.netdev_mtu_bytes if layer == "Ethernet" else None
    variant = _variant(site, link_layer=layer, netdev_mtu_bytes=mtu)
    nic = variant.nodes[1].nic_unit("mlx5_2")
    cable = variant.cable_of_nic("gpu-002", "mlx5_2")
    assert cable is not None
    port = f"{cable.switch}/{cable.port}"
    here, there = ("nic-down", nic, None), ("port-down", port, None)

    def explained(rule: str, *faults: tuple[str, str, str | None]) -> tuple[str | None, list[str]]:
        """Return what the NIC's finding says, and the units whose findings stand, with ``rule`` found at its port."""
        at_port = finding(
            check="switch_config", rule=rule, unit=port, unit_kind="port", metric="state",
            severity=Severity.CRITICAL, summary="",
        )  # fmt: skip
        state = LabState(UP, tuple(Fault(kind, unit, value, SINCE) for kind, unit, value in faults))
        (at_nic,) = judge(variant, [row for node in variant.nodes for row in look(node, variant, state)])
        out = link_explanations([at_nic, at_port], variant)
        return at_nic.actual, [f.unit for f in out if f.explained_by is None]

    assert explained("port_admin_up", there) == (lost, [port])
    assert explained("port_up", here) == (f"administratively down on the node {shut}", [nic])
    assert explained("port_admin_up", here, there) == (f"administratively down on the node {shut}", [nic, port])


def test_every_pinned_value_is_what_the_nodes_show(site: Site) -> None:
    pins = {
        "driver_version": "590.48.01",
        "cuda_driver_version": "13.1",
        "kernel_module_flavor": "proprietary",
        "vbios_version": "96.00.BC.00.01",
        "kernel_release": "5.14.0-503.14.1.el9_5.x86_64",
        "os_release": "Rocky Linux 9.5 (Blue Onyx)",
        "bios_version": "1.7.1",
        "ofed_version": "OFED-internal-25.10-1.7.1",
        "doca_version": "3.2.0-125000",
        "part_number": "MCX75510AAS-NEAT",
        "drive_model": "KIOXIA KCD8XPUG3T84",
        "firmware_version": "0104",
        "max_sm_clock_mhz": "1980",
        "power_limit_w": "650",
        "offload:large-receive-offload": "on",
    }
    variant = _variant(
        site, gpu_model="NVIDIA H200", nic_firmware={"MT_0000000838": "28.47.1026"}, iommu="off", expected=pins
    )
    rows = _every_row(variant)
    assert judge(variant, rows) == []
    shown = {(r.attribute, r.value) for r in rows if isinstance(r, Fact)}
    assert pins.items() <= shown
    assert ("iommu_mode", "off") in shown
