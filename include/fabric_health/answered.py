"""What models answered in a run, held against an earlier run and against the form that is not quantised. Pure.

The samples are the items of a task: an item is compared with itself. Speed and size are the business of others.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

import numpy as np

from fabric_health.checks.model_eval.drift import Requantised
from fabric_health.checks.model_eval.tables import PerItem
from fabric_health.compared import CRITICAL_LOSS, Judged
from fabric_health.datasets.tables import Finding, FindingKind, Severity, finding
from fabric_health.measured import Incomparable, Measured
from fabric_health.verdict import quality
from fabric_health.verdict.comparability import differing, label
from fabric_health.verdict.metrics import ACCURACY, PERPLEXITY, SAME_ANSWERS, SAME_VECTORS
from fabric_health.verdict.outcome import Judgement, Layer, Metric, Outcome
from fabric_health.verdict.panel import Panel, performance_of

CHECK, KIND = "model_eval", "model"
# What differs between a form and its base by itself.
_OF_FORM = frozenset({"scheme", "flags"})
# Digits of the hash of the items' names, by which evaluations of other items are told apart.
_SHORT = 12


@dataclass(frozen=True)
class Items:
    """What one form of a model answered in one task of one run.

    ``comparability`` is the rows' own key with ``data``, a hash of the items' names: as many items of another text or
    task are another evaluation. ``correct`` tells of each item whether it was right; ``likelihood`` is the mean
    log-likelihood of a token of each item (nats). A task has one of both.
    """

    unit: str
    task: str
    comparability: str
    correct: Mapping[str, bool] = field(default_factory=dict)
    likelihood: Mapping[str, float] = field(default_factory=dict)

    def value(self) -> float:
        """Return the accuracy (share of items), or the perplexity where items have likelihoods only."""
        if self.correct:
            return sum(self.correct.values()) / len(self.correct)
        known = [x for x in self.likelihood.values() if math.isfinite(x)]
        return math.exp(min(-sum(known) / len(known), 700.0)) if known else math.nan


@dataclass(frozen=True)
class Said:
    """What all forms of models answered in one run, by unit and task."""

    run: str
    at: datetime
    of: Mapping[tuple[str, str], Items]


def said(run: str, at: datetime, rows: Iterable[PerItem]) -> Said:
    """Arrange rows of table ``per_item`` of one run. Of several launches of a form the first counts: it is evaluated
    without chance, and launches that differ are a finding of their own."""
    first: dict[tuple[str, str], str] = {}
    held: dict[tuple[str, str], list[PerItem]] = {}
    for r in sorted(rows, key=lambda r: (r.unit, r.task, r.launch, r.item)):
        key = (r.unit, r.task)
        if first.setdefault(key, r.launch) == r.launch:
            held.setdefault(key, []).append(r)
    return Said(run, at, {key: _items(*key, of) for key, of in held.items()})


def _items(unit: str, task: str, rows: Sequence[PerItem]) -> Items:
    likelihood = {
        r.item: r.loglikelihood / r.tokens
        for r in rows
        if r.correct is None and r.loglikelihood is not None and r.tokens
    }
    correct = {r.item: r.correct for r in rows if r.correct is not None}
    data = hashlib.sha256("\0".join(sorted(r.item for r in rows)).encode()).hexdigest()[:_SHORT]
    return Items(unit, task, f"{rows[0].comparability};data={data}", correct, likelihood)


def with_before(now: Said, earlier: Iterable[Said]) -> tuple[list[Judged], list[Incomparable]]:
    """Judge every form and task against the first of ``earlier`` that evaluated it in the same way.

    Of ``earlier`` no more are asked for than are needed: a run may have a million items. What none of them evaluated
    in the same way is returned apart, with the key that differs least.
    """
    judged, odd = {}, []
    left: dict[tuple[str, str], set[str]] = {key: set() for key in sorted(now.of)}
    for then in earlier if left else ():
        for key in [k for k in left if k in then.of]:
            before = then.of[key]
            if before.comparability == now.of[key].comparability:
                judged[key] = judge(now.of[key], now, before, then)
                del left[key]
            else:
                left[key].add(before.comparability)
        if not left:
            break
    for key, others in left.items():
        items = now.of[key]
        closest = min(others, key=lambda k: (len(differing(k, items.comparability)), k), default=None)
        odd.append(Incomparable(CHECK, _metric(items).name, KIND, items.comparability, closest, (items.unit,)))
    return [judged[key] for key in sorted(judged)], odd


def with_base(now: Said, base_of: Callable[[str], str], gate: Callable[[str], float]) -> list[Judged]:
    """Judge every quantised form against its base in the same run.

    ``base_of`` gives the unit of the form that is not quantised (a base is its own); ``gate`` the share of the base's
    quality that a unit has to keep. A task that was evaluated in another way than the base's is NOT_COMPARABLE, with
    the fields of the key that differ; one that the base did not answer has no judgement.
    """
    judged = []
    for (unit, task), items in sorted(now.of.items()):
        base = now.of.get((base_of(unit), task))
        if base is None or base.unit == unit:
            continue
        odd = [d for d in differing(base.comparability, items.comparability) if d[0] not in _OF_FORM]
        if odd:
            judged.append(_unlike(items, now, base, odd))
            continue
        metric = _metric(items)
        kept = min(max(gate(unit), 0.01), 0.999)
        # An accuracy is judged in shares of all items; a share of what the base had right is less.
        margin = (1 - kept) * (base.value() if items.correct else 1.0)
        judged.append(judge(items, now, base, now, replace(metric, margin=min(max(margin, 1e-3), 0.9))))
    return judged


def judge(items: Items, now: Said, before: Items, then: Said, metric: Metric | None = None) -> Judged:
    """Judge what a form answered against what was answered ``then``, item by item."""
    metric = metric or _metric(items)
    unit, key = items.unit, items.comparability
    if not (items.correct or items.likelihood):
        reason = "Its items are neither right nor wrong, and have no likelihood of a known number of tokens."
        judgement = Judgement(unit, KIND, metric.name, key, Layer.QUALITY, Outcome.INCONCLUSIVE, reason, metric.margin)
        judgement = replace(judgement, settle="Evaluate a task whose metric tells of each item whether it is right.")
    elif items.correct:
        judgement = quality.judge_quality(before.correct, items.correct, metric=metric, subject=unit, comparability=key)
    else:
        judgement = quality.judge_likelihood(
            before.likelihood, items.likelihood, metric=metric, subject=unit, comparability=key
        )
    return Judged(judgement, Measured(_panel(metric, items, now, before, then), CHECK, "1", ""))


def _unlike(items: Items, now: Said, base: Items, odd: Sequence[tuple[str, str, str]]) -> Judged:
    """Say that a form was evaluated in another way than its base, and in which: silence would read as "as good"."""
    metric, parts = _metric(items), ", ".join(f"{name} {of_base} -> {of_form}" for name, of_base, of_form in odd)
    judgement = Judgement(
        subject=items.unit,
        subject_kind=KIND,
        metric=metric.name,
        comparability=items.comparability,
        layer=Layer.QUALITY,
        outcome=Outcome.NOT_COMPARABLE,
        reason=f"evaluated in another way than its base in this run: {parts}",
        margin=metric.margin,
        settle="Evaluate base and form with the same tasks, software and kind of device, from the same weights.",
    )
    return Judged(judgement, Measured(_panel(metric, items, now, base, now), CHECK, "1", ""))


def _metric(items: Items) -> Metric:
    return ACCURACY if items.correct else PERPLEXITY


def _panel(metric: Metric, items: Items, now: Said, before: Items, then: Said) -> Panel:
    """Return both values as a panel of one unit: what shows a comparison shows it as any other."""
    values = np.array([before.value(), items.value()])[:, None, None]
    runs, at = (then.run, now.run), (then.at, now.at)
    return Panel(metric, items.comparability, KIND, runs, at, (items.unit,), performance_of(metric, values))


AS_BEFORE, AS_BASE, SAME = "as_good_as_before", "as_good_as_base", "same_answers_as_before"
REMADE = "same_weights_as_before"
_DRIFT = frozenset({SAME_ANSWERS.name, SAME_VECTORS.name})


def findings(with_before: Sequence[Judged], with_base: Sequence[Judged], why: str) -> list[Finding]:
    """Return what a person has to look at: other answers of the same weights, and quality that was lost."""
    lost = [x for x in with_before if x.judgement.outcome is Outcome.REGRESSED and x.judgement.layer is Layer.QUALITY]
    out = [_drift(x.judgement, why) for x in lost if x.judgement.metric in _DRIFT]
    out += [_worse(x, AS_BEFORE, f"in {why}") for x in lost if x.judgement.metric not in _DRIFT]
    out += [_worse(x, AS_BASE, "its base in this run") for x in with_base if x.judgement.outcome is Outcome.REGRESSED]
    return out + [_no_base(x.judgement) for x in with_base if x.judgement.outcome is Outcome.NOT_COMPARABLE]


def remade(found: Sequence[Requantised], why: str) -> list[Finding]:
    """Return notes on quantised forms whose weights are others, though nothing that they are made of is."""
    return [
        finding(
            check=CHECK,
            rule=REMADE,
            unit=r.unit,
            unit_kind=KIND,
            metric="weights_sha256",
            severity=Severity.INFO,
            summary=f"{r.unit}: the same recipe, source, text, versions and device gave other weights than in {why}",
            expected=r.weights_before[:16],
            actual=r.weights_now[:16],
            action="Nothing, if its quality holds: sums in another order are enough. Its answers cannot be compared.",
            source="ours: quantising is pinned by seed, so that what differs is worth a note",
        )
        for r in found
    ]


def _drift(j: Judgement, why: str) -> Finding:
    return finding(
        check=CHECK,
        rule=SAME,
        unit=j.subject,
        unit_kind=KIND,
        metric=j.metric,
        severity=Severity.CRITICAL if j.loss else Severity.WARNING,
        summary=f"{j.subject} computes otherwise with the same weights, flags, software and device. {j.reason}",
        expected=f"the same as in {why}",
        actual=j.reason[:500],
        action=(
            "Find the node that it ran on (column `node` of table `model_servers`, or the launch's evidence); run the "
            "check there again, and on another node: answers that differ between nodes are a fault of the hardware or "
            "the driver. Look at ECC and Xid findings."
        ),
        source="ours: greedy decoding of the same weights by the same kernels is deterministic",
    )


def _no_base(j: Judgement) -> Finding:
    return finding(
        check=CHECK,
        rule=AS_BASE,
        unit=j.subject,
        unit_kind=KIND,
        metric=label(j.metric, j.comparability),
        severity=Severity.WARNING,
        kind=FindingKind.NOT_JUDGED,
        summary=f"{j.subject}, {label(j.metric, j.comparability)}: {j.reason}",
        action=(
            "Other weights (`revision`): find out what changed the model's folder between quantising and serving. "
            "Another `device`: name nodes of one kind under checks.model_eval.nodes."
        ),
    )


def _worse(x: Judged, rule: str, than: str) -> Finding:
    j = x.judgement
    before, after = x.typical()
    loss = j.loss or 0.0
    return finding(
        check=CHECK,
        rule=rule,
        unit=j.subject,
        unit_kind=KIND,
        metric=label(j.metric, j.comparability),
        severity=Severity.CRITICAL if loss >= CRITICAL_LOSS else Severity.WARNING,
        summary=f"{j.subject}, {label(j.metric, j.comparability)}: worse than {than}. {j.reason}",
        expected=None if before is None else f"{before:.4g}, as {than}",
        actual=None if after is None else f"{after:.4g}",
        action="Look at the items that changed (table `per_item`), and first at a recipe, library or driver that did.",
        source="paired tests on items: exact McNemar for right and wrong, paired bootstrap for likelihoods",
    )
