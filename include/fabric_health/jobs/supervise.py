"""The local backend's supervisor: runs one job, bounds its output and its time, and writes down how it ended.

Started as ``python -m fabric_health.jobs.supervise FOLDER`` in a session of its own, it outlives whoever started it,
so that a restarted task finds the job running, or finds how it ended. FOLDER holds ``request.json``; ``stdout``,
``stderr`` and at last ``ended.json`` are written there. The environment (with secrets) is inherited, never written.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType
from typing import BinaryIO

import psutil

READ_BYTES = 1 << 16
LOOK_S = 0.2
# A job is asked to end before it is killed: it may have a result to write, or ranks to tell.
TERM_GRACE_S = 5.0
# What a job left behind may hold its pipes open; it is killed, and then this long is enough to read what is in them.
DRAIN_S = 2.0
_PR_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True)
class Request:
    """What to run. ``output_max_bytes`` bounds each of stdout and stderr; the first bytes are kept."""

    argv: tuple[str, ...]
    time_limit_s: float
    output_max_bytes: int
    fingerprint: str


@dataclass(frozen=True)
class Ended:
    """How the job ended: ``exited``, ``timeout``, ``cancelled`` or ``not_started``; times are seconds since 1970."""

    status: str
    exit_code: int | None
    started_at: float
    ended_at: float
    stdout_bytes: int = 0
    stderr_bytes: int = 0
    reason: str = ""


@dataclass
class _Stream:
    """Copies a pipe to a file up to a bound and counts what came."""

    file: BinaryIO
    limit: int
    seen: int = 0

    def take(self, data: bytes) -> None:
        self.file.write(data[: max(0, self.limit - self.seen)])
        self.file.flush()
        self.seen += len(data)


@dataclass
class _Job:
    """One running job."""

    request: Request
    folder: Path
    started_at: float = field(default_factory=time.time)
    cancelled: bool = False
    _child_pid: int = 0
    _selector: selectors.DefaultSelector = field(default_factory=selectors.DefaultSelector)

    def run(self) -> Ended:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._cancel)
        # Whatever the job starts and abandons becomes our child, so that nothing of it can outlive us.
        if sys.platform == "linux":
            ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        limit = self.request.output_max_bytes
        with open(self.folder / "stdout", "wb") as out, open(self.folder / "stderr", "wb") as err:
            streams = (_Stream(out, limit), _Stream(err, limit))
            try:
                child = subprocess.Popen(
                    self.request.argv,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    cwd=self.folder / "work",
                    start_new_session=True,
                )
            except (OSError, ValueError) as error:
                return self._ended("not_started", None, streams, f"{self.request.argv[0]}: {error}")
            self._child_pid = child.pid
            for pipe, stream in zip((child.stdout, child.stderr), streams, strict=True):
                assert pipe is not None
                os.set_blocking(pipe.fileno(), False)
                self._selector.register(pipe, selectors.EVENT_READ, stream)
            status = self._watch(child)
            self._end_descendants()
            self._drain()
            code = child.wait()
            return self._ended(status, 128 - code if code < 0 else code, streams, _signal_reason(status, code))

    def _cancel(self, _number: int, _frame: FrameType | None) -> None:
        self.cancelled = True

    def _watch(self, child: subprocess.Popen[bytes]) -> str:
        until = time.monotonic() + self.request.time_limit_s
        while child.poll() is None:
            if self.cancelled:
                return "cancelled"
            left = until - time.monotonic()
            if left <= 0:
                return "timeout"
            self._copy(min(left, LOOK_S))
        return "exited"

    def _copy(self, wait_s: float) -> bool:
        """Copy what the pipes hold. False once both are at their end."""
        if not self._selector.get_map():
            time.sleep(min(wait_s, 0.02))
            return False
        for key, _ in self._selector.select(wait_s):
            try:
                data = os.read(key.fd, READ_BYTES)
            except BlockingIOError:
                continue
            if data:
                key.data.take(data)
            else:
                self._selector.unregister(key.fileobj)
        return True

    def _drain(self) -> None:
        until = time.monotonic() + DRAIN_S
        while self._copy(0.05) and time.monotonic() < until:
            pass

    def _end_descendants(self) -> None:
        """End everything that the job started: politely, then by force, until nothing is left."""
        asked_at = time.monotonic()
        for process in self._descendants():
            with contextlib.suppress(psutil.Error):
                process.terminate()
        while alive := self._descendants():
            if time.monotonic() - asked_at > TERM_GRACE_S:
                for process in alive:
                    with contextlib.suppress(psutil.Error):
                        process.kill()
            if time.monotonic() - asked_at > 2 * TERM_GRACE_S:
                return  # stuck in the kernel: the backend says so
            self._copy(0.05)

    def _descendants(self) -> list[psutil.Process]:
        """Return what the job started and is alive; what is dead and became our child is reaped."""
        out = []
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error, ChildProcessError):
                if process.status() != psutil.STATUS_ZOMBIE:
                    out.append(process)
                elif process.pid != self._child_pid and process.ppid() == os.getpid():
                    os.waitpid(process.pid, os.WNOHANG)  # the job's own exit status is left to its Popen
        return out

    def _ended(self, status: str, code: int | None, streams: tuple[_Stream, _Stream], reason: str) -> Ended:
        return Ended(status, code, self.started_at, time.time(), streams[0].seen, streams[1].seen, reason)


def _signal_reason(status: str, code: int) -> str:
    if status != "exited" or code >= 0:
        return ""
    name = signal.Signals(-code).name if -code in signal.Signals._value2member_map_ else f"signal {-code}"
    hint = "; the kernel kills so when memory runs out" if -code == signal.SIGKILL else ""
    return f"ended by {name}{hint}"


def write_ended(folder: Path, ended: Ended) -> None:
    """Write ``ended.json`` so that a reader sees all of it or nothing."""
    temporary = folder / "ended.tmp"
    with open(temporary, "w", encoding="utf-8") as file:
        json.dump(asdict(ended), file)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(folder / "ended.json")


def main(folder: Path) -> int:
    """Run the job that ``folder`` describes to its end."""
    raw = json.loads((folder / "request.json").read_text(encoding="utf-8"))
    request = Request(tuple(raw["argv"]), raw["time_limit_s"], raw["output_max_bytes"], raw["fingerprint"])
    write_ended(folder, _Job(request, folder).run())
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
