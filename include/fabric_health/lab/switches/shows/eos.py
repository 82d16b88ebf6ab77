"""Arista EOS: JSON where the command has a model, text otherwise; errors go to stdout."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from fabric_health.lab.answer import Answer
from fabric_health.lab.switches.device import Neighbor, Port
from fabric_health.lab.switches.layout import fixed_table
from fabric_health.lab.switches.shows.view import View

Json = dict[str, Any]


def answer(view: View, command: str) -> Answer:
    """Answer one EOS command line."""
    line, _, output = (part.strip() for part in command.partition("|"))
    line = re.sub(r"\s+", " ", line)
    if line in _JSON and output == "json":
        return Answer(json.dumps(_JSON[line](view), indent=4) + "\n")
    if line in _TEXT and output in ("", "no-more"):
        return Answer(_TEXT[line](view))
    if line in _TEXT and output == "json":
        return Answer("% This is an unconverted command\n", exit_code=1)
    return Answer("% Invalid input\n", exit_code=1)


def _version(view: View) -> Json:
    up = view.uptime.total_seconds()
    return {
        "architecture": "x86_64",
        "bootupTimestamp": round(view.now.timestamp() - up, 2),
        "hardwareRevision": "11.02",
        "internalVersion": "4.33.1F-39879738.4331F",
        "mfgName": "Arista",
        "modelName": "DCS-7060DX5-64S",
        "serialNumber": view.device.serial.replace("MT", "JPA"),
        "systemMacAddress": view.device.mac,
        "uptime": up,
        "version": "4.33.1F",
    }


def _interfaces(view: View) -> Json:
    out = {p.name: _interface(view, p) for p in view.device.ports}
    out["Management1"] = {
        "name": "Management1",
        "hardware": "ethernet",
        "interfaceStatus": "connected",
        "lineProtocolStatus": "up",
        "bandwidth": 1_000_000_000,
        "mtu": 1500,
        "description": "",
    }
    return {"interfaces": out}


def _interface(view: View, port: Port) -> Json:
    c = view.counters(port)
    rx_errors = {"alignmentErrors": 0, "fcsErrors": c.rx_errors, "giantFrames": 0, "runtFrames": 0}
    changed = port.down_since or view.now - view.uptime
    return {
        "name": port.name,
        "description": port.description,
        "hardware": "ethernet",
        "forwardingModel": "bridged" if port.vlan is not None else "routed",
        "interfaceStatus": _status(port),
        "lineProtocolStatus": "up" if port.oper_up else "down",
        "bandwidth": port.speed_gbps * 10**9 if port.oper_up else 0,
        "duplex": "duplexFull",
        "autoNegotiate": "off",
        "mtu": port.mtu_bytes,
        "burnedInAddress": port.mac,
        "physicalAddress": port.mac,
        "lastStatusChangeTimestamp": changed.timestamp(),
        "interfaceCounters": {
            "inOctets": c.rx_bytes,
            "inUcastPkts": c.rx_packets,
            "inMulticastPkts": 0,
            "inBroadcastPkts": 0,
            "inTotalPkts": c.rx_packets,
            "inDiscards": c.rx_discards,
            "totalInErrors": c.rx_errors,
            "inputErrorsDetail": {**rx_errors, "symbolErrors": 0, "rxPause": 0},
            "outOctets": c.tx_bytes,
            "outUcastPkts": c.tx_packets,
            "outMulticastPkts": 0,
            "outBroadcastPkts": 0,
            "outTotalPkts": c.tx_packets,
            "outDiscards": c.tx_discards,
            "totalOutErrors": c.tx_errors,
            "outputErrorsDetail": {"collisions": 0, "deferredTransmissions": 0, "lateCollisions": 0, "txPause": 0},
            "linkStatusChanges": c.transitions,
            "counterRefreshTime": view.now.timestamp(),
        },
    }


def _status(port: Port) -> str:
    if not port.admin_up:
        return "disabled"
    return "connected" if port.oper_up else "notconnect"


def _statuses(view: View) -> Json:
    out: Json = {p.name: _status_row(p) for p in view.device.ports}
    out["Management1"] = {
        "description": "",
        "linkStatus": "connected",
        "lineProtocolStatus": "up",
        "bandwidth": 1_000_000_000,
        "duplex": "duplexFull",
        "autoNegotiateActive": True,
        "autoNegotigateActive": True,
        "interfaceType": "10/100/1000",
        "vlanInformation": {"interfaceMode": "routed", "interfaceForwardingModel": "routed"},
    }
    return {"interfaceStatuses": out}


def _status_row(port: Port) -> Json:
    if port.vlan is not None:
        vlan: Json = {"interfaceMode": "bridged", "interfaceForwardingModel": "bridged", "vlanId": port.vlan}
    elif port.cabled:
        vlan = {"interfaceMode": "routed", "interfaceForwardingModel": "routed"}
    else:
        vlan = {"interfaceMode": "bridged", "interfaceForwardingModel": "bridged", "vlanId": 1}
    return {
        "description": port.description,
        "linkStatus": _status(port),
        "lineProtocolStatus": "up" if port.oper_up else "down",
        "bandwidth": port.speed_gbps * 10**9 if port.oper_up else 0,
        "duplex": "duplexFull",
        "autoNegotiateActive": False,
        "autoNegotigateActive": False,
        "interfaceType": "400GBASE-DR4" if port.cabled else "Not Present",
        "vlanInformation": vlan,
    }


def _error_correction(view: View) -> Json:
    modes = {"rs": "reedSolomon", "fc": "fireCode", "none": "disabled"}
    ports = view.device.ports
    return {
        "interfaceErrCorrStatuses": {
            p.name: {"errCorrEncodingStatus": modes[p.fec] if p.oper_up else "disabled"} for p in ports
        }
    }


def _lldp(view: View) -> Json:
    out: Json = {p.name: {"lldpNeighborInfo": [_neighbor(p.neighbor)]} for p in view.device.ports if p.neighbor}
    return {"lldpNeighbors": out}


def _neighbor(n: Neighbor) -> Json:
    chassis = n.mac.replace(":", "")
    return {
        "chassisId": f"{chassis[:4]}.{chassis[4:8]}.{chassis[8:]}",
        "chassisIdType": "macAddress",
        "systemName": n.system,
        "systemDescription": n.system_description,
        "systemCapabilities": {"bridge": n.is_switch, "router": n.is_switch, "stationOnly": not n.is_switch},
        "neighborInterfaceInfo": {
            "interfaceIdType": "macAddress" if n.port_id_is_mac else "interfaceName",
            "interfaceId": n.port_id if n.port_id_is_mac else f'"{n.port_id}"',
            "interfaceId_v2": n.port_id,
            "interfaceDescription": n.port_description,
            "maxFrameSize": 9000,
        },
        "managementAddresses": [],
        "ttl": 120,
    }


def short(name: str) -> str:
    """Return the short form of a port name that EOS uses in text tables: ``Et1/1``."""
    return re.sub(r"^Ethernet", "Et", name)


def _pfc(view: View) -> str:
    head = (
        "The hardware supports PFC on priorities 0 1 2 3 4 5 6 7\n"
        "PFC receive processing is enabled on priorities 0 1 2 3 4 5 6 7\n"
        "The PFC watchdog timeout is 0.0 second(s) (default)\n"
        "The PFC watchdog recovery-time is 0.0 second(s) (auto) (default)\n"
        "The PFC watchdog polling-interval is 0.0 second(s) (default)\n"
        "The PFC watchdog action is errdisable\n"
        "Global PFC : Enabled\n\n"
        "E: PFC Enabled, D: PFC Disabled, A: PFC Active, W: PFC Watchdog Active\n"
    )
    rows = [("Port", "Status", "Priorities", "Action", "Timeout", "Recovery", "Polling", "Note")]
    for p in view.device.ports:
        status = "E A -" if p.pfc and p.oper_up else "E - -" if p.pfc else "D - -"
        rows.append((short(p.name), status, " ".join(map(str, p.pfc)), "-", "-", "- / -", "- / -", ""))
    table = fixed_table((12, 8, 17, 8, 9, 13, 13), rows)
    header, _, body = table.partition("\n")
    return f"{head}{header}\n{'-' * 79}\n{body}"


def _pfc_counters(view: View) -> str:
    lines = [f"{'Port':<12}{'RxPfc':>16}{'TxPfc':>16}"]
    for p in view.device.ports:
        c = view.counters(p)
        lines.append(f"{short(p.name):<12}{c.rx_pause:>16}{c.tx_pause:>16}")
    return "\n".join(lines) + "\n"


_JSON: dict[str, Callable[[View], Json]] = {
    "show version": _version,
    "show interfaces": _interfaces,
    "show interfaces status": _statuses,
    "show interfaces error-correction": _error_correction,
    "show lldp neighbors detail": _lldp,
}
_TEXT: dict[str, Callable[[View], str]] = {
    "show running-config": lambda view: view.config(),
    "show priority-flow-control": _pfc,
    "show priority-flow-control counters": _pfc_counters,
}
