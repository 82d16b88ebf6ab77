"""What a job leaves on a machine is found by its name, cleared away, and what is left is looked at; others' stays."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import elastic_tidy as tidy
import psutil
import pytest

# A leader that starts a child in a session of its own, and a grandchild whose parent ends at once.
TREE = """
import subprocess, sys, time
sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
subprocess.Popen(sleep, start_new_session=True)
orphan = f"import subprocess; subprocess.Popen({sleep!r}, start_new_session=True)"
subprocess.run([sys.executable, "-c", orphan])
print("up", flush=True)
time.sleep(600)
"""
PAST = "fh-elastic-{:x}-{:x}-1".format


def start_tree(job: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", TREE], env={**os.environ, tidy.MARK: job}, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    return process


@pytest.fixture
def traces(tmp_path: Path) -> Iterator[tidy.Traces]:
    for name in ("shm", "sockets", "scratch"):
        (tmp_path / name).mkdir()
    mine = tidy.Traces(
        f"{tidy.job_name()}", (tmp_path / "scratch",), None, tmp_path / "shm", tmp_path / "sockets", tmp_path / "none"
    )
    yield mine
    mine.clear()


def leave_files(traces: tidy.Traces, job: str) -> list[Path]:
    memory = traces.shared_memory / f"{job}-n0_ckpt_shm_0"
    memory.write_bytes(b"state")
    folder = traces.sockets / f"{job}-n1"
    folder.mkdir()
    (folder / "queue.sock").touch()
    return [memory, folder]


def test_a_whole_tree_and_all_files_of_the_job_go_and_nobody_elses(traces: tidy.Traces) -> None:
    leader, other = start_tree(traces.job), start_tree("fh-elastic-1-2-3")
    theirs = [*leave_files(traces, "fh-elastic-1-2-3"), traces.shared_memory / "psm_1"]
    theirs[-1].touch()
    leave_files(traces, traces.job)
    try:
        assert len(traces.processes()) == 3
        assert len(traces.left()) == 6
        assert traces.clear() == traces.left() == []
        assert leader.wait(5) is not None
        assert all(p.exists() for p in theirs)
        assert other.poll() is None
    finally:
        tidy.Traces("fh-elastic-1-2-3").clear()
        other.wait(5)


def test_what_is_left_is_told(traces: tidy.Traces, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        stuck = tidy.Traces(traces.job, (), port, traces.shared_memory, traces.sockets)
        (memory, _) = leave_files(traces, traces.job)
        monkeypatch.setattr(tidy, "_remove", lambda path: path == memory or path.rename(path.with_name("gone")))
        assert stuck.clear() == [str(memory), f"port {port}"]


def test_a_process_is_the_jobs_by_its_mark_alone(traces: tidy.Traces) -> None:
    leader = start_tree(traces.job)
    assert traces.owns(leader.pid)
    assert not traces.owns(os.getpid())
    traces.clear()
    leader.wait(5)
    assert not traces.owns(leader.pid)


def test_a_run_that_was_killed_is_cleared_away_by_the_next_one(traces: tidy.Traces, tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    past = PAST(tidy._namespace(), ended.pid)
    elsewhere = PAST(tidy._namespace() + 1, ended.pid)
    leader = start_tree(past)
    gone = leave_files(traces, past)
    kept = [p for job in (elsewhere, traces.job, "fh-elastic-x") for p in leave_files(traces, job)]
    (tmp_path / "tmp").mkdir()
    (tmp_path / "tmp" / f"{past}.abc").mkdir()
    told = tidy.sweep(traces.shared_memory, traces.sockets, tmp_path / "tmp")
    assert leader.wait(5) is not None
    assert len([t for t in told if t.startswith("process ")]) == 3
    assert {*map(str, gone), str(tmp_path / "tmp" / f"{past}.abc")} == {t for t in told if t.startswith("/")}
    assert not any(p.exists() for p in gone)
    assert all(p.exists() for p in kept)
    assert tidy.sweep(traces.shared_memory, traces.sockets, tmp_path / "tmp") == []


def test_a_job_of_this_very_process_is_no_past_one() -> None:
    assert not tidy._of_a_past_run(tidy.job_name())
    assert not tidy._of_a_past_run("fh-elastic")
    assert len(f"/tmp/ckpt_sock/{tidy.job_name()}-n99/sharedqueue_shard_dict_ckpt_meta_0.sock") < 108


def test_shared_folders_go_only_when_empty_and_new(tmp_path: Path) -> None:
    old, new, used = (tmp_path / n for n in ("old", "new", "used"))
    old.mkdir()
    before = tidy.present((old, new, used))
    new.mkdir()
    used.mkdir()
    (used / "theirs").touch()
    tidy.remove_empty(before, (old, new, used))
    assert [p.exists() for p in (old, new, used)] == [True, False, True]


def test_a_tree_that_is_gone_is_empty() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    assert tidy.tree(ended.pid) == []
    assert tidy.tree(os.getpid())[0] == psutil.Process()
