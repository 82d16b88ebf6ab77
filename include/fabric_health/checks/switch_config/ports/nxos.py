"""Ports of Cisco NX-OS: JSON whose rows collapse to one object, ECN from the configuration."""

from __future__ import annotations

import re
from typing import Any

from fabric_health.checks.switch_config.answers import Answers, clean, mapping, records
from fabric_health.checks.switch_config.ports import blocks, values
from fabric_health.checks.switch_config.ports.reading import PortReading, PortReadings, canonical_port

_BITMAP = re.compile(r"\(?(?:0x)?([0-9a-f]{1,2})\)?", re.IGNORECASE)
_PFC_LINE = re.compile(
    r"^\s*(?P<port>Eth\S{1,30})\s+(?P<admin>On|Off|Auto)\s+(?P<oper>On|Off)\s*"
    r"(?:\((?P<bitmap>[0-9a-fA-F]{1,2})\)\s*)?(?P<rx>[0-9]{1,20})\s+(?P<tx>[0-9]{1,20})\s*$",
    re.MULTILINE,
)
_QUEUE = re.compile(r"class type queuing \S*q([0-9])$")
_UP = {"up": True, "down": False}


def parse_ports(answers: Answers, config: str | None, lossless: frozenset[int]) -> PortReadings:
    """Return the ports of ``show interface`` and ``show interface status``.

    ``config`` is the normalised config, None when it could not be read; ``lossless`` the priorities that should be.
    """
    ports = PortReadings(lambda name: canonical_port("nxos", name))
    interfaces = answers.json("interfaces", _rows_with("interface", "eth_mtu"), "TABLE_interface with `eth_mtu`")
    for entry in _rows(interfaces, "interface"):
        port = ports.of(entry.get("interface"))
        if port is not None:
            _interface(port, entry)
    ports.closed = interfaces is not None
    status = answers.json("status", _rows_with("interface", "vlan"), "TABLE_interface with `vlan`")
    for entry in _rows(status, "interface"):
        port = ports.of(entry.get("interface"))
        if port is not None:
            _status(port, entry)
    ports.closed = ports.closed or status is not None
    for entry in _rows(interfaces, "interface"):
        port = ports.of(entry.get("interface"))
        # `auto-speed` and `auto` name none: then the bandwidth, which follows the speed unless a line overrides it.
        if port is not None and port.speed_gbps is None:
            port.speed_gbps = values.speed_gbps(values.count(entry.get("eth_bw")), "k")
    tree = blocks.read(config) if config is not None else None
    _pfc(answers, ports, tree)
    neighbors = answers.json("lldp", _rows_with("nbor_detail", "l_port_id"), "TABLE_nbor_detail")
    for entry in _rows(neighbors, "nbor_detail"):
        port = ports.of(entry.get("l_port_id"))
        if port is not None:
            port.hears(entry.get("sys_name"), entry.get("port_id"), entry.get("port_desc"))
    if tree is not None:
        _ecn(ports, tree, lossless)
    return ports


def _rows(data: Any, name: str) -> list[dict[str, Any]]:
    """Return the rows of ``TABLE_<name>``: NX-OS gives one row as an object, several as a list, also of tables."""
    return [row for table in records(mapping(data).get(f"TABLE_{name}")) for row in records(table.get(f"ROW_{name}"))]


def _rows_with(name: str, key: str) -> Any:
    return lambda data: any(key in row for row in _rows(data, name))


def _interface(port: PortReading, entry: dict[str, Any]) -> None:
    port.oper_up = _word(entry.get("state"))
    port.admin_up = _word(entry.get("admin_state"))
    port.mtu_bytes = values.mtu_bytes(entry.get("eth_mtu"))
    port.speed_gbps = values.speed_gbps(entry.get("eth_speed"), "m")
    port.fec = values.fec(entry.get("eth_oper_fec_state"))
    port.description = clean(entry.get("desc"), 500)
    port.rx_packets = values.count(entry.get("eth_inpkts"))
    port.tx_packets = values.count(entry.get("eth_outpkts"))
    port.rx_errors = values.count(entry.get("eth_inerr"))
    port.tx_errors = values.count(entry.get("eth_outerr"))
    port.rx_discards = values.count(entry.get("eth_indiscard"))
    port.tx_discards = values.count(entry.get("eth_outdiscard"))


def _word(value: object) -> bool | None:
    return _UP.get(value.strip().lower()) if isinstance(value, str) else None


def _status(port: PortReading, entry: dict[str, Any]) -> None:
    port.vlan = values.vlan(entry.get("vlan"))
    if port.speed_gbps is None:
        port.speed_gbps = values.speed_gbps(entry.get("speed"), "m")
    state = entry.get("state")
    if port.oper_up is None and isinstance(state, str):
        port.oper_up = state.strip().lower() == "connected"
    if port.admin_up is None and isinstance(state, str):
        port.admin_up = state.strip().lower() != "disabled"


def _pfc(answers: Answers, ports: PortReadings, config: blocks.Block | None) -> None:
    rows = _pfc_rows(answers)
    for row in rows:
        port = ports.of(row.get("if_name_str"))
        if port is None:
            continue
        port.rx_pause_frames = values.count(row.get("rx-stats"))
        port.tx_pause_frames = values.count(row.get("tx-stats"))
        port.pfc_priorities = _priorities(row, config)


def _pfc_rows(answers: Answers) -> list[dict[str, Any]]:
    """Read the JSON, or the text table that releases without this JSON model print all the same."""
    text = answers.text("pfc")
    if text is not None and not text.lstrip().startswith(("{", "[")):
        if "Oper(VL bmap)" not in text or not text.endswith("\n"):
            answers.problem("pfc", "neither JSON nor a complete table with the column Oper(VL bmap)")
            return []
        return [
            {
                "if_name_str": m["port"],
                "admin": m["admin"],
                "oper": f"{m['oper']} ({m['bitmap']})" if m["bitmap"] else m["oper"],
                "rx-stats": m["rx"],
                "tx-stats": m["tx"],
            }
            for m in _PFC_LINE.finditer(text)
        ]
    data = answers.json("pfc", lambda d: bool(_modules(d)), "TABLE_pfc_interface")
    return _modules(data)


def _modules(data: Any) -> list[dict[str, Any]]:
    tables = [*_rows(data, "module"), mapping(data)]
    return [row for table in tables for row in _rows(table, "pfc_interface") if "if_name_str" in row]


def _priorities(row: dict[str, Any], config: blocks.Block | None) -> str | None:
    """Return the priorities of the operational bitmap, else those that the network-qos policy makes lossless."""
    oper = row.get("oper")
    if not isinstance(oper, str) or not oper.strip():
        return None
    word, _, rest = oper.strip().partition(" ")
    if word.lower() == "off":
        return ""
    if word.lower() != "on":
        return None
    bitmap = rest.strip() or next((str(v) for k, v in row.items() if "bmap" in k.lower()), "")
    match = _BITMAP.fullmatch(bitmap.strip())
    if match:
        bits = int(match[1], 16)
        return values.priorities([p for p in range(8) if bits >> p & 1])
    return _paused(config) if config is not None and not bitmap else None


def _applied(config: blocks.Block, kind: str) -> str | None:
    for _, qos in config.below("system qos"):
        for name, _block in qos.below(f"service-policy type {kind}"):
            return name
    return None


def _paused(config: blocks.Block) -> str | None:
    policy = _applied(config, "network-qos ")
    out: list[int] = []
    for name, block in config.below("policy-map type network-qos "):
        if name == policy:
            for _, of_class in block.below("class "):
                out += [int(p) for cos, _ in of_class.below("pause pfc-cos ") for p in re.findall(r"[0-7]", cos)]
    return values.priorities(out) if out else None


def _ecn(ports: PortReadings, config: blocks.Block, lossless: frozenset[int]) -> None:
    """A queue marks when the queuing policy of the port, else of the system, has WRED with ``ecn`` on it."""
    marking: dict[str, set[int]] = {}
    for name, block in config.below("policy-map type queuing "):
        queues = marking.setdefault(name, set())
        for of_class in block.children:
            match = _QUEUE.match(of_class.line)
            if match and any(re.match(r"random-detect\b.*\becn$", c.line) for c in of_class.children):
                queues.add(int(match[1]))
    default = _applied(config, "queuing output ") or ""
    # NX-OS prints no end mark: the last section may be cut off, and what would follow it is not there.
    interfaces = {
        canonical_port("nxos", name): block
        for name, block in config.below("interface ")
        if block is not config.children[-1]
    }
    for name, port in ports.ports.items():
        section = interfaces.get(name)
        if section is not None:
            own = next((policy for policy, _ in section.below("service-policy type queuing output ")), default)
            port.ecn = (lossless or {3}) <= marking.get(own, set())
