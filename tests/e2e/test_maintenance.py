"""Scripted maintenances on the lab: what hurt is found where it is, with the change that fits; the rest is not blamed.

One lab and one store for the whole module: four healthy runs, the last of them accepted as baseline, and then one run
after each maintenance, all compared with those four. Starts and names of runs are fixed, and they seed the noise of the
fleet: the numbers are the same every time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fabric_health import baselines, compared, pipeline
from fabric_health.datasets.tables import Finding, Run
from fabric_health.datasets.verdict_tables import Attribution, Verdict
from fabric_health.history import load_part
from fabric_health.lab import lab
from fabric_health.landed import Landed
from fabric_health.maintenance import Change, declare, resolve

pytestmark = pytest.mark.e2e

CHECKS = ("driver_firmware", "switch_config", "collectives")
FIRST = datetime(2026, 11, 2, 3, tzinfo=UTC)
AFTER = FIRST + timedelta(weeks=3, days=2)
# One collective of one size, three launches of every node and of every rail.
NCCL = {
    "collectives": ["all_reduce"],
    "min_bytes": 4 << 30,
    "max_bytes": 4 << 30,
    "groups": ["node", "rail"],
    "iterations": 10,
}
BENCHMARK = {"engines": ["lab_fleet"], "launches": 3, "nccl": NCCL, "isolation": {"enabled": False}}
OLD_DRIVER, NEW_DRIVER = "580.126.09", "570.148.08"
OLD_FIRMWARE, NEW_FIRMWARE = "28.43.2026", "28.39.1002"


@dataclass(frozen=True)
class After:
    """What a run after maintenance gave."""

    run: Run
    verdicts: list[Verdict]
    attributions: list[Attribution]
    findings: list[Finding]
    page: str

    @property
    def whole(self) -> Verdict:
        return next(v for v in self.verdicts if v.subject_kind == "run")

    def regressed(self) -> set[str]:
        """Return the single units that got slower."""
        return {v.subject for v in self.verdicts if v.outcome == "REGRESSED" and v.subject_kind in compared.SINGLE}

    def touched(self, unit_kind: str) -> Verdict:
        """Return the verdict on the touched nodes, or rails, together."""
        group = f"group_kind={unit_kind};"
        return next(v for v in self.verdicts if v.subject == compared.TOUCHED and group in v.comparability)


Maintain = Callable[..., After]
Fault = tuple[str, str, str | None]


@pytest.fixture(scope="module")
def maintain(lab_home: Any) -> Iterator[Maintain]:
    """Return a function that plants faults, makes the run after the maintenance, and heals the lab."""
    chain = lab_home.chain()
    rooms = replace(chain.rooms, site=replace(chain.rooms.site, checks={"collectives": BENCHMARK}))
    once = {"collectives": {**BENCHMARK, "confirm": {"enabled": False}}}
    healthy = replace(rooms, site=replace(rooms.site, checks=once))
    store, site = rooms.store, rooms.site

    def after(name: str, touched: str, kind: str, *faults: Fault, whole: bool = False) -> After:
        for fault in faults:
            lab.add_fault(lab_home.home, *fault)
        change = resolve(declare({"touched": touched, "kind": kind, "ticket": "CHG-7"}), site)
        try:
            ref, page = _after(rooms, name, change, whole=whole)
        finally:
            lab.heal(lab_home.home)
        run = pipeline.load_run(rooms, ref)
        landed = Landed(store, run)
        (row,) = load_part(store, Run, run.key, "run")
        named = load_part(store, Attribution, run.key, compared.PART)
        return After(row, landed.verdicts(), named, landed.of(Finding), page)

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FABRIC_HEALTH_HOME", str(lab_home.home))
        lab.heal(lab_home.home)
        for week in range(4):
            ref = _healthy(healthy, week)
        baselines.accept(
            store, site.name, pipeline.load_run(rooms, ref).key.run,
            by="operator", reason="acceptance test", now=AFTER - timedelta(days=1), origin="lab",
        )  # fmt: skip
        yield after


def _after(rooms: pipeline.Rooms, name: str, change: Change, *, whole: bool) -> tuple[str, str]:
    """Make a run after maintenance; return its reference and page. Not ``whole``: without data quality and page."""
    who = {"dag": "post_maintenance", "scheduler_run_id": name}
    if whole:
        done = pipeline.run_all(rooms, **who, started_at=AFTER, checks=CHECKS, change=change)
        return done.ref, rooms.store.get(done.page["prefix"] + "index.html").decode()
    ref = pipeline.open_run(rooms, **who, started_at=AFTER, checks=CHECKS, change=change)
    _stages(rooms, ref)
    return ref, ""


def _healthy(rooms: pipeline.Rooms, week: int) -> str:
    """Make a weekly run of the healthy lab, without data quality and page."""
    ref = pipeline.open_run(
        rooms, dag="weekly", scheduler_run_id=f"week-{week}", started_at=FIRST + timedelta(weeks=week), checks=CHECKS
    )
    assert _stages(rooms, ref)["answer"] == "HEALTHY"
    return ref


def _stages(rooms: pipeline.Rooms, ref: str) -> dict[str, Any]:
    for check in CHECKS:
        pipeline.collect(rooms, ref, check)
        pipeline.land(rooms, ref, check)
        pipeline.judge(rooms, ref, check)
    pipeline.compare(rooms, ref)
    pipeline.explain(rooms, ref)
    return pipeline.conclude(rooms, ref)


def on_nodes(kind: str, *numbers: int, parts: tuple[str, ...] = ("",)) -> list[Fault]:
    return [(kind, f"gpu-{n:03}{part}", None) for n in numbers for part in parts]


def controls_are_quiet(got: After) -> None:
    controls = [v for v in got.verdicts if v.role == "control"]
    # Rails as a set move with the run; without more runs of history that cannot be told from a loss.
    assert {v.outcome for v in controls if v.subject_kind == "set"} <= {"PASS", "INCONCLUSIVE"}
    assert not [v.subject for v in controls if v.outcome in ("REGRESSED", "IMPROVED", "NOT_COMPARABLE")]
    assert "got slower too" not in got.whole.reason


def test_nothing_at_all(maintain: Maintain) -> None:
    got = maintain("nothing", "gpu-[001-004]", "other")
    assert got.whole.outcome == got.run.verdict == "PASS"
    assert got.regressed() == set()
    assert got.attributions == []
    assert got.whole.explanation is None
    assert got.findings == []
    controls_are_quiet(got)


def test_another_driver_without_effect_is_seen_and_blamed_for_nothing(maintain: Maintain) -> None:
    got = maintain("driver", "gpu-[001-004]", "driver", *on_nodes("driver-version", 1, 2, 3, 4))
    assert got.whole.outcome == "PASS"
    assert got.touched("node").outcome == "PASS"
    # All rails run through the touched nodes; beside them stand rails of the nodes left alone, in the same run.
    assert "rails of the 12 nodes left alone" in got.touched("rail").reason
    assert got.regressed() == set()
    assert got.attributions == []
    assert got.whole.explanation is None
    assert "driver" not in got.whole.reason
    # The audit's own business: it is not the version that the site expects.
    assert {(f.unit, f.rule, f.actual) for f in got.findings} == {
        (f"gpu-{n:03}", "as_expected", NEW_DRIVER) for n in (1, 2, 3, 4)
    }
    controls_are_quiet(got)


def test_a_driver_that_costs_is_named_on_the_nodes_that_have_it(maintain: Maintain) -> None:
    slow = [*on_nodes("driver-version", 1, 2, 3, 4), *on_nodes("slow-node", 1, 2, 3, 4)]
    got = maintain("driver that costs", "gpu-[001-004]", "driver", *slow, whole=True)
    assert (got.whole.outcome, got.run.ticket) == ("REGRESSED", "CHG-7")
    assert got.regressed() == {"gpu-001", "gpu-002", "gpu-003", "gpu-004"}
    loss = got.touched("node").loss
    assert loss is not None
    assert abs(loss - 0.15) < 0.02
    first, *others = got.attributions
    assert (first.attribute, first.before, first.after) == ("driver_version", OLD_DRIVER, NEW_DRIVER)
    assert first.changed_units == "gpu-[001-004]"
    assert (first.moved_with, first.moved_without, first.unmoved_with) == (4, 0, 0)
    assert first.unmoved_without >= 10  # of twelve; a control that one slow launch left open says nothing either way
    assert (first.inseparable_from, others) == (None, [])
    assert f"driver_version {OLD_DRIVER} -> {NEW_DRIVER}" in (got.whole.explanation or "")
    assert "separates them: all 4 units with it moved, none of the 1" in (got.whole.explanation or "")
    assert f"driver_version {OLD_DRIVER} -&gt; {NEW_DRIVER}" in got.page
    controls_are_quiet(got)


def test_an_mtu_line_lost_on_a_leaf_is_named_with_the_rails_behind_it(maintain: Maintain) -> None:
    # The leaf's ports to nodes; the fleet model's cost is 5.5 % (docs/lab.md).
    lost = [("switch-mtu", f"leaf-2/Ethernet{n}", "1500") for n in range(0, 256, 8)]
    got = maintain("mtu", "leaf-2", "switch_config", *lost)
    assert got.whole.outcome == "REGRESSED"
    assert got.regressed() == {"rail-2", "rail-3"}
    loss = got.touched("rail").loss
    assert loss is not None
    assert 0.03 < loss < 0.08
    first, *others = got.attributions
    assert (first.attribute, first.before, first.after) == ("/PORT/<port>/mtu", "9216", "1500")
    assert (first.changed_units, first.inseparable_from, others) == ("leaf-2", None, [])
    assert (first.moved_with, first.moved_without, first.unmoved_with) == (2, 0, 0)
    assert first.unmoved_without >= 5
    assert "/PORT/<port>/mtu 9216 -> 1500" in (got.whole.explanation or "")
    controls_are_quiet(got)


def test_a_switch_line_that_nobody_declared_is_named_and_the_declared_driver_is_not(maintain: Maintain) -> None:
    lost = [("switch-mtu", f"leaf-3/Ethernet{n}/1", "1500") for n in range(1, 33)]
    got = maintain("undeclared", "gpu-[001-004]", "driver", *on_nodes("driver-version", 1, 2, 3, 4), *lost)
    assert got.whole.outcome == "REGRESSED"
    assert got.regressed() == {"rail-4", "rail-5"}
    assert got.touched("node").outcome == "PASS"
    first = got.attributions[0]
    assert (first.attribute, first.before, first.after) == ("interface <port> / mtu", "mtu 9214", None)
    assert (first.changed_units, first.inseparable_from) == ("leaf-3", None)
    assert "lost config line `interface <port> / mtu` on leaf-3/" in (got.whole.explanation or "")
    assert "separates them: all 2 units with it moved" in (got.whole.explanation or "")
    controls_are_quiet(got)


def test_firmware_and_driver_on_the_same_nodes_cannot_be_told_apart_without_another_test(maintain: Maintain) -> None:
    numbers = (5, 6, 7, 8)
    nics = tuple(f"/mlx5_{n}" for n in range(8))
    both = [*on_nodes("driver-version", *numbers), *on_nodes("nic-firmware", *numbers, parts=nics)]
    got = maintain("both", "gpu-[005-008]", "firmware", *both, *on_nodes("slow-node", *numbers))
    assert got.whole.outcome == "REGRESSED"
    assert got.regressed() == {"gpu-005", "gpu-006", "gpu-007", "gpu-008"}
    driver, firmware = f"driver_version {OLD_DRIVER} -> {NEW_DRIVER}", f"fw_version {OLD_FIRMWARE} -> {NEW_FIRMWARE}"
    assert {a.attribute: a.inseparable_from for a in got.attributions} == {
        "driver_version": firmware,
        "fw_version": driver,
    }
    assert {(a.moved_with, a.moved_without, a.unmoved_with) for a in got.attributions} == {(4, 0, 0)}
    explanation = got.whole.explanation or ""
    assert "cannot be told apart" in explanation
    assert f"To tell them apart: undo {driver} on gpu-005, gpu-006, keep {firmware} there" in explanation
    controls_are_quiet(got)
