"""What is read of one port, collected from several commands, before it becomes a row."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, fields

from fabric_health.checks.switch_config.answers import clean
from fabric_health.checks.switch_config.ports.values import is_mac, system_name
from fabric_health.checks.switch_config.tables import SwitchPort

MAX_PORTS = 4096
_MAX_NEIGHBORS = 16


NeighborTest = Callable[[str | None, str], bool]
"""A question about an LLDP neighbour: its system name and one of the names of its port."""


@dataclass(frozen=True)
class Neighbor:
    """One LLDP neighbour. ``ports`` are the names it gives its port: id first, then description."""

    system: str | None
    ports: tuple[str, ...]


@dataclass
class PortReading:
    """One port so far; every field as in :class:`SwitchPort`, None where nothing was read."""

    admin_up: bool | None = None
    oper_up: bool | None = None
    speed_gbps: float | None = None
    mtu_bytes: int | None = None
    fec: str | None = None
    pfc_priorities: str | None = None
    ecn: bool | None = None
    vlan: int | None = None
    description: str | None = None
    rx_packets: int | None = None
    tx_packets: int | None = None
    rx_errors: int | None = None
    tx_errors: int | None = None
    rx_discards: int | None = None
    tx_discards: int | None = None
    rx_pause_frames: int | None = None
    tx_pause_frames: int | None = None
    carrier_transitions: int | None = None
    neighbors: list[Neighbor] = field(default_factory=list)

    def hears(self, system: object, *ports: object) -> None:
        """Add an LLDP neighbour; ids that name nothing are dropped."""
        names = tuple(n for n in (clean(p, 255) for p in ports) if n and n.lower() not in _NAMELESS)
        # SONiC announces its alias as id and its port name as description: the name is what the plan knows.
        names = tuple(sorted(names, key=lambda n: not _SONIC_NAME.fullmatch(n)))
        named = system_name(clean(system, 255))
        if (named or names) and len(self.neighbors) < _MAX_NEIGHBORS:
            self.neighbors.append(Neighbor(named, names))

    def row(self, switch: str, port: str, is_planned: NeighborTest, is_port: NeighborTest) -> SwitchPort:
        """Return the row of this port.

        Of several neighbours it keeps the planned one (``is_planned``) if it is among them. A port description stands
        in for the port id only where it is a port of the neighbour (``is_port``): mostly it is free text.
        """
        neighbor, neighbor_port = _choose(self.neighbors, is_planned, is_port)
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "neighbors"}
        return SwitchPort(switch=switch, port=port, neighbor=neighbor, neighbor_port=neighbor_port, **values)


_SONIC_NAME = re.compile(r"Ethernet[0-9]{1,4}")
_NAMELESS = frozenset(("-", "--", "null", "none", "n/a", "not advertised"))


def _choose(
    neighbors: list[Neighbor], is_planned: NeighborTest, is_port: NeighborTest
) -> tuple[str | None, str | None]:
    for n in neighbors:
        for p in n.ports:
            if is_planned(n.system, p):
                return n.system, p
    # A NIC's own LLDP agent sends MACs beside the host's agent: the one that names itself says more.
    ranked = sorted(neighbors, key=lambda n: (n.system is None, all(is_mac(p) for p in n.ports)))
    if not ranked:
        return None, None
    best = ranked[0]
    named = (p for p in best.ports if is_port(best.system, p))
    return best.system, next(named, best.ports[0] if best.ports else None)


@dataclass
class PortReadings:
    """Readings by port in the platform's own spelling. ``canonical`` turns any spelling into it, or None if no port."""

    canonical: Callable[[str], str | None]
    ports: dict[str, PortReading] = field(default_factory=dict)
    closed: bool = False

    def of(self, name: object) -> PortReading | None:
        """Return the reading of a port. None if ``name`` is no front port, or unknown once the inventory is closed."""
        if not isinstance(name, str) or len(name) > 64:
            return None
        port = self.canonical(name.strip())
        if port is None:
            return None
        if port not in self.ports:
            if self.closed or len(self.ports) >= MAX_PORTS:
                return None
            self.ports[port] = PortReading()
        return self.ports[port]


_CANONICAL: dict[str, tuple[re.Pattern[str], str]] = {
    "cumulus": (re.compile(r"(swp[0-9]{1,4}(?:s[0-9]{1,2})?)", re.IGNORECASE), ""),
    "sonic": (re.compile(r"Ethernet([0-9]{1,4})", re.IGNORECASE), "Ethernet"),
    "onyx": (re.compile(r"Eth(?:ernet)? ?([0-9]{1,3}/[0-9]{1,3}(?:/[0-9]{1,3})?)", re.IGNORECASE), "Eth"),
    "eos": (re.compile(r"Et(?:h(?:ernet)?)? ?([0-9]{1,3}(?:/[0-9]{1,3}){0,2})", re.IGNORECASE), "Ethernet"),
    "nxos": (
        re.compile(r"e(?:t(?:h(?:ernet)?)?)? ?([0-9]{1,3}/[0-9]{1,3}(?:/[0-9]{1,3})?)", re.IGNORECASE),
        "Ethernet",
    ),
}


def canonical_port(platform: str, name: str) -> str | None:
    """Return a front port in the spelling of the cabling plan (``Et1/1`` -> ``Ethernet1/1``); None if it is none."""
    pattern, prefix = _CANONICAL[platform]
    match = pattern.fullmatch(name.strip())
    if match is None:
        return None
    return prefix + match[1] if prefix else match[1].lower()
