"""Running configuration of a SONiC switch: the tables of ``sonic-cfggen -d --print-data``."""

from __future__ import annotations

import json
from typing import Any

from fabric_health.lab.switches.device import Device, Port
from fabric_health.lab.switches.layout import secret

BUILD = "202405.1"
HWSKU = "ACS-SN5600"
PLATFORM = "x86_64-nvidia_sn5600-r0"
LANES = 8

Table = dict[str, dict[str, Any]]


def render(device: Device) -> str:
    """Return the configuration database as JSON; every leaf value is text."""
    tables: dict[str, Table] = {
        **_acl(device),
        **_bgp(device),
        **_qos(device),
        "DEVICE_METADATA": {
            "localhost": {
                "bgp_asn": str(device.as_number),
                "buffer_model": "dynamic",
                "default_bgp_status": "up",
                "hostname": device.name,
                "hwsku": HWSKU,
                "mac": device.mac,
                "platform": PLATFORM,
                "type": "ToRRouter" if device.switch.role == "leaf" else "LeafRouter",
            }
        },
        "FLEX_COUNTER_TABLE": {g: {"FLEX_COUNTER_STATUS": "enable"} for g in ("PFCWD", "PORT", "QUEUE")},
        "LOOPBACK_INTERFACE": {"Loopback0": {}, f"Loopback0|{device.router_id}/32": {}},
        "MGMT_INTERFACE": {f"eth0|{device.switch.address}/24": {}},
        "NTP_SERVER": {"10.0.0.10": {"association_type": "server", "iburst": "on"}},
        "PORT": {p.name: _port(p) for p in device.ports},
        "SNMP_COMMUNITY": {secret("community"): {"TYPE": "RO"}},
        "TACPLUS": {"global": {"auth_type": "login", "passkey": secret(device.name + "/tacacs", 24)}},
        "VERSIONS": {"DATABASE": {"VERSION": "version_202405_01"}},
        "VLAN": {f"Vlan{v}": {"vlanid": str(v)} for v in device.vlans},
        "VLAN_MEMBER": {
            f"Vlan{p.vlan}|{p.name}": {"tagging_mode": "untagged"} for p in device.cabled if p.vlan is not None
        },
    }
    return json.dumps({k: v for k, v in sorted(tables.items()) if v}, indent=4) + "\n"


def alias(port: Port) -> str:
    """Return the port's alias: the face-plate name."""
    return f"etp{port.position}"


def lanes(port: Port) -> str:
    """Return the port's serial lanes, comma separated."""
    return ",".join(str(port.number + i) for i in range(LANES))


def _port(port: Port) -> dict[str, str]:
    out = {
        "admin_status": "up" if port.admin_up else "down",
        "alias": alias(port),
        "index": str(port.position),
        "lanes": lanes(port),
        "speed": str(port.set_speed_gbps * 1000),
    }
    if port.cabled:
        out |= {"description": port.description, "fec": port.fec, "pfc_asym": "off"}
    if port.mtu_line is not None:
        out["mtu"] = str(port.mtu_line)
    return dict(sorted(out.items()))


def _qos(device: Device) -> dict[str, Table]:
    cabled, lossless = device.cabled, [str(p) for p in device.lossless]
    maps = {"dscp_to_tc_map": "R", "pfc_to_queue_map": "R", "tc_to_pg_map": "R", "tc_to_queue_map": "R"}
    queues: Table = {}
    for p in cabled:
        for priority in lossless:
            queues[f"{p.name}|{priority}"] = {"scheduler": "S3", **({"wred_profile": "E"} if p.ecn else {})}
        queues[f"{p.name}|6"] = {"scheduler": "S6"}
    same = {p: p for p in lossless}
    watched = {"pfcwd_sw_enable": ",".join(lossless)}
    return {
        "BUFFER_PG": {f"{p.name}|{priority}": {"profile": "NULL"} for p in cabled for priority in lossless},
        "CABLE_LENGTH": {"AZURE": {p.name: "5m" for p in cabled}},
        "DSCP_TO_TC_MAP": {"R": {**{str(8 * int(p) + 2): p for p in lossless}, "48": "6"}},
        "MAP_PFC_PRIORITY_TO_QUEUE": {"R": same},
        "PFC_WD": {
            **{p.name: {"action": "drop", "detection_time": "400", "restoration_time": "400"} for p in cabled},
            "GLOBAL": {"POLL_INTERVAL": "200"},
        },
        "PORT_QOS_MAP": {p.name: {**maps, "pfc_enable": ",".join(map(str, p.pfc)), **watched} for p in cabled},
        "QUEUE": queues,
        "SCHEDULER": {"S3": {"type": "DWRR", "weight": "60"}, "S6": {"type": "STRICT"}},
        "TC_TO_PRIORITY_GROUP_MAP": {"R": same},
        "TC_TO_QUEUE_MAP": {"R": {**same, "6": "6"}},
        "WRED_PROFILE": {
            "E": {
                "ecn": "ecn_all",
                "green_drop_probability": "80",
                "green_max_threshold": "1600000",
                "green_min_threshold": "160000",
                "wred_green_enable": "true",
            }
        },
    }


def _acl(device: Device) -> dict[str, Table]:
    rules: Table = {
        "MGMT-IN|RULE_10": {"IP_PROTOCOL": "6", "L4_DST_PORT": "22", "SRC_IP": "10.0.0.0/16"},
        "MGMT-IN|RULE_20": {"IP_PROTOCOL": "17", "L4_DST_PORT": "161", "SRC_IP": "10.0.0.0/16"},
        "MGMT-IN|RULE_30": {"IP_PROTOCOL": "1"},
        "MGMT-IN|DEFAULT_RULE": {"ETHER_TYPE": "2048"},
    }
    if device.acl_line:
        rules["MGMT-IN|RULE_25"] = {"SRC_IP": "0.0.0.0/0"}
    for name, rule in rules.items():
        number = name.rpartition("_")[2]
        last = name.endswith("DEFAULT_RULE")
        rule |= {"PACKET_ACTION": "DROP" if last else "ACCEPT", "PRIORITY": "1" if last else str(10_000 - int(number))}
    table = {"policy_desc": "management access", "services": ["SSH", "SNMP"], "stage": "ingress", "type": "CTRLPLANE"}
    return {"ACL_RULE": dict(sorted(rules.items())), "ACL_TABLE": {"MGMT-IN": table}}


def _bgp(device: Device) -> dict[str, Table]:
    interfaces: Table = {}
    neighbors: Table = {}
    for p in device.uplinks:
        interfaces[p.name] = {}
        interfaces[f"{p.name}|10.254.{p.position}.0/31"] = {}
        peer = p.description.split(" ")[0]
        neighbors[f"10.254.{p.position}.1"] = {"admin_status": "up", "asn": "external", "name": peer}
    return {"BGP_NEIGHBOR": neighbors, "INTERFACE": interfaces}
