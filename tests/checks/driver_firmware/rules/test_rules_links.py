"""Link rules: state, rate, layer, MTU, and counters between two runs."""

from __future__ import annotations

import pytest

from fabric_health.checks.driver_firmware.rules.links import COUNTERS, roce_mtu

NIC = "gpu-001/mlx5_0"


def keys(findings):
    return [(f.rule, f.unit, f.metric, f.severity) for f in findings]


@pytest.mark.parametrize(
    ("changes", "rule", "metric", "severity"),
    [
        ({"state": "DOWN", "phys_state": "DISABLED"}, "link_up", "state", "critical"),
        ({"state": "DOWN", "phys_state": "DISABLED", "admin_up": False}, "link_up", "state", "critical"),
        ({"state": "DOWN", "phys_state": "POLLING", "rate_gbps": 2.5}, "link_up", "state", "critical"),
        ({"state": "INIT"}, "link_up", "state", "critical"),
        ({"phys_state": "LINK_ERROR_RECOVER"}, "link_up", "state", "critical"),
        ({"rate_gbps": 200.0}, "link_rate", "rate_gbps", "warning"),
        ({"link_layer": "InfiniBand"}, "link_layer", "link_layer", "critical"),
        ({"netdev_mtu_bytes": 1500, "active_mtu_bytes": 1024}, "netdev_mtu", "netdev_mtu_bytes", "warning"),
        ({"active_mtu_bytes": 1024}, "active_mtu", "active_mtu_bytes", "warning"),
    ],
)
def test_must_fail_with_one_finding(fleet, changes, rule, metric, severity):
    fleet.link(NIC, **changes)
    assert keys([fleet.only()]) == [(rule, NIC, metric, severity)]


@pytest.mark.parametrize(
    ("layer", "phys", "admin_up", "why", "action"),
    [
        # mlx5 shows DISABLED for every Ethernet port without carrier: the flags of the network device decide.
        ("Ethernet", "DISABLED", False, "administratively down on the node", "ip link set eth0 up"),
        ("Ethernet", "DISABLED", True, "no carrier", "Check the cable and leaf-1/swp1"),
        ("Ethernet", "POLLING", True, "no carrier", "Check the cable and leaf-1/swp1"),
        ("Ethernet", "DISABLED", None, "down for an unknown reason", "ip link show eth0"),
        # On InfiniBand it is the port's own state, and IPoIB may be down on a link that is up.
        ("InfiniBand", "DISABLED", True, "administratively down on the node", "mlxlink -d mlx5_0 --port_state UP"),
        ("InfiniBand", "DISABLED", None, "administratively down on the node", "mlxlink -d mlx5_0 --port_state UP"),
        ("InfiniBand", "POLLING", False, "no link with its peer", "Check the cable and leaf-1/swp1"),
        ("InfiniBand", "POLLING", None, "no link with its peer", "Check the cable and leaf-1/swp1"),
    ],
)
def test_a_link_that_is_down_says_who_shut_it(make_fleet, layer, phys, admin_up, why, action):
    fleet = make_fleet(link_layer=layer)
    fleet.link(NIC, state="DOWN", phys_state=phys, admin_up=admin_up)
    f = fleet.only()
    assert f.actual == f"{why} (state DOWN, phys_state {phys})"
    assert f.summary == f"Link of {NIC} is down: {f.actual}"
    assert action in f.action


def test_a_link_of_an_unknown_layer_is_read_by_the_layer_of_its_sku(make_fleet):
    for layer, why in (("Ethernet", "no carrier"), ("InfiniBand", "administratively down on the node")):
        fleet = make_fleet(link_layer=layer)
        fleet.link(NIC, state="DOWN", phys_state="DISABLED", admin_up=True, link_layer=None)
        assert fleet.only().actual.startswith(why)


def test_ipoib_that_is_shut_is_no_finding_on_a_link_that_is_up(make_fleet):
    fleet = make_fleet(link_layer="InfiniBand", netdev_mtu_bytes=None)
    fleet.link(NIC, admin_up=False)
    assert fleet.judge() == []


@pytest.mark.parametrize("column", ["state", "phys_state", "rate_gbps", "link_layer", "active_mtu_bytes"])
def test_a_column_that_is_null_is_not_a_pass(fleet, column):
    fleet.link(NIC, **{column: None})
    f = fleet.only()
    assert (f.kind, f.unit) == ("not_judged", NIC)
    assert column in f.summary


def test_infiniband_has_no_network_device_mtu_to_judge(make_fleet):
    fleet = make_fleet(link_layer="InfiniBand")
    for unit in fleet.links:
        fleet.link(unit, netdev_mtu_bytes=2044)
    assert fleet.judge() == []
    fleet.link(NIC, active_mtu_bytes=2048)
    assert fleet.only().rule == "active_mtu"


def test_the_rdma_mtu_follows_from_the_device_mtu_that_the_sku_wants(make_fleet):
    fleet = make_fleet(netdev_mtu_bytes=1500)
    for unit in fleet.links:
        fleet.link(unit, active_mtu_bytes=1024)
    assert fleet.judge() == []
    assert [roce_mtu(m) for m in (9000, 4200, 4191, 1500, 600, 100)] == [4096, 4096, 2048, 1024, 256, 256]


@pytest.mark.parametrize(
    ("changes", "rule", "severity"),
    [
        ({"link_downed": 2}, "link_downed", "warning"),
        ({"link_error_recovery": 1}, "link_error_recovery", "warning"),
        ({"symbol_errors": 10}, "symbol_errors", "info"),
        ({"symbol_errors": 120 * 24 * 7 + 1}, "symbol_errors", "warning"),
        ({"port_rcv_errors": 11, "rx_packets": 10**9 + 10**6}, "link_error_ratio", "warning"),
        ({"port_xmit_discards": 11, "tx_packets": 10**9 + 10**6}, "link_error_ratio", "warning"),
        ({"carrier_changes": 2 + 2 * 5 * 7}, "link_flaps", "warning"),
    ],
)
def test_counters_that_rose_since_the_previous_run(fleet, changes, rule, severity):
    fleet.remember()
    fleet.link(NIC, **changes)
    f = fleet.only()
    assert (f.rule, f.unit, f.severity) == (rule, NIC, severity)


@pytest.mark.parametrize(
    "changes",
    [
        {"port_rcv_errors": 10, "rx_packets": 10**9 + 10**6},  # at the limit
        {"port_rcv_errors": 500},  # no packet in between: unknown
        {"link_downed": 0, "rx_packets": 5, "port_rcv_errors": 3},  # counters restarted: unknown
        {"symbol_errors": None, "link_downed": None},
        {"carrier_changes": 2 + 2 * 5 * 7 - 2},
    ],
)
def test_unknown_and_small_differences_give_nothing(fleet, changes):
    fleet.remember()
    fleet.link(NIC, **changes)
    assert fleet.judge() == []


def test_without_a_previous_run_counters_say_nothing(fleet):
    fleet.link(NIC, link_downed=500, symbol_errors=10**6, port_rcv_errors=10**6)
    assert fleet.judge() == []


def test_a_link_that_is_down_has_no_finding_on_its_counters(fleet):
    fleet.remember()
    fleet.link(NIC, state="DOWN", phys_state="POLLING", link_downed=9, rate_gbps=None, active_mtu_bytes=None)
    assert fleet.only().rule == "link_up"


def test_counters_that_no_tool_gave_are_not_taken_for_still(fleet):
    some = dict.fromkeys(COUNTERS[1:])
    fleet.link(NIC, **some)
    assert fleet.judge() == [], "what one tool does not count, another does"
    fleet.link(NIC, **dict.fromkeys(COUNTERS))
    f = fleet.only()
    assert (f.rule, f.kind, f.severity, f.unit) == ("readable", "not_judged", "warning", NIC)
    assert "counters" in f.summary
