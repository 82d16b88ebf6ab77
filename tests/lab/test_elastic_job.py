"""The lab's faults of elastic training: which run they reach, what a state that is none does, which units they fit."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import fabric_health
from fabric_health.errors import UsageError
from fabric_health.lab import elastic_job
from fabric_health.lab.elastic_job import Faults
from fabric_health.lab.state import LabState, now, save
from fabric_health.lab.validation import checked_fault
from fabric_health.site import Site, load_site

TRAINING = "import os, sys; print(sys.argv[1:], os.path.basename(sys.path[0]))"


@pytest.fixture(scope="module")
def site() -> Site:
    return load_site(Path(fabric_health.__file__).parents[1] / "sites" / "lab.yaml")


def test_the_labs_faults_are_those_of_the_job_and_of_its_agents(site: Site, tmp_path: Path) -> None:
    given = [
        ("lost-checkpoints", "elastic", None),
        ("never-resumes", "elastic", None),
        ("slow-node-check", "elastic/agent-2", None),
        ("slow-node-check", "elastic/agent-0", "500"),
        ("slow-node", "gpu-005", None),
    ]
    state = LabState(now(), tuple(checked_fault(site, *fault, now()) for fault in given))
    save(tmp_path / "lab" / "state.json", state)
    found = elastic_job.faults(str(tmp_path))
    assert found.of_workers == ("never-resumes", "lost-checkpoints")
    assert found.slow_s == pytest.approx({2: 0.02, 0: 0.0005})


def test_without_a_lab_the_job_is_left_alone(tmp_path: Path) -> None:
    assert elastic_job.faults(None) == elastic_job.faults(str(tmp_path)) == Faults()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"faults": 3}',
        '{"faults": [{"kind": "slow-node-check", "unit": "elastic/agent-x", "value": 1}]}',
    ],
)
def test_a_state_that_cannot_be_read_ends_the_run(tmp_path: Path, text: str) -> None:
    (tmp_path / "lab").mkdir()
    (tmp_path / "lab" / "state.json").write_text(text)
    with pytest.raises(SystemExit, match="expected the lab's state"):
        elastic_job.faults(str(tmp_path))


@pytest.mark.parametrize(
    ("kind", "unit", "value", "message"),
    [
        ("never-resumes", "elastic/agent-1", None, "sits on the job of elastic training, .* expected elastic"),
        ("lost-checkpoints", "gpu-001", None, "expected elastic"),
        ("lost-checkpoints", "elastic", "3", "takes no value"),
        ("slow-node-check", "elastic", None, "expected one from elastic/agent-0 to elastic/agent-3"),
        ("slow-node-check", "elastic/agent-4", None, "expected one from"),
        ("slow-node-check", "elastic/agent-1", "soon", "delay in us"),
    ],
)
def test_a_fault_that_does_not_fit(site: Site, kind: str, unit: str, value: str | None, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        checked_fault(site, kind, unit, value, now())


def test_only_the_named_agent_loads_what_slows_its_check() -> None:
    environment = elastic_job.slowed(lambda _place, _node: {"PYTHONPATH": "/own"}, {2: 0.02})
    place = SimpleNamespace()
    assert environment(place, 1) == {"PYTHONPATH": "/own"}
    slow = environment(place, 2)
    assert slow["PYTHONPATH"].split(":")[1:] == ["/own"]
    assert float(slow[elastic_job.SLOW_BY]) == 0.02
    assert (Path(slow["PYTHONPATH"].split(":")[0]) / "sitecustomize.py").is_file()


def worker(tmp_path: Path, restarts: str) -> subprocess.CompletedProcess[str]:
    (tmp_path / "train.py").write_text(TRAINING)
    program = elastic_job.as_worker(lambda *_: [str(tmp_path / "train.py"), "--steps", "3"], ("never-resumes",))()
    environ = {"TORCHELASTIC_RESTART_COUNT": restarts}
    return subprocess.run([sys.executable, *program], capture_output=True, text=True, env=environ, timeout=30)


def test_a_worker_runs_the_training_program_once_and_never_again(tmp_path: Path) -> None:
    first, again = worker(tmp_path, "0"), worker(tmp_path, "1")
    assert (first.returncode, first.stdout.strip()) == (0, f"['--steps', '3'] {tmp_path.name}")
    assert (again.returncode, again.stdout) == (1, "")


CHECK = elastic_job.SLOW_CHECK / "sitecustomize.py"
# What Python does at the start of a process, with a library in which a product takes no time.
STARTED = """
import runpy, sys, time, types
torch = sys.modules["torch"] = types.ModuleType("torch")
torch.matmul = lambda *a: a
sys.orig_argv = [sys.executable, "-m", sys.argv[1]]
runpy.run_path(sys.argv[2])
start = time.perf_counter()
value = torch.matmul(1, 2)
print(value, time.perf_counter() - start >= 0.05)
"""


@pytest.mark.parametrize(
    ("module", "late"), [("dlrover.trainer.torch.node_check.nvidia_gpu", True), ("dlrover.python.master.main", False)]
)
def test_the_check_alone_is_slow_and_the_tools_own_start_runs_too(tmp_path: Path, module: str, late: bool) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('own')")
    environ = {"PYTHONPATH": f"{CHECK.parent}:{tmp_path}", elastic_job.SLOW_BY: "0.05"}
    argv = [sys.executable, "-I", "-c", STARTED, module, str(CHECK)]
    done = subprocess.run(argv, capture_output=True, text=True, env=environ, timeout=30)
    assert done.stdout.split("\n")[:2] == ["own", f"(1, 2) {late}"], done.stderr


def test_recorded_runs_show_what_the_faults_do() -> None:
    real = Path(__file__).parents[1] / "fixtures" / "elastic_training" / "real"

    def resumed(case: str) -> list[int]:
        lines = (real / case / "training.jsonl").read_text(encoding="utf-8").splitlines()
        events = [json.loads(line) for line in lines]
        return [e["step"] for e in events if e["kind"] == "resume" and e["rank"] == 0]

    assert resumed("lost-checkpoints") == [0, 0]
    assert resumed("never-resumes") == [0]
    assert min(resumed("good")[1:]) >= 10
    assert "Straggler: {2: " in (real / "node-check-straggler" / "master.log").read_text(encoding="utf-8")
    assert "Straggler" not in (real / "node-check" / "master.log").read_text(encoding="utf-8")
