"""From what a node's tools print to findings: each fault of the lab is found on its unit, and nothing else is."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import fabric_health
from fabric_health.checks.check import Context, RowSet
from fabric_health.checks.driver_firmware import DRIVER_FIRMWARE
from fabric_health.evidence import CommandResult, CommandStatus, ReachStatus, StoredEvidence, UnitEvidence
from fabric_health.lab.nodes import answer
from fabric_health.lab.state import Fault, LabState
from fabric_health.site import load_site

NOW = datetime(2026, 11, 30, 3, 0, tzinfo=UTC)
BEFORE = NOW - timedelta(days=1)
UP_SINCE = NOW - timedelta(days=7)
SITE = load_site(Path(fabric_health.__file__).parents[1] / "sites" / "lab.yaml")
NODES = SITE.nodes[:6]


def rows_of(node, state, now):
    results = []
    for command in DRIVER_FIRMWARE.commands(node, SITE):
        said = answer(node, SITE, state, command.argv, now)
        missing = said.exit_code == 127
        status = CommandStatus.NOT_INSTALLED if missing else CommandStatus.EXITED
        code = None if missing else said.exit_code
        results.append(CommandResult(command.name, command.argv, status, code, said.stdout, said.stderr, now, now))
    evidence = UnitEvidence(node.name, "node", "driver_firmware", ReachStatus.OK, "", now, now, tuple(results))
    return DRIVER_FIRMWARE.parse(node, evidence, SITE)


@pytest.fixture(scope="module")
def healthy():
    """Rows of the healthy nodes, by node, in the previous run and in this one."""
    state = LabState(UP_SINCE)
    return {n.name: (rows_of(n, state, BEFORE), rows_of(n, state, NOW)) for n in NODES}


def judge(healthy, *faults):
    state = LabState(
        UP_SINCE, tuple(Fault(kind, unit, value, NOW - timedelta(hours=3)) for kind, unit, value in faults)
    )
    now = []
    for node in NODES:
        # A fault on a switch port shows on the node at the other end of the cable.
        cables = [SITE.cable_of_nic(node.name, nic.name) for nic in node.sku.nics]
        near = {node.name, *(f"{c.switch}/{c.port}" for c in cables if c)}
        touched = any(f.unit in near or f.unit.startswith(node.name + "/") for f in state.faults)
        now += rows_of(node, state, NOW) if touched else healthy[node.name][1]
    context = Context(
        site=SITE,
        run="r",
        started_at=NOW,
        scope=NODES,
        reach={n.name: StoredEvidence(n.name, "k", "s", ReachStatus.OK) for n in NODES},
        previous=RowSet.gather(row for n in NODES for row in healthy[n.name][0]),
        previous_at={n.name: BEFORE for n in NODES},
    )
    found = DRIVER_FIRMWARE.judge(RowSet.gather(now), context)
    return [(f.rule, f.unit, f.metric) for f in found if f.explained_by is None]


def test_healthy_lab_nodes_give_no_finding(healthy):
    assert judge(healthy) == []


CASES = [
    (("driver-version", "gpu-002", "570.148.08"), ("as_expected", "gpu-002", "driver_version")),
    (("nic-firmware", "gpu-003/mlx5_3", "28.39.1002"), ("as_expected", "gpu-003/mlx5_3", "fw_version")),
    (("pcie-degraded", "gpu-003/gpu2", "8"), ("pcie_width", "gpu-003/gpu2", "pcie_width")),
    (("nic-down", "gpu-004/mlx5_6", None), ("link_up", "gpu-004/mlx5_6", "state")),
    (("link-flap", "gpu-004/mlx5_1", "7"), ("link_flaps", "gpu-004/mlx5_1", "lost_carrier")),
    (("remap-pending", "gpu-005/gpu1", None), ("remap_pending", "gpu-005/gpu1", "remap_pending")),
    (("xid", "gpu-006/gpu5", "79"), ("xid", "gpu-006/gpu5", "xid_79")),
    (("port-down", "leaf-2/Ethernet32", None), ("link_up", "gpu-005/mlx5_2", "state")),
    (("port-speed", "leaf-1/swp3", "200"), ("link_rate", "gpu-003/mlx5_0", "rate_gbps")),
]


@pytest.mark.parametrize(("fault", "expected"), CASES, ids=[c[0][0] for c in CASES])
def test_each_fault_is_found_where_it_is_and_nothing_else(healthy, fault, expected):
    assert judge(healthy, fault) == [expected]


def test_all_faults_at_once(healthy):
    assert sorted(judge(healthy, *(fault for fault, _ in CASES))) == sorted(expected for _, expected in CASES)
