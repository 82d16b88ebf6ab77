"""The answer of a run: every branch, and that it fails closed."""

from __future__ import annotations

import pytest

from fabric_health.answer import conclude, news, urgent_first
from fabric_health.datasets.tables import (
    Answer,
    Coverage,
    CoverageState,
    Finding,
    FindingKind,
    QualityResult,
    Severity,
    finding,
)


def found(
    unit: str = "gpu-001",
    severity: Severity = Severity.WARNING,
    kind: FindingKind = FindingKind.DEVIATION,
    explained_by: str | None = None,
) -> Finding:
    return finding(
        check="driver_firmware",
        rule="r",
        unit=unit,
        unit_kind="node",
        metric="m",
        severity=severity,
        kind=kind,
        summary=f"{unit} is odd.",
        explained_by=explained_by,
    )


def covered(judged: int, partial: int = 0, not_judged: int = 0) -> list[Coverage]:
    states = (
        [CoverageState.JUDGED] * judged + [CoverageState.PARTIAL] * partial + [CoverageState.NOT_JUDGED] * not_judged
    )
    return [Coverage("driver_firmware", f"gpu-{i:03}", "node", s.value) for i, s in enumerate(states)]


def expectation(success: bool, severity: Severity = Severity.CRITICAL) -> QualityResult:
    return QualityResult("facts", "expect_something", "x", severity.value, success, "in words")


NOT_JUDGED = {"severity": Severity.CRITICAL, "kind": FindingKind.NOT_JUDGED}


@pytest.mark.parametrize(
    ("findings", "coverage", "quality", "answer"),
    [
        ([], covered(10), [], Answer.HEALTHY),
        ([], covered(10), [expectation(True)], Answer.HEALTHY),
        ([], covered(9, 0, 1), [], Answer.HEALTHY),
        ([found(severity=Severity.INFO)], covered(10), [], Answer.HEALTHY),
        ([found(explained_by="another")], covered(10), [], Answer.HEALTHY),
        ([], covered(10), [expectation(False, Severity.WARNING)], Answer.HEALTHY),
        ([found()], covered(10), [], Answer.FINDINGS),
        ([found(severity=Severity.CRITICAL)], covered(10), [], Answer.FINDINGS),
        # A deviation stands whatever else is missing: it is known to be wrong.
        ([found()], covered(1, 0, 9), [expectation(False)], Answer.FINDINGS),
        # One node of many that could not be asked is a finding; too many are no judgement.
        ([found(**NOT_JUDGED)], covered(9, 0, 1), [], Answer.FINDINGS),
        ([found(**NOT_JUDGED)], covered(8, 0, 2), [], Answer.NOT_JUDGED),
        ([], covered(8, 2), [], Answer.NOT_JUDGED),
        ([], covered(10), [expectation(False)], Answer.NOT_JUDGED),
        ([], [], [], Answer.NOT_JUDGED),
        ([], covered(0, 0, 3), [], Answer.NOT_JUDGED),
    ],
)
def test_answer(findings, coverage, quality, answer: Answer) -> None:
    assert conclude(findings, coverage, quality, 0.9).answer is answer


def test_nothing_in_scope_is_never_healthy_even_without_a_floor() -> None:
    got = conclude([], [], [], 0.0)
    assert (got.answer, got.coverage_ratio) == (Answer.NOT_JUDGED, 0.0)


def test_counts_leave_out_what_is_explained_or_for_information() -> None:
    findings = [
        found("a", Severity.CRITICAL),
        found("b"),
        found("c", explained_by="x"),
        found("d", Severity.INFO),
    ]
    got = conclude(findings, covered(4), [], 0.5)
    assert (got.critical, got.warning, got.coverage_ratio) == (1, 1, 1.0)


def test_the_headline_says_what_and_how_much() -> None:
    assert conclude([], covered(3), [], 0.9).headline == "Nothing to look at: 3 units judged, every rule met."
    one = conclude([found("gpu-001/mlx5_0")], covered(3), [], 0.9).headline
    assert one == "1 finding on 1 of 3 units. Gpu-001/mlx5_0 is odd."
    both = conclude([found("gpu-001/mlx5_0"), found("rail-2")], covered(3), [], 0.9).headline
    assert both.startswith("2 findings on 1 of 3 units. ")  # a rail is no unit of the scope
    assert conclude([found("rail-2")], covered(3), [], 0.9).headline == "1 finding. Rail-2 is odd."
    many = conclude([found(f"gpu-00{i}/x") for i in range(5)], covered(6), [], 0.9).headline
    assert many.startswith("5 findings on 5 of 6 units. ")
    assert many.endswith("; and 2 more.")
    closed = conclude([], covered(1, 0, 1), [expectation(False)], 0.9).headline
    assert "Only 50% of what was in scope could be judged, the floor is 90%" in closed
    assert "1 critical data-quality expectation failed" in closed


def test_a_headline_is_never_empty() -> None:
    for coverage in ([], covered(1)):
        for quality in ([], [expectation(False)]):
            for floor in (0.0, 1.0):
                assert conclude([], coverage, quality, floor).headline.strip(". ")


def test_urgent_first() -> None:
    listed = [
        found("d", Severity.INFO),
        found("c"),
        found("b", Severity.CRITICAL, FindingKind.NOT_JUDGED),
        found("a", Severity.CRITICAL),
    ]
    assert [f.unit for f in urgent_first(listed)] == ["a", "b", "c", "d"]
    assert [f.unit for f in news([*listed, found("e", explained_by="x")])] == ["a", "b", "c"]


def test_healthy_does_not_call_judged_what_was_not() -> None:
    assert conclude([], covered(10), [], 0.9).headline == "Nothing to look at: 10 units judged, every rule met."
    got = conclude([], covered(9, 1), [], 0.9)
    assert got.answer is Answer.HEALTHY
    assert "9 of 10 units judged in full" in got.headline
