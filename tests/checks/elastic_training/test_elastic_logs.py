"""Lines of DLRover 0.3.7 and 0.6, of training, faults and pods, each as what it says; rubbish as nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest
from elastic_samples import NOW, clock

from fabric_health.checks.elastic_training.events import Event, Kind, Source
from fabric_health.checks.elastic_training.node_checks import node_checks
from fabric_health.checks.elastic_training.parsers.dlrover_log import read_dlrover_log
from fabric_health.checks.elastic_training.parsers.job_report import read_job_report
from fabric_health.checks.elastic_training.parsers.log_lines import message
from fabric_health.checks.elastic_training.parsers.numbers import literal
from fabric_health.checks.elastic_training.parsers.training_events import (
    Other,
    fault_event,
    pod_event,
    read_training,
    training_event,
)

T = NOW.timestamp()
HEAD = f"[{clock(T)}] [INFO] [training.py:1:f] "


def one(text: str, node: str | None = None) -> Event:
    (event,) = read_dlrover_log(text, Source.AGENT, node).events
    return event


def fields(event: Event, *names: str) -> tuple[Any, ...]:
    return tuple(getattr(event, n) for n in names)


def test_times_of_all_forms() -> None:
    for text in (
        HEAD + "x",
        "[2026-11-30 05:00:00,000] [INFO] x",
        "2026-11-30T05:00:00.000000Z x",
        "2026-11-30T07:00:00+02:00 x",
        "[2026-11-30T05:00:00.000000] [12] x",
        "[default0]:2026-11-30 05:00:00 x",
    ):
        assert message(text).at == T, text
    for text in ("x", "[9999-99-99 05:00:00] x", "1970-01-01 00:00:00 x", "[2026-11-30"):
        assert message(text).at is None, text


@pytest.mark.parametrize(
    "text",
    [
        # The older release says all in one line, the newer one over several.
        HEAD + "[default] Rendezvous complete for workers. Result: restart_count=1 master_addr=a group_world_size=3",
        HEAD + "[default] Rendezvous complete for workers. Result:\n  restart_count=1\n  group_world_size=3\n  x=[1]\n",
    ],
)
def test_a_rendezvous_by_its_agent(text: str) -> None:
    assert fields(one(text, "2"), "kind", "at", "node", "world", "restart") == (Kind.RENDEZVOUS, T, "2", 3, 1)


def test_a_rendezvous_counts_processes_where_they_are_told() -> None:
    event = one(
        HEAD + "Rendezvous complete for workers. Result:\n  group_world_size=3\n  global_world_sizes=[24, 24]\n"
    )
    assert (event.world, event.detail) == (24, "group_world_size 3")


def test_the_rendezvous_of_a_node_check_is_not_that_of_training() -> None:
    log = (
        HEAD + "The node '' with rank 2 attempts to join the next round of the rendezvous network-check with x.\n"
        + HEAD + "[main] Rendezvous complete for workers. Result:\n  restart_count=0\n  group_world_size=2\n"
        + HEAD + "The node '' with rank 2 attempts to join the next round of the rendezvous elastic-training with x.\n"
        + HEAD + "[main] Rendezvous complete for workers. Result:\n  restart_count=0\n  group_world_size=4\n"
    )  # fmt: skip
    events = read_dlrover_log(log, Source.AGENT).events
    assert [(e.kind, e.node, e.world) for e in events] == [
        (Kind.CHECK_RENDEZVOUS, "2", 2),
        (Kind.RENDEZVOUS, "2", 4),
    ]


def test_a_rendezvous_by_the_master_tells_ranks() -> None:
    text = HEAD + "Completed 2 round rendezvous of elastic-training is {0: 0, 4: 1, 2: 2} \nThe times of nodes"
    reading = read_dlrover_log(text, Source.MASTER)
    assert fields(reading.events[0], "kind", "world", "detail") == (Kind.RENDEZVOUS, 3, "round 2 of elastic-training")
    assert reading.ranks == {0: 0, 4: 1, 2: 2}
    older = read_dlrover_log(HEAD + "Completed 1 round rendezvous of elastic-training is {0: 8, 1: 8}", Source.MASTER)
    assert (older.events[0].world, older.ranks) == (2, {})


@pytest.mark.parametrize(
    ("text", "kind", "expected"),
    [
        (
            "The worker fails with {1: ProcessFailure(local_rank=1, pid=77, exitcode=-9, error_file='<N/A>')}",
            Kind.WORKER_FAILED, {"rank": 1, "detail": "exit code -9"},
        ),
        ("Process diagnosis action: restart_worker 1", Kind.RESTART, {}),
        ("[default] Detected 1 new nodes from group_rank=0; will restart worker group", Kind.RESTART, {}),
        ("Decrement remaining FO to 2", Kind.RESTARTS_LEFT, {"value": 2, "detail": "2 left"}),
        ("Remove exited worker 3 with rank 1 from elastic-training rendezvous.", Kind.NODE_LOST, {"node": "1"}),
        ("The node 3-w-3 has not sent a heartbeat for over 300 seconds, last", Kind.NODE_LOST, {"node": "3"}),
        ("Load checkpoint at step 30 from memory.", Kind.CHECKPOINT_LOADED, {"step": 30, "detail": "memory"}),
        ("Load checkpoint at step 30 from the disk.", Kind.CHECKPOINT_LOADED, {"step": 30, "detail": "storage"}),
        ("Downgrade to use torch-run.", Kind.DOWNGRADED, {}),
        ("AllReduce Perf: world size = 16, algobw=1.1 GB/s, busbw=2.0 GB/s.", Kind.PERFORMANCE, {}),
        (
            "Network check time of round 0 is 20.3 and succeed is True.",
            Kind.NODE_CHECK, {"detail": "round 0: 20.3 s, passed"},
        ),
        ("Network check result is False", Kind.NODE_CHECK_FAILED, {}),
        ("Succeeded and exit.", Kind.EXIT, {}),
        ("Job exit with the reason Completed", Kind.EXIT, {}),
    ],
)  # fmt: skip
def test_lines_of_agents_and_master(text: str, kind: Kind, expected: dict[str, Any]) -> None:
    event = one(HEAD + text)
    assert (event.kind, event.at) == (kind, T)
    assert {k: getattr(event, k) for k in expected} == expected


@pytest.mark.parametrize(
    "text",
    [
        "RuntimeError: The node is a straggler and exits.",
        "RuntimeError: The node network is breakdown.",
        "NodeCheckFailedError: This node failed the node-check procedure(mat-mul + comm) before training.",
        "Network check needs at least 4 nodes.",
        "RuntimeError: This node is down.",
    ],
)
def test_ends_of_a_node_check_of_both_releases(text: str) -> None:
    assert one(text).kind is Kind.NODE_CHECK_FAILED


def test_what_training_prints() -> None:
    assert fields(one("loss = 2.29, step = 7"), "kind", "source", "loss", "step") == (
        Kind.STEP,
        Source.TRAINING,
        2.29,
        7,
    )
    assert fields(one("loss = nan, step = 7"), "loss", "step", "detail") == (None, 7, "loss is no finite number (nan)")
    line = json.dumps(
        {"t": T, "kind": "step", "rank": 1, "world": 2, "node": "1", "restart": "3", "step": 7, "loss": 1}
    )
    event = one(f"[default1]:EV {line}")
    assert fields(event, "at", "rank", "world", "node", "restart", "step", "loss") == (T, 1, 2, "1", 3, 7, 1.0)


def test_structured_events_of_newer_releases() -> None:
    line = '[2026-11-30T05:00:00.000000] [12] [ab-12] [DLROVER_AGENT] [#step] [INSTANT] {"global_step": 5}'
    assert fields(one(line), "kind", "at") == (Kind.STRUCTURED, T)


def test_logs_of_several_pods_one_after_the_other_are_told_apart() -> None:
    log = "".join(
        f"{HEAD}Launching agent entrypoint: main, args: [], name: main, rank: {rank}\n"
        f"{HEAD}The worker fails with {{{rank}: ProcessFailure(local_rank=0, exitcode=1)}}\n"
        for rank in (0, 3)
    )
    assert [e.node for e in read_dlrover_log(log, Source.AGENT).events] == ["0", "3"]


# -- node check ------------------------------------------------------------------------------------------------------

OLDER = (
    "Round 0: The node status are {1: False, 2: True, 3: True, 0: False}.\n"
    "Round 0: The node elapsed time aree {2: 20.307, 3: 20.265, 0: 206.872, 1: 151.752}\n"
    "Round 1: The node status are {1: False, 2: True, 3: True, 0: True}.\n"
    "Round 1: The node elapsed time are {2: 20.307, 3: 20.265, 0: 23.1, 1: 151.752}\n"
)
NEWER = (
    HEAD + "Completed 1 round rendezvous of network-check is {0: 0, 1: 1, 2: 2, 7: 3} \n"
    + HEAD + "network-check round 1: The node status are: {0: True, 1: True, 2: True, 7: False}, the node group\n"
    + HEAD + "network-check round 1: The node elapsed time are {0: 20.1, 1: 20.2, 2: 20.3, 7: 152.0}\n"
    + HEAD + "Fault nodes(rank:node_id) are: {3: 7}\n"
    + HEAD + "Straggler: {3: 152.0}.\n"
)  # fmt: skip


def test_node_checks_of_both_releases() -> None:
    older = read_dlrover_log(OLDER, Source.MASTER)
    rows = {(r.round, r.node): r for r in node_checks("x", older.checks, older.ranks, {})}
    assert len(rows) == 8
    assert (rows[0, "0"].passed, rows[0, "0"].elapsed_s) == (False, 206.872)
    assert (rows[1, "0"].passed, rows[1, "1"].passed) == (True, False)
    newer = read_dlrover_log(NEWER, Source.MASTER)
    by_node = {r.node: r for r in node_checks("x", newer.checks, newer.ranks, {3: "gpu-009"})}
    assert (by_node["gpu-009"].passed, by_node["gpu-009"].straggler, by_node["gpu-009"].elapsed_s) == (False, True, 152)
    assert by_node["0"].straggler is False


def test_agents_stand_in_where_the_masters_log_is_missing() -> None:
    log = HEAD + "Network check time of round 0 is 20.3 and succeed is True.\n"
    log += HEAD + "Fault nodes are: [] with reason: , and stragglers are: [1] with reason: \n"
    reading = read_dlrover_log(log, Source.AGENT, "0")
    rows = {r.node: r for r in node_checks("x", reading.checks, {}, {})}
    assert (rows["0"].elapsed_s, rows["0"].passed, rows["0"].straggler) == (20.3, True, False)
    assert (rows["1"].elapsed_s, rows["1"].straggler) == (None, True)
    older = read_dlrover_log(HEAD + "Fault nodes are: []  and stragglers are: [1].", Source.AGENT, "0")
    assert [e.kind for e in older.events] == [Kind.STRAGGLER]


@pytest.mark.parametrize(
    "text",
    [
        "Round 0: The node status are {1: maybe}",
        "Round 0: The node status are {'a': True}",
        "Round 0: The node elapsed time are {0: -5.0}",
        "Round 0: The node elapsed time are {0: 1e999}",
        "Completed 1 round rendezvous of elastic-training is {0: }",
        "Completed 1 round rendezvous of elastic-training is ",
        "Straggler: {0: __import__('os')}",
        "Fault nodes are: [0  and stragglers are: x",
        "Decrement remaining FO to many",
        "Rendezvous complete for workers. Result: none",
        'EV {"kind": "step"}',
        "EV {cut",
    ],
)
def test_lines_that_cannot_be_read_are_counted_not_taken(text: str) -> None:
    reading = read_dlrover_log(text, Source.MASTER)
    assert reading.events == []
    assert reading.damaged == 1


def test_literals_are_dictionaries_of_numbers_and_lists_alone() -> None:
    assert literal("{1: False, 2: 3.5}") == {1: False, 2: 3.5}
    assert literal("[]") == []
    for text in (
        "{",
        "{'a': 1}",
        "{1: [2]}",
        "1",
        "'x'",
        "{1: 2, **{}}",
        "{-1: 2}",
        "{1.5: 2}",
        "[" * 9000,
        "{1: x()}",
    ):
        assert literal(text) is None, text


# -- events as JSON --------------------------------------------------------------------------------------------------


def test_training_events_need_kind_time_and_step() -> None:
    good = {"t": T, "kind": "step", "step": 3, "loss": 0.5}
    assert isinstance(training_event(json.dumps(good)), Event)
    for change in ({"t": None}, {"t": 5}, {"t": "x"}, {"step": None}, {"step": -1}, {"step": 1.5}, {"kind": None}):
        assert training_event(json.dumps({**good, **change})) is None, change
    assert training_event(json.dumps({**good, "kind": "epoch"})) is Other.KIND
    reading = read_training(json.dumps(good) + "\n\n" + '{"t": 17\n' + json.dumps({**good, "kind": "epoch"}))
    assert (len(reading.events), reading.damaged) == (1, 1)


def test_faults_and_pods() -> None:
    fault = {"t": T, "fault": "delete-worker", "node": "gpu-7", "rank": None, "rank_index": 1, "pod": "w-1", "step": 20}
    event = fault_event(json.dumps(fault))
    assert isinstance(event, Event)
    assert fields(event, "kind", "node", "peer", "step", "detail") == (Kind.DELETE_WORKER, "gpu-7", 1, 20, "w-1")
    assert fault_event(json.dumps({**fault, "fault": "burn"})) is None
    pod = {"t": T, "pod": "w-4", "event": "running", "replica_id": 4, "rank_index": 1, "relaunch_count": 1, "node": "g"}
    event = pod_event(json.dumps(pod))
    assert isinstance(event, Event)
    assert fields(event, "kind", "value", "peer", "restart", "detail") == (Kind.POD_RUNNING, 4, 1, 1, "w-4")
    assert pod_event(json.dumps({**pod, "event": "exploded"})) is None
    assert pod_event(json.dumps({**pod, "replica_type": "dlrover-master"})) is Other.KIND


def test_the_report_of_a_job() -> None:
    said = {"program": "elastic_smoke", "exit_codes": {"agent-0": 0, "agent-1": None}, "left": ["x\x1b"], "agents": 2}
    report = read_job_report(json.dumps(said))
    assert report is not None
    assert (report.agents, report.left, report.stalled, report.problem) == (2, ("x",), False, "")
    for change in ({"program": "x"}, {"exit_codes": None}, {"exit_codes": {"a": "0"}}, {"left": "none"}):
        assert read_job_report(json.dumps({**said, **change})) is None, change
