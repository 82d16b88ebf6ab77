"""Which run another is compared with, and accepting one: who, when, why."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from fabric_health import baselines
from fabric_health.datasets import landing, sql
from fabric_health.datasets.run import RunKey, run_name
from fabric_health.datasets.store import ObjectStore
from fabric_health.datasets.tables import Run
from fabric_health.errors import UsageError

START = datetime(2026, 9, 7, 3, tzinfo=UTC)
NOW = START + timedelta(weeks=52)
CHECKS = ("collectives",)


def key(n: int) -> RunKey:
    at = START + timedelta(weeks=n)
    return RunKey("lab", run_name("weekly", str(n), at), at, "lab")


def conclude(
    store: ObjectStore,
    n: int,
    *,
    answer: str = "HEALTHY",
    checks: str = "driver_firmware,collectives",
    verdict: str | None = None,
) -> str:
    row = Run(
        "weekly", "x", key(n).started_at, checks, 1, 0, answer, "nothing", 1.0, 0, 0, 1, 0, "0" * 64, "1", verdict
    )
    landing.land(store, key(n), "run", [(row, None)], (Run,))
    return key(n).run


def reference(store: ObjectStore, n: int = 40, baseline: str | None = None) -> baselines.Reference:
    return baselines.reference(store, "lab", checks=CHECKS, before=key(n).started_at, baseline=baseline)


def accept(store: ObjectStore, run: str, **more: object) -> None:
    options = {"by": "ops", "reason": "quiet week", "now": START + timedelta(weeks=30)} | more
    baselines.accept(store, "lab", run, **options)  # type: ignore[arg-type]


def test_without_an_accepted_run_it_is_the_latest_that_measured_the_same(store: ObjectStore) -> None:
    names = [conclude(store, n) for n in range(12)]
    conclude(store, 12, checks="driver_firmware")
    got = reference(store)
    assert got.run is not None
    assert got.run.run == names[-1]
    assert [h.run for h in got.history] == names[-8:]
    assert "none was accepted" in got.why


def test_a_loss_that_nobody_accepted_is_not_what_the_next_runs_are_held_against(store: ObjectStore) -> None:
    names = [conclude(store, n, verdict="REGRESSED" if n in (1, 4, 5) else "PASS") for n in range(6)]
    got = reference(store)
    assert got.run is not None
    assert got.run.run == names[3]
    assert [h.run for h in got.history] == names[:4]
    assert "that did not regress" in got.why
    accept(store, names[5])
    assert getattr(reference(store).run, "run", None) == names[5]


def test_where_all_earlier_runs_regressed_it_is_the_first(store: ObjectStore) -> None:
    names = [conclude(store, n, verdict="REGRESSED") for n in range(3)]
    assert getattr(reference(store).run, "run", None) == names[0]


def test_a_site_without_runs_has_no_reference(store: ObjectStore) -> None:
    got = reference(store)
    assert (got.run, got.history) == (None, ())
    assert "no earlier run" in got.why


def test_the_accepted_run_is_what_counts_until_another_is_accepted(store: ObjectStore) -> None:
    names = [conclude(store, n) for n in range(6)]
    accept(store, names[2])
    got = reference(store)
    assert got.run is not None
    assert got.run.run == names[2]
    assert [h.run for h in got.history] == names
    assert "accepted by ops on 2027-04-05" in got.why
    accept(store, names[4], now=START + timedelta(weeks=31))
    assert (reference(store).run or got.run).run == names[4]


def test_audits_in_between_do_not_push_the_accepted_run_out_of_sight(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(baselines, "MAX_RUNS_BACK", 4)
    names = [conclude(store, n) for n in range(3)]
    accept(store, names[1])
    for n in range(3, 9):
        conclude(store, n, checks="driver_firmware")
    assert getattr(reference(store).run, "run", None) == names[1]
    for n in range(9, 13):
        conclude(store, n)
    assert "none of the last 4 was accepted" in reference(store).why


def test_a_short_past_goes_on_with_the_first_later_runs_that_did_not_regress(store: ObjectStore) -> None:
    names = [conclude(store, n) for n in range(3)]
    slow = conclude(store, 3, verdict="REGRESSED")
    names += [conclude(store, n, verdict="PASS") for n in range(4, 14)]
    accept(store, names[1], resets_history=True)
    got = [h.run for h in reference(store).history]
    assert got == names[1:9]
    assert slow not in got


def test_an_acceptance_after_the_run_does_not_change_what_it_was_compared_with(store: ObjectStore) -> None:
    names = [conclude(store, n) for n in range(4)]
    accept(store, names[0], now=START + timedelta(weeks=50))
    got = reference(store, 10)
    assert got.run is not None
    assert got.run.run == names[3]


def test_a_new_level_leaves_older_runs_out_of_history(store: ObjectStore) -> None:
    names = [conclude(store, n) for n in range(6)]
    accept(store, names[3], resets_history=True)
    accept(store, names[5], now=START + timedelta(weeks=31))
    assert [h.run for h in reference(store).history] == names[3:]


def test_a_run_or_a_pinned_name_can_be_asked_for(store: ObjectStore) -> None:
    names = [conclude(store, n) for n in range(3)]
    accept(store, names[1], pinned_as="driver-580")
    for wanted in (names[1], "driver-580"):
        got = reference(store, baseline=wanted)
        assert got.run is not None
        assert got.run.run == names[1]
    with pytest.raises(UsageError, match="no concluded run 'driver-58'; nearest: driver-580"):
        reference(store, baseline="driver-58")
    with pytest.raises(UsageError, match="not before the run"):
        reference(store, 1, baseline=names[2])


def test_accepting_is_recorded_with_who_when_and_why(store: ObjectStore) -> None:
    run = conclude(store, 1)
    accept(store, run, by=" alice ", pinned_as="quiet")
    rows = sql.query(store, "SELECT run, accepted_by, reason, pinned_as, resets_history FROM baselines").to_pylist()
    assert rows == [
        {"run": run, "accepted_by": "alice", "reason": "quiet week", "pinned_as": "quiet", "resets_history": False}
    ]


def test_a_run_can_be_accepted_by_the_name_that_it_is_pinned_under(store: ObjectStore) -> None:
    runs = [conclude(store, n) for n in range(3)]
    accept(store, runs[0], pinned_as="quiet")
    accept(store, runs[1], now=START + timedelta(weeks=31))
    accept(store, "quiet", now=START + timedelta(weeks=32))
    assert [a.run for a in baselines.accepted(store, "lab")] == [runs[0], runs[1], runs[0]]
    got = reference(store)
    assert got.run is not None
    assert got.run.run == runs[0]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"by": "  "}, "who accepts it"),
        ({"reason": ""}, "why"),
        ({"reason": "x" * 3000}, "why: 1 to 2000"),
        ({"pinned_as": "Two Words"}, "cannot name a baseline"),
    ],
)
def test_a_half_said_acceptance_is_refused(store: ObjectStore, more: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        accept(store, conclude(store, 1), **more)


def test_a_run_that_could_not_be_judged_is_not_what_is_normal(store: ObjectStore) -> None:
    with pytest.raises(UsageError, match="could not be judged"):
        accept(store, conclude(store, 1, answer="NOT_JUDGED"))
    with pytest.raises(UsageError, match="no concluded run"):
        accept(store, "weekly-never")
