"""Progress is what training's events tell, rubbish among them or not; faults come in order, each after the last."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from elastic_agents import Agent, AgentError, Plan
from elastic_faults import KINDS, Injector, Progress, unfit
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

REAL = Path(__file__).parents[2] / "fixtures" / "elastic_training" / "real"


def progress_of(case: str) -> Progress:
    progress = Progress(REAL / case / "training.jsonl")
    progress.look()
    return progress


def test_a_recorded_run_is_followed_to_its_end() -> None:
    progress = progress_of("good")
    assert (progress.finished, progress.step, progress.world) == (True, 200, 2)
    assert progress.loss is not None
    assert progress.loss_first is not None
    assert progress.loss < progress.loss_first / 10
    assert {r.node for r in progress.ranks.values()} == {0, 1}


@pytest.mark.parametrize("case", ["never-resumes", "hang"])
def test_a_run_that_ended_early_is_not_finished(case: str) -> None:
    assert not progress_of(case).finished


def test_a_line_that_is_still_being_written_waits_for_its_end(tmp_path: Path) -> None:
    lines = (REAL / "good" / "training.jsonl").read_bytes()
    file = tmp_path / "training.jsonl"
    progress = Progress(file)
    progress.look()
    for end in range(0, len(lines) + 997, 997):
        file.write_bytes(lines[:end])
        progress.look()
    assert progress.finished
    assert progress.step == 200


EVENT = {"t": 1.0, "kind": "step", "rank": 0, "world": 2, "node": 0, "pid": 1, "step": 3, "loss": 0.5}
values = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.lists(st.integers(), max_size=2)
)
rubbish = st.fixed_dictionaries({}, optional={k: values | st.just(v) for k, v in EVENT.items()})
lines = st.lists(st.binary(max_size=40) | rubbish.map(lambda e: json.dumps(e).encode()), max_size=8)


@examples(max_examples=200, deadline=None)
@given(lines)
def test_no_line_stops_the_watch(written: list[bytes]) -> None:
    with tempfile.NamedTemporaryFile() as file:
        file.write(b"\n".join([*written, json.dumps(EVENT).encode(), b""]))
        file.flush()
        progress = Progress(Path(file.name))
        progress.look()
    assert progress.step == 3


@pytest.mark.parametrize(
    ("faults", "agents", "why"),
    [
        ("kill-rank,lose-agent,return-agent,hang-rank", 2, ""),
        ("lose-agent,lose-agent", 3, ""),
        ("", 1, ""),
        ("lose-agent", 1, "would leave 0 of 1 agents"),
        ("lose-agent,lose-agent", 2, "would leave 0"),
        ("return-agent", 2, "without a lose-agent"),
        ("hang-rank,kill-rank", 2, "nothing comes after"),
        ("kill", 2, f"known: {KINDS[0]}"),
    ],
)
def test_faults_that_can_and_cannot_follow_each_other(faults: str, agents: int, why: str) -> None:
    found = unfit([f for f in faults.split(",") if f], agents, 1)
    assert why in found
    assert bool(found) == bool(why)


def sleeper(name: str, node: int) -> Agent:
    return Agent(node, name, subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]))


@pytest.fixture
def agents() -> Iterator[list[Agent]]:
    made = [sleeper("agent-0", 0), sleeper("agent-1", 1)]
    kept = list(made)
    yield made
    for agent in {a.name: a for a in (*kept, *made)}.values():
        agent.process.kill()
        agent.process.wait()


@pytest.fixture
def job(tmp_path: Path, agents: list[Agent]) -> Callable[..., tuple[Injector, Callable[..., None]]]:
    """Return an injector of a job whose ranks are the agents themselves, and what writes its events."""

    def made(*faults: str, owns: bool = True) -> tuple[Injector, Callable[..., None]]:
        progress = Progress(tmp_path / "training.jsonl")
        plan = Plan(tmp_path, faults=faults, steps_between=5)

        def tell(kind: str, world: int, steps: range = range(1)) -> None:
            ranks = range(world) if kind != "step" else range(1)
            events = [{**EVENT, "t": time.time(), "kind": kind, "world": world, "rank": r, "node": r,
                       "pid": agents[r].process.pid, "step": s} for s in steps for r in ranks]  # fmt: skip
            with open(progress.file, "a", encoding="utf-8") as out:
                out.writelines(json.dumps(e) + "\n" for e in events)
            progress.look()

        return Injector(plan, progress, agents, lambda n: sleeper(f"agent-{n}-again", n), lambda _pid: owns), tell

    return made


def recorded(tmp_path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (tmp_path / "faults.jsonl").read_text(encoding="utf-8").splitlines()]


def test_each_fault_waits_until_the_job_has_got_over_the_last(tmp_path, agents, job) -> None:
    injector, tell = job("kill-rank", "lose-agent", "return-agent")
    tell("resume", 2)
    assert injector.next() is None
    tell("step", 2, range(1, 6))
    assert injector.next() == "kill-rank"
    assert agents[1].process.wait(5) == -9
    tell("step", 2, range(6, 20))
    assert injector.next() is None, "it steps, but has not resumed since"
    tell("resume", 2)
    tell("step", 2, range(5, 12))
    assert injector.next() == "lose-agent"
    assert [a.name for a in agents] == ["agent-0"]
    tell("resume", 1)
    tell("step", 1, range(10, 16))
    assert injector.next() == "return-agent"
    assert [a.name for a in agents] == ["agent-0", "agent-1-again"]
    tell("step", 1, range(16, 30))
    assert not injector.through
    tell("resume", 2)
    tell("step", 2, range(25, 26))
    assert injector.through
    assert [(f["fault"], f["node"], f["rank"], f["step"]) for f in recorded(tmp_path)] == [
        ("kill-rank", 1, 1, 5),
        ("lose-agent", 1, None, 11),
        ("return-agent", 1, None, 15),
    ]


def test_a_job_that_hangs_is_never_through(tmp_path, agents, job) -> None:
    injector, tell = job("hang-rank")
    tell("resume", 2)
    tell("step", 2, range(1, 8))
    assert injector.next() == "hang-rank"
    tell("resume", 2)
    tell("step", 2, range(8, 20))
    assert injector.next() is None
    assert not injector.through


def test_a_process_that_is_not_the_jobs_is_not_touched(tmp_path, agents, job) -> None:
    injector, tell = job("kill-rank", owns=False)
    tell("resume", 2)
    tell("step", 2, range(1, 8))
    with pytest.raises(AgentError, match="no process of the job"):
        injector.next()
    assert agents[1].process.poll() is None


def test_without_faults_training_is_through_at_once(job) -> None:
    assert job()[0].through
