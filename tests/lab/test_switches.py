"""What the lab's switches answer, in the check's own eyes: a healthy lab is silent, a fault is found where it is."""

from __future__ import annotations

import dataclasses
import importlib.util
import time
from datetime import timedelta
from pathlib import Path
from types import ModuleType

import pytest

from fabric_health.checks.check import Context, RowSet
from fabric_health.checks.switch_config import SWITCH_CONFIG
from fabric_health.datasets.tables import Fact, FindingKind
from fabric_health.evidence import CommandStatus, ReachStatus, StoredEvidence
from fabric_health.lab.state import LabState
from fabric_health.lab.switches import answer, render_config
from fabric_health.site import Site, load_site


def _load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


play = _load("switch_lab")
UNITS = {
    "leaf-1": ("swp3", "swp5", "swp33"),
    "leaf-2": ("Ethernet32", "Ethernet128", "Ethernet256"),
    "leaf-3": ("Ethernet3/1", "Ethernet5/1", "Ethernet33/1"),
    "leaf-4": ("Ethernet1/3", "Ethernet1/5", "Ethernet1/33"),
    "spine-1": ("Eth1/3", "Eth1/5", "Eth1/4"),
    "spine-2": ("Ethernet3/1", "Ethernet5/1", "Ethernet4/1"),
}


@pytest.fixture(scope="module")
def site() -> Site:
    return load_site(play.LAB)


@pytest.fixture(scope="module")
def before(site: Site) -> tuple[RowSet, object]:
    rows, findings = play.judged(site, play.state(), play.BEFORE)
    assert findings == []
    return rows, play.BEFORE


@pytest.mark.parametrize("status", [CommandStatus.TIMEOUT, CommandStatus.TRUNCATED, CommandStatus.NOT_RUN])
def test_an_answer_that_did_not_end_is_never_a_pass(site: Site, status: CommandStatus) -> None:
    for switch in site.switches:
        asked = play.collect(site, switch, play.state(), play.NOW)
        for n, result in enumerate(asked.results):
            if result.name not in ("running_config", "interfaces"):
                continue
            cut = dataclasses.replace(result, status=status, exit_code=None, stdout=result.stdout[: 10 * n])
            some = dataclasses.replace(asked, results=(*asked.results[:n], cut, *asked.results[n + 1 :]))
            rows = RowSet.gather(SWITCH_CONFIG.parse(switch, some, site))
            ref = StoredEvidence(switch.name, switch.name, "0" * 64, ReachStatus.PARTIAL)
            context = Context(site, "run", play.NOW, (switch,), {switch.name: ref})
            found = SWITCH_CONFIG.judge(rows, context)
            assert any(f.metric == result.name and f.severity == "warning" for f in found), (switch.name, result.name)
            assert {f.kind for f in found} == {FindingKind.NOT_JUDGED}


def test_every_command_of_the_check_is_answered(site: Site) -> None:
    for switch in site.switches:
        for result in play.collect(site, switch, play.state(), play.NOW).results:
            assert result.exit_code == 0, (switch.name, result.name, result.stdout, result.stderr)
            assert result.stdout.strip(), (switch.name, result.name)
            assert result.stderr == ""


def test_healthy_ports_show_what_the_site_file_wants(site: Site) -> None:
    ports = play.ports(play.parsed(site, play.state(), play.NOW))
    for switch in site.switches:
        for cable in site.cables_of(switch.name):
            port = ports[switch.port_unit(cable.port)]
            profile = cable.profile
            assert port.admin_up is True
            assert port.oper_up is True
            assert (port.speed_gbps, port.fec, port.vlan) == (profile.speed_gbps, profile.fec, profile.vlan)
            assert port.mtu_bytes in (9216, 9214)
            assert port.pfc_priorities == "3"
            assert port.ecn is True
            assert port.neighbor == cable.peer
            assert None not in (port.rx_packets, port.tx_packets, port.rx_errors, port.rx_pause_frames)


@pytest.mark.parametrize("days", [0, 7])
def test_a_healthy_lab_gives_no_finding_the_second_time_either(
    site: Site, before: tuple[RowSet, object], days: int
) -> None:
    now = play.BEFORE + timedelta(days=days, minutes=1)
    rows, findings = play.judged(site, play.state(), now, before)
    assert findings == []
    assert rows.of(Fact)


def _found(site: Site, before: tuple[RowSet, object], *faults: tuple[str, str, str | None]) -> set[tuple[str, str]]:
    """Return (unit, rule) of the findings that stand for themselves."""
    _, findings = play.judged(site, play.state(*faults), play.NOW, before)
    assert all(f.kind == FindingKind.DEVIATION for f in findings)
    return {(f.unit, f.rule) for f in findings if f.explained_by is None}


@pytest.mark.parametrize("switch", UNITS)
@pytest.mark.parametrize(
    ("kind", "value", "rule"),
    [
        ("switch-mtu", "1500", "port_mtu"),
        ("switch-mtu", "8000", "port_mtu"),
        ("switch-pfc", None, "port_pfc"),
        ("port-down", None, "port_admin_up"),
        ("port-errors", "0.001", "port_error_ratio"),
    ],
)
def test_a_fault_on_a_port_is_found_there(
    site: Site, before: tuple[RowSet, object], switch: str, kind: str, value: str | None, rule: str
) -> None:
    port = UNITS[switch][0]
    unit = f"{switch}/{port}"
    found = _found(site, before, (kind, unit, value))
    assert found == {(unit, rule)}


@pytest.mark.parametrize("switch", UNITS)
def test_a_port_at_another_speed_is_found(site: Site, before: tuple[RowSet, object], switch: str) -> None:
    unit = f"{switch}/{UNITS[switch][0]}"
    assert _found(site, before, ("port-speed", unit, "200")) == {(unit, "port_speed")}


@pytest.mark.parametrize("switch", UNITS)
def test_an_acl_line_is_found_on_its_switch(site: Site, before: tuple[RowSet, object], switch: str) -> None:
    assert _found(site, before, ("acl-line", switch, None)) == {(switch, "config_equals_golden")}


@pytest.mark.parametrize("switch", ["leaf-1", "leaf-2", "leaf-3", "leaf-4"])
def test_swapped_cables_are_found_on_both_ports(site: Site, before: tuple[RowSet, object], switch: str) -> None:
    first, second, _ = UNITS[switch]
    found = _found(site, before, ("miscabled", f"{switch}/{first}", second))
    assert found == {(f"{switch}/{first}", "port_neighbor"), (f"{switch}/{second}", "port_neighbor")}


def test_a_swap_without_a_value_takes_the_next_port(site: Site) -> None:
    ports = play.ports(play.parsed(site, play.state(("miscabled", "leaf-2/Ethernet32", None)), play.NOW))
    assert ports["leaf-2/Ethernet32"].neighbor == "gpu-006"
    assert ports["leaf-2/Ethernet40"].neighbor == "gpu-005"


def test_swapped_uplinks_are_seen_from_the_far_ends_too(site: Site) -> None:
    ports = play.ports(play.parsed(site, play.state(("miscabled", "leaf-1/swp33", "swp35")), play.NOW))
    assert (ports["leaf-1/swp33"].neighbor, ports["leaf-1/swp35"].neighbor) == ("spine-2", "spine-1")
    assert (ports["spine-1/Eth1/1"].neighbor, ports["spine-1/Eth1/1"].neighbor_port) == ("leaf-1", "swp35")
    assert (ports["spine-2/Ethernet1/1"].neighbor, ports["spine-2/Ethernet1/1"].neighbor_port) == ("leaf-1", "swp33")


@pytest.mark.parametrize("switch", ["leaf-1", "leaf-2", "leaf-3", "leaf-4"])
def test_a_nic_that_is_down_takes_its_port_down_but_not_administratively(site: Site, switch: str) -> None:
    cable = next(c for c in site.cables_of(switch) if c.port == UNITS[switch][0])
    lab = play.state(("nic-down", f"{cable.peer}/{cable.peer_port}", None))
    healthy, ports = (play.ports(play.parsed(site, s, play.NOW)) for s in (play.state(), lab))
    unit = f"{switch}/{cable.port}"
    assert (ports[unit].admin_up, ports[unit].oper_up, ports[unit].neighbor) == (True, False, None)
    assert {u for u in ports if ports[u] != healthy[u]} == {unit}


def test_a_link_between_switches_is_down_on_both_ends(site: Site) -> None:
    ports = play.ports(play.parsed(site, play.state(("port-down", "spine-1/Eth1/3", None)), play.NOW))
    near, far = ports["spine-1/Eth1/3"], ports["leaf-2/Ethernet256"]
    assert (near.admin_up, near.oper_up) == (False, False)
    assert (far.admin_up, far.oper_up) == (True, False)


def test_a_link_between_switches_runs_at_the_slower_end(site: Site) -> None:
    ports = play.ports(play.parsed(site, play.state(("port-speed", "spine-2/Ethernet3/1", "200")), play.NOW))
    assert (ports["spine-2/Ethernet3/1"].speed_gbps, ports["leaf-2/Ethernet272"].speed_gbps) == (200, 200)


def test_five_faults_at_once_are_told_apart(site: Site, before: tuple[RowSet, object]) -> None:
    faults: tuple[tuple[str, str, str | None], ...] = (
        ("switch-mtu", "leaf-2/Ethernet32", "1500"),
        ("switch-pfc", "leaf-3/Ethernet7/1", None),
        ("port-errors", "leaf-4/Ethernet1/9", "0.001"),
        ("acl-line", "spine-2", None),
        ("miscabled", "leaf-1/swp3", "swp5"),
    )
    assert _found(site, before, *faults) == {
        ("leaf-2/Ethernet32", "port_mtu"),
        ("leaf-3/Ethernet7/1", "port_pfc"),
        ("leaf-4/Ethernet1/9", "port_error_ratio"),
        ("spine-2", "config_equals_golden"),
        ("leaf-1/swp3", "port_neighbor"),
        ("leaf-1/swp5", "port_neighbor"),
    }


def test_counters_grow_with_time_and_stop_when_the_link_goes_down(site: Site) -> None:
    unit = "leaf-2/Ethernet32"
    early, late = (play.ports(play.parsed(site, play.state(), t))[unit] for t in (play.BEFORE, play.NOW))
    assert early.rx_packets < late.rx_packets
    assert early.rx_errors == late.rx_errors
    down = play.state(("port-down", unit, None))
    first, second = (play.ports(play.parsed(site, down, play.NOW + timedelta(hours=h)))[unit] for h in (0, 9))
    assert first.rx_packets == second.rx_packets
    assert early.rx_packets < first.rx_packets < late.rx_packets


def test_answers_only_depend_on_the_arguments(site: Site) -> None:
    again = load_site(play.LAB)
    for switch in site.switches:
        lab = play.state(("switch-mtu", f"{switch.name}/{UNITS[switch.name][0]}", "1500"))
        assert play.collect(site, switch, lab, play.NOW) == play.collect(again, switch, lab, play.NOW)


def test_answers_of_a_large_site_are_fast(site: Site) -> None:
    switch = site.switches[0]
    template = site.cables_of(switch.name)[0]
    for platform, name in (
        ("cumulus", "swp{}"),
        ("sonic", "Ethernet{}"),
        ("eos", "Ethernet{}/1"),
        ("nxos", "Ethernet1/{}"),
    ):
        switches = tuple(dataclasses.replace(switch, name=f"sw-{i}", platform=platform) for i in range(200))
        cables = tuple(
            dataclasses.replace(template, switch=s.name, port=name.format(8 * p), peer="gpu-001", peer_port="mlx5_0")
            for s in switches
            for p in range(1, 65)
        )
        large = dataclasses.replace(site, switches=switches, cables=cables)
        commands = SWITCH_CONFIG.commands(switches[7], large)
        answer(switches[0], large, play.state(), "show version", play.NOW)
        start = time.process_time()
        for c in commands:
            assert answer(switches[7], large, play.state(), " ".join(c.argv), play.NOW).exit_code == 0
        # 20 ms is the aim on an idle machine; the factor keeps a busy one from failing.
        assert time.process_time() - start < 0.1, platform


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("pfc_priorities: [3]", "pfc_priorities: [3, 4]"),
        ("pfc_priorities: [3]", "pfc_priorities: []"),
        ("speed_gbps: 400, mtu_bytes: 9216, fec: rs, pfc_priorities: [3], ecn: true", "speed_gbps: 100, fec: fc"),
        ("ecn: true", "ecn: false"),
        ("vlan: 100", "vlan: 710"),
        ("netdev: enp24s0np0, ", ""),
    ],
)
def test_another_site_is_healthy_too(tmp_path: Path, old: str, new: str) -> None:
    text = play.LAB.read_text().replace(', golden: "golden/{name}.cfg"', "")
    assert old in text
    path = tmp_path / "other.yaml"
    path.write_text(text.replace(old, new))
    other = load_site(path)
    _, findings = play.judged(other, play.state(), play.NOW)
    assert {(f.unit, f.severity) for f in findings} == {(s.name, "info") for s in other.switches}  # no golden config


def test_a_config_shows_the_time_only_in_its_header(site: Site) -> None:
    for switch in site.switches:
        a, b = (render_config(switch, site, play.state(), t).splitlines() for t in (play.BEFORE, play.NOW))
        assert len(a) == len(b)
        changed = [x for x, y in zip(a, b, strict=True) if x != y]
        assert len(changed) <= 2
        assert all(x.startswith(("!Time", "!Running", "## Generated")) for x in changed)


def test_a_lab_that_has_just_come_up_answers_too(site: Site) -> None:
    lab = LabState(play.NOW + timedelta(seconds=5))
    for switch in site.switches:
        assert all(r.exit_code == 0 for r in play.collect(site, switch, lab, play.NOW).results)
