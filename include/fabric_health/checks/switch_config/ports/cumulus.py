"""Ports of NVIDIA Cumulus Linux 5.x: NVUE's JSON, lldpd's JSON and the driver's statistics."""

from __future__ import annotations

import json
import re
from typing import Any

from fabric_health.checks.switch_config.answers import Answers, clean, mapping, records
from fabric_health.checks.switch_config.ports import values
from fabric_health.checks.switch_config.ports.reading import PortReading, PortReadings, canonical_port

_ON = frozenset(("on", "yes", "true", "enable", "enabled"))
_OFF = frozenset(("off", "no", "false", "disable", "disabled"))
_PAUSE = re.compile(r"^\s*HwIf(In|Out)Pfc[0-7]Pkt:\s*([0-9]{1,20})\s*$", re.MULTILINE)


def parse_ports(answers: Answers, config: str | None, lossless: frozenset[int]) -> PortReadings:
    """Return the ports of ``nv show interface``; QoS, VLAN and admin state come from the applied config.

    ``config`` is the normalised config, None when it could not be read; ``lossless`` the priorities that should be.
    """
    ports = PortReadings(lambda name: canonical_port("cumulus", name))
    interfaces = answers.json("interfaces", _is_interfaces, "interfaces with a `link` each")
    for name, entry in mapping(interfaces).items():
        port = ports.of(name)
        if port is not None:
            _interface(port, mapping(entry))
    ports.closed = interfaces is not None
    _lldp(answers, ports)
    for name in answers.matching("ethtool_S"):
        port = ports.of(name)
        if port is not None:
            _pause(answers, name, port)
    tree = mapping(json.loads(config)) if config is not None else None
    if tree is not None:
        for name, port in ports.ports.items():
            _from_config(name, port, tree, lossless)
    return ports


def _is_interfaces(data: Any) -> bool:
    return isinstance(data, dict) and any("link" in mapping(v) for v in data.values())


def _interface(port: PortReading, entry: dict[str, Any]) -> None:
    link = mapping(entry.get("link"))
    port.description = clean(link.get("description") or entry.get("description"), 500)
    port.mtu_bytes = values.mtu_bytes(link.get("mtu"))
    port.speed_gbps = values.speed_gbps(link.get("speed"), "m")
    port.fec = values.fec(link.get("fec"))
    port.oper_up = _up(link.get("oper-status", link.get("state")))
    port.admin_up = _up(link.get("admin-status"))
    if port.admin_up is None and port.oper_up:
        port.admin_up = True
    stats = mapping(link.get("stats") or link.get("counters") or entry.get("counters"))
    port.rx_packets = values.count(stats.get("in-pkts"))
    port.tx_packets = values.count(stats.get("out-pkts"))
    port.rx_errors = values.count(stats.get("in-errors"))
    port.tx_errors = values.count(stats.get("out-errors"))
    port.rx_discards = values.count(stats.get("in-drops"))
    port.tx_discards = values.count(stats.get("out-drops"))
    port.carrier_transitions = values.count(stats.get("carrier-transitions"))
    for system, neighbor in mapping(mapping(entry.get("lldp")).get("neighbor")).items():
        far = mapping(mapping(neighbor).get("port"))
        port.hears(system, far.get("name"), far.get("description"))


def _up(state: object) -> bool | None:
    """Read ``up``, ``down`` or NVUE's ``{"up": {}}``."""
    if isinstance(state, dict) and len(state) == 1:
        state = next(iter(state))
    return {"up": True, "down": False}.get(state.lower()) if isinstance(state, str) else None


def _lldp(answers: Answers, ports: PortReadings) -> None:
    data = answers.json("lldp", lambda d: isinstance(d, dict) and "lldp" in d, "lldpctl's `lldp` object")
    for lldp in records(mapping(data).get("lldp")):
        for entry in records(lldp.get("interface")):
            # `json0` names the interface inside, `json` uses the name as the key.
            named = [(entry["name"], entry)] if isinstance(entry.get("name"), str) else list(entry.items())
            for name, body in named:
                port = ports.of(name)
                for neighbor in records(body) if port is not None else ():
                    _neighbor(port, neighbor)


def _neighbor(port: PortReading | None, neighbor: dict[str, Any]) -> None:
    if port is None:
        return
    for far in records(neighbor.get("port")):
        port_id, description = _value(far.get("id")), _value(far.get("descr"))
        named = False
        for chassis in records(neighbor.get("chassis")):
            system = _value(chassis.get("name"))
            if system is None and "id" not in chassis and len(chassis) == 1:
                system = next(iter(chassis))
            named = True
            port.hears(system, port_id, description)
        if not named:
            port.hears(None, port_id, description)


def _value(field: object) -> str | None:
    """Read lldpctl's ``[{"type": .., "value": ..}]``, ``{"value": ..}`` or plain text."""
    if isinstance(field, str):
        return field
    for record in records(field):
        if isinstance(record.get("value"), str):
            return str(record["value"])
    return None


def _pause(answers: Answers, name: str, port: PortReading) -> None:
    command = f"ethtool_S:{name}"
    text = answers.text(command)
    if text is None:
        return
    frames: dict[str, list[int | None]] = {"In": [], "Out": []}
    for direction, number in _PAUSE.findall(text):
        frames[direction].append(values.count(number))
    if not text.endswith("\n") or not all(len(found) == 8 for found in frames.values()):
        answers.problem(command, "no complete NIC statistics with PFC frames of eight priorities both ways")
        return
    port.rx_pause_frames = _sum(frames["In"])
    port.tx_pause_frames = _sum(frames["Out"])


def _sum(numbers: list[int | None]) -> int | None:
    known = [n for n in numbers if n is not None]
    return values.count(sum(known)) if len(known) == len(numbers) else None


def _from_config(name: str, port: PortReading, tree: dict[str, Any], lossless: frozenset[int]) -> None:
    interface = mapping(mapping(tree.get("interface")).get(name))
    qos = mapping(tree.get("qos"))
    if port.admin_up is None:
        port.admin_up = mapping(interface.get("link")).get("state") != "down"
    port.vlan = _vlan(interface, mapping(tree.get("bridge")))
    own = mapping(interface.get("qos"))
    roce = _roce_mode(qos, own)
    port.pfc_priorities = _pfc(qos, own, roce)
    port.ecn = _ecn(qos, own, roce, lossless)


def _vlan(interface: dict[str, Any], bridges: dict[str, Any]) -> int | None:
    for domain, member in mapping(mapping(interface.get("bridge")).get("domain")).items():
        own = mapping(member)
        default = mapping(mapping(bridges.get("domain")).get(domain)).get("untagged", 1)
        return values.vlan(own.get("access", own.get("untagged", default)))
    return None


def _roce_mode(qos: dict[str, Any], own: dict[str, Any]) -> str | None:
    """Return the RoCE mode that the port runs, None when RoCE is off; the default mode is ``lossless``."""
    if "roce" not in qos or _flag(mapping(own.get("roce"))) is False:
        return None
    roce = mapping(qos.get("roce"))
    if _flag(roce) is False:
        return None
    mode = roce.get("mode", "lossless")
    return mode if isinstance(mode, str) else "lossless"


def _flag(node: dict[str, Any]) -> bool | None:
    """Read ``enable: on`` (to 5.10) or ``state: enabled`` (later); None when neither is there."""
    for key in ("enable", "state"):
        text = str(node[key]).lower() if key in node else ""
        if text in _ON | _OFF:
            return text in _ON
    return None


def _profile(qos: dict[str, Any], own: dict[str, Any], feature: str) -> dict[str, Any] | None:
    """Return the profile of ``feature`` that applies to the port, None when none does."""
    profiles = mapping(qos.get(feature))
    name = mapping(own.get(feature)).get("profile")
    if isinstance(name, str):
        return mapping(profiles.get(name))
    return mapping(profiles["default-global"]) if "default-global" in profiles else None


def _pfc(qos: dict[str, Any], own: dict[str, Any], roce: str | None) -> str | None:
    profile = _profile(qos, own, "pfc")
    if profile is None:
        return "3" if roce is not None and roce.startswith("lossless") else ""
    if (
        _flag(profile) is False
        or {str(profile.get(way)).lower() for way in ("rx", "tx", "rx-enable", "tx-enable")} & _OFF
    ):
        return ""
    chosen = profile.get("switch-priority")
    found = mapping(chosen) if isinstance(chosen, dict) else dict.fromkeys(re.findall(r"[0-9]+", str(chosen or "")))
    numbers = [int(p) for p in found if re.fullmatch(r"[0-7]", str(p))]
    return values.priorities(numbers) if len(numbers) == len(found) else None


def _ecn(qos: dict[str, Any], own: dict[str, Any], roce: str | None, lossless: frozenset[int]) -> bool | None:
    profile = _profile(qos, own, "congestion-control") or {}
    classes = mapping(profile.get("traffic-class"))
    marks = []
    for priority in sorted(lossless or {3}):
        said = mapping(classes.get(str(priority))).get("ecn")
        if isinstance(said, dict):
            said = "on" if _flag(said) is not False else "off"
        if str(said).lower() in _OFF:
            marks.append(False)
        else:
            # RoCE in every mode marks on the lossless class unless told otherwise.
            marks.append(roce is not None or str(said).lower() in _ON)
    return all(marks)
