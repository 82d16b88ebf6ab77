"""The local backend with real processes: results, limits, ends of every kind, and nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil
import pytest

from fabric_health.connections import Connection
from fabric_health.errors import ConnectionSettingError, UsageError
from fabric_health.jobs.backend import run_all
from fabric_health.jobs.local import MARK, LocalBackend, delete_left, folder_name
from fabric_health.jobs.spec import Disturbance, JobSpec, JobStatus, SecretReference


def quiet(_message: str) -> None:
    return None


def connections(conn_id: str) -> Connection:
    if conn_id != "store":
        raise ConnectionSettingError(f"connection {conn_id!r} is not defined")
    return Connection("store", login="key", password="s3cret-value", extra={"bucket": "b"})


@pytest.fixture
def backend(tmp_path):
    made = LocalBackend(home=tmp_path, run_name="run-1", tools=tmp_path / "tools", connections=connections)
    yield made
    assert not marked(made), "a job's process is left behind"


def marked(backend: LocalBackend) -> list[int]:
    """Return the processes that carry the mark of a job of this home."""
    out = []
    for process in psutil.process_iter():
        try:
            if MARK in process.environ() and process.status() != psutil.STATUS_ZOMBIE:
                cwd = process.cwd()
                if cwd.startswith(str(backend.home)):
                    out.append(process.pid)
        except psutil.Error:
            continue
    return out


def python(source: str, name: str = "job", **more) -> JobSpec:
    return JobSpec(name=name, tool="self", argv=("{python}", "-c", source), **{"time_limit_s": 20.0, **more})


# Two ranks as mpirun starts them: with a number each, and their output passed on.
MPIRUN = """
import os, subprocess, sys
ranks = [subprocess.Popen(sys.argv[1:], env={**os.environ, "OMPI_COMM_WORLD_RANK": str(i)}) for i in (0, 1)]
sys.exit(max(r.wait() for r in ranks))
"""


@pytest.mark.parametrize("nodes", [("gpu-001", "gpu-002"), ()])
def test_what_rank_0_wrote_comes_back_from_another_machine_and_from_this_one(backend, tmp_path, nodes):
    writes = (
        "import sys; print('row\\n', end=''); open(sys.argv[1], 'w').write('{}'); print(sys.argv[1], file=sys.stderr)"
    )
    argv = ("{python}", "-c", MPIRUN, "{rank}", "{python}", "-c", writes, "{artefacts}/r.json")
    spec = JobSpec("job", "self", argv, nodes=nodes, artefacts=("r.json", "gone"), time_limit_s=20.0)
    result = backend.run(spec, quiet)
    assert (result.status, result.exit_code) == (JobStatus.EXITED, 1 if nodes else 0), "rank 1 may not write"
    assert result.artefacts == {"r.json": b"{}"}
    assert result.stdout == "row\nrow\n"
    assert "artefact gone: " in result.reason
    ours = result.stderr.splitlines()[0].startswith(str(tmp_path / "jobs"))
    assert ours == (not nodes)
    backend.release("job")


def test_the_folder_of_a_job_that_nobody_came_back_for_goes_once_it_is_old(backend, tmp_path):
    old = time.time() - 40 * 86_400
    ended, silent = python("pass", "ended"), python("import time; time.sleep(60)", "silent")
    backend.run(ended, quiet)
    waiting = threading.Thread(target=backend.run, args=(silent, quiet))
    waiting.start()
    folders = {name: tmp_path / "jobs" / "run-1" / name for name in ("ended", "silent", "recent")}
    until = time.monotonic() + 20
    while not (folders["silent"] / "process.json").exists() and time.monotonic() < until:
        time.sleep(0.05)
    folders["recent"].mkdir()
    (folders["recent"] / "stdout").write_text("x")
    for name in ("ended", "silent"):
        for path in (*folders[name].iterdir(), folders[name]):
            os.utime(path, (old, old), follow_symlinks=False)
    os.utime(folders["recent"], (old, old))  # a file in it is young
    limit = datetime.now(UTC) - timedelta(days=30)
    assert delete_left(tmp_path, limit, dry_run=True) == [folders["ended"]]
    assert delete_left(tmp_path, limit) == [folders["ended"]]
    assert [p.exists() for p in folders.values()] == [False, True, True]
    assert delete_left(tmp_path, limit) == delete_left(tmp_path / "nowhere", limit) == []
    backend.cancel("silent")
    waiting.join(20)
    assert sorted(delete_left(tmp_path, datetime.now(UTC) + timedelta(days=1))) == [
        folders["recent"],
        folders["silent"],
    ]
    assert not (tmp_path / "jobs" / "run-1").exists()


def test_a_job_gives_exit_code_output_and_artefacts(backend):
    source = """
import os, pathlib, sys
print("to stdout"); print("to stderr", file=sys.stderr)
pathlib.Path(sys.argv[1], "result.json").write_text('{"x": 1}')
print(sys.argv[2]); sys.exit(3)
"""
    spec = JobSpec(
        "job",
        "self",
        ("{python}", "-c", source, "{artefacts}", "{hosts}"),
        nodes=("a", "b"),
        artefacts=("result.json", "gone.json"),
    )
    result = backend.run(spec, quiet)
    assert (result.status, result.exit_code) == (JobStatus.EXITED, 3)
    assert result.stdout == "to stdout\na,b\n"
    assert result.stderr == "to stderr\n"
    assert result.artefacts == {"result.json": b'{"x": 1}'}
    assert "gone.json: No such file" in result.reason
    assert result.started_at <= result.ended_at
    assert not result.truncated
    backend.release("job")
    assert [p.name for p in (backend.home / "jobs").iterdir()] == [".lock"]


def test_a_job_sees_its_own_environment_and_none_of_ours(backend, monkeypatch):
    monkeypatch.setenv("AIRFLOW__CORE__FERNET_KEY", "ours")
    spec = python(
        "import json, os; print(json.dumps(dict(os.environ)))",
        env={"NCCL_DEBUG": "INFO", "OUT": "{artefacts}/x"},
        secrets={"KEY": SecretReference("store", "password")},
    )
    seen = json.loads(backend.run(spec, quiet).stdout)
    assert seen["NCCL_DEBUG"] == "INFO"
    assert seen["OUT"].endswith("/artefacts/x")
    assert seen["KEY"] == "s3cret-value"
    assert "AIRFLOW__CORE__FERNET_KEY" not in seen
    kept = b"".join(p.read_bytes() for p in backend.home.rglob("*.json"))
    assert b"s3cret-value" not in kept


def test_models_stay_from_job_to_job_in_a_folder_of_ours_alone(backend, tmp_path):
    source = "import os,sys; m = sys.argv[1] + '/m'; open(m, 'a').write('x'); print(os.environ['M'], open(m).read())"
    for name, seen in (("one", "x"), ("two", "xx")):
        spec = JobSpec(name, "self", ("{python}", "-c", source, "{models}"), env={"M": "{models}/tiny"})
        result = backend.run(spec, print)
        backend.release(name)
        assert result.stdout.split() == [f"{backend.home}/models/tiny", seen], result
    assert (backend.home / "models").stat().st_mode & 0o777 == 0o700


def test_a_job_without_models_makes_no_folder_for_them(backend):
    assert backend.run(JobSpec("x", "self", ("{python}", "-c", "")), print).exit_code == 0
    assert not (backend.home / "models").exists()


def test_a_secret_that_is_not_there_keeps_the_job_from_starting(backend):
    result = backend.run(python("pass", secrets={"KEY": SecretReference("nowhere", "password")}), quiet)
    assert result.status is JobStatus.NOT_STARTED
    assert "nowhere" in result.reason


def test_a_program_or_a_tool_that_is_not_there(backend):
    result = backend.run(JobSpec("job", "self", ("/no/such/program",)), quiet)
    assert (result.status, result.exit_code) == (JobStatus.NOT_STARTED, None)
    assert "/no/such/program" in result.reason
    result = backend.run(JobSpec("job", "nccl", ("{python}",)), quiet)
    assert result.status is JobStatus.NOT_STARTED
    assert "no tool 'nccl'" in result.reason


def test_a_worker_pod_cannot_be_taken_away_where_there_are_none(backend):
    spec = JobSpec("x", "self", ("{python}", "-c", "print()"), family="elastic", disturb=Disturbance())
    result = backend.run(spec, print)
    assert result.status is JobStatus.NOT_STARTED
    assert "no worker pods to delete; leave `disturb` out" in result.reason


@pytest.mark.parametrize(
    "wrong", [{"rank_index": -1}, {"at_step": 0}, {"at_latest_s": 0}, {"at_latest_s": float("nan")}]
)
def test_a_disturbance_out_of_range_is_refused(wrong):
    with pytest.raises(UsageError, match=f"disturbance: {next(iter(wrong))} is"):
        Disturbance(**wrong)


def test_the_time_limit_ends_a_job_that_ignores_being_asked(backend):
    source = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
    )
    began = time.monotonic()
    result = backend.run(python(source, time_limit_s=1.0), quiet)
    assert result.status is JobStatus.TIMEOUT
    assert result.stdout == "up\n"
    assert "time limit of 1 s" in result.reason
    assert time.monotonic() - began < 12


def test_output_is_bounded_and_said_so(backend):
    result = backend.run(python("print('x' * 300_000)", output_max_bytes=1000), quiet)
    assert result.exit_code == 0
    assert result.truncated
    assert result.stdout == "x" * 1000
    assert "the first 1000 of 300001 bytes" in result.reason


def test_bytes_that_are_no_text_are_kept_as_escapes(backend):
    result = backend.run(python("import os; os.write(1, bytes([0xff, 0x41]))"), quiet)
    assert result.stdout == "\\xffA"


def test_artefacts_outside_the_folder_or_too_large_or_no_files_are_refused(backend):
    source = """
import os, pathlib, sys
d = pathlib.Path(sys.argv[1])
(d / "link").symlink_to("/etc/passwd")
(d / "dir").symlink_to("/etc")
(d / "big").write_bytes(b"x" * 100)
os.mkfifo(d / "fifo")
"""
    names = ("link", "dir/passwd", "big", "fifo", "../request.json")
    spec = JobSpec("job", "self", ("{python}", "-c", source, "{artefacts}"), artefacts=names, artefact_max_bytes=99)
    result = backend.run(spec, quiet)
    assert result.exit_code == 0
    assert set(result.artefacts) <= {"fifo"}
    assert not result.artefacts.get("fifo")
    assert result.reason.count("lies outside") == 3
    assert "big: larger than 99" in result.reason


def test_a_signal_is_named(backend):
    result = backend.run(python("import os; os.kill(os.getpid(), 9)"), quiet)
    assert (result.status, result.exit_code) == (JobStatus.EXITED, 137)
    assert "SIGKILL" in result.reason


def test_what_a_job_abandons_ends_with_it(backend):
    """A child in a session of its own that ignores being asked, as some servers leave behind."""
    source = """
import subprocess, sys
child = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
p = subprocess.Popen([sys.executable, "-c", child], start_new_session=True, stdout=subprocess.PIPE, env={})
p.stdout.readline(); print(p.pid, flush=True)
"""
    result = backend.run(python(source), quiet)
    assert result.exit_code == 0
    assert not psutil.pid_exists(int(result.stdout))


def test_a_restarted_task_finds_the_running_job(backend, tmp_path):
    """The first task is killed outright, as a worker that runs out of memory is; the job goes on."""
    source = "import time; print('begun', flush=True); time.sleep(3); print('done')"
    task = f"""
from pathlib import Path
from fabric_health.connections import connection
from fabric_health.jobs.local import LocalBackend
from fabric_health.jobs.spec import JobSpec
b = LocalBackend(Path({str(tmp_path)!r}), "run-1", Path({str(tmp_path / "tools")!r}), connection)
b.run(JobSpec("job", "self", ("{{python}}", "-c", {source!r}), time_limit_s=20.0), print)
"""
    first = subprocess.Popen([sys.executable, "-c", task], start_new_session=True)
    out = tmp_path / "jobs" / "run-1" / "job" / "stdout"
    wait_for(lambda: out.is_file() and out.read_text() == "begun\n")
    began = (out.parent / "process.json").read_text()
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    result = backend.run(python(source), quiet)
    assert result.stdout == "begun\ndone\n"
    assert result.exit_code == 0
    assert json.loads(began)["started"] <= result.started_at.timestamp() + 1


def test_a_result_is_kept_until_it_is_released_and_never_for_another_description(backend):
    source = "import time; print(time.time_ns())"
    first = backend.run(python(source), quiet)
    assert backend.run(python(source), quiet) == first
    assert backend.run(python(source + "  # changed"), quiet).stdout != first.stdout
    backend.release("job")
    assert backend.run(python(source), quiet).stdout != first.stdout


def test_cancelling_ends_the_job_and_says_so(backend, tmp_path):
    results = []
    spec = python("import time; print('up', flush=True); time.sleep(60)")
    thread = threading.Thread(target=lambda: results.append(backend.run(spec, quiet)))
    thread.start()
    out = tmp_path / "jobs" / "run-1" / "job" / "stdout"
    wait_for(lambda: out.is_file() and out.read_text() == "up\n")
    backend.cancel("job")
    thread.join(10)
    assert results[0].status is JobStatus.CANCELLED
    assert results[0].stdout == "up\n"
    backend.cancel("job")
    backend.cancel("another")


def test_an_interrupted_task_ends_its_job(backend, tmp_path):
    folder = tmp_path / "jobs" / "run-1" / "job"

    def interrupt_when_up() -> None:
        wait_for(lambda: (folder / "stdout").is_file() and (folder / "stdout").read_text() == "up\n")
        signal.raise_signal(signal.SIGINT)

    # Set here: a shell that starts the tests in the background has them ignore this signal.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Thread(target=interrupt_when_up).start()
    try:
        with pytest.raises(KeyboardInterrupt):
            backend.run(python("import time; print('up', flush=True); time.sleep(60)"), quiet)
    finally:
        signal.signal(signal.SIGINT, before)
    assert json.loads((folder / "ended.json").read_text())["status"] == "cancelled"


def test_a_killed_supervisor_is_a_lost_job(backend, tmp_path):
    results = []
    spec = python("import time; print('up', flush=True); time.sleep(60)")
    thread = threading.Thread(target=lambda: results.append(backend.run(spec, quiet)))
    thread.start()
    folder = tmp_path / "jobs" / "run-1" / "job"
    wait_for(lambda: (folder / "stdout").is_file() and (folder / "stdout").read_text() == "up\n")
    os.kill(json.loads((folder / "process.json").read_text())["pid"], signal.SIGKILL)
    thread.join(10)
    assert results[0].status is JobStatus.LOST
    assert results[0].truncated
    assert results[0].stdout == "up\n"


def test_two_askers_get_one_job(backend):
    spec = python("import time; time.sleep(1); print(time.time_ns())")
    results = []
    threads = [threading.Thread(target=lambda: results.append(backend.run(spec, quiet))) for _ in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(20)
    assert len({r.stdout for r in results}) == 1


def test_run_all_keeps_the_order_and_leaves_nothing(backend, tmp_path):
    specs = [python(f"print({i})", name=f"job-{i}") for i in range(3)]
    seen = []
    run_all(specs, backend, lambda s, r: seen.append((s.name, r.stdout)))
    assert seen == [("job-0", "0\n"), ("job-1", "1\n"), ("job-2", "2\n")]
    assert [p.name for p in (tmp_path / "jobs").iterdir()] == [".lock"]


def test_run_all_in_parallel_ends_the_others_when_storing_fails(backend, tmp_path):
    specs = [python("pass", name="short"), python("import time; time.sleep(60)", name="long"), python("pass", name="x")]

    def store(_spec, _result):
        raise OSError("the store is away")

    began = time.monotonic()
    with pytest.raises(OSError, match="the store is away"):
        run_all(specs, backend, store, parallel=2)
    assert time.monotonic() - began < 15
    assert not (tmp_path / "jobs" / "run-1" / "x").exists()


def test_folder_names_are_safe_and_distinct():
    names = ["a", "../a", "a/b", "a:b", "", "x" * 200, "x" * 201]
    folders = [folder_name(n) for n in names]
    assert len(set(folders)) == len(names)
    assert all("/" not in f and "." not in f and 0 < len(f) < 60 for f in folders)


def wait_for(condition, limit_s: float = 15.0) -> None:
    until = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < until, "nothing happened in time"
        time.sleep(0.02)


def test_home_with_a_relative_path_is_of_no_harm(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = LocalBackend(home=Path("h").resolve(), run_name="r", tools=tmp_path, connections=connections)
    assert made.run(python("print(1)"), quiet).stdout == "1\n"
    made.release("job")
