"""What a measurement is made of: the unit's own level, what the whole run did, what a group did in it, and noise.

``performance = unit + run + group in that run + unit in that run + launch``. Everything is estimated with Huber's
locations and scales, so that neither a slow unit nor a slow rack bends what the rest is held against. Arrays are
runs x units; NaN is "not measured".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from fabric_health.verdict import robust
from fabric_health.verdict.panel import Floats
from fabric_health.verdict.robust import PRICE, Ints

FLOOR: Final = 0.001
"""Standard deviation of a launch that is always reckoned with: tools print rounded numbers, and runs are few."""
_BENT = 0.09
"""A robust spread around a robust centre of n launches is too small by this / n (simulated, normal data)."""
_ROUNDS = 4


@dataclass(frozen=True)
class Cells:
    """Per run and unit: the location of its launches and their number; per unit: variance of a launch, and its ``df``.

    ``noise`` is that variance moderated towards what all units have in common, NaN where no unit has two launches in
    a run. ``df`` counts the degrees of freedom of the common part too.
    """

    value: Floats
    launches: Ints
    noise: Floats
    df: Floats

    def error(self) -> Floats:
        """Return the variance of each value that comes from its launches: runs x units."""
        return np.asarray(PRICE * self.noise[None, :] / np.maximum(self.launches, 1))


def cells_of(performance: Floats) -> Cells:
    """Bring runs x launches x units down to runs x units."""
    # The last run has more launches of a few units: by itself, the rest is not filled up with what was not measured.
    blocks = [b for b in (_dense(performance[:-1]), _dense(performance[-1:])) if len(b)]
    launches = np.concatenate([np.isfinite(b).sum(axis=1) for b in blocks])
    scale = robust.spread(_deviations(blocks, [robust.median(b, 1) for b in blocks]))
    fine = _deviations(blocks, [robust.location(b, scale, 1) for b in blocks])
    df = robust.KEPT * np.maximum(launches - 1, 0).sum(axis=0)
    common = float(robust.spread(fine) ** 2) if df.any() else _from_runs(performance)
    noise, weight = robust.moderated(robust.spread(fine, 0) ** 2, df, max(common, FLOOR**2))
    noise = np.maximum(noise, FLOOR**2)
    value = np.concatenate([robust.location(b, np.sqrt(noise)[None, None, :], 1) for b in blocks])
    return Cells(value, launches, noise, np.asarray(np.minimum(df + weight, max(df.sum(), 1.0))))


def _dense(performance: Floats) -> Floats:
    """Return the launches without those that no cell has; within a run their order does not matter."""
    deepest = int(np.isfinite(performance).sum(axis=1).max(initial=1))
    return np.asarray(np.sort(performance, axis=1)[:, : max(1, deepest)])


def _from_runs(performance: Floats) -> float:
    """Return the variance of a value where no run has two launches: what is left when units and runs are taken off."""
    value = robust.median(performance, 1)
    rest = value - robust.median(value, 0)
    rest = rest - robust.median(rest, 1)[:, None]
    runs, units = max(2, rest.shape[0]), max(2, rest.shape[1])
    left = float(robust.spread(rest) ** 2) / ((1 - 1 / runs) * (1 - 1 / units))
    return left if np.isfinite(left) else 0.0


def _deviations(blocks: Sequence[Floats], centres: Sequence[Floats]) -> Floats:
    """Return how far launches are from their centre, as wide as the launches themselves are spread: any x units."""
    found = []
    for block, centre in zip(blocks, centres, strict=True):
        launches = np.isfinite(block).sum(axis=1)
        # One degree of freedom went into the centre; one launch alone deviates from nothing.
        count = np.maximum(launches, 2)
        room = np.where(launches >= 2, np.sqrt(1 - 1 / count) * (1 - _BENT * (count > 2) / count), np.nan)
        found.append(((block - centre[:, None, :]) / room[:, None, :]).reshape(-1, block.shape[2]))
    return np.concatenate(found)


@dataclass(frozen=True)
class Kind:
    """A way to group units: ``members`` has a row of unit positions for each group, padded with -1."""

    name: str
    names: tuple[str, ...]
    members: Ints

    @property
    def sizes(self) -> Ints:
        """Units of each group."""
        return np.asarray((self.members >= 0).sum(axis=1))

    def gather(self, of_units: Floats) -> Floats:
        """Return the values of the members: ... x groups x members, NaN where a row is padded."""
        taken = np.take(of_units, np.maximum(self.members, 0), axis=-1)
        return np.where(self.members >= 0, taken, np.nan)

    def scatter(self, of_groups: Floats, units: int) -> Floats:
        """Return for each unit the value of its group: ... x units, zero for units in none."""
        out = np.zeros((*of_groups.shape[:-1], units))
        rows, columns = np.nonzero(self.members >= 0)
        out[..., self.members[rows, columns]] = np.nan_to_num(of_groups[..., rows])
        return out


def kinds_of(groups: Mapping[str, Sequence[str]], least: int) -> tuple[Kind, ...]:
    """Return the kinds of groups that can be told from the fleet: two groups or more, of ``least`` units or more.

    Units of group ``?`` are in none. A kind that groups the units as one before it does is left out.
    """
    kinds: list[Kind] = []
    seen: set[frozenset[frozenset[int]]] = set()
    for name, of_units in groups.items():
        members: dict[str, list[int]] = {}
        for i, group in enumerate(of_units):
            members.setdefault(group, []).append(i)
        large = {g: m for g, m in sorted(members.items()) if g != "?" and len(m) >= least}
        partition = frozenset(frozenset(m) for m in large.values())
        if len(members) < 2 or not large or partition in seen:
            continue
        seen.add(partition)
        width = max(map(len, large.values()))
        table = np.array([m + [-1] * (width - len(m)) for m in large.values()])
        kinds.append(Kind(name, tuple(large), table))
    # Coarse ones first: what a rack did is no news of each of its nodes.
    return tuple(sorted(kinds, key=lambda k: len(k.names)))


@dataclass(frozen=True)
class Past:
    """What is known from the runs before the last. Variances are of log performance.

    Per unit: ``level`` (NaN without a past), its variance ``level_error``, ``runs`` and ``launches`` behind it, and
    ``age``, how many weeks the run to be judged lies after the middle of them. ``run`` is the effect of each run on
    all units, with ``run_error`` from measuring alone. ``unit_run`` is the variance of a unit from run to run beyond
    launches; ``group_run`` the same of the groups of each kind; ``slope`` the variance of the units' weekly drift.
    """

    level: Floats
    level_error: Floats
    runs: Ints
    launches: Ints
    age: Floats
    run: Floats
    run_error: Floats
    unit_run: float
    group_run: tuple[float, ...]
    slope: float


def past_of(cells: Cells, weeks: Floats, kinds: Sequence[Kind]) -> Past:
    """Fit the parts to the runs before the last; ``weeks`` are the times of all runs."""
    value, error = cells.value[:-1], cells.error()[:-1]
    runs, units = value.shape
    counted = np.isfinite(value).sum(axis=0)
    level = robust.median(value, 0)
    run, group = np.zeros(runs), np.zeros((runs, units))
    unit_run, group_run, residual = 0.0, [0.0] * len(kinds), value - level
    for _ in range(_ROUNDS):
        scale = np.sqrt(error + unit_run)
        run = robust.location(value - level - group, scale, 1)
        run = run - np.mean(run) if runs else run
        rest = value - level - run[:, None]
        group, group_run = _groups(rest, scale, kinds)
        level = robust.location(value - run[:, None] - group, scale, 0)
        residual = value - level - run[:, None] - group
        unit_run = _between_runs(residual, error, counted)
    measured = np.maximum(np.isfinite(value).sum(axis=1), 1)
    total = np.where(np.isfinite(value), error + unit_run, 0.0)
    run_error = PRICE * total.sum(axis=1) / measured**2
    level_error = (PRICE * total + np.where(np.isfinite(value), run_error[:, None], 0.0)).sum(axis=0)
    age, slope = _drift(residual, error + unit_run, weeks, counted)
    launches = cells.launches[:-1].sum(axis=0)
    return Past(
        level,
        np.where(counted > 0, level_error / np.maximum(counted, 1) ** 2, np.nan),
        counted,
        launches,
        age,
        run,
        run_error,
        unit_run,
        tuple(group_run),
        slope,
    )


def _between_runs(residual: Floats, error: Floats, counted: Ints) -> float:
    """Return by how much units vary from run to run beyond their launches (variance)."""
    usable = counted >= 2
    if not usable.any():
        return 0.0
    # One degree of freedom of each unit went into its level.
    room = np.sqrt(1 - 1 / np.maximum(counted, 2))
    standard = np.where(usable, residual / room / np.sqrt(error), np.nan)
    excess = float(robust.spread(standard) ** 2) - 1
    return max(0.0, excess) * float(np.nanmean(np.where(np.isfinite(residual), error, np.nan)))


def _groups(rest: Floats, scale: Floats, kinds: Sequence[Kind]) -> tuple[Floats, list[float]]:
    """Return what groups did in each run, for every unit, and its variance for each kind.

    A group's effect is believed as far as groups of its kind were ever seen to differ beyond noise: shrunk by
    variance / (variance + error), so that small groups do not take a slow unit's loss for their own.
    """
    total, variances = np.zeros_like(rest), []
    for kind in kinds:
        effect, error = group_effects(rest - total, scale, kind)
        variance = variance_of(effect, error)
        variances.append(variance)
        total = total + kind.scatter(effect * variance / np.maximum(variance + error, 1e-300), rest.shape[-1])
    return total, variances


def group_effects(rest: Floats, scale: Floats, kind: Kind) -> tuple[Floats, Floats]:
    """Return the location of each group's units and its variance: ... x groups."""
    values, scales = kind.gather(rest), kind.gather(scale)
    held = np.isfinite(values)
    count = np.maximum(held.sum(axis=-1), 1)
    effect = robust.location(values, scales, values.ndim - 1)
    return effect, np.asarray(PRICE * np.where(held, scales**2, 0.0).sum(axis=-1) / count**2)


def variance_of(effect: Floats, error: Floats) -> float:
    """Return by how much effects vary beyond their errors (variance)."""
    held = np.isfinite(effect) & (error > 0)
    if held.sum() < 2:
        return 0.0
    excess = float(robust.spread(effect[held] / np.sqrt(error[held])) ** 2) - 1
    return max(0.0, excess) * float(error[held].mean())


def _drift(residual: Floats, variance: Floats, weeks: Floats, counted: Ints) -> tuple[Floats, float]:
    """Return how long ago the middle of each unit's past is (weeks), and the variance of the units' weekly drift."""
    held = np.isfinite(residual)
    count = np.maximum(counted, 1)
    at = np.where(held, weeks[:-1, None], 0.0)
    middle = at.sum(axis=0) / count
    apart = np.where(held, at - middle, 0.0)
    length = (apart**2).sum(axis=0)
    age = weeks[-1] - middle
    usable = (counted >= 4) & (length > 0)
    if usable.sum() < 2:
        return age, 0.0
    slope = (apart * np.where(held, residual, 0.0)).sum(axis=0)[usable] / length[usable]
    error = (apart**2 * np.where(held, variance, 0.0)).sum(axis=0)[usable] / length[usable] ** 2
    return age, variance_of(slope, error)
