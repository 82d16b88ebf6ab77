"""The probe against real commands on this machine, run exactly as it is run on a node."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fabric_health.evidence import Command, CommandStatus, ReachStatus
from fabric_health.reach import UnitRequest, probe
from fabric_health.reach.frames import FrameReader, read_script, script
from fabric_health.reach.transcript import Transcript
from fabric_health.site import Node, ReachProfile, Sku

NONCE = "0123456789abcdef"
UNIT = Node("n", "s", Sku(gpu_model="x", gpus=0, link_layer="Ethernet", nic_rate_gbps=1), "r", "n", ReachProfile())
STANDARD_LIBRARY = {
    *("base64", "contextlib", "json", "os", "select", "signal", "subprocess", "sys", "threading", "time", "zlib"),
}


def run(
    *commands: Command, deadline_s: float = 20.0, at_once: int = 1
) -> tuple[list[dict], subprocess.CompletedProcess[bytes]]:
    payload = script(commands, deadline_s, NONCE, at_once=at_once)
    done = subprocess.run([sys.executable, "-I", "-"], input=payload, capture_output=True, timeout=60)
    lines = [line.split(b" ", 3) for line in done.stdout.splitlines()]
    assert all(line[:2] == [b"FH1", NONCE.encode()] for line in lines)
    assert [line[2] for line in lines] == [b"begin", *[b"result"] * len(commands), b"end"]
    return [json.loads(line[3]) for line in lines[1:-1]], done


def test_is_python_3_6_and_standard_library_only() -> None:
    tree = ast.parse(Path(probe.__file__).read_text(), feature_version=(3, 6))
    imported = {a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
    assert imported == STANDARD_LIBRARY
    assert not [n for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)], "`from __future__` came with 3.7"
    # Annotations are evaluated on 3.6, where dict[str, str] and `int | None` do not exist: they must be strings.
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            annotations = [a.annotation for a in node.args.args if a.annotation] + [node.returns]
            assert not [a for a in annotations if isinstance(a, ast.Subscript | ast.BinOp)]


def test_returns_code_output_and_offsets() -> None:
    results, done = run(
        Command("ok", ("echo", "two words", "$HOME;`id`")),
        Command("fails", ("sh", "-c", "echo out; echo err >&2; exit 7")),
        Command("killed", ("sh", "-c", "kill -9 $$")),
    )
    assert done.returncode == 0
    assert (results[0]["code"], results[0]["out"]) == (0, "two words $HOME;`id`\n")
    assert (results[1]["code"], results[1]["out"], results[1]["err"]) == (7, "out\n", "err\n")
    assert results[2]["code"] == -signal.SIGKILL
    assert 0 <= results[0]["t0"] <= results[0]["t1"] <= results[1]["t0"]


def test_a_missing_program_is_not_installed_and_a_bad_one_is_not_hidden(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("no program")
    results, _ = run(Command("missing", ("no-such-tool-here", "-q")), Command("plain", (str(plain),)))
    assert (results[0]["status"], results[0]["code"]) == ("not_installed", 127)
    assert (results[1]["status"], results[1]["code"]) == ("exited", 126)


def test_commands_see_the_c_locale_no_input_and_nothing_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API_TOKEN", "canary")
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    results, _ = run(Command("env", ("env",)), Command("stdin", ("cat",)))
    assert "LC_ALL=C\n" in results[0]["out"]
    assert "canary" not in results[0]["out"]
    assert "/usr/sbin" in results[0]["out"]
    assert (results[1]["code"], results[1]["out"]) == (0, "")


def test_a_command_that_ignores_term_is_killed_with_its_children(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    stubborn = f"trap '' TERM; sh -c 'trap \"\" TERM; echo $$ > {pid_file}; while :; do sleep 1; done' & wait; wait"
    began = time.monotonic()
    results, _ = run(Command("stubborn", ("sh", "-c", stubborn), 0.5), Command("next", ("echo", "still here")))
    assert results[0]["status"] == "timeout"
    assert results[0]["code"] is None
    assert results[1]["out"] == "still here\n"
    assert time.monotonic() - began < 5
    assert not alive(int(pid_file.read_text()))


def test_a_flood_is_cut_at_the_bound_and_stopped() -> None:
    results, _ = run(Command("yes", ("yes",), 10, 1000), Command("err", ("sh", "-c", "yes >&2"), 10, 1000))
    assert [(r["status"], len(r["out"]), len(r["err"])) for r in results] == [
        ("truncated", 1000, 0),
        ("truncated", 0, 1000),
    ]


def test_one_line_of_fifty_megabytes_is_bounded() -> None:
    line = "import sys; sys.stdout.write('x' * 50_000_000)"
    results, done = run(Command("long", (sys.executable, "-c", line), 30, 100_000))
    assert results[0]["status"] == "truncated"
    assert len(done.stdout) < 200_000


def test_undecodable_bytes_and_control_characters_survive_as_text() -> None:
    results, done = run(Command("bytes", ("printf", r"\377\033[31m<b>\000\nend")))
    assert results[0]["out"] == "\\xff\x1b[31m<b>\x00\nend"
    assert done.stdout.isascii()


def test_a_child_that_keeps_the_pipe_does_not_hold_up_the_rest() -> None:
    began = time.monotonic()
    results, _ = run(Command("daemon", ("sh", "-c", "sleep 60 & echo started")))
    assert (results[0]["status"], results[0]["out"]) == ("exited", "started\n")
    assert time.monotonic() - began < 5


def test_the_deadline_leaves_the_rest_not_run() -> None:
    results, _ = run(
        Command("slow", ("sleep", "30")), Command("second", ("echo",)), Command("third", ("echo",)), deadline_s=0.6
    )
    assert [r["status"] for r in results] == ["timeout", "not_run", "not_run"]


def test_ends_with_its_command_when_nobody_reads_any_more(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    command = Command("long", ("sh", "-c", f"echo $$ > {pid_file}; exec sleep 60"), 60)
    process = subprocess.Popen([sys.executable, "-I", "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(script((command,), 60, NONCE))
    process.stdin.close()
    process.stdout.readline()
    wait_for(lambda: pid_file.exists() and bool(pid_file.read_text().strip()))
    process.stdout.close()
    assert process.wait(10) == 1
    wait_for(lambda: not alive(int(pid_file.read_text())))


def test_term_kills_the_running_command_too(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    command = Command("long", ("sh", "-c", f"echo $$ > {pid_file}; exec sleep 60"), 60)
    process = subprocess.Popen([sys.executable, "-I", "-"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    assert process.stdin is not None
    process.stdin.write(script((command,), 60, NONCE))
    process.stdin.close()
    wait_for(lambda: pid_file.exists() and bool(pid_file.read_text().strip()))
    process.terminate()
    assert process.wait(10) == 128 + signal.SIGTERM
    wait_for(lambda: not alive(int(pid_file.read_text())))


def most_at_once(results: list[dict]) -> int:
    """How many commands ran at the same time, by the probe's own times."""
    return max(sum(r["t0"] <= one["t0"] < r["t1"] for r in results) for one in results)


@pytest.mark.parametrize(("at_once", "most"), [(1, 1), (2, 2), (4, 4), (100, probe.MOST_AT_ONCE), (0, 1)])
def test_as_many_commands_run_at_once_as_asked_and_never_more_than_four(
    tmp_path: Path, at_once: int, most: int
) -> None:
    # Each ends once as many have begun as may run at once: one after the other they would never.
    met = f"touch $0; until [ $(ls {tmp_path} | wc -l) -ge {most} ]; do sleep 0.02; done; sleep 0.05"
    commands = (Command(str(i), ("sh", "-c", met, str(tmp_path / str(i)))) for i in range(6))
    results, done = run(*commands, at_once=at_once)
    assert done.stderr == b""
    assert {(r["status"], r["code"]) for r in results} == {("exited", 0)}
    assert sorted(r["i"] for r in results) == list(range(6))
    assert most_at_once(results) == most


def test_overlapping_commands_are_each_ended_at_their_own_limit(tmp_path: Path) -> None:
    pids = [tmp_path / "stubborn", tmp_path / "slow"]
    stubborn = f"echo $$ > {pids[0]}; trap '' TERM; while :; do sleep 0.1; done"
    slow = f"echo $$ > {pids[1]}; echo said; exec sleep 60"
    results, _ = run(
        Command("stubborn", ("sh", "-c", stubborn), 0.5),
        Command("slow", ("sh", "-c", slow), 0.5),
        Command("flood", ("yes",), 20.0, 1000),
        Command("missing", ("no-such-tool-here",)),
        Command("well", ("echo", "well")),
        at_once=3,
    )
    by_place = {r["i"]: r for r in results}
    assert [by_place[i]["status"] for i in range(5)] == ["timeout", "timeout", "truncated", "not_installed", "exited"]
    # The one that must be killed takes a second to be ended, and neither clock nor output of the others waits for it.
    assert by_place[1]["out"] == "said\n"
    assert by_place[1]["t1"] < by_place[0]["t1"]
    assert len(by_place[2]["out"]) == 1000
    assert not any(alive(int(p.read_text())) for p in pids)


def test_the_deadline_ends_all_that_overlap() -> None:
    names = ("one", "two", "three", "four")
    results, _ = run(*(Command(n, ("sleep", "30")) for n in names), deadline_s=0.6, at_once=2)
    assert sorted((r["i"], r["status"]) for r in results) == [
        *((0, "timeout"), (1, "timeout"), (2, "not_run"), (3, "not_run"))
    ]


def test_results_of_overlapping_commands_are_kept_in_the_order_asked() -> None:
    commands = (Command("late", ("sh", "-c", "sleep 0.5; echo late")), *(Command(n, ("echo", n)) for n in "abc"))
    request = UnitRequest(UNIT, "c", commands, at_once=2)
    reader = FrameReader(Transcript(request), NONCE)
    payload = script(commands, 20.0, NONCE, at_once=request.side_by_side)
    done = subprocess.run([sys.executable, "-I", "-"], input=payload, capture_output=True, timeout=30)
    assert [json.loads(line.split(b" ", 3)[3]).get("i") for line in done.stdout.splitlines()][1:-1] == [1, 2, 3, 0]
    reader.feed(done.stdout)
    evidence = reader._transcript.evidence(ReachStatus.OK)
    assert (reader.problem, reader.ended, evidence.status) == (None, True, ReachStatus.OK)
    assert [(r.name, r.stdout) for r in evidence.results] == [(n, f"{n}\n") for n in ("late", "a", "b", "c")]
    late, first, *_ = evidence.results
    assert late.started_at <= first.ended_at <= late.ended_at


@pytest.mark.parametrize("way", ["nobody reads", "terminated"])
def test_every_overlapping_command_is_killed_with_the_probe(tmp_path: Path, way: str) -> None:
    pids = [tmp_path / str(i) for i in range(3)]
    commands = tuple(Command(p.name, ("sh", "-c", f"echo $$ > {p}; exec sleep 60"), 60) for p in pids)
    process = subprocess.Popen([sys.executable, "-I", "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(script((*commands, Command("after", ("touch", str(tmp_path / "after")))), 60, NONCE, at_once=3))
    process.stdin.close()
    wait_for(lambda: all(p.exists() and p.read_text().strip() for p in pids))
    if way == "terminated":
        process.terminate()
        assert process.wait(10) == 128 + signal.SIGTERM
        assert process.stdout.read().count(b" result ") == 0  # what we ended ourselves is not told as its own end
    process.stdout.close()
    assert process.wait(10) == (128 + signal.SIGTERM if way == "terminated" else 1)
    wait_for(lambda: not any(alive(int(p.read_text())) for p in pids))
    assert not (tmp_path / "after").exists()


def test_a_script_can_be_read_back_whatever_its_arguments_hold() -> None:
    argv = ('quote " and \\', "line\nbreak", "smørrebrød \U0001f600", "')))")
    request = read_script(script((Command("odd", argv, max_bytes=5),), 3, NONCE))
    assert request is not None
    assert (request.nonce, request.commands, request.max_bytes) == (NONCE, (argv,), (5,))
    assert read_script(b"print('something else')\n") is None
    assert read_script(b'\nsys.exit(main("[]"))\n') is None


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


def wait_for(true, limit_s: float = 5.0) -> None:
    end = time.monotonic() + limit_s
    while not true():
        assert time.monotonic() < end, "did not happen in time"
        time.sleep(0.02)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may change its root")
def test_in_a_pod_commands_are_those_of_the_nodes_root(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "os-release").write_text("NAME=node\n")
    cat = shutil.which("cat")
    assert cat is not None
    libraries = re.findall(r"(/\S+) \(0x", subprocess.run(["ldd", cat], capture_output=True, text=True).stdout)
    for file in (cat, *libraries):
        target = tmp_path / file.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, target)
    commands = (Command("os", ("cat", "/etc/os-release")), Command("absent", ("ls", "/")), Command("o", ("cat", "/x")))
    payload = script(commands, 20.0, NONCE, root=str(tmp_path)).decode()
    done = subprocess.run([sys.executable, "-I", "-c", payload], capture_output=True, timeout=30)
    assert done.stderr == b""
    reader = FrameReader(Transcript(UnitRequest(UNIT, "c", commands)), NONCE, packed=True)
    reader.feed(done.stdout)
    assert reader.ended
    found, absent, missing = reader._transcript.results
    assert (found.stdout, found.stderr) == ("NAME=node\n", "")
    assert absent.status is CommandStatus.NOT_INSTALLED
    assert (missing.exit_code, "/x" in missing.stderr) == (1, True)


def test_without_a_way_into_the_root_nothing_is_run(tmp_path: Path) -> None:
    payload = script((Command("x", ("touch", str(tmp_path / "x"))),), 20.0, NONCE, root=str(tmp_path / "none")).decode()
    done = subprocess.run([sys.executable, "-I", "-c", payload], capture_output=True, timeout=30)
    assert (done.returncode, done.stdout) == (3, b"")
    assert b"no way into the node's root" in done.stderr
    assert not (tmp_path / "x").exists()
