"""Run a small elastic training job under DLRover on this machine, put faults into it, and tell how it came through.

A local master and agents that stand for nodes train (``train.py``) over gloo. Once the job has made progress a rank is
killed, or an agent with all it started, another agent starts in its place, or a rank is stopped: what a cluster does to
a job by itself. ``--node-check`` runs DLRover's check of nodes instead. ``--out`` then holds job.json, training.jsonl,
faults.jsonl, master.log and a log of each agent. Exit code 0: all faults were put in, training went to its end, and
nothing of the job is left. Whatever happens, also when it is asked to end, it clears away what it started.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field, replace
from importlib import metadata
from pathlib import Path
from types import FrameType
from typing import Any

import elastic_agents
import elastic_node_check as node_check
import elastic_tidy as tidy
from elastic_agents import Agent, AgentError, Place, Plan
from elastic_faults import KINDS, Injector, Progress, unfit
from elastic_memory import Peak

Master = subprocess.Popen[bytes]
ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
LOOK_S = 0.1
# After the last step agents wait for each other and for DLRover's saver.
EXIT_LIMIT_S = 60.0


class Ended(Exception):  # noqa: N818 - not an error: somebody asked
    """This process was asked to end."""

    def __init__(self, number: int) -> None:
        super().__init__(f"ended by {signal.Signals(number).name}")
        self.number = number


@dataclass
class Run:
    """One run of the job; ``report`` is what becomes job.json."""

    plan: Plan
    place: Place
    report: dict[str, Any]
    started: list[Agent] = field(default_factory=list)
    peak: Peak = field(init=False)

    def __post_init__(self) -> None:
        self.peak = Peak(self.place.traces)

    def train(self) -> str:
        """Run training with its faults. Returns what went wrong, "" for nothing."""
        until = time.monotonic() + self.plan.limit_s
        master = elastic_agents.start_master(self.place, self.plan.agents, self.plan.out, until)
        alive = [self._agent(node, f"agent-{node}") for node in range(self.plan.agents)]
        progress = Progress(self.plan.out / "training.jsonl")
        owns = self.place.traces.owns
        injector = Injector(self.plan, progress, alive, lambda node: self._agent(node, f"agent-{node}-again"), owns)
        try:
            return self._watch(master, progress, injector, until) or self._wait_for_agents(alive)
        finally:
            progress.look()
            self.report.update(
                steps=progress.step, loss_first=progress.loss_first, loss_last=progress.loss, world=progress.world
            )

    def exit_codes(self) -> dict[str, int | None]:
        """Return each agent's exit code; a negative one is a signal, None an agent that this program had to end."""
        return {a.name: a.process.poll() for a in self.started}

    def _agent(self, node: int, name: str) -> Agent:
        argv = elastic_agents.agent_arguments(self.plan) + elastic_agents.program(self.place, self.plan)
        agent = elastic_agents.start_agent(self.place, self.plan, node, len(self.started), name, argv)
        self.started.append(agent)
        return agent

    def _watch(self, master: Master, progress: Progress, injector: Injector, until: float) -> str:
        """Follow training to its end, putting faults in. Returns why it did not get there."""
        while True:
            progress.look()
            self.peak.look()
            if progress.finished:
                return "" if injector.through else f"training was done at step {progress.step} before all its faults"
            if name := injector.next():
                sys.stderr.write(f"{name} at step {progress.step}\n")
            elif injector.through:
                self.place.hold.touch()
            if problem := self._over(master, progress, injector.agents, until):
                return problem
            time.sleep(LOOK_S)

    def _over(self, master: Master, progress: Progress, alive: list[Agent], until: float) -> str:
        """Return why it is of no use to wait any longer; "" when it is."""
        now, at = time.monotonic(), f"at step {progress.step} of {self.plan.steps}"
        ended = [a for a in alive if a.process.poll() is not None]
        codes = "".join(f"; {a.name} ended with exit code {a.process.returncode}" for a in ended)
        # All of them: while one is left the job may go on with it, or hang.
        if len(ended) == len(alive):
            return f"the job did not come back: it ended {at}{codes}"
        if master.poll() is not None:
            return f"DLRover's master ended with exit code {master.returncode}, {at}{codes}"
        if progress.stepped is not None and now - progress.stepped > self.plan.stall_limit_s:
            self.report["stalled"] = {"step": progress.step, "limit_s": self.plan.stall_limit_s}
            return f"the job hangs: no step for {self.plan.stall_limit_s:g} s, {at}{codes}"
        return f"not finished after {self.plan.limit_s:g} s, {at}{codes}" if now > until else ""

    def _wait_for_agents(self, alive: list[Agent]) -> str:
        until = time.monotonic() + EXIT_LIMIT_S
        for agent in alive:
            try:
                code = agent.process.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                return f"{agent.name} did not end within {EXIT_LIMIT_S:g} s after training was done"
            if code != 0:
                return f"{agent.name} ended with exit code {code} after training was done"
        return ""


def run(plan: Plan, check: bool) -> int:
    """Run the job or the check of nodes, clear away, and write job.json. Returns the exit code."""
    plan.out.mkdir(parents=True, exist_ok=True)
    plan = replace(plan, out=plan.out.resolve())
    for what in tidy.sweep():
        sys.stderr.write(f"{what}: removed, left by a run that was killed\n")
    before = tidy.present()
    job = tidy.job_name()
    place = Place(job, elastic_agents.free_port(), tidy.scratch(job))
    report = _begun(plan, check)
    the_run = Run(plan, place, report)
    number, problem = 0, ""
    for sig in ENDING:
        signal.signal(sig, _end)
    try:
        try:
            problem = node_check.run(plan, place, report, the_run.started, the_run.peak) if check else the_run.train()
        finally:
            # Nothing interrupts what follows: a second signal would leave the job behind.
            signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    except Ended as ended:
        number, problem = ended.number, str(ended)
    except (AgentError, OSError) as error:
        problem = str(error)
    finally:
        report["exit_codes"] = the_run.exit_codes()
        report["left"] = _cleared(place, before)
    report["peak_memory_mib"] = the_run.peak.mib
    report["ended_at"] = round(time.time(), 3)
    in_logs = _in_logs(plan, the_run.started)
    report["problem"] = problem or in_logs or _about(report["left"])
    _write(plan.out / "job.json", report)
    sys.stdout.write(json.dumps({"program": "elastic_smoke", "problem": report["problem"]}) + "\n")
    return 128 + number if number else int(bool(report["problem"]))


def _begun(plan: Plan, check: bool) -> dict[str, Any]:
    for name in ("training.jsonl", "faults.jsonl"):
        (plan.out / name).write_text("", encoding="utf-8")
    return {
        "program": "elastic_smoke",
        "scenario": ["node-check"] if check else list(plan.faults),
        "started_at": round(time.time(), 3),
        "ended_at": None,
        "agents": plan.agents,
        "min_agents": plan.min_agents,
        "checkpoint_every": plan.checkpoint_every,
        "max_restarts": plan.max_restarts,
        "steps_asked": plan.steps,
        "steps": 0,
        "loss_first": None,
        "loss_last": None,
        "world": 0,
        "stalled": None,
        "exit_codes": {},
        "versions": {"dlrover": _version("dlrover"), "torch": _version("torch"), "python": sys.version.split()[0]},
        "left": [],
    }


def _cleared(place: Place, before: frozenset[Path]) -> list[str]:
    left = place.traces.clear()
    tidy.remove_empty(before)
    return left


def _in_logs(plan: Plan, agents: list[Agent]) -> str:
    """Look at the logs and bound their size. Returns the failure that only a log tells."""
    logs = [plan.out / "master.log", *(plan.out / f"{a.name}.log" for a in agents)]
    downgraded = [log.name for log in logs if elastic_agents.downgraded(log)]
    for log in logs:
        elastic_agents.bound(log)
    return f"{downgraded[0]}: DLRover gave up and plain torchrun went on" if downgraded else ""


def _about(left: list[str]) -> str:
    return f"left behind: {'; '.join(left)[:500]}" if left else ""


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "missing"


def _end(number: int, _frame: FrameType | None) -> None:
    raise Ended(number)


def _write(path: Path, report: dict[str, Any]) -> None:
    beside = path.with_suffix(".part")
    beside.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    shutil.move(beside, path)


def _options(argv: list[str]) -> tuple[Plan, bool]:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, required=True, help="folder of the report")
    parser.add_argument("--agents", type=int, default=2)
    parser.add_argument("--min-agents", type=int, default=1, help="with fewer the job does not go on")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--checkpoint-every", type=int, default=5, help="steps between checkpoints in memory")
    parser.add_argument("--disk-every", type=int, default=4, help="every so many of them also go to disk")
    parser.add_argument("--step-seconds", type=float, default=0.1, help="a step takes this long at least, in s")
    parser.add_argument("--steps-between", type=int, default=20, help="steps before the first fault and between two")
    parser.add_argument("--max-restarts", type=int, default=3)
    parser.add_argument("--faults", default="", help=f"in this order, comma separated: {', '.join(KINDS)}")
    parser.add_argument("--node-check", action="store_true", help="run DLRover's check of nodes, and no training")
    parser.add_argument("--stall-limit", type=float, default=60.0, help="s without a step after which the job hangs")
    parser.add_argument("--limit", type=float, default=240.0, help="s for everything")
    given = parser.parse_args(argv)
    faults = tuple(f for f in given.faults.split(",") if f)
    if not 1 <= given.min_agents <= given.agents <= 64:
        parser.error("expected --agents of 1 to 64, and no fewer than --min-agents")
    if given.node_check and (given.agents < node_check.FEWEST or faults):
        parser.error(f"--node-check needs {node_check.FEWEST} agents or more, and takes no faults")
    if why := unfit(faults, given.agents, given.min_agents):
        parser.error(f"--faults {given.faults}: {why}")
    counts = (
        given.steps,
        given.checkpoint_every,
        given.disk_every,
        given.steps_between,
        given.stall_limit,
        given.limit,
    )
    if min(counts) <= 0 or given.max_restarts < 0 or not 0 <= given.step_seconds <= 10:
        parser.error("steps, intervals and limits must be above 0, --step-seconds at most 10")
    plan = Plan(
        out=given.out,
        agents=given.agents,
        min_agents=given.min_agents,
        steps=given.steps,
        checkpoint_every=given.checkpoint_every,
        disk_every=given.disk_every,
        step_seconds=given.step_seconds,
        steps_between=given.steps_between,
        max_restarts=given.max_restarts,
        faults=faults,
        stall_limit_s=given.stall_limit,
        limit_s=given.limit,
    )
    return plan, given.node_check


def main(argv: list[str] | None = None) -> int:
    """Run the job. Returns the exit code."""
    return run(*_options(sys.argv[1:] if argv is None else argv))


if __name__ == "__main__":
    sys.exit(main())
