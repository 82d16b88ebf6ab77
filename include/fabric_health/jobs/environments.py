"""The tools' locked environments on this machine: made on first use, named by their lock, found again afterwards."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

from fabric_health.errors import FabricHealthError

Tell = Callable[[str], None]
HERE = ("", "self")
_COMPLETE = ".complete"
INSTALL_LIMIT_S = 3600.0
TELL_EVERY_S = 10.0
# An environment, the log of one that could not be made, or one that was being deleted.
_OURS = re.compile(r"[0-9a-f]{12}(\.log)?\Z|\.[0-9a-f]{12}\.old\Z")
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,40}\Z")
_TOLD = re.compile(rb"^(Collecting|Downloading|Installing|Using cached)\b[^\n]*", re.M)


class ToolEnvironmentError(FabricHealthError):
    """A tool's environment cannot be made; the message ends with what pip said."""


def ensure(tool: str, tools: Path, home: Path, tell: Tell) -> Path:
    """Return the interpreter of a tool's environment, making the environment when it is not there yet.

    ``tools`` holds a folder for each tool with its ``requirements.txt`` (hashes required); the environment is made in
    ``<home>/tools/<tool>/<hash of requirements.txt>``. "" and "self" are the interpreter that runs this. Two makers do
    not disturb each other: the second waits. Raises ToolEnvironmentError with what pip said last.
    """
    if tool in HERE:
        return Path(sys.executable)
    requirements = tools / tool / "requirements.txt"
    if not _NAME.match(tool) or not requirements.is_file():
        known = ", ".join(sorted(p.parent.name for p in tools.glob("*/requirements.txt"))) or "none"
        raise ToolEnvironmentError(f"no tool {tool!r}: {requirements} is missing; tools in {tools}: {known}")
    digest = hashlib.sha256(requirements.read_bytes() + sys.version.encode()).hexdigest()[:12]
    folder = home / "tools" / tool / digest
    python = folder / "bin" / "python"
    complete = folder / _COMPLETE
    if _used(complete):
        return python
    with _only_one(folder.parent, tool, tell):
        if _used(complete):
            return python
        shutil.rmtree(folder, ignore_errors=True)  # what a maker that was interrupted left
        tell(f"{tool}: making its environment in {folder} (once for each version of {requirements.name})")
        started = time.monotonic()
        log = folder.parent / f"{digest}.log"
        _run([sys.executable, "-m", "venv", str(folder)], tool, log, tell)
        _run([*_pip(python), "--require-hashes", "-r", str(requirements)], tool, log, tell)
        complete.write_text(requirements.name, encoding="utf-8")
        log.unlink(missing_ok=True)
        tell(f"{tool}: environment made in {time.monotonic() - started:.0f} s")
    return python


def delete_unused(home: Path, before: datetime, *, dry_run: bool = False) -> list[Path]:
    """Delete environments that no job was started in since ``before``, and what makers left that failed before then.

    Return what was deleted, or would be. A tool whose environment is being made is passed over.
    """
    gone: list[Path] = []
    for tool in sorted(p for p in (home / "tools").glob("*") if p.is_dir() and not p.is_symlink()):
        with contextlib.suppress(BlockingIOError), open(tool / ".lock", "w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            old = [p for p in tool.iterdir() if _OURS.match(p.name) and _last_used(p) < before.timestamp()]
            gone += [p for p in sorted(old) if dry_run or _deleted(p, before)]
    return gone


def _deleted(item: Path, before: datetime) -> bool:
    """Delete an environment or a log, unless a job took the environment in this very moment."""
    if not item.is_dir() or item.is_symlink():
        item.unlink(missing_ok=True)
        return True
    aside = item.with_name(f".{item.name.strip('.')[:12]}.old")
    if item != aside:
        shutil.rmtree(aside, ignore_errors=True)
        item.rename(aside)
    if _last_used(aside) >= before.timestamp():
        if item != aside:
            aside.rename(item)
        return False
    shutil.rmtree(aside, ignore_errors=True)
    return True


def _last_used(item: Path) -> float:
    complete = item / _COMPLETE
    return (complete if complete.is_file() else item).lstat().st_mtime


def _used(complete: Path) -> bool:
    """Tell whether an environment is there, and note that it is used now."""
    try:
        os.utime(complete)
    except FileNotFoundError:
        return False
    except OSError:
        # Made by another user: it is there, and keeps the date of its making.
        return complete.is_file()
    return True


def _pip(python: Path) -> list[str]:
    # pip rather than a faster installer: it honours the machine's pip.conf, where a site names its mirror.
    return [str(python), "-m", "pip", "install", "--no-input", "--disable-pip-version-check", "--no-deps"]


@contextlib.contextmanager
def _only_one(folder: Path, tool: str, tell: Tell) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "w", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            tell(f"{tool}: another task is making its environment; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _run(argv: list[str], tool: str, log: Path, tell: Tell) -> None:
    """Run one step with its output in ``log``, telling what it does; ended with us when we are interrupted."""
    with open(log, "ab") as out:
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True, env=_environment()
        )
        started = told_at = time.monotonic()
        try:
            while True:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(1.0)
                    break
                now = time.monotonic()
                if now - started > INSTALL_LIMIT_S:
                    raise ToolEnvironmentError(f"{tool}: no environment after {INSTALL_LIMIT_S:.0f} s; {_last(log)}")
                if now - told_at >= TELL_EVERY_S:
                    told_at = now
                    tell(f"{tool}: {now - started:.0f} s, {_last(log)}")
        finally:
            if process.poll() is None:
                os.killpg(process.pid, 9)
                process.wait()
    if process.returncode:
        raise ToolEnvironmentError(f"{tool}: making its environment failed: {_end(log)} (all of it: {log})")


def _environment() -> dict[str, str]:
    """What pip may see: the network's and pip's own settings, none of this process's secrets or Python paths."""
    kept = ("PATH", "HOME", "LANG", "TMPDIR", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")
    prefixes = ("PIP_", "UV_", "HTTP_", "HTTPS_", "NO_", "http_", "https_", "no_")
    return {k: v for k, v in os.environ.items() if k in kept or k.startswith(prefixes)}


def _last(log: Path) -> str:
    lines = [m[0] for m in _TOLD.finditer(log.read_bytes()[-20_000:])]
    return lines[-1].decode("utf-8", "replace")[:120] if lines else "still working"


def _end(log: Path) -> str:
    lines = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR")] or lines
    return " ".join(errors[-3:])[:600] or "no message"
