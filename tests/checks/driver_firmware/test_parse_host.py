from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fabric_health.checks.driver_firmware.parsers import cells, host, pci, storage
from fabric_health.checks.driver_firmware.parsers.cells import Cell
from fabric_health.datasets.tables import FactState
from fabric_health.evidence import CommandResult, CommandStatus

NODE = Path(__file__).parents[2] / "fixtures" / "driver_firmware" / "node"


def _text(name: str) -> str:
    return (NODE / f"{name}.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("parse", "good", "expected"),
    [
        (host.parse_uname, "5.15.0-126-generic\n", "5.15.0-126-generic"),
        (host.parse_uname, "6.8.0-1021-nvidia-64k\r\n", "6.8.0-1021-nvidia-64k"),
        (host.parse_bios, "2.22.1\n", "2.22.1"),
        (host.parse_bios, "ESE122L-3.10 \n", "ESE122L-3.10"),
        (host.parse_os_release, 'PRETTY_NAME="Rocky Linux 9.4 (Blue Onyx)"\nID=rocky\n', "Rocky Linux 9.4 (Blue Onyx)"),
        (host.parse_os_release, "NAME=Fedora\nVERSION_ID=41\n", "Fedora 41"),
        (host.parse_ofed, "MLNX_OFED_LINUX-24.10-2.1.8.0:\n", "MLNX_OFED_LINUX-24.10-2.1.8.0"),
        (host.parse_ofed, "OFED-internal-25.10-1.7.1:\n", "OFED-internal-25.10-1.7.1"),
        (host.parse_packages, "doca-host\t3.1.0\ndoca-roce\t3.2.0-125000\ndoca-all:amd64\t\n", "3.2.0-125000"),
        (host.parse_peermem, _text("modules"), "loaded"),
        (host.parse_peermem, "ib_core 425984 0 - Live 0xffffffffc0b9e000\n", "absent"),
        (host.parse_peermem, "nvidia_peermem 16384 0 - Unloading 0xffffffffc0b9e000\n", "absent"),
    ],
)
def test_good_answers(parse: Callable[[str], Cell], good: str, expected: str) -> None:
    assert parse(good).value == expected


@pytest.mark.parametrize(
    "parse",
    [
        host.parse_uname,
        host.parse_bios,
        host.parse_os_release,
        host.parse_ofed,
        host.parse_peermem,
        host.parse_packages,
    ],
)
@pytest.mark.parametrize("text", ["", "\n\n", "<html><b>502</b></html>", "???\n", "a\nb\nc\n"])
def test_rubbish_is_no_value(parse: Callable[[str], Cell], text: str) -> None:
    cell = parse(text)
    assert cell.value is None
    assert cell.detail
    if parse is not host.parse_packages or text.strip():  # no package at all prints nothing
        assert cell.state is FactState.ERROR


@pytest.mark.parametrize(
    ("groups", "cmdline", "expected"),
    [
        ("0\n1\n", "ro iommu=pt\n", "pt"),
        ("0\n1\n", "ro iommu=pt iommu=nopt\n", "on"),
        ("0\n", "ro intel_iommu=on iommu.passthrough=1\n", "pt"),
        ("0\n", "ro intel_iommu=on\n", "on"),
        ("", "ro intel_iommu=on iommu=pt\n", "off"),
        ("zero\n", "ro iommu=pt\n", None),
        ("0\n", "", None),
    ],
)
def test_iommu(command_result: Callable[..., CommandResult], groups: str, cmdline: str, expected: str | None) -> None:
    mode = host.iommu_mode(command_result("iommu_groups", groups), command_result("cmdline", cmdline))
    assert mode.value == expected


def test_iommu_without_the_directory(command_result: Callable[..., CommandResult]) -> None:
    missing = "ls: cannot access '/sys/kernel/iommu_groups': No such file or directory\n"
    assert host.iommu_mode(command_result("g", "", missing, exit_code=2), None).value == "off"
    denied = command_result("g", "", "ls: cannot open directory: Permission denied\n", exit_code=2)
    assert host.iommu_mode(denied, None).state is FactState.ERROR
    assert host.iommu_mode(None, None).state is FactState.ERROR


@pytest.mark.parametrize(
    ("point", "expected"),
    [("/data", "rdma"), ("/my home", "tcp"), ("/", "not-nfs"), ("/scratch", "not-mounted")],
)
def test_nfs(point: str, expected: str) -> None:
    assert host.parse_nfs_proto(_text("mounts"), point).value == expected


def test_nfs_odd_mounts() -> None:
    over = "a:/x /data nfs4 rw,proto=rdma 0 0\nb:/y /data nfs4 rw,proto=tcp 0 0\n"
    assert host.parse_nfs_proto(over, "/data").value == "tcp"
    assert host.parse_nfs_proto("a:/x /data nfs4 rw,vers=4.2 0 0\n", "/data").state is FactState.ERROR
    assert host.parse_nfs_proto("", "/data").state is FactState.ERROR


def test_lspci() -> None:
    devices = {d.address: d for d in pci.parse_lspci(_text("lspci"))}
    assert [a for a, d in devices.items() if d.gpu] == ["0000:1b:00.0", "0000:5a:00.0"]
    assert devices["0000:5a:00.0"].link == pci.PciLink(gen=4, gen_max=5, width=8, width_max=16)
    assert [a for a, d in devices.items() if d.bridge] == ["0000:15:01.0"]
    # A GPU's own register is not a bridge that redirects.
    assert pci.acs_state(tuple(devices.values())).value == "off"


def test_lspci_without_numeric_ids_and_with_redirecting_bridge() -> None:
    text = """c1:00.0 PCI bridge: Broadcom / LSI PEX890xx PCIe Gen 5 Switch (rev b0)
\t\tLnkCap:\tPort #0, Speed 32GT/s, Width x16
\t\tLnkSta:\tSpeed 32GT/s (ok), Width x16 (ok)
\t\tACSCtl:\tSrcValid+ TransBlk- ReqRedir- CmpltRedir- UpstreamFwd- EgressCtrl- DirectTrans-
10000:03:00.0 3D controller: NVIDIA Corporation GH100 [H100 SXM5 80GB] (rev ff)
\t!!! Unknown header type 7f
"""
    bridge, gpu = pci.parse_lspci(text)
    assert (bridge.address, bridge.bridge) == ("0000:c1:00.0", True)
    assert gpu.gpu
    assert gpu.link == pci.PciLink()
    assert pci.acs_state((bridge, gpu)).value == "on"


def test_acs_is_an_error_when_capabilities_are_hidden() -> None:
    text = "0000:15:01.0 PCI bridge [0604]: Intel Corporation Device [8086:352a]\n\tCapabilities: <access denied>\n"
    cell = pci.acs_state(pci.parse_lspci(text))
    assert cell.state is FactState.ERROR
    assert (cell.detail or "").startswith("permission")
    assert pci.acs_state(()).state is FactState.ERROR


def _smart(**changes: Any) -> str:
    document = json.loads(_text("smartctl_nvme0"))
    for path, new in changes.items():
        here = document
        *parents, last = path.split("__")
        for parent in parents:
            here = here[parent]
        here[last] = new
    return json.dumps(document)


def test_smartctl_failing_drive_is_read_in_spite_of_its_exit_code() -> None:
    found = {a: c.value for a, c in storage.parse_smartctl(_smart(), 8).items()}
    assert found["smart_passed"] == "no"
    assert found["percentage_used"] == "104"
    assert found["critical_warning"] == "4"
    assert set(found) == set(storage.DRIVE_ATTRIBUTES)


@pytest.mark.parametrize("code", [1, 2, 3, 130])
def test_smartctl_bits_that_mean_no_data(code: int) -> None:
    messages = [{"string": "Smartctl open device: /dev/nvme0 failed: Permission denied", "severity": "error"}]
    text = _smart(smartctl__exit_status=code, smartctl__messages=messages)
    found = storage.parse_smartctl(text, code)
    assert all(c.state is FactState.ERROR and "Permission denied" in (c.detail or "") for c in found.values())


LOG = "nvme_smart_health_information_log"


@pytest.mark.parametrize(
    ("changes", "attribute"),
    [
        ({"smart_status__passed": "true"}, "smart_passed"),
        ({"smart_status": None}, "smart_passed"),
        ({LOG: None}, "media_errors"),
        ({LOG: [1]}, "media_errors"),
        ({f"{LOG}__media_errors": "0"}, "media_errors"),
        ({f"{LOG}__media_errors": -1}, "media_errors"),
        ({f"{LOG}__temperature": True}, "temperature_c"),
        ({f"{LOG}__percentage_used": 1.5}, "percentage_used"),
        ({"model_name": {"a": 1}}, "drive_model"),
        ({"serial_number": "<img src=x>"}, "serial"),
    ],
)
def test_smartctl_odd_cells(changes: dict[str, Any], attribute: str) -> None:
    cell = storage.parse_smartctl(_smart(**changes), 0)[attribute]
    assert cell.state is FactState.ERROR


@pytest.mark.parametrize("text", ["", "[]", "{", "null", "smartctl 7.2 2020-12-30", "[" * 200_000, "1" * 5000])
def test_smartctl_without_a_document(text: str) -> None:
    assert all(c.state is FactState.ERROR for c in storage.parse_smartctl(text, 0).values())


@pytest.mark.parametrize(
    ("fields", "detail"),
    [
        ({"status": CommandStatus.TIMEOUT, "exit_code": None}, "timeout after 3 s"),
        ({"status": CommandStatus.TRUNCATED}, "truncated"),
        ({"status": CommandStatus.NOT_INSTALLED, "exit_code": 127}, "not installed"),
        ({"status": CommandStatus.NOT_RUN, "exit_code": None, "stderr": "time ran out"}, "not run: time ran out"),
        ({"exit_code": 127}, "not installed"),
        ({"exit_code": 124}, "timeout"),
        ({"exit_code": 137}, "killed"),
        ({"exit_code": None}, "without an exit code"),
        ({"exit_code": 1, "stderr": "dmesg: read kernel buffer failed: Operation not permitted"}, "permission: exit"),
        ({"exit_code": 1, "stdout": "-E- Cannot open Device"}, "exit code 1: -E- Cannot"),
    ],
)
def test_why_a_command_gave_nothing(
    command_result: Callable[..., CommandResult], fields: dict[str, Any], detail: str
) -> None:
    problem = cells.failure(command_result("x", **fields))
    assert problem is not None
    assert problem.state is FactState.ERROR
    assert detail in (problem.detail or "")


def test_whole_output_is_no_failure(command_result: Callable[..., CommandResult]) -> None:
    assert cells.failure(command_result("x", "ok")) is None
    assert cells.failure(command_result("x", "ok", exit_code=3), any_exit=True) is None
    assert cells.failure(None) is not None
