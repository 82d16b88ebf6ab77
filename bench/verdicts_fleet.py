"""Simulated weekly runs of a fleet for `bench/verdicts.py`: the lab's fleet model drawn in bulk, with known losses.

The laws are those of `fabric_health.lab.fleet.model.Fleet.simulate`, of its `Spread` (all of log bandwidth):

* units: each node N(0, 0.7 %), its rack N(0, 0.3 %), each rail N(0, 0.4 %), fixed; a node drifts N(0, 0.02 %) a week;
* a run: N(0, 1 %) for the whole fleet, N(0, 0.3 %) for each rack;
* a launch: N(0, `launch`) for each unit, and in 2 % of launches a loss of Exp(8 %) for no lasting reason;
* nine runs a week apart, three launches each; the last is judged.

`Noise` has the switches for worse fleets. Units are nodes, in racks of 4 (16 nodes), 8 (64) or 16, each rack behind one
switch; or the eight rails of every node. A loss falls on the last run alone: on one unit, on one rail of all nodes, on
one rack's switch, on the whole fleet, or on given nodes. What it takes from a unit
varies from unit to unit by 10 % of itself.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np
import numpy.typing as npt

from fabric_health.lab.fleet.model import SPREAD
from fabric_health.verdict.metrics import JUDGED
from fabric_health.verdict.panel import Panel

Floats = npt.NDArray[np.float64]
METRIC = JUDGED["busbw_gbps"]
START = datetime(2026, 1, 5, tzinfo=UTC)
LEVEL = float(np.log(370))  # GB/s of a perfect node
RUNS, LAUNCHES, RAILS, WOBBLE = 9, 3, 8, 0.1


@dataclass(frozen=True)
class Noise:
    """What fleets differ by. Fractions of bandwidth, probabilities of a launch (``missing_run``: of a unit's run).

    ``spike``: probability of a launch that is 30 % slow. ``unit_run``: a unit's own change from run to run. ``uneven``:
    share of units whose launches vary twice as much.
    """

    name: str
    launch: float
    tail: float = SPREAD.tail
    tail_loss: float = SPREAD.tail_loss
    drift: float = SPREAD.drift
    rack_run: float = SPREAD.rack_run
    run: float = SPREAD.run
    missing: float = 0.0
    missing_run: float = 0.0
    spike: float = 0.0
    unit_run: float = 0.0
    uneven: float = 0.0


NOISES = {
    n.name: n
    for n in (
        Noise("2 %", 0.02),
        Noise("1 %", 0.01),
        Noise("2 %, tails in 6 % of launches", 0.02, tail=0.06),
        Noise("2 %, drift 0.1 % a week", 0.02, drift=0.001),
        Noise("2 %, 5 % of launches and 2 % of runs missing", 0.02, missing=0.05, missing_run=0.02),
        Noise("2 %, 1 % of launches lose 30 %", 0.02, spike=0.01),
        Noise("2 %, racks move together by 1 %", 0.02, rack_run=0.01),
        Noise("2 %, units change by 0.5 % between runs", 0.02, unit_run=0.005),
        Noise("2 %, 10 % of units are twice as noisy", 0.02, uneven=0.1),
    )
}


@dataclass(frozen=True)
class Case:
    """A fleet of ``nodes``, judged as nodes or as rails, that loses ``loss`` (fraction) on ``kind``."""

    nodes: int
    noise: Noise
    kind: str = "healthy"
    loss: float = 0.0
    rails: bool = False

    def __str__(self) -> str:
        """Return e.g. ``one unit, 5 %``."""
        return self.kind if not self.loss else f"{self.kind}, {100 * self.loss:g} %"


@dataclass(frozen=True)
class Draw:
    """One fleet: ``regular`` is runs x launches x units, ``more`` the launches of the last run that may be asked for.

    ``hit`` are the units that lost, ``subject`` the name of what lost (None: nothing), as a verdict should name it.
    """

    regular: Floats
    more: Floats
    units: tuple[str, ...]
    groups: dict[str, tuple[str, ...]]
    hit: frozenset[str]
    subject: str | None

    def panel(self, last: Floats | None = None) -> Panel:
        """Return the panel with the launches ``last`` (launches x units) of the last run; None: the regular ones."""
        performance = self.regular
        if last is not None and len(last) > self.regular.shape[1]:
            room = np.full((len(self.regular), len(last) - self.regular.shape[1], len(self.units)), np.nan)
            performance = np.concatenate([self.regular, room], axis=1)
            performance[-1] = last
        runs = len(performance)
        at = tuple(START + timedelta(weeks=r) for r in range(runs))
        names = tuple(f"week-{r}" for r in range(runs))
        return Panel(METRIC, "simulated", "rail" if "rail" in self.groups else "node", names, at, self.units,
                     performance, self.groups)  # fmt: skip


def draw(case: Case, extra: int, seed: int, units: Collection[int] = ()) -> Draw:
    """Draw one fleet with ``extra`` launches in reserve. A seed and a case give the same fleet to every rule.

    ``units`` are the positions of those that lose where the case's kind is "given units".
    """
    rng = np.random.default_rng([seed, zlib.crc32(f"{case.nodes} {case.noise.name} {case} {case.rails}".encode())])
    noise, each = case.noise, RAILS if case.rails else 1
    node = np.repeat(np.arange(case.nodes), each)
    size = {16: 4, 64: 8}.get(case.nodes, 16)
    rack = node // size
    count, racks = len(node), int(rack[-1]) + 1
    fixed = rng.normal(LEVEL, SPREAD.node, case.nodes)[node] + rng.normal(0, SPREAD.rack, racks)[rack]
    fixed = fixed + rng.normal(0, SPREAD.rail, count)
    weeks = np.arange(RUNS)[:, None]
    level = fixed + weeks * rng.normal(0, noise.drift, case.nodes)[node]
    level = level + rng.normal(0, noise.run, (RUNS, 1)) + rng.normal(0, noise.rack_run, (RUNS, racks))[:, rack]
    level = level + rng.normal(0, noise.unit_run, (RUNS, count))
    names = tuple(f"gpu-{i:04d}" + (f"/rail-{j % RAILS}" if case.rails else "") for j, i in enumerate(node))
    groups = {"rack": tuple(f"rack-{r:02d}" for r in rack)}
    if case.rails:
        groups |= {
            "rail": tuple(f"rail-{j % RAILS}" for j in range(count)),
            "node": tuple(f"gpu-{i:04d}" for i in node),
        }
    hit, subject = _hit(case.kind, names, groups, rng, units)
    if case.loss:
        level[-1] += np.where(hit, np.log1p(-case.loss) * (1 + WOBBLE * rng.normal(size=count)), 0.0)
    sd = noise.launch * np.where(rng.random(count) < noise.uneven, 2.0, 1.0)
    regular = level[:, None, :] + _launches(noise, sd, (RUNS, LAUNCHES, count), rng)
    regular[np.broadcast_to(rng.random((RUNS, 1, count)) < noise.missing_run, regular.shape)] = np.nan
    more = level[-1] + _launches(noise, sd, (extra, count), rng)
    return Draw(regular, more, names, groups, frozenset(n for n, h in zip(names, hit, strict=True) if h), subject)


def _launches(noise: Noise, sd: Floats, shape: tuple[int, ...], rng: np.random.Generator) -> Floats:
    out = rng.normal(0, 1, shape) * sd
    out -= (rng.random(shape) < noise.tail) * rng.exponential(noise.tail_loss, shape)
    out += (rng.random(shape) < noise.spike) * np.log(0.7)
    out[rng.random(shape) < noise.missing] = np.nan
    return out


def _hit(
    kind: str,
    names: tuple[str, ...],
    groups: dict[str, tuple[str, ...]],
    rng: np.random.Generator,
    units: Collection[int],
) -> tuple[npt.NDArray[np.bool_], str | None]:
    hit = np.zeros(len(names), dtype=bool)
    if kind == "given units":
        hit[list(units)] = True
        return hit, None
    if kind == "one unit":
        at = int(rng.integers(len(names)))
        hit[at] = True
        return hit, names[at]
    if kind in ("one switch", "one rail"):
        of_units = np.array(groups["rack" if kind == "one switch" else "rail"])
        name = str(rng.choice(np.unique(of_units)))
        return of_units == name, name
    if kind == "whole fleet":
        return ~hit, "fleet"
    if kind != "healthy":
        raise ValueError(f"a loss on {kind!r}")
    return hit, None
