"""The lab as a whole: a real process that plays every unit over real SSH, started, changed and stopped."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fabric_health import connections
from fabric_health.errors import LabError, UsageError
from fabric_health.evidence import Command, CommandStatus, ReachStatus, UnitEvidence
from fabric_health.lab import lab
from fabric_health.lab.place import Place, ServerRecord
from fabric_health.reach import UnitRequest, collect
from fabric_health.site import Site, load_site

SITE = """
site: tiny
title: A lab of three units
origin: lab
reach:
  quick: {kind: ssh, connection: lab_ssh, unit_timeout_s: 3, connect_timeout_s: 2}
skus:
  one-nic:
    gpu_model: NVIDIA H100 80GB HBM3
    gpus: 2
    link_layer: Ethernet
    nic_rate_gbps: 400
    netdev_mtu_bytes: 9000
    nics: [{name: mlx5_0, rail: 0, netdev: ens1np0, pci: "0000:18:00.0", psid: MT_0000000838, gpu: 0}]
    nic_firmware: {MT_0000000838: 28.43.2026}
    expected: {driver_version: 580.126.09}
nodes:
  - {names: "n[1-2]", sku: one-nic, rack: r1, reach: quick, address: "127.11.SUBNET.[1-2]"}
switches:
  - {names: sw1, platform: eos, reach: quick, address: 127.11.SUBNET.9}
port_profiles:
  gpu: {speed_gbps: 400, mtu_bytes: 9216}
cabling:
  - {switch: sw1, ports: "Ethernet[1-2]/1", profile: gpu, nodes: "n[1-2]", nic: mlx5_0}
"""
UNAME = (Command("uname", ("uname", "-r")), Command("nothing", ("no-such-tool",)))
VERSION = (Command("version", ("show version | json",)), Command("odd", ("show nonsense",)))


@pytest.fixture(scope="module")
def site_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("site") / "tiny.yaml"
    path.write_text(SITE.replace("SUBNET", str(os.getpid() % 200)))
    return path


@pytest.fixture(scope="module")
def home(site_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("home")
    lab.up(site_path, folder)
    yield folder
    lab.down(folder)


@pytest.fixture
def healthy(home: Path) -> Iterator[Path]:
    yield home
    lab.heal(home)


def source(home: Path) -> connections.ConnectionSource:
    entries = json.loads((home / "connections.json").read_text())
    return lambda conn_id: connections.parse(conn_id, "test", entries[conn_id])


def ask(site_path: Path, home: Path) -> dict[str, UnitEvidence]:
    site = load_site(site_path)
    requests = [
        *(UnitRequest(n, "driver_firmware", UNAME) for n in site.nodes),
        *(UnitRequest(s, "switch_config", VERSION) for s in site.switches),
    ]
    got: list[UnitEvidence] = []
    collect(requests, source(home), got.append)
    return {e.unit: e for e in got}


def test_every_unit_answers_over_ssh_in_its_own_way(site_path: Path, home: Path) -> None:
    got = ask(site_path, home)
    assert {u: (e.status, e.detail) for u, e in got.items()} == dict.fromkeys(("n1", "n2", "sw1"), (ReachStatus.OK, ""))
    uname, nothing = got["n1"].results
    assert (uname.status, uname.exit_code) == (CommandStatus.EXITED, 0)
    assert uname.stdout.strip()
    assert (nothing.status, nothing.exit_code) == (CommandStatus.NOT_INSTALLED, 127)
    version, odd = got["sw1"].results
    assert json.loads(version.stdout)["version"]
    assert "Invalid input" in odd.stdout + odd.stderr


def test_each_unit_has_its_own_host_key(site_path: Path, home: Path) -> None:
    keys = {line.split()[0]: line.split()[2] for line in Place(home).known_hosts.read_text().splitlines()}
    assert len(keys) == len(set(keys.values())) == 3
    known_hosts = Place(home).known_hosts
    original = known_hosts.read_text()
    lines = original.splitlines()
    swapped = [f"{a.split()[0]} {b.split(' ', 1)[1]}" for a, b in zip(lines, [*lines[1:], lines[0]], strict=True)]
    try:
        known_hosts.write_text("\n".join(swapped) + "\n")
        assert {e.status for e in ask(site_path, home).values()} == {ReachStatus.HOST_KEY_MISMATCH}
    finally:
        known_hosts.write_text(original)


def test_only_the_lab_key_opens_the_door(site_path: Path, home: Path) -> None:
    entries = json.loads((home / "connections.json").read_text())
    entry = entries["lab_ssh"]
    stranger = {**entry, "login": "root"}
    got: list[UnitEvidence] = []
    request = UnitRequest(load_site(site_path).nodes[0], "driver_firmware", UNAME)
    collect([request], lambda conn_id: connections.parse(conn_id, "test", stranger), got.append)
    assert got[0].status is ReachStatus.AUTH_FAILED


def test_up_again_changes_nothing(site_path: Path, home: Path) -> None:
    before = lab.status(home)
    assert before is not None
    assert lab.up(site_path, home) == before
    assert before.units == 3
    assert before.key_file.is_file()


def test_files_are_for_the_owner_only(home: Path) -> None:
    place = Place(home)
    for path in (place.client_key, home / "connections.json", *place.host_keys.iterdir()):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path


def test_unreachable_and_hanging_take_effect_at_once_and_heal(site_path: Path, healthy: Path) -> None:
    lab.add_fault(healthy, "node-unreachable", "n1")
    lab.add_fault(healthy, "node-hanging", "n2")
    began = time.monotonic()
    got = ask(site_path, healthy)
    assert time.monotonic() - began < 3 + 2.5, "the unit limit is 3 s"
    assert got["n1"].status is ReachStatus.REFUSED
    assert got["n2"].status is ReachStatus.HUNG
    assert {r.status for u in ("n1", "n2") for r in got[u].results} == {CommandStatus.NOT_RUN}
    assert got["sw1"].status is ReachStatus.OK
    assert lab.heal(healthy, unit="n1") == 1
    assert lab.heal(healthy, kind="node-hanging") == 1
    assert {e.status for e in ask(site_path, healthy).values()} == {ReachStatus.OK}


def test_up_while_a_node_is_unreachable(site_path: Path, healthy: Path) -> None:
    lab.add_fault(healthy, "node-unreachable", "n1")
    assert [f.unit for f in lab.up(site_path, healthy).faults] == ["n1"]


def test_the_same_fault_again_replaces_the_first(healthy: Path) -> None:
    lab.add_fault(healthy, "driver-version", "n1")
    lab.add_fault(healthy, "driver-version", "n1", "570.1")
    lab.add_fault(healthy, "switch-mtu", "sw1/Ethernet1/1")
    info = lab.status(healthy)
    assert info is not None
    assert [(f.kind, f.unit, f.value) for f in info.faults] == [
        ("driver-version", "n1", "570.1"),
        ("switch-mtu", "sw1/Ethernet1/1", "1500"),
    ]
    assert lab.heal(healthy, unit="sw1") == 1, "a part of the unit is healed with it"
    assert lab.heal(healthy, unit="n2") == 0
    assert lab.heal(healthy) == 1


@pytest.mark.parametrize(
    ("kind", "unit", "value", "message"),
    [
        ("drivr-version", "n1", None, "nearest: driver-version"),
        ("driver-version", "n3", None, "no unit .n3."),
        ("driver-version", "sw1", None, "sits on a node; sw1 is a switch"),
        ("driver-version", "n1/gpu0", None, "whole node"),
        ("nic-down", "n1", None, "needs a nic"),
        ("nic-down", "n1/mlx5_7", None, "nearest: mlx5_0"),
        ("pcie-degraded", "n1/gpu2", None, "nearest: gpu"),
        ("switch-mtu", "sw1/Ethernet9/1", None, "nearest: Ethernet"),
        ("switch-mtu", "sw1/Ethernet1/1", "big", "MTU in bytes"),
        ("switch-mtu", "sw1/Ethernet1/1", "99999999999999", "MTU in bytes"),
        ("pcie-degraded", "n1/gpu0", "3", "lanes"),
        ("port-speed", "sw1/Ethernet1/1", "nan", "speed in Gb/s"),
        ("port-errors", "sw1/Ethernet1/1", "2", "errors per packet"),
        ("driver-version", "n1", "x; reboot", "driver version"),
        ("nic-down", "n1/mlx5_0", "yes", "takes no value"),
        ("miscabled", "sw1/Ethernet1/1", None, "needs a value"),
        ("miscabled", "sw1/Ethernet1/1", "Ethernet1/1", "Ethernet2/1"),
    ],
)
def test_faults_that_make_no_sense_are_refused(
    home: Path, kind: str, unit: str, value: str | None, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        lab.add_fault(home, kind, unit, value)
    info = lab.status(home)
    assert info is not None
    assert info.faults == ()


def test_the_other_port_may_be_given_in_full(healthy: Path) -> None:
    assert lab.add_fault(healthy, "miscabled", "sw1/Ethernet1/1", "sw1/Ethernet2/1").value == "Ethernet2/1"


def test_a_switch_has_a_shell_for_people(site_path: Path, home: Path) -> None:
    netmiko = pytest.importorskip("netmiko")
    info, switch = lab.status(home), load_site(site_path).switches[0]
    assert info is not None
    with netmiko.ConnectHandler(
        device_type="arista_eos",
        host=switch.address,
        port=info.port,
        username="fabric",
        use_keys=True,
        key_file=str(info.key_file),
    ) as shell:
        assert json.loads(shell.send_command("show version | json"))["version"]


def test_another_site_in_the_same_home_is_refused(site_path: Path, home: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.yaml"
    other.write_text(site_path.read_text().replace("site: tiny", "site: other"))
    with pytest.raises(LabError, match="stop it first"):
        lab.up(other, home)


def test_a_life_from_up_to_down_leaves_nothing_and_keeps_other_connections(site_path: Path, tmp_path: Path) -> None:
    connections.save(
        tmp_path / "connections.json",
        {"s3": connections.Connection("s3", "127.0.0.1", 9000, "key", "secret", {"conn_type": "aws"})},
    )
    kept = (tmp_path / "connections.json").read_text()
    info = lab.up(site_path, tmp_path)
    entries = json.loads((tmp_path / "connections.json").read_text())
    assert entries["s3"] == json.loads(kept)["s3"]
    assert entries["lab_ssh"]["conn_type"] == "ssh"
    assert lab.down(tmp_path) is True
    assert not Path(f"/proc/{info.pid}").exists()
    assert (tmp_path / "connections.json").read_text() == kept
    assert os.listdir(tmp_path) == ["connections.json"]
    assert lab.status(tmp_path) is None
    assert lab.down(tmp_path) is False
    with pytest.raises(LabError, match="no lab is running"):
        lab.heal(tmp_path)


def test_a_taken_port(site_path: Path, tmp_path: Path) -> None:
    site = load_site(site_path)
    with socket.socket() as s:
        s.bind((site.switches[0].address, 0))
        s.listen()
        port = s.getsockname()[1]
        with pytest.raises(LabError, match=f"port {port} is free"):
            lab.up(site_path, tmp_path, port)
    lab.down(tmp_path)


def test_two_labs_of_one_site_take_different_ports(site_path: Path, home: Path, tmp_path: Path) -> None:
    first, second = lab.status(home), lab.up(site_path, tmp_path)
    try:
        assert first is not None
        assert first.port != second.port
        assert {e.status for e in ask(site_path, tmp_path).values()} == {ReachStatus.OK}
    finally:
        lab.down(tmp_path)


def test_a_killed_server_is_started_again_with_its_faults_and_keys(site_path: Path, tmp_path: Path) -> None:
    first = lab.up(site_path, tmp_path)
    key = first.key_file.read_text()
    lab.add_fault(tmp_path, "driver-version", "n1")
    os.kill(first.pid, signal.SIGKILL)
    os.waitpid(first.pid, 0)
    assert lab.status(tmp_path) is None
    second = lab.up(site_path, tmp_path)
    try:
        assert second.pid != first.pid
        assert [f.kind for f in second.faults] == ["driver-version"]
        assert second.key_file.read_text() == key
    finally:
        lab.down(tmp_path)


def test_a_recycled_process_number_is_not_taken_for_the_server(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "60"]) as innocent:
        place = Place(tmp_path)
        place.root.mkdir()
        ServerRecord(innocent.pid, 1, 2222, "/no/site.yaml", "0" * 64).save(place.server)
        assert lab.status(tmp_path) is None
        lab.down(tmp_path)
        assert innocent.poll() is None
        innocent.kill()


def test_a_server_whose_home_is_removed_ends_itself(site_path: Path, tmp_path: Path) -> None:
    import shutil

    info = lab.up(site_path, tmp_path)
    shutil.rmtree(Place(tmp_path).root)
    end = time.monotonic() + 15
    while time.monotonic() < end and os.waitpid(info.pid, os.WNOHANG) == (0, 0):
        time.sleep(0.1)
    assert not Path(f"/proc/{info.pid}").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("origin: lab", "origin: measured"), "origin is 'measured'"),
        (("127.11.", "192.0."), "expected a loopback address"),
        ((".9}", ".1}"), "share"),
        (("lab_ssh", "prod_ssh"), "connection lab_ssh"),
    ],
)
def test_a_site_that_is_no_lab_is_never_played(site_path: Path, tmp_path: Path, change, message: str) -> None:
    path = tmp_path / "site.yaml"
    path.write_text(site_path.read_text().replace(*change))
    with pytest.raises(LabError, match=message):
        lab.up(path, tmp_path / "home")
    assert not (tmp_path / "home").exists()


def test_the_log_tells_why_a_start_failed(site_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lab, "own_environment", lambda: {**os.environ, "PYTHONPATH": "", "PYTHONHOME": "/nowhere"})
    with pytest.raises(LabError, match=r"(?s)did not get ready.*server\.log:\n.+"):
        lab.up(site_path, tmp_path)
    lab.down(tmp_path)


def test_the_planted_faults_fit_the_lab_that_ships() -> None:
    from fabric_health.lab.faults import PLANTED
    from fabric_health.lab.state import now
    from fabric_health.lab.validation import check_site, checked_fault

    site: Site = load_site(Path(__file__).parents[2] / "include" / "sites" / "lab.yaml")
    check_site(site)
    assert [checked_fault(site, *planted, now()).kind for planted in PLANTED] == [p[0] for p in PLANTED]
