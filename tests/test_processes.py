"""Background processes: found again, never mistaken for another, stopped with everything they started."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import uuid
from pathlib import Path

import psutil
import pytest

from fabric_health.processes import Background, Started

# Starts a child in the same session and one that leaves it, tells their pids, and waits.
FAMILY = """
import subprocess, sys, time
def child(**how):
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"], **how).pid
print(child(), child(start_new_session=True), flush=True)
time.sleep(300)
"""
STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
time.sleep(300)
"""


def background(folder: Path, mark: tuple[str, str] | None = None) -> Background:
    return Background("the test's process", folder / "process.json", folder / "process.log", mark)


def told(b: Background) -> list[str]:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        words = b.log.read_text().split()
        if words:
            return words
        time.sleep(0.02)
    raise AssertionError("the process said nothing")


@pytest.fixture
def marked(tmp_path: Path):
    mark = ("FABRIC_HEALTH_TEST_MARK", uuid.uuid4().hex)
    b = background(tmp_path, mark)
    yield b
    b.stop(1)


def start(b: Background, program: str) -> Started:
    env = dict(os.environ)
    if b.mark:
        env[b.mark[0]] = b.mark[1]
    return b.start([sys.executable, "-c", program], env=env)


def test_stop_takes_children_also_those_that_left_the_session(marked: Background) -> None:
    leader = start(marked, FAMILY)
    family = [leader.pid, *(int(w) for w in told(marked)[:2])]
    assert os.getsid(family[1]) == leader.pid
    assert os.getsid(family[2]) != leader.pid
    assert marked.stop() is True
    assert [p for p in family if psutil.pid_exists(p) and psutil.Process(p).status() != psutil.STATUS_ZOMBIE] == []
    assert marked.running() is None
    assert not marked.record.exists()
    assert marked.stop() is False


def test_children_are_found_when_the_leader_and_its_record_are_gone(marked: Background) -> None:
    leader = start(marked, FAMILY)
    strays = [int(w) for w in told(marked)[:2]]
    psutil.Process(leader.pid).kill()
    psutil.Process(leader.pid).wait(10)
    marked.record.unlink()
    assert marked.running() is None
    assert marked.stop() is True
    assert not any(psutil.pid_exists(p) and psutil.Process(p).status() != psutil.STATUS_ZOMBIE for p in strays)


def test_what_does_not_go_politely_goes_by_force(tmp_path: Path) -> None:
    b = background(tmp_path)
    leader = start(b, STUBBORN)
    told(b)
    assert b.stop(patience_s=0.5) is True
    assert leader.process() is None


def test_another_process_with_the_same_number_is_left_alone(tmp_path: Path) -> None:
    b = background(tmp_path)
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as innocent:
        later = psutil.Process(innocent.pid).create_time() + 3600
        b.record.write_text(json.dumps({"pid": innocent.pid, "started": later}))
        assert b.running() is None
        assert b.stop(1) is False
        assert innocent.poll() is None
        innocent.kill()


def test_a_session_whose_number_another_process_has_now_is_left_alone(tmp_path: Path) -> None:
    """As after a restart of the machine: the recorded process is long gone, the innocent one started later."""
    b = background(tmp_path)
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as innocent:
        earlier = psutil.Process(innocent.pid).create_time() - 3600
        b.record.write_text(json.dumps({"pid": innocent.pid, "started": earlier}))
        assert b.running() is None
        assert b.stop(1) is False
        assert innocent.poll() is None
        innocent.kill()


def test_a_session_of_before_the_machine_started_is_not_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    leader = subprocess.Popen(
        [sys.executable, "-c", "import subprocess; print(subprocess.Popen(['sleep', '60'], stdout=2).pid)"],
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    orphan = psutil.Process(int(leader.communicate(timeout=30)[0]))
    b = background(tmp_path)
    started = orphan.create_time()
    b.record.write_text(json.dumps({"pid": leader.pid, "started": started}))
    monkeypatch.setattr(psutil, "boot_time", lambda: started + 60)
    assert b.stop(1) is False
    assert orphan.is_running()
    monkeypatch.setattr(psutil, "boot_time", lambda: started - 60)
    assert b.stop(1) is True
    assert not psutil.pid_exists(orphan.pid) or orphan.status() == psutil.STATUS_ZOMBIE


def test_whoever_stops_it_is_no_member_though_it_carries_the_mark(marked: Background) -> None:
    start(marked, STUBBORN)
    assert marked.mark is not None
    program = f"""
import subprocess, sys
from pathlib import Path
from fabric_health.processes import Background
b = Background("x", Path({str(marked.record)!r}), Path({str(marked.log)!r}), {marked.mark!r})
print(b.stop(1))
"""
    # A shell that carries the mark, and a program that it starts.
    shell = subprocess.run(
        ["sh", "-c", '"$0" -c "$1"; echo the shell lives', sys.executable, program],
        env={**os.environ, marked.mark[0]: marked.mark[1], "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert shell.stdout.split("\n")[:2] == ["True", "the shell lives"], shell.stderr


@pytest.mark.parametrize("record", ["", "{", "[]", '{"pid": 1}', '{"pid": "x", "started": "y"}', "null"])
def test_a_record_that_cannot_be_read_is_none(tmp_path: Path, record: str) -> None:
    b = background(tmp_path)
    b.record.write_text(record)
    assert b.running() is None
    assert b.stop(1) is False


def test_the_log_is_for_the_owner_and_its_end_is_shown(tmp_path: Path) -> None:
    b = background(tmp_path)
    assert "cannot read" in b.tail()
    start(b, "print('x' * 5000 + 'end')")
    deadline = time.monotonic() + 30
    while not b.tail().strip().endswith("end") and time.monotonic() < deadline:
        time.sleep(0.02)
    assert len(b.tail(100)) <= 100
    assert b.log.stat().st_mode & 0o777 == 0o600
    b.stop(1)
