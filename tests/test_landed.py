"""What may be called a change on the page of a run: never what was not read."""

from __future__ import annotations

from datetime import UTC, datetime

from fabric_health.changes import fact_changes
from fabric_health.datasets.tables import Fact
from fabric_health.landed import still_known

BEFORE_AT = datetime(2026, 11, 23, 3, tzinfo=UTC)


def fact(unit: str, attribute: str, value: str) -> Fact:
    return Fact(unit, "gpu" if "/" in unit else "node", attribute, "value", value)


BEFORE = [fact("gpu-001", "driver_version", "570"), fact("gpu-001/gpu0", "vbios_version", "1")]


def changed(now: list[Fact], judged: set[str]) -> list[tuple[str, str | None, str | None]]:
    found = fact_changes(now, still_known(BEFORE, now, judged), {"gpu-001": BEFORE_AT})
    return [(c.unit, c.before, c.after) for c in found]


def test_a_unit_that_was_not_asked_has_not_changed() -> None:
    assert changed([], set()) == []


def test_a_fact_that_is_gone_from_a_judged_unit_is_a_change() -> None:
    now = [fact("gpu-001", "driver_version", "570")]
    assert changed(now, {"gpu-001"}) == [("gpu-001/gpu0", "1", None)]


def test_of_a_partly_judged_unit_only_what_was_read_can_have_changed() -> None:
    now = [fact("gpu-001", "driver_version", "580")]
    assert changed(now, set()) == [("gpu-001", "570", "580")]
