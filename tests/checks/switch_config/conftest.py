"""A small site with one switch of each platform, and evidence made of recorded-style answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fabric_health.checks.switch_config.commands import commands
from fabric_health.evidence import CommandResult, CommandStatus, ReachStatus, UnitEvidence
from fabric_health.site import Site, Switch, load_site

FIXTURES = Path(__file__).parents[2] / "fixtures" / "switch_ports"
AT = datetime(2026, 11, 30, 8, 0, tzinfo=UTC)
SITE = """
site: ports
title: one switch of each platform
reach: {all: {connection: all_ssh}}
skus:
  h100:
    gpu_model: NVIDIA H100 80GB HBM3
    gpus: 8
    link_layer: Ethernet
    nic_rate_gbps: 400
    nics:
      - {name: mlx5_0, rail: 0, netdev: ens1np0}
      - {name: mlx5_1, rail: 1, netdev: ens2np0}
      - {name: mlx5_2, rail: 2, netdev: ens3np0}
      - {name: mlx5_3, rail: 3, netdev: ens4np0}
      - {name: mlx5_4, rail: 4, netdev: ens5np0}
nodes:
  - {names: "gpu-[001-002]", sku: h100, rack: r1, reach: all}
switches:
  - {names: cumulus-1, platform: cumulus, reach: all}
  - {names: sonic-1, platform: sonic, reach: all}
  - {names: onyx-1, platform: onyx, reach: all}
  - {names: eos-1, platform: eos, reach: all}
  - {names: nxos-1, platform: nxos, reach: all}
port_profiles:
  gpu: {speed_gbps: 400, mtu_bytes: 9216, fec: rs, pfc_priorities: [3], ecn: true, vlan: 100}
  uplink: {}
cabling:
  - {switch: cumulus-1, ports: "swp[1-2]", nodes: "gpu-[001-002]", nic: mlx5_0, profile: gpu}
  - {switch: sonic-1, ports: "Ethernet0,Ethernet8", nodes: "gpu-[001-002]", nic: mlx5_1, profile: gpu}
  - {switch: onyx-1, ports: "Eth1/[1-2]", nodes: "gpu-[001-002]", nic: mlx5_2, profile: gpu}
  - {switch: eos-1, ports: "Ethernet[1-2]/1", nodes: "gpu-[001-002]", nic: mlx5_3, profile: gpu}
  - {switch: nxos-1, ports: "Ethernet1/[1-2]", nodes: "gpu-[001-002]", nic: mlx5_4, profile: gpu}
  - {switch: cumulus-1, ports: swp3, peer: sonic-1, peer_ports: Ethernet16, profile: uplink}
  - {switch: eos-1, ports: "Ethernet3/1", peer: nxos-1, peer_ports: "Ethernet1/3", profile: uplink}
"""

Answers = Mapping[str, str]


@pytest.fixture(scope="session")
def ports_site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    path = tmp_path_factory.mktemp("site") / "ports.yaml"
    path.write_text(SITE, encoding="utf-8")
    return load_site(path)


@pytest.fixture(scope="session")
def recorded() -> Callable[..., dict[str, str]]:
    """Answers of a platform by command: the healthy case, with those of ``case`` in their place."""

    def load(platform: str, case: str = "healthy") -> dict[str, str]:
        folders = [FIXTURES / platform / name for name in dict.fromkeys(("healthy", case))]
        files = [f for folder in folders for f in sorted(folder.glob("*.txt"))]
        return {f.stem: f.read_text(encoding="utf-8") for f in files}

    return load


@pytest.fixture(scope="session")
def evidence_of(ports_site: Site) -> Callable[..., UnitEvidence]:
    """Evidence of a switch from answers by command; a command without an answer ends empty."""

    def make(
        switch: Switch,
        answers: Answers,
        *,
        status: CommandStatus = CommandStatus.EXITED,
        exit_code: int | None = 0,
        stderr: str = "",
    ) -> UnitEvidence:
        results = tuple(
            CommandResult(c.name, c.argv, status, exit_code, answers.get(c.name, ""), stderr, AT, AT)
            for c in commands(switch, ports_site)
        )
        return UnitEvidence(switch.name, "switch", "switch_config", ReachStatus.OK, "", AT, AT, results)

    return make
