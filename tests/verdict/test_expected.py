"""Expected changes: what an entry acknowledges, until when, and what it never does."""

from __future__ import annotations

from dataclasses import replace
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric_health.answer import acknowledged, conclude, news
from fabric_health.datasets.tables import Answer, Coverage, CoverageState, Finding, FindingKind, Severity, finding
from fabric_health.verdict.downstream import REGRESSION
from fabric_health.verdict.expected import Expected, acknowledge, expected_change

DAY = date(2026, 11, 30)


def entry(**more: object) -> Expected:
    base = Expected(
        number=0,
        units=frozenset({"gpu-001", "leaf-1/swp3"}),
        owner="jane@example.org",
        reason="canary of the new driver",
        expires=DAY,
        attribute="driver_version",
    )
    return replace(base, **more)  # type: ignore[arg-type]


def made(unit: str = "gpu-001", metric: str = "driver_version", rule: str = "as_expected", actual: str | None = "580"):
    return finding(
        check="driver_firmware",
        rule=rule,
        unit=unit,
        unit_kind="node",
        metric=metric,
        severity=Severity.WARNING,
        summary=f"{unit} is odd",
        actual=actual,
    )


def on_it(f: Finding, *entries: Expected, on: date = DAY) -> Finding:
    return acknowledge([f], entries, on)[0]


def test_an_entry_acknowledges_what_it_names_until_its_last_day() -> None:
    got = on_it(made(), entry(ticket="CHG-12"))
    assert got.acknowledged_by == "jane@example.org until 2026-11-30: canary of the new driver (CHG-12)"
    assert got.acknowledgement_expired is None
    assert got.severity == "warning"
    assert (news([got]), acknowledged([got])) == ([], [got])


def test_an_expired_one_comes_back_and_says_since_when() -> None:
    got = on_it(made(), entry(), on=date(2026, 12, 1))
    assert got.acknowledged_by is None
    assert got.acknowledgement_expired == "jane@example.org expired since 2026-11-30: canary of the new driver"
    assert (news([got]), acknowledged([got])) == ([got], [])


def test_a_renewed_entry_takes_the_place_of_the_expired_one() -> None:
    old, new = entry(expires=date(2026, 11, 1)), entry(number=1, owner="joe", expires=date(2027, 1, 1))
    for entries in ((old, new), (new, old)):
        assert (on_it(made(), *entries).acknowledged_by or "").startswith("joe until 2027-01-01")


@pytest.mark.parametrize(
    ("f", "more"),
    [
        (made("gpu-001/mlx5_0", "fw_version"), {"attribute": "fw_version"}),  # a unit stands for its parts
        (made("leaf-1/swp3", "mtu_bytes"), {"attribute": "mtu_*"}),
        (made(rule="unit_answers"), {"attribute": None, "rule": "unit_answers"}),
        (made(metric="all_reduce busbw_gbps", rule=REGRESSION), {"attribute": None, "metric": "*busbw*"}),
        (made(metric="all_reduce busbw_gbps", rule=REGRESSION), {"attribute": None, "rule": REGRESSION}),
        (made(actual="580.126.09"), {"value": "580.*"}),
        (made(), {"attribute": "driver_versio?"}),
    ],
)
def test_what_is_covered(f: Finding, more: dict[str, object]) -> None:
    assert on_it(f, entry(**more)).acknowledged_by is not None


@pytest.mark.parametrize(
    ("f", "more"),
    [
        (made("gpu-002"), {}),
        (made("leaf-1"), {"attribute": "*"}),  # an entry for a port is none for its switch
        (made("leaf-1/swp30"), {"attribute": "*"}),
        (made(metric="driver_version_x"), {}),
        (made(actual="570.1"), {"value": "580.*"}),  # another value than the one that is expected
        (made(actual=None), {"value": "580.*"}),
        (made(metric="busbw_gbps", rule=REGRESSION), {"attribute": "*"}),  # an expected change is no expected loss
        (made(), {"attribute": None, "rule": "as_expecte"}),
    ],
)
def test_what_is_not_covered(f: Finding, more: dict[str, object]) -> None:
    got = on_it(f, entry(**more))
    assert (got.acknowledged_by, got.acknowledgement_expired) == (None, None)


def test_changes_of_facts_and_config_lines() -> None:
    assert expected_change("gpu-001", "driver_version", "580", [entry()]) == entry()
    assert expected_change("gpu-001", "driver_version", "570", [entry(value="580*")]) is None
    assert expected_change("gpu-001", "driver_version", None, [entry(value="580*")]) is None
    assert expected_change("gpu-002", "driver_version", "580", [entry()]) is None
    line = entry(attribute="interface swp3 > mtu*")
    assert expected_change("leaf-1/swp3", "interface swp3 > mtu 9216", None, [line]) == line
    # An entry for a metric or a rule is about findings only.
    assert expected_change("gpu-001", "x", "1", [entry(attribute=None, rule="*")]) is None


def test_the_headline_does_not_hide_what_is_acknowledged() -> None:
    covered = [Coverage("driver_firmware", "gpu-001", "node", CoverageState.JUDGED.value)]
    got = conclude([on_it(made(), entry())], covered, [], 0.9)
    assert (got.answer, got.warning) == (Answer.HEALTHY, 0)
    assert got.headline.endswith("Not counted: 1 acknowledged finding.")


def test_what_is_acknowledged_still_counts_as_not_judged() -> None:
    silent = replace(made(rule="unit_answers"), kind=FindingKind.NOT_JUDGED.value)
    got = on_it(silent, entry(attribute=None, rule="unit_answers"))
    covered = [Coverage("driver_firmware", "gpu-001", "node", CoverageState.NOT_JUDGED.value)]
    assert conclude([got], covered, [], 0.9).answer is Answer.NOT_JUDGED


@given(st.text(alphabet="ab*?.[(\n", max_size=12), st.text(alphabet="ab*?.[(\n", max_size=12))
def test_patterns_match_as_written_and_nothing_raises(pattern: str, value: str) -> None:
    def slowly(p: str, v: str) -> bool:
        if not p:
            return not v
        if p[0] == "*":
            return any(slowly(p[1:], v[i:]) for i in range(len(v) + 1))
        return bool(v) and p[0] in ("?", v[0]) and slowly(p[1:], v[1:])

    got = expected_change("gpu-001", value, "1", [entry(attribute=pattern)])
    assert (got is not None) == slowly(pattern, value)


def test_a_pattern_of_many_stars_is_no_trap() -> None:
    assert expected_change("gpu-001", "a" * 20_000, "1", [entry(attribute="a*" * 100 + "b")]) is None
