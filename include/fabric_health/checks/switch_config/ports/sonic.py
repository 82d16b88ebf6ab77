"""Ports of SONiC: tables printed by ``show``, QoS and VLAN from the configuration database."""

from __future__ import annotations

import json
from typing import Any

from fabric_health.checks.switch_config.answers import Answers, clean, mapping
from fabric_health.checks.switch_config.ports import values
from fabric_health.checks.switch_config.ports.reading import PortReading, PortReadings, canonical_port
from fabric_health.checks.switch_config.ports.ruled import Table, by_ruler

_UP = {"up": True, "down": False}
_PFC = tuple(f"PFC{p}" for p in range(8))


def parse_ports(answers: Answers, config: str | None, lossless: frozenset[int]) -> PortReadings:
    """Return the ports of ``show interfaces status``, under their own names even when the CLI shows aliases.

    ``config`` is the normalised config database, None when it could not be read; ``lossless`` the priorities that
    should be.
    """
    tree = mapping(json.loads(config)) if config is not None else None
    aliases = {
        entry["alias"]: name
        for name, entry in mapping((tree or {}).get("PORT")).items()
        if isinstance(entry, dict) and isinstance(entry.get("alias"), str)
    }
    ports = PortReadings(lambda name: canonical_port("sonic", aliases.get(name, name)))
    status = _table(answers, "interfaces", ("Interface", "Speed", "MTU", "FEC", "Oper", "Admin"))
    for row in status.records() if status else ():
        port = ports.of(row["Interface"])
        if port is not None:
            port.speed_gbps = values.speed_gbps(row["Speed"], "m")
            port.mtu_bytes = values.mtu_bytes(row["MTU"])
            port.fec = values.fec(row["FEC"])
            port.oper_up = _UP.get(row["Oper"].lower())
            port.admin_up = _UP.get(row["Admin"].lower())
    if status is not None:
        _cut_off(answers, ports, tree)
    ports.closed = status is not None
    _counters(answers, ports)
    _pause(answers, ports)
    lldp = _table(answers, "lldp", ("LocalPort", "RemoteDevice", "RemotePortID", "RemotePortDescr"))
    if lldp is not None and "Total entries displayed:" not in (answers.text("lldp") or ""):
        answers.problem("lldp", "no line `Total entries displayed:` at the end: the answer is cut off")
        lldp = None
    for row in lldp.records() if lldp else ():
        port = ports.of(row["LocalPort"])
        if port is not None:
            port.hears(row["RemoteDevice"], row["RemotePortID"], row["RemotePortDescr"])
    if tree is not None:
        for name, port in ports.ports.items():
            _from_config(name, port, tree, lossless)
    return ports


def _cut_off(answers: Answers, ports: PortReadings, tree: dict[str, Any] | None) -> None:
    """Keep configured ports that the table lacks as unknown: it was cut between two lines, they are not absent."""
    listed = set(ports.ports)
    configured = [name for name in mapping((tree or {}).get("PORT")) if canonical_port("sonic", name) == name]
    lost = [name for name in configured if name not in listed and ports.of(name) is not None]
    if lost:
        answers.problem("interfaces", f"the table lacks {len(lost)} configured ports, from {lost[0]} on: cut off")


def _tables(answers: Answers, command: str) -> list[Table]:
    text = answers.text(command)
    if text is None:
        return []
    if not text.endswith("\n"):
        # What was cut in mid-line may look like a shorter number.
        answers.problem(command, "the table ends in mid-line: the answer is cut off")
        return []
    return by_ruler(text)


def _table(answers: Answers, command: str, titles: tuple[str, ...]) -> Table | None:
    found = next((t for t in _tables(answers, command) if set(titles) <= set(t.titles)), None)
    if found is None:
        answers.problem(command, f"no table with the columns {', '.join(titles)}")
    return found


def _counters(answers: Answers, ports: PortReadings) -> None:
    table = _table(answers, "counters", ("IFACE", "RX_OK", "RX_ERR", "RX_DRP", "TX_OK", "TX_ERR", "TX_DRP"))
    for row in table.records() if table else ():
        port = ports.of(row["IFACE"])
        if port is not None:
            port.rx_packets = values.count(row["RX_OK"])
            port.rx_errors = values.count(row["RX_ERR"])
            port.rx_discards = values.count(row["RX_DRP"])
            port.tx_packets = values.count(row["TX_OK"])
            port.tx_errors = values.count(row["TX_ERR"])
            port.tx_discards = values.count(row["TX_DRP"])


def _pause(answers: Answers, ports: PortReadings) -> None:
    tables = {t.titles[0]: t for t in _tables(answers, "pfc_counters") if set(_PFC) <= set(t.titles)}
    if not {"Port Rx", "Port Tx"} <= set(tables):
        answers.problem("pfc_counters", "no tables `Port Rx` and `Port Tx` with PFC0..PFC7")
        return
    for title in ("Port Rx", "Port Tx"):
        for row in tables[title].records():
            port = ports.of(row[title])
            counts = [n for n in (values.count(row[p]) for p in _PFC) if n is not None]
            if port is None or len(counts) != len(_PFC):
                continue
            if title == "Port Rx":
                port.rx_pause_frames = values.count(sum(counts))
            else:
                port.tx_pause_frames = values.count(sum(counts))


def _from_config(name: str, port: PortReading, tree: dict[str, Any], lossless: frozenset[int]) -> None:
    port.description = clean(mapping(mapping(tree.get("PORT")).get(name)).get("description"), 500)
    qos = mapping(mapping(tree.get("PORT_QOS_MAP")).get(name))
    port.pfc_priorities = values.priority_list(qos.get("pfc_enable", ""))
    queues = mapping(mapping(tree.get("MAP_PFC_PRIORITY_TO_QUEUE")).get(str(qos.get("pfc_to_queue_map", ""))))
    port.ecn = all(_marks(name, str(queues.get(str(p), p)), tree) for p in sorted(lossless or {3}))
    port.vlan = _vlan(name, mapping(tree.get("VLAN_MEMBER")))


def _marks(port: str, queue: str, tree: dict[str, Any]) -> bool:
    entry = mapping(mapping(tree.get("QUEUE")).get(f"{port}|{queue}"))
    wred = mapping(mapping(tree.get("WRED_PROFILE")).get(str(entry.get("wred_profile", ""))))
    return str(wred.get("ecn", "ecn_none")) not in ("ecn_none", "")


def _vlan(port: str, members: dict[str, Any]) -> int | None:
    for key, entry in members.items():
        vlan, _, member = key.partition("|")
        if member == port and mapping(entry).get("tagging_mode") == "untagged":
            return values.vlan(vlan)
    return None
