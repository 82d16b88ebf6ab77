"""A fleet as the runner of an isolation: what the tests of a round would measure, relative to a healthy group."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fabric_health.isolation.state import Measurement, Test
from fabric_health.lab.fleet.model import Fleet, NoPathError

LARGE_BYTES = 8 << 30


def fleet_runner(
    fleet: Fleet, run: str = "isolation", collective: str = "all_reduce", size_bytes: int = LARGE_BYTES
) -> Callable[[Sequence[Test]], Sequence[Measurement]]:
    """Return a function that measures the tests of a round on ``fleet``; ``run`` seeds its noise.

    Tests run with rings only (``NCCL_ALGO=Ring``): on two nodes NCCL's own choice is limited by NVLink and hides a
    slow rail. A test of one rail uses that rail's NIC and GPU alone (``NCCL_IB_HCA``): no other NIC stands in for it.
    """

    def measure(test: Test) -> Measurement:
        silent = [n for n in test.nodes if n in fleet.costs.silent]
        if silent:
            return Measurement(test.name, None, f"{silent[0]}: {fleet.costs.silent[silent[0]]}")
        group = fleet.group(test.nodes, None if test.rail is None else (test.rail,))
        try:
            found = fleet.measure(collective, group, size_bytes, test.name, run, ring_only=True)
        except NoPathError as error:
            return Measurement(test.name, None, str(error))
        expected = fleet.expected(len(test.nodes), None if test.rail is None else 1, collective)
        return Measurement(test.name, found.busbw_gbps / expected)

    return lambda tests: [measure(t) for t in tests]
