"""What counts as a change of a fact between two runs."""

from __future__ import annotations

from datetime import UTC, datetime

from fabric_health.changes import VOLATILE, Change, fact_changes
from fabric_health.datasets.tables import Fact, FactState

AT = datetime(2026, 11, 23, 3, tzinfo=UTC)
BEFORE_AT = {"gpu-001": AT, "gpu-002": AT}


def fact(unit: str, attribute: str, value: str | None, state: FactState = FactState.VALUE) -> Fact:
    return Fact(unit, "nic" if "/" in unit else "node", attribute, state.value, value)


def changes(before: list[Fact], now: list[Fact]) -> list[tuple[str, str | None, str | None]]:
    return [(c.unit, c.before, c.after) for c in fact_changes(now, before, BEFORE_AT)]


def test_a_value_that_moved_is_a_change_with_the_day_it_was_last_seen() -> None:
    got = fact_changes(
        [fact("gpu-001/mlx5_0", "fw_version", "2")], [fact("gpu-001/mlx5_0", "fw_version", "1")], BEFORE_AT
    )
    assert got == [Change("gpu-001/mlx5_0", "nic", "fw_version", "1", "2", AT)]


def test_equal_values_are_no_change() -> None:
    same = [fact("gpu-001", "kernel_release", "5.15")]
    assert changes(same, same) == []


def test_what_appears_or_goes_on_a_known_unit_is_a_change() -> None:
    one = [fact("gpu-001/mlx5_0", "fw_version", "1")]
    assert changes([], one) == [("gpu-001/mlx5_0", None, "1")]
    assert changes(one, []) == [("gpu-001/mlx5_0", "1", None)]


def test_a_tool_that_stopped_supporting_it_is_a_change() -> None:
    was, now_is = fact("gpu-001", "ofed", "24.10"), fact("gpu-001", "ofed", None, FactState.UNSUPPORTED)
    assert changes([was], [now_is]) == [("gpu-001", "24.10", None)]
    assert changes([now_is], [now_is]) == []


def test_a_unit_that_is_new_has_not_changed() -> None:
    assert changes([], [fact("gpu-003", "kernel_release", "5.15")]) == []


def test_what_could_not_be_read_is_not_compared() -> None:
    broken = fact("gpu-001", "ofed", None, FactState.ERROR)
    assert changes([fact("gpu-001", "ofed", "1")], [broken]) == []
    assert changes([broken], [fact("gpu-001", "ofed", "1")]) == []


def test_what_moves_by_itself_is_no_change() -> None:
    assert VOLATILE
    for attribute in VOLATILE:
        assert changes([fact("gpu-001", attribute, "1")], [fact("gpu-001", attribute, "2")]) == []


def test_equal_changes_of_several_units_stand_together() -> None:
    before = [fact(u, a, "1") for u in ("gpu-002", "gpu-001") for a in ("x", "a")]
    now = [fact(u, a, "2") for u in ("gpu-001", "gpu-002") for a in ("a", "x")]
    got = fact_changes(now, before, BEFORE_AT)
    assert [(c.attribute, c.unit) for c in got] == [
        ("a", "gpu-001"),
        ("a", "gpu-002"),
        ("x", "gpu-001"),
        ("x", "gpu-002"),
    ]
