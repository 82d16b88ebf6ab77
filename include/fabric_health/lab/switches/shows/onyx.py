"""NVIDIA Onyx: ``cli "enable" "..."``; ``| json-print`` gives text values only, in shapes that vary by command."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from fabric_health.lab.answer import Answer
from fabric_health.lab.switches.device import Port
from fabric_health.lab.switches.layout import fixed_table
from fabric_health.lab.switches.shows.view import View

Json = dict[str, Any]
FEC = {"rs": "rs-fec", "fc": "fc-fec", "none": "no-fec"}
_QUOTED = re.compile(r'"([^"]*)"')
_PRIORITY = re.compile(r"show interfaces ethernet counters priority ([0-7])")


def answer(view: View, command: str) -> Answer:
    """Answer one Onyx command line; of several quoted ones the last is answered, as ``enable`` prints nothing."""
    if command.startswith("cli "):
        quoted = _QUOTED.findall(command)
        command = quoted[-1] if quoted else ""
    line, _, output = (part.strip() for part in command.partition("|"))
    line = re.sub(r"\s+", " ", line)
    if output == "json-print":
        priority = _PRIORITY.fullmatch(line)
        if priority:
            return Answer(_print(_counters_priority(view, int(priority[1]))))
        if line in _JSON:
            return Answer(_print(_JSON[line](view)))
    elif output == "" and line in _TEXT:
        return Answer(_TEXT[line](view))
    return Answer(f'% Unrecognized command "{line[:200]}".\nType "?" for help.\n', exit_code=1)


def _print(value: Any) -> str:
    return json.dumps(value, indent=4) + "\n"


def _version(view: View) -> Json:
    up = view.uptime
    span = f"{up.days}d {up.seconds // 3600}h {up.seconds % 3600 // 60}m {up.seconds % 60}.000s"
    return {
        "Product name": "Onyx",
        "Product release": "3.10.4302",
        "Build ID": "#1-dev",
        "Build date": "2023-07-04 17:21:03",
        "Target arch": "x86_64",
        "Target hw": "x86_64",
        "Built by": "jenkins@7c7e9a2b1f2b",
        "Version summary": "X86_64 3.10.4302 2023-07-04 17:21:03 x86_64",
        "Product model": "x86onie",
        "Host ID": view.device.mac.upper().replace(":", ""),
        "System serial num": view.device.serial,
        "System UUID": f"{view.device.mac.replace(':', '')}-0000-0000-0000-000000000000",
        "Uptime": span,
    }


def _interfaces(view: View) -> list[Json]:
    return [_interface(p) for p in view.device.ports]


def _interface(port: Port) -> Json:
    return {
        "header": port.name,
        "Admin state": "Enabled" if port.admin_up else "Disabled",
        "Operational state": "Up" if port.oper_up else "Down",
        "Last change in operational status": "Never" if port.down_since is None else f"{port.down_since:%H:%M:%S} ago",
        "Boot delay time": "0 sec",
        "Description": port.description or "N/A",
        "Mac address": port.mac,
        "MTU": f"{port.mtu_bytes} bytes(Maximum packet size {port.mtu_bytes + 22} bytes)",
        "Fec": FEC[port.fec] if port.oper_up else "auto",
        "Flow-control": "receive off send off",
        "Supported speeds": "1G 10G 25G 40G 50G 100G 200G 400G",
        "Advertised speeds": f"{port.set_speed_gbps}G",
        "Actual speed": f"{port.speed_gbps} Gbps" if port.oper_up else "Unknown",
        "Switchport mode": "access" if port.vlan is not None or not port.cabled else "N/A",
        "MAC learning mode": "Enabled",
    }


def _switchport(view: View) -> Json:
    out: Json = {}
    for p in view.device.ports:
        if p.vlan is not None or not p.cabled:
            out[p.name] = [{"Mode": "access", "Access vlan": str(p.vlan or 1), "Allowed vlans": ""}]
    return out


def _pfc(view: View) -> Json:
    out: Json = {}
    for p in view.device.ports:
        on = bool(p.pfc)
        out[p.name] = [{"PFC admin": "on" if on else "off", "PFC oper": "Enabled" if on else "Disabled"}]
    return out


def _counters(view: View) -> Json:
    out: Json = {}
    for p in view.device.ports:
        c = view.counters(p)
        rx = _block(c.rx_packets, c.rx_bytes, c.rx_discards, c.rx_errors)
        rx |= {"fcs errors": str(c.rx_errors), "undersize packets": "0", "oversize packets": "0", "symbol errors": "0"}
        tx = _block(c.tx_packets, c.tx_bytes, c.tx_discards, c.tx_errors)
        tx |= {"ECN marked packets": str(c.ecn_marked)}
        out[p.name] = [{"Rx": [rx], "Tx": [tx]}]
    return out


def _block(packets: int, octets: int, discards: int, errors: int) -> Json:
    return {
        "packets": str(packets),
        "unicast packets": str(packets),
        "multicast packets": "0",
        "broadcast packets": "0",
        "bytes": str(octets),
        "discard packets": str(discards),
        "error packets": str(errors),
        "pause packets": "0",
    }


def _counters_priority(view: View, priority: int) -> Json:
    out: Json = {}
    for p in view.device.ports:
        c = view.counters(p)
        lossless = priority == min(view.device.lossless, default=None)
        frames = (c.rx_pause, c.tx_pause) if lossless else (0, 0)
        blocks = {}
        for title, packets, octets, pause in (
            ("Rx", c.rx_packets, c.rx_bytes, frames[0]),
            ("Tx", c.tx_packets, c.tx_bytes, frames[1]),
        ):
            moved = (packets, octets) if lossless else (0, 0)
            blocks[title] = [
                {
                    "packets": str(moved[0]),
                    "bytes": str(moved[1]),
                    "pause packets": str(pause),
                    "pause duration": str(pause * 4),
                }
            ]
        out[p.name] = [blocks]
    return out


def _lldp(view: View) -> str:
    widths, line = (20, 24, 24), "-" * 98
    rows = []
    for p in view.device.ports:
        n = p.neighbor
        if n is not None:
            rows.append((p.name, n.mac, n.port_id, n.system))
    header = fixed_table(widths, [("Local Interface", "Device ID", "Port ID", "System Name")])
    body = fixed_table(widths, rows) if rows else ""
    return f"\n{line}\n{header}{line}\n{body}"


_JSON: dict[str, Callable[[View], Any]] = {
    "show version": _version,
    "show interfaces ethernet": _interfaces,
    "show interfaces switchport": _switchport,
    "show dcb priority-flow-control": _pfc,
    "show interfaces ethernet counters": _counters,
}
_TEXT: dict[str, Callable[[View], str]] = {
    "show running-config": lambda view: view.config(),
    "show lldp remote": _lldp,
}
