"""The wrapper run for real, its log read back; and logs that are cut, rotated, damaged or hostile."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric_health.jobs.kubernetes import wrapper
from fabric_health.jobs.kubernetes.framed_log import read_log

SOURCE = Path(wrapper.__file__).read_text(encoding="utf-8")
NONCE = "0123456789abcdef"


def request(folder: Path, *argv: str, **more) -> str:
    return json.dumps(
        {
            "nonce": NONCE,
            "argv": argv,
            "time_limit_s": 20,
            "output_max_bytes": 100_000,
            "artefact_folder": str(folder / "artefacts"),
            "artefacts": [],
            "rank_bytes": 0,
            "artefact_max_bytes": 1000_000,
            "wait_for": [],
            "wait_port": 22,
            "wait_limit_s": 1,
            **more,
        }
    )


def run(folder: Path, *argv: str, **more) -> tuple[bytes, int]:
    """Run the wrapper as a pod would and return its log and exit code."""
    done = subprocess.run(
        [sys.executable, "-I", "-c", SOURCE, request(folder, *argv, **more)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=60,
    )
    return done.stdout, done.returncode


def test_a_whole_log(tmp_path):
    source = """
import pathlib, sys
print("one"); print("two", file=sys.stderr); sys.stdout.write("no end")
pathlib.Path(sys.argv[1], "r.json").write_bytes(bytes(range(256)) * 1000); sys.exit(3)
"""
    out = str(tmp_path / "artefacts")
    data, code = run(tmp_path, sys.executable, "-c", source, out, artefacts=["r.json", "gone"])
    log = read_log(data, NONCE)
    assert log.whole, log.problem
    assert (code, log.status, log.exit_code) == (3, "exited", 3)
    assert log.stdout == "one\nno end"
    assert log.stderr == "two\n"
    assert log.artefacts == {"r.json": bytes(range(256)) * 1000}
    assert "artefact gone: no such file" in log.reason
    assert log.started_at <= log.ended_at
    assert b"one\n" in data, "a person who reads the log sees the job's own lines"


def test_output_beyond_its_bound_is_counted_and_dropped(tmp_path):
    data, _ = run(tmp_path, sys.executable, "-c", "print('x' * 50_000); print('y' * 99)", output_max_bytes=1000)
    log = read_log(data, NONCE)
    assert log.whole
    assert log.truncated
    assert log.stdout == "x" * 1000
    assert "the first 1000 of 50101 bytes" in log.reason
    assert len(data) < 3000
    data, _ = run(tmp_path, sys.executable, "-c", "print('x' * 50_000)", output_max_bytes=1000, rank_bytes=49_001)
    log = read_log(data, NONCE)
    assert log.whole, log.problem
    assert (log.stdout, log.truncated) == ("x" * 50_000 + "\n", False), "what ranks send has room of its own"


def test_time_limit_program_missing_and_hosts_missing(tmp_path):
    log = read_log(run(tmp_path, sys.executable, "-c", "import time; time.sleep(60)", time_limit_s=1)[0], NONCE)
    assert log.status == "timeout"
    log = read_log(run(tmp_path, "/no/such/program")[0], NONCE)
    assert (log.status, log.exit_code) == ("not_started", None)
    data, code = run(tmp_path, "true", wait_for=["127.0.0.1"], wait_port=1, wait_limit_s=0.1)
    log = read_log(data, NONCE)
    assert log.status == "not_started"
    assert "1 of 1 hosts do not answer on port 1: 127.0.0.1" in log.reason
    assert code == 126


def test_a_pod_that_is_told_to_stop_still_says_how_it_ended(tmp_path):
    source = "import time; print('up', flush=True); time.sleep(60)"
    process = subprocess.Popen(
        [sys.executable, "-I", "-c", SOURCE, request(tmp_path, sys.executable, "-c", source)], stdout=subprocess.PIPE
    )
    head = process.stdout.readline() + process.stdout.readline()
    process.terminate()
    log = read_log(head + process.communicate(timeout=20)[0], NONCE)
    assert log.whole
    assert (log.status, log.stdout) == ("cancelled", "up\n")


def test_what_holds_the_pipes_open_does_not_keep_the_job(tmp_path):
    source = "import subprocess, sys; subprocess.Popen(['sleep', '30']); print('done')"
    began = time.monotonic()
    log = read_log(run(tmp_path, sys.executable, "-c", source)[0], NONCE)
    assert log.whole
    assert log.stdout == "done\n"
    assert time.monotonic() - began < 15


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    source = "import sys; [print('line', i) for i in range(50)]; print('e', file=sys.stderr)"
    return run(folder, sys.executable, "-c", source)[0]


def test_cut_rotated_and_damaged_logs_are_no_results(whole):
    lines = whole.splitlines(keepends=True)
    cases = {
        "empty": b"",
        "no end": b"".join(lines[:-1]),
        "end cut": whole[:-10],
        "rotated": b"".join(lines[5:]),
        "a line lost": b"".join(lines[:10] + lines[11:]),
        "a line more": b"".join([*lines[:10], b"more\n", *lines[10:]]),
        "another job's": whole.replace(NONCE.encode(), b"f" * 16),
        "end twice": whole + lines[-1],
    }
    for name, data in cases.items():
        log = read_log(data, NONCE)
        assert not log.whole, name
        assert log.truncated, name
    assert "rotated" in read_log(cases["rotated"], NONCE).problem


@given(st.binary(max_size=400))
def test_no_bytes_make_it_raise_or_pass(data):
    assert not read_log(data, NONCE).whole


@given(
    st.sampled_from(["begin", "art", "end", "x"]),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda c: (
            st.lists(c) | st.dictionaries(st.sampled_from(["status", "code", "seen", "passed", "artefacts", "x"]), c)
        ),
        max_leaves=8,
    ),
)
def test_no_frame_makes_it_raise_or_pass(kind, body):
    data = f"FHJ1 {NONCE} begin {{}}\nFHJ1 {NONCE} {kind} {json.dumps(body)}\n".encode()
    assert not read_log(data, NONCE).whole
