"""A small fabric whose slow places are known, answering like a runner."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

import pytest

from fabric_health.isolation.fleet import Component, Fleet, Kind
from fabric_health.isolation.state import Measurement, Test

FabricOf = Callable[..., Callable[[Sequence[Test]], list[Measurement]]]


@pytest.fixture
def fleet() -> Fleet:
    """Return 32 nodes under four leaves."""
    return Fleet.of({f"leaf-{d}": [f"gpu-{d * 8 + i:03d}" for i in range(8)] for d in range(4)})


@pytest.fixture
def fabric() -> FabricOf:
    """Return a factory of runners: ``fabric(fleet, {component: loss}, noise=0.0, seed=0)``; a loss of 1.0 hangs."""

    def of(
        fleet: Fleet, slow: Mapping[Component, float] | None = None, noise: float = 0.0, seed: int = 0
    ) -> Callable[[Sequence[Test]], list[Measurement]]:
        rng = random.Random(seed)

        def loss(test: Test) -> float:
            return max((lost for c, lost in (slow or {}).items() if shows(fleet, c, test)), default=0.0)

        def run(tests: Sequence[Test]) -> list[Measurement]:
            found = []
            for t in tests:
                lost, factor = loss(t), 1 + noise * rng.gauss(0, 1)
                number = None if lost >= 1.0 else (1 - lost) * factor
                found.append(Measurement(t.name, number, "" if number else "no output after 600 s"))
            return found

        return run

    return of


def shows(fleet: Fleet, c: Component, test: Test) -> bool:
    """Return whether ``test`` meets the slow ``c``: written out here, not taken from the code under test."""
    if c.rail is not None and test.rail not in (None, c.rail):
        return False
    if c.kind is Kind.NODE:
        return c.place in test.nodes
    domains = {fleet.nodes[n].domain for n in test.nodes}
    if c.kind is Kind.LEAF:
        return c.place in domains
    if len(domains) < 2:
        return False
    if c.kind is Kind.UPLINK:
        return c.place in domains
    if c.kind is Kind.PATH:
        return set(c.place.split(" - ")) <= domains
    if c.kind is Kind.POD:
        pods = {fleet.nodes[n].pod for n in test.nodes}
        return c.place in pods and len(pods) > 1
    return True
