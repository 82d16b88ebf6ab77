"""All units of the last run against their own past and their peers: screen, confirm, decide.

A few launches of every unit mark suspects; suspects get more launches, in rounds; the decision is taken on all of a
unit's launches together, at a level that is shared out over all units. Rounds can only drop a suspect, and only one
that would not be blamed, so that looking more often adds next to no false alarms. (Deciding on the fresh launches alone
is no independent second look: the error of the unit's own past and the run's own effect are the same in both.)

How often it is right, and how often wrong, is printed by ``bench/verdicts.py`` and told in ``docs/verdicts.md``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import accumulate

import numpy as np

from fabric_health.verdict.history import judge_history
from fabric_health.verdict.outcome import Judgement, Layer, Outcome
from fabric_health.verdict.panel import Panel
from fabric_health.verdict.settings import DEFAULTS, Round, Settings
from fabric_health.verdict.shifts import FLEET, Shift
from fabric_health.verdict.standing import Standing, standing_of
from fabric_health.verdict.tested import (
    Counts,
    Tested,
    between,
    judgement_of,
    percent,
    quantile,
    slower,
    without_numbers,
)

__all__ = ["Round", "Settings", "judge_fleet", "suspects"]

_BEST_Z = 3.0
"""Standard errors that a unit of few launches must be slow without all those that can be bad by chance."""
_ROBUST_FROM = 7
"""Launches from which a robust mean is moved too little by those that can be bad by chance."""
_CERTAIN = 2.0
"""Multiple of the standard errors that blame a unit beyond which more launches of it would change nothing."""
_NEVER_BLAMED = 0.9
"""Share of the standard errors that blame a unit below which it may be dropped, whatever the rounds say."""


def suspects(panel: Panel, settings: Settings = DEFAULTS) -> Mapping[str, int]:
    """Return which units of the last run need how many more launches; empty: ready to be judged.

    Call it again with the new launches in the panel, at most as often as there are rounds. Launches that failed are
    not asked for again once a round is over, nor are units that are slow beyond any doubt already. Units beyond
    ``settings.most_extra`` are left out, the slowest first in.
    """
    try:
        standing = standing_of(panel, settings)
    except ValueError:
        return {}
    regular = _regular(standing)
    taken = np.maximum(standing.launches - regular, 0)
    ends = [0, *accumulate(r.launches for r in settings.rounds)]
    # A unit is through a round when two thirds of its launches gave a number.
    needed = [0] + [end - r.launches // 3 for end, r in zip(ends[1:], settings.rounds, strict=True)]
    at = np.searchsorted(np.array(needed), taken, side="right") - 1
    now = int(at.max(initial=0))
    if now >= len(settings.rounds):
        return {}
    blamed_from = quantile(standing.level, math.inf)
    certain = (standing.z > _CERTAIN * blamed_from) & (standing.launches >= _ROBUST_FROM)
    z = np.where(standing.measured & (at == now) & ~certain, standing.z, -np.inf)
    # A unit that is dropped is never one that would be blamed: that would be a second chance of a false alarm.
    least = min(settings.rounds[now].z, _NEVER_BLAMED * blamed_from)
    budget = max(settings.most_extra * regular * int(standing.measured.sum()), 4 * settings.extra) - taken.sum()
    asked: dict[str, int] = {}
    for i in np.argsort(-z, kind="stable"):
        launches = ends[now + 1] - int(taken[i])
        if z[i] < least or launches > budget:
            break
        asked[panel.units[i]] = launches
        budget -= launches
    return asked


def judge_fleet(panel: Panel, settings: Settings = DEFAULTS) -> tuple[Judgement, ...]:
    """Judge the last run of a panel: the fleet, its groups, then every unit in the panel's order.

    * the fleet: what the run did to all units, against how much runs differed before;
    * groups (``settings.min_group`` units or more) that moved beyond the fleet, or did not;
    * units: net of both. In a group that moved none is PASS, and REGRESSED is one that lost more than the rest of it.

    With fewer than ``settings.min_units`` units in the run, the run's own effect cannot be told from theirs: each unit
    is then held against its own past alone (``history``). Raises nothing for missing values: they are INCONCLUSIVE.
    """
    try:
        standing = standing_of(panel, settings)
    except ValueError:
        return judge_history(panel, settings)
    found = [_fleet(panel, standing, settings)]
    found += [_group(panel, shift, settings) for shift in standing.shifts.groups]
    return (*found, *(_unit(panel, standing, i, settings) for i in range(len(panel.units))))


def _regular(standing: Standing) -> int:
    """Return the launches that every unit got: the median of the run."""
    launches = standing.launches[standing.launches > 0]
    return int(np.median(launches)) if len(launches) else 1


def _fleet(panel: Panel, standing: Standing, settings: Settings) -> Judgement:
    shift, subject = standing.shifts.of_fleet, (FLEET, FLEET)
    runs = len(standing.past.run)
    if shift is None or runs < settings.min_history:
        reason = f"{runs} comparable runs before this one; {settings.min_history} show by what runs differ"
        return without_numbers(panel, subject, Layer.HISTORY, reason, "more comparable runs", Counts(runs_before=runs))
    tested = Tested(shift.difference, shift.variance, shift.df, shift.level, settings.alpha)
    outcome = tested.outcome(panel.metric.margin)
    reason = (
        f"all {shift.units} units together: {slower(tested.difference)} than in the {runs} runs before "
        f"({between(tested)}; runs differ by {percent(tested.error)} by themselves)"
    )
    settle = None
    if outcome is Outcome.INCONCLUSIVE:
        settle = "another run of the whole fleet: launches of the same run share its effect"
    return judgement_of(
        panel, subject, Layer.HISTORY, tested, (outcome, reason, settle), Counts(units=shift.units, runs_before=runs)
    )


def _group(panel: Panel, shift: Shift, settings: Settings) -> Judgement:
    tested = Tested(shift.difference, shift.variance, shift.df, shift.level, settings.alpha)
    outcome = tested.outcome(panel.metric.margin)
    reason = (
        f"its {shift.units} units together: {slower(tested.difference)} than before, net of the whole fleet "
        f"({between(tested)})"
    )
    settle = "another run: launches of the same run share what the group did in it" * (outcome is Outcome.INCONCLUSIVE)
    return judgement_of(
        panel, (shift.name, shift.kind), Layer.POOLED, tested, (outcome, reason, settle or None), Counts(shift.units)
    )


def _unit(panel: Panel, standing: Standing, i: int, settings: Settings) -> Judgement:
    own = bool(standing.own[i])
    subject, layer = (panel.units[i], panel.unit_kind), Layer.POOLED if own else Layer.PEERS
    launches = int(standing.launches[i])
    counts = Counts(1, int(standing.past.launches[i]), launches, int(standing.past.runs[i]))
    if not standing.measured[i] or launches < 2:
        reason = f"{launches} of the two launches or more that a judgement needs"
        return without_numbers(panel, subject, layer, reason, f"{2 - launches} more launches or more", counts)
    tested = Tested(
        float(standing.difference[i]), float(standing.variance[i]), float(standing.df[i]), standing.level,
        settings.alpha, float(standing.launch[i]), float(standing.fixed[i]),
    )  # fmt: skip
    return judgement_of(panel, subject, layer, tested, _words(panel, standing, i, tested, settings), counts)


def _words(
    panel: Panel, standing: Standing, i: int, tested: Tested, settings: Settings
) -> tuple[Outcome, str, str | None]:
    """Return outcome, reason and what would settle it."""
    margin, launches = panel.metric.margin, int(standing.launches[i])
    outcome = tested.outcome(margin)
    against = "its peers of this run: it has no past"
    if standing.own[i]:
        against = f"its {standing.past.runs[i]} runs before, net of the run's effect"
    reason = f"{slower(tested.difference)} than {against} ({between(tested)})"
    if outcome is Outcome.REGRESSED and launches < _ROBUST_FROM and standing.best[i] < _BEST_Z:
        missing = max(1, _regular(standing) + settings.extra - launches)
        reason = f"{reason}, but {launches} launches can be bad by chance"
        return Outcome.INCONCLUSIVE, reason, f"{missing} more launches"
    at = int(standing.shifts.group[i])
    if at >= 0 and outcome in (Outcome.PASS, Outcome.INCONCLUSIVE):
        group = standing.shifts.groups[at]
        reason = f"moved with {group.kind} {group.name} ({slower(group.difference)}), net of that {reason}"
        return Outcome.INCONCLUSIVE, reason, f"what holds for {group.kind} {group.name}"
    if outcome is not Outcome.INCONCLUSIVE:
        return outcome, reason, None
    return (
        outcome,
        f"{reason}: neither a loss is shown, nor one of {100 * margin:g} % ruled out",
        _settle(tested, launches, margin, bool(standing.own[i])),
    )


def _settle(tested: Tested, launches: int, margin: float, own: bool) -> str:
    needed = tested.launches_needed(margin)
    if needed is not None and needed > launches:
        return f"{needed - launches} more launches"
    if needed is not None:
        return f"{launches} more launches, for a loss close to the margin"
    return "more comparable runs: its past is not known well enough" if own else "comparable runs: it has no past yet"
