"""Ports of Arista EOS: JSON, PFC as text, ECN from the configuration."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from fabric_health.checks.switch_config.answers import Answers, clean, mapping, records
from fabric_health.checks.switch_config.ports import blocks, values
from fabric_health.checks.switch_config.ports.reading import PortReading, PortReadings, canonical_port
from fabric_health.checks.switch_config.ports.ruled import by_titles

_PFC_COUNTERS = re.compile(r"^\s*(\S{1,32})\s+([0-9]{1,20})\s+([0-9]{1,20})\s*$", re.MULTILINE)
_QUEUE = re.compile(r"(?:uc-)?tx-queue ([0-9])")


def parse_ports(answers: Answers, config: str | None, lossless: frozenset[int]) -> PortReadings:
    """Return the ports of ``show interfaces`` and ``show interfaces status``.

    ``config`` is the normalised config, None when it could not be read; ``lossless`` the priorities that should be.
    """
    ports = PortReadings(lambda name: canonical_port("eos", name))
    interfaces = answers.json("interfaces", _has("interfaces", "interfaceStatus"), "`interfaces` with their status")
    for name, entry in mapping(mapping(interfaces).get("interfaces")).items():
        port = ports.of(name)
        if port is not None:
            _interface(port, mapping(entry))
    status = answers.json("status", _has("interfaceStatuses", "linkStatus"), "`interfaceStatuses`")
    ports.closed = interfaces is not None
    for name, entry in mapping(mapping(status).get("interfaceStatuses")).items():
        port = ports.of(name)
        if port is not None:
            _status(port, mapping(entry))
    ports.closed = ports.closed or status is not None
    coding = answers.json("fec", _has("interfaceErrCorrStatuses", None), "`interfaceErrCorrStatuses`")
    for name, entry in mapping(mapping(coding).get("interfaceErrCorrStatuses")).items():
        port = ports.of(name)
        if port is not None:
            port.fec = values.fec(mapping(entry).get("errCorrEncodingStatus"))
    _pfc(answers, ports)
    _pause(answers, ports)
    _lldp(answers, ports)
    if config is not None:
        _ecn(ports, blocks.read(config), lossless)
    return ports


def _has(table: str, key: str | None) -> Any:
    def shape(data: Any) -> bool:
        entries = data.get(table) if isinstance(data, dict) else None
        if not isinstance(entries, dict):
            return False
        return key is None or any(key in mapping(v) for v in entries.values())

    return shape


def _interface(port: PortReading, entry: dict[str, Any]) -> None:
    _state(port, entry.get("interfaceStatus"), entry.get("lineProtocolStatus"))
    port.mtu_bytes = values.mtu_bytes(entry.get("mtu"))
    port.speed_gbps = values.speed_gbps(entry.get("bandwidth"), "")
    port.description = clean(entry.get("description"), 500)
    counters = mapping(entry.get("interfaceCounters"))
    port.rx_packets = _sum(counters, ("inUcastPkts", "inMulticastPkts", "inBroadcastPkts"))
    port.tx_packets = _sum(counters, ("outUcastPkts", "outMulticastPkts", "outBroadcastPkts"))
    port.rx_errors = values.count(counters.get("totalInErrors"))
    port.tx_errors = values.count(counters.get("totalOutErrors"))
    port.rx_discards = values.count(counters.get("inDiscards"))
    port.tx_discards = values.count(counters.get("outDiscards"))
    port.carrier_transitions = values.count(counters.get("linkStatusChanges"))


def _sum(counters: dict[str, Any], names: tuple[str, ...]) -> int | None:
    parts = [n for n in (values.count(counters.get(name)) for name in names) if n is not None]
    return values.count(sum(parts)) if len(parts) == len(names) else None


def _state(port: PortReading, link: object, line: object) -> None:
    if link == "connected":
        port.admin_up, port.oper_up = True, line in ("up", None)
    elif link in ("notconnect", "errdisabled"):
        port.admin_up, port.oper_up = True, False
    elif link == "disabled":
        port.admin_up, port.oper_up = False, False


def _status(port: PortReading, entry: dict[str, Any]) -> None:
    if port.oper_up is None:
        _state(port, entry.get("linkStatus"), entry.get("lineProtocolStatus"))
    if port.speed_gbps is None:
        port.speed_gbps = values.speed_gbps(entry.get("bandwidth"), "")
    vlan = mapping(entry.get("vlanInformation"))
    if vlan.get("interfaceMode") == "bridged":
        port.vlan = values.vlan(vlan.get("vlanId"))


def _pfc(answers: Answers, ports: PortReadings) -> None:
    text = answers.text("pfc")
    if text is None:
        return
    table = by_titles(text, ("Port", "Status", "Priorities", "Action"))
    if table is None or not text.endswith("\n"):
        answers.problem("pfc", "no complete table with the columns Port, Status, Priorities, Action")
        return
    for name, status, priorities, *_ in table.rows:
        port = ports.of(name)
        flags = status.split()
        if port is None or not flags:
            continue
        if "E" in flags:
            port.pfc_priorities = values.priority_list(priorities)
        elif "D" in flags:
            port.pfc_priorities = ""


def _pause(answers: Answers, ports: PortReadings) -> None:
    text = answers.text("pfc_counters")
    if text is None:
        return
    header = re.search(r"^\s*Port\s+RxPfc\s+TxPfc\s*$", text, re.MULTILINE | re.IGNORECASE)
    if header is None or not text.endswith("\n"):
        answers.problem("pfc_counters", "no complete table with the columns Port, RxPfc, TxPfc")
        return
    for name, received, sent in _PFC_COUNTERS.findall(text, header.end()):
        port = ports.of(name)
        if port is not None:
            port.rx_pause_frames = values.count(received)
            port.tx_pause_frames = values.count(sent)


def _lldp(answers: Answers, ports: PortReadings) -> None:
    data = answers.json("lldp", _has("lldpNeighbors", None), "`lldpNeighbors`")
    for name, entry in mapping(mapping(data).get("lldpNeighbors")).items():
        port = ports.of(name)
        for neighbor in records(mapping(entry).get("lldpNeighborInfo")) if port is not None else ():
            far = mapping(neighbor.get("neighborInterfaceInfo"))
            port_id = far.get("interfaceId_v2") or far.get("interfaceId")
            if port is not None and isinstance(port_id, str):
                port.hears(neighbor.get("systemName"), port_id.strip('"'), far.get("interfaceDescription"))


def _ecn(ports: PortReadings, config: blocks.Block, lossless: frozenset[int]) -> None:
    """A queue marks when its own lines, or those of the port's QoS profile, switch ECN on."""
    profiles = {name: _marking([block]) for name, block in config.below("qos profile ")}
    interfaces = {canonical_port("eos", name): block for name, block in config.below("interface ")}
    for name, port in ports.ports.items():
        block = interfaces.get(name)
        marking = _marking([block]) if block is not None else set()
        for profile, _ in block.below("service-profile ") if block is not None else ():
            marking |= profiles.get(profile, set())
        port.ecn = (lossless or {3}) <= marking


def _marking(owners: Iterable[blocks.Block]) -> set[int]:
    out = set()
    for owner in owners:
        for queue in owner.children:
            match = _QUEUE.fullmatch(queue.line)
            if match and any(c.line.startswith("random-detect ecn minimum-threshold") for c in queue.children):
                out.add(int(match[1]))
    return out
