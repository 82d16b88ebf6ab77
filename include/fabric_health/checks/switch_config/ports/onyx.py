"""Ports of NVIDIA Onyx (MLNX-OS): ``json-print`` in the three shapes it comes in, LLDP as text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from fabric_health.checks.switch_config.answers import Answers, clean, mapping, records
from fabric_health.checks.switch_config.ports import values
from fabric_health.checks.switch_config.ports.reading import PortReading, PortReadings, canonical_port
from fabric_health.checks.switch_config.ports.ruled import by_titles

_ENABLED = {"enabled": True, "disabled": False, "on": True, "off": False, "up": True, "down": False}
_LLDP_TITLES = ("Local Interface", "Device ID", "Port ID", "System Name")
_INTERFACE = re.compile(r"interface ethernet (\S+) (.+)")
_FEC_LINE = re.compile(r"fec-override (\S+)")
_ECN_LINE = re.compile(r"traffic-class ([0-7]) congestion-control (\S+)")
_PRIORITY_LINE = re.compile(r"dcb priority-flow-control priority ([0-7]) enable")


def parse_ports(answers: Answers, config: str | None, lossless: frozenset[int]) -> PortReadings:
    """Return the ports of ``show interfaces ethernet``; ECN, PFC priorities and FEC override come from the config.

    ``config`` is the normalised config, None when it could not be read; ``lossless`` the priorities that should be.
    """
    ports = PortReadings(lambda name: canonical_port("onyx", name))
    found = False
    for name, entry in _entries(answers, "interfaces", "Operational state"):
        port = ports.of(name)
        found = True
        if port is not None:
            _interface(port, entry)
    ports.closed = found
    for name, entry in _entries(answers, "switchport", "Mode"):
        port = ports.of(name)
        if port is not None and str(entry.get("mode", "")).lower() != "trunk":
            port.vlan = values.vlan(entry.get("access vlan"))
    for name, entry in _entries(answers, "counters", "Rx"):
        port = ports.of(name)
        if port is not None:
            _counters(port, entry)
    _pause(answers, ports)
    _lldp(answers, ports)
    lines = _by_port(config) if config is not None else None
    if config is not None and lines is not None:
        for name, port in ports.ports.items():
            _from_config(port, lines.get(name, ()), lossless)
    _pfc(answers, ports, config)
    return ports


def _entries(answers: Answers, command: str, key: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (port, its fields by lower-case name) from port -> [fields], port -> fields, or [fields with header].

    One list may hold the fields of a port in several objects; they are merged.
    """

    def is_table(data: Any) -> bool:
        return any(key.lower() in _fields(entry) for _, entry in _pairs(data))

    merged: dict[str, dict[str, Any]] = {}
    for name, entry in _pairs(answers.json(command, is_table, f"ports with `{key}`")):
        merged.setdefault(name, {}).update(_fields(entry))
    yield from merged.items()


def _pairs(data: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(data, list):
        for item in records(data):
            if isinstance(item.get("header"), str):
                yield item["header"], item
            else:
                yield from _pairs(item)
    elif isinstance(data, dict):
        yield from data.items()


def _fields(entry: Any) -> dict[str, Any]:
    return {str(k).strip().lower(): v for record in records(entry) for k, v in record.items()}


def _interface(port: PortReading, entry: dict[str, Any]) -> None:
    port.admin_up = _enabled(entry.get("admin state"))
    port.oper_up = _enabled(entry.get("operational state"))
    port.speed_gbps = values.speed_gbps(entry.get("actual speed"), "m")
    port.mtu_bytes = values.mtu_bytes(entry.get("mtu"))
    port.fec = values.fec(entry.get("fec"))
    port.description = clean(entry.get("description"), 500)
    if port.description in ("N\\A", "N/A"):
        port.description = None
    if "rx" in entry and "tx" in entry:
        _counters(port, entry)


def _enabled(value: object) -> bool | None:
    # `Down (Suspend)` and the like: the first word counts.
    return _ENABLED.get(value.split()[0].lower()) if isinstance(value, str) and value.strip() else None


def _counters(port: PortReading, entry: dict[str, Any]) -> None:
    rx, tx = _fields(entry.get("rx")), _fields(entry.get("tx"))
    port.rx_packets = values.count(rx.get("packets"))
    port.rx_errors = values.count(rx.get("error packets"))
    port.rx_discards = values.count(rx.get("discard packets"))
    port.tx_packets = values.count(tx.get("packets"))
    port.tx_errors = values.count(tx.get("error packets"))
    port.tx_discards = values.count(tx.get("discard packets"))


def _pause(answers: Answers, ports: PortReadings) -> None:
    """Sum pause frames over the priorities asked; a priority without answer leaves the sum unknown."""
    asked = answers.matching("counters_priority")
    sums: dict[str, list[tuple[int | None, int | None]]] = {}
    for priority in asked:
        for name, entry in _entries(answers, f"counters_priority:{priority}", "Rx"):
            rx, tx = _fields(entry.get("rx")), _fields(entry.get("tx"))
            frames = (values.count(rx.get("pause packets")), values.count(tx.get("pause packets")))
            sums.setdefault(name, []).append(frames)
    for name, frames_by_priority in sums.items():
        port = ports.of(name)
        if port is None or len(frames_by_priority) != len(asked):
            continue
        received = [r for r, _ in frames_by_priority if r is not None]
        sent = [s for _, s in frames_by_priority if s is not None]
        port.rx_pause_frames = values.count(sum(received)) if len(received) == len(asked) else None
        port.tx_pause_frames = values.count(sum(sent)) if len(sent) == len(asked) else None


def _lldp(answers: Answers, ports: PortReadings) -> None:
    text = answers.text("lldp")
    if text is None:
        return
    table = by_titles(text, _LLDP_TITLES)
    if table is None or not text.endswith("\n"):
        answers.problem("lldp", f"no complete table with the columns {', '.join(_LLDP_TITLES)}")
        return
    for local, _device, port_id, system in table.rows:
        port = ports.of(local)
        if port is not None:
            port.hears(system, port_id)


def _by_port(config: str) -> dict[str, list[str]]:
    out: dict[str, list[str]] = {}
    for line in config.split("\n"):
        match = _INTERFACE.fullmatch(line.strip())
        if match:
            out.setdefault(f"Eth{match[1]}", []).append(match[2])
    return out


def _from_config(port: PortReading, lines: list[str] | tuple[str, ...], lossless: frozenset[int]) -> None:
    marking = {int(m[1]) for m in map(_ECN_LINE.match, lines) if m and m[2].lower() in ("ecn", "both")}
    port.ecn = (lossless or {3}) <= marking
    if port.fec is None:
        override = next((m[1] for m in map(_FEC_LINE.match, lines) if m), None)
        port.fec = values.fec(override)


def _pfc(answers: Answers, ports: PortReadings, config: str | None) -> None:
    """PFC is on or off per port; its priorities are lines of the global configuration."""
    chosen: str | None = None
    if config is not None:
        chosen = values.priorities([int(m[1]) for m in map(_PRIORITY_LINE.match, config.split("\n")) if m])
    for name, entry in _entries(answers, "pfc", "PFC oper"):
        port = ports.of(name)
        if port is None:
            continue
        on = _enabled(mapping(entry).get("pfc oper"))
        port.pfc_priorities = chosen if on else ("" if on is False else None)
