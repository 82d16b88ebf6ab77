"""How far a training job is, by its own events, and the faults that are put into it from outside, one after another."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import elastic_tidy as tidy
import psutil
from elastic_agents import Agent, AgentError, Plan

KINDS = ("kill-rank", "lose-agent", "return-agent", "hang-rank")
# Events come from a program that faults are put into: a line that is none is passed over, a flood is not read.
EVENTS_LIMIT_BYTES = 32 << 20


@dataclass(frozen=True)
class Rank:
    """The process of one rank, as its last event told."""

    rank: int
    node: int
    pid: int


@dataclass
class Progress:
    """What the events of training tell so far; ``look`` reads those that are new."""

    file: Path
    world: int = 0
    step: int = 0
    loss: float | None = None
    loss_first: float | None = None
    steps_since_resume: int = 0
    resumed_at: float = 0.0
    stepped: float | None = None
    done: set[int] = field(default_factory=set)
    ranks: dict[int, Rank] = field(default_factory=dict)
    _read: int = 0
    _rest: bytes = b""

    def look(self) -> None:
        """Read the events written since the last look."""
        try:
            with open(self.file, "rb") as file:
                file.seek(self._read)
                data = file.read(max(0, EVENTS_LIMIT_BYTES - self._read))
        except OSError:
            return
        self._read += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            with contextlib.suppress(ValueError, KeyError, TypeError, OverflowError, RecursionError):
                self._take(json.loads(line))

    @property
    def finished(self) -> bool:
        """True once every rank of the world has told that it is done."""
        return self.world > 0 and len(self.done) >= self.world

    def _take(self, event: dict[str, Any]) -> None:
        kind, rank, step = event["kind"], int(event["rank"]), int(event["step"])
        if kind in ("start", "resume"):
            if event["world"] != self.world or kind == "start":
                self.ranks = {r: p for r, p in self.ranks.items() if r < event["world"] and r != rank}
            self.world = int(event["world"])
            self.ranks[rank] = Rank(rank, int(event["node"]), int(event["pid"]))
            self.done.clear()
        if kind == "resume" and rank == 0:
            self.steps_since_resume, self.resumed_at, self.step = 0, float(event["t"]), step
        elif kind == "step":
            self.step, self.loss, self.stepped = step, float(event["loss"]), time.monotonic()
            self.steps_since_resume += 1
            if self.loss_first is None:
                self.loss_first = self.loss
        elif kind == "done":
            self.done.add(rank)


@dataclass
class Injector:
    """Puts the planned faults into a running job, each once the job has got over the one before.

    ``agents`` is the list of those alive, which it changes: it takes out one that it kills, adds one that it starts.
    ``owns`` tells whether a process is one of the job: by the time that it is to be killed it may be somebody else's.
    """

    plan: Plan
    progress: Progress
    agents: list[Agent]
    start_agent: Callable[[int], Agent]
    owns: Callable[[int], bool]
    faults: list[str] = field(init=False)
    hung: bool = False
    _since: float = 0.0
    _lost: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.faults = list(self.plan.faults)

    @property
    def through(self) -> bool:
        """True when all faults were put in, and the job has got over them."""
        return not self.faults and (self.recovered or not self.plan.faults)

    @property
    def recovered(self) -> bool:
        """True when the job steps again, with every agent that is alive, after the last fault."""
        now = self.progress
        steps = now.steps_since_resume > 0 and now.resumed_at > self._since
        return not self.hung and steps and now.world == len(self.agents)

    def next(self) -> str | None:
        """Put the next fault in if its time has come. Returns its name, or None."""
        if not self.faults or not self.recovered or self.progress.steps_since_resume < self.plan.steps_between:
            return None
        name = self.faults.pop(0)
        self._since = time.time()
        {
            "kill-rank": self._kill_rank,
            "hang-rank": self._hang_rank,
            "lose-agent": self._lose_agent,
            "return-agent": self._return_agent,
        }[name]()
        return name

    def _kill_rank(self) -> None:
        rank = self._last_rank()
        self._signal(rank, signal.SIGKILL)
        self._record("kill-rank", rank.node, rank.rank, f"SIGKILL to process {rank.pid}")

    def _hang_rank(self) -> None:
        rank = self._last_rank()
        self._signal(rank, signal.SIGSTOP)
        self.hung = True
        self._record("hang-rank", rank.node, rank.rank, f"SIGSTOP to process {rank.pid}")

    def _lose_agent(self) -> None:
        agent = self.agents.pop()
        self._lost.append(agent.node)
        killed = tidy.tree(agent.process.pid)
        for process in killed:
            with contextlib.suppress(psutil.Error):
                process.send_signal(signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            agent.process.wait(tidy.KILL_PATIENCE_S)
        self._record("lose-agent", agent.node, None, f"SIGKILL to {agent.name} and all it started: {len(killed)}")

    def _return_agent(self) -> None:
        node = self._lost.pop()
        agent = self.start_agent(node)
        self.agents.append(agent)
        self._record("return-agent", node, None, f"{agent.name} started in place of the lost one")

    def _signal(self, rank: Rank, number: signal.Signals) -> None:
        if not self.owns(rank.pid):
            raise AgentError(f"rank {rank.rank} is no process of the job any more: {rank.pid}")
        os.kill(rank.pid, number)

    def _last_rank(self) -> Rank:
        return self.progress.ranks[max(self.progress.ranks)]

    def _record(self, fault: str, node: int, rank: int | None, detail: str) -> None:
        line = {"t": round(self._since, 4), "fault": fault, "node": node, "rank": rank, "step": self.progress.step}
        with open(self.plan.out / "faults.jsonl", "a", encoding="utf-8") as out:
            out.write(json.dumps({**line, "detail": detail}) + "\n")


def unfit(faults: Sequence[str], agents: int, min_agents: int) -> str:
    """Return why these faults cannot be put into a job of so many agents, one after another; "" when they can."""
    alive, hung = agents, False
    for name in faults:
        if name not in KINDS:
            return f"no fault {name!r}; known: {', '.join(KINDS)}"
        if hung:
            return f"{name} after hang-rank: a job that hangs is ended, nothing comes after it"
        if name == "lose-agent":
            alive -= 1
            if alive < min_agents:
                return f"lose-agent would leave {alive} of {agents} agents; the job needs {min_agents}"
        if name == "return-agent":
            alive += 1
            if alive > agents:
                return "return-agent without a lose-agent before it"
        hung = name == "hang-rank"
    return ""
