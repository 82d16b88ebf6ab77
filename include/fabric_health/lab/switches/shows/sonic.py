"""SONiC: a Linux shell with a click-based CLI that prints tables under a dash ruler."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fabric_health.lab.answer import Answer, not_installed
from fabric_health.lab.switches.configs import sonic as config
from fabric_health.lab.switches.device import Port
from fabric_health.lab.switches.layout import ruler_table
from fabric_health.lab.switches.shows.view import View, clock


def answer(view: View, command: str) -> Answer:
    """Answer one command line of the SONiC shell."""
    words = command.split()
    while words[:1] == ["sudo"] or words[:1] == ["-n"]:
        words = words[1:]
    line = " ".join(words)
    if line in _COMMANDS:
        return Answer(_COMMANDS[line](view))
    if words[:1] == ["show"]:
        return Answer(stderr=_usage(words), exit_code=2)
    if words[:1] == ["sonic-cfggen"]:
        return Answer(stderr="usage: sonic-cfggen [-h] [-m [MINIGRAPH] | -M [DEVICE_DESCRIPTION]] ...\n", exit_code=2)
    return not_installed(words[0] if words else "")


def _usage(words: list[str]) -> str:
    known = {tuple(c.split()[:i]) for c in _COMMANDS for i in range(1, 4)}
    depth = max(i for i in range(1, len(words) + 1) if tuple(words[:i]) in known or i == 1)
    path = " ".join(words[:depth])
    wrong = words[depth] if depth < len(words) else ""
    problem = f'No such command "{wrong}".' if wrong else "Missing command."
    return f'Usage: {path} [OPTIONS] COMMAND [ARGS]...\nTry "{path} -h" for help.\n\nError: {problem}\n'


def _version(view: View) -> str:
    up = view.uptime
    hours = f"{up.seconds // 3600}:{up.seconds % 3600 // 60:02d}"
    return (
        f"\nSONiC Software Version: SONiC.{config.BUILD}\nSONiC OS Version: 12\nDistribution: Debian 12.6\n"
        "Kernel: 6.1.0-22-2-amd64\nBuild commit: 91ba6c7d4\nBuild date: Mon Jul  8 09:12:44 UTC 2024\n"
        "Built by: sonic@build-07\n\n"
        f"Platform: {config.PLATFORM}\nHwSKU: {config.HWSKU}\nASIC: mellanox\nASIC Count: 1\n"
        f"Serial Number: {view.device.serial}\nModel Number: MSN5600-CS2F\nHardware Revision: A1\n"
        f"Uptime: {view.now:%H:%M:%S} up {up.days} days, {hours},  0 users,  load average: 0.61, 0.58, 0.55\n"
        f"Date: {view.now:%a %d %b %Y %H:%M:%S}\n\n"
        "Docker images:\nREPOSITORY              TAG          IMAGE ID       SIZE\n"
        f"docker-orchagent        {config.BUILD}     0f6d1b8f2c11   352MB\n"
        f"docker-orchagent        latest       0f6d1b8f2c11   352MB\n"
    )


def _status(view: View) -> str:
    header = ("Interface", "Lanes", "Speed", "MTU", "FEC", "Alias", "Vlan", "Oper", "Admin", "Type", "Asym PFC")

    def row(p: Port) -> tuple[str, ...]:
        return (
            p.name,
            config.lanes(p),
            f"{p.speed_gbps}G",
            str(p.mtu_bytes),
            p.fec if p.cabled else "N/A",
            config.alias(p),
            "trunk" if p.vlan is not None else "routed",
            "up" if p.oper_up else "down",
            "up" if p.admin_up else "down",
            "QSFP-DD Double Density 8X Pluggable Transceiver" if p.cabled else "N/A",
            "off" if p.cabled else "N/A",
        )

    return _tabulate(header, [row(p) for p in view.device.ports], right=True)


def _counters(view: View) -> str:
    header = (
        "IFACE", "STATE", "RX_OK", "RX_BPS", "RX_UTIL", "RX_ERR", "RX_DRP", "RX_OVR",
        "TX_OK", "TX_BPS", "TX_UTIL", "TX_ERR", "TX_DRP", "TX_OVR",
    )  # fmt: skip
    rows = []
    for p in view.device.ports:
        c = view.counters(p)
        state = "U" if p.oper_up else "D" if p.admin_up else "X"
        rate = p.packets_per_s * 4100 if p.oper_up else 0
        use = f"{rate * 8 / (p.speed_gbps * 1e7):.2f}%" if p.speed_gbps > 0 else "N/A"
        bps = f"{rate / 1e6:.2f} MB/s"
        receive = (f"{c.rx_packets:,}", bps, use, f"{c.rx_errors:,}", f"{c.rx_discards:,}", "0")
        send = (f"{c.tx_packets:,}", bps, use, f"{c.tx_errors:,}", f"{c.tx_discards:,}", "0")
        rows.append((p.name, state, *receive, *send))
    return _tabulate(header, rows, right=True)


def _pfc_counters(view: View) -> str:
    tables = []
    for title in ("Port Rx", "Port Tx"):
        rows = []
        for p in view.device.ports:
            c = view.counters(p)
            frames = c.rx_pause if title == "Port Rx" else c.tx_pause
            lossless = min(view.device.lossless, default=None)
            rows.append((p.name, *(f"{frames if i == lossless else 0:,}" for i in range(8))))
        tables.append(_tabulate((title, *(f"PFC{i}" for i in range(8))), rows, right=True))
    return "\n".join(tables) + "\n"


def _lldp(view: View) -> str:
    header = ("LocalPort", "RemoteDevice", "RemotePortID", "Capability", "RemotePortDescr")
    rows = [("eth0", "oob-1", "Ethernet7", "BR", "mgmt of " + view.device.name)]
    for p in view.device.ports:
        n = p.neighbor
        if n is not None:
            rows.append((p.name, n.system, n.port_id, "BR" if n.is_switch else "S", n.port_description))
    table = _tabulate(header, rows, right=False)
    return (
        "Capability codes: (R) Router, (B) Bridge, (O) Other\n"
        f"{table}{'-' * 50}\nTotal entries displayed:  {len(rows)}\n"
    )


def _tabulate(header: tuple[str, ...], rows: Sequence[tuple[str, ...]], *, right: bool) -> str:
    """Print with tabulate's habit of making a column at least two wider than its title."""
    padded = tuple(f"  {h}" if right else f"{h}  " for h in header)
    return ruler_table(padded, rows, [right] * len(header))


def _uptime(view: View) -> str:
    return f"up {view.uptime.days} days, {clock(view.uptime)}\n"


_COMMANDS: dict[str, Callable[[View], str]] = {
    "sonic-cfggen -d --print-data": lambda view: view.config(),
    "show version": _version,
    "show uptime": _uptime,
    "show interfaces status": _status,
    "show interfaces counters": _counters,
    "show pfc counters": _pfc_counters,
    "show lldp table": _lldp,
}
