from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from fabric_health.checks.driver_firmware.parsers import nvidia_smi, nvidia_stack
from fabric_health.checks.driver_firmware.parsers.nvidia_smi import GPU_ATTRIBUTES, parse_nvlink, parse_smi
from fabric_health.datasets.tables import FactState

SmiFixture = Callable[[str], str]


def _healthy(smi_fixture: SmiFixture) -> str:
    return smi_fixture("../node/nvidia_smi.txt")


def test_gpus_come_in_bus_order_with_every_attribute(smi_fixture: SmiFixture) -> None:
    smi = parse_smi(_healthy(smi_fixture))
    assert [g.pci for g in smi.gpus] == ["0000:1b:00.0", "0000:5a:00.0"]
    assert smi.driver_version.value == "580.126.09"
    assert smi.cuda_version.value == "13.0"
    for gpu in smi.gpus:
        assert set(gpu.cells) == set(GPU_ATTRIBUTES)
        assert all(c.state is FactState.VALUE for c in gpu.cells.values())


def test_old_names_and_mig_blocks(smi_fixture: SmiFixture) -> None:
    """530: throttle names, power_readings, reset status instead of recovery action, MIG counters of their own."""
    gpu = parse_smi(smi_fixture("a100_530_mig.xml")).gpus[0].cells
    values = {a: c.value for a, c in gpu.items()}
    assert values["throttle_reasons"] == "hw_slowdown,hw_thermal_slowdown,sw_power_cap"
    assert values["power_limit_w"] == "400.5"
    assert values["recovery_action"] == "Reset"
    assert values["mig_mode"] == "enabled"
    assert values["ecc_sram_uncorrectable"] == "5"
    assert values["ecc_sram_uncorrectable_volatile"] == "4"
    assert values["remap_pending"] == "yes"
    assert (values["ecc_mode"], values["ecc_mode_pending"]) == ("enabled", "disabled")
    assert (values["pcie_width"], values["pcie_width_max"]) == ("8", "16")
    for attribute in ("gsp_firmware_version", "sram_threshold_exceeded", "fabric_state", "fabric_status"):
        assert gpu[attribute].state is FactState.UNSUPPORTED


def test_lost_gpu_gives_errors_for_live_cells_only(smi_fixture: SmiFixture) -> None:
    good, lost = (g.cells for g in parse_smi(smi_fixture("h100_580_gpu_lost.xml")).gpus)
    assert all(c.state is FactState.VALUE for c in good.values())
    for attribute in ("remap_pending", "remap_failure", "remapped_rows_uncorrectable", "temperature_c", "fabric_state"):
        assert lost[attribute].state is FactState.ERROR
        assert "GPU is lost" in (lost[attribute].detail or "")
    assert lost["uuid"].state is FactState.VALUE


@pytest.mark.parametrize(
    ("old", "new", "attribute", "state"),
    [
        ("<serial>1652923001101</serial>", "<serial>N/A</serial>", "serial", FactState.UNSUPPORTED),
        ("<serial>1652923001101</serial>", "<serial></serial>", "serial", FactState.ERROR),
        ("<serial>1652923001101</serial>", "<serial>&lt;b&gt;x&lt;/b&gt;</serial>", "serial", FactState.ERROR),
        ("34 C", "Unknown Error", "temperature_c", FactState.ERROR),
        ("34 C", "Insufficient Permissions", "temperature_c", FactState.ERROR),
        ("<state>Completed</state>", "<state>Not Supported</state>", "fabric_state", FactState.UNSUPPORTED),
        ("<state>Completed</state>", "<state>Abgeschlossen</state>", "fabric_state", FactState.ERROR),
        ("<current_link_width>16x<", "<current_link_width>sixteen<", "pcie_width", FactState.ERROR),
        ("<sram_uncorrectable_parity>1<", "<sram_uncorrectable_parity>N/A<", "ecc_sram_uncorrectable", FactState.ERROR),
        ("_hw_slowdown>Not Active<", "_hw_slowdown>Maybe<", "throttle_reasons", FactState.ERROR),
        ("<gpu_recovery_action>None<", "<gpu_recovery_action>Pray<", "recovery_action", FactState.ERROR),
        ("<product_name>NVIDIA", "<productname>NVIDIA", "gpu_model", None),
        ("<remapped_row_pending>No</remapped_row_pending>", "", "remap_pending", FactState.ERROR),
        ("<dram_uncorrectable>0<", "<dram_uncorrectable>-1<", "ecc_dram_uncorrectable", FactState.ERROR),
    ],
)
def test_odd_cells(smi_fixture: SmiFixture, old: str, new: str, attribute: str, state: FactState | None) -> None:
    text = _healthy(smi_fixture)
    assert old in text
    smi = parse_smi(text.replace(old, new))
    if state is None:  # tags that do not match: no document at all
        assert smi.problem is not None
        return
    assert smi.gpus[0].cells[attribute].state is state
    assert smi.gpus[0].cells[attribute].value is None


@pytest.mark.parametrize(
    "wrap",
    [
        lambda t: "Unable to determine the device handle for GPU3: 0000:5F:00.0: Unknown Error\n" + t,
        lambda t: t + "WARNING: infoROM is corrupted at gpu 0000:1B:00.0\n",
        lambda t: "\ufeff" + t.replace("\n", "\r\n"),
        lambda t: "\x1b[0m" + t + "\x00\x00",
    ],
)
def test_warnings_and_line_ends_around_the_document(smi_fixture: SmiFixture, wrap: Callable[[str], str]) -> None:
    text = _healthy(smi_fixture)
    assert parse_smi(wrap(text)) == parse_smi(text)


BOMB = '<?xml version="1.0"?><!DOCTYPE nvidia_smi_log [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;">]>'


@pytest.mark.parametrize(
    "text",
    [
        "",
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.",
        "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 535.161\n",
        "No devices were found\n",
        "<nvidia_smi_log></nvidia_smi_log>",
        "<nvidia_smi_log><attached_gpus>8</attached_gpus></nvidia_smi_log>",
        "<nvidia_smi_log><gpu id='x'></gpu></nvidia_smi_log>",
        "<nvidia_smi_log><gpu id='00000000:1B:00.0'/><gpu id='00000000:1B:00.0'/></nvidia_smi_log>",
        BOMB + "<nvidia_smi_log><gpu>&b;</gpu></nvidia_smi_log>",
        "<!DOCTYPE x SYSTEM 'file:///etc/passwd'><nvidia_smi_log>&x;</nvidia_smi_log>",
        "<nvidia_smi_log>" + "<a>" * 100 + "</a>" * 100 + "</nvidia_smi_log>",
        "<nvidia_smi_log>\n<nvidia_smi_log></nvidia_smi_log>\n<nvidia_smi_log></nvidia_smi_log>",
        "<html><body>502</body></html>",
        '<?xml version="1.0" encoding="klingon"?><nvidia_smi_log></nvidia_smi_log>',
    ],
)
def test_what_is_not_a_whole_document_is_a_problem(text: str) -> None:
    smi = parse_smi(text)
    assert smi.problem is not None
    assert smi.problem.state is FactState.ERROR
    assert smi.gpus == ()
    assert smi.driver_version.state is FactState.ERROR


def test_every_truncation_is_a_problem(smi_fixture: SmiFixture) -> None:
    text = _healthy(smi_fixture).rstrip("\n")
    for cut in range(0, len(text) - 1, 97):
        assert parse_smi(text[:cut]).problem is not None


def test_fifty_megabytes_are_refused_quickly() -> None:
    begin = time.process_time()
    assert parse_smi("<nvidia_smi_log>" + "A" * (50 << 20) + "</nvidia_smi_log>").problem is not None
    assert [g.active.state for g in parse_nvlink("GPU 0: x" + "(" * (50 << 20))] in ([], [FactState.UNSUPPORTED])
    assert time.process_time() - begin < 3


@pytest.mark.parametrize(
    ("body", "active", "inactive"),
    [
        ("\t Link 0: 26.562 GB/s\n\t Link 1: 25 GB/s\n", "2", "0"),
        ("\t Link 0: 26.562 GB/s\n\t Link 1: <inactive>\n\t Link 2: Sleep\n", "2", "1"),
        ("\t Link 0: 26.562 GB/s\n\t Link 1: ??\n", None, None),
        ("\t Link 0: 26.562 GB/s\n\t Link 0: 26.562 GB/s\n", None, None),
        ("\tNvlink queries are not supported for Devices in MIG mode\n", None, None),
        ("", None, None),
    ],
)
def test_nvlink(body: str, active: str | None, inactive: str | None) -> None:
    (gpu,) = parse_nvlink(f"GPU 0: NVIDIA H100 (UUID: GPU-6a4f1c2e-11d0-4b7a-9c55-0d2f7be4a101)\n{body}")
    assert gpu.uuid == "GPU-6a4f1c2e-11d0-4b7a-9c55-0d2f7be4a101"
    assert (gpu.active.value, gpu.inactive.value) == (active, inactive)


@pytest.mark.parametrize(
    ("line", "version", "flavor"),
    [
        (
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.126.09  Release Build  (x)  Mon Jan 12",
            "580.126.09",
            "open",
        ),
        (
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.129.03  Thu Oct 19 18:56:32 UTC 2023",
            "535.129.03",
            "proprietary",
        ),
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module", None, None),
        ("", None, None),
        ("<script>580.1</script>", None, None),
    ],
)
def test_kernel_module(line: str, version: str | None, flavor: str | None) -> None:
    module = nvidia_stack.parse_module(line + "\nGCC version:  gcc version 11.4.0\n")
    assert (module.version.value, module.flavor.value) == (version, flavor)


def test_fabric_manager_version() -> None:
    assert nvidia_stack.parse_fabric_manager("\n\tFabric Manager version is : 580.159.03\n").value == "580.159.03"
    assert nvidia_stack.parse_fabric_manager("Segmentation fault\n").state is FactState.ERROR


def test_services() -> None:
    text = (
        "Id=a.service\nActiveState=failed\nLoadState=loaded\n\n"
        "LoadState=not-found\nId=b.service\nActiveState=inactive\n\n"
        "Id=c.service\nActiveState=splendid\nLoadState=loaded\n"
    )
    states = nvidia_stack.parse_services(text)
    assert {k: v.value for k, v in states.items()} == {"a": "failed", "b": "not-found", "c": None}
    assert nvidia_stack.parse_services("<html>") == {}


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("00000000:5A:00.0", "0000:5a:00.0"),
        ("0000:5a:00.0", "0000:5a:00.0"),
        ("5a:00.0", None),
        ("0000:5a:00.8", None),
        ("", None),
    ],
)
def test_normal_pci(text: str, normal: str | None) -> None:
    assert nvidia_smi.normal_pci(text) == normal
