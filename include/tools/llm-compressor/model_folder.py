"""A model's folder: the hashes it is known by, and how it is put in place whole or not at all.

Standard library only, so that it can be used, and tested, where there is no torch.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import fcntl
import hashlib
import json
import os
import shutil
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

MANIFEST = "fabric-health.json"
MIB = 2**20
# EX_USAGE of sysexits.h.
USAGE = 64
_RENAME_EXCHANGE = 2
_AT_FDCWD = -100


class UsageError(Exception):
    """What was asked for cannot be done; the message is one line that says what was expected."""


def file_sha256(file: Path) -> str:
    """Return the SHA-256 of a file, in lower-case hexadecimal."""
    with open(file, "rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def file_hashes(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of every file of a model folder by its relative name, the manifest left out."""
    files = sorted(p for p in folder.rglob("*") if p.is_file())
    names = {p.relative_to(folder).as_posix(): p for p in files}
    return {name: file_sha256(p) for name, p in sorted(names.items()) if name != MANIFEST}


def weights_sha256(hashes: dict[str, str]) -> str:
    """Return what a model's weights are known by, from the hashes of its folder's files.

    It is the SHA-256 of "<name> <SHA-256 of the file>" and a newline for each ``*.safetensors`` file, sorted by name.
    Raises ValueError when there is none: nothing would have a hash, too.
    """
    weights = sorted((name, sha) for name, sha in hashes.items() if name.endswith(".safetensors") and "/" not in name)
    if not weights:
        raise ValueError("no *.safetensors file")
    return hashlib.sha256("".join(f"{name} {sha}\n" for name, sha in weights).encode()).hexdigest()


def weights_bytes(folder: Path) -> int:
    """Return the size of a model's weight files in bytes."""
    return sum(p.stat().st_size for p in folder.glob("*.safetensors"))


def checked_model(folder: Path) -> dict[str, Any]:
    """Return the configuration of a model folder; raises UsageError when it is none."""
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except OSError:
        raise UsageError(f"{folder} is no model: expected config.json and *.safetensors in it") from None
    except ValueError:
        raise UsageError(f"{folder / 'config.json'} is not JSON: expected the configuration of a model") from None
    if not isinstance(config, dict) or not any(folder.glob("*.safetensors")):
        raise UsageError(f"{folder} is no model: expected config.json and *.safetensors in it")
    return config


def checked_target(folder: Path) -> Path:
    """Return where a model is to be put, made absolute; raises UsageError where that would delete something else."""
    target = Path(os.path.abspath(folder))
    if target.exists() and not (target / "config.json").is_file() and (not target.is_dir() or any(target.iterdir())):
        raise UsageError(f"--out {target} holds something that is no model: expected a model folder or a new name")
    return target


def write_json(file: Path, content: dict[str, Any]) -> None:
    """Write a report whole or not at all."""
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_name(f".{file.name}.part-{os.getpid()}")
    try:
        part.write_text(json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")
        os.replace(part, file)
    finally:
        part.unlink(missing_ok=True)


def write_lines(file: Path, rows: list[dict[str, Any]]) -> None:
    """Write rows as lines of JSON."""
    file.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


@contextlib.contextmanager
def only_one(target: Path) -> Iterator[None]:
    """Hold the lock of a model folder, waiting for another maker, and clear away what a killed one left beside it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with open(target.parent / f".{target.name}.lock", "w", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            tell(f"another process makes {target}; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        _recover(target)
        for stale in _beside(target, "part"):
            shutil.rmtree(stale, ignore_errors=True)
        yield


@contextlib.contextmanager
def in_place_when_done(target: Path) -> Iterator[Path]:
    """Give an empty folder beside ``target`` that takes its place when the block ends well, and is deleted otherwise.

    Needs the lock of :func:`only_one`.
    """
    part = target.with_name(f".{target.name}.part-{os.getpid()}")
    part.mkdir()
    try:
        yield part
        _readable(part)
        _put(part, target)
    finally:
        for rest in (*_beside(target, "part"), *(_beside(target, "old") if target.is_dir() else ())):
            shutil.rmtree(rest, ignore_errors=True)


def _readable(folder: Path) -> None:
    """Give files the rights of any new file: safetensors' are for their writer alone, and a server may be another."""
    mask = os.umask(0o022)
    os.umask(mask)
    for file in folder.rglob("*"):
        file.chmod((0o777 if file.is_dir() else 0o666) & ~mask)


def _beside(target: Path, kind: str) -> list[Path]:
    start = f".{target.name}.{kind}-"
    return sorted(p for p in target.parent.iterdir() if p.name.startswith(start) and p.is_dir())


def _recover(target: Path) -> None:
    """Undo a change of folders that was interrupted between its two renames (see _put)."""
    for old in _beside(target, "old"):
        if target.exists():
            shutil.rmtree(old, ignore_errors=True)
        else:
            old.rename(target)


def _put(part: Path, target: Path) -> None:
    if not target.exists():
        part.rename(target)
    elif not _exchanged(part, target):
        # A file system without an exchange of names (NFS): for a moment there is no model under the name.
        target.rename(target.with_name(f".{target.name}.old-{os.getpid()}"))
        part.rename(target)


def _exchanged(one: Path, other: Path) -> bool:
    """Swap two folders' names in one step (renameat2 of Linux); False where the file system cannot."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return False
    return bool(rename(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0)


def peak_memory_mib() -> float:
    """Return the most memory that this process has held, in MiB.

    From VmHWM, which belongs to this program alone: getrusage's ru_maxrss also knows the process that started it.
    """
    for line in Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines():
        if line.startswith("VmHWM:"):
            return round(int(line.split()[1]) / 1024, 1)
    return 0.0


def end_on_signals() -> None:
    """Let SIGTERM and SIGINT end this program as an exception does: what is half written is deleted on the way."""

    def end(number: int, _frame: Any) -> None:
        # Once: a second signal must not stop the deleting.
        signal.signal(number, signal.SIG_IGN)
        raise SystemExit(128 + number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)


def tell(line: str) -> None:
    """Say something on standard output, now."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def refuse(problem: UsageError) -> int:
    """Say on one line what was expected; return the exit code."""
    sys.stderr.write(f"error: {' '.join(str(problem).split())}\n")
    return USAGE


def read_arguments(parser: argparse.ArgumentParser, argv: list[str]) -> argparse.Namespace:
    """Parse a command line; raises UsageError on one line where argparse would print its usage and exit with 2."""

    def refused(message: str) -> NoReturn:
        raise UsageError(f"{message} ({parser.prog} --help lists the arguments)")

    parser.error = refused  # type: ignore[method-assign]
    try:
        return parser.parse_args(argv)
    except argparse.ArgumentError as error:
        raise UsageError(f"{error} ({parser.prog} --help lists the arguments)") from None


def reported(program: str, report: Path, work: Callable[[], dict[str, Any]]) -> int:
    """Do the work and write its report, or one that says what went wrong; return the exit code of the program."""
    ended: SystemExit | None = None
    try:
        content = work()
    except UsageError as problem:
        return refuse(problem)
    except SystemExit as end:
        ended, content = end, {"program": program, "problem": f"ended by signal {int(end.code or 0) - 128}"}
    except Exception as error:  # any library's own
        traceback.print_exc()
        said = " ".join(str(error).split())[:500]
        content = {"program": program, "problem": f"{type(error).__name__}: {said}"}
    content.setdefault("peak_memory_mib", peak_memory_mib())
    write_json(report, content)
    tell(json.dumps({"program": program, "problem": content["problem"]}))
    if ended is not None:
        return int(ended.code or 1)
    return 1 if content["problem"] else 0
