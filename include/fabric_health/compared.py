"""What a comparison says, in rows, findings and one sentence. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from fabric_health.answer import NEVER_MEASURED
from fabric_health.datasets.tables import Finding, FindingKind, Severity, finding
from fabric_health.datasets.verdict_tables import Verdict
from fabric_health.measured import Incomparable, Measured
from fabric_health.verdict import comparability
from fabric_health.verdict.comparability import differing
from fabric_health.verdict.outcome import Judgement, Layer, Outcome
from fabric_health.verdict.panel import Panel
from fabric_health.verdict.wording import listed

RULE = "as_fast_as_before"
COMPARABLE_RULE = "comparable_with_before"
PART = "verdict"
HISTORY = "history"
TOUCHED, CONTROLS, RUN = "touched", "controls", "run"
# A loss from which on a unit costs more than it gives: our choice, that of NVIDIA's preflight checks is of this order.
CRITICAL_LOSS = 0.2
_NAMED = 5
# Kinds of units that are one thing; the others (a set, a rack, the fleet, a benchmark on all nodes) are several.
SINGLE = frozenset({"node", "gpu", "nic", "rail", "link", "pair", "object_store", "model"})
# Fields of a comparability key that say what was asked for. A run of other nodes or of a new benchmark has other values
# by itself; all other fields were observed, and a difference in them is news.
ASKED_FOR = frozenset(
    {
        *("engine", "sku", "group_kind", "nodes", "ranks", "ranks_per_node"),
        *("collective", "dtype", "redop", "root", "size_bytes", "in_place", "timing", "test"),
        *("op", "load", "object_bytes", "concurrency", "hosts", "clients", "tls", "percentiles"),
        *(
            "model",
            "revision",
            "scheme",
            "task",
            "items",
            "flags",
            "input_tokens",
            "output_tokens",
            "prompts",
            "greedy",
            "data",
        ),
    }
)


@dataclass(frozen=True)
class Judged:
    """A judgement with the panel that it is about. ``members``: the units of a set; none: all of the panel."""

    judgement: Judgement
    measured: Measured
    role: Literal["touched", "control"] | None = None
    members: tuple[str, ...] = ()

    def typical(self) -> tuple[float | None, float | None]:
        """Return the medians before and in the last run, in the metric's own unit of measure."""
        subject, units = self.judgement.subject, self.measured.panel.units
        return _typical(self.measured.panel, (subject,) if subject in units else self.members or units)


def row(judged: Judged, against: str) -> Verdict:
    """Return a judgement as a row of table ``verdicts``."""
    j, m = judged.judgement, judged.measured
    before, after = judged.typical()
    return Verdict(
        against=against,
        subject=j.subject,
        subject_kind=j.subject_kind,
        check=m.check,
        metric=j.metric,
        comparability=j.comparability,
        outcome=j.outcome.value,
        layer=j.layer.value,
        reason=j.reason,
        settle=j.settle,
        role=judged.role,
        loss=_number(j.loss),
        loss_low=_number(j.loss_low),
        loss_high=_number(j.loss_high),
        confidence=j.confidence,
        margin=j.margin,
        p_value=_number(j.p_value),
        p_adjusted=_number(j.p_adjusted),
        detectable_loss=_number(j.detectable_loss),
        value_before=before,
        value_after=after,
        unit_of_measure=m.unit_of_measure,
        units=j.units,
        launches_before=j.launches_before,
        launches_after=j.launches_after,
        runs_before=j.runs_before,
    )


def incomparable_row(odd: Incomparable, against: str, margin: float) -> Verdict:
    """Return the row of what no earlier run measured in the same way."""
    return Verdict(
        against=against,
        subject=odd.units[0] if len(odd.units) == 1 else "fleet",
        subject_kind=odd.unit_kind if len(odd.units) == 1 else "set",
        check=odd.check,
        metric=odd.metric,
        comparability=odd.comparability,
        outcome=Outcome.NOT_COMPARABLE.value,
        layer="",
        reason=differences(odd),
        margin=margin,
        units=len(odd.units),
    )


def differences(odd: Incomparable) -> str:
    """Return which fields of a comparability key differ from the closest earlier one, in words."""
    if odd.closest is None:
        return NEVER_MEASURED
    parts = [f"{name} {before} -> {now}" for name, before, now in differing(odd.closest, odd.comparability)]
    return "not measured in the same way before: " + ", ".join(parts)


def label(m: Measured) -> str:
    """Return what a panel measures, for a person: ``all_reduce busbw_gbps``."""
    return comparability.label(m.panel.metric.name, m.panel.comparability)


def findings(judged: Sequence[Judged], odd: Sequence[Incomparable], why: str) -> list[Finding]:
    """Return what a person has to look at: every unit that got slower, and what could not be compared though it was.

    A unit whose metric regressed under several keys has one finding, of the largest loss. What models answer has
    findings of its own.
    """
    worst: dict[tuple[str, str], Judged] = {}
    for item in judged:
        j = item.judgement
        if j.outcome is not Outcome.REGRESSED or j.loss is None or j.layer is Layer.QUALITY:
            continue
        key = (j.subject, label(item.measured))
        if key not in worst or j.loss > (worst[key].judgement.loss or 0):
            worst[key] = item
    out = [_regression(item, why) for item in worst.values()]
    return _units_first(out) + [_not_comparable(o) for o in _one_each(odd)]


def _units_first(found: Sequence[Finding]) -> list[Finding]:
    """Let single units explain what takes many together, where the same check found both: it is not news twice."""
    alone = {f.check: f for f in reversed(found) if f.unit_kind in SINGLE}
    return [
        replace(f, explained_by=alone[f.check].finding) if f.check in alone and f.unit_kind not in SINGLE else f
        for f in found
    ]


def _regression(item: Judged, why: str) -> Finding:
    j, m = item.judgement, item.measured
    before, after = item.typical()
    loss = j.loss or 0.0
    values = f": {_figure(before)} -> {_figure(after)} {m.unit_of_measure}" if before and after else ""
    interval = f" ({j.confidence:.0%} interval {_percent(j.loss_low)} to {_percent(j.loss_high)})"
    return finding(
        check=m.check,
        rule=RULE,
        unit=j.subject,
        unit_kind=j.subject_kind,
        metric=label(m),
        severity=Severity.CRITICAL if loss >= CRITICAL_LOSS else Severity.WARNING,
        summary=f"{j.subject} lost {loss:.1%} of {label(m)}{values}{interval}.",
        expected=f"{_figure(before)} {m.unit_of_measure}, as in {why}" if before else f"as in {why}",
        actual=f"{_figure(after)} {m.unit_of_measure}" if after else None,
        action="See under Verdict, on the page of the run, which recorded change separates what moved.",
        source=f"{j.layer.value}: {j.reason}"[:500],
    )


def _one_each(odd: Iterable[Incomparable]) -> list[Incomparable]:
    """Return, per check and set of differing fields, one example: an upgrade makes every key another."""
    first: dict[tuple[str, str], Incomparable] = {}
    for o in odd:
        if o.closest is not None:
            first.setdefault((o.check, differences(o)), o)
    return list(first.values())


def observed_otherwise(odd: Incomparable) -> bool:
    """Tell whether what was measured before ran in another way now: not asked for otherwise, but seen otherwise.

    Another model has other weights by itself; the same model with other weights (``revision``) is news.
    """
    if odd.closest is None:
        return False
    names = {name for name, _, _ in differing(odd.closest, odd.comparability)}
    return bool(names - ASKED_FOR) or ("revision" in names and "model" not in names)


def _many(odd: Incomparable) -> str:
    return f"{len(odd.units)} units" if len(odd.units) > 1 else odd.units[0]


_SAME_AGAIN = (
    "measure again with the settings and versions of before, or accept a run with the present ones as baseline"
)


def _not_comparable(odd: Incomparable) -> Finding:
    many = _many(odd)
    return finding(
        check=odd.check,
        rule=COMPARABLE_RULE,
        unit=odd.units[0] if len(odd.units) == 1 else odd.check,
        unit_kind=odd.unit_kind if len(odd.units) == 1 else "check",
        metric=differences(odd)[:200],
        severity=Severity.WARNING if observed_otherwise(odd) else Severity.INFO,
        kind=FindingKind.NOT_JUDGED,
        summary=f"{odd.metric} of {many} cannot be compared with earlier runs: {differences(odd)}.",
        action="If the difference is intended, accept a run with it as baseline; else undo it and measure again.",
    )


def did_not_finish(check: str) -> Finding:
    """Return the finding that a benchmark was not compared with earlier runs: silence would read as "nothing lost"."""
    return finding(
        check=check,
        rule=RULE,
        unit=check,
        unit_kind="check",
        metric="finishes",
        severity=Severity.WARNING,
        kind=FindingKind.NOT_JUDGED,
        summary=f"The comparison of {check} with earlier runs did not finish, so nothing is said of what got slower.",
        action="See the log of the task compare; when the cause is gone, clear it or run the stage again.",
    )


@dataclass(frozen=True)
class Whole:
    """The verdict on the run: one word, one sentence, and what would settle it."""

    outcome: Outcome
    reason: str
    settle: str | None = None


def whole(judged: Sequence[Judged], odd: Sequence[Incomparable], *, change: bool, why: str) -> Whole:
    """Return the verdict on a run.

    REGRESSED when anything that counts did. After a declared change, what was touched counts; without one, everything.
    PASS when no loss of the margin is left possible: for the touched units together, and for most units alone. After a
    change, an open benchmark of all nodes together does not hold it up, unless it looks slower; and one that lost a
    little while the touched nodes and rails pass by themselves makes it INCONCLUSIVE.
    Nothing comparable at all, or something that was seen to run in another way than before, is NOT_COMPARABLE, or
    INCONCLUSIVE where there was nothing to compare with.
    """
    counting = [x for x in judged if x.role == "touched"] if change else list(judged)
    if not judged and odd and not any(o.closest for o in odd):
        return Whole(Outcome.INCONCLUSIVE, why, "this run is what the next ones are compared with")
    if not counting:
        if odd and any(o.closest for o in odd):
            told = "; ".join(differences(o) for o in _one_each(odd))
            return Whole(Outcome.NOT_COMPARABLE, told[:1000], _SAME_AGAIN)
        what = "nothing that was touched was measured" if change else "nothing was measured that gets a verdict"
        return Whole(Outcome.INCONCLUSIVE, what, "run the benchmarks on the units in question, before and after")
    lost = [x for x in counting if x.judgement.outcome is Outcome.REGRESSED]
    if lost and change and _contradicted(lost, counting):
        told = f"{_lost(lost, judged, why)}; but the touched nodes and rails, judged by themselves, lost nothing"
        return Whole(
            Outcome.INCONCLUSIVE, told, "measure again: what the day took comes back, what the change took stays"
        )
    if lost:
        return Whole(Outcome.REGRESSED, _lost(lost, judged, why))
    changed = _one_each([o for o in odd if observed_otherwise(o)])
    if changed:
        told = "; ".join(f"{_many(o)}, {o.metric}: {differences(o)}" for o in changed)
        return Whole(Outcome.NOT_COMPARABLE, told[:1000], _SAME_AGAIN)
    sets = [x for x in counting if x.judgement.subject_kind == "set"] or counting
    settled = (Outcome.PASS, Outcome.IMPROVED)
    open_ = [x for x in sets if x.judgement.outcome not in settled]
    fixed = [x for x in sets if x.judgement.outcome in settled]
    weighty = [x for x in open_ if not fixed or _weighs(x)]
    if weighty if change else len(open_) > len(fixed):
        first = max(weighty or open_, key=lambda x: x.judgement.detectable_loss or 0)
        j = first.judgement
        told = f"{len(open_)} of {len(sets)} comparisons settle nothing; e.g. {j.subject}, {label(first.measured)}"
        return Whole(Outcome.INCONCLUSIVE, f"{told}: {j.reason}", j.settle)
    better = [x for x in sets if x.judgement.outcome is Outcome.IMPROVED and not _of_all(x)]
    if better and change:
        return Whole(Outcome.IMPROVED, _better(better, why))
    margins = sorted({x.judgement.margin for x in sets})
    bounds = " or ".join(f"{m:.0%}" for m in margins)
    passed = sum(x.judgement.outcome in (Outcome.PASS, Outcome.IMPROVED) for x in counting)
    told = f"no loss of {bounds} or more in {passed} of {len(counting)} comparisons with {why}"
    left = "; the others settle nothing by themselves" if passed < len(counting) else ""
    return Whole(Outcome.PASS, told + left)


def _of_all(x: Judged) -> bool:
    """Tell whether something is about all nodes together, with nothing beside it that the change did not touch."""
    return x.measured.panel.unit_kind == "benchmark" or x.judgement.subject_kind == "fleet"


def _contradicted(lost: Sequence[Judged], counting: Sequence[Judged]) -> bool:
    """Tell whether only what takes all nodes together got slower, while what was touched passes piece by piece.

    Between two runs the day moves all nodes as the change does. A loss whose whole interval is beyond the margin is not
    set aside.
    """
    if not all(_of_all(x) and (x.judgement.loss_low or 0.0) < x.judgement.margin for x in lost):
        return False
    pieces = [x for x in counting if x.judgement.subject == TOUCHED and not _of_all(x)]
    passed = all(x.judgement.outcome in (Outcome.PASS, Outcome.IMPROVED) for x in pieces)
    return passed and any(x.measured.panel.unit_kind in ("rail", "link", "pair") for x in pieces)


def _weighs(x: Judged) -> bool:
    """Tell whether an open comparison holds up a PASS of what was touched.

    A benchmark of all nodes together is one unit with nothing beside it: it hardly ever rules a loss out. Its nodes and
    rails are judged on their own; it holds up a PASS when it looks slower by half the margin or more.
    """
    j = x.judgement
    return x.measured.panel.unit_kind != "benchmark" or j.loss is None or j.loss >= j.margin / 2


def _lost(lost: Sequence[Judged], judged: Sequence[Judged], why: str) -> str:
    answers = [x for x in lost if x.judgement.layer is Layer.QUALITY]
    slow = [x for x in lost if x.judgement.layer is not Layer.QUALITY]
    parts = [_slower(slow, judged, why)] if slow else []
    if answers:
        worst = max(answers, key=lambda x: (x.judgement.loss or 0, x.judgement.subject)).judgement
        units = list(dict.fromkeys(x.judgement.subject for x in answers))
        parts.append(
            f"{listed(units, _NAMED)} answers worse or otherwise; {worst.subject}, {worst.metric}: {worst.reason}"
        )
    return "; ".join(parts)


def _slower(lost: Sequence[Judged], judged: Sequence[Judged], why: str) -> str:
    alone = [x for x in lost if x.judgement.subject_kind in SINGLE] or list(lost)
    units = list(dict.fromkeys(x.judgement.subject for x in sorted(alone, key=lambda x: -(x.judgement.loss or 0))))
    worst = max(alone, key=lambda x: x.judgement.loss or 0)
    j = worst.judgement
    text = f"{listed(units, _NAMED)} slower than in {why}; worst: {j.subject}, {label(worst.measured)}"
    text += f", {j.loss or 0:.1%} ({_percent(j.loss_low)} to {_percent(j.loss_high)})"
    controls = [x for x in judged if x.role == "control" and x.judgement.outcome is Outcome.REGRESSED]
    if controls:
        moved = list(dict.fromkeys(x.judgement.subject for x in controls))
        text += f"; of the controls, which the change left alone, {', '.join(moved[:_NAMED])} got slower too"
    return text


def _better(better: Sequence[Judged], why: str) -> str:
    best = min(better, key=lambda x: x.judgement.loss or 0)
    j = best.judgement
    how = "better" if j.layer is Layer.QUALITY else "faster"
    return f"{j.subject} is {-(j.loss or 0):.1%} {how} than in {why} ({label(best.measured)}), and nothing got slower"


def run_row(verdict: Whole, against: str, compared_with: str | None = None, explanation: str | None = None) -> Verdict:
    """Return the verdict on the run as a row, with what it was compared with and which change explains it."""
    return Verdict(
        against=against,
        subject=RUN,
        subject_kind=RUN,
        check="",
        metric="",
        comparability="",
        outcome=verdict.outcome.value,
        layer="",
        reason=verdict.reason,
        settle=verdict.settle,
        compared_with=compared_with,
        explanation=explanation,
    )


def _typical(panel: Panel, units: Sequence[str]) -> tuple[float | None, float | None]:
    """Return the medians of some units before and in the last run, in the metric's own unit of measure.

    Of several units it is the median of theirs: one that was launched more often counts no more than the others.
    """
    values = panel.performance[:, :, [panel.units.index(u) for u in units]]
    out: list[float | None] = []
    for part in (values[:-1], values[-1:]):
        each = [float(np.median(of[np.isfinite(of)])) for of in np.moveaxis(part, 2, 0) if np.isfinite(of).any()]
        typical = float(np.median(each)) if each else math.nan
        out.append(math.exp(typical if panel.metric.higher_is_better else -typical) if each else None)
    return out[0], out[1]


def _number(x: float | None) -> float | None:
    return None if x is None or not math.isfinite(x) else float(x)


def _figure(x: float | None) -> str:
    return "?" if x is None else f"{x:.4g}"


def _percent(x: float | None) -> str:
    return "?" if x is None or not math.isfinite(x) else f"{x:.1%}"
