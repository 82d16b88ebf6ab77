"""From an estimate and its interval to a word: one rule for every layer.

It is the reading of an interval against a margin that non-inferiority trials use (CONSORT extension on non-inferiority
and equivalence, JAMA 2012;308:2594): an interval that excludes the margin shows that no such loss is there; one that
merely includes zero shows nothing.
"""

from __future__ import annotations

import math

from fabric_health.verdict.outcome import Outcome
from fabric_health.verdict.panel import difference_of


def decide(difference: float, low: float, high: float, margin: float) -> Outcome:
    """Judge a difference of log performance, before minus after (positive: a loss), and its interval.

    * IMPROVED: no gain is excluded (``high < 0``), a gain of the margin is not, and the estimate is half of it or more;
    * PASS: a loss of ``margin`` (share of performance) is excluded;
    * REGRESSED: no loss is excluded (``low > 0``), a loss of the margin is not, and the estimate is half of it or more;
    * INCONCLUSIVE otherwise, and always when a number is missing.

    Half the margin: with the estimate itself held against the margin, a loss as large as the margin would be missed in
    every second run however little noise there is. A loss that is certain and certainly below the margin is a PASS.
    """
    if any(math.isnan(x) for x in (difference, low, high)):
        return Outcome.INCONCLUSIVE
    limit = difference_of(margin)
    if high < 0 and low <= -limit and difference <= -limit / 2:
        return Outcome.IMPROVED
    if high < limit:
        return Outcome.PASS
    if low > 0 and difference >= limit / 2:
        return Outcome.REGRESSED
    return Outcome.INCONCLUSIVE
