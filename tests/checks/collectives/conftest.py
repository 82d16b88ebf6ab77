"""A site of eight nodes, and evidence of launches made of what the tools print."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from fabric_health.checks.check import Context, Launch, RowSet
from fabric_health.checks.collectives.launches import fleet_spec
from fabric_health.checks.collectives.pair_plan import pair_spec
from fabric_health.checks.collectives.parse import parse
from fabric_health.checks.collectives.settings import NcclSettings, PerftestSettings
from fabric_health.datasets.contracts import Row
from fabric_health.evidence import CommandResult, CommandStatus, ReachStatus, StoredEvidence, UnitEvidence
from fabric_health.site import Site, load_site

sys.path.insert(0, str(Path(__file__).parent))
AT = datetime(2026, 11, 30, 8, 0, tzinfo=UTC)
SITE = """
site: collectives
title: eight nodes
reach: {all: {connection: all_ssh}}
skus:
  h100:
    gpu_model: NVIDIA H100 80GB HBM3
    gpus: 8
    link_layer: Ethernet
    nic_rate_gbps: 400
    nics:
      - {name: mlx5_0, rail: 0, gpu: 0}
      - {name: mlx5_1, rail: 1, gpu: 1}
      - {name: mlx5_2, rail: 2, gpu: 2}
      - {name: mlx5_3, rail: 3, gpu: 3}
      - {name: mlx5_4, rail: 4, gpu: 4}
      - {name: mlx5_5, rail: 5, gpu: 5}
      - {name: mlx5_6, rail: 6, gpu: 6}
      - {name: mlx5_7, rail: 7, gpu: 7}
nodes:
  - {names: "gpu-[001-008]", sku: h100, rack: r1, reach: all}
"""
SIZES = {"min_bytes": 8 << 20, "max_bytes": 32 << 20}


@pytest.fixture(scope="session")
def make_site(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Site]:
    def make(checks: str = "") -> Site:
        path = tmp_path_factory.mktemp("site") / "collectives.yaml"
        path.write_text(SITE + checks, encoding="utf-8")
        return load_site(path)

    return make


@pytest.fixture(scope="session")
def fleet(make_site: Callable[..., Site]) -> Site:
    return make_site("checks: {collectives: {engines: [nccl-tests]}}\n")


@pytest.fixture(scope="session")
def launch_of(fleet: Site) -> Callable[..., Launch]:
    """A launch of nccl-tests on the first ``nodes`` nodes."""

    def make(
        collective: str = "all_reduce", grouping: str = "all", nodes: int = 3, number: int = 1, **settings: Any
    ) -> Launch:
        members = fleet.nodes[:nodes]
        nccl = NcclSettings(**{**SIZES, **settings})
        name = f"nccl-{collective.replace('_', '-')}-{grouping}-{number}"
        spec = fleet_spec(nccl, name, collective, grouping, members)
        return Launch(name, spec, tuple(n.name for n in members))

    return make


@pytest.fixture(scope="session")
def pair_of(fleet: Site) -> Callable[..., Launch]:
    """A launch of perftest in which node number ``client`` measures against node number ``server``."""

    def make(client: int = 2, server: int = 1, number: int = 1, **settings: Any) -> Launch:
        by_number = dict(enumerate(fleet.nodes, 1))
        name, two = f"perftest-{number}", (by_number[server], by_number[client])
        spec = pair_spec(PerftestSettings(**settings), NcclSettings(), name, *two)
        return Launch(name, spec, tuple(n.name for n in two), unit_kind="pair")

    return make


@pytest.fixture(scope="session")
def evidence_of() -> Callable[..., UnitEvidence]:
    def make(launch: Launch, stdout: str, *, stderr: str = "", exit_code: int | None = 0,
             status: CommandStatus = CommandStatus.EXITED, **files: str) -> UnitEvidence:  # fmt: skip
        def result(name: str, out: str, code: int | None = 0, err: str = "") -> CommandResult:
            how = status if name == "job" else CommandStatus.EXITED
            return CommandResult(name, launch.spec.argv, how, code, out, err, AT, AT + timedelta(seconds=30))

        results = [result("job", stdout, exit_code, stderr)]
        results += [result(f"artefact:{n.replace('__', '.').replace('_', '-')}", t) for n, t in files.items()]
        return UnitEvidence(launch.name, "launch", "collectives", ReachStatus.OK, "", AT, AT, tuple(results))

    return make


@pytest.fixture(scope="session")
def rows_of(fleet: Site, evidence_of: Callable[..., UnitEvidence]) -> Callable[..., RowSet]:
    """Parse one launch's output."""

    def make(launch: Launch, stdout: str, **more: Any) -> RowSet:
        return RowSet.gather(parse(launch, evidence_of(launch, stdout, **more), fleet))

    return make


@pytest.fixture(scope="session")
def context_of() -> Callable[..., Context]:
    def make(site: Site, launches: Sequence[Launch], lost: Sequence[str] = ()) -> Context:
        reach = {
            x.name: StoredEvidence(x.name, "k", "s", ReachStatus.HUNG if x.name in lost else ReachStatus.OK)
            for x in launches
        }
        return Context(site, "r1", AT, tuple(launches), reach)

    return make


def gathered(*sets: RowSet) -> RowSet:
    """Rows of several launches together."""
    rows: list[Row] = [r for s in sets for of_type in s.rows.values() for r in of_type]
    return RowSet.gather(rows)
