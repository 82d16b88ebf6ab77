"""Did a model get worse: the same items answered before and after, each compared with itself.

Two runs of a model that answers 150 of 200 items right each can differ on 40 items or on none; only the items that
changed say anything. So the test is McNemar's, exact (*Psychometrika* 1947;12:153), the interval Tango's score interval
(*Stat. Med.* 1998;17:891), the power Connor's (*Biometrics* 1987;43:207), and likelihoods are compared by a paired
bootstrap (Efron and Tibshirani, *An Introduction to the Bootstrap*, 14.3). An accuracy's loss is in shares of all items
(0.02: 2 points), a likelihood's in shares of the mean likelihood of an item.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy import optimize, stats

from fabric_health.verdict.decision import decide
from fabric_health.verdict.intervals import sign_flip, students_t
from fabric_health.verdict.outcome import Judgement, Layer, Metric, Outcome
from fabric_health.verdict.panel import Floats, difference_of, loss_of
from fabric_health.verdict.wording import listed, percent

RESAMPLES = 4_999
SEED = 20_260_105
MOST_FLIPPED = 100
"""Items up to which the p-value of a likelihood is by sign flips; with more, Student's t differs by nothing."""
MOST_BCA = 1_000
"""Items up to which the bootstrap is corrected for bias and skew; with more, there is neither in a mean."""
FEWEST_ITEMS = 10
"""Items below which a bootstrap says nothing."""
_MOST_ITEMS = 10_000_000


@dataclass(frozen=True)
class Answers:
    """Paired answers: items right both times, right only before, right only after, never right."""

    kept: int
    lost: int
    gained: int
    wrong: int

    @property
    def items(self) -> int:
        """Return the number of items."""
        return self.kept + self.lost + self.gained + self.wrong

    @property
    def loss(self) -> float:
        """Return the loss of accuracy, a share of all items."""
        return (self.lost - self.gained) / self.items if self.items else math.nan


@dataclass(frozen=True)
class Recovery:
    """Accuracy after as a share of that before (1: all of it), with its interval. NaN where none was right before."""

    ratio: float
    low: float
    high: float


def answers_of(before: Mapping[str, bool], after: Mapping[str, bool]) -> Answers:
    """Pair the answers of the items that both have."""
    pairs = [(before[i], after[i]) for i in before.keys() & after.keys()]
    count = {(x, y): sum(1 for p in pairs if p == (x, y)) for x in (True, False) for y in (True, False)}
    return Answers(count[True, True], count[True, False], count[False, True], count[False, False])


def mcnemar(lost: int, gained: int) -> tuple[float, float]:
    """Return the exact p-values of McNemar's test: one-sided for "worse", and two-sided. 1 where nothing changed."""
    changed = lost + gained
    if not changed:
        return 1.0, 1.0
    one = float(stats.binomtest(lost, changed, alternative="greater").pvalue)
    return one, float(stats.binomtest(lost, changed).pvalue)


def accuracy_interval(answers: Answers, confidence: float = 0.95) -> tuple[float, float]:
    """Return Tango's score interval of the loss of accuracy: with no item changed at all it is not of zero width.

    Without items it is from -1 to 1, which says nothing.
    """
    n, b, c = answers.items, answers.lost, answers.gained
    if not n:
        return -1.0, 1.0
    z = float(stats.norm.isf((1 - confidence) / 2))

    def score(loss: float) -> float:
        half = -b - c + (2 * n - b + c) * loss
        back = max(0.0, (math.sqrt(max(0.0, half**2 + 8 * n * c * loss * (1 - loss))) - half) / (4 * n))
        variance = n * (2 * back + loss * (1 - loss))
        return (b - c - n * loss) / math.sqrt(variance) if variance > 0 else math.copysign(math.inf, b - c - n * loss)

    edge, estimate = 1 - 1e-12, answers.loss

    def root(target: float, low: float, high: float) -> float:
        """Bisect: the score falls with the loss."""
        if score(low) <= target:
            return low
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if score(middle) > target else (low, middle)
        return (low + high) / 2

    low = root(z, -edge, estimate) if estimate > -edge else -1.0
    high = root(-z, estimate, edge) if estimate < edge else 1.0
    return low, high


def recovery(answers: Answers, confidence: float = 0.95, seed: int = SEED) -> Recovery:
    """Return the recovery ratio with a paired bootstrap interval (percentiles)."""
    right = answers.kept + answers.lost
    if not right:
        return Recovery(math.nan, math.nan, math.nan)
    shares = np.array([answers.kept, answers.lost, answers.gained, answers.wrong]) / answers.items
    drawn = np.random.default_rng(seed).multinomial(answers.items, shares, RESAMPLES)
    base = drawn[:, 0] + drawn[:, 1]
    ratios = (drawn[:, 0] + drawn[:, 2])[base > 0] / base[base > 0]
    low, high = np.quantile(ratios, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Recovery((answers.kept + answers.gained) / right, float(low), float(high))


def detectable_accuracy_loss(items: int, churn: float, alpha: float = 0.025, power: float = 0.8) -> float:
    """Return the loss of accuracy (share of items) that ``items`` show with probability ``power``; 1: none.

    ``churn`` is the share of items that change from wrong to right for no reason, and as many back.
    """
    z, w = float(stats.norm.isf(alpha)), float(stats.norm.isf(1 - power))

    def short(loss: float) -> float:
        moved = loss + 2 * churn
        return loss * math.sqrt(items) - z * math.sqrt(moved) - w * math.sqrt(max(0.0, moved - loss**2))

    if items < 1 or not 0 <= churn < 0.5 or short(1 - 2 * churn) < 0:
        return 1.0
    return float(optimize.brentq(short, 1e-9, 1 - 2 * churn))


def items_needed(loss: float, churn: float, alpha: float = 0.025, power: float = 0.8) -> int | None:
    """Return how many items show a loss of accuracy with probability ``power``; None: more than ten million."""
    if detectable_accuracy_loss(_MOST_ITEMS, churn, alpha, power) > loss:
        return None
    low, high = 0, _MOST_ITEMS
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if detectable_accuracy_loss(middle, churn, alpha, power) <= loss else (middle, high)
    return high


def judge_quality(
    before: Mapping[str, bool],
    after: Mapping[str, bool],
    *,
    metric: Metric,
    subject: str,
    comparability: str = "",
    confidence: float = 0.95,
) -> Judgement:
    """Judge a model by which items (by their id) it answers right. ``metric.margin`` is in shares of all items.

    Different items are NOT_COMPARABLE. REGRESSED also needs the exact test to say so.
    """
    told = _Told(metric, subject, comparability, confidence)
    if (unlike := told.unlike(before, after)) is not None:
        return unlike
    answers = answers_of(before, after)
    p, _ = mcnemar(answers.lost, answers.gained)
    low, high = accuracy_interval(answers, confidence)
    level = (1 - confidence) / 2
    outcome = _decide(answers.loss, low, high, metric.margin)
    if outcome is Outcome.REGRESSED and p > level:
        outcome = Outcome.INCONCLUSIVE
    churn = max(min(answers.lost, answers.gained), 0.5) / answers.items
    visible = detectable_accuracy_loss(answers.items, churn, level)
    back = recovery(answers, confidence)
    reason = (
        f"Of {answers.items} items {answers.lost} are no longer right and {answers.gained} became right: a loss of "
        f"{percent(answers.loss)} of the items (interval {percent(low)} to {percent(high)}); exact McNemar p = {p:.2g}."
    )
    if math.isfinite(back.ratio):
        reason += f" Recovery {percent(back.ratio)} ({percent(back.low)} to {percent(back.high)})."
    settle = None
    if outcome is Outcome.INCONCLUSIVE:
        needed = items_needed(metric.margin, churn, level)
        how_many = f"{needed} items" if needed else "other items, fewer of which change for no reason,"
        settle = f"Evaluate {how_many} to show or rule out a loss of {percent(metric.margin)}."
    return told.judgement(outcome, reason, answers.items, (answers.loss, low, high), p, visible, settle)


def judge_likelihood(
    before: Mapping[str, float],
    after: Mapping[str, float],
    *,
    metric: Metric,
    subject: str,
    comparability: str = "",
    confidence: float = 0.95,
) -> Judgement:
    """Judge a model by the log-likelihood (nats) of each item (by its id): finer than right and wrong.

    Different items are NOT_COMPARABLE; a value that is no finite number makes PASS impossible.
    """
    told = _Told(metric, subject, comparability, confidence)
    if (unlike := told.unlike(before, after)) is not None:
        return unlike
    d = np.array([before[i] - after[i] for i in sorted(before)], dtype=np.float64)
    odd = int((~np.isfinite(d)).sum())
    if odd or len(d) < FEWEST_ITEMS:
        what = f"{odd} items have no finite likelihood" if odd else f"{len(d)} items are too few"
        settle = f"Look at the evaluation: {FEWEST_ITEMS} items or more, each with a finite likelihood, are expected."
        return told.judgement(Outcome.INCONCLUSIVE, f"Nothing can be said: {what}.", len(d), None, None, None, settle)
    low, high = _bootstrap(d, confidence)
    shift, error = float(d.mean()), float(d.std(ddof=1) / math.sqrt(len(d)))
    p = sign_flip(d) if len(d) <= MOST_FLIPPED else students_t(shift, error, len(d) - 1).p_greater
    outcome = decide(shift, low, high, metric.margin)
    needed = (float(stats.norm.isf((1 - confidence) / 2)) + float(stats.norm.isf(0.2))) * error
    reason = (
        f"The likelihood of an item fell by {percent(loss_of(shift))} on average over {len(d)} items (interval "
        f"{percent(loss_of(low))} to {percent(loss_of(high))}, paired bootstrap)."
    )
    more_of: str | None = None
    if outcome is Outcome.INCONCLUSIVE:
        more = math.ceil(len(d) * (needed / difference_of(metric.margin)) ** 2)
        more_of = f"Evaluate {max(more, len(d) + 1)} items to show or rule out a loss of {percent(metric.margin)}."
    losses = (loss_of(shift), loss_of(low), loss_of(high))
    return told.judgement(outcome, reason, len(d), losses, p, loss_of(needed), more_of)


@dataclass(frozen=True)
class _Told:
    """What the judgements on one model have in common."""

    metric: Metric
    subject: str
    comparability: str
    confidence: float

    def unlike(self, before: Mapping[str, object], after: Mapping[str, object]) -> Judgement | None:
        """Return the judgement on runs that did not answer the same items; None: they did."""
        odd = sorted(before.keys() ^ after.keys())
        if odd:
            reason = f"The items are not the same: {len(odd)} are in one run only, e.g. {listed(odd[:2])}."
            settle = "Evaluate the same items as before."
            return self.judgement(Outcome.NOT_COMPARABLE, reason, 0, None, None, None, settle)
        if not before:
            settle = "Evaluate the model before and after."
            return self.judgement(Outcome.INCONCLUSIVE, "No item was evaluated.", 0, None, None, None, settle)
        return None

    def judgement(
        self,
        outcome: Outcome,
        reason: str,
        items: int,
        losses: tuple[float, float, float] | None,
        p: float | None,
        visible: float | None,
        settle: str | None,
    ) -> Judgement:
        loss, low, high = losses or (None, None, None)
        return Judgement(
            subject=self.subject,
            subject_kind="model",
            metric=self.metric.name,
            comparability=self.comparability,
            layer=Layer.QUALITY,
            outcome=outcome,
            reason=reason,
            margin=self.metric.margin,
            confidence=self.confidence,
            loss=loss,
            loss_low=low,
            loss_high=high,
            p_value=p,
            detectable_loss=visible,
            units=items,
            launches_before=1 if items else 0,
            launches_after=1 if items else 0,
            runs_before=1 if items else 0,
            settle=settle,
        )


def _decide(loss: float, low: float, high: float, margin: float) -> Outcome:
    """Judge shares of items by the common rule, which is in logarithms."""
    as_log = [difference_of(min(share, 1 - 1e-9)) for share in (loss, low, high)]
    return decide(as_log[0], as_log[1], as_log[2], margin)


def _bootstrap(d: Floats, confidence: float) -> tuple[float, float]:
    if not np.ptp(d):
        return float(d[0]), float(d[0])
    found = stats.bootstrap(
        (d,),
        np.mean,
        n_resamples=RESAMPLES,
        batch=max(1, 4_000_000 // len(d)),
        confidence_level=confidence,
        method="BCa" if len(d) <= MOST_BCA else "percentile",
        rng=np.random.default_rng(SEED),
    ).confidence_interval
    return float(found.low), float(found.high)
