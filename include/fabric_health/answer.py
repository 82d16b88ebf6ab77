"""The answer of a run: one word and one sentence, from findings, coverage and data quality. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import shorten

from fabric_health.datasets.tables import (
    Answer,
    Coverage,
    CoverageState,
    Finding,
    FindingKind,
    QualityResult,
    Severity,
)
from fabric_health.datasets.verdict_tables import Verdict
from fabric_health.verdict.outcome import Outcome

# Said of a run whose comparison rests on no judgement at all; never to be mistaken for a PASS.
NO_VERDICT = "NO_VERDICT"
# Reason of a judgement on what no earlier run measured in any way.
NEVER_MEASURED = "no earlier run measured this"
# Characters of a finding's summary in the headline: three of them still are one sentence.
SUMMARY_SHOWN = 160
_RANK = {Severity.CRITICAL.value: 0, Severity.WARNING.value: 1, Severity.INFO.value: 2}


@dataclass(frozen=True)
class Conclusion:
    """``coverage_ratio``: (check, unit) pairs fully judged / pairs in scope, 0 when nothing was in scope."""

    answer: Answer
    headline: str
    coverage_ratio: float
    critical: int
    warning: int


def urgent_first(findings: Sequence[Finding]) -> list[Finding]:
    """Return findings with the most urgent first: severity, judged before not judged, then unit and metric."""
    return sorted(findings, key=lambda f: (_RANK[f.severity], f.kind, f.unit, f.metric))


def news(findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings a person has to look at: warning or worse, not explained by another one, not acknowledged."""
    return [f for f in _standing(findings) if f.acknowledged_by is None]


def acknowledged(findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings that would be news, had not somebody said that they are expected."""
    return [f for f in _standing(findings) if f.acknowledged_by is not None]


def _standing(findings: Sequence[Finding]) -> list[Finding]:
    return urgent_first([f for f in findings if f.severity != Severity.INFO and f.explained_by is None])


def conclude(
    findings: Sequence[Finding],
    coverage: Sequence[Coverage],
    quality: Sequence[QualityResult],
    coverage_floor: float,
) -> Conclusion:
    """Conclude a run. It fails closed: too little judged, or data that breaks a critical expectation, is not healthy.

    A deviation makes the answer FINDINGS. Without one, coverage below ``coverage_floor`` or a failed critical
    expectation makes it NOT_JUDGED; a unit that could not be judged is a finding; HEALTHY is what is left.
    """
    judged = sum(c.state == CoverageState.JUDGED for c in coverage)
    ratio = judged / len(coverage) if coverage else 0.0
    look = news(findings)
    deviations = [f for f in look if f.kind == FindingKind.DEVIATION]
    broken = [q for q in quality if not q.success and q.severity == Severity.CRITICAL]
    if deviations:
        answer = Answer.FINDINGS
    elif ratio < coverage_floor or broken or not coverage:
        answer = Answer.NOT_JUDGED
    elif look:
        answer = Answer.FINDINGS
    else:
        answer = Answer.HEALTHY
    return Conclusion(
        answer=answer,
        headline=_headline(answer, look, coverage, ratio, coverage_floor, len(broken)) + _but(acknowledged(findings)),
        coverage_ratio=ratio,
        critical=sum(f.severity == Severity.CRITICAL for f in look),
        warning=sum(f.severity == Severity.WARNING for f in look),
    )


def _but(expected: Sequence[Finding]) -> str:
    """Return the sentence that keeps "every rule met" honest: acknowledged findings are there, too."""
    return f" Not counted: {_count(len(expected), 'acknowledged finding')}." if expected else ""


def _headline(
    answer: Answer,
    look: Sequence[Finding],
    coverage: Sequence[Coverage],
    ratio: float,
    floor: float,
    broken: int,
) -> str:
    units = len({c.unit for c in coverage})
    if answer is Answer.HEALTHY:
        full = units - len({c.unit for c in coverage if c.state != CoverageState.JUDGED})
        if full == units:
            return f"Nothing to look at: {units} units judged, every rule met."
        return f"Nothing to look at: {full} of {units} units judged in full, every rule met that could be judged."
    parts = []
    if look:
        # A rail, a SKU or a check that did not finish is no unit of the scope: counted as a finding, not as a unit.
        owners = {f.unit.split("/", 1)[0] for f in look} & {c.unit for c in coverage}
        where = f" on {len(owners)} of {_count(units, 'unit')}" if owners else ""
        parts.append(_count(len(look), "finding") + where)
        parts.append("; ".join(shorten(f.summary.rstrip("."), SUMMARY_SHOWN, placeholder=" ...") for f in look[:3]))
        if len(look) > 3:
            parts[-1] += f"; and {len(look) - 3} more"
    if not coverage:
        parts.append("nothing was in scope, so nothing was judged")
    elif ratio < floor:
        parts.append(f"only {ratio:.0%} of what was in scope could be judged, the floor is {floor:.0%}")
    if broken:
        parts.append(f"{_count(broken, 'critical data-quality expectation')} failed")
    return ". ".join(p[0].upper() + p[1:] for p in parts) + "."


def verdict_word(rows: Sequence[Verdict]) -> str:
    """Return the word of a run's verdict from all its rows: the outcome of the whole, or ``NO_VERDICT``.

    A run that was not compared, a first run, and one that measured nothing that gets a verdict have none.
    """
    whole = next((r for r in rows if r.subject_kind == "run"), None)
    if whole is None:
        return NO_VERDICT
    rests = any(r.layer for r in rows if r.against == whole.against) or whole.outcome != Outcome.INCONCLUSIVE
    return whole.outcome if rests else NO_VERDICT


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"
