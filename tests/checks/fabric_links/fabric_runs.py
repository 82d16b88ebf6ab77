"""Sites with a simulated fabric of 32 hosts, recorded answers of its tools, and whole runs of the check on them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from fabric_health.checks.check import Context, RowSet
from fabric_health.checks.fabric_links import FABRIC_LINKS
from fabric_health.datasets.contracts import Row
from fabric_health.datasets.tables import Finding
from fabric_health.evidence import CommandResult, CommandStatus, ReachStatus, StoredEvidence, UnitEvidence
from fabric_health.site import Site, load_site

FIXTURES = Path(__file__).parents[2] / "fixtures" / "infiniband"
AT = datetime(2026, 11, 30, 8, 0, tzinfo=UTC)
PLAN = """
        - {switch: leaf001, ports: 1-8, peers: "gpu[0001-0008] mlx5_0"}
        - {switch: leaf002, ports: 1-8, peers: "gpu[0009-0016] mlx5_0"}
        - {switch: leaf003, ports: 1-8, peers: "gpu[0017-0024] mlx5_0"}
        - {switch: leaf004, ports: 1-8, peers: "gpu[0025-0032] mlx5_0"}
        - {switch: "MF0;leaf001:MQM9700/U1", ports: 9-12, peers: spine001, peer_ports: 1-4}
        - {switch: leaf001, ports: 13-16, peers: spine002, peer_ports: 1-4}
        - {switch: leaf002, ports: 9-12, peers: "0xb8599f0300200040", peer_ports: 5-8}
        - {switch: leaf002, ports: 13-16, peers: spine002, peer_ports: 5-8}
        - {switch: leaf003, ports: 9-12, peers: spine001, peer_ports: 9-12}
        - {switch: leaf003, ports: 13-16, peers: spine002, peer_ports: 9-12}
        - {switch: leaf004, ports: 9-12, peers: spine001, peer_ports: 13-16}
        - {switch: leaf004, ports: 13-16, peers: spine002, peer_ports: 13-16}
"""
SITE = """
site: ib
title: one simulated fabric
reach: {all: {connection: all_ssh}}
skus:
  h100: {gpu_model: NVIDIA H100 80GB HBM3, gpus: 8, link_layer: InfiniBand, nic_rate_gbps: 200}
nodes:
  - {names: "gpu-[001-002]", sku: h100, rack: r1, reach: all}
checks:
  fabric_links:
    fabrics:
    - name: ib0
      via: VIA
      hosts: {width: 4x, speed: HDR}
      trunks: {width: 4x, speed: 53.125}
      MORE
      cabling: CABLING
"""


def load(folder: Path, *, cabling: str = PLAN, via: str = "local", more: str = "") -> Site:
    """Write a site file and load it."""
    path = folder / "ib.yaml"
    text = SITE.replace("CABLING", cabling).replace("VIA", via).replace("MORE", more)
    path.write_text(text, encoding="utf-8")
    return load_site(path)


@dataclass(frozen=True)
class Told:
    """What one tool answered."""

    stdout: str = ""
    stderr: str = ""
    exit_code: int | None = 0
    status: CommandStatus = CommandStatus.EXITED


def recorded(case: str) -> dict[str, Told]:
    """Return the recorded answers of a case, by command."""
    out = {}
    for path in sorted((FIXTURES / case).glob("*.json")):
        body = json.loads(path.read_text(encoding="utf-8"))
        out[path.stem] = Told(body["stdout"], body["stderr"], body["exit_code"])
    return out


def evidence(told: Mapping[str, Told], at: datetime = AT) -> UnitEvidence:
    """Return the evidence of a fabric that answered so."""
    results = tuple(
        CommandResult(name, (name,), t.status, t.exit_code, t.stdout, t.stderr, at, at) for name, t in told.items()
    )
    return UnitEvidence("ib0", "fabric", "fabric_links", ReachStatus.OK, "", at, at, results)


@dataclass(frozen=True)
class Run:
    """Rows and findings of one run."""

    rows: RowSet
    findings: list[Finding]
    at: datetime

    def of(self, *rules: str) -> list[Finding]:
        """Return the findings of some rules."""
        return [f for f in self.findings if f.rule in rules]

    @property
    def causes(self) -> list[tuple[str, str]]:
        """Return (rule, unit) of what nothing else explains and is more than information."""
        found = (f for f in self.findings if f.explained_by is None and f.severity != "info")
        return sorted((f.rule, f.unit) for f in found)


def run(site: Site, told: Mapping[str, Told], before: Run | None = None, at: datetime | None = None) -> Run:
    """Run the check on the answers, after another run; a day later unless told otherwise."""
    at = at or (before.at + timedelta(days=1) if before else AT)
    unit = FABRIC_LINKS.fabrics(site)[0] if FABRIC_LINKS.fabrics else None
    assert unit is not None
    parsed = RowSet.gather(FABRIC_LINKS.parse(unit, evidence(told, at), site))
    context = Context(
        site=site,
        run="r",
        started_at=at,
        scope=(unit,),
        reach={"ib0": StoredEvidence("ib0", "k", "0" * 64, ReachStatus.OK)},
        previous=before.rows if before else RowSet(),
        previous_at={"ib0": before.at} if before else {},
    )
    derived: list[Row] = FABRIC_LINKS.derive(parsed, context)
    rows = RowSet.gather([*(r for rs in parsed.rows.values() for r in rs), *derived])
    return Run(rows, FABRIC_LINKS.judge(rows, context), at)


def changed(told: Mapping[str, Told], command: str, old: str, new: str) -> dict[str, Told]:
    """Return the answers with a piece of one replaced, which must be there."""
    assert old in told[command].stdout
    return {**told, command: replace(told[command], stdout=told[command].stdout.replace(old, new))}
