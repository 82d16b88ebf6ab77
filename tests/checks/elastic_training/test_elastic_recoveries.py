"""From faults to rows of recovery, on timelines whose answer is known."""

from __future__ import annotations

from typing import Any

import pytest
from elastic_samples import FAULTS, T0, ClusterRun, Part, Run, Story, local_site

from fabric_health.checks.elastic_training.events import Event, Kind, Source
from fabric_health.checks.elastic_training.parse import MAX_EVENTS_KEPT, MAX_STEPS_KEPT
from fabric_health.checks.elastic_training.recoveries import recoveries, recovering
from fabric_health.checks.elastic_training.tables import ElasticEvent, ElasticRecovery, ElasticRun
from fabric_health.checks.elastic_training.timeline import longest_stall, timeline


def step(at: float, number: int, **more: Any) -> Event:
    return Event(Kind.STEP, Source.TRAINING, T0 + at, step=number, **more)


def told(*events: Event, seconds: float = 100.0) -> list[ElasticRecovery]:
    line = timeline([sorted(events, key=lambda e: e.at or 0.0)], T0, T0 + seconds, {})
    return recoveries("x", line)


KILL = Event(Kind.KILL_RANK, Source.INJECTOR, T0 + 10, node="1", rank=1)
START = Event(Kind.START, Source.TRAINING, T0 + 13, world=2)


def test_the_rows_of_a_whole_story() -> None:
    run = Run()
    kill, lose, back = run.of(ElasticRecovery)
    assert [r.kind for r in (kill, lose, back)] == ["kill-rank", "lose-agent", "return-agent"]
    assert (kill.step_at_fault, kill.step_resumed, kill.lost_steps) == (33, 30, 3)
    assert (kill.world_before, kill.world_after) == (2, 2)
    assert kill.detected_s == pytest.approx(0.59, abs=0.01)
    assert kill.rendezvous_s == pytest.approx(1.99, abs=0.01)
    assert kill.resumed_s == pytest.approx(3.19, abs=0.01)
    assert (lose.world_before, lose.world_after, lose.lost_steps) == (2, 1, 0)
    assert (back.world_before, back.world_after, back.detected_s) == (1, 2, None)
    assert kill.loss_before is not None
    assert kill.loss_after is not None
    assert kill.loss_after < kill.loss_before
    assert [r.problem for r in (kill, lose, back)] == [None, None, None]


def test_steps_of_old_workers_after_the_fault_are_no_recovery() -> None:
    (row,) = told(step(9.9, 33), KILL, step(10.2, 34), START, step(13.5, 31))
    assert row.resumed_s == pytest.approx(3.5)
    assert (row.step_at_fault, row.step_resumed) == (33, 30)


def test_without_events_of_its_own_a_rendezvous_marks_the_restart() -> None:
    met = Event(Kind.RENDEZVOUS, Source.AGENT, T0 + 12, world=2, restart=1)
    loaded = Event(Kind.CHECKPOINT_LOADED, Source.AGENT, T0 + 12.5, step=25, detail="storage")
    (row,) = told(step(9.9, 33), KILL, met, loaded, step(14, 26))
    assert row.resumed_s == pytest.approx(4)
    assert row.rendezvous_s == pytest.approx(2)
    assert (row.step_resumed, row.loaded_from, row.world_after) == (25, "storage", 2)


def test_nothing_after_a_fault() -> None:
    (row,) = told(step(9.9, 33), KILL)
    assert (row.resumed_s, row.problem) == (None, "no step came after it")
    (row,) = told(KILL, START, step(13.5, 1))
    assert "no step was seen before it" in (row.problem or "")
    (row,) = told(step(9.9, 33), KILL, step(10.2, 34), step(60, 80))
    assert "neither a start of workers nor a rendezvous" in (row.problem or "")


def test_recovery_ends_at_the_next_fault() -> None:
    second = Event(Kind.KILL_RANK, Source.INJECTOR, T0 + 12, rank=0)
    first, other = told(step(9.9, 33), KILL, second, START, step(13.5, 31))
    assert first.resumed_s is None
    assert other.resumed_s == pytest.approx(1.5)


def test_an_agent_that_returns_before_training_went_on_ends_the_same_recovery() -> None:
    lose = Event(Kind.LOSE_AGENT, Source.INJECTOR, T0 + 10, node="1")
    back = Event(Kind.RETURN_AGENT, Source.INJECTOR, T0 + 11, node="1")
    rows = told(step(9.9, 33, world=2), lose, back, START, step(13.5, 31, world=2))
    assert [r.resumed_s for r in rows] == [pytest.approx(3.5), None]


def test_what_was_trained_since_the_last_start_counts_not_the_highest_step_ever() -> None:
    second = Event(Kind.KILL_RANK, Source.INJECTOR, T0 + 15)
    again = Event(Kind.START, Source.TRAINING, T0 + 17)
    _, row = told(step(9.9, 90), KILL, START, step(13.5, 31), step(14, 32), second, again, step(18, 31))
    assert (row.step_at_fault, row.step_resumed, row.lost_steps) == (32, 30, 2)


def test_stalls_beside_recoveries() -> None:
    events = [step(1, 1), step(2, 2), KILL, START, step(13, 3), step(43, 4), step(44, 5)]
    line = timeline([events], T0, T0 + 50, {})
    assert longest_stall(line, recovering(recoveries("x", line))) == pytest.approx(30)
    assert longest_stall(timeline([[]], T0, T0 + 50, {}), []) is None
    # Until its end a job that is not done has not stepped either.
    assert longest_stall(timeline([[step(1, 1)]], T0, T0 + 50, {}), []) == pytest.approx(49)
    done = Event(Kind.DONE, Source.TRAINING, T0 + 2)
    assert longest_stall(timeline([[step(1, 1), done]], T0, T0 + 50, {}), []) == 0


def test_times_of_another_clock_are_taken_off() -> None:
    line = timeline([[step(-500, 1), step(10, 2), step(90_000, 3)]], T0, T0 + 100, {})
    assert [e.at is None for e in line.events] == [True, False, True]
    assert [e.step for e in line.steps] == [2]


def test_nodes_are_named_where_pods_tell() -> None:
    rows = ClusterRun().of(ElasticEvent)
    assert {r.node for r in rows if r.source == "training"} >= {"gpu-001", "gpu-002"}
    assert {r.node for r in rows if r.kind == "worker_failed"} == {"gpu-001", "gpu-002"}


def test_the_timeline_is_in_order_and_of_many_steps_only_some_are_kept() -> None:
    parts = (Part(0, 3000, step_s=0.01), Part(3000, 6000, step_s=0.01, restart=1))
    story = Story(parts, FAULTS[:1])
    run = Run(story, local_site(steps=6000, faults=["kill-rank"]))
    rows = [r for r in run.of(ElasticEvent) if r.launch == "elastic-1"]
    assert [r.seq for r in rows] == list(range(len(rows)))
    times = [r.event_at for r in rows if r.event_at is not None]
    assert times == sorted(times)
    steps = [r.step for r in rows if r.kind == "step"]
    assert len(steps) <= MAX_STEPS_KEPT + 1
    assert (steps[0], steps[-1]) == (1, 6000)
    assert run.of(ElasticRecovery)[0].step_at_fault == 3000
    assert run.rules() == []


def test_a_timeline_that_is_too_long_says_so() -> None:
    files = Story().files()
    files["agent-0.log"] += "Succeeded and exit\n" * (MAX_EVENTS_KEPT + 10)
    run = Run(files)
    assert run.rules() == ["evidence_complete"]
    assert len([r for r in run.of(ElasticEvent) if r.launch == "elastic-1"]) == MAX_EVENTS_KEPT


def test_training_is_not_told_twice_where_agents_print_it_too() -> None:
    story = Story()
    files = story.files()
    files["agent-0.log"] += "".join(f"EV {line}\n" for line in files["training.jsonl"].splitlines())
    run = Run(files)
    assert run.of(ElasticEvent) == Run(story).of(ElasticEvent)


def test_restarts_are_those_that_agents_count_down() -> None:
    files = Story().files()
    files["agent-0.log"] += "Decrement remaining FO to 1\n"
    trained = next(r for r in Run(files).of(ElasticRun) if r.launch == "elastic-1")
    assert trained.restarts == 2
    files["agent-0.log"] += "Decrement remaining FO to -1\n"
    assert Run(files).rules() == ["restarts_within_limit"]
