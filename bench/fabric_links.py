"""What the InfiniBand audit costs beside the tools it runs: time and processor time as ratios, and memory.

    python bench/fabric_links.py [--hosts 1024 4096] [--rounds 5] [--no-landing]

The fabric is simulated by ibsim and managed by opensm on this machine (system packages ibsim-utils, infiniband-diags,
opensm). In each round the check's own six commands run bare, one after the other, as a person's script would, and then
the whole audit runs, which asks the same commands, two at a time: starting the probe, asking, reading its answer,
parsing, counter windows against the round before, and judging against a cabling plan of every link.

``ratio`` is audit / bare of the medians, of elapsed seconds; ``CPU ratio`` the same of the processor time of all
processes but the simulator's: the tools alone, and the tools with the probe and the audit. Simulator and tools share
the processors with the audit and with whatever else runs, so that elapsed time is the noisier of the two; the spread
is over the rounds. ``peak`` is the highest resident memory of the audit's process, without the tools.

``landing`` is what the pipeline adds to keep it all: redacting, storing and reading back the evidence, and writing the
tables and reading them back, in an embedded store on this machine. It comes last, and is no part of the ratios.
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeVar

from fabric_health.checks.check import Context, RowSet
from fabric_health.checks.fabric_links import FABRIC_LINKS
from fabric_health.checks.fabric_links.settings import fabrics
from fabric_health.checks.fabric_links.tables import FabricPort, FabricWindow
from fabric_health.connections import connection
from fabric_health.evidence import Redactor, StoredEvidence, UnitEvidence
from fabric_health.garbage import seldom_collected
from fabric_health.lab import infiniband
from fabric_health.lab.infiniband import tools
from fabric_health.lab.infiniband.topology import fat_tree
from fabric_health.reach import UnitRequest, collect
from fabric_health.site import Site, load_site

T = TypeVar("T")
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


@dataclass(frozen=True)
class Cost:
    """Elapsed seconds and processor seconds."""

    wall_s: float
    cpu_s: float


@dataclass(frozen=True)
class Audited:
    """What one audit gave: evidence, rows and how many findings."""

    evidence: UnitEvidence
    rows: RowSet
    findings: int


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


def spent_s() -> float:
    """Return the processor seconds of this process and of those it has waited for, and they in turn."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


def peak_mib() -> int:
    """Return the highest resident memory of this process so far, MiB."""
    # Not ru_maxrss, which begins with the memory of the process that we were started from.
    found = re.search(r"^VmHWM:\s+(\d+) kB$", Path("/proc/self/status").read_text(encoding="ascii"), re.M)
    return int(found[1]) >> 10 if found else 0


def timed(work: Callable[[], T]) -> tuple[T, Cost]:
    """Do ``work`` and return what it returns and what it cost."""
    begun, spent = time.perf_counter(), spent_s()
    out = work()
    return out, Cost(time.perf_counter() - begun, spent_s() - spent)


def bare(site: Site) -> None:
    """Run the check's commands as they are."""
    (fabric,) = fabrics(site)
    for command in FABRIC_LINKS.commands(fabric, site):
        subprocess.run(command.argv, stdin=subprocess.DEVNULL, capture_output=True, check=False)


def audit(site: Site, before: RowSet | None) -> Audited:
    """Run the whole audit; ``before`` are the rows of the round before."""
    (fabric,) = fabrics(site)
    got: list[UnitEvidence] = []
    request = UnitRequest(fabric, "fabric_links", FABRIC_LINKS.commands(fabric, site), FABRIC_LINKS.at_once)
    collect([request], connection, got.append)
    context = Context(
        site=site,
        run="bench",
        started_at=AT + timedelta(days=1),
        scope=(fabric,),
        reach={"ib0": StoredEvidence("ib0", "k", "0" * 64, got[0].status)},
        previous=before or RowSet(),
        previous_at={"ib0": AT} if before else {},
    )
    with seldom_collected():
        parsed = FABRIC_LINKS.parse(fabric, got[0], site)
        rows = RowSet.gather([*parsed, *FABRIC_LINKS.derive(RowSet.gather(parsed), context)])
        return Audited(got[0], rows, len(FABRIC_LINKS.judge(rows, context)))


def landed(audited: Audited, home: Path) -> Cost:
    """Keep an audit's evidence and tables in an embedded store in ``home`` and read them back, as the pipeline does.

    Return what that cost us, without the store itself.
    """
    # Imported here, so that the audit's peak is the audit's.
    from fabric_health.datasets import arrow, embedded, evidence, landing
    from fabric_health.datasets.run import RunKey
    from fabric_health.datasets.store import ObjectStore

    key = RunKey("bench", "bench-20261201T000000-00000000", AT + timedelta(days=1), "lab")

    def land(store: ObjectStore) -> None:
        stored = evidence.put_evidence(store, key, audited.evidence, Redactor())
        evidence.get_evidence(store, stored)
        rows = [(row, stored.sha256) for table in FABRIC_LINKS.tables for row in audited.rows.of(table)]
        landing.land(store, key, "fabric_links", rows, FABRIC_LINKS.tables)
        for table in FABRIC_LINKS.tables:
            arrow.rows(table, arrow.read(store.get(landing.table_key(table, key, "fabric_links"))))

    try:
        embedded.start(home)
        conn = embedded.operator(home)
        store = ObjectStore.connect(replace(conn, extra={**conn.extra, "bucket": "bench"}))
        store.ensure_bucket()
        return timed(lambda: land(store))[1]
    finally:
        embedded.stop(home)


def measure(path: Path, rounds: int, *, with_landing: bool) -> None:
    """Measure one fabric that is up, and print one line of JSON."""
    site, loaded = timed(lambda: load_site(path))
    fabrics(site)
    before: RowSet | None = None
    audited: Audited | None = None
    alone: list[Cost] = []
    whole: list[Cost] = []
    for _ in range(rounds):
        before, audited = audited.rows if audited else None, None
        alone.append(timed(lambda: bare(site))[1])
        audited, cost = timed(lambda: audit(site, before))  # noqa: B023 - called at once
        whole.append(cost)
    assert audited is not None
    peak = peak_mib()
    out: dict[str, object] = {
        "ports": len(audited.rows.of(FabricPort)),
        "windows": len(audited.rows.of(FabricWindow)),
        "findings": audited.findings,
        "site file, s": f"{loaded.wall_s:.2f}",
        "bare, s": f"{statistics.median(c.wall_s for c in alone):.2f}",
        "audit, s": f"{statistics.median(c.wall_s for c in whole):.2f}",
        "ratio": ratio([c.wall_s for c in whole], [c.wall_s for c in alone]),
        "bare CPU, s": f"{statistics.median(c.cpu_s for c in alone):.2f}",
        "audit CPU, s": f"{statistics.median(c.cpu_s for c in whole):.2f}",
        "CPU ratio": ratio([c.cpu_s for c in whole], [c.cpu_s for c in alone]),
        "peak, MiB": peak,
    }
    if with_landing:
        cost = landed(audited, path.parent / "store")
        out |= {"landing, s": f"{cost.wall_s:.1f}", "landing CPU, s": f"{cost.cpu_s:.1f}"}
        out["peak with it, MiB"] = peak_mib()
    print(json.dumps(out))


def ratio(whole: list[float], alone: list[float]) -> str:
    """Return the ratio of the medians, and the lowest and highest of a round."""
    each = [w / a for w, a in zip(whole, alone, strict=True)]
    return f"{statistics.median(whole) / statistics.median(alone):.2f} ({min(each):.2f}-{max(each):.2f})"


def main() -> int:
    """Bring up a fabric of each size and measure it in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, nargs="+", default=[1024, 4096])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--no-landing", action="store_true", help="needs no embedded store")
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        measure(options.measure, options.rounds, with_landing=not options.no_landing)
        return 0
    for i, hosts in enumerate(options.hosts):
        with tempfile.TemporaryDirectory() as folder:
            try:
                _, up = timed(lambda: infiniband.up(folder, hosts))  # noqa: B023 - called at once
                argv = [sys.executable, __file__, "--measure", str(site_file(Path(folder), Path(folder), hosts))]
                argv += ["--rounds", str(options.rounds), *(["--no-landing"] if options.no_landing else [])]
                done = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=True)
            finally:
                infiniband.down(folder)
        row = {"hosts": hosts, "fabric up, s": f"{up.wall_s:.1f}", **json.loads(done.stdout)}
        if i == 0:
            print("| " + " | ".join(row) + " |\n" + "|---" * len(row) + "|")
        print("| " + " | ".join(map(str, row.values())) + " |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
