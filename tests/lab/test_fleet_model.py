"""The fleet model's randomness: reproducible, per unit, as wide as stated, and faults show through it."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric_health.lab.fleet.costs import Costs
from fabric_health.lab.fleet.fabric import Fabric
from fabric_health.lab.fleet.model import SPREAD, Fleet, Spread
from fabric_health.lab.state import Fault

GIB = 1 << 30
FABRIC = Fabric.of_size(16)
QUIET = Spread(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)


def with_fault(kind: str, unit: str, value: str, spread: Spread = SPREAD) -> Fleet:
    fault = Fault(kind, unit, value, datetime(2026, 11, 30, tzinfo=UTC))
    return Fleet(FABRIC, 7, Costs.of(FABRIC, [fault]), spread)


def busbw(fleet: Fleet, nodes: tuple[str, ...], launch: str = "a", run: str = "week 1", **more: object) -> float:
    return fleet.measure("all_reduce", fleet.group(nodes), 8 * GIB, launch, run, **more).busbw_gbps  # type: ignore[arg-type]


def test_the_same_names_give_the_same_numbers_and_others_give_others() -> None:
    first, again = (
        Fleet(FABRIC, 7).measure("all_reduce", Fleet(FABRIC).group(FABRIC.nodes), GIB, "a", "r") for _ in "12"
    )
    assert first.times_us.tolist() == again.times_us.tolist()
    values = {
        busbw(Fleet(FABRIC, seed), FABRIC.nodes, launch, run)
        for seed, launch, run in [(7, "a", "r"), (8, "a", "r"), (7, "b", "r"), (7, "a", "s")]
    }
    assert len(values) == 4


def test_more_nodes_leave_the_others_as_they_were() -> None:
    small, large = Fleet(Fabric.of_size(8), 7), Fleet(Fabric.of_size(200), 7)
    nodes = ("gpu-001", "gpu-005")
    assert busbw(small, nodes) == busbw(large, nodes)


def test_a_fault_leaves_groups_without_its_unit_exactly_as_they_were() -> None:
    healthy, faulty = Fleet(FABRIC, 7), with_fault("slow-rail", "gpu-007/mlx5_3", "20")
    others = tuple(n for n in FABRIC.nodes if n != "gpu-007")
    assert busbw(faulty, others) == busbw(healthy, others)
    assert busbw(faulty, ("gpu-007",)) == busbw(healthy, ("gpu-007",))  # NVLink is not the network
    for rail in range(8):
        group = healthy.group(FABRIC.nodes, (rail,))
        same = faulty.limit("all_reduce", group) == healthy.limit("all_reduce", group)
        assert same == (rail != 3)


def test_sendrecv_crosses_nodes_by_the_outer_rails_only() -> None:
    healthy = Fleet(FABRIC, 7)
    for rail, seen in ((0, True), (3, False), (7, True)):
        faulty = with_fault("slow-rail", f"gpu-007/mlx5_{rail}", "20")
        group = healthy.group(FABRIC.nodes)
        assert (faulty.limit("sendrecv", group) < healthy.limit("sendrecv", group)) == seen


@given(st.floats(1, 98), st.floats(1, 98))
def test_a_larger_loss_is_never_faster(one: float, other: float) -> None:
    small, large = sorted((one, other))
    values = [
        f.limit("all_reduce", f.group(FABRIC.nodes))
        for f in (with_fault("slow-rail", "gpu-007/mlx5_3", str(x), QUIET) for x in (small, large))
    ]
    assert values[1] <= values[0]
    assert values[0] == pytest.approx(8 * 46 * (1 - small / 100))


def test_a_slow_node_is_slow_by_itself_and_with_others() -> None:
    healthy, faulty = Fleet(FABRIC, 7), with_fault("slow-node", "gpu-004", "15")
    for nodes in (("gpu-004",), FABRIC.nodes):
        assert busbw(faulty, nodes) == pytest.approx(0.85 * busbw(healthy, nodes), rel=0.03)


def test_launches_spread_as_stated_with_a_tail_to_the_slow_side() -> None:
    fleet = Fleet(FABRIC, 7)
    group = fleet.group(FABRIC.nodes)
    values = fleet.simulate([group], 16 * GIB, runs=1, launches=20_000)[0, :, 0]
    log = np.log(values / np.median(values))
    middle = (np.quantile(log, 0.8413) - np.quantile(log, 0.1587)) / 2
    assert middle == pytest.approx(SPREAD.launch, rel=0.15)
    assert (log < -0.05).mean() == pytest.approx(SPREAD.tail * np.exp(-0.05 / SPREAD.tail_loss), rel=0.25)
    assert (log > 0.05).mean() < 1e-3


def test_single_launches_follow_the_same_law_as_simulated_ones() -> None:
    fleet = Fleet(FABRIC, 7)
    group = fleet.group(FABRIC.nodes)
    single = np.array([busbw(fleet, FABRIC.nodes, f"launch {i}") for i in range(400)])
    many = fleet.simulate([group], 8 * GIB, runs=1, launches=4000)[0, :, 0]
    widths = [np.subtract(*np.quantile(np.log(v), [0.75, 0.25])) for v in (single, many)]
    assert widths[0] == pytest.approx(widths[1], rel=0.2)


def test_units_and_runs_spread_as_stated() -> None:
    fleet = Fleet(Fabric.of_size(1000), 3)
    limits = np.log([fleet.limit("all_reduce", fleet.group((n,))) for n in fleet.fabric.nodes])
    stated = SPREAD.nvlink * np.hypot(SPREAD.node, SPREAD.rack)
    assert limits.std() == pytest.approx(stated, rel=0.15)
    group = fleet.group(fleet.fabric.nodes[:2], (0,))
    runs = np.log([fleet.limit("all_reduce", group, run=f"r{i}") for i in range(1000)])
    assert runs.std() == pytest.approx(np.hypot(SPREAD.run, SPREAD.rack_run), rel=0.1)


def test_nodes_of_a_rack_move_together_from_run_to_run() -> None:
    fleet = Fleet(Fabric.of_size(32, rack_nodes=8), 3, None, Spread(run=0, rack_run=0.01, launch=0, tail=0, spike=0))
    groups = [fleet.group((n,)) for n in fleet.fabric.nodes[:16]]
    runs = np.log([[fleet.limit("all_reduce", g, run=f"r{i}") for g in groups] for i in range(200)])
    correlation = np.corrcoef(runs.T)
    assert correlation[:8, :8].min() > 0.99
    assert abs(correlation[0, 8]) < 0.25


def test_a_large_group_is_slower_than_a_small_one_because_the_slowest_unit_counts() -> None:
    fleet = Fleet(Fabric.of_size(232), 5)
    means = [fleet.expected(n, ring_only=True) for n in (2, 16, 64, 232)]
    assert means == sorted(means, reverse=True)
    assert 0.95 < means[-1] / means[0] < 0.99


def test_iterations_are_not_independent() -> None:
    fleet = Fleet(FABRIC, 7, None, Spread(spike=0))
    times = fleet.measure("all_reduce", fleet.group(FABRIC.nodes), 8 * GIB, "a", "r", iterations=20_000).times_us
    log = np.log(times) - np.log(times).mean()
    assert log.std() == pytest.approx(SPREAD.iteration, rel=0.1)
    assert (log[1:] * log[:-1]).mean() / log.var() == pytest.approx(SPREAD.memory, abs=0.05)


def test_spikes_are_rare_and_long() -> None:
    fleet = Fleet(FABRIC, 7)
    times = fleet.measure("all_reduce", fleet.group(FABRIC.nodes), 8 * GIB, "a", "r", iterations=50_000).times_us
    slow = times > 1.1 * np.median(times)
    assert slow.mean() == pytest.approx(SPREAD.spike * np.exp(-0.1 / SPREAD.spike_time), rel=0.3)


def test_nodes_drift_apart_slowly() -> None:
    fleet = Fleet(FABRIC, 7)
    groups = [fleet.group((n,)) for n in FABRIC.nodes]
    moved = [np.log(fleet.limit("all_reduce", g, week=52) / fleet.limit("all_reduce", g)) for g in groups]
    assert 0 < np.std(moved) < 52 * SPREAD.drift


def test_a_thousand_nodes_are_simulated_in_seconds_and_reproducibly() -> None:
    fleet = Fleet(Fabric.of_size(1000), 3)
    groups = [fleet.group((n,)) for n in fleet.fabric.nodes]
    found = fleet.simulate(groups, 8 * GIB, runs=4, launches=3, seed=1)
    assert found.shape == (4, 3, 1000)
    assert np.array_equal(found, fleet.simulate(groups, 8 * GIB, runs=4, launches=3, seed=1))
    assert not np.array_equal(found, fleet.simulate(groups, 8 * GIB, runs=4, launches=3, seed=2))


def test_units_that_the_fleet_lacks_are_named() -> None:
    fleet = Fleet(FABRIC)
    with pytest.raises(KeyError, match="gpu-099"):
        fleet.group(("gpu-099",))
    with pytest.raises(KeyError, match="9"):
        fleet.group(("gpu-001",), (9,))
