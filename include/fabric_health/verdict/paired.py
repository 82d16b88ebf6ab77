"""Before and after a change: is it real, is it the change, and on which units?

Every changed unit is compared with itself (log ratio of robust levels), and, where there are control units that the
change did not touch, with what those did meanwhile (difference-in-differences): the day, the room and other traffic
move both. The units are the samples. Where their ranks can decide (six units, or enough control units), they do,
exactly. With fewer, the scatter of launches stands in for that of units, which is honest only beside control units or
with the run-to-run noise known from history; without either the answer is INCONCLUSIVE. See ``contrast``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from fabric_health.verdict.comparability import differing
from fabric_health.verdict.contrast import FEW_CONTROLS, Contrast, contrast, one_against
from fabric_health.verdict.decision import decide
from fabric_health.verdict.intervals import fewest_pairs
from fabric_health.verdict.launches import Launches, Logs, Shifts, logs_of, logs_of_panel, shifts
from fabric_health.verdict.multiple import holm
from fabric_health.verdict.outcome import Judgement, Layer, Metric, Outcome
from fabric_health.verdict.panel import Panel, finite_loss_of, loss_of
from fabric_health.verdict.power import Design, Noise, detectable_shift, launches_needed, units_needed
from fabric_health.verdict.wording import listed, percent, plural

PEERS_IN_SET = 4
"""Changed units from which each is held against the others of the set when there are no control units."""
MANY = 50
USUAL_NOISE = 0.02
"""Noise of a launch that advice assumes, and says so, when there was one launch each and no history."""


@dataclass(frozen=True)
class PairedSettings:
    """How sure to be, and what is known from history. ``noise`` None: only what these launches say.

    ``confidence`` is that of the two-sided interval; REGRESSED then has a one-sided error of half the rest.
    """

    confidence: float = 0.95
    power: float = 0.8
    noise: Noise | None = None


DEFAULTS = PairedSettings()


@dataclass(frozen=True)
class Comparison:
    """What a change did: ``judgement`` of the set as a whole, ``units`` each alone, ``controls`` that it left alone.

    ``judgement`` takes the others into account: one slow unit among sound ones makes it REGRESSED, and so do control
    units that lost as much. ``blames_change`` is True only where control units show that the change did it.
    """

    judgement: Judgement
    units: tuple[Judgement, ...]
    controls: Judgement | None
    blames_change: bool


def compare(
    before: Launches,
    after: Launches,
    *,
    metric: Metric,
    controls: tuple[Launches, Launches] | None = None,
    settings: PairedSettings = DEFAULTS,
) -> Judgement:
    """Judge a change on the units that it touched; ``controls`` are others, before and after. See ``assess``."""
    return assess(before, after, metric=metric, controls=controls, settings=settings).judgement


def assess(
    before: Launches,
    after: Launches,
    *,
    metric: Metric,
    controls: tuple[Launches, Launches] | None = None,
    settings: PairedSettings = DEFAULTS,
    comparability: str = "",
    unit_kind: str = "node",
) -> Comparison:
    """Judge a change on the whole set, on each of its units, and on control units.

    Values are launches' results in the metric's own unit of measure; what is no positive finite number is not measured.
    A unit that was measured only before, or only after, makes PASS impossible. Never raises on values, however odd.
    """
    calm = controls or ({}, {})
    logs = _Measured(*(logs_of(values, higher_is_better=metric.higher_is_better) for values in (before, after, *calm)))
    return _assess(logs, _Told(metric, comparability, unit_kind, settings), sorted(before.keys() | after.keys()))


def assess_panels(
    before: Panel,
    after: Panel,
    *,
    changed: Sequence[str],
    controls: Sequence[str] = (),
    settings: PairedSettings = DEFAULTS,
) -> Comparison:
    """Judge a change by the last run of each of two panels; ``changed`` and ``controls`` name units.

    Panels of different metrics or comparability keys are NOT_COMPARABLE, and the fields that differ are named.
    """
    told = _Told(after.metric, after.comparability, after.unit_kind, settings)
    if before.metric != after.metric or before.comparability != after.comparability:
        fields = [
            f"{name} was {old}, is {new}" for name, old, new in differing(before.comparability, after.comparability)
        ]
        if before.metric != after.metric:
            fields.append(f"metric was {before.metric.name}, is {after.metric.name}")
        reason = f"What was measured before and after is not the same thing: {'; '.join(fields)}."
        settle = "Measure again with the settings of before, or compare with a run that had the present ones."
        judgement = told.judgement(sorted(changed), Outcome.NOT_COMPARABLE, reason, settle=settle)
        return Comparison(judgement, (), None, blames_change=False)
    calm = set(controls) - set(changed)
    logs = _Measured(*(logs_of_panel(panel.only(units)) for units in (changed, calm) for panel in (before, after)))
    return _assess(logs, told, sorted(set(changed)))


class _Measured(NamedTuple):
    """Log performance of the changed units and of the control units, before and after."""

    before: Logs
    after: Logs
    calm_before: Logs
    calm_after: Logs


@dataclass(frozen=True)
class _Told:
    """What all judgements of one comparison have in common."""

    metric: Metric
    comparability: str
    kind: str
    settings: PairedSettings

    def contrast(self, changed: Shifts, calm: Shifts) -> Contrast:
        return contrast(changed, calm, self.settings.confidence, self.settings.noise)

    def outcome(self, found: Contrast) -> Outcome:
        e = found.estimate
        return decide(e.shift, e.low, e.high, self.metric.margin)

    def lost(self, found: Contrast, changed: Shifts, calm: Shifts, name: str = "control unit") -> str:
        """Return e.g. ``2 units lost 9.4 % (95.0 % interval 8.1 % to 10.7 %) beyond 14 control units``.

        A gain is told as a gain, as a share of the performance before.
        """
        e = found.estimate
        who = changed.units[0] if len(changed) == 1 else plural(len(changed), "unit")
        verb, sign = ("lost", 1) if e.shift >= 0 else ("gained", -1)
        bounds = "no interval: too little was measured"
        if math.isfinite(e.standard_error):
            low, high = sorted(sign * finite_loss_of(b) for b in (e.low, e.high))
            bounds = f"{percent(self.settings.confidence)} interval {percent(low)} to {percent(high)}"
        moved = f"{who} {verb} {percent(sign * finite_loss_of(e.shift))} ({bounds})"
        return f"{moved} beyond {plural(len(calm), name)}" if len(calm) else f"{moved} between the two runs"

    def judgement(
        self,
        units: Sequence[str],
        outcome: Outcome,
        reason: str,
        *,
        found: Contrast | None = None,
        of: Shifts | None = None,
        settle: str | None = None,
        adjusted: float | None = None,
    ) -> Judgement:
        e = found.estimate if found else None
        known = e is not None and math.isfinite(e.shift)
        bounded = e is not None and known and math.isfinite(e.standard_error)
        level = (1 - self.settings.confidence) / 2
        visible = detectable_shift(e.standard_error, math.inf, level, self.settings.power) if e and bounded else 0.0
        return Judgement(
            subject=listed(units) or "no unit",
            subject_kind=self.kind,
            metric=self.metric.name,
            comparability=self.comparability,
            layer=Layer.PAIRED,
            outcome=outcome,
            reason=reason,
            margin=self.metric.margin,
            confidence=self.settings.confidence,
            loss=finite_loss_of(e.shift) if e and known else None,
            loss_low=finite_loss_of(e.low) if e and bounded else None,
            loss_high=finite_loss_of(e.high) if e and bounded else None,
            p_value=e.p_greater if e and bounded else None,
            p_adjusted=adjusted,
            detectable_loss=loss_of(visible) if visible > 0 else None,
            units=len(of) if of else 0,
            launches_before=min(of.before, default=0) if of else 0,
            launches_after=min(of.after, default=0) if of else 0,
            runs_before=1 if of else 0,
            settle=settle,
        )


def _assess(logs: _Measured, told: _Told, expected: Sequence[str]) -> Comparison:
    noise = told.settings.noise
    others = {u: v for u, v in logs.calm_before.items() if u not in expected}
    everything = shifts({**others, **logs.before}, {**logs.calm_after, **logs.after}, noise.launch if noise else None)
    changed = everything.only(logs.before.keys() & logs.after.keys())
    calm = everything.only(others)
    beside = _controls(calm, told)
    missing = [u for u in expected if u not in changed.units]
    if not len(changed):
        reason = "No unit was measured both before and after the change."
        settle = "Measure the same units before and after."
        judgement = told.judgement(expected, Outcome.INCONCLUSIVE, reason, settle=settle)
        return Comparison(judgement, (), beside, blames_change=False)
    whole = _whole(changed, calm, missing, told)
    alone = _each(changed, calm, told, whole)
    judgement, blames = _in_the_light_of(whole, alone, beside)
    return Comparison(judgement, alone, beside, blames)


def _whole(changed: Shifts, calm: Shifts, missing: Sequence[str], told: _Told) -> Judgement:
    """Judge the typical changed unit."""
    found = told.contrast(changed, calm)
    outcome = told.outcome(found)
    reason = f"{told.lost(found, changed, calm)}; {found.how}."
    if not len(calm) and told.settings.noise is None:
        reason += " Nothing was measured beside it: a change of the whole fabric would look the same."
        if len(changed) < fewest_pairs(told.settings.confidence):
            outcome = Outcome.INCONCLUSIVE
    settle = _settle(found, changed, calm, told) if outcome is Outcome.INCONCLUSIVE else None
    if missing and outcome in (Outcome.PASS, Outcome.IMPROVED):
        outcome, settle = Outcome.INCONCLUSIVE, f"Measure {listed(missing)}, or find out why that is not possible."
    if missing:
        reason += f" Not measured both before and after: {listed(missing)}."
    return told.judgement(changed.units, outcome, reason, found=found, of=changed, settle=settle)


def _each(changed: Shifts, calm: Shifts, told: _Told, whole: Judgement) -> tuple[Judgement, ...]:
    """Judge each changed unit against the control units, else against the other changed ones, at a shared level."""
    n = len(changed)
    if n == 1 or not (len(calm) or n >= PEERS_IN_SET or told.settings.noise):
        return ()
    strict = replace(told.settings, confidence=1 - (1 - told.settings.confidence) / n)
    one = replace(told, settings=strict)
    name = "control unit" if len(calm) else "other changed unit"
    found: list[tuple[Shifts, Shifts, Contrast]] = []
    sound = len(calm) > 0 or n < PEERS_IN_SET
    for i in range(n):
        own = changed.at([i])
        # In a large set a unit does not move the median that it is held against.
        peers = changed if n > MANY else changed.at([k for k in range(n) if k != i])
        beside = calm if sound else peers
        found.append((own, beside, one_against(own, beside, strict.confidence, strict.noise, sound=sound)))
    judgements = []
    for (own, beside, it), p in zip(found, holm([c.estimate.p_greater for *_, c in found]), strict=True):
        outcome = one.outcome(it)
        if len(beside) and not len(calm) and outcome in (Outcome.PASS, Outcome.IMPROVED):
            # As good as the others that were changed is good only if these are.
            outcome = Outcome.PASS if whole.outcome in (Outcome.PASS, Outcome.IMPROVED) else Outcome.INCONCLUSIVE
        settle = _settle(it, own, beside, one) if outcome is Outcome.INCONCLUSIVE else None
        reason = f"{one.lost(it, own, beside, name)}; {it.how}. The interval holds for all {n} units together."
        judgements.append(one.judgement(own.units, outcome, reason, found=it, of=own, settle=settle, adjusted=float(p)))
    return tuple(judgements)


def _controls(calm: Shifts, told: _Told) -> Judgement | None:
    """Judge whether the control units moved between the two runs."""
    if not len(calm):
        return None
    found = told.contrast(calm, calm.only(()))
    outcome = told.outcome(found)
    reason = f"The change did not touch them. {told.lost(found, calm, calm.only(()))}; {found.how}."
    settle = "Measure more control units." if outcome is Outcome.INCONCLUSIVE else None
    return told.judgement(calm.units, outcome, reason, found=found, of=calm, settle=settle)


def _in_the_light_of(whole: Judgement, alone: Sequence[Judgement], beside: Judgement | None) -> tuple[Judgement, bool]:
    """Return the judgement of the set given those of its units and of the control units, and is the change to blame."""
    if whole.outcome is Outcome.REGRESSED:
        return replace(whole, reason=whole.reason + _also(beside)), beside is not None
    slow = sorted((j for j in alone if j.outcome is Outcome.REGRESSED), key=lambda j: -(j.loss or 0))
    if slow:
        worst = slow[0]
        who = f"{len(slow)} of {plural(len(alone), 'changed unit')} lost: {listed([j.subject for j in slow])}."
        reason = f"{who} The worst, {worst.subject}: {worst.reason}{_also(beside)} The typical unit: {whole.reason}"
        return replace(worst, subject=whole.subject, units=whole.units, reason=reason), beside is not None
    fell = beside is not None and beside.loss is not None and beside.loss >= beside.margin
    if beside is None or not fell or whole.outcome not in (Outcome.PASS, Outcome.IMPROVED):
        return whole, False
    if whole.outcome is Outcome.PASS and beside.outcome is Outcome.REGRESSED:
        reason = (
            f"It is real, and the change is not the reason: {plural(beside.units, 'control unit')} that it did not "
            f"touch lost {percent(beside.loss)} in the same runs. Beyond that: {whole.reason}"
        )
        return replace(beside, subject=whole.subject, units=whole.units, reason=reason), False
    reason = f"The control units, which the change did not touch, lost {percent(beside.loss)}. {whole.reason}"
    settle = "Find out what happened to the control units, and measure again."
    return replace(whole, outcome=Outcome.INCONCLUSIVE, reason=reason, settle=settle), False


def _also(beside: Judgement | None) -> str:
    """Say that the control units moved too, where they did."""
    moved = {Outcome.REGRESSED: "lost", Outcome.IMPROVED: "gained"}
    if beside is None or beside.loss is None or beside.outcome not in moved:
        return ""
    return f" The control units {moved[beside.outcome]} {percent(abs(beside.loss))} themselves; this is beyond that."


def _settle(found: Contrast, changed: Shifts, calm: Shifts, told: _Told) -> str:
    """Say what would turn INCONCLUSIVE into an answer at the margin."""
    n, margin = len(changed), told.metric.margin
    lonely = not len(calm) and told.settings.noise is None and n < fewest_pairs(told.settings.confidence)
    controls = FEW_CONTROLS if lonely else len(calm)
    noise, assumed = (
        (found.noise, "") if found.noise else (Noise(USUAL_NOISE), f" if launches scatter by {percent(USUAL_NOISE)}")
    )
    level = (1 - told.settings.confidence) / 2
    design = Design(
        n,
        controls,
        max(1, min(changed.before)),
        max(1, min(changed.after)),
        alpha=level,
        known=told.settings.noise is not None,
    )
    beside = " of each unit"
    if lonely:
        beside = f" of these units, and of {controls} others that the change does not touch,"
    to = f"to show or rule out a loss of {percent(margin)}{assumed}"
    after = launches_needed(noise, margin, design, told.settings.power, after_only=True)
    if after is not None and not lonely and after > design.launches_after:
        return f"Measure {plural(after, 'launch')}{beside} after the change, {to}."
    both = launches_needed(noise, margin, design, told.settings.power)
    if both is not None:
        old = "both before and after (the old state again if need be)"
        return f"Measure {plural(max(both, 2), 'launch')}{beside} {old}, {to}."
    units = units_needed(noise, margin, design, told.settings.power)
    if units is not None and units > n:
        return f"Launches alone do not tell. Measure {plural(units, 'unit')} with the change, {to}."
    return f"Launches alone do not tell. Measure more control units, or several runs before and after, {to}."
