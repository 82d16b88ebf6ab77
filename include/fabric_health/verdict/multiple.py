"""Many comparisons at once: without correction, one in twenty sound ones looks bad.

Holm over the metrics of one change (any false alarm is one too many: family-wise error), Benjamini-Hochberg over links
(hundreds are judged, and a known small share of false ones among those named is what a technician can live with).
Sources: Holm, Scand. J. Stat. 1979;6:65; Benjamini and Hochberg, J. R. Stat. Soc. B 1995;57:289.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from scipy import stats

from fabric_health.verdict.outcome import Judgement, Outcome
from fabric_health.verdict.panel import Floats


def holm(p_values: Sequence[float]) -> Floats:
    """Return p-values adjusted by Holm's step-down, in the order given. Raises ValueError on a value outside 0..1."""
    p = _checked(p_values)
    order = np.argsort(p, kind="stable")
    stepped = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    adjusted = np.empty(len(p))
    adjusted[order] = np.minimum(stepped, 1.0)
    return adjusted


def benjamini_hochberg(p_values: Sequence[float]) -> Floats:
    """Return p-values adjusted by Benjamini and Hochberg's step-up, in the order given. Raises ValueError as above."""
    p = _checked(p_values)
    return np.asarray(stats.false_discovery_control(p, method="bh"), dtype=np.float64) if len(p) else p


def over_metrics(judgements: Sequence[Judgement]) -> tuple[Judgement, ...]:
    """Adjust the judgements on several metrics of one change by Holm; see ``_adjusted``."""
    return _adjusted(judgements, holm, "metrics of this change were judged (Holm)")


def over_links(judgements: Sequence[Judgement]) -> tuple[Judgement, ...]:
    """Adjust the judgements on many links, rails or pairs by Benjamini and Hochberg; see ``_adjusted``."""
    return _adjusted(judgements, benjamini_hochberg, "were judged at once (Benjamini-Hochberg)")


def _adjusted(
    judgements: Sequence[Judgement], adjust: Callable[[Sequence[float]], Floats], why: str
) -> tuple[Judgement, ...]:
    """Set ``p_adjusted``; a REGRESSED that does not survive becomes INCONCLUSIVE. Nothing ever becomes worse.

    Only what has a p-value takes part. A PASS needs no correction: it is refused, not granted, when in doubt.
    """
    at = [i for i, j in enumerate(judgements) if j.p_value is not None]
    result = list(judgements)
    for i, p in zip(at, adjust([_p(judgements[i]) for i in at]), strict=True):
        held = replace(judgements[i], p_adjusted=float(p))
        if held.outcome is Outcome.REGRESSED and p > (1 - held.confidence) / 2:
            reason = f"{held.reason} Alone this would count as a loss, but {len(at)} {why}: p = {p:.2g}."
            settle = held.settle or "Measure again, with as many launches as before: what is real shows again."
            held = replace(held, outcome=Outcome.INCONCLUSIVE, reason=reason, settle=settle)
        result[i] = held
    return tuple(result)


def _p(judgement: Judgement) -> float:
    return 1.0 if judgement.p_value is None else judgement.p_value


def _checked(p_values: Sequence[float]) -> Floats:
    p = np.asarray(p_values, dtype=np.float64)
    if p.ndim != 1 or not ((p >= 0) & (p <= 1)).all():
        raise ValueError("expected p-values between 0 and 1")
    return p
