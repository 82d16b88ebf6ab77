"""Starts a local DLRover job: the master, and agents that stand for nodes, as stock ``dlrover-run`` processes.

The agents are not started with ``--standalone``: that makes DLRover start its own master, which fails with torch 2.8
and newer, and the job then goes on under plain torchrun. So the master is started here and named to the agents.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import elastic_tidy as tidy

TRAIN = Path(__file__).resolve().parent / "train.py"
MASTER_LIMIT_S = 60.0
# How long a rendezvous waits for more nodes once it has enough: DLRover's lastcall_timeout.
LAST_CALL_S = 5
JOIN_LIMIT_S = 120
LOG_LIMIT_BYTES = 1 << 20


class AgentError(Exception):
    """The job cannot be run; the message says what to look at."""


@dataclass(frozen=True)
class Plan:
    """What is run. Times in s; ``limit_s`` is for everything, ``stall_limit_s`` for the time without a step."""

    out: Path
    agents: int = 2
    min_agents: int = 1
    steps: int = 200
    checkpoint_every: int = 5
    disk_every: int = 4
    step_seconds: float = 0.1
    steps_between: int = 20
    max_restarts: int = 3
    faults: tuple[str, ...] = ()
    stall_limit_s: float = 60.0
    limit_s: float = 240.0


@dataclass(frozen=True)
class Place:
    """Where a run happens: its name, the master's port, and a folder of its own for all that is temporary."""

    job: str
    port: int
    scratch: Path

    @property
    def hold(self) -> Path:
        """The file that training waits for before its last step: it must not be over before its faults are."""
        return self.scratch / "go-on"

    @property
    def traces(self) -> tidy.Traces:
        """What the run may leave behind."""
        return tidy.Traces(self.job, (self.scratch,), self.port)


@dataclass
class Agent:
    """One agent: the node that it stands for, its name in the report, its process."""

    node: int
    name: str
    process: subprocess.Popen[bytes]


def free_port() -> int:
    """Return a port of the loopback interface that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def environment(place: Place, plan: Plan, node: int, number: int) -> dict[str, str]:
    """Return the environment of the agent of ``node``; ``number`` is new for each agent, as a pod's would be.

    Each agent has a job name of its own: agents on one machine would otherwise share checkpoints and sockets, which
    nodes do not.
    """
    return {
        **_base(place),
        "DLROVER_MASTER_ADDR": f"127.0.0.1:{place.port}",
        "NODE_TYPE": "worker",
        "NODE_ID": str(number),
        "NODE_RANK": str(node),
        "NODE_NUM": str(plan.agents),
        "ELASTIC_JOB_NAME": f"{place.job}-n{node}",
        "POD_IP": "127.0.0.1",
        "GLOO_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": "1",
    }


def program(place: Place, plan: Plan) -> list[str]:
    """Return the training program and its arguments."""
    return [
        str(TRAIN),
        *("--steps", str(plan.steps)),
        *("--checkpoints", str(place.scratch / "checkpoints")),
        *("--checkpoint-every", str(plan.checkpoint_every)),
        *("--disk-every", str(plan.disk_every)),
        *("--step-seconds", str(plan.step_seconds)),
        *("--events", str(plan.out / "training.jsonl")),
        *("--hold", str(place.hold)),
    ]


def agent_arguments(plan: Plan) -> list[str]:
    """Return the arguments of ``dlrover-run`` before the program."""
    conf = f"join_timeout={JOIN_LIMIT_S},lastcall_timeout={LAST_CALL_S},pend_timeout={JOIN_LIMIT_S}"
    return [
        f"--nnodes={plan.min_agents}:{plan.agents}",
        "--nproc_per_node=1",
        *("--max-restarts", str(plan.max_restarts)),
        *("--rdzv-conf", conf),
    ]


def start_master(place: Place, nodes: int, out: Path, until: float) -> subprocess.Popen[bytes]:
    """Start the master and wait until it answers, at most until ``until`` (monotonic s). Raises AgentError."""
    argv = [sys.executable, "-u", "-m", "dlrover.python.master.main", "--platform", "local"]
    argv += ["--port", str(place.port), "--node_num", str(nodes), "--job_name", place.job]
    master = _start(argv, _base(place), out / "master.log", place.scratch)
    until = min(until, time.monotonic() + MASTER_LIMIT_S)
    while time.monotonic() < until:
        if master.poll() is not None:
            raise AgentError(f"DLRover's master ended with exit code {master.returncode}; see master.log")
        with socket.socket() as probe:
            probe.settimeout(0.5)
            if probe.connect_ex(("127.0.0.1", place.port)) == 0:
                return master
        time.sleep(0.1)
    raise AgentError(f"DLRover's master does not listen on port {place.port}; see master.log")


def start_agent(
    place: Place,
    plan: Plan,
    node: int,
    number: int,
    name: str,
    argv: Sequence[str],
    more: Mapping[str, str] = MappingProxyType({}),
) -> Agent:
    """Start an agent that runs ``argv`` (arguments of dlrover-run, program and all), its output in ``<name>.log``.

    ``more`` is added to its environment.
    """
    command = [sys.executable, "-u", "-m", "dlrover.trainer.torch.elastic_run", *argv]
    environ = {**environment(place, plan, node, number), **more}
    return Agent(node, name, _start(command, environ, plan.out / f"{name}.log", place.scratch))


def downgraded(log: Path) -> bool:
    """Tell whether an agent gave up DLRover for plain torchrun: nothing that it shows then is DLRover's."""
    words, rest = b"Downgrade to use torch-run", b""
    try:
        with open(log, "rb") as file:
            while part := file.read(LOG_LIMIT_BYTES):
                if words in rest + part:
                    return True
                rest = (rest + part)[-len(words) :]
    except OSError:
        return False
    return False


def bound(log: Path, limit: int = LOG_LIMIT_BYTES) -> None:
    """Keep a log's beginning and end where it is larger than ``limit`` bytes, and say how much is gone."""
    try:
        size, half = log.stat().st_size, limit // 2
        if size > limit:
            with open(log, "r+b") as file:
                file.seek(size - half)
                end = file.read(half)
                file.seek(half)
                file.write(f"\n[... {size - 2 * half} bytes left out ...]\n".encode() + end)
                file.truncate()
    except OSError:
        return


def _base(place: Place) -> dict[str, str]:
    """Return what every process of the job sees; its temporary files and DLRover's event files go to its folder."""
    kept = ("PATH", "HOME", "USER", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "FABRIC_HEALTH_HOME")
    return {
        **{k: os.environ[k] for k in kept if k in os.environ},
        # The local backend finds the processes of its jobs by this one.
        **{k: v for k, v in os.environ.items() if k == "FABRIC_HEALTH_JOB"},
        tidy.MARK: place.job,
        "TMPDIR": str(place.scratch),
        "DLROVER_EVENT_FILE_DIR": str(place.scratch / "events"),
        # A local master looks for a cluster, too, and must not find one that the user has access to.
        "KUBECONFIG": str(place.scratch / "none"),
        # DLRover's log lines tell no time zone.
        "TZ": "UTC",
        "PYTHONUNBUFFERED": "1",
        "PYTHONWARNINGS": "ignore",
    }


def _start(argv: Sequence[str], environ: dict[str, str], log: Path, cwd: Path) -> subprocess.Popen[bytes]:
    with open(log, "wb") as out:
        return subprocess.Popen(
            list(argv), env=environ, cwd=cwd, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
        )
