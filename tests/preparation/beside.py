"""Run a command while what its tests need is made beside it: ``beside.py make check``.

The API server's programs and the tools' environments are made at the same time, niced, so that the command goes first;
what is still being made when the command is over, or is interrupted, is ended with everything it started. An interrupt
reaches the command as Ctrl-C does, by which pytest stops what tests started. Exit code: the command's.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

import prepared

NICENESS = 10
SHOWN_LINES = 40
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
WORKS = {
    "kubernetes assets": [str(prepared.ASSETS_SCRIPT)],
    "tool environments": [sys.executable, prepared.__file__],
}


class Work:
    """One thing that is made in the background, with what it says in a log."""

    def __init__(self, name: str, argv: Sequence[str], logs: Path) -> None:
        self.name, self.log = name, logs / f"{name.replace(' ', '-')}.log"
        logs.mkdir(parents=True, exist_ok=True)
        with open(self.log, "wb") as log:
            # A group of its own, to be ended as one; not a session: nice values count within one.
            self.process = subprocess.Popen(
                ["nice", "-n", str(NICENESS), *argv],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                process_group=0,
            )

    def end(self) -> None:
        """End it if it still works; show what it said last if it had failed by itself."""
        code = self.process.poll()
        if code is None:
            os.killpg(self.process.pid, signal.SIGTERM)
            self.process.wait()
        elif code:
            said = self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-SHOWN_LINES:]
            print(f"\nmaking {self.name} beside the tests failed ({code}); the end of {self.log}:", file=sys.stderr)
            print("\n".join(said), file=sys.stderr, flush=True)


def run(argv: Sequence[str]) -> int:
    """Run the command in a group of its own; hand on what would end us, to all of it. Return its exit code."""
    process = subprocess.Popen(argv, process_group=0)

    def hand_on(number: int, frame: FrameType | None) -> None:
        # As Ctrl-C, whatever came: pytest tears down on it, and dies of a SIGTERM leaving stores and labs behind.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGINT)

    for number in ENDING:
        signal.signal(number, hand_on)
    code = process.wait()
    return 128 - code if code < 0 else code


def main(argv: Sequence[str]) -> int:
    for number in ENDING:
        signal.signal(number, lambda number, frame: sys.exit(128 + number))
    logs = prepared.home() / "preparation"
    works: list[Work] = []
    try:
        for name, command in WORKS.items():
            works.append(Work(name, command, logs))  # one at a time: an interrupt ends those that have begun
        return run(argv)
    finally:
        for work in works:
            work.end()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
