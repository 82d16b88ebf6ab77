"""Versions and settings: pinned, majority, no majority, one cause one finding."""

from __future__ import annotations

import pytest

from fabric_health.checks.driver_firmware.rules.attributes import UNIFORM
from fabric_health.datasets.tables import FactState, FindingKind


def keys(findings):
    return [(f.rule, f.unit, f.metric) for f in findings]


def whole_stack(fleet, node, version):
    for attribute in ("driver_version", "kernel_module_version", "fabric_manager_version"):
        fleet.set(node, attribute, version)
    for i in range(4):
        fleet.set(f"{node}/gpu{i}", "gsp_firmware_version", version)
    fleet.set(node, "cuda_driver_version", "12.8")


def test_a_wrong_pinned_driver_is_one_finding_whatever_it_brings_along(fleet):
    whole_stack(fleet, "gpu-002", "570.148.08")
    f = fleet.only()
    assert (f.rule, f.unit, f.metric) == ("as_expected", "gpu-002", "driver_version")
    assert (f.expected, f.actual, f.severity) == ("580.126.09", "570.148.08", "warning")


def test_a_driver_off_the_majority_is_one_finding_too(make_fleet):
    fleet = make_fleet(expected={})
    whole_stack(fleet, "gpu-002", "570.148.08")
    assert (fleet.only().rule, fleet.only().metric) == ("equal_across_sku", "driver_version")


@pytest.mark.parametrize("attribute", [a for a in UNIFORM["node"] if a not in ("driver_version", "doca_version")])
def test_each_node_attribute_follows_the_majority(make_fleet, attribute):
    fleet = make_fleet(expected={}, iommu=None, acs=None)
    fleet.set("gpu-003", attribute, "other")
    f = fleet.only()
    assert (f.rule, f.unit, f.metric, f.actual) == ("equal_across_sku", "gpu-003", attribute, "other")


@pytest.mark.parametrize("attribute", ["vbios_version", "max_sm_clock_mhz", "power_limit_w"])
def test_each_gpu_attribute_follows_the_majority(fleet, attribute):
    fleet.set("gpu-003/gpu2", attribute, "7")
    assert keys([fleet.only()]) == [("equal_across_sku", "gpu-003/gpu2", attribute)]


def test_a_setting_of_all_gpus_of_a_node_is_one_finding_on_the_node(fleet):
    for i in range(4):
        fleet.set(f"gpu-003/gpu{i}", "vbios_version", "96.00.89.00.01")
    f = fleet.only()
    assert (f.unit, f.unit_kind, f.metric) == ("gpu-003", "node", "vbios_version")
    assert "all 4 GPUs" in f.summary


@pytest.mark.parametrize(
    ("attribute", "bad"), [("persistence_mode", "disabled"), ("mig_mode", "enabled"), ("ecc_mode", "disabled")]
)
def test_defaults_need_no_majority(make_fleet, attribute, bad):
    fleet = make_fleet(nodes=1)
    fleet.set("gpu-001/gpu0", attribute, bad)
    assert keys([fleet.only()]) == [("as_expected", "gpu-001/gpu0", attribute)]
    pinned = make_fleet(nodes=1, expected={attribute: bad})
    for i in range(4):
        pinned.set(f"gpu-001/gpu{i}", attribute, bad)
        pinned.set(f"gpu-001/gpu{i}", "ecc_mode_pending", "disabled" if attribute == "ecc_mode" else "enabled")
    assert pinned.judge() == []


def test_persistence_mode_off_is_explained_by_the_daemon_that_is_not_running(fleet):
    fleet.set("gpu-001", "persistenced_state", "failed")
    for i in range(4):
        fleet.set(f"gpu-001/gpu{i}", "persistence_mode", "disabled")
    assert keys([fleet.only()]) == [("persistence_daemon_active", "gpu-001", "persistenced_state")]


def test_nic_firmware_is_pinned_by_psid_one_finding_a_nic(fleet):
    for nic in ("mlx5_0", "mlx5_1"):
        fleet.set(f"gpu-004/{nic}", "fw_version", "28.39.1002")
    assert keys(fleet.judge()) == [
        ("as_expected", "gpu-004/mlx5_0", "fw_version"),
        ("as_expected", "gpu-004/mlx5_1", "fw_version"),
    ]


def test_nic_firmware_without_a_pin_is_compared_within_its_psid(make_fleet):
    fleet = make_fleet(nic_firmware={}, nics=({"name": "mlx5_0", "rail": 0}, {"name": "mlx5_1", "rail": 1}))
    for i in range(1, 6):  # the second card is another model with firmware of its own
        fleet.set(f"gpu-{i:03d}/mlx5_1", "psid", "MT_0000000222")
        fleet.set(f"gpu-{i:03d}/mlx5_1", "fw_version", "20.35.1012")
        fleet.link(f"gpu-{i:03d}/mlx5_1", netdev_mtu_bytes=9000)
    assert fleet.judge() == []
    fleet.set("gpu-002/mlx5_1", "fw_version", "20.31.1014")
    f = fleet.only()
    assert (f.unit, f.expected) == ("gpu-002/mlx5_1", "20.35.1012")


def test_firmware_that_is_flashed_and_waits_for_a_reset(fleet):
    fleet.set("gpu-001/mlx5_0", "fw_version_pending", "28.45.1000")
    assert keys([fleet.only()]) == [("fw_pending", "gpu-001/mlx5_0", "fw_version_pending")]
    fleet.set("gpu-001/mlx5_0", "fw_version", "28.39.1002")
    fleet.set("gpu-001/mlx5_0", "fw_version_pending", "28.43.2026")
    f = fleet.only()
    assert f.metric == "fw_version"
    assert "flashed already" in (f.action or "")


def test_another_card_in_the_slot_is_one_finding(fleet):
    fleet.set("gpu-001/mlx5_0", "psid", "MT_0000000834")
    fleet.set("gpu-001/mlx5_0", "part_number", "MCX75310AAS-HEAT")
    fleet.set("gpu-001/mlx5_0", "nic_type", "MT4125")
    assert keys([fleet.only()]) == [("nic_psid", "gpu-001/mlx5_0", "psid")]


def test_offload_features_follow_the_majority(fleet):
    fleet.set("gpu-001/mlx5_0", "offload:rx-checksumming", "off")
    assert keys([fleet.only()]) == [("equal_across_sku", "gpu-001/mlx5_0", "offload:rx-checksumming")]


def test_drive_firmware_is_compared_within_its_model(fleet):
    fleet.set("gpu-001/nvme0", "firmware_version", "GDC5602Q")
    assert keys([fleet.only()]) == [("equal_across_sku", "gpu-001/nvme0", "firmware_version")]
    fleet.set("gpu-001/nvme0", "drive_model", "Micron 7450")
    assert fleet.judge() == []


def test_what_is_not_installed_on_one_node_only_is_a_difference(fleet):
    fleet.error("gpu-002", "ofed_version", "not installed", FactState.UNSUPPORTED)
    f = fleet.only()
    assert (f.rule, f.unit, f.metric, f.actual) == ("equal_across_sku", "gpu-002", "ofed_version", "not available")


def test_without_a_majority_the_sku_gets_one_warning_and_no_unit_is_blamed(fleet):
    for i, bios in enumerate(("1", "1", "2", "2", "3"), start=1):
        fleet.set(f"gpu-{i:03d}", "bios_version", bios)
    f = fleet.only()
    assert (f.rule, f.unit, f.unit_kind, f.metric) == ("majority_exists", "h100", "sku", "bios_version")
    assert f.actual == "1 (2 of 5), 2 (2 of 5), 3 (1 of 5)"


@pytest.mark.parametrize("off", range(1, 5))
def test_a_majority_never_flags_more_than_its_minority(fleet, off):
    for i in range(1, off + 1):
        fleet.set(f"gpu-{i:03d}", "bios_version", "9")
    flagged = [f for f in fleet.judge() if f.unit_kind == "node"]
    assert len(flagged) == min(off, 5 - off)


def test_one_node_alone_has_no_majority_to_differ_from(make_fleet):
    fleet = make_fleet(nodes=1)
    fleet.set("gpu-001", "bios_version", "whatever")
    assert fleet.judge() == []


def test_nodes_out_of_scope_vote_with_what_they_last_showed(fleet):
    fleet.remember()
    fleet.scope = ("gpu-002",)
    fleet.facts = {k: v for k, v in fleet.facts.items() if k[0].startswith("gpu-002")}
    assert fleet.judge() == []
    fleet.set("gpu-002", "bios_version", "0.9")
    assert keys([fleet.only()]) == [("equal_across_sku", "gpu-002", "bios_version")]


def test_a_pin_that_no_unit_has_is_not_a_pass(make_fleet):
    fleet = make_fleet(expected={"drvier_version": "580.126.09"})
    f = fleet.only()
    assert (f.rule, f.unit_kind, f.metric, f.kind) == (
        "expected_is_known", "sku", "drvier_version", FindingKind.NOT_JUDGED)  # fmt: skip


def test_a_pinned_value_that_is_unsupported_is_info(make_fleet):
    fleet = make_fleet(expected={"doca_version": "3.2"})
    for i in range(1, 6):
        fleet.error(f"gpu-{i:03d}", "doca_version", "no packages found", FactState.UNSUPPORTED)
    assert {(f.rule, f.severity) for f in fleet.judge()} == {("supported", "info")}


def test_a_pin_on_a_part_of_the_stack_holds_against_the_driver_that_fits_it(make_fleet):
    fleet = make_fleet(expected={"fabric_manager_version": "1.2.3"})
    assert {f.metric for f in fleet.judge()} == {"fabric_manager_version"}
    assert len(fleet.judge()) == 5


def test_serials_addresses_and_temperatures_are_never_compared(fleet):
    for i, attribute in enumerate(("serial", "uuid", "pci_bus_id", "temperature_c", "ecc_dram_correctable")):
        fleet.set(f"gpu-001/gpu{i % 4}", attribute, str(i))
    assert fleet.judge() == []
