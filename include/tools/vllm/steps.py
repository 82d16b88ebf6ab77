"""The steps of a measurement: each has its own deadline, leaves an exit code and a problem, and hides no other."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from api import ApiError
from processes import Descendants, Signals

GRACE_S = 2.0
LOOK_S = 0.1
# A client of a server that has ended may try again for minutes.
PATIENCE_S = 3.0


# What an answer that is not what it should be makes of the code that reads it.
UNREADABLE = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


class StepError(Exception):
    """A step has no result; the message says why."""


UNFIT = (ApiError, StepError, OSError, *UNREADABLE)


@dataclass(frozen=True)
class Step:
    """One step that has ended. ``problem`` is empty for one that did what it should."""

    name: str
    exit_code: int
    duration_s: float
    problem: str = ""


@dataclass
class Steps:
    """Runs steps one after the other and keeps what became of each."""

    descendants: Descendants
    signals: Signals
    scratch: Path
    limit_s: float
    alive: Callable[[], str] = lambda: ""  # what keeps the server from answering: "" while it runs
    done: list[Step] = field(default_factory=list)
    killed: list[str] = field(default_factory=list)

    def call(self, name: str, work: Callable[[float], Any], limit_s: float | None = None) -> Any:
        """Return what ``work(limit in s)`` returns, or None when it has a problem."""
        started = time.monotonic()
        try:
            self._ready()
            result = work(self.limit_s if limit_s is None else limit_s)
        except UNFIT as error:
            said = str(error) if isinstance(error, (ApiError, StepError)) else f"{type(error).__name__}: {error}"
            self.note(name, 1, time.monotonic() - started, said)
            return None
        except SystemExit as error:
            self.note(name, int(error.code or 1), time.monotonic() - started, "stopped")
            raise
        self.note(name, 0, time.monotonic() - started)
        return result

    def program(self, name: str, run: Callable[[Path], int], report: Callable[[], None]) -> None:
        """Run a program as a step. ``run`` gives its exit code; ``report`` takes its report, or raises StepError."""
        started = time.monotonic()
        log = self.scratch / f"{name}.log"
        code, problem = 1, ""
        try:
            self._ready()
            code = run(log)
            if code != 0:
                problem = f"exit code {code}: {last_lines(log)}"
            report()
        except (StepError, OSError, ValueError) as error:
            code, problem = code or 1, problem or f"{error}"
        except SystemExit as error:
            self.note(name, int(error.code or 1), time.monotonic() - started, "stopped")
            raise
        self.note(name, code, time.monotonic() - started, problem)

    def note(self, name: str, code: int, duration_s: float, problem: str = "") -> None:
        """Write down how a step ended, and tell it to whoever watches."""
        self.done.append(Step(name, code, round(duration_s, 3), problem[:1000]))
        said = f": {problem[:300]}" if problem else ""
        sys.stderr.write(f"{name}: exit code {code} after {duration_s:.1f} s{said}\n")
        sys.stderr.flush()

    def watch(self, ended: Callable[[float], bool], limit_s: float) -> None:
        """Wait until ``ended(seconds to wait)``. Raises StepError past the limit, or soon after the server's end."""
        until = time.monotonic() + limit_s
        server_until = None
        while not ended(LOOK_S):
            now = time.monotonic()
            if now > until:
                raise StepError(f"ended after its limit of {limit_s:g} s")
            if (gone := self.alive()) and server_until is None:
                server_until = now + PATIENCE_S
            if server_until is not None and now > server_until:
                raise StepError(gone)

    def as_rows(self) -> list[dict[str, Any]]:
        """Return the steps as they are written down."""
        return [asdict(s) for s in self.done]

    def _ready(self) -> None:
        if gone := self.alive():
            raise StepError(f"not started: {gone}")

    def run(self, argv: list[str], env: Mapping[str, str], log: Path) -> int:
        """Run a program to its end and end what it leaves. Return its exit code. Raises StepError past the limit."""
        process = self.descendants.start(argv, env, self.scratch, log)
        try:
            self.watch(lambda wait_s: _has_ended(process, wait_s), self.limit_s)
        finally:
            with self.signals.held():
                self.killed += self.descendants.end(process.pid, GRACE_S)
        code = process.returncode
        return 128 - code if code < 0 else code


def _has_ended(process: subprocess.Popen[bytes], wait_s: float) -> bool:
    try:
        process.wait(wait_s)
    except subprocess.TimeoutExpired:
        return False
    return True


def write_json(path: Path, body: Any) -> None:
    """Write a report so that a reader sees all of it or nothing."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.write_text(json.dumps(body, indent=1, allow_nan=False), encoding="utf-8")
    temporary.replace(path)


def take(source: Path, target: Path) -> None:
    """Move a program's own report to its place, unchanged. Raises StepError when the program left none."""
    if not source.is_file():
        raise StepError(f"no report: {source.name} was not written")
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    temporary.write_bytes(source.read_bytes())
    temporary.replace(target)


def tail(path: Path, limit: int) -> bytes:
    """Return the last ``limit`` bytes of a file; nothing where it is missing."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, path.stat().st_size - limit))
            return file.read(limit)
    except OSError:
        return b""


def last_lines(path: Path, characters: int = 600) -> str:
    """Return what a program said last, for a person."""
    text = tail(path, 8192).decode("utf-8", "replace")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " | ".join(lines)[-characters:] or "it said nothing"
