"""The whole run with stand-ins for DLRover's processes: reports, arguments, and nothing left however it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import elastic_agents
import elastic_smoke
import elastic_tidy as tidy
import psutil
import pytest

STAND_IN = Path(__file__).parent / "stand_in.py"
LIMIT_S = 60.0


class Smoke:
    """Runs elastic_smoke.py with stand-ins, and tells what of it is on the machine."""

    def __init__(self, root: Path) -> None:
        self.root, self.out = root, root / "out"
        for name in ("shm", "sockets", "tmp"):
            (root / name).mkdir()

    def start(self, *more: str) -> subprocess.Popen[str]:
        argv = [sys.executable, str(STAND_IN), str(self.root), "--out", str(self.out), "--step-seconds", "0.01", *more]
        environ = {**os.environ, "TMPDIR": str(self.root / "tmp")}
        return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environ)

    def run(self, *more: str) -> tuple[int, dict[str, Any]]:
        process = self.start(*more)
        process.communicate(timeout=LIMIT_S)
        return process.returncode, self.report()

    def report(self) -> dict[str, Any]:
        report: dict[str, Any] = json.loads((self.out / "job.json").read_text(encoding="utf-8"))
        return report

    def wait_for(self, there: Callable[[], bool]) -> None:
        until = time.monotonic() + LIMIT_S
        while not there():
            assert time.monotonic() < until
            time.sleep(0.05)

    def alive(self) -> list[psutil.Process]:
        return [p for p in psutil.process_iter() if str(self.root) in " ".join(_line(p))]

    def left(self) -> list[str]:
        files = [str(p) for n in ("shm", "sockets", "tmp") for p in (self.root / n).iterdir()]
        return files + [" ".join(_line(p)) for p in self.alive()]


def _line(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline() if process.status() != psutil.STATUS_ZOMBIE else []
    except psutil.Error:
        return []


@pytest.fixture
def smoke(tmp_path: Path) -> Iterator[Smoke]:
    smoke = Smoke(tmp_path)
    yield smoke
    for process in smoke.alive():
        process.kill()


def test_a_run_ends_well_and_leaves_nothing(smoke: Smoke) -> None:
    code, report = smoke.run("--steps", "60", "--steps-between", "10")
    assert (code, report["problem"], report["left"]) == (0, "", [])
    assert report["exit_codes"] == {"agent-0": 0, "agent-1": 0}
    assert (report["steps"], report["world"], report["scenario"]) == (60, 2, [])
    assert smoke.left() == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_asked_to_end_in_the_middle_it_clears_away_and_reports(smoke: Smoke, number: signal.Signals) -> None:
    process = smoke.start("--steps", "60000")
    smoke.wait_for(lambda: len(list((smoke.root / "shm").iterdir())) == 2 and len(smoke.alive()) == 6)
    process.send_signal(number)
    process.communicate(timeout=LIMIT_S)
    assert process.returncode == 128 + number
    assert smoke.report()["problem"] == f"ended by {number.name}"
    assert smoke.report()["left"] == smoke.left() == []


def test_asked_to_end_while_it_starts_it_clears_away(smoke: Smoke) -> None:
    process = smoke.start("--steps", "60000")
    smoke.wait_for(lambda: (smoke.out / "master.log").exists())
    process.terminate()
    process.communicate(timeout=LIMIT_S)
    assert process.returncode == 143
    assert smoke.left() == []


def test_agents_that_crash_end_the_run(smoke: Smoke) -> None:
    (smoke.root / "crash").touch()
    code, report = smoke.run("--steps", "60000")
    assert code == 1
    assert report["problem"].startswith("the job did not come back: it ended at step 0 of 60000; agent-0 ended with")
    assert report["left"] == smoke.left() == []


def test_a_master_that_crashes_ends_the_run(smoke: Smoke) -> None:
    process = smoke.start("--steps", "60000")
    smoke.wait_for(lambda: len(smoke.alive()) == 6)
    for found in smoke.alive():
        if "dlrover.python.master.main" in _line(found):
            found.kill()
    process.communicate(timeout=LIMIT_S)
    assert process.returncode == 1
    assert "DLRover's master ended with exit code -9" in smoke.report()["problem"]
    assert smoke.left() == []


def test_a_rank_that_stops_is_a_hang_and_ends_the_run(smoke: Smoke) -> None:
    stopped: list[int] = []
    process = smoke.start("--steps", "60000", "--stall-limit", "1.5")

    def stepping() -> bool:
        events = smoke.out / "training.jsonl"
        return events.exists() and '"step": 20,' in events.read_text(encoding="utf-8")

    smoke.wait_for(stepping)
    for found in smoke.alive():
        if "rank" in _line(found) and "NODE_RANK" in found.environ() and found.environ()["NODE_RANK"] == "0":
            found.suspend()
            stopped.append(found.pid)
    process.communicate(timeout=LIMIT_S)
    report = smoke.report()
    assert len(stopped) == 1
    assert "the job hangs: no step for 1.5 s" in report["problem"]
    assert report["stalled"]["step"] == report["steps"] >= 20
    assert report["left"] == smoke.left() == []


def test_what_a_killed_run_left_goes_with_the_next_run(smoke: Smoke) -> None:
    process = smoke.start("--steps", "60000")
    smoke.wait_for(lambda: len(list((smoke.root / "shm").iterdir())) == 2 and len(smoke.alive()) == 6)
    process.kill()
    process.communicate(timeout=LIMIT_S)
    assert len(smoke.alive()) == 5
    assert smoke.run("--steps", "30")[0] == 0
    assert smoke.left() == []


def test_without_dlrover_it_says_where_to_look(tmp_path: Path) -> None:
    program = Path(elastic_smoke.__file__)
    argv = [sys.executable, str(program), "--out", str(tmp_path / "out"), "--limit", "30"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 1
    told = json.loads(done.stdout.splitlines()[-1])
    assert told == {"program": "elastic_smoke", "problem": "DLRover's master ended with exit code 1; see master.log"}
    assert "No module named" in (tmp_path / "out" / "master.log").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--agents", "0"], "expected --agents of 1 to 64"),
        (["--agents", "2", "--min-agents", "3"], "no fewer than --min-agents"),
        (["--faults", "kill"], "no fault 'kill'; known: kill-rank"),
        (["--faults", "lose-agent,lose-agent"], "would leave 0 of 2 agents"),
        (["--node-check"], "--node-check needs 4 agents or more"),
        (["--agents", "4", "--node-check", "--faults", "kill-rank"], "takes no faults"),
        (["--steps", "0"], "must be above 0"),
        (["--stall-limit", "-1"], "must be above 0"),
    ],
)
def test_arguments_that_cannot_be(tmp_path: Path, capsys: Any, argv: list[str], message: str) -> None:
    with pytest.raises(SystemExit) as ended:
        elastic_smoke.main(["--out", str(tmp_path / "out"), *argv])
    assert ended.value.code == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_downgrade_is_seen_and_long_logs_are_bounded(tmp_path: Path) -> None:
    log = tmp_path / "agent-0.log"
    log.write_text("Downgrade to use torch-run in standalone\n" + "x" * 5000 + "\nthe end")
    assert elastic_agents.downgraded(log)
    assert not elastic_agents.downgraded(tmp_path / "none")
    elastic_agents.bound(log, 1000)
    text = log.read_text()
    assert text.startswith("Downgrade")
    assert text.endswith("the end")
    assert f"[... {41 + 5000 + 8 - 1000} bytes left out ...]" in text
    assert len(text) < 1100


def test_a_downgrade_is_seen_in_the_middle_of_a_log_however_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(elastic_agents, "LOG_LIMIT_BYTES", 64)
    log = tmp_path / "agent-0.log"
    for before in range(60, 70):
        log.write_text("x" * before + "Downgrade to use torch-run" + "y" * 200)
        assert elastic_agents.downgraded(log)
    log.write_text("Downgrade to use\ntorch-run" + "y" * 200)
    assert not elastic_agents.downgraded(log)


def test_every_process_carries_the_mark_and_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s3cret")
    place = elastic_agents.Place("job", 1, tmp_path)
    environ = elastic_agents.environment(place, elastic_agents.Plan(tmp_path), 1, 2)
    assert environ[tidy.MARK] == "job"
    assert (environ["NODE_RANK"], environ["NODE_ID"], environ["ELASTIC_JOB_NAME"]) == ("1", "2", "job-n1")
    assert "s3cret" not in environ.values()
    assert "--standalone" not in elastic_agents.agent_arguments(elastic_agents.Plan(tmp_path))
