"""What is asked of a switch, by platform: whole-switch commands, JSON where the platform has it.

An item of ``argv`` is sent as it stands over the SSH exec channel. A network OS command line is one item: its ``|``
is the device's own output filter, not a shell's. Per-port commands exist only where the platform has nothing else,
and only for cabled ports.
"""

from __future__ import annotations

from collections.abc import Callable

from fabric_health.checks.check import Unit
from fabric_health.evidence import MIB, Command
from fabric_health.site import Site, Switch

# What a port metric is read from: names the command in findings, and explains why a metric is missing.
SOURCES: dict[str, dict[str, tuple[str, ...]]] = {
    "cumulus": {
        "state": ("interfaces",),
        "speed": ("interfaces",),
        "mtu": ("interfaces",),
        "fec": ("interfaces",),
        "pfc": ("running_config",),
        "ecn": ("running_config",),
        "vlan": ("running_config",),
        "neighbor": ("lldp", "interfaces"),
        "counters": ("interfaces", "ethtool_S"),
    },
    "sonic": {
        "state": ("interfaces",),
        "speed": ("interfaces",),
        "mtu": ("interfaces",),
        "fec": ("interfaces",),
        "pfc": ("running_config",),
        "ecn": ("running_config",),
        "vlan": ("running_config",),
        "neighbor": ("lldp",),
        "counters": ("counters", "pfc_counters"),
    },
    "onyx": {
        "state": ("interfaces",),
        "speed": ("interfaces",),
        "mtu": ("interfaces",),
        "fec": ("interfaces", "running_config"),
        "pfc": ("pfc", "running_config"),
        "ecn": ("running_config",),
        "vlan": ("switchport",),
        "neighbor": ("lldp",),
        "counters": ("counters", "counters_priority"),
    },
    "eos": {
        "state": ("interfaces", "status"),
        "speed": ("interfaces", "status"),
        "mtu": ("interfaces",),
        "fec": ("fec",),
        "pfc": ("pfc",),
        "ecn": ("running_config",),
        "vlan": ("status",),
        "neighbor": ("lldp",),
        "counters": ("interfaces", "pfc_counters"),
    },
    "nxos": {
        "state": ("interfaces", "status"),
        "speed": ("interfaces", "status"),
        "mtu": ("interfaces",),
        "fec": ("interfaces",),
        "pfc": ("pfc",),
        "ecn": ("running_config",),
        "vlan": ("status",),
        "neighbor": ("lldp",),
        "counters": ("interfaces", "pfc"),
    },
}


def commands(unit: Unit, site: Site) -> tuple[Command, ...]:
    """Return the commands for a switch of ``site``; empty for a node."""
    if not isinstance(unit, Switch):
        return ()
    return _BY_PLATFORM[unit.platform](unit, site)


def lossless_priorities(switch: str, site: Site) -> tuple[int, ...]:
    """Return the priorities that must be lossless on a switch by its port profiles, ascending."""
    return tuple(sorted({p for c in site.cables_of(switch) for p in c.profile.pfc_priorities or ()}))


def _cumulus(switch: Switch, site: Site) -> tuple[Command, ...]:
    # PFC frames are only in the driver's statistics; `ethtool -S` takes no list of ports and needs no root.
    per_port = (Command(f"ethtool_S:{c.port}", ("ethtool", "-S", c.port), 15.0) for c in site.cables_of(switch.name))
    return (
        Command("running_config", ("nv", "config", "show", "-o", "json"), 60.0, 16 * MIB),
        Command("system", ("nv", "show", "system", "-o", "json")),
        Command("platform", ("nv", "show", "platform", "-o", "json"), optional=True),
        Command("interfaces", ("nv", "show", "interface", "-o", "json"), 60.0, 16 * MIB),
        # NVUE shows neighbours per port only; lldpd's own client shows all at once (its socket belongs to root).
        Command("lldp", ("sudo", "-n", "lldpctl", "-f", "json0"), optional=True),
        *per_port,
    )


def _sonic(_switch: Switch, _site: Site) -> tuple[Command, ...]:
    return (
        Command("running_config", ("sudo", "-n", "sonic-cfggen", "-d", "--print-data"), 60.0, 16 * MIB),
        Command("version", ("show", "version")),
        Command("interfaces", ("show", "interfaces", "status")),
        Command("counters", ("show", "interfaces", "counters")),
        Command("pfc_counters", ("show", "pfc", "counters")),
        Command("lldp", ("show", "lldp", "table")),
    )


def _onyx(switch: Switch, site: Site) -> tuple[Command, ...]:
    def cli(name: str, line: str, max_bytes: int = 8 * MIB) -> Command:
        return Command(name, (f'cli "enable" "{line}"',), 60.0, max_bytes)

    return (
        cli("running_config", "show running-config", 16 * MIB),
        cli("version", "show version | json-print"),
        cli("interfaces", "show interfaces ethernet | json-print"),
        cli("switchport", "show interfaces switchport | json-print"),
        cli("pfc", "show dcb priority-flow-control | json-print"),
        cli("counters", "show interfaces ethernet counters | json-print"),
        *(
            cli(f"counters_priority:{p}", f"show interfaces ethernet counters priority {p} | json-print")
            for p in lossless_priorities(switch.name, site)
        ),
        cli("lldp", "show lldp remote"),
    )


def _eos(_switch: Switch, _site: Site) -> tuple[Command, ...]:
    return (
        Command("running_config", ("show running-config",), 60.0, 16 * MIB),
        Command("version", ("show version | json",)),
        Command("interfaces", ("show interfaces | json",), 60.0, 16 * MIB),
        Command("status", ("show interfaces status | json",), 60.0, 8 * MIB),
        Command("fec", ("show interfaces error-correction | json",), 60.0, 8 * MIB),
        # The JSON models of the PFC commands differ between releases; their text has been stable.
        Command("pfc", ("show priority-flow-control",)),
        Command("pfc_counters", ("show priority-flow-control counters",)),
        Command("lldp", ("show lldp neighbors detail | json",), 60.0, 8 * MIB),
    )


def _nxos(_switch: Switch, _site: Site) -> tuple[Command, ...]:
    return (
        Command("running_config", ("show running-config",), 60.0, 16 * MIB),
        Command("version", ("show version | json",)),
        Command("interfaces", ("show interface | json",), 60.0, 16 * MIB),
        Command("status", ("show interface status | json",), 60.0, 8 * MIB),
        Command("pfc", ("show interface priority-flow-control | json",), 60.0, 8 * MIB),
        Command("lldp", ("show lldp neighbors detail | json",), 60.0, 8 * MIB),
    )


_BY_PLATFORM: dict[str, Callable[[Switch, Site], tuple[Command, ...]]] = {
    "cumulus": _cumulus,
    "sonic": _sonic,
    "onyx": _onyx,
    "eos": _eos,
    "nxos": _nxos,
}
