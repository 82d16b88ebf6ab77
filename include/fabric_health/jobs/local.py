"""The local backend: a job is a process group on this machine, in its tool's own environment."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from fabric_health.connections import ConnectionSource
from fabric_health.errors import FabricHealthError, UsageError
from fabric_health.jobs import environments
from fabric_health.jobs.argv import filled, filled_env, uses_models
from fabric_health.jobs.rank_artefacts import Taken, asked_of_ranks, rank_words, room_bytes, take_out
from fabric_health.jobs.references import value_of
from fabric_health.jobs.spec import JobResult, JobSpec, JobStatus
from fabric_health.jobs.supervise import TERM_GRACE_S, Ended, Request
from fabric_health.processes import Background

Tell = Callable[[str], None]
LOOK_S = 0.05
LOOK_MAX_S = 0.5
TELL_EVERY_S = 30.0
MARK = "FABRIC_HEALTH_JOB"
# Of our own environment a job sees what a program needs to run; credentials of the caller are not among it.
_INHERITED = ("HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "TZ", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES")
_OWN_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class LocalBackend:
    """Runs the jobs of ``run`` in ``<home>/jobs/<run>/<job>``; ``tools`` holds the tools' locks and programs.

    A job survives its caller: asked for again by the same name and description, it is found and waited for, or its
    result is read when it ended in between. Asked for with another description, the old one is ended first.
    """

    home: Path
    run_name: str
    tools: Path
    connections: ConnectionSource

    def run(self, spec: JobSpec, tell: Tell) -> JobResult:
        """Run a job to its end (see :class:`~fabric_health.jobs.backend.Backend`)."""
        asked_at = datetime.now(UTC)
        folder = self._folder(spec.name)
        try:
            if spec.disturb:
                raise UsageError(
                    f"job {spec.name!r}: the local backend has no worker pods to delete; leave `disturb` out: "
                    "a program that runs here makes its faults itself"
                )
            with self._starting(folder):
                ended = self._found(folder, spec)
            if not ended:
                python = environments.ensure(spec.tool, self.tools, self.home, tell)
                environment = self._environment(spec, python, folder)
                ranks = rank_words(spec, nonce(spec)) if _ranks_send(spec) else ()
                argv = filled(spec.argv, self._places(spec, python, folder), ranks)
                with self._starting(folder):
                    if not self._found(folder, spec):
                        self._start(folder, spec, argv, environment)
            return self._wait(folder, spec, tell)
        except FabricHealthError as error:
            return JobResult(
                spec.name, JobStatus.NOT_STARTED, None, "", "", asked_at, datetime.now(UTC), reason=str(error)
            )
        except BaseException:
            self.cancel(spec.name)
            raise

    def cancel(self, name: str) -> None:
        """End the job called ``name`` and all it started, politely and then by force."""
        folder = self._folder(name)
        job = self._process(folder)
        if (running := job.running()) and (process := running.process()):
            # The supervisor alone is told: it ends the job, keeps its output and writes down that it was cancelled.
            with contextlib.suppress(Exception):
                process.terminate()
                process.wait(2 * TERM_GRACE_S + 3)
        job.stop()

    def release(self, name: str) -> None:
        """End the job called ``name`` if it runs and delete its folder."""
        self.cancel(name)
        shutil.rmtree(self._folder(name), ignore_errors=True)
        with contextlib.suppress(OSError):
            self._folder(name).parent.rmdir()  # the run's folder, with its last job

    def _folder(self, name: str) -> Path:
        return self.home / "jobs" / folder_name(self.run_name) / folder_name(name)

    def _process(self, folder: Path) -> Background:
        return _process_of(folder)

    @contextlib.contextmanager
    def _starting(self, folder: Path) -> Iterator[None]:
        """Hold off other starters: two tasks that ask for one job at the same time get one job."""
        root = self.home / "jobs"
        root.mkdir(parents=True, exist_ok=True)
        with _locked(root):
            folder.mkdir(parents=True, exist_ok=True)
            yield

    def _found(self, folder: Path, spec: JobSpec) -> bool:
        """Return whether this very job runs or has ended; remains of any other kind are cleared away."""
        try:
            known = json.loads((folder / "request.json").read_text(encoding="utf-8"))["fingerprint"]
        except (OSError, ValueError, KeyError, TypeError):
            known = None
        if known == fingerprint(spec):
            running, ended = self._process(folder).running(), _ended(folder)
            if running or (ended and ended.status in ("exited", "timeout")):
                return True
        self._process(folder).stop()
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return False

    def _start(self, folder: Path, spec: JobSpec, argv: tuple[str, ...], environment: Mapping[str, str]) -> None:
        for part in ("work", "artefacts"):
            (folder / part).mkdir()
        if uses_models(spec.argv, spec.env):
            # What jobs leave there serves later ones and other runs: no job's release deletes it.
            (self.home / "models").mkdir(mode=0o700, parents=True, exist_ok=True)
        request = Request(argv, spec.time_limit_s, _output_bytes(spec), fingerprint(spec))
        (folder / "request.json").write_text(json.dumps(asdict(request)), encoding="utf-8")
        supervisor = [sys.executable, "-I", "-m", "fabric_health.jobs.supervise", str(folder)]
        job = self._process(folder)
        assert job.mark is not None
        job.start(supervisor, env={**environment, MARK: job.mark[1]}, cwd=folder)

    def _places(self, spec: JobSpec, python: Path, folder: Path) -> dict[str, str]:
        return {
            "python": str(python),
            "tool": str(self.tools / spec.tool),
            "artefacts": str(folder / "artefacts"),
            "hosts": ",".join(spec.nodes),
            "models": str(self.home / "models"),
        }

    def _environment(self, spec: JobSpec, python: Path, folder: Path) -> dict[str, str]:
        base = {k: os.environ[k] for k in _INHERITED if k in os.environ}
        path = os.environ.get("PATH", _OWN_PATH)
        base.update(PATH=f"{python.parent}{os.pathsep}{path}", LANG="C.UTF-8", LC_ALL="C.UTF-8", PYTHONUNBUFFERED="1")
        # Our own programs look for what we keep locally, as the lab's state, where their starter does.
        base["FABRIC_HEALTH_HOME"] = str(self.home)
        base.update(filled_env(spec.env, self._places(spec, python, folder)))
        base.update({k: value_of(r, self.connections) for k, r in spec.secrets.items()})
        return base

    def _wait(self, folder: Path, spec: JobSpec, tell: Tell) -> JobResult:
        began = told_at = time.monotonic()
        # The supervisor keeps the job's time; this bound is for a supervisor that is itself stuck.
        patience_s = spec.time_limit_s + 4 * TERM_GRACE_S + 30
        look_s = LOOK_S
        job = self._process(folder)
        while True:
            running = job.running()
            if ended := _ended(folder):  # looked at after the process, so that an end in between is not missed
                return _result(folder, spec, ended, _cleared(job))
            now = time.monotonic()
            if running is None or now - began > patience_s:
                return _lost(folder, spec, job, _cleared(job))
            if now - told_at >= TELL_EVERY_S:
                told_at = now
                tell(f"{spec.name}: running for {now - began:.0f} s of at most {spec.time_limit_s:.0f} s")
            time.sleep(look_s)
            look_s = min(LOOK_MAX_S, look_s * 1.3)


def delete_left(home: Path, before: datetime, *, dry_run: bool = False) -> list[Path]:
    """Delete (``dry_run``: find) the folders of jobs in which nothing was written since ``before``; return them.

    A task deletes the folder of its job once the result is stored; that of a task which was killed and not repeated
    stays. A job that still runs keeps its folder, however long it has been silent.
    """
    root, gone = home / "jobs", []
    for folder in sorted(root.glob("*/*")):
        if folder.is_symlink() or folder.parent.is_symlink() or not folder.is_dir():
            continue
        with _locked(root):  # nobody comes back for it while it is looked at
            if _written_at(folder) >= before.timestamp() or _process_of(folder).running():
                continue
            if not dry_run:
                shutil.rmtree(folder, ignore_errors=True)
            if dry_run or not folder.exists():
                gone.append(folder)
        with contextlib.suppress(OSError):
            folder.parent.rmdir()  # the run's folder, with its last job
    return gone


def _written_at(folder: Path) -> float:
    """Return when something was last written in a job's folder, s since 1970; now if it is going away by itself."""
    try:
        return max(p.lstat().st_mtime for p in (folder, *folder.iterdir()))
    except OSError:
        return time.time()


@contextlib.contextmanager
def _locked(root: Path) -> Iterator[None]:
    with open(root / ".lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _process_of(folder: Path) -> Background:
    mark = hashlib.sha256(str(folder).encode()).hexdigest()[:16]
    return Background(folder.name, folder / "process.json", folder / "supervisor.log", (MARK, mark))


def fingerprint(spec: JobSpec) -> str:
    """Return a hash of a job's description: the same description is the same job."""
    return hashlib.sha256(json.dumps(asdict(spec), sort_keys=True, default=str).encode()).hexdigest()


def nonce(spec: JobSpec) -> str:
    """Return what the lines carry that a job's ranks send through its output."""
    return fingerprint(spec)[:16]


def _ranks_send(spec: JobSpec) -> bool:
    return bool(spec.nodes) and asked_of_ranks(spec)


def _output_bytes(spec: JobSpec) -> int:
    return spec.output_max_bytes + (room_bytes(spec) if _ranks_send(spec) else 0)


def folder_name(name: str) -> str:
    """Return a folder name for any name: readable, short enough for sockets below it, distinct for distinct names."""
    slug = re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-")[:40] or "job"
    return slug if slug == name else f"{slug}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def _ended(folder: Path) -> Ended | None:
    try:
        return Ended(**json.loads((folder / "ended.json").read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def _cleared(job: Background) -> str:
    """End what is left of a job. Return what could not be ended, for a person."""
    try:
        job.stop()
    except FabricHealthError as error:
        return str(error)
    return ""


def _result(folder: Path, spec: JobSpec, ended: Ended, left: str) -> JobResult:
    reasons = [r for r in (ended.reason, left) if r]
    if ended.status == "timeout":
        reasons.append(f"ended after its time limit of {spec.time_limit_s:g} s")
    if ended.status == "cancelled":
        reasons.append("cancelled")
    truncated = False
    for stream, size, limit in (
        ("stdout", ended.stdout_bytes, _output_bytes(spec)),
        ("stderr", ended.stderr_bytes, spec.output_max_bytes),
    ):
        if size > limit:
            truncated = True
            reasons.append(f"{stream}: the first {limit} of {size} bytes were kept")
    taken = _taken(folder, spec)
    reasons += [r for r in (taken.cut, *taken.missing) if r]
    return JobResult(
        name=spec.name,
        status=JobStatus(ended.status),
        exit_code=ended.exit_code,
        stdout=taken.stdout,
        stderr=_text(folder / "stderr", spec.output_max_bytes),
        started_at=datetime.fromtimestamp(ended.started_at, UTC),
        ended_at=datetime.fromtimestamp(ended.ended_at, UTC),
        reason="; ".join(reasons),
        artefacts=taken.artefacts,
        hosts=(socket.gethostname(),),
        truncated=truncated or bool(taken.cut),
    )


def _lost(folder: Path, spec: JobSpec, job: Background, left: str) -> JobResult:
    try:
        started = datetime.fromtimestamp((folder / "request.json").stat().st_mtime, UTC)
    except OSError:
        started = datetime.now(UTC)
    said = "; ".join(r for r in (job.tail(400).strip(), left) if r)
    return JobResult(
        name=spec.name,
        status=JobStatus.LOST,
        exit_code=None,
        stdout=_taken(folder, spec).stdout,
        stderr=_text(folder / "stderr", spec.output_max_bytes),
        started_at=started,
        ended_at=datetime.now(UTC),
        reason="the job was lost: its supervisor ended or hung without a word" + (f" ({said})" if said else ""),
        hosts=(socket.gethostname(),),
        truncated=True,
    )


def _taken(folder: Path, spec: JobSpec) -> Taken:
    """Return a job's output and its artefacts: from the folder of this machine, or as rank 0 sent them."""
    stdout = _text(folder / "stdout", _output_bytes(spec))
    if _ranks_send(spec):
        return take_out(stdout, spec, nonce(spec))
    found = {n: _artefact(folder / "artefacts", n, spec.artefact_max_bytes) for n in spec.artefacts}
    return Taken(
        stdout,
        {n: body for n, body in found.items() if isinstance(body, bytes)},
        tuple(f"artefact {n}: {why}" for n, why in found.items() if isinstance(why, str)),
    )


def _artefact(folder: Path, name: str, limit: int) -> bytes | str:
    """Return a file's bytes, or why it is not kept. A job may not make us read what lies outside its folder."""
    path = folder / name
    try:
        if not path.resolve().is_relative_to(folder.resolve()):
            return "lies outside the artefact folder"
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            body = file.read(limit + 1)
    except OSError as error:
        return error.strerror or str(error)
    return body if len(body) <= limit else f"larger than {limit} bytes"


def _text(path: Path, limit: int) -> str:
    try:
        with open(path, "rb") as file:
            return file.read(limit).decode("utf-8", "backslashreplace")
    except OSError:
        return ""
