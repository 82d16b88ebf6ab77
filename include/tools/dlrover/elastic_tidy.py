"""What a local DLRover job leaves on a machine, how it is cleared away, and what remained: measured, never assumed.

DLRover keeps a job's checkpoints in ``/dev/shm/<job>_ckpt_shm_*`` and its sockets in ``/tmp/ckpt_sock/<job>/``, removes
neither, makes ``/tmp/dlrover``, and its local master never ends. All of them are found by a name that only one run has,
so that runs side by side, and jobs of others, do not disturb each other.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import psutil

MARK = "FABRIC_HEALTH_ELASTIC_JOB"
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108
SOCKETS = Path("/tmp/ckpt_sock")  # noqa: S108
SETTINGS = Path("/tmp/dlrover")  # noqa: S108
KILL_PATIENCE_S = 3.0
LOOK_S = 0.05
# The job, with what DLRover adds for an agent and its shared memory, or mkdtemp for a folder.
_NAME = re.compile(r"(fh-elastic-([0-9a-f]+)-([0-9a-f]+)-([0-9a-f]+))(?:-n\d+|\.\w+)?(?:_ckpt_shm_\d+)?\Z")


def job_name() -> str:
    """Return a name for a job of this process that no other process has had since the machine was started.

    It tells the namespace of process numbers, the process, and the clock tick that it started in.
    """
    return f"fh-elastic-{_namespace():x}-{os.getpid():x}-{_start_tick(os.getpid()) or 0:x}"


@dataclass(frozen=True)
class Traces:
    """The places where the job ``job`` leaves something; the last two are folders shared by all jobs of a machine."""

    job: str
    folders: tuple[Path, ...] = ()
    port: int | None = None
    shared_memory: Path = SHARED_MEMORY
    sockets: Path = SOCKETS
    settings: Path = SETTINGS

    def processes(self) -> list[psutil.Process]:
        """Return the live processes that carry the job's mark in their environment: all that it started."""
        return [p for p in psutil.process_iter() if _mark(p) == self.job]

    def owns(self, pid: int) -> bool:
        """Tell whether a process is one of the job."""
        try:
            return _mark(psutil.Process(pid)) == self.job
        except psutil.Error:
            return False

    def files(self) -> list[Path]:
        """Return shared memory and sockets of the job, and its own folders."""
        names = [*_entries(self.shared_memory), *_entries(self.sockets)]
        mine = [p for p in names if (m := _NAME.match(p.name)) and m[1] == self.job]
        return sorted([*mine, *(f for f in self.folders if f.exists())])

    def left(self) -> list[str]:
        """Return in words what of the job is still there."""
        out = [f"process {p.pid} ({_title(p)})" for p in self.processes()]
        out += [str(p) for p in self.files()]
        if self.port is not None and _listens(self.port):
            out.append(f"port {self.port}")
        return out

    def clear(self) -> list[str]:
        """End all processes of the job at once, remove its files, and return what is left nevertheless.

        By force and not politely: an agent that is asked to end first writes a checkpoint for a job that is over.
        """
        end(self.processes)
        for path in self.files():
            _remove(path)
        return self.left()


def end(processes: Callable[[], list[psutil.Process]]) -> None:
    """Kill what ``processes`` returns, until it returns nothing or patience is at its end."""
    until = time.monotonic() + KILL_PATIENCE_S
    while (alive := processes()) and time.monotonic() < until:
        for process in alive:
            with contextlib.suppress(psutil.Error):
                process.send_signal(signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            psutil.wait_procs(alive, timeout=0.5)
        time.sleep(LOOK_S)


def tree(pid: int) -> list[psutil.Process]:
    """Return a process and all it started, the process itself first; nothing once it is gone."""
    try:
        leader = psutil.Process(pid)
        return [leader, *leader.children(recursive=True)]
    except psutil.Error:
        return []


def present(folders: Iterable[Path] = (SOCKETS, SETTINGS)) -> frozenset[Path]:
    """Return which of DLRover's shared folders are there, to be asked before a job starts."""
    return frozenset(f for f in folders if f.is_dir())


def remove_empty(before: frozenset[Path], folders: Iterable[Path] = (SOCKETS, SETTINGS)) -> None:
    """Remove those of DLRover's shared folders that were not there before and hold nothing: nobody else's either."""
    for folder in folders:
        if folder not in before:
            with contextlib.suppress(OSError):
                folder.rmdir()


def scratch(job: str) -> Path:
    """Make and return a folder for all that is temporary of a job, whose name tells the job."""
    return Path(tempfile.mkdtemp(prefix=f"{job}."))


def sweep(shared_memory: Path = SHARED_MEMORY, sockets: Path = SOCKETS, folders: Path | None = None) -> list[str]:
    """End and remove what runs left that were killed before they could clear away. Returns it in words.

    A run is over when the process that its name tells is none any more, or another one; names from other namespaces of
    process numbers (containers that share the machine's memory) are nothing that we could know about.
    """
    orphans = [p for p in psutil.process_iter() if _of_a_past_run(_mark(p))]
    gone = [f"process {p.pid} ({_title(p)})" for p in orphans]
    end(lambda: [p for p in orphans if p.is_running() and _of_a_past_run(_mark(p))])
    for path in [e for f in (shared_memory, sockets, folders or Path(tempfile.gettempdir())) for e in _entries(f)]:
        with contextlib.suppress(OSError):
            if _of_a_past_run(path.name) and path.lstat().st_uid == os.getuid():
                _remove(path)
                gone.append(str(path))
    if gone:
        remove_empty(frozenset())
    return gone


def _of_a_past_run(text: str) -> bool:
    name = _NAME.match(text)
    return name is not None and int(name[2], 16) == _namespace() and _start_tick(int(name[3], 16)) != int(name[4], 16)


def _mark(process: psutil.Process) -> str:
    try:
        return process.environ().get(MARK, "") if process.status() != psutil.STATUS_ZOMBIE else ""
    except (psutil.Error, OSError):
        return ""


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(0.5)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _title(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())[:120]
    except psutil.Error:
        return "gone"


def _namespace() -> int:
    try:
        return int(re.sub(r"\D", "", os.readlink("/proc/self/ns/pid")) or "0")
    except OSError:
        return 0


def _start_tick(pid: int) -> int | None:
    """Return the clock tick since boot in which a process started (field 22 of proc(5)'s stat), None without one."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        return int(stat.rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return None
