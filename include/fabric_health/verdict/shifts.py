"""What the fleet as a whole, and its groups, did in the last run.

A fleet that lost 5 % must not be explained away as "that run was slow": its effect is held against how much runs
differed before. And a switch that takes 5 % from its sixteen nodes is one thing that happened, not sixteen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import special

from fabric_health.verdict import robust
from fabric_health.verdict.effects import Kind, Past, group_effects
from fabric_health.verdict.panel import Floats
from fabric_health.verdict.robust import PRICE, Ints
from fabric_health.verdict.settings import Settings

Bools = npt.NDArray[np.bool_]
FLEET = "fleet"


@dataclass(frozen=True)
class Shift:
    """What one group did beyond the fleet, or the fleet beyond its past: a difference of log performance, a loss > 0.

    ``level`` is the probability of a false alarm that it is allowed; ``units`` counts its units with a past.
    """

    kind: str
    name: str
    difference: float
    variance: float
    df: float
    level: float
    units: int
    shifted: bool = False

    @property
    def z(self) -> float:
        """Standard errors above zero."""
        return self.difference / float(np.sqrt(self.variance)) if self.variance > 0 else 0.0

    @property
    def quantile(self) -> float:
        """Standard errors that are needed at its level."""
        return float(-special.stdtrit(self.df, self.level))


@dataclass(frozen=True)
class Shifts:
    """All shifts; per unit what of its loss they explain (``common``), the variance of that, and its shifted group.

    ``group`` holds positions in ``groups``, -1 for none. ``of_fleet`` is None when too few units have a past.
    """

    groups: tuple[Shift, ...]
    of_fleet: Shift | None
    common: Floats
    error: Floats
    group: Ints


@dataclass(frozen=True)
class _OfKind:
    """The groups of one kind: the variance of their effects from run to run, and the quantile of their level."""

    kind: Kind
    between: float
    df: float
    level: float
    least: int

    @property
    def quantile(self) -> float:
        return float(-special.stdtrit(self.df, self.level))

    def members(self, group: int) -> Ints:
        row = self.kind.members[group]
        return np.asarray(row[row >= 0])

    def last(self, rest: Floats, scale: Floats, fleet_error: float) -> tuple[Floats, Floats, Floats]:
        """Return each group's effect in the last run, its error, and the variance that it is tested against."""
        effect, error = group_effects(rest, scale, self.kind)
        held = np.isfinite(self.kind.gather(rest)).sum(axis=-1)
        effect = np.where(held >= self.least, effect, np.nan)
        return effect, error, self.between + error + fleet_error

    def believed(self, error: Floats) -> Floats:
        """Return the share of each group's effect that is taken for its own: as far as such groups ever differed."""
        return np.asarray(self.between / np.maximum(self.between + error, 1e-300))

    def shift(self, group: int, effect: float, variance: float, units: int, moved: bool = False) -> Shift:
        name = self.kind.names[group]
        return Shift(self.kind.name, name, effect, variance, self.df, self.level, units, moved)

    def shifts(self, rest: Floats, scale: Floats, fleet_error: float) -> list[Shift]:
        """Return what each group did that is large enough, ``rest`` being its units' losses net of the fleet."""
        effect, _, variance = self.last(rest, scale, fleet_error)
        sizes = np.isfinite(self.kind.gather(rest)).sum(axis=-1)
        told = [int(j) for j in np.flatnonzero(np.isfinite(effect))]
        return [self.shift(j, float(effect[j]), float(variance[j]), int(sizes[j])) for j in told]


def shifts_of(loss: Floats, variance: Floats, kinds: Sequence[Kind], past: Past, settings: Settings) -> Shifts:
    """Tell apart what the fleet and its groups did; ``loss`` is NaN for units without a past."""
    units, runs = len(loss), len(past.run)
    everyone = np.isfinite(loss) & np.isfinite(variance)
    if everyone.sum() < settings.min_units:
        return Shifts((), None, np.zeros(units), np.zeros(units), np.full(units, -1))
    scale = np.sqrt(np.where(everyone, variance, np.nan))
    level = settings.alpha * settings.group_share / max(1, sum(len(k.names) for k in kinds)) / settings.panels
    tested = []
    for kind, between in zip(kinds, past.group_run, strict=True):
        df = max(1, (len(kind.names) - 1) * (runs - 1))
        tested.append(_OfKind(kind, between * (1 + 1 / max(1, runs)), df, level, settings.min_group))
    moved, outside = _moved(loss, scale, everyone, tested, settings.min_units)
    fleet, fleet_error = _centre(loss, scale, outside)
    common, error, group = np.full(units, fleet), np.full(units, fleet_error), np.full(units, -1)
    own = np.where(outside, _pull(loss - fleet, scale, outside.sum()), 0.0)
    shifts: list[Shift] = []
    for of_kind, j in moved:
        members = of_kind.members(j)
        effect, its_error = _centre(loss - fleet, scale, _mask(members, units) & everyone)
        common[members], error[members], group[members] = fleet + effect, its_error, len(shifts)
        variance_of_it = of_kind.between + its_error + fleet_error
        shifts.append(of_kind.shift(j, effect, variance_of_it, len(members), moved=True))
    for of_kind in tested:
        shifts += of_kind.shifts(np.where(outside, loss - common, np.nan), scale, fleet_error)
        own += _take_usual(of_kind, np.where(outside, loss - common, np.nan), scale, outside, common, error)
    of_fleet = _of_fleet(fleet, fleet_error, past, settings, int(everyone.sum()))
    # A unit is held against the others: what itself pulled at their location is given back.
    return Shifts(tuple(shifts), of_fleet, common - own, error, group)


def _moved(
    loss: Floats, scale: Floats, everyone: Bools, tested: Sequence[_OfKind], least: int
) -> tuple[list[tuple[_OfKind, int]], Bools]:
    """Return the groups that moved, the clearest first, and which units are in none of them.

    After each, the fleet's effect is taken anew from the units outside: a rack that moved drags it along.
    """
    moved: list[tuple[_OfKind, int]] = []
    outside = everyone.copy()
    while True:
        fleet, fleet_error = _centre(loss, scale, outside)
        candidates = []
        net = np.where(outside, loss - fleet, np.nan)
        for of_kind in tested:
            effect, error, variance = of_kind.last(net, scale, fleet_error)
            clear = np.nan_to_num(np.abs(effect) / np.sqrt(variance) / of_kind.quantile)
            candidates += [(float(clear[j]), of_kind, int(j)) for j in np.flatnonzero(clear > 1)]
            # Nodes are tested net of what their rack does anyway: their past is known net of it, too.
            net = net - of_kind.kind.scatter(np.nan_to_num(effect) * of_kind.believed(error), len(loss))
        rest = [outside & ~_mask(c[1].members(c[2]), len(loss)) for c in candidates]
        # What is left must still show what the run did.
        large = [(c, r) for c, r in zip(candidates, rest, strict=True) if r.sum() >= max(least, everyone.sum() / 3)]
        if not large:
            return moved, outside
        # Two halves of a fleet that moved apart: the one that moved is the one without which the run is as usual.
        most = max(c[0] for c, _ in large)
        near = [(c, r) for c, r in large if c[0] > 0.8 * most]
        (_, of_kind, j), outside = min(near, key=lambda x: abs(_centre(loss, scale, x[1])[0]))
        moved.append((of_kind, j))


def _take_usual(of_kind: _OfKind, rest: Floats, scale: Floats, outside: Bools, common: Floats, error: Floats) -> Floats:
    """Add to ``common`` what groups that did not move did beyond noise, as far as such groups ever do, in place.

    Returns what of it is each unit's own pull.
    """
    effect, its_error = group_effects(rest, scale, of_kind.kind)
    believed = of_kind.believed(its_error)
    common += np.where(outside, of_kind.kind.scatter(effect * believed, len(rest)), 0.0)
    error += np.where(outside, of_kind.kind.scatter(its_error * believed, len(rest)), 0.0)
    sizes = np.isfinite(of_kind.kind.gather(rest)).sum(axis=-1)
    believed_of_unit, sizes_of_unit = of_kind.kind.scatter(np.stack([believed, sizes]), len(rest))
    return np.where(outside, believed_of_unit * _pull(rest, scale, sizes_of_unit), 0.0)


def _pull(rest: Floats, scale: Floats, count: Floats | int) -> Floats:
    """Return by how much each unit alone moves the location of ``count`` units that it is one of."""
    reach = robust.BEND * scale
    return np.asarray(np.nan_to_num(np.clip(rest, -reach, reach)) / np.maximum(np.asarray(count) - 1, 1))


def _of_fleet(fleet: float, error: float, past: Past, settings: Settings, units: int) -> Shift:
    """Return the fleet's own shift: against how much runs differed before, by Student's t for one more run."""
    runs = len(past.run)
    share = 1 - settings.unit_share - settings.group_share
    level = settings.alpha * share / settings.panels
    between = float(np.var(past.run, ddof=1)) * (1 + 1 / runs) if runs > 1 else np.inf
    return Shift(FLEET, FLEET, fleet, max(between, error), max(1, runs - 1), level, units)


def _centre(loss: Floats, scale: Floats, mask: Bools) -> tuple[float, float]:
    """Return the location of the units in ``mask`` and its variance; zero and infinite where there are none."""
    count = int(mask.sum())
    if not count:
        return 0.0, np.inf
    return float(robust.location(loss[mask], scale[mask])), float(PRICE * (scale[mask] ** 2).sum() / count**2)


def _mask(members: Ints, units: int) -> Bools:
    mask = np.zeros(units, dtype=bool)
    mask[members] = True
    return mask
