from __future__ import annotations

import json
from pathlib import Path

import pytest

from fabric_health.checks.driver_firmware.parsers import firmware, netdev, rdma

NODE = Path(__file__).parents[2] / "fixtures" / "driver_firmware" / "node"


def _text(name: str) -> str:
    return (NODE / f"{name}.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Active", "ACTIVE"),
        ("PORT_ACTIVE (4)", "ACTIVE"),
        ("4: ACTIVE", "ACTIVE"),
        ("Initializing", "INIT"),
        ("5: ACTIVE_DEFER", "ACTIVE_DEFER"),
        ("1: DOWN", "DOWN"),
        ("???", None),
        ("Aktiv", None),
        ("", None),
        (None, None),
    ],
)
def test_logical_states(text: str | None, name: str | None) -> None:
    assert rdma.logical_state(text) == name


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("LinkUp", "LINK_UP"),
        ("LINK_UP (5)", "LINK_UP"),
        ("5: LinkUp", "LINK_UP"),
        ("PORT_CONFIGURATION TRAINNING (4)", "PORT_CONFIGURATION_TRAINING"),
        ("4: PortConfigurationTraining", "PORT_CONFIGURATION_TRAINING"),
        ("ARMED", "PORT_CONFIGURATION_TRAINING"),
        ("LINK_ERROR_RECOVER", "LINK_ERROR_RECOVERY"),
        ("6: LinkErrorRecovery", "LINK_ERROR_RECOVERY"),
        ("7: Phy Test", "PHY_TEST"),
        ("3: Disabled", "DISABLED"),
        ("No state change", None),
        ("7: <unknown>", None),
    ],
)
def test_physical_states(text: str, name: str | None) -> None:
    assert rdma.physical_state(text) == name


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("400", (400.0, None)),
        ("2.5", (2.5, None)),
        ("40 (FDR10)", (40.0, None)),
        ("400 Gb/sec (4X NDR)", (400.0, "4X")),
        ("10 Gb/sec (4X)", (10.0, "4X")),
        ("fast", (None, None)),
        ("", (None, None)),
        ("-1", (None, None)),
    ],
)
def test_rates(text: str, expected: tuple[float | None, str | None]) -> None:
    assert rdma.rate(text) == expected


def test_three_tools_agree_on_one_node() -> None:
    by_tool = [
        rdma.parse_ibstat(_text("ibstat")),
        rdma.parse_devinfo(_text("ibv_devinfo")),
        rdma.parse_rdma_link(_text("rdma_link")),
    ]
    for devices in by_tool:
        assert [(d.port.state, d.port.phys_state) for d in devices.values()] == [
            ("ACTIVE", "LINK_UP"),
            ("DOWN", "POLLING"),
        ]
    ibstat, devinfo, _ = by_tool
    assert [d.firmware for d in ibstat.values()] == [d.firmware for d in devinfo.values()]
    assert (
        [d.guid for d in ibstat.values()]
        == [d.guid for d in devinfo.values()]
        == [
            "a088c20300460c60",
            "a088c20300460c61",
        ]
    )
    assert [d.type for d in devinfo.values()] == ["MT4129", "MT4129"]
    # Speed per lane times width is the rate.
    assert devinfo["mlx5_0"].port.rate_gbps == ibstat["mlx5_0"].port.rate_gbps == 400
    assert devinfo["mlx5_0"].port.active_mtu_bytes == 4096


def test_ibstat_with_warnings_in_between_and_a_second_port() -> None:
    text = _text("ibstat").replace("\tNumber of ports: 1\n", "ibwarn: [77] cannot do it\n\tNumber of ports: 2\n", 1)
    text = text.replace("CA 'mlx5_1'", "\tPort 2:\n\t\tState: Down\n\t\tRate: 10\nCA 'mlx5_1'")
    device = rdma.parse_ibstat(text)["mlx5_0"]
    assert (device.port.state, device.port.rate_gbps) == ("ACTIVE", 400)


def test_soft_devices_have_no_hardware_type() -> None:
    device = rdma.parse_ibstat("CA 'rxe0'\n\tCA type: \n\tNumber of ports: 1\n")["rxe0"]
    assert device.type is None


@pytest.mark.parametrize("text", ["", "{}", "[1]", "null", "[" * 100_000, "Failed to open NETLINK_RDMA socket", "[{}"])
def test_rdma_link_that_is_no_list_of_links(text: str) -> None:
    with pytest.raises(ValueError, match=r"JSON|expected|Expecting"):
        rdma.parse_rdma_link(text)


def test_rdma_link_gives_the_netdev_and_skips_other_ports() -> None:
    text = (
        'Warning: old kernel\n[{"ifname":"mlx5_0","port":1,"state":"ACTIVE","physical_state":"LINK_UP",'
        '"netdev":"ens1np0"},{"ifname":"mlx5_0","port":2,"state":"DOWN"}]'
    )
    assert rdma.parse_rdma_link(text)["mlx5_0"].port == rdma.Port("ACTIVE", "LINK_UP", netdev="ens1np0")


def test_sysfs_lines() -> None:
    files = rdma.parse_sysfs(_text("sysfs") + "grep: /sys/x: No such file\n/etc/passwd:root\nrubbish\n")
    assert all(path.startswith("/sys/") for path in files)
    device = rdma.sysfs_device("mlx5_0", files)
    assert device is not None
    assert device.port.rate_gbps == 400
    assert (device.psid, device.type) == ("MT_0000000838", "MT4129")
    assert rdma.sysfs_device("mlx5_9", files) is None


def test_ip_link_keeps_absent_counters_null() -> None:
    found = netdev.parse_ip_link(_text("ip_link"))
    assert (found["ibp94s0"].mtu_bytes, found["ibp94s0"].rx_errors) == (4092, 0)
    bare = netdev.parse_ip_link('[{"ifname":"a","mtu":"9000","stats64":{"rx":{"packets":true}}},{},{"ifname":7}]')["a"]
    assert bare == netdev.Netdev("a", None, None, None, None, None, None)


@pytest.mark.parametrize(
    ("flags", "admin_up"),
    [
        (["BROADCAST", "MULTICAST", "UP", "LOWER_UP"], True),
        (["NO-CARRIER", "BROADCAST", "MULTICAST", "UP"], True),
        (["BROADCAST", "MULTICAST"], False),
        ([], None),
        (None, None),
        ("UP", None),
        (["UP", 1], None),
        ({"UP": True}, None),
    ],
)
def test_a_network_device_without_carrier_is_not_one_that_was_shut(flags: object, admin_up: bool | None) -> None:
    text = json.dumps([{"ifname": "eth0", "flags": flags, "operstate": "DOWN"}])
    assert netdev.parse_ip_link(text)["eth0"].admin_up is admin_up
    assert netdev.parse_ip_link('[{"ifname": "eth0"}]')["eth0"].admin_up is None


def test_ethtool() -> None:
    info = netdev.parse_driver_info(_text("ethtool_i_ibp94s0"))
    assert info == netdev.DriverInfo("28.41.1000", "MT_0000000838", "0000:5e:00.0")
    assert netdev.parse_driver_info("firmware-version: \nbus-info: tap\n") == netdev.DriverInfo(None, None, None)
    features = netdev.parse_features(_text("ethtool_k_ibp94s0"))
    assert {k: v.value for k, v in features.items()} == {
        "tcp-segmentation-offload": "off",
        "generic-receive-offload": "on",
        "large-receive-offload": "off",
        "rx-checksumming": "on",
        "tx-checksumming": "on",
    }
    assert all(c.value is None for c in netdev.parse_features("rx-checksumming: vielleicht\n").values())
    assert netdev.parse_statistics("NIC statistics:\n     a: 1\n     b: -2\n     c: x\n     a: 9\n") == {"a": 1}


def test_mlxfwmanager_xml_and_text_say_the_same() -> None:
    text = """Querying Mellanox devices firmware ...

Device #1:
----------

  Device Type:      ConnectX7
  Part Number:      MCX75310AAS-NEA_Ax
  Description:      ConnectX-7 adapter card
  PSID:             MT_0000000838
  PCI Device Name:  0000:5e:00.0
  Base GUID:        a088c20300460c60
  Base MAC:         a088c2460c60
  Versions:         Current        Available
     FW             28.43.2026     N/A
     PXE            3.7.0300       N/A

  Status:           No matching image found
"""
    xml = firmware.parse_mlxfwmanager(_text("mlxfwmanager"))
    assert firmware.parse_mlxfwmanager(text)[0] == xml[0]
    assert xml[0].slot == "0000:5e:00"
    assert xml[1].slot is None  # named after its mst device; its GUID tells which it is
    assert xml[1].guid == "a088c20300460c61"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-E- No devices found or specified, mst might be stopped, run 'mst start' to load MST modules\n",
        '<SVMInventory lang="en"><SPStatus result="false"><Message id="20"></Message></SPStatus></SVMInventory>',
        "<Devices></Devices>",
        "<Devices><Device>",
        "<Devices><Device></Devices>",
        '<!DOCTYPE d [<!ENTITY a "b">]><Devices><Device psid="&a;"/></Devices>',
    ],
)
def test_mlxfwmanager_without_devices(text: str) -> None:
    with pytest.raises(ValueError, match=r"device|XML"):
        firmware.parse_mlxfwmanager(text)


def test_mlxfwmanager_that_failed_on_a_device() -> None:
    text = '<Devices><Device pciName="0000:5e:00.0" type="--" psid="--" partNumber="--"></Device></Devices>'
    (device,) = firmware.parse_mlxfwmanager(text)
    assert (device.psid, device.part_number, device.flashed) == (None, None, None)


def test_mstflint() -> None:
    device = firmware.parse_mstflint(_text("mstflint_mlx5_0"))
    assert (device.flashed, device.running, device.guid) == ("28.43.2026", "28.41.1000", "a088c20300460c60")
    with pytest.raises(ValueError, match="FW Version"):
        firmware.parse_mstflint("-E- Cannot open Device: 0000:5e:00.0. Operation not permitted. MFE_CR_ERROR\n")
