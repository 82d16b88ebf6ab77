"""No text makes a reader raise, none breaks a contract, and none that shows no whole training passes silently."""

from __future__ import annotations

import json
from typing import Any

import pytest
from elastic_samples import ClusterRun, Run, Story, check_files
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fabric_health.checks.elastic_training.events import Source
from fabric_health.checks.elastic_training.parsers.dlrover_log import read_dlrover_log
from fabric_health.checks.elastic_training.parsers.job_report import read_job_report
from fabric_health.checks.elastic_training.parsers.training_events import read_faults, read_pods, read_training

FILES = Story().files()
WORDS = (
    "Round 1: The node status are {0: True}",
    "network-check round 2: The node elapsed time are: {0: 20.3, 1: 9e999}",
    "Completed 1 round rendezvous of elastic-training is {0: 0, 1: 1}",
    "Straggler: {1: 3}",
    "Fault nodes are: [1]",
    "The worker fails with {1: ProcessFailure(local_rank=1, exitcode=-9)}",
    "loss = nan, step = 7",
    'EV {"kind": "step"}',
    "Load checkpoint at step 99999999999999999999 from memory",
    "Decrement remaining FO to -99",
    "\t",
    "{",
    "\x1b[31m",
    "\x00",
    "[2026-11-30 05:00:10,000] [INFO] [x.py:1:f] ",
    "Rendezvous complete for workers. Result: group_world_size=9" + "9" * 30,
)
LINES = st.lists(st.sampled_from(WORDS) | st.text(max_size=40), max_size=12).map("\n".join)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
OBJECTS = st.dictionaries(
    st.sampled_from(
        ["t", "kind", "rank", "world", "node", "restart", "step", "loss", "fault", "event", "pod", "replica_id",
         "rank_index", "relaunch_count", "replica_type", "detail"]
    ),
    st.sampled_from([1796014800, "step", "resume", "kill-rank", "delete-worker", "running", 3, -1, 10**400]) | VALUES,
    max_size=9,
)  # fmt: skip
JSON_LINES = st.lists(OBJECTS.map(json.dumps) | st.text(max_size=20), max_size=8).map("\n".join)


@settings(max_examples=25)
@given(LINES, LINES, JSON_LINES)
@example("{" * 5000, "[" * 5000, "{" * 100_000)
@example("EV " + '{"a": ' * 3000, "", "")
@example("<html><body>502 Bad Gateway</body></html>", "", "null")
def test_no_output_of_a_cluster_is_taken_for_training(stdout: str, stderr: str, lines: str) -> None:
    run = ClusterRun(
        stdout=stdout, stderr=stderr, files={"faults.jsonl": lines, "pods.jsonl": lines, "master.log": stderr}
    )
    assert run.rules() != []
    assert run.quarantined() == []


@settings(max_examples=25)
@given(st.sampled_from(sorted(FILES)), LINES | JSON_LINES)
def test_no_file_of_one_machine_raises_or_passes_as_another(name: str, text: str) -> None:
    run = Run({**FILES, name: text})
    findings = run.findings()
    if name in ("job.json", "training.jsonl", "faults.jsonl"):
        assert findings != []
    assert run.quarantined() == []


@settings(max_examples=25)
@given(st.sampled_from(sorted(FILES)), st.integers(0, 100_000), st.integers(0, 300), st.text(max_size=20))
def test_damaged_files_never_raise(name: str, at: int, length: int, instead: str) -> None:
    text = FILES[name]
    at %= len(text)
    run = Run({**FILES, name: text[:at] + instead + text[at + length :]})
    run.findings()
    assert run.quarantined() == []


@settings(max_examples=15)
@given(LINES)
def test_no_log_of_a_node_check_passes_that_has_no_result(text: str) -> None:
    run = Run(check={**check_files(), "master.log": text})
    run.findings()
    assert run.quarantined() == []


@settings(max_examples=50)
@given(JSON_LINES, LINES)
def test_readers_never_raise(lines: str, log: str) -> None:
    for reader in (read_training, read_faults, read_pods):
        reader(lines)
    read_job_report(lines)
    for source in (Source.MASTER, Source.AGENT):
        read_dlrover_log(log, source, "0")


@given(st.dictionaries(st.sampled_from(sorted(json.loads(Story().job()))), VALUES, min_size=1, max_size=4))
def test_a_report_with_any_value_never_raises(change: dict[str, Any]) -> None:
    read_job_report(json.dumps({**json.loads(Story().job()), **change}))


def test_control_characters_do_not_reach_rows_or_findings() -> None:
    files = Story(report={"left": ["a\x1b[2J"], "problem": "b\x07"}).files()
    files["agent-0.log"] += "Downgrade to use torch-run \x1b]0;x\x07\n"
    run = Run(files)
    assert all("\x1b" not in str(v) and "\x07" not in str(v) for r in run.rows for v in r.__dict__.values())
    assert all("\x1b" not in str(f) and "\x07" not in str(f) for f in run.findings())


@pytest.mark.parametrize("piece", ["{", "\t", "EV {\n", "\n", " loss = \n", "loss = 1, step = 1\n", WORDS[5] + "\n"])
def test_rubbish_is_bounded(piece: str) -> None:
    text = piece * (200_000 // len(piece))
    assert len(read_dlrover_log(text, Source.AGENT).events) <= 50_000
    assert read_training(text).events == []
