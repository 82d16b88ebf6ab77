"""Clients that load their libraries while the server starts, and then run one command after the other."""

from __future__ import annotations

import json
import os
import select
import sys
from collections.abc import Mapping
from pathlib import Path

from processes import Descendants
from steps import StepError, Steps, last_lines

GRACE_S = 1.0
ANSWER_S = 10.0


class Prepared:
    """A client that has loaded its libraries and runs commands in forks of itself (see prepared.py)."""

    def __init__(self, kind: str, descendants: Descendants, scratch: Path, env: Mapping[str, str]) -> None:
        """Start it; it loads while others work. Raises OSError."""
        self.kind = kind
        self.log = scratch / f"prepared-{kind}.log"
        program = Path(__file__).with_name("prepared.py")
        self._process = descendants.start([sys.executable, str(program), kind], env, scratch, self.log, talks=True)
        self._descendants = descendants
        self._heard = b""
        self._ready = False

    def wait_ready(self, steps: Steps, limit_s: float) -> None:
        """Wait until it has loaded. Raises StepError when it cannot, or not in time."""
        if not self._ready and self._line(steps, limit_s) != "ready":
            raise StepError(f"{self.kind}: its libraries cannot be loaded: {last_lines(self.log)}")
        self._ready = True

    def run(self, steps: Steps, argv: list[str], log: Path, folder: Path) -> int:
        """Run a command in a fork, in ``folder``. Return its exit code. Raises StepError when there is none."""
        self.wait_ready(steps, steps.limit_s)
        assert self._process.stdin is not None
        command = {"argv": argv, "log": str(log), "folder": str(folder)}
        self._process.stdin.write(json.dumps(command).encode() + b"\n")
        child = int(self._line(steps, ANSWER_S) or 0)
        said = ""
        try:
            said = self._line(steps, steps.limit_s)
        finally:
            with steps.signals.held():
                steps.killed += self._descendants.end(child, GRACE_S)
                if not said and not steps.signals.received:
                    self._line(steps, ANSWER_S)  # the exit code of what was ended: no answer to the next command
        if not said:
            raise StepError(f"{self.kind}: the client ended: {last_lines(self.log)}")
        return int(said)

    def end(self) -> None:
        """End it."""
        self._descendants.end(self._process.pid, GRACE_S)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def _line(self, steps: Steps, limit_s: float) -> str:
        """Return the next answer; "" when it has ended. Raises StepError past the limit."""
        assert self._process.stdout is not None
        source = self._process.stdout.fileno()

        def look(wait_s: float) -> bool:
            if b"\n" not in self._heard and select.select([source], [], [], wait_s)[0]:
                self._heard += os.read(source, 4096) or b"\n"
            return b"\n" in self._heard

        steps.watch(look, limit_s)
        line, _, self._heard = self._heard.partition(b"\n")
        return line.decode("ascii", "replace").strip()
