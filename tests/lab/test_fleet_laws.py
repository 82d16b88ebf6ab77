"""The laws of the fleet model against published figures, and what they must never do."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric_health.lab.fleet import laws

H100 = laws.DOMAINS["H100"]
RAIL = 400 / 8 * laws.NETWORK_SHARE


def all_reduce(size: int, nodes: int, limit: float) -> float:
    """Bus bandwidth of an all_reduce of ``nodes`` nodes of eight GPUs."""
    ranks = 8 * nodes
    time = laws.time_us("all_reduce", size, limit, ranks, laws.latency_us("all_reduce", ranks, nodes))
    return size / time / 1e3 * laws.bus_factor("all_reduce", ranks)


@pytest.mark.parametrize(
    ("size", "published"), [(32 << 10, 0.92), (1 << 20, 17.0), (8 << 20, 69.0), (1 << 30, 94.0), (16 << 30, 92.0)]
)
def test_curve_of_32_gpus_is_within_a_quarter_of_the_published_one(size: int, published: float) -> None:
    # https://github.com/stas00/ml-engineering/tree/master/network/benchmarks: 32 ranks, about 95 GB/s at most.
    assert all_reduce(size, 4, 95.0) == pytest.approx(published, rel=0.25)


@pytest.mark.parametrize(("nodes", "low", "high"), [(2, 450, 490), (4, 360, 390), (8, 360, 390), (248, 340, 380)])
def test_eight_400g_rails_reach_what_is_published(nodes: int, low: float, high: float) -> None:
    # H100/H200: 488 on two nodes (limited by NVLink), 382 to 386 on four and eight, about 350 on 248.
    limit = laws.network_limit("all_reduce", RAIL, 8, 8 * nodes, nodes, H100)
    assert low <= all_reduce(16 << 30, nodes, limit) <= high


def test_one_node_is_as_fast_as_nvlink_sharp_lets_all_reduce_be() -> None:
    assert laws.domain_limit("all_reduce", H100) == 470
    assert laws.domain_limit("all_reduce", H100, ring_only=True) == 366
    assert laws.domain_limit("all_gather", H100) == 366
    assert laws.domain_of("NVIDIA H200").best == 473
    assert laws.domain_of("a model of next year") == H100


def test_nvlink_hides_a_slow_rail_of_two_nodes_unless_rings_are_asked_for() -> None:
    slow = 0.8 * RAIL
    free = [laws.network_limit("all_reduce", r, 8, 16, 2, H100) for r in (RAIL, slow)]
    rings = [laws.network_limit("all_reduce", r, 8, 16, 2, H100, ring_only=True) for r in (RAIL, slow)]
    assert free[0] == free[1]
    assert rings[1] == pytest.approx(0.8 * rings[0], rel=0.01)


@given(
    st.sampled_from(laws.COLLECTIVES), st.integers(0, 34), st.integers(1, 10), st.floats(1, 400), st.floats(0.01, 0.99)
)
def test_bandwidth_rises_with_size_and_falls_with_a_slower_rail(
    collective: str, power: int, nodes: int, rail: float, share: float
) -> None:
    ranks = 8 * nodes

    def busbw(size: int, gbps: float) -> float:
        one = nodes == 1
        limit = gbps if one else laws.network_limit(collective, gbps, 8, ranks, nodes, H100)
        time = laws.time_us(collective, size, limit, ranks, laws.latency_us(collective, ranks, nodes))
        return size / time / 1e3 * laws.bus_factor(collective, ranks)

    assert 0 < busbw(1 << power, rail) < busbw(2 << power, rail)
    assert busbw(1 << power, share * rail) <= busbw(1 << power, rail)


def test_rdma_mtu_is_the_largest_that_fits_with_its_headers() -> None:
    assert [laws.roce_mtu(m) for m in (9216, 9000, 4200, 4155, 2108, 1500, 576, 300, 100)] == [
        4096, 4096, 4096, 2048, 2048, 1024, 512, None, None,
    ]  # fmt: skip


def test_an_mtu_of_1500_costs_the_headers_of_packets_of_a_quarter() -> None:
    assert laws.mtu_share(1500, 9000) == pytest.approx(0.945, abs=0.002)
    assert laws.mtu_share(9000, 9000) == 1.0
    assert laws.mtu_share(9216, 1500) == 1.0
    assert laws.mtu_share(200, 9000) == 0.0


def test_half_the_pcie_lanes_slow_a_400g_rail_and_not_a_200g_one() -> None:
    assert laws.pcie_share(5, 16, RAIL) == 1.0
    assert laws.pcie_share(5, 8, RAIL) == pytest.approx(0.60, abs=0.01)
    assert laws.pcie_share(5, 8, RAIL / 2) == 1.0
    assert laws.pcie_share(5, 1, RAIL) < laws.pcie_share(5, 4, RAIL) < laws.pcie_share(5, 8, RAIL)


def test_lost_packets_cost_a_window_each() -> None:
    assert laws.error_share(0, 400) == 1.0
    assert laws.error_share(1e-3, 400) == pytest.approx(0.891, abs=0.002)
    assert laws.error_share(1e-2, 400) < laws.error_share(1e-3, 400) < laws.error_share(1e-3, 100)


def test_an_unknown_collective_is_refused() -> None:
    with pytest.raises(ValueError, match="expected one of: all_reduce"):
        laws.bus_factor("all_to_some", 8)
