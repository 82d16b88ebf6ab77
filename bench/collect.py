"""How fast units are collected: fabric-health against netmiko and paramiko threads, and with units that hang.

    python bench/collect.py [--units 200] [--threads 20] [--hang 0.05]

A generated lab of ``--units`` switches (five platforms, 32 ports each) and as many nodes is played by one server
process on this machine, over real SSH with host keys checked by every client. Compared is the same work in the same
run: two commands (running configuration, version) on every switch. netmiko goes through the interactive shell, which
is its only way; paramiko and fabric-health open exec channels. The server shares the machine's processors with the
clients, so its own processor time is printed beside theirs: differences on the wire are larger than shown here.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from fabric_health import connections
from fabric_health.checks.driver_firmware.commands import commands as node_commands
from fabric_health.checks.switch_config.commands import commands as switch_commands
from fabric_health.evidence import Command, ReachStatus, UnitEvidence
from fabric_health.lab import lab, state
from fabric_health.lab.place import Place, raise_descriptor_limit
from fabric_health.reach import UnitRequest, collect
from fabric_health.site import Site, Switch, load_site

UNIT_TIMEOUT_S = 20
PLATFORMS = ("cumulus", "sonic", "onyx", "eos", "nxos")
PORTS: dict[str, Callable[[int, int], str]] = {
    "cumulus": lambda first, last: f"swp[{first + 1}-{last + 1}]",
    "sonic": lambda first, last: f"Ethernet[{8 * first}-{8 * last}/8]",
    "onyx": lambda first, last: f"Eth1/[{first + 1}-{last + 1}]",
    "eos": lambda first, last: f"Ethernet[{first + 1}-{last + 1}]/1",
    "nxos": lambda first, last: f"Ethernet1/[{first + 1}-{last + 1}]",
}
NETMIKO = {
    "cumulus": "cumulus_linux",
    "sonic": "edgecore_sonic",
    "onyx": "mellanox_mlnxos",
    "eos": "arista_eos",
    "nxos": "cisco_nxos",
}
COMPARED = ("running_config", "version", "system")
BLOCK = 8
LAST_PORT = 31
SITE_HEAD = f"""
site: bench
title: Generated for bench/collect.py
origin: lab
reach:
  lab: {{kind: ssh, connection: lab_ssh, connect_timeout_s: 10, unit_timeout_s: {UNIT_TIMEOUT_S}}}
"""


def write_site(folder: Path, units: int) -> Path:
    """Write a lab site: blocks of 8 nodes, a leaf for each rail of a block, 24 cables between neighbouring leaves."""
    shipped = (Path(__file__).parents[1] / "include" / "sites" / "lab.yaml").read_text(encoding="utf-8")
    skus = shipped[shipped.index("skus:") : shipped.index("nodes:")]
    lines = [SITE_HEAD, skus, "nodes:"]
    sku = "h100-8x400-roce"
    for n in range(units):
        address = f"127.12.{n // 200}.{n % 200 + 1}"
        lines.append(f'  - {{names: node-{n:04d}, address: {address}, sku: {sku}, rack: "r{n // BLOCK}", reach: lab}}')
    lines.append("switches:")
    for s in range(units):
        address, platform = f"127.13.{s // 200}.{s % 200 + 1}", PLATFORMS[s % 5]
        lines.append(f"  - {{names: leaf-{s:04d}, address: {address}, platform: {platform}, reach: lab}}")
    lines.append("port_profiles:")
    lines.append("  any: {speed_gbps: 400, mtu_bytes: 9216, fec: rs, pfc_priorities: [3], ecn: true}")
    lines.append("cabling:")
    for s in range(units):
        block, rail = divmod(s, BLOCK)
        ports, other = PORTS[PLATFORMS[s % 5]], PORTS[PLATFORMS[(s + 1) % 5]]
        ends = f'nodes: "node-[{block * BLOCK:04d}-{block * BLOCK + BLOCK - 1:04d}]", nic: mlx5_{rail}'
        lines.append(f'  - {{switch: leaf-{s:04d}, ports: "{ports(0, BLOCK - 1)}", {ends}, profile: any}}')
        if s % 2 == 0:
            ends = f'peer: leaf-{s + 1:04d}, peer_ports: "{other(BLOCK, LAST_PORT)}"'
            lines.append(f'  - {{switch: leaf-{s:04d}, ports: "{ports(BLOCK, LAST_PORT)}", {ends}, profile: any}}')
    path = folder / "bench.yaml"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@dataclass(frozen=True)
class Timing:
    """One measured way of collecting: seconds of wall clock, of the client's and of the server's processor time."""

    name: str
    wall_s: float
    client_cpu_s: float
    server_cpu_s: float
    answered: int
    asked: int
    note: str = ""


class Bench:
    """A running lab and the ways to ask it."""

    def __init__(self, site: Site, info: lab.LabInfo, threads: int) -> None:
        self.site, self.info, self.threads = site, info, threads
        raw = json.loads((info.home / "connections.json").read_text(encoding="utf-8"))
        self.source: connections.ConnectionSource = lambda c: connections.parse(c, "connections.json", raw[c])

    def compared(self, switch: Switch) -> tuple[Command, ...]:
        """Return the two commands that every way runs on a switch."""
        return tuple(c for c in switch_commands(switch, self.site) if c.name in COMPARED)

    def timed(self, name: str, asked: int, work: Callable[[], tuple[int, str]]) -> Timing:
        """Run ``work``, which returns how many units answered in full and a remark."""
        server, client, began = self._server_cpu_s(), time.process_time(), time.monotonic()
        answered, note = work()
        wall = time.monotonic() - began
        cpu = (time.process_time() - client, self._server_cpu_s() - server)
        return Timing(name, wall, *cpu, answered, asked, note)

    def _server_cpu_s(self) -> float:
        fields = Path(f"/proc/{self.info.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def ours(self, requests: list[UnitRequest]) -> tuple[int, str]:
        """Collect with fabric-health."""
        got: list[UnitEvidence] = []
        collect(requests, self.source, got.append)
        assert len(got) == len(requests)
        return sum(e.status is ReachStatus.OK for e in got), f"{sum(map(_size, got)) / 1e6:.1f} MB"

    def paramiko(self) -> tuple[int, str]:
        """Collect from the switches with paramiko exec channels in threads."""
        import paramiko

        def one(switch: Switch) -> list[str]:
            client = paramiko.SSHClient()
            client.load_host_keys(str(self.info.known_hosts))
            try:
                client.connect(
                    switch.address,
                    self.info.port,
                    "fabric",
                    key_filename=str(self.info.key_file),
                    allow_agent=False,
                    look_for_keys=False,
                    timeout=UNIT_TIMEOUT_S,
                )
                texts = []
                for command in self.compared(switch):
                    _in, out, _err = client.exec_command(" ".join(command.argv), timeout=UNIT_TIMEOUT_S)
                    texts.append(out.read().decode())
                return texts
            finally:
                client.close()

        return self._threads(one)

    def netmiko(self) -> tuple[int, str]:
        """Collect from the switches with netmiko's interactive shell in threads."""
        import netmiko

        def one(switch: Switch) -> list[str]:
            with netmiko.ConnectHandler(
                device_type=NETMIKO[switch.platform],
                host=switch.address,
                port=self.info.port,
                username="fabric",
                use_keys=True,
                key_file=str(self.info.key_file),
                ssh_strict=True,
                alt_host_keys=True,
                alt_key_file=str(self.info.known_hosts),
                conn_timeout=UNIT_TIMEOUT_S,
                fast_cli=True,
            ) as shell:
                return [str(shell.send_command(_bare(c), read_timeout=UNIT_TIMEOUT_S)) for c in self.compared(switch)]

        return self._threads(one)

    def _threads(self, one: Callable[[Switch], list[str]]) -> tuple[int, str]:
        faults: dict[str, int] = {}

        def guarded(switch: Switch) -> bool:
            try:
                texts = one(switch)
            except Exception as error:
                name = f"{type(error).__name__} on {switch.platform}"
                faults[name] = faults.get(name, 0) + 1
                return False
            return len(texts) == 2 and all(t.strip() for t in texts)

        with ThreadPoolExecutor(self.threads) as pool:
            answered = sum(pool.map(guarded, self.site.switches))
        return answered, ", ".join(f"{n} {k}" for k, n in faults.items())


def _size(evidence: UnitEvidence) -> int:
    return sum(len(r.stdout) for r in evidence.results)


def _bare(command: Command) -> str:
    """Return the command as it is typed into the shell: Onyx wraps it in `cli` on exec channels only."""
    line = " ".join(command.argv)
    return line.removeprefix('cli "enable" "').removesuffix('"') if line.startswith("cli ") else line


def with_hanging(bench: Bench, share: float) -> bool:
    """Collect everything once more while ``share`` of all units hang; True when nobody waited for them."""
    units = len(bench.site.nodes) + len(bench.site.switches)
    hanging = {n.name for n in bench.site.nodes[:: max(1, round(len(bench.site.nodes) / (units * share)))]}
    state_file = Place(bench.info.home).state
    healthy = state.load(state_file)
    faults = tuple(state.Fault("node-hanging", name, None, state.now()) for name in sorted(hanging))
    state.save(state_file, replace(healthy, faults=faults))
    ended: dict[str, float] = {}
    statuses: dict[str, str] = {}

    def note(evidence: UnitEvidence) -> None:
        ended[evidence.unit] = time.monotonic() - began
        statuses[evidence.unit] = evidence.status.value

    began = time.monotonic()
    collect(_everything(bench.site), bench.source, note)
    wall = time.monotonic() - began
    state.save(state_file, healthy)
    slowest = max(t for u, t in ended.items() if u not in hanging)
    as_told = all((statuses[u] == "hung") == (u in hanging) for u in statuses)
    bound = slowest + UNIT_TIMEOUT_S
    print(f"\n{len(hanging)} of {units} units hang (each reported as hung, all others answered: {as_told})")
    print(
        f"  wall {wall:.2f} s <= slowest healthy unit {slowest:.2f} s + unit limit {UNIT_TIMEOUT_S} s = {bound:.2f} s"
    )
    return as_told and wall <= bound


def _everything(site: Site) -> list[UnitRequest]:
    return [
        *(UnitRequest(n, "driver_firmware", node_commands(n, site)) for n in site.nodes),
        *(UnitRequest(s, "switch_config", switch_commands(s, site)) for s in site.switches),
    ]


@contextlib.contextmanager
def running(units: int) -> Iterator[tuple[Site, lab.LabInfo]]:
    """Play a generated site in a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="bench-collect-") as folder:
        path = write_site(Path(folder), units)
        began = time.monotonic()
        info = lab.up(path, Path(folder) / "home")
        print(f"lab of {info.units} units up in {time.monotonic() - began:.1f} s on port {info.port}")
        try:
            yield load_site(path), info
        finally:
            lab.down(info.home)


def main() -> int:
    """Print the timings; 1 when the bound with hanging units or a full set of answers was missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--units", type=int, default=200, help="switches, and as many nodes (a multiple of 8)")
    parser.add_argument("--threads", type=int, default=20, help="threads for netmiko and paramiko")
    parser.add_argument("--hang", type=float, default=0.05, help="share of all units that hang in the last part")
    options = parser.parse_args()
    units = max(BLOCK, options.units // BLOCK * BLOCK)
    raise_descriptor_limit()
    for module in ("asyncssh", "paramiko", "netmiko", "fabric_health.reach.ssh"):
        importlib.import_module(module)  # what importing costs is not what is compared
    with running(units) as (site, info):
        bench = Bench(site, info, options.threads)
        pair = [UnitRequest(s, "switch_config", bench.compared(s)) for s in site.switches]
        everything = _everything(site)
        timings = [
            bench.timed("fabric-health", units, lambda: bench.ours(pair)),
            bench.timed("paramiko", units, bench.paramiko),
            bench.timed("netmiko", units, bench.netmiko),
            bench.timed("both audits", 2 * units, lambda: bench.ours(everything)),
        ]
        ours = timings[0].wall_s
        print(
            f"{options.threads} threads for paramiko and netmiko; two commands on each switch in the first three rows"
        )
        print(f"{'':14} {'wall s':>7} {'ratio':>6} {'client s':>9} {'server s':>9} {'answered':>9}")
        for t in timings:
            ratio = "" if t.asked != units else f"{t.wall_s / ours:.1f}x"
            cpu = f"{t.client_cpu_s:9.2f} {t.server_cpu_s:9.2f}"
            print(f"{t.name:14} {t.wall_s:7.2f} {ratio:>6} {cpu} {t.answered:>5}/{t.asked} {t.note}")
        kept = with_hanging(bench, options.hang)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"  bound kept: {'yes' if kept else 'NO'}; peak memory of this process {peak:.0f} MiB")
    complete = all(t.answered == t.asked for t in (timings[0], timings[3]))
    return 0 if kept and complete else 1


if __name__ == "__main__":
    sys.exit(main())
