"""Ports as each platform shows them: healthy and old formats, and what is no answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fabric_health.checks.switch_config import SWITCH_CONFIG
from fabric_health.checks.switch_config.commands import SOURCES, commands
from fabric_health.checks.switch_config.tables import SwitchConfig, SwitchPort
from fabric_health.datasets.contracts import columns
from fabric_health.datasets.tables import Fact
from fabric_health.evidence import CommandStatus
from fabric_health.site import Site, Switch

PLATFORMS = ("cumulus", "sonic", "onyx", "eos", "nxos")
Read = Callable[..., tuple[dict[str, SwitchPort], dict[str, Fact]]]


@pytest.fixture(scope="session")
def read(ports_site: Site, evidence_of: Callable[..., object]) -> Read:
    def parse(platform: str, answers: dict[str, str], **how: object) -> tuple[dict[str, SwitchPort], dict[str, Fact]]:
        switch = ports_site.unit(f"{platform}-1")
        rows = SWITCH_CONFIG.parse(switch, evidence_of(switch, answers, **how), ports_site)
        ports = {r.port: r for r in rows if isinstance(r, SwitchPort)}
        return ports, {r.attribute: r for r in rows if isinstance(r, Fact)}

    return parse


FIRST = {"cumulus": "swp1", "sonic": "Ethernet0", "onyx": "Eth1/1", "eos": "Ethernet1/1", "nxos": "Ethernet1/1"}
SECOND = {"cumulus": "swp2", "sonic": "Ethernet8", "onyx": "Eth1/2", "eos": "Ethernet2/1", "nxos": "Ethernet1/2"}
THIRD = {"cumulus": "swp3", "sonic": "Ethernet16", "onyx": "Eth1/3", "eos": "Ethernet3/1", "nxos": "Ethernet1/3"}
DOWN = {"cumulus": "swp4", "sonic": "Ethernet24", "onyx": "Eth1/4", "eos": "Ethernet4/1", "nxos": "Ethernet1/4"}
NETDEV = {"cumulus": "ens1np0", "sonic": "ens2np0", "onyx": "ens3np0", "eos": "ens4np0", "nxos": "ens5np0"}


@pytest.mark.parametrize("platform", PLATFORMS)
def test_a_healthy_gpu_port_shows_every_column(platform: str, read: Read, recorded: Callable[..., dict]) -> None:
    ports, facts = read(platform, recorded(platform))
    port = ports[FIRST[platform]]
    assert (port.admin_up, port.oper_up, port.speed_gbps, port.fec) == (True, True, 400.0, "rs")
    assert port.mtu_bytes == (9214 if platform == "eos" else 9216)
    assert (port.pfc_priorities, port.ecn, port.vlan) == ("3", True, 100)
    assert (port.neighbor, port.neighbor_port) == ("gpu-001", NETDEV[platform])
    assert (port.rx_packets, port.tx_packets, port.rx_errors, port.tx_errors) == (1_000_000, 2_000_000, 3, 0)
    assert (port.rx_discards, port.tx_discards) == (2, 1)
    assert (port.rx_pause_frames, port.tx_pause_frames) == (1200, 905)
    assert port.carrier_transitions == (4 if platform in ("cumulus", "eos") else None)
    assert not [f for f in facts if f.startswith("answer:")]
    assert all(facts[a].value for a in ("os_version", "model", "serial"))


def test_onyx_is_named_by_the_head_of_its_config(read: Read, recorded: Callable[..., dict]) -> None:
    answers = recorded("onyx")
    fact = read("onyx", answers)[1]["hostname"]
    assert (fact.state, fact.value, fact.command) == ("value", "onyx-1", "running_config")
    config = answers["running_config"]
    for bad in (
        config.replace("## Hostname: onyx-1\n", ""),
        config.replace("## Hostname: onyx-1\n", "## Hostname:\n"),
        config[:-1] + "--More--",
        "## Hostname: onyx-1\n% Invalid command\n",
        "",
    ):
        fact = read("onyx", answers | {"running_config": bad})[1]["hostname"]
        assert (fact.state, fact.value) == ("error", None), bad
        assert fact.detail


@pytest.mark.parametrize("platform", PLATFORMS)
def test_only_front_ports_become_rows(platform: str, read: Read, recorded: Callable[..., dict]) -> None:
    ports, _ = read(platform, recorded(platform))
    assert set(ports) == {FIRST[platform], SECOND[platform], THIRD[platform], DOWN[platform]}


@pytest.mark.parametrize("platform", PLATFORMS)
def test_a_port_that_is_shut_down(platform: str, read: Read, recorded: Callable[..., dict]) -> None:
    port = read(platform, recorded(platform))[0][DOWN[platform]]
    assert (port.admin_up, port.oper_up) == (False, False)


def test_neighbours_that_are_not_plain(read: Read, recorded: Callable[..., dict]) -> None:
    def neighbor(platform: str, port: str) -> tuple[str | None, str | None]:
        row = read(platform, recorded(platform))[0][port]
        return row.neighbor, row.neighbor_port

    # A MAC as port id with the netdev as description, and the same NIC's two LLDP agents.
    assert neighbor("cumulus", "swp2") == ("gpu-002", "ens1np0")
    assert neighbor("sonic", "Ethernet8") == ("gpu-002", "mlx5_1")
    # A SONiC peer announces its alias first, its name as description.
    assert neighbor("cumulus", "swp3") == ("sonic-1", "Ethernet16")
    # Nothing but MACs: no system name, so nothing to compare.
    assert neighbor("onyx", "Eth1/2") == (None, "b8:59:9f:00:00:04")
    assert neighbor("onyx", "Eth1/3") == ("lin-nd3-ds5000", "fortyGigE 0/52")
    # Free text in the description is no port name.
    assert neighbor("eos", "Ethernet2/1") == ("gpu-002", "b859.9f00.0006")
    assert neighbor("eos", "Ethernet4/1") == (None, None)


def test_what_is_not_shown_is_null_not_zero(read: Read, recorded: Callable[..., dict]) -> None:
    sonic = read("sonic", recorded("sonic"))[0]
    assert sonic["Ethernet8"].rx_packets is None
    assert sonic["Ethernet8"].rx_errors is None
    assert sonic["Ethernet8"].rx_pause_frames is None
    assert sonic["Ethernet16"].rx_pause_frames == 8
    assert sonic["Ethernet24"].fec is None
    assert sonic["Ethernet24"].pfc_priorities == ""
    assert sonic["Ethernet16"].vlan is None
    onyx = read("onyx", recorded("onyx"))[0]
    assert onyx["Eth1/2"].fec == "rs"  # `auto` shows nothing: the override line does
    assert onyx["Eth1/4"].speed_gbps is None
    assert (onyx["Eth1/4"].pfc_priorities, onyx["Eth1/4"].ecn) == ("", False)
    eos = read("eos", recorded("eos"))[0]
    assert [eos[p].fec for p in ("Ethernet2/1", "Ethernet3/1", "Ethernet4/1")] == ["fc", "none", None]
    assert [eos[p].pfc_priorities for p in ("Ethernet2/1", "Ethernet3/1", "Ethernet4/1")] == ["3,4", "", None]
    assert [eos[p].ecn for p in ("Ethernet2/1", "Ethernet3/1")] == [True, False]
    assert eos["Ethernet2/1"].vlan is None
    nxos = read("nxos", recorded("nxos"))[0]
    assert [nxos[p].pfc_priorities for p in ("Ethernet1/2", "Ethernet1/3", "Ethernet1/4")] == ["", "3", "3,4"]
    assert [nxos[p].ecn for p in ("Ethernet1/2", "Ethernet1/3")] == [False, True]
    assert [nxos[p].speed_gbps for p in ("Ethernet1/2", "Ethernet1/4")] == [400.0, 400.0]
    assert [nxos[p].fec for p in ("Ethernet1/2", "Ethernet1/3", "Ethernet1/4")] == [None, "fc", "none"]


def test_old_releases(read: Read, recorded: Callable[..., dict]) -> None:
    port = read("cumulus", recorded("cumulus", "old"))[0]["swp1"]
    assert (port.admin_up, port.oper_up, port.mtu_bytes, port.rx_packets) == (True, True, 9216, 2371)
    assert (port.speed_gbps, port.fec) == (None, None)
    assert (port.pfc_priorities, port.ecn, port.vlan, port.neighbor) == ("3", True, 100, "gpu-001")
    port = read("onyx", recorded("onyx", "old"))[0]["Eth1/1"]
    assert (port.admin_up, port.oper_up, port.speed_gbps, port.mtu_bytes) == (True, True, 100.0, 1500)
    assert (port.fec, port.pfc_priorities) == ("rs", "3")
    ports = read("nxos", recorded("nxos", "old"))[0]
    port = ports["Ethernet1/1"]
    assert (port.speed_gbps, port.mtu_bytes, port.pfc_priorities, port.rx_pause_frames) == (400.0, 9216, "3", 1200)
    assert (port.neighbor, port.neighbor_port) == ("gpu-001", "ens5np0")
    answers = recorded("eos", "old") | {"interfaces": "% Invalid input\n"}
    ports = read("eos", answers)[0]
    assert [(ports[p].admin_up, ports[p].oper_up) for p in ("Ethernet1/1", "Ethernet2/1")] == [(True, False)] * 2


def test_breakout_and_alias_names(read: Read, recorded: Callable[..., dict]) -> None:
    answers = recorded("sonic")
    answers["interfaces"] = answers["interfaces"].replace("  Ethernet0 ", "       etp1 ")
    assert read("sonic", answers)[0]["Ethernet0"].speed_gbps == 400.0
    answers = recorded("cumulus")
    answers["interfaces"] = answers["interfaces"].replace('"swp3"', '"swp3s1"')
    assert "swp3s1" in read("cumulus", answers)[0]


RUBBISH = {
    "empty": "",
    "error": "% Invalid command at '^' marker.\n",
    "refused": "% Invalid input (privileged mode required)\n",
    "shell": "-bash: show: command not found\n",
    "html": "<!DOCTYPE html><html><body>Service Unavailable</body></html>\n",
    "pager": "Port  Status\n--More--",
    "banner": "*** Authorised users only ***\n",
    "scalar": "42\n",
    "list": "[[1], null, {}]\n",
    "deep": "[" * 100_000,
    "escape": "\x1b[2J\x1b[31mEthernet0 400G up\x1b[0m\n",
    "long line": "Ethernet0 " * 200_000 + "\n",
    "infinity": '{"interfaces": {"Ethernet1/1": {"interfaceStatus": "connected", "bandwidth": Infinity}}}\n',
}


@pytest.mark.parametrize("kind", RUBBISH)
@pytest.mark.parametrize("platform", PLATFORMS)
def test_no_answer_gives_nulls_and_says_why(
    platform: str, kind: str, read: Read, recorded: Callable[..., dict]
) -> None:
    healthy = recorded(platform)
    truth = read(platform, healthy)[0]
    for command in healthy:
        ports, facts = read(platform, healthy | {command: RUBBISH[kind]})
        assert f"answer:{command}" in facts, command
        assert facts[f"answer:{command}"].state == "error"
        assert facts[f"answer:{command}"].detail
        assert_no_wrong_value(ports, truth)


@pytest.mark.parametrize("platform", PLATFORMS)
def test_a_failed_command_is_not_read(platform: str, read: Read, recorded: Callable[..., dict]) -> None:
    answers = recorded(platform)
    for how in (
        {"exit_code": 1, "stderr": "sudo: a password is required"},
        {"status": CommandStatus.TIMEOUT, "exit_code": None},
        {"status": CommandStatus.TRUNCATED, "exit_code": None},
    ):
        ports, facts = read(platform, answers, **how)
        assert not ports
        assert f"answer:{SOURCES[platform]['state'][0]}" in facts


@pytest.mark.parametrize("platform", PLATFORMS)
def test_no_exit_status_is_no_failure(platform: str, read: Read, recorded: Callable[..., dict]) -> None:
    assert read(platform, recorded(platform), exit_code=None)[0][FIRST[platform]].oper_up is True


@pytest.mark.parametrize("platform", PLATFORMS)
def test_the_answer_of_another_command_does_not_pass(platform: str, read: Read, recorded: Callable[..., dict]) -> None:
    healthy = recorded(platform)
    truth = read(platform, healthy)[0]
    for command in healthy:
        for other in healthy:
            if other.partition(":")[0] == command.partition(":")[0]:
                continue
            ports, facts = read(platform, healthy | {command: healthy[other]})
            assert_no_wrong_value(ports, truth)
            same = (platform, command, other) in SAME_SHAPE
            assert same or f"answer:{command}" in facts, f"{other} passed as {command}"


# The JSON of one holds all that the other must have, and no value that is wrong for it.
SAME_SHAPE = {
    ("onyx", "counters", "counters_priority:3"),
    ("onyx", "counters_priority:3", "counters"),
    ("onyx", "interfaces", "counters"),
}


def assert_no_wrong_value(ports: dict[str, SwitchPort], truth: dict[str, SwitchPort]) -> None:
    for name, port in ports.items():
        for f in fields(port):
            value = getattr(port, f.name)
            if f.name in ("neighbor", "neighbor_port") or value is None:
                continue
            if f.name.startswith(("rx_", "tx_")) and port.switch == "onyx-1":
                continue  # counters and counters of one priority have the same shape
            assert value == getattr(truth[name], f.name), (name, f.name)


COSTLY = settings(max_examples=settings().max_examples // 3)


@pytest.mark.parametrize("platform", PLATFORMS)
@COSTLY
@given(data=st.data())
def test_a_cut_answer_never_gives_a_wrong_value(
    platform: str, data: st.DataObject, read: Read, recorded: Callable[..., dict]
) -> None:
    healthy = recorded(platform)
    truth = read(platform, healthy)[0]
    command = data.draw(st.sampled_from(sorted(healthy)))
    at = data.draw(st.integers(0, max(len(healthy[command].rstrip()) - 1, 0)))
    ports, _ = read(platform, healthy | {command: healthy[command][:at]})
    for name, port in ports.items():
        for f in fields(port):
            value, right = getattr(port, f.name), getattr(truth[name], f.name)
            assert value is None or value == right, (command, at, name, f.name)


@pytest.mark.parametrize("platform", PLATFORMS)
@COSTLY
@given(data=st.data())
def test_no_text_crashes_a_parser_or_passes(
    platform: str, data: st.DataObject, read: Read, recorded: Callable[..., dict]
) -> None:
    healthy = recorded(platform)
    command = data.draw(st.sampled_from(sorted(healthy)))
    text = data.draw(st.one_of(st.text(max_size=200), _json_like))
    ports, facts = read(platform, healthy | {command: text})
    assert f"answer:{command}" in facts
    check_contract(ports)


_json_like = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
).map(lambda value: __import__("json").dumps(value))


@pytest.mark.parametrize("platform", PLATFORMS)
@COSTLY
@given(data=st.data())
def test_any_value_in_the_right_place_is_survived(
    platform: str, data: st.DataObject, read: Read, recorded: Callable[..., dict]
) -> None:
    """Replace one leaf of one JSON answer by anything: no crash, and every row keeps its contract."""
    import json

    healthy = recorded(platform)
    command = data.draw(st.sampled_from([c for c in sorted(healthy) if healthy[c].lstrip().startswith(("{", "["))]))
    tree = json.loads(healthy[command])
    node = tree
    while True:
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        key = data.draw(st.sampled_from(keys))
        if not isinstance(node[key], (dict, list)) or not node[key] or data.draw(st.integers(0, 5)) == 0:
            node[key] = json.loads(data.draw(_json_like), parse_constant=lambda _: None)
            break
        node = node[key]
    ports, _ = read(platform, healthy | {command: json.dumps(tree)})
    check_contract(ports)


def check_contract(ports: dict[str, SwitchPort]) -> None:
    for port in ports.values():
        for column in columns(SwitchPort):
            value = getattr(port, column.name)
            assert value is not None or column.nullable
            if value is not None:
                assert type(value) is column.type or (column.type is float and type(value) is float), column.name
                if column.minimum is not None:
                    assert value >= column.minimum
                if column.maximum is not None:
                    assert value <= column.maximum
                if isinstance(value, str):
                    value.encode("utf-8")


def test_hostile_descriptions_are_kept_inert(read: Read, recorded: Callable[..., dict]) -> None:
    answers = recorded("eos")
    answers["interfaces"] = answers["interfaces"].replace(
        '"gpu-001 mlx5_3"', '"<script>alert(1)</script>\\u001b[2J\\ud800' + "x" * 5000 + '"'
    )
    description = read("eos", answers)[0]["Ethernet1/1"].description
    assert description is not None
    assert len(description) <= 500
    assert "\x1b" not in description
    description.encode("utf-8")


@pytest.mark.parametrize("platform", PLATFORMS)
def test_commands_name_what_metrics_are_read_from(platform: str, ports_site: Site) -> None:
    switch = ports_site.unit(f"{platform}-1")
    assert isinstance(switch, Switch)
    asked = [c.name for c in commands(switch, ports_site)]
    assert len(set(asked)) == len(asked)
    assert {n for names in SOURCES[platform].values() for n in names} <= {n.partition(":")[0] for n in asked}
    assert all(c.argv and not any(ord(x) < 32 for item in c.argv for x in item) for c in commands(switch, ports_site))


def test_unreached_switch_gives_no_rows(ports_site: Site, evidence_of: Callable[..., object]) -> None:
    from dataclasses import replace

    switch = ports_site.unit("eos-1")
    assert SWITCH_CONFIG.parse(switch, replace(evidence_of(switch, {}), results=()), ports_site) == []


@pytest.mark.parametrize("platform", PLATFORMS)
def test_config_row_is_there_only_for_a_whole_config(
    platform: str, ports_site: Site, evidence_of: Callable[..., object], recorded: Callable[..., dict]
) -> None:
    switch = ports_site.unit(f"{platform}-1")

    def configs(answers: dict[str, str]) -> list[SwitchConfig]:
        rows = SWITCH_CONFIG.parse(switch, evidence_of(switch, answers), ports_site)
        return [r for r in rows if isinstance(r, SwitchConfig)]

    healthy = recorded(platform)
    assert [c.os_version is not None for c in configs(healthy)] == [True]
    assert configs(healthy | {"running_config": "% Invalid command at '^' marker.\n"}) == []
