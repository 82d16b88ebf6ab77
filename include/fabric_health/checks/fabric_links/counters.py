"""``ibqueryerrors``: error counters that are not zero, and with ``--counters`` the traffic of every port."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

# The tool's names, and the columns they are kept in. PortInactiveDiscards and PortLocalPhysicalErrors, which
# --details adds, are left out on purpose: version 44 prints each under the name of the other.
ERRORS: dict[str, str] = {
    "SymbolErrorCounter": "symbol_error",
    "LinkErrorRecoveryCounter": "link_error_recovery",
    "LinkDownedCounter": "link_downed",
    "PortRcvErrors": "rcv_errors",
    "PortRcvRemotePhysicalErrors": "rcv_remote_physical_errors",
    "PortRcvSwitchRelayErrors": "rcv_switch_relay_errors",
    "PortXmitDiscards": "xmit_discards",
    "PortXmitConstraintErrors": "xmit_constraint_errors",
    "PortRcvConstraintErrors": "rcv_constraint_errors",
    "LocalLinkIntegrityErrors": "local_link_integrity_errors",
    "ExcessiveBufferOverrunErrors": "excessive_buffer_overrun_errors",
    "VL15Dropped": "vl15_dropped",
    "PortXmitWait": "xmit_wait",
}
TRAFFIC: dict[str, str] = {
    "PortXmitData": "xmit_data_bytes",
    "PortRcvData": "rcv_data_bytes",
    "PortXmitPkts": "xmit_packets",
    "PortRcvPkts": "rcv_packets",
}
# Where a counter ends (InfiniBand Architecture Specification, PortCounters): it stops there and counts no further.
ENDS: dict[str, int] = {
    "symbol_error": 0xFFFF,
    "link_error_recovery": 0xFF,
    "link_downed": 0xFF,
    "rcv_errors": 0xFFFF,
    "rcv_remote_physical_errors": 0xFFFF,
    "rcv_switch_relay_errors": 0xFFFF,
    "xmit_discards": 0xFFFF,
    "xmit_constraint_errors": 0xFF,
    "rcv_constraint_errors": 0xFF,
    "local_link_integrity_errors": 0xF,
    "excessive_buffer_overrun_errors": 0xF,
    "vl15_dropped": 0xFFFF,
    "xmit_wait": 0xFFFFFFFF,
}
_WORD_BYTES = 4
_IN_WORDS = ("PortXmitData", "PortRcvData")
_HEADER = re.compile(r'^(?:Errors|Data Counters) for (?:0x[0-9a-f]{1,16} )?".*"$')
_PORT = re.compile(r"^\s+GUID 0x([0-9a-f]{1,16}) port (\d{1,3}|ALL): (?=\[)")
# One counter. A line is counters and nothing else: splitting it at them leaves nothing in between.
_VALUE = re.compile(r"\[(\w+) == (\d{1,20})(?: \([^()\[\]]*\))?\]\s*")
_NODES = re.compile(r"^## Summary: (\d{1,7}) nodes checked, \d{1,7} bad nodes found$")
_PORTS = re.compile(r"^##\s+(\d{1,8}) ports checked, \d{1,8} ports have errors beyond threshold$")
_SUPPRESSED = re.compile(r"^## Suppressed:(.*)$")
_MAX = (1 << 63) - 1
_COLUMNS = ERRORS | TRAFFIC


@dataclass
class Counted:
    """Counters by (GUID as printed, port), and how many nodes and ports the tool says that it asked.

    ``complete`` is True when the summary at the end is there: only then a counter that is not shown is zero.
    """

    ports: dict[tuple[str, int], dict[str, int]] = field(default_factory=dict)
    nodes_checked: int | None = None
    ports_checked: int | None = None
    suppressed: str = ""
    unread: list[str] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        """True when the tool told of its whole work."""
        return self.nodes_checked is not None and self.ports_checked is not None


def parse_counters(text: str) -> Counted:
    """Read what ``ibqueryerrors`` prints, with or without ``--counters``. Never raises."""
    out = Counted()
    for line in text.splitlines():
        if found := _PORT.match(line):
            _port(found, out, line)
        elif not line.strip() or _HEADER.match(line) or line.startswith("## Thresholds:"):
            continue
        elif found := _NODES.match(line):
            out.nodes_checked = int(found[1])
        elif found := _PORTS.match(line):
            out.ports_checked = int(found[1])
        elif found := _SUPPRESSED.match(line):
            out.suppressed = found[1].strip()
        else:
            out.unread.append(line)
    return out


def _port(found: re.Match[str], out: Counted, line: str) -> None:
    # What is between counters, a name, a value, what is between counters, ...
    pieces = _VALUE.split(line[found.end() :])
    if any(pieces[::3]):
        out.unread.append(line)
        return
    if found[2] == "ALL":
        return
    values: dict[str, int] = {}
    for name, text in zip(pieces[1::3], pieces[2::3], strict=True):
        column = _COLUMNS.get(name)
        if column is None:
            continue
        value = int(text) * (_WORD_BYTES if name in _IN_WORDS else 1)
        if value > _MAX or column in values:
            out.unread.append(line)
            return
        values[column] = value
    key = (found[1].zfill(16), int(found[2]))
    if out.ports.setdefault(key, values) is not values:
        out.unread.append(line)
