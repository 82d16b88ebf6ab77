"""A fleet that measures: the laws, the spread of its units, and the noise of runs, launches and iterations.

Everything random is a function of the fleet's seed and of names (of the unit, the run, the launch, the group): asking
again gives the same answer, and one more node or test changes no other. Spreads are of the logarithm of bandwidth.
"""

from __future__ import annotations

import hashlib
import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist
from typing import Final

import numpy as np
import numpy.typing as npt

from fabric_health.lab.fleet import laws
from fabric_health.lab.fleet.costs import Costs
from fabric_health.lab.fleet.fabric import Fabric
from fabric_health.lab.state import LabState
from fabric_health.site import Site

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Spread:
    """Standard deviations unless said otherwise (fractions of bandwidth; all ours, within what operators report).

    Fixed for a fleet: ``node``, ``rail``, ``rack``. ``nvlink`` is the part of node and run effects that NVLink shows.
    Of a run: ``run`` for the whole fleet, ``rack_run`` for each rack. Of a launch: ``launch`` for each group;
    ``tail`` is the probability that a launch of a group is slower for no lasting reason, by Exp(``tail_loss``).
    Of an iteration: ``iteration`` with autocorrelation ``memory``; ``spike`` is the probability of one that takes
    longer by Exp(``spike_time``). ``drift`` is a node's slope for each week.
    """

    node: float = 0.007
    rail: float = 0.004
    rack: float = 0.003
    nvlink: float = 0.3
    run: float = 0.01
    rack_run: float = 0.003
    launch: float = 0.01
    tail: float = 0.02
    tail_loss: float = 0.08
    iteration: float = 0.008
    memory: float = 0.5
    spike: float = 0.002
    spike_time: float = 0.5
    drift: float = 0.0002


SPREAD: Final = Spread()
_RUNS_KEPT = 64


@dataclass(frozen=True)
class Group:
    """Ranks that work together: ``nodes``, and the positions of the NICs whose GPUs take part (None: all GPUs).

    ``alone`` says that no other group uses the other rails at the same time.
    """

    nodes: tuple[str, ...]
    positions: tuple[int, ...] | None = None
    alone: bool = True


@dataclass(frozen=True)
class Measurement:
    """One size in one launch. ``times_us`` are iterations; ``time_us`` their mean; bandwidths in GB/s."""

    times_us: Floats
    time_us: float
    algbw_gbps: float
    busbw_gbps: float


class NoPathError(Exception):
    """A group cannot work together: a node has no NIC that it could use."""


class Fleet:
    """Nodes of one SKU with their units' spread and their faults."""

    def __init__(self, fabric: Fabric, seed: int = 0, costs: Costs | None = None, spread: Spread = SPREAD) -> None:
        self.fabric, self.seed, self.spread = fabric, seed, spread
        self.costs = costs or Costs.none(fabric)
        self.domain = laws.domain_of(fabric.gpu_model)
        self._expected: dict[tuple[int, int, str, bool], float] = {}
        self._runs: dict[str, Floats] = {}

    @classmethod
    def of_site(
        cls,
        site: Site,
        state: LabState | None = None,
        nodes: Sequence[str] | None = None,
        driver_shares: Mapping[str, float] | None = None,
        spread: Spread = SPREAD,
    ) -> Fleet:
        """Return the fleet of a site's nodes with the faults of the lab; the seed is the site's name.

        :raises UsageError: a node that the site does not have.
        :raises LabError: no node with GPUs, or nodes of several SKUs.
        """
        fabric = Fabric.of_site(site, nodes)
        costs = Costs.of(fabric, state.faults if state else (), driver_shares)
        return cls(fabric, zlib.crc32(site.name.encode()), costs, spread)

    def group(self, nodes: Sequence[str], rails: Sequence[int] | None = None, alone: bool = True) -> Group:
        """Return a group by rail numbers.

        :raises KeyError: a node or rail that the fleet does not have.
        """
        unknown = [n for n in nodes if n not in self.fabric.index] + [
            r for r in rails or () if r not in self.fabric.rails
        ]
        if unknown:
            raise KeyError(f"not in this fleet: {', '.join(map(str, unknown[:5]))}")
        positions = None if rails is None else tuple(self.fabric.rails.index(r) for r in rails)
        return Group(tuple(nodes), positions, alone)

    def ranks(self, group: Group) -> int:
        """Return the ranks of a group: one for each GPU that takes part."""
        return len(group.nodes) * (self.fabric.gpus if group.positions is None else len(group.positions))

    def measure(
        self,
        collective: str,
        group: Group,
        size_bytes: int,
        launch: str,
        run: str,
        *,
        iterations: int = 20,
        in_place: bool = False,
        ring_only: bool = False,
        week: float = 0.0,
    ) -> Measurement:
        """Return what ``group`` measures at one size in one launch of a run.

        :raises NoPathError: a node of the group has no NIC to use.
        :raises ValueError: a collective that the model does not know.
        """
        ranks = self.ranks(group)
        bus = self.limit(collective, group, ring_only=ring_only, week=week, run=run)
        bus *= math.exp(self._launch_effect(group, collective, launch, run))
        latency = laws.latency_us(collective, ranks, len(group.nodes))
        ideal = laws.time_us(collective, size_bytes, bus, ranks, latency)
        rng = self._rng("iterations", run, launch, collective, size_bytes, in_place, *_names(group))
        # What is mostly latency varies more: there is no long transfer to average over.
        sigma = self.spread.iteration * (1 + 3 * latency / ideal)
        times = ideal * np.exp(_remembering(rng, iterations, sigma, self.spread.memory))
        spikes = rng.random(iterations) < self.spread.spike
        times = times * (1 + spikes * rng.exponential(self.spread.spike_time, iterations))
        time = float(times.mean())
        algbw = size_bytes / time / 1e3
        return Measurement(times, time, algbw, algbw * laws.bus_factor(collective, ranks))

    def simulate(
        self,
        groups: Sequence[Group],
        size_bytes: int,
        runs: int,
        launches: int = 3,
        *,
        collective: str = "all_reduce",
        ring_only: bool = False,
        seed: int = 0,
    ) -> Floats:
        """Return bus bandwidths in GB/s as runs x launches x groups, a week between runs, without iterations.

        The same laws as ``measure``, drawn at once for back-tests; the mean of 20 iterations adds its own noise.
        """
        rng = self._rng("simulate", seed)
        shape, spread = (runs, launches, len(groups)), self.spread
        names = [f"simulated {seed} {r}" for r in range(runs)]
        limits = np.array(
            [
                [self.limit(collective, g, ring_only=ring_only, week=w, run=r) for g in groups]
                for w, r in enumerate(names)
            ]
        )
        log = np.log(limits)[:, None, :] + rng.normal(0, spread.launch, shape)
        log -= (rng.random(shape) < spread.tail) * rng.exponential(spread.tail_loss, shape)
        # Twenty iterations with this memory hold as much news as this many independent ones.
        held = 20 * (1 - spread.memory) / (1 + spread.memory)
        log += rng.normal(0, spread.iteration / math.sqrt(held), shape)
        ranks = np.array([self.ranks(g) for g in groups])
        latency = np.array([laws.latency_us(collective, n, len(g.nodes)) for n, g in zip(ranks, groups, strict=True)])
        factor = np.array([laws.bus_factor(collective, n) for n in ranks])
        time = latency + factor * size_bytes / np.exp(log) / 1e3
        return np.asarray(factor * size_bytes / time / 1e3)

    def limit(
        self, collective: str, group: Group, *, ring_only: bool = False, week: float = 0.0, run: str | None = None
    ) -> float:
        """Return the bus bandwidth of a large message without the noise of launches (None: nor of runs).

        :raises NoPathError: a node of the group has no NIC to use.
        """
        at = np.array([self.fabric.index[n] for n in group.nodes])
        effect = self._node_effects[at] + week * self._slopes[at]
        if run is not None:
            effect = effect + self._run_effects(run)[at]
        costs = self.costs.node[at]
        inside = laws.domain_limit(collective, self.domain, ring_only) * np.exp(self.spread.nvlink * effect) * costs
        if len(group.nodes) == 1:
            return float(inside.min())
        rails = self._rail_rates(group, at) * np.exp(effect)[:, None] * costs[:, None]
        ranks = self.ranks(group)
        slowest = self._slowest(collective, rails)
        net = laws.network_limit(collective, slowest, rails.shape[1], ranks, len(group.nodes), self.domain, ring_only)
        return net if ranks == len(group.nodes) else min(net, float(inside.min()))

    def expected(
        self, nodes: int, rails: int | None = None, collective: str = "all_reduce", ring_only: bool = True
    ) -> float:
        """Return the mean bus bandwidth of healthy groups of that shape: what history would know.

        :raises ValueError: more nodes than the fleet has.
        """
        key = (nodes, rails or 0, collective, ring_only)
        if key not in self._expected:
            healthy = Fleet(self.fabric, self.seed, None, self.spread)
            rng = self._rng("expected", *key)
            values = []
            for _ in range(max(16, 512 // nodes)):
                picked = sorted(rng.choice(len(self.fabric.nodes), nodes, replace=False))
                some = None if rails is None else rng.choice(len(self.fabric.nics), rails, replace=False)
                chosen = None if some is None else tuple(sorted(int(j) for j in some))
                names = tuple(self.fabric.nodes[i] for i in picked)
                values.append(math.log(healthy.limit(collective, Group(names, chosen), ring_only=ring_only)))
            self._expected[key] = math.exp(sum(values) / len(values))
        return self._expected[key]

    @cached_property
    def _node_effects(self) -> Floats:
        racks = {r: self._normal("rack", r) * self.spread.rack for r in set(self.fabric.racks)}
        return np.array(
            [
                self._normal("node", n) * self.spread.node + racks[r]
                for n, r in zip(self.fabric.nodes, self.fabric.racks, strict=True)
            ]
        )

    @cached_property
    def _slopes(self) -> Floats:
        return np.array([self._normal("slope", n) * self.spread.drift for n in self.fabric.nodes])

    @cached_property
    def _rail_effects(self) -> Floats:
        return np.array(
            [[self._normal("rail", n, nic) * self.spread.rail for nic in self.fabric.nics] for n in self.fabric.nodes]
        ).reshape(len(self.fabric.nodes), len(self.fabric.nics))

    @cached_property
    def _own_rates(self) -> Floats:
        """GB/s of each NIC by itself; 0 where it is down."""
        rate = self.fabric.nic_gbps / 8 * laws.NETWORK_SHARE
        return np.asarray(rate * self.costs.nic * np.exp(self._rail_effects))

    @cached_property
    def _shared_rates(self) -> Floats:
        """GB/s for the traffic of each rail when all rails run: that of a NIC that is down goes by the next one."""
        rates = self._own_rates.copy()
        for i in np.flatnonzero(self.costs.down.any(axis=1)):
            up = np.flatnonzero(~self.costs.down[i])
            if not len(up):
                continue
            carrier = [int(up[(up >= j).argmax()]) if (up >= j).any() else int(up[0]) for j in range(rates.shape[1])]
            load = np.bincount(carrier, minlength=rates.shape[1])
            rates[i] = [self._own_rates[i, c] / load[c] for c in carrier]
        return np.asarray(rates)

    def _rail_rates(self, group: Group, at: npt.NDArray[np.int_]) -> Floats:
        if not self.fabric.nics:
            raise NoPathError(f"{group.nodes[0]}: no network for RDMA")
        rates = self._shared_rates if group.positions is None or not group.alone else self._own_rates
        rates = rates[at]
        if group.positions is not None:
            rates = rates[:, group.positions]
        if self.costs.crossing < 1:
            rates = rates * np.where(self._crosses(group), self.costs.crossing, 1.0)[None, :]
        dead = np.argwhere(rates <= 0)
        if len(dead):
            i, j = (int(x) for x in dead[0])
            position = j if group.positions is None else group.positions[j]
            raise NoPathError(f"{group.nodes[i]}: {self.fabric.nics[position]} is down and nothing stands in for it")
        return np.asarray(rates)

    def _crosses(self, group: Group) -> npt.NDArray[np.bool_]:
        """Return for each rail of the group whether its NICs hang on more than one leaf."""
        positions = range(len(self.fabric.nics)) if group.positions is None else group.positions
        rows = [self.fabric.ports[self.fabric.index[n]] for n in group.nodes]
        return np.array([len({(row[j] or "").partition("/")[0] for row in rows}) > 1 for j in positions])

    def _slowest(self, collective: str, rails: Floats) -> float:
        if collective == "sendrecv":
            # The last GPU of a node sends to the first one of the next: the two NICs at the ends.
            return float(rails[:, [0, -1]].min())
        return float(rails.min())

    def _run_effects(self, run: str) -> Floats:
        if run not in self._runs:
            common = self._normal("run", run) * self.spread.run
            racks = {r: self._normal("run", run, r) * self.spread.rack_run for r in set(self.fabric.racks)}
            if len(self._runs) >= _RUNS_KEPT:
                self._runs.clear()
            self._runs[run] = np.array([common + racks[r] for r in self.fabric.racks])
        return self._runs[run]

    def _launch_effect(self, group: Group, collective: str, launch: str, run: str) -> float:
        rng = self._rng("launch", run, launch, collective, *_names(group))
        effect = self.spread.launch * float(rng.normal())
        if rng.random() < self.spread.tail:
            effect -= float(rng.exponential(self.spread.tail_loss))
        return effect

    def _key(self, *parts: object) -> int:
        text = "\0".join([str(self.seed), *map(str, parts)])
        return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")

    def _normal(self, *parts: object) -> float:
        return NormalDist().inv_cdf((self._key(*parts) + 0.5) / 2**64)

    def _rng(self, *parts: object) -> np.random.Generator:
        return np.random.default_rng(self._key(*parts))


def _names(group: Group) -> tuple[str, ...]:
    return (*group.nodes, "rails", *(map(str, group.positions) if group.positions is not None else ("all",)))


def _remembering(rng: np.random.Generator, count: int, sigma: float, memory: float) -> Floats:
    """Return normal deviations of which each keeps ``memory`` of the one before."""
    news = rng.normal(0, sigma * math.sqrt(1 - memory**2), count)
    out = np.empty(count)
    last = float(rng.normal(0, sigma))
    for i in range(count):
        last = out[i] = memory * last + news[i]
    return out
