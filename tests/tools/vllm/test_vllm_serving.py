"""Starting, waiting and stopping, with real processes that behave badly; and what the server is told."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import api
import psutil
import pytest
import serving
from processes import Descendants, Signals
from steps import StepError, Steps

STAND_IN = Path(__file__).with_name("stand_in.py")
TOOL = Path(serving.__file__).parent


class OfThisTest(Descendants):
    """What this test has started: the processes of other tests are none of its business."""

    def alive(self, session: int | None = None) -> list[psutil.Process]:
        return [p for s in ([session] if session else list(self._own)) for p in super(OfThisTest, self).alive(s)]


@pytest.fixture
def descendants() -> Iterator[Descendants]:
    made = OfThisTest()
    made.adopt()
    yield made
    ctypes.CDLL(None).prctl(36, 0, 0, 0, 0)


def server(how: str, tmp_path: Path, descendants: Descendants, monkeypatch: pytest.MonkeyPatch) -> serving.Server:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    port = api.free_port()
    monkeypatch.setattr(serving, "command", lambda asked: [sys.executable, str(STAND_IN), how, str(asked.port)])
    monkeypatch.setattr(serving, "STOP_S", 0.3)
    asked = serving.Asked(tmp_path, "stand-in", port)
    made = serving.Server(asked, descendants, Signals(), scratch)
    made.start(dict(os.environ))
    return made


def test_a_tree_that_ignores_signals_is_ended_with_what_it_abandoned(tmp_path, descendants, monkeypatch) -> None:
    segment = Path("/dev/shm") / f"fabric-health-test-{uuid.uuid4().hex[:8]}"
    monkeypatch.setenv("STAND_IN_SEGMENT", str(segment))
    made = server("healthy", tmp_path, descendants, monkeypatch)
    made.wait_ready(30)
    made.identify(5)
    assert (made.served, made.version) == (["stand-in"], "0")
    assert made.process is not None
    while len(descendants.alive(made.process.pid)) < 2:
        time.sleep(0.02)
    tree = descendants.alive(made.process.pid)
    forced = made.stop()
    assert len(forced) >= 2
    assert all(str(STAND_IN) in line for line in forced)
    assert not any(p.is_running() and p.status() != psutil.STATUS_ZOMBIE for p in tree)
    assert made.gone().startswith("the server ended with exit code 137")
    assert serving.remains(made.asked.port, {str(segment)}, descendants, made.scratch) == []
    assert not segment.exists()
    assert not made.scratch.exists()


def test_a_server_that_never_opens_its_port_is_waited_for_as_long_as_was_asked(tmp_path, descendants, monkeypatch):
    made = server("mute", tmp_path, descendants, monkeypatch)
    with pytest.raises(StepError, match=r"not healthy after 0.4 s; the server said last: it said nothing"):
        made.wait_ready(0.4)
    made.stop()
    assert descendants.alive() == []


def test_a_server_that_ends_is_not_waited_for(tmp_path, descendants, monkeypatch) -> None:
    made = server("ends", tmp_path, descendants, monkeypatch)
    with pytest.raises(StepError, match="the server ended with exit code 3: no such model"):
        made.wait_ready(60)
    assert made.stop() == []


def test_what_is_left_is_named(tmp_path, descendants, monkeypatch) -> None:
    made = server("healthy", tmp_path, descendants, monkeypatch)
    made.wait_ready(30)
    with monkeypatch.context() as patched:
        patched.setattr(descendants, "end", lambda *_: ["it"])
        left = serving.remains(made.asked.port, set(), descendants, made.scratch)
    assert f"127.0.0.1:{made.asked.port}" in left
    assert f"process {made.process.pid}" in left  # type: ignore[union-attr]
    made.stop()


def test_what_decides_about_the_measurement_has_the_last_word(tmp_path: Path) -> None:
    flags = ("--enforce-eager", "--port", "1", "--enable-prefix-caching", "--served-model-name", "other")
    argv = serving.command(serving.Asked(tmp_path, "tiny/w8a8", 8123, flags=flags))
    for wanted in (("--port", "8123"), ("--served-model-name", "tiny/w8a8"), ("--host", "127.0.0.1")):
        last = len(argv) - 1 - argv[::-1].index(wanted[0])
        assert argv[last + 1] == wanted[1]
    assert argv.index("--no-enable-prefix-caching") > argv.index("--enable-prefix-caching")
    assert "--runner" not in argv
    pooling = serving.command(serving.Asked(tmp_path, "e", 1, "embed"))
    assert pooling[pooling.index("--runner") + 1] == "pooling"


def test_the_environment_is_offline_and_writes_below_the_scratch_folder(tmp_path: Path) -> None:
    out = serving.environment(tmp_path, {"VLLM_CPU_KVCACHE_SPACE": "2", "HF_HUB_OFFLINE": "0", "TMPDIR": "/x"}, 3)
    assert (out["HF_HUB_OFFLINE"], out["VLLM_NO_USAGE_STATS"]) == ("1", "1")
    assert out["VLLM_CPU_KVCACHE_SPACE"] == "2"
    assert out["TMPDIR"] == str(tmp_path)
    assert serving.accelerated() or out["OMP_NUM_THREADS"] == "3"


@pytest.mark.parametrize(
    ("log", "device"),
    [
        ("... device_config=cpu, structured", "cpu"),
        ("device_config=DeviceConfig(device_type='cuda')", "cuda"),
        ("\udcff rubbish", "unknown"),
        ("", "unknown"),
    ],
)
def test_the_device_is_vllms_word(tmp_path, descendants, monkeypatch, log: str, device: str) -> None:
    monkeypatch.setattr(serving, "_cpu", lambda: "")
    monkeypatch.setattr(serving, "_gpus", lambda: "")
    made = serving.Server(serving.Asked(tmp_path, "x", 1), descendants, Signals(), tmp_path)
    made.log.write_bytes(log.encode("utf-8", "surrogateescape"))
    assert made.device() == device


RUN = """
import sys; sys.path.insert(0, {tool!r})
import measure, serving
serving.command = lambda asked: [sys.executable, {stand_in!r}, {how!r}, str(asked.port)]
serving.STOP_S = 0.2
sys.exit(measure.main())
"""


def started(tmp_path: Path, how: str, *more: str) -> subprocess.Popen[str]:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "model.safetensors").write_bytes(b"weights")
    program = RUN.format(tool=str(TOOL), stand_in=str(STAND_IN), how=how)
    words = ["--model", str(tmp_path / "model"), "--name", "stand-in", "--out", str(tmp_path / "job" / "artefacts")]
    return subprocess.Popen([sys.executable, "-c", program, *words, *more], stdout=subprocess.PIPE, text=True)


def of(tmp_path: Path) -> dict:
    return json.loads((tmp_path / "job" / "artefacts" / "server.json").read_text())


def words(process: psutil.Process) -> str:
    """Return a command line; of a process that has just ended, nothing."""
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_server_and_leaves_nothing(tmp_path: Path, number: int) -> None:
    program = started(tmp_path, "mute")
    tree: list[psutil.Process] = []
    while not any(str(STAND_IN) in words(p) for p in tree):
        tree = [p for p in psutil.Process(program.pid).children(recursive=True) if p.is_running()]
        time.sleep(0.02)
    program.send_signal(number)
    said, _ = program.communicate(timeout=60)
    assert program.returncode == 128 + number
    assert json.loads(said.splitlines()[-1])["problem"] == f"stopped by {signal.Signals(number).name}"
    assert not any(p.is_running() for p in tree)
    assert [p.name for p in (tmp_path / "job").iterdir()] == ["artefacts"]
    found = of(tmp_path)
    assert found["left"] == []
    assert found["steps"][-1]["name"] == "stop"


def test_steps_of_a_server_that_answers_nothing_all_fail_and_are_all_written_down(tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"id": "a", "prompt": "x"}\n')
    (tmp_path / "evaluation.jsonl").write_text('{"text": "x"}\n')
    more = ("--prompts-file", str(prompts), "--evaluation", str(tmp_path / "evaluation.jsonl"), "--step-limit", "5")
    said, _ = (program := started(tmp_path, "healthy", *more)).communicate(timeout=60)
    assert program.returncode == 1
    found = of(tmp_path)
    steps = {s["name"]: s for s in found["steps"]}
    assert [steps[n]["exit_code"] for n in ("start", "identify", "fingerprint", "perplexity", "metrics", "stop")] == [
        0, 0, 1, 1, 1, 0,
    ]  # fmt: skip
    assert "HTTP 501" in steps["fingerprint"]["problem"]
    assert "fingerprint: " in json.loads(said.splitlines()[-1])["problem"]


def test_a_server_of_another_model_is_not_measured(tmp_path: Path) -> None:
    program = started(tmp_path, "healthy", "--name", "tiny-qwen3")
    program.communicate(timeout=60)
    found = of(tmp_path)
    assert program.returncode == 1
    assert (found["asked"], found["served"]) == ("tiny-qwen3", ["stand-in"])
    assert found["problem"].startswith("the server serves ['stand-in']")
    assert "metrics" not in [s["name"] for s in found["steps"]]


def test_a_program_that_fails_hides_no_other(tmp_path, descendants) -> None:
    steps = Steps(descendants, Signals(), tmp_path, 20.0)
    for name, words in (("bad", "import sys; print('because'); sys.exit(4)"), ("good", "pass")):
        argv = [sys.executable, "-c", words]
        steps.program(name, lambda log, argv=argv: steps.run(argv, os.environ, log), lambda: None)
    assert [(s.name, s.exit_code, s.problem) for s in steps.done] == [
        ("bad", 4, "exit code 4: because"),
        ("good", 0, ""),
    ]


def test_a_program_past_its_limit_or_without_a_server_is_ended(tmp_path, descendants, monkeypatch) -> None:
    steps = Steps(descendants, Signals(), tmp_path, 0.3)
    argv = [sys.executable, "-c", "import time; time.sleep(60)"]
    steps.program("slow", lambda log: steps.run(argv, os.environ, log), lambda: None)
    monkeypatch.setattr("steps.PATIENCE_S", 0.1)
    steps.limit_s, calls = 30.0, []
    steps.alive = lambda: "the server ended" if len(calls) > 1 or calls.append(1) else ""  # type: ignore[func-returns-value]
    steps.program("late", lambda log: steps.run(argv, os.environ, log), lambda: None)
    steps.program("never", lambda log: steps.run(argv, os.environ, log), lambda: None)
    assert [(s.name, s.exit_code, s.problem) for s in steps.done] == [
        ("slow", 1, "ended after its limit of 0.3 s"),
        ("late", 1, "the server ended"),
        ("never", 1, "not started: the server ended"),
    ]
    assert descendants.alive() == []


def test_a_report_that_is_missing_is_a_failed_step_whatever_the_exit_code(tmp_path, descendants) -> None:
    from steps import take

    steps = Steps(descendants, Signals(), tmp_path, 20.0)
    steps.program("bench", lambda _: 0, lambda: take(tmp_path / "bench.json", tmp_path / "out.json"))
    assert [(s.exit_code, s.problem) for s in steps.done] == [(1, "no report: bench.json was not written")]


def test_a_signal_waits_until_what_it_may_not_interrupt_is_done() -> None:
    signals, seen = Signals(), []

    def end_something() -> None:
        with signals.held():
            signals._on(signal.SIGTERM, None)
            seen.append("finished")

    with pytest.raises(SystemExit) as ended:
        end_something()
    assert seen == ["finished"]
    assert ended.value.code == 143
    signals._on(signal.SIGTERM, None)  # a second one changes nothing
    with signals.held():
        pass
