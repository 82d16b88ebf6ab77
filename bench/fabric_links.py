"""What the InfiniBand audit costs beside the tools it runs: time as a ratio, and memory.

    python bench/fabric_links.py [--hosts 1024 4096] [--rounds 3]

The fabric is simulated by ibsim and managed by opensm on this machine (system packages ibsim-utils, infiniband-diags,
opensm). In each round the check's own six commands run bare, one after the other, and then the whole audit runs:
reach, parsing, counter windows against the round before, and judging against a cabling plan of every link. The ratio
is audit / bare of the medians. Simulator and tools share the processors with the audit. Memory is the peak of the
audit's process, without the tools; it is measured in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path

from fabric_health.checks.check import Context, RowSet
from fabric_health.checks.fabric_links import FABRIC_LINKS
from fabric_health.checks.fabric_links.settings import fabrics
from fabric_health.checks.fabric_links.tables import FabricPort
from fabric_health.connections import connection
from fabric_health.evidence import StoredEvidence, UnitEvidence
from fabric_health.lab import infiniband
from fabric_health.lab.infiniband import tools
from fabric_health.lab.infiniband.topology import fat_tree
from fabric_health.reach import UnitRequest, collect
from fabric_health.site import Site, load_site

AT = datetime(2026, 11, 30, tzinfo=UTC)
SITE = """
site: bench
title: Generated for bench/fabric_links.py
reach: {all: {connection: none}}
skus: {any: {gpu_model: any, gpus: 0, link_layer: InfiniBand, nic_rate_gbps: 200}}
nodes: [{names: n1, sku: any, rack: r1, reach: all}]
checks:
  fabric_links:
    fabrics:
    - name: ib0
      hosts: {width: 4x, speed: HDR}
      trunks: {width: 4x, speed: HDR}
"""


def site_file(folder: Path, home: Path, hosts: int) -> Path:
    """Write a site whose plan has every cable, a range for each pair of a switch and its peers."""
    env = tools.environment(infiniband.directory(home))
    wrapper = ["env", *(f"{k}={env[k]}" for k in ("IBSIM_SOCKNAME", "LD_PRELOAD"))]
    tree = fat_tree(hosts)
    groups: dict[tuple[str, str], list[tuple[int, str, int]]] = defaultdict(list)
    for cable in tree.cables:
        far = "" if cable.other.node in tree.hosts else cable.other.node
        groups[cable.one.node, far].append((cable.one.number, cable.other.node, cable.other.number))
    plan = [
        {
            "switch": switch,
            "ports": ",".join(str(port) for port, _, _ in ends),
            "peers": far or ",".join(f"{host} mlx5_0" for _, host, _ in ends),
            "peer_ports": ",".join(str(port) for _, _, port in ends) if far else "1",
        }
        for (switch, far), ends in groups.items()
    ]
    path = folder / f"bench{hosts}.yaml"
    more = f"      wrapper: {json.dumps(wrapper)}\n      cabling: {json.dumps(plan)}\n"
    path.write_text(SITE + more, encoding="utf-8")
    return path


def bare(site: Site) -> float:
    """Run the check's commands as they are and return the seconds they took."""
    (fabric,) = fabrics(site)
    begun = time.perf_counter()
    for command in FABRIC_LINKS.commands(fabric, site):
        subprocess.run(command.argv, capture_output=True, check=False)
    return time.perf_counter() - begun


def audit(site: Site, before: RowSet | None) -> tuple[tuple[float, float], RowSet, int]:
    """Run the whole audit; return its seconds and its own processor seconds, rows and the number of findings."""
    (fabric,) = fabrics(site)
    begun, cpu = time.perf_counter(), time.process_time()
    got: list[UnitEvidence] = []
    request = UnitRequest(fabric, "fabric_links", FABRIC_LINKS.commands(fabric, site))
    collect([request], connection, got.append)
    parsed = FABRIC_LINKS.parse(fabric, got[0], site)
    context = Context(
        site=site,
        run="bench",
        started_at=AT + timedelta(days=1),
        scope=(fabric,),
        reach={"ib0": StoredEvidence("ib0", "k", "0" * 64, got[0].status)},
        previous=before or RowSet(),
        previous_at={"ib0": AT} if before else {},
    )
    rows = RowSet.gather([*parsed, *FABRIC_LINKS.derive(RowSet.gather(parsed), context)])
    found = FABRIC_LINKS.judge(rows, context)
    return (time.perf_counter() - begun, time.process_time() - cpu), rows, len(found)


def measure(path: Path, rounds: int) -> None:
    """Measure one fabric that is up, and print one line of JSON."""
    begun = time.perf_counter()
    site = load_site(path)
    fabrics(site)
    loaded_s = time.perf_counter() - begun
    before: RowSet | None = None
    alone, whole, own, found, ports = [], [], [], 0, 0
    for _ in range(rounds):
        alone.append(bare(site))
        (seconds, cpu), before, found = audit(site, before)
        whole.append(seconds)
        own.append(cpu)
        ports = len(before.of(FabricPort))
    print(
        json.dumps(
            {
                "ports": ports,
                "findings": found,
                "site_s": round(loaded_s, 2),
                "bare_s": round(statistics.median(alone), 2),
                "audit_s": round(statistics.median(whole), 2),
                "own_cpu_s": round(statistics.median(own), 2),
                "ratio": round(statistics.median(whole) / statistics.median(alone), 2),
                "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
            }
        )
    )


def main() -> int:
    """Bring up a fabric of each size and measure it in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, nargs="+", default=[1024, 4096])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        measure(options.measure, options.rounds)
        return 0
    print(
        "| hosts | ports | findings | fabric up, s | site file, s | bare tools, s | audit, s | of it own CPU, s "
        "| ratio | peak, MiB |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    for hosts in options.hosts:
        with tempfile.TemporaryDirectory() as folder:
            try:
                begun = time.perf_counter()
                infiniband.up(folder, hosts)
                up_s = time.perf_counter() - begun
                path = site_file(Path(folder), Path(folder), hosts)
                argv = [sys.executable, __file__, "--measure", str(path), "--rounds", str(options.rounds)]
                done = subprocess.run(argv, capture_output=True, text=True, check=True)
                r = json.loads(done.stdout)
                print(
                    f"| {hosts} | {r['ports']} | {r['findings']} | {up_s:.1f} | {r['site_s']} | {r['bare_s']} "
                    f"| {r['audit_s']} | {r['own_cpu_s']} | {r['ratio']} | {r['peak_mib']} |"
                )
            finally:
                infiniband.down(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
