"""From a difference and its standard error to a judgement: one way for units, groups and the fleet."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from scipy import special

from fabric_health.verdict.decision import decide
from fabric_health.verdict.outcome import Judgement, Layer, Outcome
from fabric_health.verdict.panel import Panel, difference_of, loss_of

CONFIDENCE: Final = 0.95
POWER_Z: Final = 0.8416
"""Normal quantile of 80 %: the power at which a detectable loss is told."""


@lru_cache(maxsize=4096)
def quantile(level: float, df: float) -> float:
    """Return how many standard errors have a one-sided probability of ``level`` (Student's t)."""
    return float(-special.stdtrit(df, level))


@dataclass(frozen=True)
class Tested:
    """A difference of log performance (before minus after, a loss is positive), and what it may be blamed at.

    ``level`` is the one-sided probability of a false alarm that this one test is allowed; ``alpha`` is what that is a
    part of. ``launch`` is the variance of one of its launches and ``fixed`` the variance that more of them leave.
    """

    difference: float
    variance: float
    df: float
    level: float
    alpha: float
    launch: float = 0.0
    fixed: float = 0.0

    @property
    def error(self) -> float:
        """Standard error."""
        return math.sqrt(self.variance)

    def interval(self, level: float) -> tuple[float, float]:
        """Return the interval that leaves ``level`` out at each end."""
        reach = quantile(level, self.df) * self.error
        return self.difference - reach, self.difference + reach

    def outcome(self, margin: float) -> Outcome:
        """Blame or praise at the strict level; PASS at the usual one: nobody is harmed by more of those."""
        strict = decide(self.difference, *self.interval(self.level), margin)
        if strict in (Outcome.REGRESSED, Outcome.IMPROVED):
            return strict
        usual = decide(self.difference, *self.interval((1 - CONFIDENCE) / 2), margin)
        return usual if usual is Outcome.PASS else Outcome.INCONCLUSIVE

    @property
    def p_value(self) -> float:
        """One-sided probability of such a loss, or a larger one, when there is none."""
        return float(special.stdtr(self.df, -self.difference / self.error))

    @property
    def detectable(self) -> float:
        """Loss (share) that data like these show in 80 % of cases."""
        return loss_of((quantile(self.level, self.df) + POWER_Z) * self.error)

    def launches_needed(self, margin: float) -> int | None:
        """Return how many launches rule out a loss of ``margin`` in 80 % of sound units; None: no number does."""
        room = (difference_of(margin) / (quantile((1 - CONFIDENCE) / 2, self.df) + POWER_Z)) ** 2 - self.fixed
        return math.ceil(self.launch / room) if room > 0 and self.launch > 0 else None


@dataclass(frozen=True)
class Counts:
    """How much data a judgement rests on."""

    units: int = 0
    launches_before: int = 0
    launches_after: int = 0
    runs_before: int = 0


def judgement_of(
    panel: Panel,
    subject: tuple[str, str],
    layer: Layer,
    tested: Tested,
    words: tuple[Outcome, str, str | None],
    counts: Counts,
) -> Judgement:
    """Write down a judgement: ``subject`` is name and kind, ``words`` outcome, reason and what would settle it."""
    low, high = tested.interval((1 - CONFIDENCE) / 2)
    outcome, reason, settle = words
    return Judgement(
        subject=subject[0],
        subject_kind=subject[1],
        metric=panel.metric.name,
        comparability=panel.comparability,
        layer=layer,
        outcome=outcome,
        reason=reason,
        margin=panel.metric.margin,
        confidence=CONFIDENCE,
        loss=loss_of(tested.difference),
        loss_low=loss_of(low),
        loss_high=loss_of(high),
        p_value=tested.p_value,
        p_adjusted=min(1.0, tested.p_value * tested.alpha / tested.level),
        detectable_loss=tested.detectable,
        units=counts.units,
        launches_before=counts.launches_before,
        launches_after=counts.launches_after,
        runs_before=counts.runs_before,
        settle=settle,
    )


def without_numbers(
    panel: Panel, subject: tuple[str, str], layer: Layer, reason: str, settle: str, counts: Counts = Counts()
) -> Judgement:
    """Return the INCONCLUSIVE judgement of what gave no number, or too few to say anything."""
    return Judgement(
        subject[0], subject[1], panel.metric.name, panel.comparability, layer, Outcome.INCONCLUSIVE, reason,
        panel.metric.margin, units=counts.units, launches_before=counts.launches_before,
        launches_after=counts.launches_after, runs_before=counts.runs_before, settle=settle,
    )  # fmt: skip


def percent(difference: float) -> str:
    """Return the size of a difference as a share in percent, e.g. ``5.1 %``."""
    return f"{100 * abs(loss_of(difference)):.1f} %"


def slower(difference: float) -> str:
    """Return e.g. ``5.1 % slower`` or ``0.4 % faster``."""
    return f"{percent(difference)} {'slower' if difference >= 0 else 'faster'}"


def between(tested: Tested) -> str:
    """Return the interval in words, e.g. ``95 % interval 3.9 to 6.3 %``; a gain is negative."""
    low, high = (100 * loss_of(x) for x in tested.interval((1 - CONFIDENCE) / 2))
    return f"{100 * CONFIDENCE:.0f} % interval {low:.1f} to {high:.1f} %"
