"""Sites, stories of training, and the evidence that they leave on one machine and on a cluster."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from fabric_health.checks.check import Context, Launch, RowSet
from fabric_health.checks.elastic_training import ELASTIC_TRAINING
from fabric_health.datasets.arrow import split
from fabric_health.datasets.contracts import Row
from fabric_health.datasets.run import RunKey
from fabric_health.datasets.tables import Finding
from fabric_health.evidence import CommandResult, CommandStatus, ReachStatus, StoredEvidence, UnitEvidence
from fabric_health.site import Site, load_site

LAB = load_site(Path(__file__).parents[3] / "include" / "sites" / "lab.yaml")
NOW = datetime(2026, 11, 30, 5, 0, tzinfo=UTC)
T0 = NOW.timestamp()
STEP_S = 0.1
IMAGE = "registry.example.org/dlrover@sha256:" + "a" * 64


def local_site(**settings: Any) -> Site:
    return dataclasses.replace(LAB, checks={"elastic_training": {"steps": 200, **settings}}, jobs={"backend": "local"})


def cluster_site(image: str = IMAGE, **settings: Any) -> Site:
    jobs = {"backend": "kubernetes", "kubernetes": {"namespace": "n", "images": {"dlrover": image}}}
    return dataclasses.replace(LAB, checks={"elastic_training": {"steps": 200, **settings}}, jobs=jobs)


@dataclass(frozen=True)
class Part:
    """Workers that train from one start to the next: from ``resume`` to ``last``, ``wait_s`` after the part before."""

    resume: int
    last: int
    world: int = 2
    restart: int = 0
    wait_s: float = 3.0
    step_s: float = STEP_S


@dataclass(frozen=True)
class Fault:
    """A fault ``after_s`` the part of that number ended; a negative time is within the part."""

    kind: str
    part: int
    node: int | str = 1
    rank: int | None = None
    after_s: float = 0.01


WHOLE = (Part(0, 33, wait_s=8), Part(30, 70, restart=1), Part(70, 130, 1, 2, 9), Part(130, 200, 2, 3, 5))
FAULTS = (Fault("kill-rank", 0, rank=1), Fault("lose-agent", 1), Fault("return-agent", 2, after_s=-3))


@dataclass
class Story:
    """What happened; ``files`` are what a launch on one machine leaves of it."""

    parts: Sequence[Part] = WHOLE
    faults: Sequence[Fault] = FAULTS
    done: bool = True
    report: dict[str, Any] = field(default_factory=dict)
    losses: dict[int, Any] = field(default_factory=dict)
    more: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.starts: list[float] = []
        self.ends: list[float] = []
        at = T0
        for part in self.parts:
            self.starts.append(at := at + part.wait_s)
            self.ends.append(at := at + part.step_s * (part.last - part.resume) + 0.2)
        self.ended_at = at + 2

    def loss(self, step: int) -> Any:
        return self.losses.get(step, round(0.05 + 2 * math.exp(-step / 60), 6))

    def training(self) -> str:
        lines: list[dict[str, Any]] = list(self.more)
        for part, at in zip(self.parts, self.starts, strict=True):
            for rank in range(part.world):
                who = {"rank": rank, "world": part.world, "node": rank, "restart": part.restart, "pid": 10 + rank}
                lines.append({"t": at, "kind": "start", **who, "step": 0})
                lines.append({"t": at + 0.1, "kind": "resume", **who, "step": part.resume})
            who = {"rank": 0, "world": part.world, "node": 0, "restart": part.restart, "pid": 10}
            for step in range(part.resume + 1, part.last + 1):
                told = at + 0.1 + part.step_s * (step - part.resume)
                lines.append({"t": round(told, 4), "kind": "step", **who, "step": step, "loss": self.loss(step)})
        if self.done:
            last = self.parts[-1]
            who = {"world": last.world, "restart": last.restart, "pid": 10}
            lines += [
                {"t": self.ended_at - 1.9, "kind": "done", "rank": r, "node": r, **who, "step": last.last}
                for r in range(last.world)
            ]
        return "".join(json.dumps(line) + "\n" for line in lines)

    def injected(self) -> str:
        out = []
        for f in self.faults:
            line = {"t": round(self.ends[f.part] + f.after_s, 4), "fault": f.kind, "node": f.node, "rank": f.rank}
            out.append(json.dumps({**line, "step": self.parts[f.part].last, "detail": "SIGKILL"}) + "\n")
        return "".join(out)

    def master(self) -> str:
        lines = [
            f"[{clock(at)}] [INFO] [rdzv_manager.py:253:_log_rendezvous_info] Completed {n} round rendezvous of "
            f"elastic-training is {dict(enumerate(range(p.world)))} \nThe times of nodes to join rendezvous are {{}}.\n"
            for n, (p, at) in enumerate(zip(self.parts, [s - 1 for s in self.starts], strict=True), 1)
        ]
        return "".join(lines)

    def agent(self, node: int) -> str:
        out = [
            f"[{clock(T0 + 3)}] [INFO] [training.py:1502:launch_agent] Launching agent entrypoint: x, rank: {node}\n"
        ]
        for n, (part, at) in enumerate(zip(self.parts, self.starts, strict=True)):
            if n:
                out.append(
                    f"[{clock(self.ends[n - 1] + 0.6)}] [ERROR] [training.py:1202:_invoke_run] The worker fails with "
                    "{1: ProcessFailure(local_rank=0, pid=11, exitcode=-9, error_file='<N/A>')}\n"
                )
            out.append(
                f"[{clock(at - 0.9)}] [INFO] [training.py:708:_rendezvous] [default] Rendezvous complete for workers. "
                f"Result:\n  restart_count={part.restart}\n  group_rank={node}\n  group_world_size={part.world}\n"
                f"  global_world_sizes=[{part.world}]\n"
            )
        return "".join(out)

    def job(self) -> str:
        said: dict[str, Any] = {
            "program": "elastic_smoke", "scenario": [f.kind for f in self.faults], "started_at": T0, "agents": 2,
            "min_agents": 1, "checkpoint_every": 5, "max_restarts": 3, "steps_asked": 200, "stalled": None,
            "exit_codes": {"agent-0": 0, "agent-1": -9, "agent-1-again": 0}, "left": [], "problem": "",
            "versions": {"dlrover": "0.6.1", "torch": "2.13.0", "python": "3.11.2"}, "peak_memory_mib": 812.5,
        }  # fmt: skip
        return json.dumps({**said, **self.report})

    def files(self) -> dict[str, str]:
        return {
            "job.json": self.job(),
            "training.jsonl": self.training(),
            "faults.jsonl": self.injected(),
            "master.log": self.master(),
            "agent-0.log": self.agent(0),
            "agent-1.log": self.agent(1),
            "agent-1-again.log": self.agent(1),
        }


def clock(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S,%f")[:-3]


def checked(times: Sequence[float] = (20.3, 20.3, 21.0, 20.9), failed: Sequence[int] = ()) -> str:
    """Return a master's log of a node check: two rounds of it where a node is slow or fails."""
    out = []
    for round_ in (1, 2):
        status = {n: n not in failed for n in range(len(times))}
        head = f"[{clock(T0 + 20 * round_)}] [INFO] [rdzv_manager.py:677:report] network-check round {round_}: The node"
        out.append(f"{head} status are: {status}, the node group are: [{{0: 0, 1: 1}}, {{2: 2, 3: 3}}]\n")
        out.append(f"{head} elapsed time are {dict(enumerate(times))}\n")
    if failed:
        out.append(
            f"[{clock(T0 + 41)}] [WARNING] [x.py:1:f] Fault nodes(rank:node_id) are: { ({n: n for n in failed}) }\n"
        )
    return "".join(out)


def check_files(**master: Any) -> dict[str, str]:
    """Return what a launch that checks nodes leaves."""
    report = Story(faults=(), report={"agents": 4, "min_agents": 3, "max_restarts": 0, "steps_asked": 0}).job()
    logs = {f"agent-{n}.log": f"[{clock(T0 + 2)}] [INFO] [x.py:1:f] hello\n" for n in range(4)}
    return {"job.json": report, "master.log": checked(**master), **logs}


def evidence(
    launch: str, files: dict[str, str], *, exit_code: int | None = 0, stdout: str = "", stderr: str = "",
    seconds: float = 120, status: CommandStatus = CommandStatus.EXITED, reach: ReachStatus = ReachStatus.OK,
    detail: str = "", cut: Sequence[str] = (), begin: datetime = NOW,
) -> UnitEvidence:  # fmt: skip
    end = begin + timedelta(seconds=seconds)

    def one(name: str, text: str, state: CommandStatus, err: str = "") -> CommandResult:
        return CommandResult(name, ("x",), state, exit_code, text, err, begin, end)

    artefacts = [
        one(f"artefact:{n}", t, CommandStatus.TRUNCATED if n in cut else CommandStatus.EXITED) for n, t in files.items()
    ]
    results = (one("job", stdout, status, stderr), *artefacts)
    return UnitEvidence(launch, "launch", "elastic_training", reach, detail, begin, end, results)


class Run:
    """A run of the check on one machine: what a launch that trains leaves, and one that checks nodes."""

    def __init__(
        self, story: Story | dict[str, str] | None = None, site: Site | None = None,
        check: dict[str, str] | None = None, **given: Any,
    ) -> None:  # fmt: skip
        self.site = site or local_site()
        files = story if isinstance(story, dict) else (story or Story()).files()
        self.evidence: dict[str, UnitEvidence] = {}
        for launch in self.planned():
            trains = not launch.name.startswith("elastic-check-")
            seconds = {} if isinstance(story, dict) else {"seconds": (story or Story()).ended_at - T0}
            own = {**seconds, **given} if trains else {}
            self.evidence[launch.name] = evidence(
                launch.name, files if trains else (check_files() if check is None else check), **own
            )
        self.read()

    def planned(self) -> tuple[Launch, ...]:
        assert ELASTIC_TRAINING.launches is not None
        return ELASTIC_TRAINING.launches(self.site, self.site.nodes, "run-1")

    def read(self) -> None:
        self.launches = self.planned()
        self.rows: list[Row] = []
        for launch in self.launches:
            self.rows += ELASTIC_TRAINING.parse(launch, self.evidence[launch.name], self.site)

    def of(self, row_type: type[Any]) -> list[Any]:
        return RowSet.gather(self.rows).of(row_type)

    def findings(self) -> list[Finding]:
        reach = {n: StoredEvidence(n, "k", "h", e.status) for n, e in self.evidence.items()}
        context = Context(self.site, "run-1", NOW, self.launches, reach)
        return ELASTIC_TRAINING.judge(RowSet.gather(self.rows), context)

    def rules(self) -> list[str]:
        return sorted({f.rule for f in self.findings()})

    def quarantined(self) -> list[str]:
        """Return why rows broke their contract; a parser's own rows never do."""
        key = RunKey("s", "run-1", NOW, "measured")
        reasons = []
        for row_type, rows in RowSet.gather(self.rows).rows.items():
            _, broken = split(row_type, [(r, None) for r in rows], key, "elastic_training")
            reasons += [b.reason for b in broken]
        return reasons


CLUSTER = (Part(0, 40, 32, wait_s=60), Part(40, 90, 24, 1, 30), Part(90, 200, 32, 2, 20))


@dataclass
class ClusterStory(Story):
    """A worker pod of four is deleted, another takes its place. Eight processes a node."""

    parts: Sequence[Part] = CLUSTER
    faults: Sequence[Fault] = (Fault("delete-worker", 0, "gpu-002"),)
    replaced_s: float | None = 45.0
    nodes: Sequence[str] = ("gpu-001", "gpu-002", "gpu-003", "gpu-004")

    def pods(self) -> str:
        lines = []
        for rank, node in enumerate(self.nodes):
            pod = {"pod": f"j-edljob-worker-{rank}", "replica_type": "worker", "replica_id": rank, "node": node}
            pod |= {"rank_index": rank, "relaunch_count": 0}
            lines += [{"t": T0 - 20, **pod, "event": "created"}, {"t": T0 - 5, **pod, "event": "running"}]
        master = {"pod": "elasticjob-j-dlrover-master", "replica_type": "dlrover-master", "event": "running"}
        lines.append({"t": T0 - 10, **master, "replica_id": 0, "rank_index": 0, "relaunch_count": 0, "node": "cpu-1"})
        at = self.ends[0] + 0.01
        gone = {
            "pod": "j-edljob-worker-1",
            "replica_type": "worker",
            "replica_id": 1,
            "rank_index": 1,
            "node": "gpu-002",
        }
        lines.append({"t": at, **gone, "event": "deleted", "relaunch_count": 0})
        if self.replaced_s is not None:
            new = {**gone, "pod": "j-edljob-worker-4", "replica_id": 4, "relaunch_count": 1}
            lines += [{"t": at + 2, **new, "event": "created"}, {"t": at + self.replaced_s, **new, "event": "running"}]
        return "".join(json.dumps(line) + "\n" for line in lines)

    def injected(self) -> str:
        at = self.ends[0] + 0.01
        line = {"t": at, "fault": "delete-worker", "node": "gpu-002", "rank": None, "rank_index": 1, "step": 40}
        return json.dumps({**line, "pod": "j-edljob-worker-1", "detail": "deleted at step 40"}) + "\n"

    def files(self) -> dict[str, str]:
        return {"faults.jsonl": self.injected(), "pods.jsonl": self.pods(), "master.log": checked() + self.master()}

    def stdout(self) -> str:
        return "".join(f"EV {line}\n" for line in self.training().splitlines())


class ClusterRun(Run):
    """A run of the check on a cluster."""

    def __init__(self, story: ClusterStory | None = None, site: Site | None = None, **given: Any) -> None:
        story = story or ClusterStory()
        files = {**story.files(), **given.pop("files", {})}
        told = {"stdout": story.stdout(), "stderr": story.agent(0) + story.agent(1), "seconds": story.ended_at - T0}
        super().__init__(files, site or cluster_site(), **{**told, **given})
