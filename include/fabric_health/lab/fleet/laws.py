"""The laws of the fleet model, noise left out: time and bandwidth of a collective, and what faults cost.

Bandwidths are GB/s of 1e9 bytes, times us. Constants are published figures where a source is named; those marked
*ours* have none and are chosen to be plausible. Published all_reduce figures: nccl-tests results that Azure, CoreWeave
and https://github.com/stas00/ml-engineering/tree/master/network/benchmarks give for nodes of eight GPUs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "alltoall", "broadcast", "sendrecv")


@dataclass(frozen=True)
class GpuDomain:
    """Bus bandwidth inside one node in GB/s: ``best`` with NVLink SHARP where there is one, and by rings."""

    best: float
    ring: float

    @property
    def nvls(self) -> bool:
        """Whether the switches of the domain reduce (NVLink SHARP)."""
        return self.best > self.ring


# All-reduce at 8 to 16 GB: A100 228-235, H100 460-480 (ring 360-370), H200 473 (366), B200 838-846 (682), MI300X 313.
DOMAINS: dict[str, GpuDomain] = {
    "A100": GpuDomain(232, 232),
    "H100": GpuDomain(470, 366),
    "H200": GpuDomain(473, 366),
    "B200": GpuDomain(842, 682),
    "MI300X": GpuDomain(313, 313),
}

# 370 of 400 GB/s is what acceptance of 8 x 400G nodes asks for: 92 % of the line rate reaches the collective.
NETWORK_SHARE = 0.92

# 32 KiB on eight GPUs: 1.2 GB/s, 48 us. 32 GPUs (four nodes): 0.92 GB/s at 32 KiB, 69 us; 17 at 1 MiB, 98 us without
# the transfer; 69 at 8 MiB, 63 us without it. Two doublings of nodes are about 30 us.
NODE_LATENCY_US = 45.0
DOUBLING_LATENCY_US = 15.0
ONE_WAY_SHARE = 0.6  # ours: collectives that go round once instead of twice
PEER_LATENCY_US = 0.4  # ours: alltoall starts a message to each rank


def domain_of(gpu_model: str) -> GpuDomain:
    """Return the domain of a GPU model by its name; an unlisted model gets the H100's figures."""
    return next((d for name, d in DOMAINS.items() if name in gpu_model), DOMAINS["H100"])


def bus_factor(collective: str, ranks: int) -> float:
    """Return busbw / algbw (nccl-tests, doc/PERFORMANCE.md).

    :raises ValueError: a collective that the model does not know.
    """
    if collective == "all_reduce":
        return 2 * (ranks - 1) / ranks
    if collective in ("all_gather", "reduce_scatter", "alltoall"):
        return (ranks - 1) / ranks
    if collective in ("broadcast", "sendrecv"):
        return 1.0
    raise ValueError(f"collective {collective!r}; expected one of: {', '.join(COLLECTIVES)}")


def latency_us(collective: str, ranks: int, nodes: int) -> float:
    """Return the time of a collective that moves almost nothing."""
    doublings = math.log2(nodes) if nodes > 1 else 0.0
    trip = NODE_LATENCY_US + DOUBLING_LATENCY_US * doublings
    if collective == "all_reduce":
        return trip
    if collective == "alltoall":
        return ONE_WAY_SHARE * NODE_LATENCY_US + PEER_LATENCY_US * ranks
    if collective == "sendrecv":
        return ONE_WAY_SHARE * NODE_LATENCY_US + (DOUBLING_LATENCY_US if nodes > 1 else 0.0)
    return ONE_WAY_SHARE * trip


def domain_limit(collective: str, domain: GpuDomain, ring_only: bool = False) -> float:
    """Return the bus bandwidth that NVLink allows: only all_reduce is sped up by NVLink SHARP."""
    return domain.best if collective == "all_reduce" and not ring_only else domain.ring


def network_limit(
    collective: str, rail_gbps: float, rails: int, ranks: int, nodes: int, domain: GpuDomain, ring_only: bool = False
) -> float:
    """Return the bus bandwidth of a group of several nodes whose slowest rail carries ``rail_gbps``.

    Rings cross the network on all rails at once with equal shares, so the slowest rail sets the pace of all of them.
    On two nodes NCCL reduces inside the nodes first and each NIC carries its share of the data once each way, so that
    NVLink becomes the limit (H100, two nodes: 488 GB/s published; four and more: 382 to 386). In alltoall every rank
    sends what leaves its node through its own NIC. In sendrecv only the last rank of a node sends out.
    """
    per_node = ranks // nodes
    if collective == "alltoall":
        net = rails * rail_gbps / per_node * (ranks - 1) / (ranks - per_node)
    elif collective == "sendrecv":
        net = rail_gbps
    elif collective == "all_reduce" and nodes == 2 and per_node > 1 and not ring_only:
        net = rails * rail_gbps * 2 * (ranks - 1) / ranks
    else:
        net = rails * rail_gbps
    return net if per_node == 1 else min(net, domain_limit(collective, domain, ring_only))


def time_us(collective: str, size_bytes: int, bus_gbps: float, ranks: int, latency: float) -> float:
    """Return latency + transfer (Hockney 1994): half of the bandwidth is reached where the two are equal."""
    return latency + bus_factor(collective, ranks) * size_bytes / bus_gbps / 1e3


# RoCE v2 on the wire, https://docs.nvidia.com/networking: what Ethernet, IPv4, UDP, BTH and ICRC add to each packet,
# with preamble and gap; and what must fit into the Ethernet MTU beside the payload (with the largest transport header).
_WIRE_BYTES = 20 + 14 + 4 + 20 + 8 + 12 + 4
_IN_MTU_BYTES = 20 + 8 + 12 + 16 + 4
_ROCE_MTUS = (4096, 2048, 1024, 512, 256)


def roce_mtu(mtu_bytes: int) -> int | None:
    """Return the RDMA MTU that fits an Ethernet MTU, None where not even 256 B do."""
    return next((m for m in _ROCE_MTUS if m + _IN_MTU_BYTES <= mtu_bytes), None)


def mtu_share(mtu_bytes: int, healthy_mtu_bytes: int) -> float:
    """Return the share of goodput that is left when packets get smaller; 0 where nothing passes."""
    small, usual = roce_mtu(mtu_bytes), roce_mtu(healthy_mtu_bytes) or _ROCE_MTUS[0]
    if small is None:
        return 0.0
    small = min(small, usual)
    return small / (small + _WIRE_BYTES) * (usual + _WIRE_BYTES) / usual


# Payload of one PCIe lane and direction, GB/s, and the share of it that copies reach (55.4 of 63 on H200).
_LANE_GBPS = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938, 6: 7.563, 7: 15.13}
_COPY_SHARE = 0.88


def pcie_share(generation: int, lanes: int, rail_gbps: float) -> float:
    """Return the share of a rail's bandwidth that the GPU's PCIe link lets through (GPUDirect RDMA passes it)."""
    return min(1.0, _LANE_GBPS.get(generation, 3.938) * lanes * _COPY_SHARE / rail_gbps)


# Go-back-N sends a window again for each lost packet (Mittal et al., Revisiting Network Support for RDMA, SIGCOMM
# 2018). Window: what is in flight in 10 us (ours) at the line rate.
_ROUND_TRIP_US = 10.0


def error_share(errors_per_packet: float, nic_gbitps: float, packet_bytes: int = 4096) -> float:
    """Return the share of goodput that is left with lost packets."""
    window = max(1.0, nic_gbitps * 1e3 / 8 * _ROUND_TRIP_US / packet_bytes)
    return 1.0 / (1.0 + errors_per_packet * window)


PFC_OFF_SHARE = 0.88  # ours: without PFC a port drops packets under incast
