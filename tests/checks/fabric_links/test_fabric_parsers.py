"""Parsers of the InfiniBand tools: hostile, cut and unknown text never crashes one and never passes for a link."""

from __future__ import annotations

import pytest
from fabric_runs import AT, Told, recorded, run
from hypothesis import given
from hypothesis import strategies as st

from fabric_health.checks.fabric_links.counters import parse_counters
from fabric_health.checks.fabric_links.diagnet import parse_log
from fabric_health.checks.fabric_links.discovery import lost_queries, parse_discovery
from fabric_health.checks.fabric_links.lanes import lane_rate_gbps, lanes, spelled
from fabric_health.checks.fabric_links.links import parse_links
from fabric_health.checks.fabric_links.managers import parse_managers, parse_sminfo
from fabric_health.checks.fabric_links.names import short_name
from fabric_health.checks.fabric_links.tables import FabricNode, FabricPort
from fabric_health.site import Site

LINE = (
    '0xb8599f0300100080 "        MF0;leaf002:MQM9700/U1"      4    2[  ] ==( 4X      25.78125 Gbps Active/  LinkUp)==>'
    '  0x0c42a103000000a1     16    1[  ] "gpu0010 mlx5_0" (Could be 12X Could be 53.125 Gbps)'
)
DOWN = (
    '0xb8599f0300100080 "        MF0;leaf002:MQM9700/U1"      4    2[  ] ==(                Down/ Polling)==>'
    '             [  ] "" ( )'
)
SILENT = (
    '0xb8599f0300100040 "        MF0;leaf001:MQM9700/U1"      3    8[  ] ==( 4X        53.125 Gbps Active/  LinkUp)==>'
    '      "Port not available"'
)


def test_a_link_line() -> None:
    (link,), unread = parse_links(LINE)
    assert not unread
    assert (link.guid, link.port, link.lid) == ("b8599f0300100080", 2, 4)
    assert (link.width, link.lane_gbps, link.state, link.phys_state) == (4, 25.78125, "Active", "LinkUp")
    assert (link.peer_guid, link.peer_port) == ("0c42a103000000a1", 1)


@pytest.mark.parametrize(("line", "state", "phys"), [(DOWN, "Down", "Polling"), (SILENT, "Active", "LinkUp")])
def test_a_port_without_a_neighbour(line: str, state: str, phys: str) -> None:
    (link,), unread = parse_links(line)
    assert not unread
    assert (link.state, link.phys_state, link.peer_guid, link.peer_port) == (state, phys, None, None)


@pytest.mark.parametrize(
    "line",
    [
        LINE.replace("gpu0010 mlx5_0", 'x" 1 1[  ] ==( 4X 53.125 Gbps Active/ LinkUp)==>'),
        LINE.replace("MF0;leaf002:MQM9700/U1", '" 4 2[  ] ==( 4X 53.125 Gbps Active/  LinkUp)==> '),
        LINE[:90],
        LINE.replace("0xb8599f0300100080", "0xb8599f03"),
        LINE + "\n" + LINE.replace("Active", "Down  "),
        "<html><body>login</body></html>",
        "\x1b[31m" + LINE,
        LINE.replace(" 4    2[", " 4  999["),
        LINE.replace("25.78125 Gbps", "25.78125 Gbps" + " x" * 40),
    ],
)
def test_a_line_that_is_in_doubt_is_not_read(line: str) -> None:
    links, unread = parse_links(line)
    assert unread
    assert all(link.state == "Active" and link.lane_gbps == 25.78125 for link in links)


@pytest.mark.parametrize("speed", ["53.125 Gbps", "FDR10", "unknown (20)", "(IBA extension)", "1000.5 Gbps"])
def test_speeds_are_known_or_null(speed: str) -> None:
    (link,), _ = parse_links(LINE.replace("25.78125 Gbps", speed))
    assert link.lane_gbps in (53.125, 10.3125, 1000.5, None)
    assert link.state == "Active"


def test_names_of_speeds() -> None:
    assert (lanes("4X"), lanes("3x"), lanes("4x HDR")) == (4, None, None)
    assert (lane_rate_gbps("ndr"), lane_rate_gbps("NDR?"), lane_rate_gbps("0")) == (106.25, None, None)
    assert spelled(4, 106.25) == "4x NDR"


def test_descriptions_with_quotes_and_imitations_stay_descriptions() -> None:
    described = 'a "b" enhanced port 0 lid 99 lmc 0" # "c'
    text = f'Switch\t16 "S-b8599f0300100040"\t\t# "{described}" enhanced port 0 lid 3 lmc 0\n'
    node = parse_discovery(text).nodes["b8599f0300100040"]
    assert (node.description, node.lid, node.kind) == (described, 3, "switch")


def test_a_node_that_is_listed_twice_is_told_of() -> None:
    line = 'Switch\t16 "S-b8599f0300100040"\t\t# "x" base port 0 lid 3 lmc 0\n'
    assert parse_discovery(line + line.replace("lid 3", "lid 4")).unread


def test_queries_without_an_answer_are_counted() -> None:
    assert lost_queries(recorded("dropping")["ibnetdiscover"].stderr) == 1
    assert lost_queries(recorded("healthy")["ibnetdiscover"].stderr) == 0


def test_counters_and_what_details_swaps() -> None:
    text = (
        'Errors for 0xb8599f0300100040 "MF0;leaf001:MQM9700/U1"\n'
        "   GUID 0xb8599f0300100040 port ALL: [PortRcvErrors == 120]\n"
        "   GUID 0xb8599f0300100040 port 9: [PortRcvErrors == 120] [PortInactiveDiscards == 99] [PortXmitWait == 7]\n"
        'Errors for "gpu0005 mlx5_0"\n'
        "   GUID 0xc42a10300000051 port 1: [VL15Dropped == 12] [PortXmitData == 2952 (11.531KB)]\n"
        "\n## Summary: 38 nodes checked, 2 bad nodes found\n"
        "##          129 ports checked, 2 ports have errors beyond threshold\n## Thresholds: \n## Suppressed:\n"
    )
    counted = parse_counters(text)
    assert counted.complete
    assert counted.ports["b8599f0300100040", 9] == {"rcv_errors": 120, "xmit_wait": 7}
    assert counted.ports["0c42a10300000051", 1] == {"vl15_dropped": 12, "xmit_data_bytes": 2952 * 4}
    assert not counted.unread


@pytest.mark.parametrize(
    "shown",
    [
        "port 9: [PortRcvErrors == 120] and [VL15Dropped == 1]",
        "port 9: [PortRcvErrors == 120] [VL15Dropped == ]",
        "port 9: [PortRcvErrors == 120] [PortRcvErrors == 121]",
        "port 9: [PortXmitData == 9223372036854775807]",
        "port ALL: [PortRcvErrors == 120] and more",
        "port 9: ",
    ],
)
def test_a_line_that_is_not_counters_alone_is_not_read(shown: str) -> None:
    counted = parse_counters(f"   GUID 0xb8599f0300100040 {shown}\n")
    assert not counted.ports
    assert len(counted.unread) == 1


def test_a_port_that_is_shown_twice_is_told_of() -> None:
    line = "   GUID 0xb8599f0300100040 port 9: [PortRcvErrors == {}]\n"
    counted = parse_counters(line.format(1) + line.format(1))
    assert counted.ports["b8599f0300100040", 9] == {"rcv_errors": 1}
    assert len(counted.unread) == 1


def test_suppressed_counters_are_no_zeros(planned: Site) -> None:
    told = recorded("healthy")
    text = told["ibqueryerrors"].stdout.replace("## Suppressed:", "## Suppressed: SymbolErrorCounter")
    found = run(planned, {**told, "ibqueryerrors": Told(text)})
    assert all(p.symbol_error is None for p in found.rows.of(FabricPort))
    assert "SymbolErrorCounter" in found.of("answer_readable")[0].summary


def test_managers() -> None:
    manager = parse_sminfo(
        "sminfo: sm lid 1 sm guid 0xc42a10300000011, activity count 12 priority 14 state 3 SMINFO_MASTER"
    )
    assert manager is not None
    assert (manager.guid, manager.lid, manager.priority, manager.state) == ("0c42a10300000011", 1, 14, 3)
    assert parse_sminfo("sminfo: iberror: failed: query") is None
    assert parse_managers("SMInfoRecord dump:\n\tLID.....x\n") is None
    assert parse_managers("") is None


@pytest.mark.parametrize(
    ("description", "name"),
    [
        ("MF0;leaf001:MQM9700/U1", "leaf001"),
        ("gpu0001 mlx5_0", "gpu0001 mlx5_0"),
        ("  two\x1b[31m  words ", "two [31m words"),
        ("MF0;a:b:c", "MF0;a:b:c"),
    ],
)
def test_short_names(description: str, name: str) -> None:
    assert short_name(description) == name


def test_nodes_with_the_same_description_keep_apart_by_guid_and_the_plan_is_not_guessed(planned: Site) -> None:
    told = recorded("healthy")
    text = told["ibnetdiscover"].stdout.replace('"gpu0004 mlx5_0"', '"gpu0003 mlx5_0"')
    found = run(planned, {**told, "ibnetdiscover": Told(text)})
    names = {n.node for n in found.rows.of(FabricNode) if n.description == "gpu0003 mlx5_0"}
    assert names == {"gpu0003 mlx5_0 0c42a10300000030", "gpu0003 mlx5_0 0c42a10300000040"}
    assert [f.kind for f in found.of("names_unique")] == ["not_judged"]


_PIECES = st.sampled_from(
    [
        LINE,
        DOWN,
        SILENT,
        "==(",
        ")==>",
        "\n",
        "\x1b[0m",
        "## Summary: 1 nodes checked",
        'Ca\t1 "H-0c42a10300000030"',
        "0x",
    ]
)
_TEXT = st.lists(st.one_of(_PIECES, st.text(max_size=40)), max_size=12).map("".join)


@given(_TEXT)
def test_no_text_crashes_a_parser(text: str) -> None:
    for parse in (parse_links, parse_discovery, parse_counters, parse_managers, parse_sminfo, parse_log):
        parse(text)


@given(st.sampled_from(sorted(recorded("healthy"))), _TEXT)
def test_no_text_in_place_of_an_answer_passes_silently(planned: Site, command: str, text: str) -> None:
    found = run(planned, {**recorded("healthy"), command: Told(text)}, at=AT)
    assert found.findings


def test_a_hostile_line_costs_no_time(planned: Site) -> None:
    long = "0x" + "a" * 16 + ' "' + '" ' * 100_000 + "==( 4X" + " " * 100_000
    found = run(planned, {name: Told(long) for name in recorded("healthy")})
    assert found.of("unit_has_rows")
