"""Cumulus Linux: a Linux shell with NVUE, lldpd and ethtool."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from fabric_health.lab.answer import Answer, not_installed
from fabric_health.lab.switches.configs.cumulus import VERSION
from fabric_health.lab.switches.device import Neighbor, Port
from fabric_health.lab.switches.shows.view import View, clock

Json = dict[str, Any]


def answer(view: View, command: str) -> Answer:
    """Answer one command line of the Cumulus shell."""
    words = command.split()
    while words[:1] == ["sudo"] or words[:1] == ["-n"]:
        words = words[1:]
    line = " ".join(words)
    if line in _COMMANDS:
        return Answer(_COMMANDS[line](view))
    if words[:2] == ["ethtool", "-S"] and len(words) == 3:
        return _ethtool_s(view, words[2])
    if words[:1] == ["nv"]:
        return Answer(stderr="Error: The requested item does not exist.\n", exit_code=1)
    return not_installed(words[0] if words else "")


def _dumped(make: Callable[[View], Any]) -> Callable[[View], str]:
    return lambda view: json.dumps(make(view), indent=2) + "\n"


def _system(view: View) -> Json:
    up = view.uptime
    return {
        "build": VERSION,
        "date-time": f"{view.now:%Y-%m-%d %H:%M:%S}",
        "health-status": "OK",
        "hostname": view.device.name,
        "product-name": "Cumulus Linux",
        "product-release": VERSION.rpartition(" ")[2],
        "timezone": "Etc/UTC",
        "uptime": f"{up.days} days, {clock(up)}",
    }


def _platform(view: View) -> Json:
    return {
        "asic-model": "Spectrum-3",
        "asic-vendor": "Mellanox",
        "base-mac": view.device.mac.upper(),
        "cpu": "x86_64 Intel(R) Xeon(R) CPU D-1527 @ 2.20GHz x8",
        "disk-size": "55.9 GB",
        "manufacturer": "Mellanox",
        "memory": "31.00 GB",
        "part-number": "MSN4700-WS2RC",
        "platform-name": "x86_64-mlnx_x86-r0",
        "product-name": "MSN4700",
        "serial-number": view.device.serial,
        "system-mac": view.device.mac,
    }


def _interfaces(view: View) -> Json:
    out: Json = {
        "eth0": _management(view),
        "lo": {"ip": {"address": {f"{view.device.router_id}/32": {}}}, "link": {"mtu": 65536}, "type": "loopback"},
    }
    for p in view.device.ports:
        out[p.name] = _interface(view, p)
    return out


def _management(view: View) -> Json:
    return {
        "ip": {"address": {f"{view.device.switch.address}/24": {}}},
        "link": {
            "admin-status": "up",
            "auto-negotiate": "on",
            "duplex": "full",
            "mac-address": view.device.mac,
            "mtu": 1500,
            "oper-status": "up",
            "speed": "1G",
            "state": {"up": {}},
        },
        "type": "eth",
    }


def _interface(view: View, port: Port) -> Json:
    c = view.counters(port)
    admin, oper = ("up" if up else "down" for up in (port.admin_up, port.oper_up))
    running: Json = {}
    if port.oper_up:
        running = {"fec": {"rs": "rs", "fc": "baser", "none": "off"}[port.fec], "speed": f"{port.speed_gbps}G"}
    link = {
        "admin-status": admin,
        "auto-negotiate": "off",
        "duplex": "full",
        **running,
        "mac-address": port.mac,
        "mtu": port.mtu_bytes,
        "oper-status": oper,
        "state": {oper: {}},
        "stats": {
            "carrier-transitions": c.transitions,
            "in-bytes": c.rx_bytes,
            "in-drops": c.rx_discards,
            "in-errors": c.rx_errors,
            "in-pkts": c.rx_packets,
            "out-bytes": c.tx_bytes,
            "out-drops": c.tx_discards,
            "out-errors": c.tx_errors,
            "out-pkts": c.tx_packets,
        },
    }
    out: Json = {"ip": {"address": {}}, "link": link, "type": "swp"}
    if port.description:
        out["description"] = port.description
    if port.neighbor:
        out["lldp"] = {"neighbor": _neighbor(port.neighbor)}
    return out


def _neighbor(n: Neighbor) -> Json:
    """Neighbours are keyed by the name they announce."""
    port = {
        "description": n.port_description,
        "name": n.port_id,
        "ttl": 120,
        "type": "mac" if n.port_id_is_mac else "ifname",
    }
    chassis = {"chassis-id": n.mac, "system-description": n.system_description, "system-name": n.system}
    return {n.system: {"age": "65", "chassis": chassis, "port": port}}


def _lldp(view: View) -> Json:
    out = []
    for i, p in enumerate((p for p in view.device.ports if p.neighbor), start=1):
        n = p.neighbor
        if n is None:
            continue
        capabilities = [
            {"type": "Bridge", "enabled": n.is_switch},
            {"type": "Router", "enabled": n.is_switch},
            {"type": "Station", "enabled": not n.is_switch},
        ]
        port_id = {"type": "mac" if n.port_id_is_mac else "ifname", "value": n.port_id}
        out.append(
            {
                "name": p.name,
                "via": "LLDP",
                "rid": str(i),
                "age": f"{view.uptime.days} days, {clock(view.uptime)}",
                "chassis": [
                    {
                        "id": [{"type": "mac", "value": n.mac}],
                        "name": [{"value": n.system}],
                        "descr": [{"value": n.system_description}],
                        "capability": capabilities,
                    }
                ],
                "port": [
                    {"id": [port_id], "descr": [{"value": n.port_description}], "ttl": [{"value": "120"}]},
                ],
            }
        )
    return {"lldp": [{"interface": out}]}


def _ethtool_s(view: View, name: str) -> Answer:
    port = next((p for p in view.device.ports if p.name == name), None)
    if port is None:
        return Answer(stderr="netlink error: no device matches name (offset 24)\nno stats available\n", exit_code=94)
    c = view.counters(port)
    lossless = min(view.device.lossless, default=None)
    values = {
        "HwIfInOctets": c.rx_bytes,
        "HwIfInUcastPkts": c.rx_packets,
        "HwIfInBcastPkts": 0,
        "HwIfInMcastPkts": 0,
        "HwIfOutOctets": c.tx_bytes,
        "HwIfOutUcastPkts": c.tx_packets,
        "HwIfOutMcastPkts": 0,
        "HwIfOutBcastPkts": 0,
        "HwIfInDiscards": c.rx_discards,
        "HwIfInL3Drops": 0,
        "HwIfInBufferDrops": 0,
        "HwIfInAclDrops": 0,
        "HwIfInDot3LengthErrors": 0,
        "HwIfInErrors": c.rx_errors,
        "HwIfInDot3FrameErrors": 0,
        "SoftInErrors": 0,
        "SoftInDrops": 0,
        "HwIfOutDiscards": c.tx_discards,
        "HwIfOutErrors": c.tx_errors,
        "HwIfOutQDrops": 0,
        "HwIfOutEcnMarkedPkts": c.ecn_marked,
        "HwIfInPausePkt": 0,
        "HwIfOutPausePkt": 0,
    }
    for i in range(8):
        values[f"HwIfInPfc{i}Pkt"] = c.rx_pause if i == lossless else 0
        values[f"HwIfOutPfc{i}Pkt"] = c.tx_pause if i == lossless else 0
    return Answer("NIC statistics:\n" + "".join(f"     {k}: {v}\n" for k, v in values.items()))


_COMMANDS: dict[str, Callable[[View], str]] = {
    "nv config show -o json": lambda view: view.config(),
    "nv show system -o json": _dumped(_system),
    "nv show platform -o json": _dumped(_platform),
    "nv show interface -o json": _dumped(_interfaces),
    "lldpctl -f json0": _dumped(_lldp),
}
