"""What tests need is made beside them, ended with them, and waited for in order; what cannot be made fails them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import prepared
import pytest

HERE = Path(__file__).parent
# Two works that say who they are: one works on with a child of its own, one fails.
WORKS = """
import sys
sys.path.insert(0, sys.argv.pop(1))
import beside
beside.WORKS = {
    "endless": ["bash", "-c", "sleep 600 & echo $! $$ >pids; wait"],
    "broken": ["bash", "-c", "echo no such package; exit 3"],
}
sys.exit(beside.main(sys.argv[1:]))
"""
BOTH_STARTED = "until [ -s pids ] && grep -q package preparation/broken.log; do sleep 0.05; done; sleep 0.2; "


def start(folder: Path, script: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WORKS, str(HERE), "bash", "-c", BOTH_STARTED + script],
        cwd=folder,
        env={**os.environ, "FABRIC_HEALTH_TEST_TOOLS": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def alive(folder: Path) -> list[int]:
    """Return the processes of the endless work that still run; a moment is theirs to end."""
    pids = [int(p) for p in (folder / "pids").read_text().split()]
    until = time.monotonic() + 20
    while left := [p for p in pids if Path(f"/proc/{p}").exists()]:
        if time.monotonic() > until:
            break
        time.sleep(0.05)
    return left


def test_works_end_with_the_command_whose_exit_code_is_handed_on(tmp_path):
    process = start(tmp_path, "echo checked; exit 7")
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (7, "checked\n")
    assert "making broken beside the tests failed (3)" in err
    assert "no such package" in err
    assert "endless" not in err
    assert alive(tmp_path) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_reaches_the_command_as_ctrl_c_and_ends_the_works(tmp_path, number):
    process = start(tmp_path, "trap 'echo torn down; exit 5' INT; touch ready; while :; do sleep 0.1; done")
    until = time.monotonic() + 60
    while not (tmp_path / "ready").exists():
        assert time.monotonic() < until
        time.sleep(0.05)
    process.send_signal(number)
    out, _ = process.communicate(timeout=60)
    assert (process.returncode, out) == (5, "torn down\n")
    assert alive(tmp_path) == []


def test_what_cannot_be_made_is_tried_once_and_fails_with_its_makers_words(tmp_path, monkeypatch):
    script = tmp_path / "kubernetes-assets.sh"
    script.write_text('#!/bin/sh\necho tried >>"$0.tries"\necho E: no archive\nexit 4\n')
    script.chmod(0o755)
    monkeypatch.setattr(prepared, "ASSETS_SCRIPT", script)
    make = prepared.once(prepared.kubernetes_assets.__wrapped__)
    for _ in range(2):
        with pytest.raises(prepared.NotPreparedError, match=r"kubernetes-assets.sh ended with 4:\nE: no archive"):
            make()
    assert Path(f"{script}.tries").read_text() == "tried\n"
    with pytest.raises(prepared.NotPreparedError, match="no tool 'unheard-of'"):
        prepared.tool_python("unheard-of")


def test_the_tools_that_are_made_beside_the_tests_are_there():
    assert [t for t in prepared.USED if not (prepared.TOOLS / t / "requirements.txt").is_file()] == []


def test_modules_that_need_long_preparation_run_last_and_their_wait_is_no_time_of_theirs(tmp_path):
    """A session of its own: the module that waits for a tool comes last, and its wait does not time it out."""
    (tmp_path / "test_a.py").write_text(
        "import pytest, time, prepared\n"
        "@pytest.mark.timeout(1)\n"
        "def test_waits(tool_python, monkeypatch):\n"
        "    monkeypatch.setattr(prepared, 'tool_python', lambda tool: time.sleep(1.5))\n"
        "    tool_python('slow')\n"
        "@pytest.mark.timeout(1)\n"
        "def test_hangs(tool_python):\n"
        "    tool_python('self')\n"
        "    time.sleep(20)\n"
    )
    (tmp_path / "test_b.py").write_text("def test_pure(): pass\n")
    (tmp_path / "conftest.py").write_text(
        (HERE.parent / "conftest.py").read_text().replace("Path(__file__).parent", f"Path({str(HERE.parent)!r})")
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-v", "--import-mode=importlib", "-p", "no:cacheprovider", str(tmp_path)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(HERE.parents[1] / "include")},
        capture_output=True,
        text=True,
        timeout=120,
    )
    told = [
        line.split()[0].split("::")[-1] + " " + line.split()[1] for line in done.stdout.splitlines() if "%]" in line
    ]
    assert told == ["test_pure PASSED", "test_waits PASSED", "test_hangs FAILED"], done.stdout
    assert "Timeout (>1.0s)" in done.stdout
