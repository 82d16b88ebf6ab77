"""Ranks run for real, with their output in one pipe as mpirun has it; and output that is cut, mixed or hostile."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import zlib
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fabric_health.errors import UsageError
from fabric_health.jobs import rank_wrapper
from fabric_health.jobs.argv import filled
from fabric_health.jobs.rank_artefacts import asked_of_ranks, rank_words, room_bytes, take_out
from fabric_health.jobs.spec import JobSpec, SecretReference

NONCE = "0123456789abcdef"
SPEC = JobSpec("j", "t", ("mpirun", "{rank}", "x"), nodes=("a", "b"), artefacts=("r.json",), artefact_max_bytes=1 << 20)
NOISE = b"gpu-002:77:77 [1] NCCL INFO comm 0x55d0 rank 9 - Destroy COMPLETE\n"
BODY = json.dumps({"times": [i * 1.37 for i in range(3000)]}).encode()
WRITES = """
import os, pathlib, sys
rank = os.environ["OMPI_COMM_WORLD_RANK"]
print("row of", rank, flush=True)
if rank == "0":
    path = pathlib.Path(sys.argv[1])
    print("# Writing JSON output to", path, flush=True)
    path.write_text('{"env": ["' + '", "'.join(f"{k}={v}" for k, v in os.environ.items()) + '"]}')
    print(path.parent, file=sys.stderr)
sys.exit(int(sys.argv[2]))
"""


def ranks(spec: JobSpec, *argv: str, number: int = 2, **env: str) -> tuple[str, str, list[int]]:
    """Run ranks that share their output. Return stdout, stderr and exit codes."""
    words = filled(("mpirun", "{rank}", *argv), {}, rank_words(spec, NONCE))[1:]
    started = []
    out, into = os.pipe()
    for rank in range(number):
        more = {"PATH": os.environ["PATH"], "OMPI_COMM_WORLD_RANK": str(rank), **env}
        command = [sys.executable, *words[1:]]
        started.append(subprocess.Popen(command, env=more, stdout=into, stderr=subprocess.PIPE, text=True))
    os.close(into)
    with open(out, encoding="utf-8") as file:
        said = file.read()
    told = "".join(p.communicate(timeout=30)[1] for p in started)
    return said, told, [p.returncode for p in started]


def lines_of(body: bytes, spec: JobSpec = SPEC, folder: Path | None = None) -> list[bytes]:
    assert folder is not None
    (folder / "r.json").write_bytes(body)
    request = json.loads(rank_words(spec, NONCE)[-1])
    return rank_wrapper.frames(request, str(folder))


@pytest.fixture(scope="module")
def lines(tmp_path_factory) -> list[bytes]:
    found = lines_of(BODY, folder=tmp_path_factory.mktemp("rank0"))
    assert len(found) > 5
    return found


def test_rank_0_sends_its_file_and_nothing_stays_behind():
    spec = replace(SPEC, secrets={"MINE": SecretReference("c", "password")})
    out, err, codes = ranks(
        spec,
        sys.executable,
        "-c",
        WRITES,
        "{artefacts}/r.json",
        "0",
        MINE="hunter2hunter2",
        API_TOKEN="t0k3n",
        SIZE="8",
    )
    assert codes == [0, 0], err
    taken = take_out(out, spec, NONCE)
    assert not taken.missing
    env = json.loads(taken.artefacts["r.json"])["env"]
    assert "SIZE=8" in env
    assert {"MINE=<redacted>", "API_TOKEN=<redacted>"} <= set(env)
    folder = err.split("\n")[0]
    assert not Path(folder).exists()
    assert sorted(taken.stdout.splitlines()) == [
        "# Writing JSON output to " + folder + "/r.json",
        "row of 0",
        "row of 1",
    ]
    assert rank_wrapper.MAGIC not in taken.stdout
    assert rank_wrapper.MAGIC + " " + NONCE in out


@pytest.mark.parametrize(("code", "wanted"), [("3", 3), ("0", 0)])
def test_a_rank_ends_with_its_programs_code_and_a_file_is_kept_all_the_same(code, wanted):
    out, _, codes = ranks(SPEC, sys.executable, "-c", WRITES, "{artefacts}/r.json", code)
    assert codes == [wanted, wanted]
    assert "r.json" in take_out(out, SPEC, NONCE).artefacts


def test_a_rank_that_a_signal_ended_ends_so_itself():
    kill = "import os; os.kill(os.getpid(), 11)"
    out, _, codes = ranks(SPEC, sys.executable, "-c", kill)
    assert codes == [-signal.SIGSEGV, -signal.SIGSEGV]
    assert take_out(out, SPEC, NONCE).missing == ("artefact r.json: no such file on the node of rank 0",)


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("pass", "no such file on the node of rank 0"),
        ("import os, sys; os.symlink('/etc/passwd', sys.argv[1])", "no such file on the node of rank 0"),
        ("import os, sys; os.mkfifo(sys.argv[1])", "no such file on the node of rank 0"),
        ("import sys; open(sys.argv[1], 'w').write('x' * 1001)", "larger than 1000 bytes"),
    ],
)
def test_what_is_not_kept_is_named(source, why):
    spec = replace(SPEC, artefact_max_bytes=1000)
    out, _, _ = ranks(spec, sys.executable, "-c", source, "{artefacts}/r.json", number=1)
    taken = take_out(out, spec, NONCE)
    assert (taken.artefacts, taken.missing) == ({}, (f"artefact r.json: {why}",))


def test_without_a_rank_the_program_runs_and_nothing_is_kept():
    words = filled(("m", "{rank}", "echo", "{artefacts}/x"), {}, rank_words(SPEC, NONCE))[1:]
    done = subprocess.run(
        [sys.executable, *words[1:]], env={"PATH": os.environ["PATH"]}, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, "/dev/null/x\n")
    assert "no rank in OMPI_COMM_WORLD_RANK" in done.stderr
    assert "sent nothing back" in take_out(done.stdout, SPEC, NONCE).missing[0]


@pytest.mark.parametrize("rank", ["0", "1"])
def test_a_program_that_is_not_there_is_named(rank):
    out, err, codes = ranks(SPEC, "/no/such/program", number=1, OMPI_COMM_WORLD_RANK=rank)
    assert codes == [127]
    assert "fabric-health: /no/such/program: " in err
    assert take_out(out, SPEC, NONCE).artefacts == {}


def test_a_rank_that_is_told_to_stop_tells_its_program(tmp_path):
    source = "import time; print('up', flush=True); time.sleep(60)"
    words = filled(("m", "{rank}", sys.executable, "-c", source), {}, rank_words(SPEC, NONCE))[1:]
    environment = {"PATH": os.environ["PATH"], "OMPI_COMM_WORLD_RANK": "0", "TMPDIR": str(tmp_path)}
    process = subprocess.Popen([sys.executable, *words[1:]], env=environment, stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"up\n"
    process.terminate()
    assert process.communicate(timeout=20)[0] == b"", "mpirun is ending: nobody reads on"
    assert process.returncode == -signal.SIGTERM
    assert list(tmp_path.iterdir()) == []


def test_a_large_file_is_sent_once_and_a_small_one_twice(tmp_path):
    small = lines_of(os.urandom(1000), folder=tmp_path)
    large = lines_of(os.urandom(900_000), folder=tmp_path)
    for sent, times in ((small, 2), (large, 1)):
        done = subprocess.run(
            [sys.executable, "-c", "import sys\nfrom fabric_health.jobs import rank_wrapper as w\n"
             "w.SETTLE_S = 0; w.send(sys.stdin.buffer.readlines())"],
            input=b"".join(sent), capture_output=True, check=True,
        )  # fmt: skip
        assert done.stdout == b"".join(sent) * times
        assert len(done.stdout) <= room_bytes(SPEC)


def text_of(*parts: bytes) -> str:
    return b"".join(parts).decode()


def test_every_line_fits_what_open_mpi_passes_on_at_once(lines):
    assert max(len(line) for line in lines) < 4096


def test_output_around_the_lines_stays_as_it_was(lines):
    taken = take_out(text_of(b"half of a ", *lines, b"row\n", *lines, b"end"), SPEC, NONCE)
    assert taken.stdout == "half of a row\nend"
    assert taken.artefacts == {"r.json": BODY}
    crlf = [line[:-1] + b"\r\n" for line in lines]
    assert take_out(text_of(b"a\n", *crlf, b"b\n"), SPEC, NONCE).stdout == "a\nb\n"


def test_what_breaks_into_a_line_stays_and_the_other_copy_counts(lines):
    for at in range(0, len(lines[1]), 97):
        broken = [lines[0], lines[1][:at], NOISE, lines[1][at:], *lines[2:]]
        taken = take_out(text_of(*broken, *lines), SPEC, NONCE)
        assert taken.artefacts == {"r.json": BODY}, at
        if at > 40 and len(lines[1]) - at > 40:
            assert taken.stdout == NOISE.decode(), at
        assert NOISE.decode().strip() in taken.stdout


def test_lost_pieces_are_named_and_nothing_passes(lines):
    for cut, why in (
        (lines[:-1], "the output stops within it"),
        ([*lines[:2], *lines[3:]], "1 of "),
        ([lines[-1]], f"{len(lines) - 1} of {len(lines) - 1} pieces are lost"),
        ([], "rank 0 sent nothing back"),
        ([b"".join(lines)[:-40]], "the output stops within it"),
        ([line.replace(NONCE.encode(), b"f" * 16) for line in lines], "rank 0 sent nothing back"),
    ):
        taken = take_out(text_of(*cut), SPEC, NONCE)
        assert taken.artefacts == {}
        assert len(taken.missing) == 1
        assert why in taken.missing[0]


def test_two_ranks_0_prove_nothing(lines, tmp_path):
    others = lines_of(b'{"other": 1}', folder=tmp_path)
    taken = take_out(text_of(*lines, *others), SPEC, NONCE)
    assert (taken.artefacts, taken.missing) == ({}, ("artefact r.json: two ranks say that they are rank 0",))


def test_what_rank_0_says_of_a_file_is_held_against_it(lines):
    packed = zlib.compress(b"x" * 5000)
    for said in (
        {"size": 5000, "sha256": "0" * 64, "pieces": 1},
        {"size": 4999, "sha256": "0" * 64, "pieces": 1},
        {"size": 1 << 40, "sha256": "0" * 64, "pieces": 1},
        {"size": -1, "pieces": 1},
        {"size": 5000, "pieces": 1 << 60},
        {"size": True, "pieces": True},
        {"error": ["x"]},
        "x",
        None,
    ):
        end = rank_wrapper.frame(NONCE, "end", json.dumps({"artefacts": {"r.json": said}}).encode())
        taken = take_out(text_of(rank_wrapper.frame(NONCE, "0.0", packed), end), SPEC, NONCE)
        assert taken.artefacts == {}
        assert len(taken.missing) == 1


def test_output_beyond_its_bound_is_cut_and_said(lines):
    spec = replace(SPEC, output_max_bytes=10)
    taken = take_out(text_of(b"123456789\nabc\n", *lines), spec, NONCE)
    assert (taken.stdout, taken.cut) == ("123456789\n", "stdout: the first 10 of 14 bytes were kept")
    assert taken.artefacts == {"r.json": BODY}
    assert take_out(text_of(b"123456789\n", *lines), spec, NONCE).cut == ""


def test_an_argv_without_the_word_asks_nothing_of_ranks():
    assert asked_of_ranks(SPEC)
    for spec in (replace(SPEC, argv=("mpirun", "x")), replace(SPEC, artefacts=())):
        assert not asked_of_ranks(spec)
        assert rank_words(spec, NONCE) == ()
    values = {"artefacts": "/here"}
    argv = ("mpirun", "{artefacts}/a", "{rank}", "x", "{artefacts}/b")
    assert filled(argv, values) == ("mpirun", "/here/a", "x", "/here/b")
    assert filled(argv, values, ("r",)) == ("mpirun", "/here/a", "r", "x", "{artefacts}/b")
    for wrong in (("{rank}", "x"), ("mpirun", "{rank}")):
        with pytest.raises(UsageError, match="at an end"):
            filled(wrong, values)


@given(st.lists(st.tuples(st.integers(0, 40_000), st.integers(0, 400)), max_size=6), st.booleans(), st.data())
@settings(max_examples=100, deadline=None)
def test_however_the_output_is_mixed_cut_or_repeated_a_file_is_whole_or_missing(lines, spots, twice, data):
    whole = b"".join(lines) * (2 if twice else 1)
    for at, lost in spots:
        at %= len(whole)
        what = data.draw(st.sampled_from([b"", NOISE, NOISE[:-9], b"\n", lines[0], lines[-1], lines[1][:50]]))
        whole = whole[:at] + what + whole[at + lost :]
    taken = take_out(whole.decode(), SPEC, NONCE)
    assert taken.artefacts in ({}, {"r.json": BODY})
    assert bool(taken.artefacts) != bool(taken.missing)
    assert len(taken.stdout) <= len(whole)


@given(st.text(max_size=200), st.lists(st.sampled_from(["0.0", "end", "9999.9999999", "0.", "x"]), max_size=4))
@settings(deadline=None)
def test_no_text_makes_it_raise_or_pass(text, keys):
    parts = [f"{rank_wrapper.MAGIC} {NONCE} {key} {len(text)} 00000000 {text}" for key in keys]
    taken = take_out(text.join(parts) + text, SPEC, NONCE)
    assert taken.artefacts == {}
    assert taken.missing
