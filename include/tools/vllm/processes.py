"""The processes that this program starts, and all that those start: found, measured and ended."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

import psutil

MIB = 1 << 20
_PR_SET_CHILD_SUBREAPER = 36
_SHARED_MEMORY = "/dev/shm/"  # noqa: S108
_SAMPLE_S = 1.0


@dataclass
class Signals:
    """SIGTERM, SIGINT and SIGHUP end this program by SystemExit, once, and not in the middle of ending something."""

    received: int = 0
    _shields: int = 0

    def install(self) -> None:
        """Take over the signals of this process."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._on)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Let what is inside be finished; a signal that comes meanwhile ends the program afterwards."""
        before = self.received
        self._shields += 1
        try:
            yield
        finally:
            self._shields -= 1
        if self.received and not before and not self._shields:
            raise SystemExit(128 + self.received)

    def _on(self, number: int, _frame: FrameType | None) -> None:
        if self.received:
            return
        self.received = number
        if not self._shields:
            raise SystemExit(128 + number)


@dataclass
class Descendants:
    """All that this process has started. What its children abandon becomes its own child, so that nothing is lost."""

    _own: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)

    def adopt(self) -> None:
        """Become the parent of what children abandon (Linux: prctl(2), PR_SET_CHILD_SUBREAPER)."""
        if sys.platform == "linux":
            ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    def start(
        self, argv: list[str], env: Mapping[str, str], cwd: Path, log: Path, *, talks: bool = False
    ) -> subprocess.Popen[bytes]:
        """Start a program in a session of its own, its output in ``log``. Raises OSError.

        One that ``talks`` has its input and its standard output as pipes.
        """
        with open(log, "wb") as out:
            process = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE if talks else subprocess.DEVNULL,
                stdout=subprocess.PIPE if talks else out,
                stderr=out,
                cwd=cwd,
                env=dict(env),
                start_new_session=True,
                bufsize=0,
            )
        self._own[process.pid] = process
        return process

    def alive(self, session: int | None = None) -> list[psutil.Process]:
        """Return what runs of all that was started, or of one session."""
        out = []
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error, ProcessLookupError):
                if process.status() != psutil.STATUS_ZOMBIE and session in (None, os.getsid(process.pid)):
                    out.append(process)
        return out

    def end(self, session: int | None, grace_s: float) -> list[str]:
        """End what runs (of one session): SIGTERM, and SIGKILL after ``grace_s``. Return their command lines."""
        found: dict[int, str] = {}
        asked_at = time.monotonic()
        while alive := self.alive(session):
            late = time.monotonic() - asked_at
            if late > grace_s + 5:
                break  # stuck in the kernel: it is named as left
            for process in alive:
                with contextlib.suppress(psutil.Error):
                    if process.pid not in found:
                        found[process.pid] = command_line(process)
                        process.terminate()
                    elif late > grace_s:
                        process.kill()
            time.sleep(0.05)
        self._reap()
        return list(found.values())

    def _reap(self) -> None:
        """Take note of the dead: our own by their Popen, which keeps the exit code, and what others abandoned."""
        for process in self._own.values():
            process.poll()
        for child in psutil.Process().children():
            with contextlib.suppress(psutil.Error, ChildProcessError):
                if child.pid not in self._own and child.status() == psutil.STATUS_ZOMBIE:
                    os.waitpid(child.pid, os.WNOHANG)


def command_line(process: psutil.Process) -> str:
    """Return the command line of a process, shortened; its name where it hides it."""
    try:
        return " ".join(process.cmdline())[:300] or process.name()
    except psutil.Error:
        return f"process {process.pid}"


def memory_mib(processes: list[psutil.Process]) -> float:
    """Return what processes hold in MiB; pages that several share are counted once (proportional set size)."""
    total = 0
    for process in processes:
        with contextlib.suppress(psutil.Error, OSError):
            total += getattr(process.memory_full_info(), "pss", 0) or process.memory_info().rss
    return total / MIB


def shared_memory_of(processes: list[psutil.Process]) -> set[str]:
    """Return the named shared memory segments (``/dev/shm/...``) that processes have mapped."""
    out: set[str] = set()
    for process in processes:
        with (
            contextlib.suppress(OSError),
            open(f"/proc/{process.pid}/maps", encoding="utf-8", errors="replace") as file,
        ):
            for line in file:
                if _SHARED_MEMORY in line and not line.rstrip().endswith("(deleted)"):
                    out.add(_SHARED_MEMORY + line.rstrip("\n").partition(_SHARED_MEMORY)[2])
    return out


@dataclass
class Watch:
    """Samples, once a second, what all descendants hold: a thread that ends when it is asked to."""

    descendants: Descendants
    server: int | None = None
    peak_mib: float = 0.0
    server_peak_mib: float = 0.0
    segments: set[str] = field(default_factory=set)
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def begin(self) -> None:
        """Start sampling."""
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def look(self) -> None:
        """Take one sample: memory, and the segments in shared memory that would have to go, too."""
        alive = self.descendants.alive()
        sizes = {p.pid: memory_mib([p]) for p in alive}
        self.peak_mib = max(self.peak_mib, sum(sizes.values()))
        if self.server is not None:
            of_server = {p.pid for p in self.descendants.alive(self.server)}
            self.server_peak_mib = max(self.server_peak_mib, sum(m for pid, m in sizes.items() if pid in of_server))
        self.segments |= shared_memory_of(alive)

    def end(self) -> None:
        """Stop sampling."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(5)

    def _run(self) -> None:
        while not self._stop.wait(_SAMPLE_S):
            with contextlib.suppress(psutil.Error, OSError):
                self.look()
