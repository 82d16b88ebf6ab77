"""Units of one run against each other: no history is needed, and the run's own effect cannot be blamed on anyone.

Modified z-scores as in Iglewicz and Hoaglin, How to Detect and Handle Outliers (ASQC, 1993): 0.6745 (x - median) / MAD,
an outlier beyond 3.5. A unit is blamed only if the gap matters in practice too.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from fabric_health.verdict import robust
from fabric_health.verdict.effects import FLOOR
from fabric_health.verdict.outcome import Judgement, Layer, Outcome
from fabric_health.verdict.panel import Floats, Panel, difference_of
from fabric_health.verdict.tested import CONFIDENCE, Counts, Tested, judgement_of, slower, without_numbers

CUT: Final = 3.5
FEWEST: Final = 8
_SCALE: Final = 0.6745


def modified_z(x: Floats, floor: float = 0.0) -> Floats:
    """Return the modified z-scores of one row of values; NaN stays NaN.

    ``floor`` is the smallest median absolute deviation that is believed: most units may measure the same to the last
    printed digit. With a deviation of zero, and no floor, scores are 0 or infinite.
    """
    apart = np.asarray(x, dtype=np.float64) - float(robust.median(np.asarray(x, dtype=np.float64)))
    mad = max(float(robust.median(np.abs(apart))), floor)
    if mad > 0:
        return np.asarray(_SCALE * apart / mad)
    return np.asarray(np.where(apart == 0, 0.0, np.copysign(np.inf, apart)))


def judge_peers(panel: Panel, run: int = -1) -> tuple[Judgement, ...]:
    """Judge every unit of one run (a position in ``panel.runs``) against the run's other units.

    REGRESSED: slower than the median by 3.5 modified z-scores and by the metric's margin, one-sided: a unit that is
    faster than its peers is PASS. PASS: a gap of the margin is excluded. INCONCLUSIVE below 8 units. Groups are not
    looked at: where units differ by design, e.g. by SKU, judge them in panels of their own.
    """
    performance = np.where(np.isfinite(panel.performance[run]), panel.performance[run], np.nan)
    launches = np.isfinite(performance).sum(axis=0)
    value = robust.median(performance, 0)
    measured = int((launches > 0).sum())
    floor = FLOOR * _SCALE
    scores = -modified_z(value, floor)
    sd = (
        max(float(robust.median(np.abs(value - float(robust.median(value))))), floor) / _SCALE if measured else math.nan
    )
    middle = float(robust.median(value)) if measured else math.nan
    found = []
    for u, unit in enumerate(panel.units):
        subject, counts = (unit, panel.unit_kind), Counts(measured, 0, int(launches[u]))
        if launches[u] < 1:
            found.append(without_numbers(panel, subject, Layer.PEERS, "not measured in this run", "a launch", counts))
        elif measured < FEWEST:
            reason = f"{measured} units were measured in this run; {FEWEST} show what is usual"
            settle = f"{FEWEST - measured} more units, or a history"
            found.append(without_numbers(panel, subject, Layer.PEERS, reason, settle, counts))
        else:
            found.append(_judge(panel, subject, middle - float(value[u]), sd, float(scores[u]), counts))
    return tuple(found)


def _judge(panel: Panel, subject: tuple[str, str], gap: float, sd: float, score: float, counts: Counts) -> Judgement:
    """Judge one unit: ``gap`` below the median of log performance, ``sd`` of units, and its modified z-score."""
    margin, level = panel.metric.margin, 0.5 * math.erfc(CUT / math.sqrt(2))
    tested = Tested(gap, (sd**2) * (1 + math.pi / 2 / counts.units), math.inf, level, 0.05)
    reason = f"{slower(gap)} than the median of {counts.units} units, modified z {score:.1f}"
    if score > CUT and gap >= difference_of(margin):
        return judgement_of(panel, subject, Layer.PEERS, tested, (Outcome.REGRESSED, reason, None), counts)
    if counts.launches_after >= 2 and tested.interval((1 - CONFIDENCE) / 2)[1] < difference_of(margin):
        return judgement_of(panel, subject, Layer.PEERS, tested, (Outcome.PASS, reason, None), counts)
    settle = "more launches of this unit" if counts.launches_after < 2 else "its own history: peers differ this much"
    return judgement_of(panel, subject, Layer.PEERS, tested, (Outcome.INCONCLUSIVE, reason, settle), counts)
