"""The whole of one node: recorded answers against the rows kept beside them, then answers that go wrong."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from fabric_health.checks.driver_firmware.commands import commands
from fabric_health.checks.driver_firmware.parse import parse
from fabric_health.checks.driver_firmware.tables import KernelEvent, Link
from fabric_health.datasets.contracts import Row
from fabric_health.datasets.tables import Fact
from fabric_health.evidence import CommandResult, CommandStatus, UnitEvidence
from fabric_health.site import Node, ReachProfile, Site, Switch

GOLDEN = Path(__file__).parents[2] / "fixtures" / "driver_firmware" / "node_rows.json"
Result = Callable[..., CommandResult]
EvidenceOf = Callable[[Mapping[str, str | CommandResult | None]], UnitEvidence]
Rows = Callable[..., list[Row]]


@pytest.fixture
def rows(recorded_node: Node, recorded_site: Site, evidence_of: EvidenceOf) -> Rows:
    """Parses the recorded node with some answers replaced; ``name_`` stands for ``name:...`` in keywords."""

    def make(**changes: str | CommandResult | None) -> list[Row]:
        return parse(recorded_node, evidence_of({k.replace("__", ":"): v for k, v in changes.items()}), recorded_site)

    return make


def facts(rows: list[Row], unit: str) -> dict[str, Fact]:
    return {r.attribute: r for r in rows if isinstance(r, Fact) and r.unit == unit}


def links(rows: list[Row]) -> dict[str, Link]:
    return {r.nic: r for r in rows if isinstance(r, Link)}


def events(rows: list[Row], kind: str) -> list[KernelEvent]:
    return [r for r in rows if isinstance(r, KernelEvent) and r.kind == kind]


def test_recorded_node_gives_the_rows_kept_beside_it(rows: Rows) -> None:
    """Write the file anew with ``UPDATE_GOLDEN=1`` and read the difference before committing it."""
    found = [{"table": r.TABLE, **dataclasses.asdict(r)} for r in rows()]
    text = "[\n" + ",\n".join(json.dumps(r, default=str) for r in found) + "\n]\n"
    if os.environ.get("UPDATE_GOLDEN"):
        GOLDEN.write_text(text, encoding="utf-8")
    assert text == GOLDEN.read_text(encoding="utf-8")


def test_keys_are_unique(rows: Rows) -> None:
    found = rows()
    keys = [(r.TABLE, *(getattr(r, k) for k in r.KEY if k != "run")) for r in found]
    assert len(set(keys)) == len(keys)


def test_every_value_fact_has_a_value_and_every_other_a_reason(rows: Rows) -> None:
    for broken in ({}, {"nvidia_smi": "", "ibstat": "", "lspci": ""}, {"sysfs": None, "journal": None}):
        for row in rows(**broken):
            if isinstance(row, Fact):
                assert (row.value is not None) == (row.state == "value"), row
                assert (row.detail is None) == (row.state == "value"), row


# --- GPUs


@pytest.mark.parametrize(
    ("result", "detail"),
    [
        ({"status": CommandStatus.TIMEOUT, "exit_code": None}, "timeout"),
        ({"status": CommandStatus.NOT_INSTALLED, "exit_code": 127}, "not installed"),
        ({"exit_code": 137}, "killed"),
        (
            {
                "stdout": "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 535.161\n",
                "exit_code": 18,
            },
            "Driver/library version mismatch NVML library version: 535.161",
        ),
        ({"stdout": "No devices were found\n", "exit_code": 6}, "No devices were found"),
        ({"stdout": ""}, "nothing printed"),
    ],
)
def test_nvidia_smi_that_fails_leaves_no_gpu_missing(
    rows: Rows, command_result: Result, result: dict[str, object], detail: str
) -> None:
    found = rows(nvidia_smi=command_result("nvidia_smi", **result))
    for unit in ("gpu-001/gpu0", "gpu-001/gpu1"):
        cells = facts(found, unit)
        assert cells["uuid"].state == "error"
        assert detail in (cells["remap_pending"].detail or "")
    node = facts(found, "gpu-001")
    assert node["driver_version"].state == node["gpu_count"].state == "error"
    assert node["pci_gpu_count"].value == "2"
    # nvlink still names its GPUs by number
    assert facts(found, "gpu-001/gpu1")["nvlinks_active"].value == "18"


def _without_first_gpu(text: str) -> str:
    start = text.index('\t<gpu id="00000000:1B')
    end = text.index("</gpu>\n", start) + len("</gpu>\n")
    return text[:start] + text[end:]


def _recorded(name: str) -> str:
    return (GOLDEN.parent / "node" / f"{name}.txt").read_text(encoding="utf-8")


def test_a_gpu_that_cannot_be_opened_keeps_its_number(rows: Rows, command_result: Result) -> None:
    text = "Unable to determine the device handle for GPU0: 0000:1B:00.0: Unknown Error\n"
    text += _without_first_gpu(_recorded("nvidia_smi"))
    found = rows(nvidia_smi=command_result("nvidia_smi", text, exit_code=255))
    assert facts(found, "gpu-001/gpu0") == {}
    assert facts(found, "gpu-001/gpu1")["pci_bus_id"].value == "0000:5a:00.0"
    assert facts(found, "gpu-001")["gpu_count"].value == "1"


def test_a_gpu_gone_from_the_bus_keeps_its_number_where_the_site_knows_addresses(
    recorded_node: Node, recorded_site: Site, evidence_of: EvidenceOf
) -> None:
    lspci = _recorded("lspci").replace("0000:1b:00.0 3D controller", "0000:1b:00.0 System peripheral")
    lspci = lspci.replace("[0302]: NVIDIA Corporation GH100 [H100 SXM5 80GB] [10de:2330]", "[0880]: Unknown [1:1]", 1)
    evidence = evidence_of({"lspci": lspci, "nvidia_smi": _without_first_gpu(_recorded("nvidia_smi"))})
    sku = recorded_node.sku.model_copy(update={"gpu_pci": ("0000:1b:00.0", "0000:5a:00.0")})
    found = parse(replace(recorded_node, sku=sku), evidence, recorded_site)
    assert facts(found, "gpu-001/gpu0") == {}
    assert facts(found, "gpu-001/gpu1")["serial"].value == "1652923001102"
    assert facts(found, "gpu-001")["pci_gpu_count"].value == "1"
    # the log still speaks of the card that is gone
    assert [e.unit for e in events(found, "xid")] == ["gpu-001/gpu0", "gpu-001/gpu1"]


def test_nvlink_entries_are_matched_by_uuid_not_by_place(rows: Rows) -> None:
    first, second = _recorded("nvlink").split("GPU 1: ")
    swapped = "GPU 0: " + second + first.replace("GPU 0: ", "GPU 1: ")
    found = rows(nvlink=swapped)
    assert facts(found, "gpu-001/gpu0")["nvlinks_inactive"].value == "1"
    assert facts(found, "gpu-001/gpu1")["nvlinks_inactive"].value == "0"


def test_nvlink_without_one_gpu(rows: Rows) -> None:
    found = rows(nvlink=_recorded("nvlink").split("GPU 1: ")[0])
    assert facts(found, "gpu-001/gpu1")["nvlinks_active"].state == "error"


# --- NICs and links


def test_a_nic_that_no_tool_shows_has_no_row(rows: Rows) -> None:
    no_second = {
        "ibstat": _recorded("ibstat").split("CA 'mlx5_1'")[0],
        "ibv_devinfo": _recorded("ibv_devinfo").split("hca_id:\tmlx5_1")[0],
        "rdma_link": '[{"ifname":"mlx5_0","port":1,"state":"ACTIVE","physical_state":"LINK_UP"}]',
        "sysfs": "\n".join(line for line in _recorded("sysfs").splitlines() if "mlx5_1" not in line),
    }
    found = rows(**no_second)
    assert facts(found, "gpu-001/mlx5_1") == {}
    assert list(links(found)) == ["gpu-001/mlx5_0"]
    assert facts(found, "gpu-001")["nic_count"].value == "1"


def test_no_device_at_all_is_believed_only_when_said(rows: Rows, command_result: Result) -> None:
    silent = {"ibstat": "", "rdma_link": "[]", "sysfs": ""}
    said = command_result("ibv_devinfo", "", "No IB devices found\n", exit_code=255)
    found = rows(ibv_devinfo=said, **silent)
    assert links(found) == {}
    assert facts(found, "gpu-001")["nic_count"].value == "0"
    found = rows(ibv_devinfo=command_result("ibv_devinfo", "", "oops", exit_code=1), **silent)
    assert [(link.state, link.phys_state, link.rate_gbps) for link in links(found).values()] == [(None, None, None)] * 2
    assert facts(found, "gpu-001")["nic_count"].state == "error"
    assert facts(found, "gpu-001/mlx5_1")["fw_version"].state == "error"
    assert facts(found, "gpu-001/mlx5_0")["fw_version"].value == "28.41.1000"  # ethtool still tells


def test_each_rdma_tool_is_enough_alone(rows: Rows, command_result: Result) -> None:
    for alone in ("ibstat", "ibv_devinfo", "rdma_link", "sysfs"):
        gone = {
            name: command_result(name, status=CommandStatus.TIMEOUT, exit_code=None)
            for name in ("ibstat", "ibv_devinfo", "rdma_link", "sysfs")
            if name != alone
        }
        found = links(rows(**gone))
        assert [(link.state, link.phys_state) for link in found.values()] == [
            ("ACTIVE", "LINK_UP"),
            ("DOWN", "POLLING"),
        ]


def test_ethernet_counters_come_from_the_physical_port(
    recorded_node: Node, recorded_site: Site, evidence_of: EvidenceOf, command_result: Result
) -> None:
    ethernet = {
        name: _recorded(name).replace("InfiniBand\n", "Ethernet\n") for name in ("ibstat", "ibv_devinfo", "sysfs")
    }
    link = links(parse(recorded_node, evidence_of(ethernet), recorded_site))["gpu-001/mlx5_0"]
    assert link.link_layer == "Ethernet"
    assert (link.rx_packets, link.tx_packets) == (500, 600)
    assert (link.symbol_errors, link.link_downed, link.port_xmit_discards) == (4, 5, 6)
    assert link.port_rcv_errors == 0
    # ethtool gave nothing: null, not the HCA's counters, which would make a delta of two sources
    silent = {**ethernet, "ethtool_S:ibp94s0": command_result("x", status=CommandStatus.TIMEOUT, exit_code=None)}
    link = links(parse(recorded_node, evidence_of(silent), recorded_site))["gpu-001/mlx5_0"]
    assert (link.rx_packets, link.tx_packets, link.symbol_errors, link.port_rcv_errors) == (None,) * 4


def test_pcie_from_lspci_where_sysfs_is_silent(rows: Rows) -> None:
    found = rows(sysfs="")
    assert facts(found, "gpu-001/mlx5_0")["pcie_width"].value == "16"
    assert facts(found, "gpu-001/mlx5_0")["pcie_width"].command == "lspci"
    assert facts(found, "gpu-001/mlx5_1")["pcie_width"].state == "error"


def test_flash_tools(rows: Rows, command_result: Result) -> None:
    gone = command_result("x", status=CommandStatus.NOT_INSTALLED, exit_code=127)
    found = facts(rows(mlxfwmanager=gone, mstflint__mlx5_0=gone), "gpu-001/mlx5_0")
    assert found["part_number"].state == "unsupported"
    assert "fw_version_pending" not in found
    found = facts(rows(mlxfwmanager=gone), "gpu-001/mlx5_0")
    assert found["fw_version_pending"].value == "28.43.2026"
    assert found["fw_version_pending"].command == "mstflint:mlx5_0"
    denied = command_result("x", "", "-E- Permission denied; you must be root\n", exit_code=19)
    found = facts(rows(mlxfwmanager=denied, mstflint__mlx5_0=gone), "gpu-001/mlx5_0")
    assert found["part_number"].state == "error"
    assert (found["part_number"].detail or "").startswith("permission")


# --- host, drives, packages


def test_packages_a_node_may_do_without(
    rows: Rows, recorded_node: Node, recorded_site: Site, evidence_of: EvidenceOf, command_result: Result
) -> None:
    gone = command_result("x", status=CommandStatus.NOT_INSTALLED, exit_code=127)
    none = command_result("x", "", "dpkg-query: no packages found matching doca-*\n", exit_code=1)
    assert facts(rows(ofed=gone), "gpu-001")["ofed_version"].state == "unsupported"
    assert facts(rows(doca_deb=none), "gpu-001")["doca_version"].state == "unsupported"
    assert facts(rows(doca_deb=gone, doca_rpm="doca-ofed\t3.2.0-1\n"), "gpu-001")["doca_version"].value == "3.2.0-1"
    pinned = recorded_node.sku.model_copy(update={"expected": {"ofed_version": "MLNX_OFED_LINUX-24.10-2.1.8.0"}})
    found = parse(replace(recorded_node, sku=pinned), evidence_of({"ofed": gone}), recorded_site)
    assert facts(found, "gpu-001")["ofed_version"].state == "error"


def test_a_drive_that_does_not_open(rows: Rows, command_result: Result) -> None:
    denied = command_result("x", "", "sudo: a password is required\n", exit_code=1)
    for cell in facts(rows(smartctl__nvme0=denied), "gpu-001/nvme0").values():
        assert cell.state == "error"
        assert "password is required" in (cell.detail or "")


# --- kernel log


def _journal(*messages: tuple[timedelta, str]) -> str:
    started = 1787302441
    return "".join(
        json.dumps(
            {
                "__REALTIME_TIMESTAMP": str(int((started - ago.total_seconds()) * 1e6)),
                "_TRANSPORT": "kernel" if "mlx5" in text or "NVRM" in text else "journal",
                "MESSAGE": text,
            }
        )
        + "\n"
        for ago, text in messages
    )


def test_events_land_on_their_units_within_the_window(rows: Rows) -> None:
    found = rows()
    assert [(e.unit, e.code) for e in events(found, "xid")] == [("gpu-001/gpu0", 31), ("gpu-001/gpu1", 79)]
    assert [(e.unit, e.unit_kind) for e in events(found, "sxid")] == [("gpu-001", "node")]


def test_one_loss_of_carrier_told_by_two_counts_once(rows: Rows) -> None:
    second = timedelta(seconds=1)
    lines = []
    for flap in (100, 90, 80):
        lines.append((flap * second, "mlx5_core 0000:5e:00.0 ibp94s0: Link down"))
        lines.append((flap * second - second / 5, "ibp94s0: Lost carrier"))
    found = events(rows(journal=_journal(*lines[::-1])), "lost_carrier")
    assert [(e.unit, e.sequence) for e in found] == [
        ("gpu-001/mlx5_0", 0),
        ("gpu-001/mlx5_0", 1),
        ("gpu-001/mlx5_0", 2),
    ]


def test_unknown_gpu_address_is_the_nodes_and_unknown_netdev_is_nobodys(rows: Rows) -> None:
    hour = timedelta(hours=1)
    text = _journal((hour, "NVRM: Xid (PCI:0000:ee:00): 79, GPU lost"), (hour, "eno1: Lost carrier"))
    found = rows(journal=text)
    assert [(e.unit, e.unit_kind) for e in events(found, "xid")] == [("gpu-001", "node")]
    assert events(found, "lost_carrier") == []


def test_a_storm_does_not_hide_another_code(rows: Rows) -> None:
    second = timedelta(seconds=1)
    storm = [(n * second, "NVRM: Xid (PCI:0000:1b:00): 13, Graphics Exception") for n in range(5000)]
    early = [(6000 * second, "NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus.")]
    found = events(rows(journal=_journal(*storm, *early)), "xid")
    assert [e.code for e in found] == [79] + [13] * 200
    assert [e.sequence for e in found] == list(range(201))


def test_dmesg_stands_in_for_the_journal(rows: Rows, command_result: Result) -> None:
    dmesg = "2026-08-21T08:00:00,000000+00:00 NVRM: Xid (PCI:0000:1b:00): 48, DBE\n"
    refusals = (
        command_result("j", "", "No journal files were opened due to insufficient permissions.\n", exit_code=1),
        command_result("j", "", "Hint: You are currently not seeing messages from other users\n"),
        command_result("j", status=CommandStatus.TIMEOUT, exit_code=None),
        None,
    )
    for refusal in refusals:
        found = rows(journal=refusal, dmesg=dmesg)
        assert [e.code for e in events(found, "xid")] == [48]
        assert facts(found, "gpu-001")["kernel_log_source"].value == "dmesg"
        found = rows(journal=refusal)
        assert facts(found, "gpu-001")["kernel_log_source"].state == "error"


def test_a_log_cut_short_is_read_but_not_called_whole(rows: Rows, command_result: Result) -> None:
    text = _recorded("journal")
    cut = command_result("j", text[: len(text) - 200], status=CommandStatus.TRUNCATED)
    found = rows(journal=cut)
    assert {e.code for e in events(found, "xid")} == {31, 79}
    assert facts(found, "gpu-001")["kernel_log_source"].state == "error"
    found = rows(journal=text + "half a li")
    assert facts(found, "gpu-001")["kernel_log_source"].state == "error"


# --- no evidence, other units


def test_a_node_that_gave_no_answer_and_a_switch_give_no_rows(
    recorded_node: Node, recorded_site: Site, evidence_of: EvidenceOf
) -> None:
    evidence = evidence_of({})
    assert parse(recorded_node, replace(evidence, results=()), recorded_site) == []
    switch = Switch("leaf-1", "eos", "leaf", None, "leaf-1", ReachProfile(), None)
    assert parse(switch, evidence, recorded_site) == []


def test_each_command_may_be_absent_from_partial_evidence(
    recorded_node: Node, recorded_site: Site, evidence_of: EvidenceOf
) -> None:
    for command in commands(recorded_node, recorded_site):
        assert parse(recorded_node, evidence_of({command.name: None}), recorded_site)
