"""Which recorded change separates the units that moved from those that did not.

Every group of equal changes is a split of the judged units into those that have the change and those that do not. Its
score is the log-likelihood ratio (natural logarithm) of "having the change says whether a unit moved" against "it says
nothing" (half of Wilks' G statistic of the 2 x 2 table), zero where units without the change moved at least as often.
A unit that moved counts by its share of the loss, so that a change on the units that lost most comes before one on
those that lost little. Beside it stands Fisher's exact test, one-sided (R. A. Fisher, The Design of Experiments, 1935),
and ``chance``: how often a set of as many units, drawn at random, would be separated as well by any of the recorded
changes (a permutation test of the maximum; Westfall & Young, Resampling-based Multiple Testing, 1993).

Separation is not proof: it says which of the recorded changes fits, and a change that nobody recorded fits nothing.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from fabric_health.verdict.recorded import Group, RecordedChange, exact_groups, moves_along, wider_groups
from fabric_health.verdict.separation import Chance, fisher, log_ratio

# A change is named with confidence when a random set would be separated as well in at most this share of draws.
STRONG_CHANCE = 0.1
# Candidates within this log-likelihood ratio (a factor of 20) of the first cannot be excluded.
CLOSE = math.log(20)
_MOST_RESTS = 5


class Explains(StrEnum):
    """What attribution can say.

    ``NAMED``: one change separates best. ``INSEPARABLE``: several are on the same units. ``NONE``: no recorded change
    separates them. ``NO_CONTROL``: no unit stayed as it was, so nothing can be separated. ``NOTHING_MOVED``: there is
    nothing to explain.
    """

    NAMED = "named"
    INSEPARABLE = "inseparable"
    NONE = "none"
    NO_CONTROL = "no_control"
    NOTHING_MOVED = "nothing_moved"


@dataclass(frozen=True)
class Candidate:
    """A change on units that moved, with what speaks for and against it.

    ``changed_units`` are where it was recorded; ``moved_with`` and ``unmoved_with`` the judged units that it reaches.
    ``loss_share`` is the share of all loss on units that have it. ``score`` is in nats. ``p_value`` is Fisher's.
    """

    group: Group
    changed_units: tuple[str, ...]
    moved_with: tuple[str, ...]
    moved_without: tuple[str, ...]
    unmoved_with: tuple[str, ...]
    unmoved_without: int
    loss_share: float
    score: float
    p_value: float
    chance: float

    @property
    def name(self) -> str:
        """Return the change in words."""
        return self.group.name

    @property
    def sensitivity(self) -> float:
        """Return the share of the units that moved that have it."""
        return len(self.moved_with) / (len(self.moved_with) + len(self.moved_without))

    @property
    def specificity(self) -> float | None:
        """Return the share of the units that did not move that do not have it; None without such units."""
        stayed = len(self.unmoved_with) + self.unmoved_without
        return self.unmoved_without / stayed if stayed else None

    @property
    def strong(self) -> bool:
        """Return whether chance would hardly do as well, and most units that have it moved."""
        return self.chance <= STRONG_CHANCE and len(self.moved_with) >= len(self.unmoved_with)


@dataclass(frozen=True)
class Attribution:
    """The changes that may be why units moved, best first, and what to make of them.

    ``inseparable``: on exactly the judged units of the first. ``close``: on other units, and not excluded either.
    ``rest``: what explains the units that moved without the first candidate, where there are any.
    """

    outcome: Explains
    moved: tuple[str, ...]
    unmoved: int
    candidates: tuple[Candidate, ...] = ()
    inseparable: tuple[Candidate, ...] = ()
    close: tuple[Candidate, ...] = ()
    rest: Attribution | None = None

    @property
    def first(self) -> Candidate | None:
        """Return the candidate that separates best; None where none does, or nothing can be separated."""
        return self.candidates[0] if self.outcome in (Explains.NAMED, Explains.INSEPARABLE) else None


def rank(
    changes: Collection[RecordedChange],
    moved: Mapping[str, float],
    unmoved: Collection[str],
    reach: Mapping[str, Collection[str]] | None = None,
) -> Attribution:
    """Rank the recorded changes by how well having them separates ``moved`` from ``unmoved`` units.

    ``moved`` gives the size of each unit's loss (any positive scale); ``unmoved`` are units judged sound in the same
    comparison. Units that could not be judged belong in neither. Both are of one kind: nodes, or NICs, or rails.
    ``reach`` says which units a change on a switch, port, link or NIC can affect. Without being asked, a change on a
    part affects its owner and one on an owner all its parts; a port that ``reach`` does not know, what its switch does.
    Raises ValueError when a unit is in both, or a loss is not positive and finite.
    """
    both = moved.keys() & set(unmoved)
    if both:
        raise ValueError(f"{', '.join(sorted(both)[:5])}: both moved and unmoved; expected each unit once")
    if any(not (math.isfinite(loss) and loss > 0) for loss in moved.values()):
        raise ValueError("every unit that moved needs a positive, finite loss")
    return _rank(changes, moved, unmoved, reach or {}, _MOST_RESTS)


def _rank(
    changes: Collection[RecordedChange],
    moved: Mapping[str, float],
    unmoved: Collection[str],
    reach: Mapping[str, Collection[str]],
    rests: int,
) -> Attribution:
    judged = _Judged.of(moved, unmoved)
    told = (tuple(sorted(moved)), len(judged.units) - len(moved))
    if not moved:
        return Attribution(Explains.NOTHING_MOVED, *told)
    splits = _splits(changes, judged, reach)
    candidates = _candidates(splits, judged, reach)
    if not told[1]:
        return Attribution(Explains.NO_CONTROL, *told, candidates)
    first = candidates[0] if candidates else None
    if first is None or first.score <= 0:
        return Attribution(Explains.NONE, *told, candidates)
    same = tuple(c for c in candidates[1:] if _split(c) == _split(first))
    close = tuple(
        c for c in candidates[1:] if c.score > 0 and first.score - c.score < CLOSE and _split(c) != _split(first)
    )
    left = {u: moved[u] for u in first.moved_without}
    rest = _rank(changes, left, unmoved, reach, rests - 1) if left and rests else None
    return Attribution(
        Explains.INSEPARABLE if same else Explains.NAMED, *told, candidates, same, close, rest
    )  # fmt: skip


@dataclass(frozen=True)
class _Judged:
    """The judged units in a fixed order; ``weight`` is 1 for unmoved units and on average 1 for those that moved."""

    units: tuple[str, ...]
    weight: npt.NDArray[np.float64]
    has_moved: npt.NDArray[np.bool_]
    at: dict[str, int] = field(default_factory=dict)
    parts: dict[str, list[int]] = field(default_factory=dict)

    @classmethod
    def of(cls, moved: Mapping[str, float], unmoved: Collection[str]) -> _Judged:
        units = tuple(sorted({*moved, *unmoved}))
        mean = sum(moved.values()) / len(moved) if moved else 1.0
        weight = np.array([moved[u] / mean if u in moved else 1.0 for u in units])
        out = cls(units, weight, np.array([u in moved for u in units], dtype=bool))
        for i, u in enumerate(units):
            out.at[u] = i
            if "/" in u:
                out.parts.setdefault(u.split("/", 1)[0], []).append(i)
        return out

    def reached(self, unit: str, reach: Mapping[str, Collection[str]]) -> set[int]:
        """Return which judged units a change on ``unit`` can affect."""
        owner = unit.split("/", 1)[0]
        far = reach[unit] if unit in reach else reach.get(owner, ())
        hit = {self.at[u] for u in (unit, owner, *far) if u in self.at}
        return hit.union(self.parts.get(owner, ())) if unit == owner else hit


Members = frozenset[int]


def _splits(
    changes: Collection[RecordedChange], judged: _Judged, reach: Mapping[str, Collection[str]]
) -> dict[Group, Members]:
    """Return which judged units have each group of changes; a wider group only where it separates better."""
    known: dict[str, set[int]] = {}

    def members(group: Group) -> Members:
        out: set[int] = set()
        for u in group.units:
            if u not in known:
                known[u] = judged.reached(u, reach)
            out |= known[u]
        return frozenset(out)

    exact = exact_groups(changes)
    splits = {g: members(g) for g in exact}
    for wide, _ in wider_groups(exact):
        inner = [
            g for g in splits if (g.attribute, g.source) == (wide.attribute, wide.source) and g.units <= wide.units
        ]
        of_wide = members(wide)
        if _score(of_wide, judged) > max(_score(splits[g], judged) for g in inner) + 1e-9:
            for g in inner:
                del splits[g]
            splits[wide] = of_wide
    return _folded(splits)


def _folded(splits: dict[Group, Members]) -> dict[Group, Members]:
    """Fold attributes that change with another in one act into it, where they changed on the same judged units."""
    by_members: dict[Members, list[Group]] = {}
    for g, of in splits.items():
        by_members.setdefault(of, []).append(g)
    out: dict[Group, Members] = {}
    for of, groups in by_members.items():
        followers = {g: f for g in groups for f in groups if moves_along(f.attribute, g.attribute)}
        for g in groups:
            if g not in followers:
                along = tuple(sorted({f.attribute for f, lead in followers.items() if lead == g}))
                out[Group(g.attribute, g.before, g.after, g.source, g.units, along)] = of
    return out


def _score(of: Members, judged: _Judged) -> float:
    at = sorted(of)
    a = float(judged.weight[at][judged.has_moved[at]].sum())
    b = float((~judged.has_moved[at]).sum())
    return float(log_ratio(a, b, float(judged.has_moved.sum()), float((~judged.has_moved).sum())))


def _candidates(
    splits: Mapping[Group, Members], judged: _Judged, reach: Mapping[str, Collection[str]]
) -> tuple[Candidate, ...]:
    moved_at = frozenset(np.flatnonzero(judged.has_moved).tolist())
    n, k = len(judged.units), len(moved_at)
    chance = Chance(set(splits.values()), n, k)
    out = []
    for g, of in splits.items():
        with_it = sorted(of & moved_at)
        if not with_it:
            continue
        without = sorted(moved_at - of)
        stayed = sorted(of - moved_at)
        out.append(
            Candidate(
                group=g,
                changed_units=tuple(sorted(u for u in g.units if judged.reached(u, reach) & of)),
                moved_with=tuple(judged.units[i] for i in with_it),
                moved_without=tuple(judged.units[i] for i in without),
                unmoved_with=tuple(judged.units[i] for i in stayed),
                unmoved_without=n - k - len(stayed),
                loss_share=float(judged.weight[with_it].sum() / k),
                score=_score(of, judged),
                p_value=fisher(len(with_it), len(stayed), k, n - k),
                chance=chance.of(float(log_ratio(len(with_it), len(stayed), k, n - k))),
            )
        )
    return tuple(sorted(out, key=lambda c: (-round(c.score, 9), -c.loss_share, c.p_value, c.name, c.changed_units)))


def _split(c: Candidate) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return c.moved_with, c.unmoved_with
