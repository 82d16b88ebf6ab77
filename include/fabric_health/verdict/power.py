"""What a comparison can see, and how many launches or units it takes to see more.

Variances are of log performance, so noises are shares of performance: 0.02 is 2 %. The power is that of the t-test
(noncentral t: Cohen, *Statistical Power Analysis*, 1988) where the noise is estimated from the data at hand, and the
normal one where it is known from history; ranks cost 1 - 3/pi of it (Hodges and Lehmann, Ann. Math. Stat. 1956;27:324).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

from scipy import special

from fabric_health.verdict.intervals import attained_level, fewest_pairs, ranks_can_tell
from fabric_health.verdict.launches import EFFICIENCY
from fabric_health.verdict.outcome import Metric
from fabric_health.verdict.panel import loss_of
from fabric_health.verdict.wording import plural

RANKS_EFFICIENCY = 3 / math.pi
MOST_LAUNCHES = 500
MOST_UNITS = 10_000
SCANNED = 24


@dataclass(frozen=True)
class Noise:
    """Standard deviations of log performance where nothing is wrong.

    ``launch``: between launches of one unit in one run. ``unit``: how a unit's level wanders from run to run, apart
    from the others'. ``run``: how the level of all units moves together from run to run (the day, the room, others).
    """

    launch: float
    unit: float = 0.0
    run: float = 0.0

    def __post_init__(self) -> None:
        if not all(math.isfinite(x) and x >= 0 for x in (self.launch, self.unit, self.run)) or self.launch == 0:
            raise ValueError(f"{self}: expected noises of 0 or more, and more than 0 between launches")


@dataclass(frozen=True)
class Design:
    """What is, or would be, measured: units that changed, control units, launches of each, runs before the change.

    ``judged`` is how many subjects are judged at once at a total level of ``alpha`` (one-sided): 1 for a change, all
    units for a weekly run. ``known``: the noise is known from history, not estimated from these launches.
    """

    units: int = 1
    controls: int = 0
    launches_before: int = 3
    launches_after: int = 3
    runs_before: int = 1
    judged: int = 1
    alpha: float = 0.025
    known: bool = False

    def __post_init__(self) -> None:
        counts = (self.units, self.launches_before, self.launches_after, self.runs_before, self.judged)
        if min(counts) < 1 or self.controls < 0 or not 0 < self.alpha < 0.5:
            raise ValueError(f"{self}: expected counts of 1 or more and a one-sided level below 0.5")

    @property
    def by_ranks(self) -> bool:
        """Whether the units alone can decide by their ranks."""
        confidence = 1 - 2 * self.alpha / self.judged
        if self.known:
            return False
        return (
            ranks_can_tell(self.units, self.controls, confidence)
            if self.controls
            else self.units >= fewest_pairs(confidence)
        )

    def words(self) -> str:
        """Return e.g. ``2 units, 14 control units, 3 launches before and 3 after``."""
        controls = f", {plural(self.controls, 'control unit')}" if self.controls else ""
        runs = f" in each of {self.runs_before} runs" if self.runs_before > 1 else ""
        launches = f"{plural(self.launches_before, 'launch')}{runs} before and {self.launches_after} after"
        return f"{plural(self.units, 'unit')}{controls}, {launches}"


@dataclass(frozen=True)
class Plan:
    """What it takes to see ``loss`` (share of performance) of ``metric``: ``sentence`` says it to a person.

    ``detectable_loss`` is what ``design`` shows with probability ``power``; ``launches`` (of each unit, before and
    after alike), ``launches_after`` (those before as they are) and ``units`` are what would show ``loss``, each with
    the rest of the design as it is; None: no number of them does.
    """

    metric: str
    loss: float
    power: float
    design: Design
    detectable_loss: float
    launches: int | None
    launches_after: int | None
    units: int | None
    sentence: str

    @property
    def enough(self) -> bool:
        """Whether the design as it is shows the loss."""
        return self.detectable_loss <= self.loss


def standard_error(noise: Noise, design: Design) -> float:
    """Return the standard error of the change of log performance of the units, less that of the control units."""
    runs = design.runs_before
    unit = noise.launch**2 * (1 / (design.launches_before * runs) + 1 / design.launches_after)
    unit += noise.unit**2 * (1 + 1 / runs)
    variance = unit / design.units
    variance += unit / design.controls if design.controls else noise.run**2 * (1 + 1 / runs)
    return math.sqrt(variance)


def detectable_shift(standard_error: float, df: float, alpha: float, power: float = 0.8) -> float:
    """Return the shift that a one-sided t-test at level ``alpha`` finds with probability ``power``.

    ``df`` infinite: the standard error is known. Infinite shift where the test can decide nothing. The quantile of the
    noncentral t is Abramowitz and Stegun's 26.7.10: off by 0.5 % at 4 degrees of freedom, by 5 % (too much) at one.
    """
    if not df >= 1 or not alpha > 0:
        return math.inf
    critical = -float(special.stdtrit(df, alpha) if math.isfinite(df) else special.ndtri(alpha))
    spread = math.sqrt(1 + critical**2 / (2 * df))
    return (critical * (1 - 1 / (4 * df)) + float(special.ndtri(power)) * spread) * standard_error


def detectable_loss(noise: Noise, design: Design, power: float = 0.8) -> float:
    """Return the loss (share of performance) that ``design`` shows with probability ``power``; 1: none."""
    error = standard_error(noise, design)
    alpha = design.alpha / design.judged
    if design.known:
        df = math.inf
    elif design.by_ranks:
        df = design.units + design.controls - (2 if design.controls else 1)
        alpha = attained_level(design.units, design.controls, 1 - 2 * alpha)
        error /= math.sqrt(RANKS_EFFICIENCY)
    else:
        launches = design.launches_before * design.runs_before + design.launches_after - design.runs_before - 1
        df = EFFICIENCY * (design.units + design.controls) * launches
    return loss_of(detectable_shift(error, df, alpha, power))


@lru_cache(maxsize=1024)
def launches_needed(
    noise: Noise, loss: float, design: Design, power: float = 0.8, *, after_only: bool = False
) -> int | None:
    """Return how many launches of each unit show ``loss``: in every run, or only after the change. None: no number."""

    def seen(launches: int) -> float:
        before = design.launches_before if after_only else launches
        return detectable_loss(noise, replace(design, launches_before=before, launches_after=launches), power)

    return _fewest(seen, loss, MOST_LAUNCHES)


@lru_cache(maxsize=1024)
def units_needed(noise: Noise, loss: float, design: Design, power: float = 0.8) -> int | None:
    """Return how many changed units, measured as in ``design``, show ``loss``. None: no number does."""
    return _fewest(lambda units: detectable_loss(noise, replace(design, units=units), power), loss, MOST_UNITS)


def plan(metric: Metric, loss: float, noise: Noise, design: Design, power: float = 0.8) -> Plan:
    """Say what it takes to see a loss of ``metric``. Raises ValueError when ``loss`` or ``power`` is no share."""
    if not (0 < loss < 1 and 0 < power < 1):
        raise ValueError(f"loss {loss} and power {power} are expected between 0 and 1")
    now = detectable_loss(noise, design, power)
    launches = launches_needed(noise, loss, design, power)
    after = launches_needed(noise, loss, design, power, after_only=True)
    units = units_needed(noise, loss, design, power)
    sees = f"a loss of {now:.1%} in {power:.0%} of cases" if now < 1 else "no loss, however large"
    first = f"{metric.name}: {design.words()} at {noise.launch:.1%} noise show {sees}."
    sentence = f"{first} {_advice(loss, now, launches, after, units, noise, design)}"
    return Plan(metric.name, loss, power, design, now, launches, after, units, sentence)


def _advice(
    loss: float, now: float, launches: int | None, after: int | None, units: int | None, noise: Noise, design: Design
) -> str:
    if now <= loss:
        return f"That is enough for {loss:.1%}."
    ways = []
    if after is not None:
        ways.append(f"{plural(after, 'launch')} of each unit after the change")
    if launches is not None and launches != after:
        ways.append(f"{plural(launches, 'launch')} of each unit both before and after")
    if units is not None:
        ways.append(f"{plural(units, 'changed unit')}")
    if ways:
        return f"For {loss:.1%} it takes {', or '.join(ways)}."
    if not design.controls and noise.run > 0:
        return f"For {loss:.1%} more launches do not help: what moves all units alike does. Measure control units too."
    return f"For {loss:.1%} more launches or units alone do not help: it takes both, or more runs before the change."


def _fewest(seen: Callable[[int], float], loss: float, most: int) -> int | None:
    """Return the smallest count with which a loss as small is seen.

    One by one first: where ranks take over from launches, one unit more may see a little less. Then by bisection.
    """
    for count in range(1, SCANNED + 1):
        if seen(count) <= loss:
            return count
    if seen(most) > loss:
        return None
    low, high = SCANNED, most
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if seen(middle) <= loss else (middle, high)
    return high
