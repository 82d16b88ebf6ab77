"""What lab nodes answer: real formats, deterministic, true to the site file, changed by faults and nothing else."""

from __future__ import annotations

import json
import time
import xml.etree.ElementTree as ET
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from fabric_health.checks.driver_firmware.commands import commands
from fabric_health.lab import nodes
from fabric_health.lab.answer import Answer
from fabric_health.lab.nodes.hardware import build
from fabric_health.lab.state import Fault, LabState
from fabric_health.site import Nic, Node, Site, load_site

UP = datetime(2026, 11, 30, 8, tzinfo=UTC)
NOW = UP + timedelta(hours=5)
SINCE = NOW - timedelta(hours=1)
JOURNAL = (
    "journalctl", "--reverse", "-o", "json", "--no-pager", "--since=-604800s",
    "--output-fields=MESSAGE,SYSLOG_IDENTIFIER,_TRANSPORT",
    "_TRANSPORT=kernel", "+", "SYSLOG_IDENTIFIER=systemd-networkd",
)  # fmt: skip


@pytest.fixture(scope="module")
def site() -> Site:
    return load_site(Path(__file__).parents[2] / "include/sites/lab.yaml")


@pytest.fixture(scope="module")
def infiniband(site: Site) -> Site:
    """The lab's site with its first node made into an InfiniBand one, without network devices."""
    old = site.nodes[0]
    nics = tuple(Nic(name=n.name, rail=n.rail, pci=n.pci, psid=n.psid, gpu=n.gpu) for n in old.sku.nics)
    sku = old.sku.model_copy(update={"link_layer": "InfiniBand", "nics": nics, "netdev_mtu_bytes": None})
    return replace(site, nodes=(replace(old, sku=sku), *site.nodes[1:]), _by_name={})


def state(*faults: tuple[str, str, str | None]) -> LabState:
    return LabState(UP, tuple(Fault(kind, unit, value, SINCE) for kind, unit, value in faults))


def ask(site: Site, command: str | tuple[str, ...], *faults: tuple[str, str, str | None], now: datetime = NOW) -> str:
    argv = tuple(command.split()) if isinstance(command, str) else command
    answer = nodes.answer(site.nodes[0], site, state(*faults), argv, now)
    assert answer.exit_code == 0, answer
    return answer.stdout


def smi(site: Site, *faults: tuple[str, str, str | None]) -> ET.Element:
    return ET.fromstring(ask(site, "nvidia-smi -q -x", *faults))


def name(site: Site) -> str:
    return site.nodes[0].name


def nic_port(site: Site, nic: str) -> str:
    cable = site.cable_of_nic(name(site), nic)
    assert cable is not None
    return f"{cable.switch}/{cable.port}"


def test_nvidia_smi_document_of_a_healthy_node(site: Site) -> None:
    sku = site.nodes[0].sku
    text = ask(site, "nvidia-smi -q -x")
    assert text.splitlines()[1] == '<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v13.dtd">'
    root = ET.fromstring(text)
    assert root.findtext("driver_version") == sku.expected["driver_version"]
    assert root.findtext("attached_gpus") == str(sku.gpus)
    gpus = root.findall("gpu")
    assert len(gpus) == sku.gpus
    assert [g.get("id") for g in gpus] == sorted(str(g.get("id")) for g in gpus)
    assert len({g.findtext("serial") for g in gpus}) == len({g.findtext("uuid") for g in gpus}) == sku.gpus
    for gpu in gpus:
        assert gpu.findtext("product_name") == sku.gpu_model
        assert gpu.findtext("vbios_version") == sku.expected["vbios_version"]
        assert gpu.findtext("gsp_firmware_version") == sku.expected["driver_version"]
        assert gpu.findtext("pci/pci_gpu_link_info/link_widths/current_link_width") == f"{sku.pcie_width}x"
        assert gpu.findtext("ecc_errors/aggregate/sram_threshold_exceeded") == "No"
        assert gpu.findtext("remapped_rows/remapped_row_pending") == "No"
        assert gpu.findtext("fabric/state") == "Completed"


def test_an_older_driver_prints_the_older_document(site: Site) -> None:
    fault = ("driver-version", name(site), "570.148.08")
    text = ask(site, "nvidia-smi -q -x", fault)
    assert "nvsmi_device_v12.dtd" in text
    gpu = ET.fromstring(text).find("gpu")
    assert gpu is not None
    assert gpu.find("clocks_event_reasons_counters") is None
    assert gpu.find("fabric/health/summary") is None
    assert gpu.findtext("gpu_reset_status/reset_required") == "Requested functionality has been deprecated"
    assert "\n\n\t\t" not in text


def test_driver_fault_changes_the_whole_stack(site: Site) -> None:
    fault = ("driver-version", name(site), "570.148.08")
    root = smi(site, fault)
    assert {root.findtext("driver_version"), *(g.findtext("gsp_firmware_version") for g in root.findall("gpu"))} == {
        "570.148.08"
    }
    assert root.findtext("cuda_version") == "12.8"
    assert "  570.148.08  " in ask(site, "cat /proc/driver/nvidia/version", fault)
    assert ask(site, "nv-fabricmanager --version", fault) == "Fabric Manager version is : 570.148.08\n"


def test_firmware_fault_shows_in_every_tool_and_on_one_nic(site: Site) -> None:
    nic = site.nodes[0].sku.nics[3]
    fault = ("nic-firmware", f"{name(site)}/{nic.name}", "28.39.1002")
    for command in (
        "ibstat",
        "ibv_devinfo -v",
        "mlxfwmanager --query --query-format XML",
        f"ethtool -i {nic.netdev}",
        f"mstflint -d {nic.pci} q full",
        f"grep -H . /sys/class/infiniband/{nic.name}/fw_ver",
    ):
        text = ask(site, command, fault)
        expected = 2 if command.startswith("mstflint") else 1
        assert text.count("28.39.1002") == expected, command
        assert "28.39.1002" not in ask(site, command)


def test_pcie_fault_narrows_one_gpu(site: Site) -> None:
    fault = ("pcie-degraded", f"{name(site)}/gpu5", "8")
    widths = [g.findtext("pci/pci_gpu_link_info/link_widths/current_link_width") for g in smi(site, fault).iter("gpu")]
    assert [i for i, w in enumerate(widths) if w != "16x"] == [5]
    text = ask(site, "lspci -Dnnvv", fault)
    # The GPU's own link and the switch port above it.
    assert text.count("Width x8 (downgraded)") == 2
    assert "downgraded" not in ask(site, "lspci -Dnnvv")


def test_remap_fault(site: Site) -> None:
    pending = [
        g.findtext("remapped_rows/remapped_row_pending")
        for g in smi(site, ("remap-pending", f"{name(site)}/gpu2", None)).iter("gpu")
    ]
    assert [i for i, p in enumerate(pending) if p == "Yes"] == [2]


def journal(site: Site, *faults: tuple[str, str, str | None], now: datetime = NOW) -> list[tuple[datetime, str]]:
    entries = [json.loads(line) for line in ask(site, JOURNAL, *faults, now=now).splitlines()]
    times = [datetime.fromtimestamp(int(e["__REALTIME_TIMESTAMP"]) / 1e6, UTC) for e in entries]
    assert times == sorted(times, reverse=True)
    return list(zip(times, (e["MESSAGE"] for e in entries), strict=True))


def test_xid_is_logged_two_hours_before_the_fault_and_keeps_its_time(site: Site) -> None:
    fault = ("xid", f"{name(site)}/gpu4", "79")
    bus = [g.get("id") for g in smi(site).iter("gpu")][4]
    found = [(at, m) for at, m in journal(site, fault) if "NVRM: Xid" in m]
    address = str(bus)[4:14].lower()
    assert found == [(SINCE - timedelta(hours=2), f"NVRM: Xid (PCI:{address}): 79, GPU has fallen off the bus.")]
    later = [at for at, m in journal(site, fault, now=NOW + timedelta(hours=3)) if "NVRM: Xid" in m]
    assert later == [SINCE - timedelta(hours=2)]
    assert "NVRM: Xid" in ask(site, "dmesg --time-format iso", fault)


@pytest.mark.parametrize("hours", [0, 1, 5, 23, 49, 100])
def test_a_flapping_link_always_shows_its_losses_of_the_last_day(site: Site, hours: int) -> None:
    nic = site.nodes[0].sku.nics[1]
    now = SINCE + timedelta(hours=hours)
    lines = journal(site, ("link-flap", f"{name(site)}/{nic.name}", "7"), now=now)
    day = [m for at, m in lines if at > now - timedelta(days=1)]
    assert day.count(f"{nic.netdev}: Lost carrier") == 7
    assert day.count(f"mlx5_core {nic.pci} {nic.netdev}: Link down") == 7
    assert not [m for _, m in journal(site, now=now) if "Lost carrier" in m or "Link down" in m]


def link(site: Site, nic: str, *faults: tuple[str, str, str | None]) -> tuple[str, str, str, list[str]]:
    """Return (ibstat state, physical state, rate, flags of ip) of one NIC."""
    block = ask(site, f"ibstat {nic}", *faults)
    values = dict(line.strip().split(": ", 1) for line in block.splitlines() if ": " in line)
    netdev = next(n.netdev for n in site.nodes[0].sku.nics if n.name == nic)
    shown = json.loads(ask(site, "ip -j -s -d link show", *faults))
    flags = next((d["flags"] for d in shown if d["ifname"] == netdev), [])
    return values["State"], values["Physical state"], values["Rate"], flags


def test_links_up_down_here_and_down_there(site: Site) -> None:
    port = nic_port(site, "mlx5_6")
    assert link(site, "mlx5_6") == ("Active", "LinkUp", "400", ["BROADCAST", "MULTICAST", "UP", "LOWER_UP"])
    here = ("nic-down", f"{name(site)}/mlx5_6", None)
    assert link(site, "mlx5_6", here) == ("Down", "Disabled", "40", ["BROADCAST", "MULTICAST"])
    there = ("port-down", port, None)
    assert link(site, "mlx5_6", there) == ("Down", "Disabled", "40", ["NO-CARRIER", "BROADCAST", "MULTICAST", "UP"])
    for fault in (here, there):
        assert link(site, "mlx5_5", fault) == link(site, "mlx5_5")
        rdma = {d["ifname"]: d for d in json.loads(ask(site, "rdma -j link show", fault))}
        assert rdma["mlx5_6"]["state"] == "DOWN"
        assert "PORT_DOWN (1)" in ask(site, "ibv_devinfo -v", fault)


def test_both_ends_run_at_the_ports_speed(site: Site) -> None:
    slower = ("port-speed", nic_port(site, "mlx5_2"), "200")
    assert link(site, "mlx5_2", slower)[:3] == ("Active", "LinkUp", "200")
    assert "active_speed:\t\t50.0 Gbps (64)" in ask(site, "ibv_devinfo -v", slower)
    path = "/sys/class/infiniband/mlx5_2/ports/1/rate"
    assert ask(site, f"grep -H . {path}", slower) == f"{path}:200 Gb/sec (4X HDR)\n"


def test_a_swapped_cable_follows_the_port_it_is_plugged_into(site: Site) -> None:
    own = nic_port(site, "mlx5_2")
    other = site.cable_of_nic(site.nodes[1].name, "mlx5_2")
    assert other is not None
    swap = ("miscabled", own, other.port)
    assert link(site, "mlx5_2", swap) == link(site, "mlx5_2")
    assert link(site, "mlx5_2", swap, ("port-down", own, None))[0] == "Active"
    assert link(site, "mlx5_2", swap, ("port-down", f"{other.switch}/{other.port}", None))[0] == "Down"


def test_what_a_switch_has_wrong_without_touching_the_link_changes_no_node(site: Site) -> None:
    port = nic_port(site, "mlx5_2")
    for kind in ("switch-mtu", "switch-pfc", "port-errors"):
        for command in ("ibstat", "ibv_devinfo -v", "ip -j -s -d link show"):
            assert ask(site, command, (kind, port, None)) == ask(site, command)


def test_infiniband_node(infiniband: Site) -> None:
    block = ask(infiniband, "ibstat mlx5_0")
    assert "Link layer: InfiniBand" in block
    assert "Base lid: 0" not in block
    assert '"lid":' in ask(infiniband, "rdma -j link show")
    assert "netdev" not in ask(infiniband, "rdma -j link show")
    assert "Infiniband controller [0207]" in ask(infiniband, "lspci -Dnnvv")
    assert "<GUIDs Base_Guid=" in ask(infiniband, "mlxfwmanager --query --query-format XML")
    down = ask(infiniband, "ibstat mlx5_0", ("nic-down", f"{name(infiniband)}/mlx5_0", None))
    assert "State: Down" in down
    assert "Physical state: Disabled" in down
    there = ask(infiniband, "ibstat mlx5_0", ("port-down", nic_port(infiniband, "mlx5_0"), None))
    assert "State: Down" in there
    assert "Physical state: Polling" in there
    assert "Rate: 10\n" in down


def test_counters_grow_and_stand_still_while_the_link_is_down(site: Site) -> None:
    path = "/sys/class/infiniband/mlx5_0/ports/1/counters/port_rcv_packets"

    def packets(*faults: tuple[str, str, str | None], now: datetime) -> int:
        return int(ask(site, f"grep -H . {path}", *faults, now=now).rpartition(":")[2])

    later = NOW + timedelta(hours=2)
    assert 0 < packets(now=NOW) < packets(now=later)
    down = ("nic-down", f"{name(site)}/mlx5_0", None)
    assert packets(down, now=NOW) == packets(down, now=later) < packets(now=NOW)


@pytest.mark.parametrize(
    "fault",
    [
        ("driver-version", "gpu-007", "570.148.08"),
        ("nic-firmware", "gpu-007/mlx5_3", "28.39.1002"),
        ("pcie-degraded", "gpu-007/gpu2", "8"),
        ("nic-down", "gpu-007/mlx5_1", None),
        ("link-flap", "gpu-007/mlx5_1", "7"),
        ("remap-pending", "gpu-007/gpu2", None),
        ("xid", "gpu-007/gpu2", "79"),
    ],
)
def test_a_fault_changes_no_other_node(site: Site, fault: tuple[str, str, str | None]) -> None:
    for node in site.nodes:
        argvs = [c.argv for c in commands(node, site)]
        before = [nodes.answer(node, site, state(), a, NOW) for a in argvs]
        after = [nodes.answer(node, site, state(fault), a, NOW) for a in argvs]
        assert (before == after) == (node.name != "gpu-007")


def test_every_command_of_the_audit_is_answered(site: Site, infiniband: Site) -> None:
    for place in (site, infiniband):
        for command in commands(place.nodes[0], place):
            answer = nodes.answer(place.nodes[0], place, state(), command.argv, NOW)
            if not command.optional:
                assert answer.exit_code == 0, command
                assert answer.stdout, command


def test_unknown_programs_files_and_arguments(site: Site) -> None:
    node = site.nodes[0]

    def raw(*argv: str) -> Answer:
        return nodes.answer(node, site, state(), argv, NOW)

    assert raw("dcgmi", "diag").exit_code == 127
    assert raw().exit_code == 127
    assert raw("ethtool", "-i", "nosuch0") == Answer("", "Cannot get driver information: No such device\n", 71)
    assert raw("cat", "/etc/shadow").exit_code == 1
    assert raw("smartctl", "-j", "-a", "/dev/nvme9").exit_code == 2
    missing = raw("grep", "-H", ".", "/sys/class/infiniband/mlx5_0/fw_ver", "/sys/class/infiniband/mlx5_9/fw_ver")
    assert missing.exit_code == 2
    assert missing.stdout.startswith("/sys/class/infiniband/mlx5_0/fw_ver:")
    for program in sorted(nodes._TOOLS):
        for arguments in ((), ("--nonsense",), ("-x", "\x00", "é")):
            raw(program, *arguments)


def test_answers_are_deterministic_and_differ_between_nodes(site: Site) -> None:
    first = [nodes.answer(n, site, state(), ("nvidia-smi", "-q", "-x"), NOW).stdout for n in site.nodes]
    nodes._KEPT_NODES.built.clear()
    again = [nodes.answer(n, site, state(), ("nvidia-smi", "-q", "-x"), NOW).stdout for n in site.nodes]
    assert first == again
    assert len(set(first)) == len(site.nodes)


def test_a_node_without_gpus_nics_or_drives_lacks_their_tools(site: Site) -> None:
    old = site.nodes[0]
    sku = old.sku.model_copy(update={"gpus": 0, "nics": (), "drives": (), "nfs_mounts": ()})
    bare: Node = replace(old, sku=sku)
    for program in ("nvidia-smi", "nv-fabricmanager", "ibstat", "smartctl", "ofed_info"):
        assert nodes.answer(bare, site, state(), (program,), NOW).exit_code == 127
    assert nodes.answer(bare, site, state(), ("uname", "-r"), NOW).exit_code == 0


def test_one_process_can_play_hundreds_of_nodes(site: Site) -> None:
    argvs = [tuple(a.split()) for a in ("nvidia-smi -q -x", "ibv_devinfo -v", "lspci -Dnnvv", "ip -j -s -d link show")]
    started = time.process_time()
    for node in site.nodes:
        for argv in argvs:
            nodes.answer(node, site, state(), argv, NOW)
    # Measured at 3 ms a node; the limit leaves room for a busy machine.
    assert (time.process_time() - started) / len(site.nodes) < 0.1


def test_gpus_sit_where_the_site_file_puts_them(site: Site) -> None:
    node = site.nodes[0]
    for planned in (node.sku.gpu_pci, tuple(reversed(node.sku.gpu_pci)), ("0000:c1:00.0",), ()):
        sku = node.sku.model_copy(update={"gpu_pci": planned})
        hardware = build(replace(node, sku=sku), {}, LabState(UP))
        buses = [g.bus for g in hardware.gpus]
        assert buses[: len(planned)] == list(planned)
        everything = [*buses, *(n.bus for n in hardware.nics), *(d.bus for d in hardware.drives)]
        assert len(set(everything)) == len(everything) == sku.gpus + len(sku.nics) + len(sku.drives)
