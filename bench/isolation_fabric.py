"""A simulated fabric for `bench/isolation.py`: documented laws, faults with known places, answers like a runner's.

The laws (log scale, so they are about fractions):

* unit spread: each node N(0, 0.7 %), each of its rails N(0, 0.4 %), fixed for a fleet;
* a group runs at its slowest member: the minimum over its nodes of node + slowest rail in the test;
* history knows what a healthy group of that many nodes and rails gives on average: results are relative to that;
* run effect: N(0, 1 %), the same for all tests of a session;
* launch noise: N(0, sigma) for each test, and with probability 2 % the launch is an outlier, slower by Exp(8 %);
* a fault takes its loss from every group that shows it; what it takes varies from test to test by 10 % of itself;
  of several faults in a group the largest counts.
"""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fabric_health.isolation.fleet import Component, Fleet, Kind
from fabric_health.isolation.state import Measurement, Test

NODE_SPREAD, RAIL_SPREAD, RUN_EFFECT = 0.007, 0.004, 0.01
OUTLIERS, OUTLIER_SCALE, LOSS_WOBBLE = 0.02, 0.08, 0.1
RAILS = 8


@dataclass(frozen=True)
class Fault:
    """``component`` loses ``loss`` (fraction); of a node's or domain's rail when the component has one."""

    component: Component
    loss: float


def fleet_of(count: int) -> Fleet:
    """Return ``count`` nodes in domains of 4 (16 nodes), 8 (64) or 16."""
    size = {16: 4, 64: 8}.get(count, 16)
    names = [f"n{i:04d}" for i in range(count)]
    return Fleet.of(
        {f"leaf-{d:02d}": names[d * size : (d + 1) * size] for d in range(math.ceil(count / size))}, None, RAILS
    )


def draw_faults(fleet: Fleet, kind: str, count: int, loss: tuple[float, float], rng: random.Random) -> list[Fault]:
    """Return ``count`` faults of ``kind``: node, rail, leaf, uplink, spine or path; places differ."""
    real = {"rail": Kind.NODE}.get(kind) or Kind(kind)
    choice = [c for c in fleet.components if c.kind is real]
    picked = rng.sample(choice, count)
    rails = [rng.randrange(fleet.rails) if kind == "rail" else None for _ in picked]
    return [Fault(Component(c.kind, c.place, r), rng.uniform(*loss)) for c, r in zip(picked, rails, strict=True)]


@functools.lru_cache(maxsize=4096)
def expected(nodes: int, rails: int) -> float:
    """Return the mean log bandwidth of a healthy group of that shape, relative to one perfect rail."""
    rng = np.random.default_rng(nodes * 100 + rails)
    draws = max(60, 6000 // nodes)
    node = rng.normal(0, NODE_SPREAD, (draws, nodes))
    rail = rng.normal(0, RAIL_SPREAD, (draws, nodes, rails)).min(axis=2)
    return float((node + rail).min(axis=1).mean())


class Fabric:
    """One fleet with its faults in one session."""

    def __init__(self, fleet: Fleet, faults: Sequence[Fault], noise: float, seed: int) -> None:
        self.fleet, self.faults, self.noise = fleet, tuple(faults), noise
        self.rng = np.random.default_rng(seed)
        self.node = self.rng.normal(0, NODE_SPREAD, len(fleet.nodes))
        self.rail = self.rng.normal(0, RAIL_SPREAD, (len(fleet.nodes), fleet.rails))
        self.effect = float(self.rng.normal(0, RUN_EFFECT))
        self.at = {n: i for i, n in enumerate(fleet.nodes)}
        self.tests = 0
        self.rounds = 0

    def run(self, tests: Sequence[Test]) -> list[Measurement]:
        """Measure the tests of one round."""
        self.rounds += 1
        return [Measurement(t.name, self.measure(t.nodes, t.rail)) for t in tests]

    def measure(self, nodes: Sequence[str], rail: int | None = None) -> float:
        """Return the relative bandwidth of one group in one launch."""
        self.tests += 1
        index = [self.at[n] for n in nodes]
        rails = self.rail[index] if rail is None else self.rail[index, rail : rail + 1]
        log = float((self.node[index] + rails.min(axis=1)).min()) - expected(len(index), rails.shape[1])
        shown = [f for f in self.faults if self._shows(f, nodes, rail)]
        log += min((math.log1p(-f.loss) * (1 + LOSS_WOBBLE * self.rng.normal()) for f in shown), default=0.0)
        log += self.effect + self.noise * self.rng.normal()
        if self.rng.random() < OUTLIERS:
            log -= self.rng.exponential(OUTLIER_SCALE)
        return math.exp(log)

    def _shows(self, fault: Fault, nodes: Sequence[str], rail: int | None) -> bool:
        c = fault.component
        if c.rail is not None and rail is not None and c.rail != rail:
            return False
        if c.kind is Kind.NODE:
            return c.place in nodes
        domains = self.fleet.domains_of(nodes)
        return (len(domains) > 1 or c.kind is Kind.LEAF) and self.fleet.shows_between(c.kind, c.place, domains)

    def all_pairs(self) -> np.ndarray:
        """Return relative bandwidth of every pair (symmetric, NaN on the diagonal): n (n - 1) / 2 tests."""
        n = len(self.fleet.nodes)
        value = self.node + self.rail.min(axis=1)
        log = np.minimum(value[:, None], value[None, :]) - expected(2, self.fleet.rails)
        loss = np.zeros((n, n))
        domain = np.array([p.domain for p in self.fleet.nodes.values()])
        for f in self.faults:
            inside = np.isin(domain, sorted(self.fleet.domains_behind(f.component.kind, f.component.place)))
            if f.component.kind is Kind.NODE:
                one = np.array(list(self.fleet.nodes)) == f.component.place
                shown = one[:, None] | one[None, :]
            elif f.component.kind is Kind.LEAF:
                shown = inside[:, None] | inside[None, :]
            elif f.component.kind is Kind.PATH:
                shown = inside[:, None] & inside[None, :] & (domain[:, None] != domain[None, :])
            else:
                shown = (inside[:, None] | inside[None, :]) & (domain[:, None] != domain[None, :])
            loss = np.minimum(
                loss, np.where(shown, math.log1p(-f.loss) * (1 + LOSS_WOBBLE * self.rng.normal(size=(n, n))), 0)
            )
        slow = np.where(self.rng.random((n, n)) < OUTLIERS, self.rng.exponential(OUTLIER_SCALE, (n, n)), 0)
        log = log + loss + self.effect + self.noise * self.rng.normal(size=(n, n)) - slow
        log = np.triu(log, 1)
        log = log + log.T
        np.fill_diagonal(log, np.nan)
        self.tests += n * (n - 1) // 2
        self.rounds += n - 1
        return np.exp(log)
