"""Cisco NX-OS: JSON in TABLE/ROW form, where a single row is an object rather than a list, and values are text."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from fabric_health.lab.answer import Answer
from fabric_health.lab.switches.device import Port
from fabric_health.lab.switches.layout import fixed_table
from fabric_health.lab.switches.shows.view import View, clock

Json = dict[str, Any]
FEC = {"rs": "Rs-fec", "fc": "Fc-fec", "none": "Off"}


def answer(view: View, command: str) -> Answer:
    """Answer one NX-OS command line."""
    line, _, output = (part.strip() for part in command.partition("|"))
    line = re.sub(r"\s+", " ", line)
    if line in _JSON and output in ("json", "json-pretty"):
        indent = 4 if output == "json-pretty" else None
        return Answer(json.dumps(_JSON[line](view), indent=indent) + "\n")
    if line in _TEXT and output in ("", "no-more"):
        return Answer(_TEXT[line](view))
    return Answer(f"Syntax error while parsing '{command[:200]}'\n\n", exit_code=16)


def _table(name: str, rows: list[Json]) -> Json:
    if not rows:
        return {}
    return {f"TABLE_{name}": {f"ROW_{name}": rows[0] if len(rows) == 1 else rows}}


def _version(view: View) -> Json:
    up = view.uptime
    return {
        "header_str": "Cisco Nexus Operating System (NX-OS) Software\n",
        "bios_ver_str": "01.14",
        "kickstart_ver_str": "10.4(3)",
        "nxos_ver_str": "10.4(3)",
        "nxos_file_name": "bootflash:///nxos64-cs.10.4.3.F.bin",
        "chassis_id": "Nexus9000 C9364D-GX2A Chassis",
        "cpu_name": "Intel(R) Xeon(R) CPU D-1633N @ 2.50GHz",
        "memory": "32827580",
        "mem_type": "kB",
        "proc_board_id": view.device.serial.replace("MT", "FDO")[:11],
        "host_name": view.device.name,
        "kern_uptm_days": str(up.days),
        "kern_uptm_hrs": str(up.seconds // 3600),
        "kern_uptm_mins": str(up.seconds % 3600 // 60),
        "kern_uptm_secs": str(up.seconds % 60),
        "manufacturer": "Cisco Systems, Inc.",
    }


def _interfaces(view: View) -> Json:
    rows: list[Json] = [
        {
            "interface": "mgmt0",
            "state": "up",
            "admin_state": "up",
            "eth_hw_desc": "Ethernet",
            "eth_mtu": "1500",
            "eth_bw": "1000000",
            "eth_speed": "1000 Mb/s",
        }
    ]
    rows += [_interface(view, p) for p in view.device.ports]
    rows.append({"interface": "loopback0", "state": "up", "admin_state": "up", "eth_mtu": "1500", "eth_bw": "8000000"})
    return _table("interface", rows)


def _interface(view: View, port: Port) -> Json:
    c = view.counters(port)
    mac = port.mac.replace(":", "")
    since = view.now - (port.down_since or view.now - view.uptime)
    flapped = f"{since.days}d{since.seconds // 3600}h" if since.days else clock(since).rjust(8, "0")
    return {
        "interface": port.name,
        "state": "up" if port.oper_up else "down",
        "state_rsn_desc": _reason(port),
        "admin_state": "up" if port.admin_up else "down",
        "share_state": "Dedicated",
        "eth_hw_desc": "400000/100000 Ethernet",
        "eth_hw_addr": f"{mac[:4]}.{mac[4:8]}.{mac[8:]}",
        **({"desc": port.description} if port.description else {}),
        "eth_mtu": str(port.mtu_bytes),
        "eth_bw": str(port.speed_gbps * 1_000_000),
        "eth_dly": "10",
        "eth_mode": "access" if port.vlan is not None or not port.cabled else "routed",
        "eth_duplex": "full" if port.oper_up else "auto",
        "eth_speed": f"{port.speed_gbps} Gb/s" if port.oper_up else "auto-speed",
        "eth_media": "400G",
        "eth_autoneg": "off",
        "eth_admin_fec_state": FEC[port.fec].lower() if port.cabled else "auto",
        "eth_oper_fec_state": FEC[port.fec] if port.oper_up else "auto",
        "eth_link_flapped": flapped,
        "eth_clear_counters": "never",
        "eth_reset_cntr": str(c.transitions),
        "eth_inucast": str(c.rx_packets),
        "eth_inpkts": str(c.rx_packets),
        "eth_inbytes": str(c.rx_bytes),
        "eth_crc": str(c.rx_errors),
        "eth_inerr": str(c.rx_errors),
        "eth_indiscard": str(c.rx_discards),
        "eth_outucast": str(c.tx_packets),
        "eth_outpkts": str(c.tx_packets),
        "eth_outbytes": str(c.tx_bytes),
        "eth_outerr": str(c.tx_errors),
        "eth_outdiscard": str(c.tx_discards),
        "eth_inpause": "0",
        "eth_outpause": "0",
    }


def _reason(port: Port) -> str:
    if not port.cabled:
        return "XCVR not inserted"
    if not port.admin_up:
        return "Administratively down"
    return "none" if port.oper_up else "Link not connected"


def _status(view: View) -> Json:
    rows: list[Json] = [
        {
            "interface": "mgmt0",
            "state": "connected",
            "vlan": "routed",
            "duplex": "full",
            "speed": "1000",
            "type": "--",
        }
    ]
    for p in view.device.ports:
        down = "xcvrAbsent" if not p.cabled else "disabled" if not p.admin_up else "notconnect"
        rows.append(
            {
                "interface": p.name,
                **({"name": p.description} if p.description else {}),
                "state": "connected" if p.oper_up else down,
                "vlan": str(p.vlan) if p.vlan is not None else "routed" if p.cabled else "1",
                "duplex": "full" if p.oper_up else "auto",
                "speed": f"{p.speed_gbps}G" if p.oper_up else "auto",
                "type": "QSFP-DD-400G-DR4" if p.cabled else "--",
            }
        )
    return _table("interface", rows)


def _oper(port: Port) -> str:
    return f"On  ({sum(1 << p for p in port.pfc):x})" if port.pfc and port.oper_up else "Off"


def _admin(port: Port) -> str:
    return "On" if port.pfc else "Off" if port.cabled else "Auto"


def _pfc(view: View) -> Json:
    rows: list[Json] = []
    for p in view.device.ports:
        c = view.counters(p)
        rows.append(
            {
                "if_name_str": p.name,
                "admin": _admin(p),
                "oper": _oper(p),
                "rx-stats": str(c.rx_pause),
                "tx-stats": str(c.tx_pause),
            }
        )
    return _table("module", [{"module": "1", **_table("pfc_interface", rows)}])


def _pfc_text(view: View) -> str:
    rows = [("Port", "Mode", "Oper(VL bmap)", "RxPPP", "TxPPP")]
    for p in view.device.ports:
        c = view.counters(p)
        rows.append((p.name, _admin(p), _oper(p), str(c.rx_pause), str(c.tx_pause)))
    line = "=" * 60
    return f"slot  1\n=======\n\n\n{line}\n" + fixed_table((19, 5, 15, 11), rows).replace("\n", f"\n{line}\n", 1)


def _lldp(view: View) -> Json:
    rows: list[Json] = []
    for p in view.device.ports:
        n = p.neighbor
        if n is None:
            continue
        mac = n.mac.replace(":", "")
        rows.append(
            {
                "chassis_type": "4",
                "chassis_id": f"{mac[:4]}.{mac[4:8]}.{mac[8:]}",
                "port_type": "3" if n.port_id_is_mac else "5",
                "port_id": n.port_id,
                "l_port_id": p.name.replace("Ethernet", "Eth"),
                "port_desc": n.port_description,
                "sys_name": n.system,
                "sys_desc": n.system_description,
                "ttl": "101",
                "system_capability": "B, R" if n.is_switch else "S",
                "enabled_capability": "B, R" if n.is_switch else "S",
                "mgmt_addr_type": "None",
                "mgmt_addr": "null",
                "vlan_id": "null",
            }
        )
    return {**_table("nbor_detail", rows), "neigh_count": str(len(rows))}


_JSON: dict[str, Callable[[View], Json]] = {
    "show version": _version,
    "show interface": _interfaces,
    "show interface status": _status,
    "show interface priority-flow-control": _pfc,
    "show lldp neighbors detail": _lldp,
}
_TEXT: dict[str, Callable[[View], str]] = {
    "show running-config": lambda view: view.config(),
    "show interface priority-flow-control": _pfc_text,
}
