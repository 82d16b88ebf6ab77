"""Elastic training under the real DLRover survives a killed rank, a lost agent and its return, and leaves nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).parents[2]
TOOL = ROOT / "include" / "tools" / "dlrover"
FAULTS = ("kill-rank", "lose-agent", "return-agent")
LIMIT_S = 300.0
Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture(scope="module")
def python(tool_python: Callable[[str], Path]) -> Path:
    return tool_python("dlrover")


@pytest.fixture
def start(python: Path, tmp_path: Path) -> Start:
    def started(*faults: str) -> subprocess.Popen[str]:
        argv = [str(python), str(TOOL / "elastic_smoke.py"), "--out", str(tmp_path / "out"), "--agents", "2"]
        argv += ["--steps", "200", "--checkpoint-every", "5", "--faults", ",".join(faults), "--limit", str(LIMIT_S)]
        environ = {**os.environ, "TMPDIR": str(tmp_path)}
        return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environ)

    return started


def left(tmp_path: Path, pid: int) -> list[str]:
    """Return what the run of process ``pid`` leaves: processes that name its folder, files, memory and sockets."""
    out = [str(p) for p in tmp_path.iterdir() if p.name != "out"]
    out += [str(p) for f in ("/dev/shm", "/tmp/ckpt_sock") for p in Path(f).glob(f"fh-elastic-*-{pid:x}-*")]
    for process in psutil.process_iter():
        try:
            if str(tmp_path) in " ".join(process.cmdline()) and process.status() != psutil.STATUS_ZOMBIE:
                out.append(str(process))
        except psutil.Error:
            continue
    return out


def report(tmp_path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((tmp_path / "out" / "job.json").read_text(encoding="utf-8"))
    return found


def lines(tmp_path: Path, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (tmp_path / "out" / name).read_text(encoding="utf-8").splitlines()]


def test_a_job_survives_and_goes_on_with_the_same_run(start: Start, tmp_path: Path) -> None:
    process = start(*FAULTS)
    _, told = process.communicate(timeout=LIMIT_S + 60)
    job = report(tmp_path)
    assert (process.returncode, job["problem"], job["left"]) == (0, "", []), told
    assert job["exit_codes"] == {"agent-0": 0, "agent-1": -9, "agent-1-again": 0}
    injected = lines(tmp_path, "faults.jsonl")
    assert tuple(f["fault"] for f in injected) == FAULTS
    events = lines(tmp_path, "training.jsonl")
    resumed = [e for e in events if e["kind"] == "resume" and e["rank"] == 0]
    assert [e["world"] for e in resumed] == [2, 2, 1, 2]
    for fault, event in zip(injected, resumed[1:], strict=True):
        assert event["t"] > fault["t"]
        assert event["step"] >= (0 if fault["fault"] == "return-agent" else fault["step"] - 5)
    # A step is taken again after a loss, with other ranks, and has the same loss: it is the same run.
    losses: dict[int, list[float]] = {}
    for event in (e for e in events if e["kind"] == "step"):
        losses.setdefault(event["step"], []).append(event["loss"])
    again = [found for found in losses.values() if len(found) > 1]
    assert again
    assert all(max(found) - min(found) < 1e-3 for found in again)
    assert losses[200][-1] < losses[1][0] / 10
    assert "DLRover agent started" in (tmp_path / "out" / "agent-0.log").read_text(encoding="utf-8")
    assert left(tmp_path, process.pid) == []


def test_asked_to_end_in_the_middle_it_leaves_nothing(start: Start, tmp_path: Path) -> None:
    process = start("kill-rank")
    until = time.monotonic() + LIMIT_S
    training = tmp_path / "out" / "training.jsonl"
    while not training.exists() or '"save"' not in training.read_text(encoding="utf-8"):
        assert process.poll() is None
        assert time.monotonic() < until
        time.sleep(0.1)
    assert [p for p in left(tmp_path, process.pid) if p.startswith("/dev/shm/")]
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 143
    assert report(tmp_path)["problem"] == "ended by SIGTERM"
    assert report(tmp_path)["left"] == left(tmp_path, process.pid) == []
