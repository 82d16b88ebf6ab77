"""A node of two GPUs and two NICs, and what its tools answered."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from fabric_health.checks.driver_firmware.commands import commands
from fabric_health.evidence import CommandResult, CommandStatus, ReachStatus, UnitEvidence
from fabric_health.site import Cable, Nic, Node, PortProfile, ReachProfile, Site, Sku, Storage, Thresholds

FIXTURES = Path(__file__).parents[2] / "fixtures" / "driver_firmware"
STARTED = datetime.fromtimestamp(1787302441, UTC)
EvidenceOf = Callable[[Mapping[str, str | CommandResult | None]], UnitEvidence]


@pytest.fixture(scope="session")
def recorded_node() -> Node:
    """An InfiniBand node; ``mlx5_1`` has no network device and no PCI address in the site file."""
    sku = Sku(
        gpu_model="NVIDIA H100 80GB HBM3",
        gpus=2,
        nvlinks_per_gpu=18,
        link_layer="InfiniBand",
        nic_rate_gbps=400,
        nics=(
            Nic(name="mlx5_0", rail=0, netdev="ibp94s0", pci="0000:5e:00.0", psid="MT_0000000838"),
            Nic(name="mlx5_1", rail=1),
        ),
        drives=("/dev/nvme0",),
        nfs_mounts=("/data", "/my home", "/scratch", "/"),
    )
    return Node("gpu-001", "h100", sku, "r1", "gpu-001", ReachProfile())


@pytest.fixture(scope="session")
def recorded_site(recorded_node: Node) -> Site:
    cable = Cable("leaf-1", "swp3", recorded_node.name, "mlx5_0", "node", PortProfile(), 0)
    return Site(
        name="test",
        title="test",
        origin="measured",
        coverage_floor=0.9,
        nodes=(recorded_node,),
        switches=(),
        cables=(cable,),
        storage=Storage(),
        thresholds=Thresholds(),
        sha256="0" * 64,
        path=Path("site.yaml"),
    )


@pytest.fixture(scope="session")
def evidence_of(recorded_node: Node, recorded_site: Site) -> EvidenceOf:
    """Evidence of the recorded answers, some replaced: by another text, by a whole result, or by None (not asked)."""

    def make(changes: Mapping[str, str | CommandResult | None]) -> UnitEvidence:
        results = []
        for command in commands(recorded_node, recorded_site):
            file = FIXTURES / "node" / f"{command.name.replace(':', '_')}.txt"
            answer: str | CommandResult | None
            if command.name in changes:
                answer = changes[command.name]
            elif file.is_file():
                answer = file.read_text(encoding="utf-8")
            else:
                answer = result(command.name, status=CommandStatus.NOT_INSTALLED, exit_code=127)
            if isinstance(answer, str):
                answer = result(command.name, answer)
            if answer is not None:
                results.append(replace(answer, name=command.name))
        end = STARTED + timedelta(seconds=9)
        return UnitEvidence("gpu-001", "node", "driver_firmware", ReachStatus.OK, "", STARTED, end, tuple(results))

    return make


def result(
    name: str,
    stdout: str = "",
    stderr: str = "",
    *,
    exit_code: int | None = 0,
    status: CommandStatus = CommandStatus.EXITED,
) -> CommandResult:
    return CommandResult(name, (name,), status, exit_code, stdout, stderr, STARTED, STARTED + timedelta(seconds=3))


@pytest.fixture(scope="session")
def command_result() -> Callable[..., CommandResult]:
    """Makes the result of one command: ``(name, stdout, stderr, exit_code=..., status=...)``."""
    return result


@pytest.fixture(scope="session")
def smi_fixture() -> Callable[[str], str]:
    """Reads one nvidia-smi document of ``tests/fixtures/driver_firmware/smi``."""
    return lambda name: (FIXTURES / "smi" / name).read_text(encoding="utf-8")
