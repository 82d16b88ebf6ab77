"""Lab switches speak their platforms' formats: the odd shapes that parsers must meet are really there."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric_health.evidence import Redactor
from fabric_health.lab.answer import Answer
from fabric_health.lab.state import Fault, LabState
from fabric_health.lab.switches import answer, render_config
from fabric_health.lab.switches.layout import ruler_table, secret
from fabric_health.site import Site, Switch, load_site

LAB = Path(__file__).parents[2] / "include" / "sites" / "lab.yaml"
UP = datetime(2026, 11, 23, 8, 0, tzinfo=UTC)
NOW = UP + timedelta(days=3)
SITE: Site = load_site(LAB)
NAMES = [s.name for s in SITE.switches]


def ask(name: str, command: str, *faults: tuple[str, str, str | None]) -> Answer:
    switch = SITE.unit(name)
    assert isinstance(switch, Switch)
    lab = LabState(UP, tuple(Fault(k, u, v, NOW - timedelta(hours=1)) for k, u, v in faults))
    return answer(switch, SITE, lab, command, NOW)


def ask_json(name: str, command: str, *faults: tuple[str, str, str | None]) -> Any:
    return json.loads(ask(name, command, *faults).stdout)


@pytest.mark.parametrize(
    ("name", "command", "on", "text", "exit_code"),
    [
        ("leaf-1", "nv show nonsense", "stderr", "Error:", 1),
        ("leaf-1", "frobnicate now", "stderr", "frobnicate: command not found", 127),
        ("leaf-1", "ethtool -S swp99", "stderr", "no stats available", 94),
        ("leaf-2", "show nonsense", "stderr", 'Error: No such command "nonsense".', 2),
        ("leaf-2", "frobnicate", "stderr", "frobnicate: command not found", 127),
        ("leaf-3", "show nonsense", "stdout", "% Invalid input", 1),
        ("leaf-3", "show priority-flow-control | json", "stdout", "% This is an unconverted command", 1),
        ("leaf-4", "show nonsense", "stdout", "Syntax error while parsing 'show nonsense'", 16),
        ("spine-1", 'cli "enable" "show nonsense"', "stdout", '% Unrecognized command "show nonsense".', 1),
    ],
)
def test_an_unknown_command_gets_the_platforms_own_error(
    name: str, command: str, on: str, text: str, exit_code: int
) -> None:
    got = ask(name, command)
    assert text in getattr(got, on)
    assert got.exit_code == exit_code


@given(name=st.sampled_from(NAMES), command=st.text(max_size=60))
def test_no_command_line_raises_or_passes_for_an_answer(name: str, command: str) -> None:
    got = ask(name, command)
    assert got.exit_code != 0


@given(value=st.text(max_size=12), kind=st.sampled_from(["switch-mtu", "port-speed", "port-errors", "miscabled"]))
def test_a_fault_with_a_strange_value_does_not_break_the_lab(value: str, kind: str) -> None:
    for name, command in (
        ("leaf-2", "show interfaces counters"),
        ("leaf-2", "sudo -n sonic-cfggen -d --print-data"),
        ("leaf-2", "show lldp table"),
    ):
        assert ask(name, command, (kind, "leaf-2/Ethernet32", value)).exit_code == 0


def test_cumulus_gives_its_config_as_a_list_with_ranges_and_a_state_as_a_key() -> None:
    header, body = ask_json("leaf-1", "nv config show -o json")
    assert header["header"]["version"] == "Cumulus Linux 5.12.1"
    assert body["set"]["interface"]["swp1-32"]["bridge"] == {"domain": {"br_default": {"access": 100}}}
    assert ask_json("leaf-1", "nv show interface -o json")["swp1"]["link"]["state"] == {"up": {}}


def test_cumulus_splits_a_range_around_a_port_that_differs() -> None:
    interfaces = ask_json("leaf-1", "nv config show -o json", ("switch-mtu", "leaf-1/swp3", "1500"))[1]["set"][
        "interface"
    ]
    assert interfaces["swp1-2,swp4-36"]["link"]["mtu"] == 9216
    assert interfaces["swp3"]["link"]["mtu"] == 1500


def test_sonic_config_holds_text_only_and_tables_have_a_ruler() -> None:
    database = ask_json("leaf-2", "sudo -n sonic-cfggen -d --print-data")
    assert database["PORT"]["Ethernet32"]["lanes"] == "32,33,34,35,36,37,38,39"
    assert all(isinstance(v, str) for entry in database["PORT"].values() for v in entry.values())
    title, ruler, first = ask("leaf-2", "show interfaces status").stdout.splitlines()[:3]
    assert title.split()[:3] == ["Interface", "Lanes", "Speed"]
    assert set(ruler) == {"-", " "}
    assert first.split()[0] == "Ethernet0"
    assert "QSFP-DD Double Density" in first
    assert ask("leaf-2", "show lldp table").stdout.splitlines()[-1] == "Total entries displayed:  37"


@pytest.mark.parametrize(("value", "shown"), [("1500", "1500"), ("9100", None)])
def test_sonic_drops_an_mtu_that_is_its_default(value: str, shown: str | None) -> None:
    fault = ("switch-mtu", "leaf-2/Ethernet32", value)
    database = ask_json("leaf-2", "sonic-cfggen -d --print-data", fault)
    assert database["PORT"]["Ethernet32"].get("mtu") == shown
    row = next(
        line for line in ask("leaf-2", "show interfaces status", fault).stdout.splitlines() if "Ethernet32 " in line
    )
    assert row.split()[3] == value


def test_eos_reports_bits_per_second_and_quotes_lldp_ids() -> None:
    port = ask_json("leaf-3", "show interfaces | json")["interfaces"]["Ethernet1/1"]
    assert (port["bandwidth"], port["mtu"]) == (400_000_000_000, 9214)
    neighbor = ask_json("leaf-3", "show lldp neighbors detail | json")["lldpNeighbors"]["Ethernet1/1"]
    assert neighbor["lldpNeighborInfo"][0]["neighborInterfaceInfo"]["interfaceId"] == '"enp154s0np0"'


def test_eos_loses_its_mtu_line_at_the_default() -> None:
    fault = ("switch-mtu", "leaf-3/Ethernet3/1", "1500")
    config = ask("leaf-3", "show running-config", fault).stdout
    section = config.split("interface Ethernet3/1\n")[1].split("!")[0]
    assert "mtu" not in section
    assert config.startswith("! Command: show running-config\n! device: leaf-3 (")


def test_nxos_gives_one_row_as_an_object_and_bitmaps_in_hex() -> None:
    pfc = ask_json("leaf-4", "show interface priority-flow-control | json")
    module = pfc["TABLE_module"]["ROW_module"]
    assert module["module"] == "1"
    assert module["TABLE_pfc_interface"]["ROW_pfc_interface"][0]["oper"] == "On  (8)"
    text = ask("leaf-4", "show interface priority-flow-control").stdout
    assert "=" * 60 in text
    assert "Ethernet1/1        On   On  (8)" in text


def test_onyx_shapes_vary_and_ranges_split_around_a_port() -> None:
    assert isinstance(ask_json("spine-1", 'cli "enable" "show interfaces ethernet | json-print"'), list)
    pfc = ask_json("spine-1", 'cli "enable" "show dcb priority-flow-control | json-print"')
    assert pfc["Eth1/1"] == [{"PFC admin": "on", "PFC oper": "Enabled"}]
    config = ask("spine-1", 'cli "enable" "show running-config"', ("switch-pfc", "spine-1/Eth1/3", None)).stdout
    assert "interface ethernet 1/1-1/2 dcb priority-flow-control mode on force" in config
    assert "interface ethernet 1/4-1/8 dcb priority-flow-control mode on force" in config


@pytest.mark.parametrize("name", NAMES)
def test_no_secret_of_a_config_survives_redaction(name: str) -> None:
    switch = SITE.unit(name)
    assert isinstance(switch, Switch)
    config = render_config(switch, SITE, LabState(UP), NOW)
    secrets = {
        secret("community"),
        secret(f"{name}/tacacs", 12),
        secret(f"{name}/snmp", 32),
        *re.findall(r"\$(?:5|6|nvsec)\$[\w$]+", config),
    }
    there = {s for s in secrets if s in config}
    assert there
    assert {s for s in there if s in Redactor().text(config)} == set()


def test_a_ruler_table_lines_up_under_its_ruler() -> None:
    text = ruler_table(("A", "Bee"), [("x", "1"), ("long", "22")])
    assert text == "A     Bee\n----  ---\nx       1\nlong   22\n"
