"""Values as the platforms spell them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric_health.checks.switch_config.ports import values
from fabric_health.checks.switch_config.ports.reading import canonical_port
from fabric_health.checks.switch_config.ports.ruled import by_ruler, by_titles


@pytest.mark.parametrize(
    ("text", "bare", "gbps"),
    [
        ("400G", "m", 400.0),
        ("a-400G", "m", 400.0),
        ("400 Gbps", "m", 400.0),
        ("400 Gb/s", "m", 400.0),
        ("400000", "m", 400.0),
        ("400000Mb/s", "m", 400.0),
        ("400g-8", "m", 400.0),
        ("1000M", "m", 1.0),
        ("2.5G", "m", 2.5),
        (400_000_000_000, "", 400.0),
        (400_000_000, "k", 400.0),
        ("auto", "m", None),
        ("auto-speed", "m", None),
        ("Unknown", "m", None),
        ("N/A", "m", None),
        ("", "m", None),
        (0, "", None),
        ("-1", "m", None),
        (True, "m", None),
        (None, "m", None),
        ("9" * 80, "m", None),
    ],
)
def test_speed(text: object, bare: values.BareUnit, gbps: float | None) -> None:
    assert values.speed_gbps(text, bare) == gbps


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (7, 7),
        ("1,234,567", 1234567),
        ("12", 12),
        ("1,23", None),
        ("-1", None),
        (-1, None),
        ("N/A", None),
        ("²", None),
        (True, None),
        (1.5, None),
        ("9" * 20, None),
        (1 << 64, None),
        (None, None),
        ("", None),
        ("1 000", None),
    ],
)
def test_count(text: object, expected: int | None) -> None:
    assert values.count(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("rs", "rs"),
        ("RS-FEC", "rs"),
        ("reedSolomon", "rs"),
        ("Rs-fec", "rs"),
        ("fireCode", "fc"),
        ("baser", "fc"),
        ("fc-fec", "fc"),
        ("off", "none"),
        ("disabled", "none"),
        ("none", "none"),
        ("auto", None),
        ("N/A", None),
    ],
)
def test_fec(text: str, expected: str | None) -> None:
    assert values.fec(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"), [("3", "3"), ("4 3", "3,4"), ("3,3", "3"), ("-", ""), ("", ""), ("8", None), ("3-4", None)]
)
def test_priorities(text: str, expected: str | None) -> None:
    assert values.priority_list(text) == expected


@pytest.mark.parametrize(
    ("platform", "text", "port"),
    [
        ("eos", "Et1/1", "Ethernet1/1"),
        ("eos", "Ethernet5/1/1", "Ethernet5/1/1"),
        ("nxos", "Eth1/1", "Ethernet1/1"),
        ("nxos", "e1/1/4", "Ethernet1/1/4"),
        ("onyx", "ethernet 1/1", "Eth1/1"),
        ("onyx", "Eth1/1/2", "Eth1/1/2"),
        ("cumulus", "swp1s0", "swp1s0"),
        ("sonic", "Ethernet120", "Ethernet120"),
        ("eos", "Management1", None),
        ("nxos", "mgmt0", None),
        ("onyx", "Po1", None),
        ("cumulus", "eth0", None),
        ("sonic", "PortChannel1", None),
    ],
)
def test_port_names(platform: str, text: str, port: str | None) -> None:
    assert canonical_port(platform, text) == port


def test_names_and_macs() -> None:
    assert values.system_name("GPU-001.example.com") == "gpu-001"
    assert values.system_name("10.0.0.1") == "10.0.0.1"
    for nothing in ("Not Advertised", "null", "", "b8:59:9f:00:00:01", None, 3):
        assert values.system_name(nothing) is None
    assert values.is_mac("b859.9f00.0001")
    assert not values.is_mac("ens1np0")


def test_a_cell_may_be_empty_or_hold_spaces() -> None:
    text = (
        "Port    Name            Status\n"
        "------  --------------  --------\n"
        "Et1/1   gpu 01  mlx5_0  up\n"
        "Et2/1                   down\n"
    )
    table = by_ruler(text)[0]
    assert table.rows == (("Et1/1", "gpu 01  mlx5_0", "up"), ("Et2/1", "", "down"))
    assert by_titles(text, ("Port", "Name", "Status")) == table


def test_a_row_across_the_ruler_is_dropped() -> None:
    text = "Port  Speed  MTU\n----  -----  ----\nEt1/1/100G  9216\nEt2    400G  9216\n"
    assert by_ruler(text)[0].rows == (("Et2", "400G", "9216"),)


@given(st.text(max_size=300))
def test_no_text_crashes_the_table_readers(text: str) -> None:
    by_ruler(text)
    by_titles(text, ("Port", "Status"))


@given(st.one_of(st.text(max_size=60), st.integers(), st.floats(), st.none(), st.booleans(), st.lists(st.integers())))
def test_any_value_is_read_or_refused(value: object) -> None:
    speed = values.speed_gbps(value, "m")
    assert speed is None or 0 < speed <= 10_000
    count = values.count(value)
    assert count is None or 0 <= count < 1 << 63
    vlan = values.vlan(value)
    assert vlan is None or 1 <= vlan <= 4094
    assert values.fec(value) in (None, "rs", "fc", "none")
    values.mtu_bytes(value)
    values.priority_list(value)
    values.system_name(value)
