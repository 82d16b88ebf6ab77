"""Running configuration of a Cumulus Linux switch as NVUE prints it in JSON: ports that share settings in ranges."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterable
from typing import Any

from fabric_health.lab.switches.device import Device, Port
from fabric_health.lab.switches.layout import runs

VERSION = "Cumulus Linux 5.12.1"
# A profile without priorities: what takes a port out of lossless operation while RoCE is on for the switch.
LOSSY = "lossy-ports"

Tree = dict[str, Any]


def render(device: Device) -> str:
    """Return ``nv config show -o json``."""
    header = {"model": "MSN4700", "nvue-api-version": "nvue_v1", "rev-id": "1.0", "version": VERSION}
    return json.dumps([{"header": header}, {"set": _set(device)}], indent=2) + "\n"


def _set(device: Device) -> Tree:
    out: Tree = {"acl": {"MGMT-IN": {"rule": _rules(device), "type": "ipv4"}}}
    if device.vlans:
        vlans = ",".join(map(str, device.vlans))
        out["bridge"] = {"domain": {"br_default": {"vlan": {vlans: {}}}}}
    out["interface"] = _interfaces(device)
    out["qos"] = _qos(device)
    out["router"] = {"bgp": {"autonomous-system": device.as_number, "router-id": device.router_id}}
    out["service"] = {
        "ntp": {"mgmt": {"server": {"10.0.0.10": {}}}},
        "snmp-server": {"enable": "on", "readonly-community": {"$nvsec$c2ab5f6e0d1f": {"access": {"any": {}}}}},
    }
    out["system"] = {
        "aaa": {"user": {"fabric": {"hashed-password": "*", "role": "nvue-admin"}}},
        "config": {"auto-save": {"state": "enabled"}},
        "hostname": device.name,
        "timezone": "Etc/UTC",
    }
    neighbors = {p.name: {"peer-group": "spines", "type": "unnumbered"} for p in device.uplinks}
    bgp = {"neighbor": neighbors, "peer-group": {"spines": {"remote-as": "external"}}, "state": "enabled"}
    out["vrf"] = {"default": {"router": {"bgp": bgp}}}
    return out


def _rules(device: Device) -> Tree:
    def rule(action: str, **ip: Any) -> Tree:
        return {"action": {action: {}}, "match": {"ip": ip}}

    rules = {
        "10": rule("permit", protocol="tcp", **{"source-ip": "10.0.0.0/16", "tcp": {"dest-port": {"22": {}}}}),
        "20": rule("permit", protocol="udp", **{"source-ip": "10.0.0.0/16", "udp": {"dest-port": {"161": {}}}}),
        "30": rule("permit", protocol="icmp"),
        "40": rule("deny", **{"source-ip": "ANY"}),
    }
    if device.acl_line:
        rules["25"] = rule("permit", **{"source-ip": "ANY"})
    return dict(sorted(rules.items()))


def _interfaces(device: Device) -> Tree:
    out: Tree = {
        "eth0": {
            "acl": {"MGMT-IN": {"inbound": {"control-plane": {}}}},
            "ip": {"address": {f"{device.switch.address}/24": {}}, "vrf": "mgmt"},
            "type": "eth",
        },
        "lo": {"ip": {"address": {f"{device.router_id}/32": {}}}, "type": "loopback"},
    }
    for key, tree in (
        *_grouped(device.ports, _state, lambda s: {"link": {"state": {s: {}}}, "type": "swp"}),
        *_grouped(device.cabled, _link, lambda link: {"link": dict(link)}),
        *_grouped(device.cabled, lambda p: p.vlan, _access),
        *_grouped(device.cabled, lambda p: bool(p.pfc), _pfc),
    ):
        _merge(out.setdefault(key, {}), tree)
    for port in device.cabled:
        _merge(out.setdefault(port.name, {}), {"description": port.description})
    return out


def _state(port: Port) -> str:
    return "up" if port.admin_up else "down"


def _link(port: Port) -> tuple[tuple[str, Any], ...]:
    mtu = (("mtu", port.mtu_line),) if port.mtu_line is not None else ()
    return (("fec", _fec(port)), *mtu, ("speed", f"{port.set_speed_gbps}G"))


def _fec(port: Port) -> str:
    return {"rs": "rs", "fc": "baser", "none": "off"}[port.fec]


def _access(vlan: int | None) -> Tree:
    return {} if vlan is None else {"bridge": {"domain": {"br_default": {"access": vlan}}}}


def _pfc(lossless: bool) -> Tree:
    qos: Tree = {"pfc-watchdog": {"state": "enable"}}
    return {"qos": qos if lossless else {"pfc": {"profile": LOSSY}, **qos}}


def _grouped(
    ports: Iterable[Port], setting: Callable[[Port], Hashable], tree: Callable[[Any], Tree]
) -> Iterable[tuple[str, Tree]]:
    """Give (key with ranges, settings) for every group of ports that share a setting."""
    groups: dict[Hashable, list[Port]] = {}
    for port in ports:
        groups.setdefault(setting(port), []).append(port)
    for value, members in groups.items():
        settings = tree(value)
        if settings:
            yield _key(members), settings


def _key(members: list[Port]) -> str:
    parts = []
    for first, last in runs(members):
        # Breakout and other unusual names are no range of numbers: they are listed one by one.
        plain = first.name == f"swp{first.number}" and last.name == f"swp{last.number}"
        whole = last.number - first.number == last.position - first.position
        if first is last:
            parts.append(first.name)
        elif plain and whole:
            parts.append(f"{first.name}-{last.number}")
        else:
            parts += [m.name for m in members if first.position <= m.position <= last.position]
    return ",".join(parts)


def _qos(device: Device) -> Tree:
    mark = "enable" if device.ecn else "disable"
    ecn = {"ecn": mark, "max-threshold": 1600000, "min-threshold": 160000, "probability": 80, "red": "disable"}
    classes = {str(p): dict(ecn) for p in device.lossless}
    pfc: Tree = {LOSSY: {"rx": "disable", "switch-priority": {"3": {}}, "tx": "disable"}}
    if device.lossless != (3,):  # RoCE's own default is priority 3 alone
        wanted: Tree = {str(p): {} for p in device.lossless}
        pfc["default-global"] = {"rx": "enable", "switch-priority": wanted, "tx": "enable"}
    return {
        "congestion-control": {"default-global": {"traffic-class": classes}},
        "pfc": pfc,
        "roce": {"mode": "lossless", "state": "enabled"},
    }


def _merge(into: Tree, part: Tree) -> None:
    for key, value in part.items():
        if isinstance(into.get(key), dict) and isinstance(value, dict):
            _merge(into[key], value)
        else:
            into[key] = json.loads(json.dumps(value)) if isinstance(value, dict) else value
