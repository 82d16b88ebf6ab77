"""From a site's cabling plan and the active faults to what each lab switch really sees on its ports."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterable
from itertools import pairwise

from fabric_health.lab.faults import CATALOGUE
from fabric_health.lab.state import Fault, LabState
from fabric_health.lab.switches.device import Device, Neighbor, Port, spread
from fabric_health.site import Cable, Platform, PortProfile, Site, Switch

# MTU that a port falls back to when its configuration has no MTU line.
DEFAULT_MTU_BYTES: dict[Platform, int] = {"cumulus": 9216, "sonic": 9100, "onyx": 1500, "eos": 1500, "nxos": 1500}
# EOS takes 9214 at most, which pairs with 9216 elsewhere.
MAX_MTU_BYTES: dict[Platform, int] = {"cumulus": 9216, "sonic": 9216, "onyx": 9216, "eos": 9214, "nxos": 9216}
# Port names count up in one place; the rest of the name stays.
_NUMBER: dict[Platform, re.Pattern[str]] = {
    "cumulus": re.compile(r"^(swp)(\d+)()$"),
    "sonic": re.compile(r"^(Ethernet)(\d+)()$"),
    "onyx": re.compile(r"^(Eth1/)(\d+)()$"),
    "eos": re.compile(r"^(Ethernet)(\d+)((?:/1)?)$"),
    "nxos": re.compile(r"^(Ethernet1/)(\d+)()$"),
}
SPARE_PORTS = 4
MAX_SITES = 4
MAX_DEVICES = 4096


def device(switch: Switch, site: Site, state: LabState) -> Device:
    """Return the switch as the faults of ``state`` leave it."""
    plan = _plan(site)
    key = (switch.name, state.faults)
    found = plan.devices.get(key)
    if found is None:
        found = plan.devices[key] = _View(plan, state).device(switch)
        while len(plan.devices) > MAX_DEVICES:
            plan.devices.popitem(last=False)
    return found


class _Plan:
    """A site's cables indexed once, from both ends."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.cables: dict[str, dict[str, Cable]] = {s.name: {} for s in site.switches}
        self.devices: OrderedDict[tuple[str, tuple[Fault, ...]], Device] = OrderedDict()
        self.nodes = {n.name: n for n in site.nodes}
        self.switches = {s.name: s for s in site.switches}
        for c in site.cables:
            self.cables[c.switch][c.port] = c
            if c.peer_kind == "switch":
                self.cables[c.peer][c.peer_port] = Cable(
                    c.peer, c.peer_port, c.switch, c.port, "switch", c.profile, c.rail
                )


_PLANS: OrderedDict[int, _Plan] = OrderedDict()


def _plan(site: Site) -> _Plan:
    plan = _PLANS.get(id(site))
    if plan is None or plan.site is not site:
        plan = _PLANS[id(site)] = _Plan(site)
        while len(_PLANS) > MAX_SITES:
            _PLANS.popitem(last=False)
    return plan


def _mac(key: str) -> str:
    tail = f"{spread(key, 0, 0xFFFFFF):06x}"
    return f"9c:05:91:{tail[:2]}:{tail[2:4]}:{tail[4:]}"


def _place(platform: Platform, name: str) -> int:
    match = _NUMBER[platform].match(name)
    if match:
        return int(match[2])
    return int("".join(re.findall(r"\d+", name)) or 0) % 1_000_000


def _ordered(platform: Platform, ports: Iterable[str]) -> list[str]:
    return sorted(ports, key=lambda p: (_place(platform, p), p))


def _lossless(cables: Iterable[Cable]) -> tuple[int, ...]:
    """Return the priorities that the profiles want lossless; 3 where none does, as queues may mark all the same."""
    return tuple(sorted({p for c in cables for p in c.profile.pfc_priorities or ()})) or (3,)


class _View:
    """The site's wiring under one set of faults."""

    def __init__(self, plan: _Plan, state: LabState) -> None:
        self._plan = plan
        self._faults: dict[tuple[str, str], Fault] = {(f.unit, f.kind): f for f in reversed(state.faults)}
        self._swaps: dict[str, dict[str, str]] = {}
        for f in state.faults:
            if f.kind == "miscabled":
                self._swap(f)

    def device(self, switch: Switch) -> Device:
        name = switch.name
        cables = self._plan.cables[name]
        names = _ordered(switch.platform, cables)
        ports = [self._port(switch, port, i, cables[port]) for i, port in enumerate(names, start=1)]
        ports += [self._spare(switch, p, len(ports) + i) for i, p in enumerate(_spares(switch, names), start=1)]
        number = spread(f"{name}/asn", 0, 900)
        return Device(
            switch=switch,
            site_name=self._plan.site.name,
            ports=tuple(ports),
            lossless=_lossless(cables.values()),
            acl_line=(name, "acl-line") in self._faults,
            mac=_mac(name),
            serial=f"MT{spread(name + '/serial', 10**9, 10**10 - 1)}",
            as_number=65000 if switch.role == "spine" else 65001 + number,
            router_id=f"10.255.{number // 250}.{number % 250 + 1}",
        )

    def _swap(self, fault: Fault) -> None:
        switch, _, port = fault.unit.partition("/")
        cables = self._plan.cables.get(switch, {})
        other = fault.value or self._next(switch, port)
        if port in cables and other in cables and other != port:
            swaps = self._swaps.setdefault(switch, {})
            swaps[port], swaps[other] = other, port

    def _next(self, switch: str, port: str) -> str | None:
        """Return the cabled port after ``port``: the one that a hand slips into."""
        unit = self._plan.switches.get(switch)
        names = _ordered(unit.platform, self._plan.cables[switch]) if unit else []
        return names[(names.index(port) + 1) % len(names)] if port in names else None

    def _on(self, switch: str, port: str, kind: str) -> Fault | None:
        return self._faults.get((f"{switch}/{port}", kind))

    def _far(self, switch: str, port: str) -> Cable:
        """Return the cable that is really plugged into a port: the planned one unless cables are swapped."""
        planned = self._plan.cables[switch][self._swaps.get(switch, {}).get(port, port)]
        if planned.peer_kind == "node":
            return planned
        landed = self._swaps.get(planned.peer, {}).get(planned.peer_port, planned.peer_port)
        return Cable(switch, port, planned.peer, landed, "switch", planned.profile, planned.rail)

    def _port(self, switch: Switch, name: str, position: int, cable: Cable) -> Port:
        profile, far, unit = cable.profile, self._far(switch.name, name), f"{switch.name}/{name}"
        shut = self._on(switch.name, name, "port-down")
        far_down = self._on(far.peer, far.peer_port, "port-down" if far.peer_kind == "switch" else "nic-down")
        down = [f.since for f in (shut, far_down) if f]
        mtu, mtu_line = self._mtu(switch, name, profile)
        set_speed = self._speed(switch.name, name, profile)
        speed = set_speed
        if far.peer_kind == "switch":
            speed = min(set_speed, self._speed(far.peer, far.peer_port, far.profile))
        errors = self._on(switch.name, name, "port-errors")
        pfc_off = self._on(switch.name, name, "switch-pfc") if profile.pfc_priorities else None
        seed = spread(unit, 0, 1 << 30)
        return Port(
            name=name,
            number=_place(switch.platform, name),
            position=position,
            cabled=True,
            admin_up=shut is None,
            oper_up=not down,
            speed_gbps=speed,
            set_speed_gbps=set_speed,
            mtu_bytes=mtu,
            mtu_line=mtu_line,
            fec=profile.fec or "rs",
            pfc=() if pfc_off else tuple(sorted(profile.pfc_priorities or ())),
            ecn=bool(profile.ecn),
            vlan=profile.vlan,
            description=f"{cable.peer} {cable.peer_port}",
            mac=_mac(unit),
            neighbor=None if down else self._neighbor(far),
            packets_per_s=800_000 + seed % 400_000,
            error_ratio=_number(errors, float) if errors else 0.0,
            errors_since=errors.since if errors else None,
            down_since=min(down) if down else None,
            pfc_until=pfc_off.since if pfc_off else None,
            seed=seed,
        )

    def _spare(self, switch: Switch, name: str, position: int) -> Port:
        mtu = DEFAULT_MTU_BYTES[switch.platform]
        return Port(
            name=name,
            number=_place(switch.platform, name),
            position=position,
            cabled=False,
            admin_up=False,
            oper_up=False,
            speed_gbps=400,
            set_speed_gbps=400,
            mtu_bytes=mtu,
            mtu_line=None,
            fec="none",
            pfc=(),
            ecn=False,
            vlan=None,
            description="",
            mac=_mac(f"{switch.name}/{name}"),
            neighbor=None,
            packets_per_s=0,
            error_ratio=0.0,
            errors_since=None,
            down_since=None,
            pfc_until=None,
            seed=0,
        )

    def _mtu(self, switch: Switch, port: str, profile: PortProfile) -> tuple[int, int | None]:
        """Return the MTU in effect and the MTU in the configuration, None for a line that is not there."""
        default = DEFAULT_MTU_BYTES[switch.platform]
        fault = self._on(switch.name, port, "switch-mtu")
        if fault is not None:
            value = int(_number(fault, int))
            return value, None if value == default else value
        wanted = profile.mtu_bytes
        if wanted is None:
            return default, None
        return (value := min(wanted, MAX_MTU_BYTES[switch.platform])), value

    def _speed(self, switch: str, port: str, profile: PortProfile) -> int:
        fault = self._on(switch, port, "port-speed")
        return int(_number(fault, int)) if fault else int(profile.speed_gbps or 400)

    def _neighbor(self, far: Cable) -> Neighbor:
        if far.peer_kind == "switch":
            peer = self._plan.switches[far.peer]
            return Neighbor(
                system=far.peer,
                system_description=SYSTEM_DESCRIPTIONS[peer.platform],
                port_id=far.peer_port,
                port_description=f"{far.switch} {far.port}",
                port_id_is_mac=False,
                mac=_mac(far.peer),
                is_switch=True,
            )
        nics = {n.name: n for n in self._plan.nodes[far.peer].sku.nics}
        netdev = nics[far.peer_port].netdev
        mac = _mac(f"{far.peer}/{far.peer_port}")
        return Neighbor(
            system=f"{far.peer}.{self._plan.site.name}.example",
            system_description="Ubuntu 22.04.5 LTS Linux 5.15.0-151-generic x86_64",
            port_id=netdev or mac,
            port_description=netdev or far.peer_port,
            port_id_is_mac=netdev is None,
            mac=mac,
            is_switch=False,
        )


SYSTEM_DESCRIPTIONS: dict[Platform, str] = {
    "cumulus": "Cumulus Linux version 5.12.1 running on Mellanox Technologies Ltd. MSN4700",
    "sonic": "SONiC Software Version: SONiC.202405.1 - HwSku: ACS-SN5600 - Distribution: 12.6",
    "onyx": "MSN4700, Onyx, SWv3.10.4302",
    "eos": "Arista Networks EOS version 4.33.1F running on an Arista Networks DCS-7060DX5-64S",
    "nxos": "Cisco Nexus Operating System (NX-OS) Software 10.4(3)",
}


def _number(fault: Fault, kind: type[int] | type[float]) -> float:
    """Return a fault's value as a number; the catalogue's default when none, or none that is a number, is given."""
    default = CATALOGUE[fault.kind].default or "0"
    try:
        return kind(fault.value if fault.value is not None else default)
    except ValueError:
        return kind(default)


def _spares(switch: Switch, names: list[str]) -> list[str]:
    """Return names for a few ports after the last cabled one, where the names follow the platform's usual form."""
    pattern = _NUMBER[switch.platform]
    matches = [m for m in map(pattern.match, names) if m]
    if not matches or len(matches) != len(names):
        return []
    numbers = [int(m[2]) for m in matches]
    steps = [b - a for a, b in pairwise(numbers)]
    step, last = (min(steps) if steps else 1), matches[-1]
    return [f"{last[1]}{numbers[-1] + step * i}{last[3]}" for i in range(1, SPARE_PORTS + 1)]
