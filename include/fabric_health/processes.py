"""Background processes that outlive the command that started them: started once, found again, stopped whole."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from fabric_health.errors import FabricHealthError

# The kernel tells a process's start relative to the boot, whose time of day moves by whole seconds as the clock is set.
_CLOCK_STEP_S = 2.0


@dataclass(frozen=True)
class Started:
    """A process by pid and start time (seconds since 1970): a pid alone may belong to another process by now."""

    pid: int
    started: float

    @classmethod
    def here(cls) -> Started:
        """Return the process that this runs in."""
        return cls(os.getpid(), psutil.Process().create_time())

    def process(self) -> psutil.Process | None:
        """Return the process while it is still that very one and not a zombie."""
        try:
            found = psutil.Process(self.pid)
            alive = self._is(found) and found.status() != psutil.STATUS_ZOMBIE
        except psutil.Error:
            return None
        return found if alive else None

    def may_lead(self) -> bool:
        """Tell whether a session of this number can be that of the process, which may have ended.

        It cannot once another process has the number, or the machine was started again.
        """
        try:
            return self._is(psutil.Process(self.pid))
        except psutil.NoSuchProcess:
            return self.started > psutil.boot_time() - _CLOCK_STEP_S
        except psutil.Error:
            return False

    def _is(self, found: psutil.Process) -> bool:
        return abs(found.create_time() - self.started) < _CLOCK_STEP_S


@dataclass(frozen=True)
class Background:
    """One background process with everything it starts: a session of its own, a record file and a log file.

    ``mark`` is a (variable, value) pair of its environment that only it and its descendants carry, so no variable
    that a person may set; what left the session (a child that made its own) is found by it when stopping.
    """

    name: str
    record: Path
    log: Path
    mark: tuple[str, str] | None = None

    def start(self, argv: Sequence[str], *, env: Mapping[str, str] | None = None, cwd: Path | None = None) -> Started:
        """Start the process; output goes to the log (mode 600). The caller waits until it is of use."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with open(os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as out:
            child = subprocess.Popen(
                list(argv), env=env, cwd=cwd, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
            )
        started = Started(child.pid, psutil.Process(child.pid).create_time())
        temporary = self.record.with_suffix(f".{os.getpid()}.tmp")
        temporary.write_text(json.dumps(asdict(started)), encoding="utf-8")
        temporary.replace(self.record)
        return started

    def running(self) -> Started | None:
        """Return the process if it runs."""
        started = self._recorded()
        return started if started and started.process() else None

    def stop(self, patience_s: float = 15.0) -> bool:
        """Stop the process and all it started, politely and then by force. Return whether anything ran.

        Raises FabricHealthError when something survives.
        """
        everything = self._members()
        if not everything:
            return False
        for sig in (signal.SIGTERM, signal.SIGKILL):
            for process in everything:
                _send(process, sig)
            psutil.wait_procs(everything, timeout=patience_s)
            everything = self._members()
            if not everything:
                break
        else:
            pids = ", ".join(str(p.pid) for p in everything)
            raise FabricHealthError(f"{self.name}: processes {pids} do not end; see {self.log}")
        self.record.unlink(missing_ok=True)
        return True

    def tail(self, size: int = 2000) -> str:
        """Return the end of the log, at most ``size`` bytes."""
        try:
            return self.log.read_bytes()[-size:].decode("utf-8", "replace")
        except OSError as error:
            return f"(cannot read {self.log}: {error})"

    def _recorded(self) -> Started | None:
        try:
            raw = json.loads(self.record.read_text(encoding="utf-8"))
            return Started(int(raw["pid"]), float(raw["started"]))
        except (OSError, ValueError, TypeError, KeyError):
            return None

    def _members(self) -> list[psutil.Process]:
        """Return the live processes of the session, and those that carry the mark."""
        leader = self._recorded()
        if leader is not None and not leader.may_lead():
            leader = None
        # Whoever asks is no member, even where it carries the mark.
        spared = {os.getpid(), *(p.pid for p in psutil.Process().parents())}
        members = []
        for process in psutil.process_iter():
            if process.pid in spared:
                continue
            try:
                mine = leader is not None and os.getsid(process.pid) == leader.pid
                if not mine and self.mark is not None:
                    mine = process.environ().get(self.mark[0]) == self.mark[1]
                if mine and process.status() != psutil.STATUS_ZOMBIE:
                    members.append(process)
            except (psutil.Error, ProcessLookupError, PermissionError):
                continue
        return members


def _send(process: psutil.Process, sig: signal.Signals) -> None:
    try:
        process.send_signal(sig)
    except psutil.NoSuchProcess:
        return
