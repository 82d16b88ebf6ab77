"""One lab switch as it is now: identity, ports, neighbours and counters.

``wiring`` makes it from the site file and the active faults; platform modules turn it into their own words. It is a
pure function of its arguments: odd numbers that a real device would have (serials, packet rates, a handful of old
errors) come from a hash of the unit's name.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime, timedelta

from fabric_health.lab.state import LabState
from fabric_health.site import Switch

# A fault that counts errors begins with those of two hours at once: a window of a week that holds only its first
# minutes still has a ratio that is worth a finding.
ERROR_BURST_S = 7_200
SECONDS_BEFORE_LAB = 41 * 86_400  # how long a switch says it had been up when the lab came up


@dataclass(frozen=True)
class Neighbor:
    """What the far end of a cable announces by LLDP. ``mac`` is lower case with colons."""

    system: str
    system_description: str
    port_id: str
    port_description: str
    port_id_is_mac: bool
    mac: str
    is_switch: bool


@dataclass(frozen=True)
class Port:
    """One port. ``speed_gbps`` is what the link runs at, ``set_speed_gbps`` what the configuration says.

    ``mtu_line`` is the MTU in the configuration, None when the line is not there. ``pfc_until`` is when PFC frames
    stopped, None while they are exchanged. Spare ports are not cabled.
    """

    name: str
    number: int
    position: int
    cabled: bool
    admin_up: bool
    oper_up: bool
    speed_gbps: int
    set_speed_gbps: int
    mtu_bytes: int
    mtu_line: int | None
    fec: str
    pfc: tuple[int, ...]
    ecn: bool
    vlan: int | None
    description: str
    mac: str
    neighbor: Neighbor | None
    packets_per_s: int
    error_ratio: float
    errors_since: datetime | None
    down_since: datetime | None
    pfc_until: datetime | None
    seed: int


@dataclass(frozen=True, eq=False)
class Device:
    """One switch with its ports in face-plate order. Compared by identity, so that renderings can be cached by it.

    ``lossless`` are the priorities that its port profiles want lossless, ascending; 3 where they want none.
    """

    switch: Switch
    site_name: str
    ports: tuple[Port, ...]
    lossless: tuple[int, ...]
    acl_line: bool
    mac: str
    serial: str
    as_number: int
    router_id: str

    @property
    def name(self) -> str:
        """Host name."""
        return self.switch.name

    @property
    def cabled(self) -> tuple[Port, ...]:
        """Ports with a cable in the plan."""
        return tuple(p for p in self.ports if p.cabled)

    @property
    def ecn(self) -> bool:
        """True when any port marks: the policies of some platforms are for the whole switch."""
        return any(p.ecn for p in self.ports)

    @property
    def uplinks(self) -> tuple[Port, ...]:
        """Cabled ports without an access VLAN: routed links."""
        return tuple(p for p in self.ports if p.cabled and p.vlan is None)

    @property
    def vlans(self) -> tuple[int, ...]:
        """VLANs in use, ascending."""
        return tuple(sorted({p.vlan for p in self.ports if p.vlan is not None}))


@dataclass(frozen=True)
class Counters:
    """Cumulative counters of a port; frames, packets and bytes since the switch booted."""

    rx_packets: int
    tx_packets: int
    rx_bytes: int
    tx_bytes: int
    rx_errors: int
    tx_errors: int
    rx_discards: int
    tx_discards: int
    rx_pause: int
    tx_pause: int
    ecn_marked: int
    transitions: int


def spread(key: str, low: int, high: int) -> int:
    """Return a number in ``low..high`` that only depends on ``key``."""
    digest = hashlib.blake2b(key.encode(), digest_size=8).digest()
    return low + int.from_bytes(digest, "big") % (high - low + 1)


def uptime(state: LabState, now: datetime) -> timedelta:
    """Return for how long a lab switch says it is up."""
    return max(now - state.up_since, timedelta()) + timedelta(seconds=SECONDS_BEFORE_LAB)


def counters(port: Port, state: LabState, now: datetime) -> Counters:
    """Return the port's counters at ``now``; they stop at the moment the port went down."""
    if not port.cabled:
        return Counters(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
    end = min(now, port.down_since) if port.down_since else now
    seconds = max((end - state.up_since).total_seconds(), 0.0) + SECONDS_BEFORE_LAB
    paused = seconds if port.pfc or port.pfc_until else 0.0
    if port.pfc_until:
        paused = max((min(end, port.pfc_until) - state.up_since).total_seconds(), 0.0) + SECONDS_BEFORE_LAB
    rx = int(seconds * port.packets_per_s)
    tx = int(seconds * port.packets_per_s * 0.98)
    errors = port.seed % 5
    if port.errors_since is not None:
        faulty = max((end - port.errors_since).total_seconds(), 0.0) + ERROR_BURST_S
        errors += min(int(faulty * port.packets_per_s * port.error_ratio), rx)
    return Counters(
        rx_packets=rx,
        tx_packets=tx,
        rx_bytes=rx * 4100,
        tx_bytes=tx * 4100,
        rx_errors=errors,
        tx_errors=0,
        rx_discards=port.seed % 3,
        tx_discards=port.seed % 7,
        rx_pause=int(paused * 0.004),
        tx_pause=int(paused * 0.003),
        ecn_marked=int(seconds * 0.05) if port.ecn else 0,
        transitions=1 + 2 * (port.seed % 3) + (1 if port.down_since else 0),
    )
