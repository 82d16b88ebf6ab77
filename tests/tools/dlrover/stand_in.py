"""Runs elastic_smoke.py with processes that only behave like DLRover's, for tests of clearing away.

``stand_in.py ROOT ARGUMENTS``: the master listens and never ends, and agents start a rank in a session of its own that
tells events and steps. They leave shared memory and sockets below ROOT, in the places that DLRover has for them. The
file ROOT/crash makes agents fail.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

TOOL = Path(__file__).parents[3] / "include" / "tools" / "dlrover"


def master(port: int) -> None:
    """Listen, and never end."""
    with socket.create_server(("127.0.0.1", port)):
        time.sleep(600)


def agent(root: Path, argv: Sequence[str]) -> int:
    """Leave files, start a rank that leaves the session, and wait for it; start it again if it dies."""
    job = os.environ["ELASTIC_JOB_NAME"]
    (root / "shm" / f"{job}_ckpt_shm_0").write_bytes(b"state")
    (root / "sockets" / job).mkdir(parents=True, exist_ok=True)
    (root / "sockets" / job / "queue.sock").touch()
    if (root / "crash").exists():
        return 3
    for restart in range(4):
        rank = [sys.executable, __file__, "rank", str(restart), *argv]
        code = subprocess.Popen(rank, start_new_session=True).wait()
        if code == 0:
            return 0
    return 1


def rank(restart: int, argv: Sequence[str]) -> None:
    """Tell a start, a resume and steps, to the last."""

    def given(name: str) -> str:
        return argv[argv.index(name) + 1]

    node = int(os.environ["NODE_RANK"])
    who = {"rank": node, "world": 2, "node": node, "restart": restart, "pid": os.getpid()}

    def tell(kind: str, step: int, **more: float) -> None:
        with open(given("--events"), "a", encoding="utf-8") as out:
            out.write(json.dumps({"t": time.time(), "kind": kind, **who, "step": step, **more}) + "\n")

    tell("start", 0)
    tell("resume", 20 * min(restart, 1))
    steps = int(given("--steps"))
    for step in range(1 + 20 * min(restart, 1), steps + 1):
        while step == steps and not Path(given("--hold")).exists():
            time.sleep(0.02)
        if node == 0:
            tell("step", step, loss=1 / step)
        time.sleep(float(given("--step-seconds")))
    tell("done", steps, loss=1 / steps)


def smoke(root: Path, argv: list[str]) -> int:
    """Run elastic_smoke.py with these in DLRover's place and with ``root`` as the place of what DLRover leaves."""
    sys.path.insert(0, str(TOOL))
    import elastic_agents
    import elastic_smoke
    import elastic_tidy

    def start(command: Sequence[str], environ: dict[str, str], log: Path, cwd: Path) -> subprocess.Popen[bytes]:
        kind = ["master", command[command.index("--port") + 1]] if "--port" in command else ["agent"]
        with open(log, "ab") as out:
            mine = [sys.executable, __file__, *kind, str(root), *command]
            return subprocess.Popen(mine, env=environ, cwd=cwd, stdout=out, stderr=out, start_new_session=True)

    traces, sweep = elastic_tidy.Traces, elastic_tidy.sweep
    places = {"shared_memory": root / "shm", "sockets": root / "sockets"}
    elastic_tidy.Traces = lambda *a: traces(*a, **places)  # type: ignore[misc,assignment]
    elastic_tidy.sweep = lambda: sweep(**places, folders=root / "tmp")
    elastic_agents._start = start
    return elastic_smoke.main(argv)


if __name__ == "__main__":
    role, *rest = sys.argv[1:]
    if role == "master":
        master(int(rest[0]))
    elif role == "agent":
        sys.exit(agent(Path(rest[0]), rest[1:]))
    elif role == "rank":
        rank(int(rest[0]), rest[1:])
    else:
        sys.exit(smoke(Path(role), rest))
