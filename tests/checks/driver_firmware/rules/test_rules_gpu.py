"""Driver stack, GPU health, PCIe, inventory and host rules: one that passes and one that fails for each."""

from __future__ import annotations

import pytest

from fabric_health.datasets.tables import FactState


def key(f):
    return (f.rule, f.unit, f.metric, f.severity)


@pytest.mark.parametrize(
    ("unit", "attribute", "value", "rule", "severity"),
    [
        ("gpu-001", "fabric_manager_state", "failed", "fabric_manager_active", "critical"),
        ("gpu-001", "fabric_manager_state", "not-found", "fabric_manager_active", "critical"),
        ("gpu-001", "persistenced_state", "inactive", "persistence_daemon_active", "warning"),
        ("gpu-001", "fabric_manager_version", "580.95.05", "driver_stack_matches", "critical"),
        ("gpu-001", "iommu_mode", "on", "iommu_mode", "warning"),
        ("gpu-001", "acs_state", "on", "acs_state", "warning"),
        ("gpu-001", "nfs_proto:/data", "tcp", "nfs_over_rdma", "warning"),
        ("gpu-001", "nfs_proto:/data", "not-mounted", "nfs_mounted", "warning"),
        ("gpu-001/gpu1", "gsp_firmware_version", "570.148.08", "driver_stack_matches", "warning"),
        ("gpu-001/gpu1", "gpu_model", "NVIDIA A100-SXM4-80GB", "gpu_model", "warning"),
        ("gpu-001/gpu1", "remap_failure", "yes", "remap_failure", "critical"),
        ("gpu-001/gpu1", "remapped_rows_uncorrectable", "513", "remap_failure", "critical"),
        ("gpu-001/gpu1", "remap_pending", "yes", "remap_pending", "warning"),
        ("gpu-001/gpu1", "recovery_action", "Reboot", "recovery_action", "critical"),
        ("gpu-001/gpu1", "recovery_action", "Drain P2P", "recovery_action", "warning"),
        ("gpu-001/gpu1", "ecc_mode_pending", "disabled", "ecc_pending", "warning"),
        ("gpu-001/gpu1", "ecc_sram_uncorrectable", "1", "ecc_sram_uncorrectable", "warning"),
        ("gpu-001/gpu1", "ecc_sram_uncorrectable_volatile", "1", "ecc_sram_uncorrectable", "critical"),
        ("gpu-001/gpu1", "sram_threshold_exceeded", "yes", "ecc_sram_uncorrectable", "critical"),
        ("gpu-001/gpu1", "ecc_sram_correctable", "10001", "ecc_sram_correctable", "warning"),
        ("gpu-001/gpu1", "ecc_dram_correctable", "20000001", "ecc_dram_correctable", "warning"),
        ("gpu-001/gpu1", "throttle_reasons", "hw_slowdown,sw_power_cap", "throttling", "warning"),
        ("gpu-001/gpu1", "throttle_reasons", "hw_thermal_slowdown", "throttling", "warning"),
        ("gpu-001/gpu1", "throttle_reasons", "hw_power_brake_slowdown", "throttling", "warning"),
        ("gpu-001/gpu1", "nvlinks_active", "17", "nvlinks", "critical"),
        ("gpu-001/gpu1", "nvlinks_inactive", "1", "nvlinks", "warning"),
        ("gpu-001/gpu1", "fabric_state", "In Progress", "fabric_state", "critical"),
        ("gpu-001/gpu1", "fabric_status", "Insufficient Resources", "fabric_state", "critical"),
        ("gpu-001/gpu1", "pcie_width", "8", "pcie_width", "warning"),
        ("gpu-001/gpu1", "pcie_gen_max", "4", "pcie_generation", "warning"),
        ("gpu-001/mlx5_0", "pcie_width", "8", "pcie_width", "warning"),
        ("gpu-001/mlx5_0", "pcie_gen", "3", "pcie_generation", "warning"),
    ],
)
def test_must_fail(fleet, unit, attribute, value, rule, severity):
    fleet.set(unit, attribute, value)
    f = fleet.only()
    assert (f.rule, f.unit, f.severity) == (rule, unit, severity)
    assert f.kind == "deviation"
    assert f.command == fleet.facts[unit, f.metric if (unit, f.metric) in fleet.facts else attribute].command


@pytest.mark.parametrize(
    ("unit", "attribute", "value"),
    [
        ("gpu-001/gpu1", "remapped_rows_uncorrectable", "512"),
        ("gpu-001/gpu1", "ecc_sram_correctable", "10000"),
        ("gpu-001/gpu1", "ecc_dram_uncorrectable", "5"),  # repaired by remapping, which has rules of its own
        ("gpu-001/gpu1", "throttle_reasons", "sw_power_cap"),
        ("gpu-001/gpu1", "throttle_reasons", "applications_clocks_setting"),
        ("gpu-001/gpu1", "pcie_gen", "1"),
        ("gpu-001/gpu1", "temperature_c", "84"),
    ],
)
def test_must_pass(fleet, unit, attribute, value):
    fleet.set(unit, attribute, value)
    assert fleet.judge() == []


@pytest.mark.parametrize("attribute", ["fabric_state", "sram_threshold_exceeded", "gsp_firmware_version", "mig_mode"])
def test_what_a_gpu_does_not_have_is_not_judged_against_it(fleet, attribute):
    for i in range(1, 6):
        for gpu in range(4):
            fleet.error(f"gpu-{i:03d}/gpu{gpu}", attribute, "N/A", FactState.UNSUPPORTED)
    assert fleet.judge() == []


def test_limits_come_from_the_site_file(make_fleet):
    fleet = make_fleet(thresholds={"ecc_dram_correctable": 10, "remapped_rows_uncorrectable": 1})
    fleet.set("gpu-001/gpu0", "ecc_dram_correctable", "11")
    fleet.set("gpu-001/gpu1", "remapped_rows_uncorrectable", "2")
    assert [f.rule for f in fleet.judge()] == ["ecc_dram_correctable", "remap_failure"]


def test_a_pending_remap_and_the_reset_it_asks_for_are_one_finding(fleet):
    fleet.set("gpu-001/gpu0", "remap_pending", "yes")
    fleet.set("gpu-001/gpu0", "recovery_action", "Reset")
    assert fleet.only().rule == "remap_pending"
    assert "Reset" in (fleet.only().actual or "")


def test_a_driver_that_fits_neither_module_nor_fabric_manager_is_one_mismatch(fleet):
    fleet.set("gpu-002", "kernel_module_version", "535.183.01")
    fleet.set("gpu-002", "fabric_manager_version", "535.183.01")
    for i in range(4):
        fleet.set(f"gpu-002/gpu{i}", "gsp_firmware_version", "535.183.01")
    f = fleet.only()
    assert key(f) == ("driver_stack_matches", "gpu-002", "driver_stack", "critical")
    assert "fabric manager 535.183.01" in (f.actual or "")


def test_gsp_of_all_gpus_is_one_finding_on_the_node(fleet):
    for i in range(4):
        fleet.set(f"gpu-002/gpu{i}", "gsp_firmware_version", "535.183.01")
    assert key(fleet.only()) == ("driver_stack_matches", "gpu-002", "gsp_firmware_version", "warning")


def test_without_fabric_manager_in_the_sku_there_is_none_to_judge(make_fleet):
    fleet = make_fleet(has_fabric_manager=False)
    for i in range(1, 6):
        fleet.drop(f"gpu-{i:03d}", "fabric_manager_state")
        fleet.drop(f"gpu-{i:03d}", "fabric_manager_version")
    assert fleet.judge() == []


def test_a_library_mismatch_is_named_and_explains_what_nvidia_smi_could_not_say(fleet):
    said = "exit code 18: Failed to initialize NVML: Driver/library version mismatch"
    for (unit, attribute), fact in list(fleet.facts.items()):
        if unit.startswith("gpu-003") and fact.command in ("nvidia_smi", "nvlink"):
            fleet.error(unit, attribute, said)
    found = fleet.judge()
    cause = next(f for f in found if f.rule == "driver_responds")
    assert key(cause) == ("driver_responds", "gpu-003", "driver_version", "critical")
    others = [f for f in found if f is not cause]
    assert others
    assert all(f.kind == "not_judged" and f.explained_by == cause.finding for f in others)


def test_a_lost_gpu_is_one_finding_that_explains_its_unreadable_cells(fleet):
    for attribute in ("remap_pending", "remap_failure", "recovery_action", "fabric_state", "throttle_reasons"):
        fleet.error("gpu-003/gpu1", attribute, "'GPU is lost'; expected one of Yes, No")
    fleet.error("gpu-003/gpu1", "pcie_width", "'GPU is lost'; expected a number of x")
    found = fleet.judge()
    primary = [f for f in found if f.explained_by is None]
    assert [key(f) for f in primary] == [("gpu_responds", "gpu-003/gpu1", "responds", "critical")]
    assert all(f.explained_by == primary[0].finding for f in found if f is not primary[0])


def test_a_fabric_manager_that_is_down_explains_gpus_outside_the_fabric(fleet):
    fleet.set("gpu-001", "fabric_manager_state", "failed")
    for i in range(4):
        fleet.set(f"gpu-001/gpu{i}", "fabric_state", "Not Started")
    found = fleet.judge()
    assert [f.rule for f in found if f.explained_by is None] == ["fabric_manager_active"]
    assert len(found) == 5


def test_with_mig_on_links_are_not_expected(make_fleet):
    fleet = make_fleet(expected={"mig_mode": "enabled"})
    for i in range(1, 6):
        for gpu in range(4):
            fleet.set(f"gpu-{i:03d}/gpu{gpu}", "mig_mode", "enabled")
            fleet.error(f"gpu-{i:03d}/gpu{gpu}", "nvlinks_active", "not supported in MIG mode", FactState.UNSUPPORTED)
    assert fleet.judge() == []


def test_a_missing_gpu_is_named_when_its_number_is_sure(fleet):
    fleet.remember()
    fleet.drop("gpu-002/gpu2")
    fleet.set("gpu-002", "gpu_count", "3")
    f = fleet.only()
    assert key(f) == ("gpu_present", "gpu-002/gpu2", "present", "critical")
    assert "0000:12:00.0" in f.summary
    assert "4 on the PCI bus" in (f.actual or "")


def test_a_gpu_that_left_the_bus_is_counted_on_the_node_and_named_by_its_address(fleet):
    fleet.remember()
    fleet.drop("gpu-002/gpu3")
    fleet.set("gpu-002/gpu2", "pci_bus_id", "0000:13:00.0")  # the numbers moved up
    fleet.set("gpu-002", "gpu_count", "3")
    fleet.set("gpu-002", "pci_gpu_count", "3")
    f = fleet.only()
    assert key(f) == ("gpu_count", "gpu-002", "gpu_count", "critical")
    assert "0000:12:00.0" in f.summary


def test_more_gpus_than_the_sku_has(fleet):
    fleet.set("gpu-002", "gpu_count", "5")
    assert key(fleet.only()) == ("gpu_count", "gpu-002", "gpu_count", "warning")


def test_every_missing_nic_is_named(fleet):
    fleet.set("gpu-002", "nic_count", "0")
    fleet.drop("gpu-002/mlx5_0")
    fleet.drop("gpu-002/mlx5_1")
    assert [key(f) for f in fleet.judge()] == [
        ("nic_present", "gpu-002/mlx5_0", "present", "critical"),
        ("nic_present", "gpu-002/mlx5_1", "present", "critical"),
    ]


def test_nics_that_nobody_could_list_are_not_missing(fleet):
    fleet.error("gpu-002", "nic_count", "not installed")
    fleet.drop("gpu-002/mlx5_0")
    fleet.drop("gpu-002/mlx5_1")
    assert [(f.rule, f.unit) for f in fleet.judge()] == [("readable", "gpu-002")]


def test_peermem_matters_only_where_it_is_pinned_or_differs(make_fleet):
    fleet = make_fleet()
    for i in range(1, 6):
        fleet.set(f"gpu-{i:03d}", "nvidia_peermem", "absent")
    assert fleet.judge() == []
    pinned = make_fleet(expected={"nvidia_peermem": "loaded"})
    pinned.set("gpu-001", "nvidia_peermem", "absent")
    assert key(pinned.only()) == ("peermem", "gpu-001", "nvidia_peermem", "warning")


@pytest.mark.parametrize("wanted", ["NVIDIA H100 80GB HBM3", "H100 80GB HBM3", "h100"])
def test_the_site_file_may_shorten_the_model(make_fleet, wanted):
    assert make_fleet(gpu_model=wanted).judge() == []


def test_a_node_without_gpus_is_not_asked_for_them(make_fleet):
    fleet = make_fleet(gpus=0, expected={})
    for unit, attribute in list(fleet.facts):
        if fleet.facts[unit, attribute].command in ("nvidia_smi", "nvidia_proc", "fabric_manager", "services"):
            fleet.drop(unit, attribute)
    assert fleet.judge() == []
