"""Missing is a finding: units that did not answer, answered nothing readable, or whose check never ended."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime
from pathlib import Path

import pytest

import fabric_health
from fabric_health.checks.check import RowSet
from fabric_health.checks.driver_firmware import DRIVER_FIRMWARE as CHECK
from fabric_health.datasets.run import RunKey
from fabric_health.datasets.tables import CoverageState, Fact, FindingKind, Severity, finding
from fabric_health.evidence import ReachStatus, StoredEvidence
from fabric_health.site import load_site
from fabric_health.unanswered import coverage, did_not_finish, unanswered, without_rows

SITE = load_site(Path(fabric_health.__file__).parents[1] / "sites" / "lab.yaml")
UNITS = SITE.nodes[:3]
ANSWERED = {ReachStatus.OK, ReachStatus.PARTIAL}


def stored(unit: str, status: ReachStatus = ReachStatus.OK, detail: str = "") -> StoredEvidence:
    return StoredEvidence(unit, f"evidence/{unit}", "0" * 64, status, detail)


def not_judged(unit: str, severity: Severity = Severity.WARNING, rule: str = "readable"):
    return finding(
        check=CHECK.name,
        rule=rule,
        unit=unit,
        unit_kind="node",
        metric="m",
        severity=severity,
        kind=FindingKind.NOT_JUDGED,
        summary=f"{unit} cannot be read",
    )


@pytest.mark.parametrize("status", [s for s in ReachStatus if s not in ANSWERED])
def test_every_way_of_not_answering_is_a_critical_finding_with_something_to_do(status: ReachStatus) -> None:
    (f,) = unanswered(CHECK, [stored("gpu-001", status, "because"), stored("gpu-002")])
    assert (f.unit, f.severity, f.kind, f.actual) == ("gpu-001", "critical", "not_judged", status.value)
    assert status.value.replace("_", " ") in f.summary
    assert "(because)" in f.summary
    assert f.action
    (c, *_rest) = coverage(CHECK, UNITS[:1], [stored("gpu-001", status, "because")], [f])
    assert (c.state, c.reason) == (CoverageState.NOT_JUDGED, f"{status.value}: because")


def test_those_that_answered_are_no_finding() -> None:
    assert unanswered(CHECK, [stored("gpu-001"), stored("gpu-002", ReachStatus.PARTIAL)]) == []


def test_a_long_detail_is_cut() -> None:
    (f,) = unanswered(CHECK, [stored("gpu-001", ReachStatus.MALFORMED, "x" * 10_000)])
    assert len(f.summary) < 300
    (c,) = coverage(CHECK, UNITS[:1], [stored("gpu-001", ReachStatus.MALFORMED, "x" * 10_000)], [])
    assert len(c.reason or "") <= 500


def test_an_answer_without_a_row_is_a_finding() -> None:
    rows = RowSet.gather([Fact("gpu-001/mlx5_0", "nic", "a", "value", "1")])
    refs = [stored("gpu-001"), stored("gpu-002"), stored("gpu-003", ReachStatus.HUNG)]
    (f,) = without_rows(CHECK, rows, refs)
    assert (f.unit, f.rule, f.severity, f.kind) == ("gpu-002", "unit_has_rows", "critical", "not_judged")
    states = [c.state for c in coverage(CHECK, UNITS, refs, [f])]
    assert states == ["judged", "not_judged", "not_judged"]


def test_a_unit_that_answered_in_part_is_never_judged_in_full() -> None:
    refs = [stored("gpu-001", ReachStatus.PARTIAL, "1 of 60 commands did not end: ethtool_S (timeout)")]
    (c,) = coverage(CHECK, UNITS[:1], refs, [])
    assert (c.state, c.reason) == (CoverageState.PARTIAL, "1 of 60 commands did not end: ethtool_S (timeout)")
    (c,) = coverage(CHECK, UNITS[:1], [stored("gpu-001", ReachStatus.PARTIAL)], [])
    assert c.reason


def test_coverage_has_a_row_for_every_unit_in_scope() -> None:
    refs = [stored("gpu-001"), stored("gpu-002")]
    part = not_judged("gpu-002/mlx5_0")
    got = {c.unit: (c.state, c.reason) for c in coverage(CHECK, UNITS, refs, [part])}
    assert got == {
        "gpu-001": ("judged", None),
        "gpu-002": ("partial", "gpu-002/mlx5_0 cannot be read"),
        "gpu-003": ("not_judged", "not asked"),
    }


def test_what_is_unknown_for_information_leaves_a_unit_judged() -> None:
    got = coverage(CHECK, UNITS[:1], [stored("gpu-001")], [not_judged("gpu-001", Severity.INFO)])
    assert got[0].state == CoverageState.JUDGED


def test_a_deviation_leaves_a_unit_judged() -> None:
    wrong = dataclasses.replace(not_judged("gpu-001"), kind=FindingKind.DEVIATION.value)
    assert coverage(CHECK, UNITS[:1], [stored("gpu-001")], [wrong])[0].state == CoverageState.JUDGED


def test_a_check_that_did_not_finish_judged_nobody() -> None:
    started = datetime(2026, 11, 30, 3, tzinfo=UTC)
    f = did_not_finish(RunKey("lab", "r", started, "lab"), CHECK)
    assert (f.unit, f.unit_kind, f.kind, f.severity) == (CHECK.name, "check", "not_judged", "critical")
    assert f.first_seen == started
    got = coverage(CHECK, UNITS, [stored(u.name) for u in UNITS], None)
    assert {(c.state, c.reason) for c in got} == {("not_judged", "the check did not finish")}
