"""The fleet model as the runner of an isolation: relative bandwidth, no number where none can be, faults named."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from statistics import mean, pstdev

import pytest

from fabric_health.isolation.fleet import Fleet as Places
from fabric_health.isolation.session import run
from fabric_health.isolation.state import State, Test
from fabric_health.lab.fleet.costs import Costs
from fabric_health.lab.fleet.fabric import Fabric
from fabric_health.lab.fleet.model import SPREAD, Fleet
from fabric_health.lab.fleet.runner import fleet_runner
from fabric_health.lab.state import Fault

FABRIC = Fabric.of_size(64, rack_nodes=8)


def fleet(*faults: tuple[str, str, str | None]) -> Fleet:
    made = [Fault(kind, unit, value, datetime(2026, 11, 30, tzinfo=UTC)) for kind, unit, value in faults]
    return Fleet(FABRIC, 11, Costs.of(FABRIC, made))


def asked(name: str, nodes: tuple[str, ...], rail: int | None = None) -> Test:
    return Test(name, nodes, rail, False, "")


def test_healthy_groups_measure_what_is_expected_of_them() -> None:
    runner = fleet_runner(fleet())
    for size in (2, 8, 64):
        found = [m.relative for m in runner([asked(f"{size}-{i}", FABRIC.nodes[:size]) for i in range(200)])]
        values = sorted(x for x in found if x is not None)
        assert len(values) == 200
        assert mean(values[20:-20]) == pytest.approx(1.0, abs=0.03)
        assert pstdev(values[20:-20]) < 2 * SPREAD.launch


def test_a_slow_rail_shows_on_its_rail_of_its_node() -> None:
    runner = fleet_runner(fleet(("slow-rail", "gpu-007/mlx5_3", "20")))
    pair, other = ("gpu-007", "gpu-012"), ("gpu-006", "gpu-012")
    found = runner(
        [asked("a", pair), asked("b", pair, 3), asked("c", pair, 2), asked("d", other), asked("e", other, 3)]
    )
    assert [m.test for m in found] == list("abcde")
    assert [round(m.relative or 0, 1) for m in found] == [0.8, 0.8, 1.0, 1.0, 1.0]


def test_where_nothing_can_be_measured_there_is_no_number() -> None:
    faulty = fleet(("nic-down", "gpu-007/mlx5_3", None), ("node-unreachable", "gpu-009", None))
    found = fleet_runner(faulty)([asked("a", ("gpu-007", "gpu-008"), 3), asked("b", ("gpu-008", "gpu-009"))])
    assert [m.relative for m in found] == [None, None]
    assert "gpu-007: mlx5_3 is down" in found[0].reason
    assert "gpu-009: Connection refused" in found[1].reason
    assert not any(m.excused for m in found)


@pytest.mark.parametrize(
    ("fault", "node", "rail"),
    [(("slow-node", "gpu-023", "15"), "gpu-023", None), (("slow-rail", "gpu-042/mlx5_5", "18"), "gpu-042", 5)],
)
def test_isolation_names_the_fault_of_this_fleet(fault: tuple[str, str, str], node: str, rail: int | None) -> None:
    racks: dict[str, list[str]] = {}
    for name, rack in zip(FABRIC.nodes, FABRIC.racks, strict=True):
        racks.setdefault(rack, []).append(name)
    state, verdict = run(State(Places.of(racks)), fleet_runner(fleet(fault)), lambda s: json.loads(s.to_json()))
    assert [(b.component.place, b.component.rail) for b in verdict.blamed] == [(node, rail)]
    assert len(state.results) <= 40
