"""No answer of a node, whatever it holds, crashes the reader or passes for a whole one."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric_health.evidence import Command, CommandStatus, ReachStatus, from_bytes, to_bytes
from fabric_health.reach import UnitRequest, probe
from fabric_health.reach.answer import probe_outcome
from fabric_health.reach.frames import FrameReader, excerpt
from fabric_health.reach.transcript import Transcript, UnitFaultError
from fabric_health.site import Node, ReachProfile, Sku

NONCE = "00ff00ff00ff00ff"
COMMANDS = (Command("one", ("one",)), Command("two", ("two", "-x"), max_bytes=10))
NODE = Node(
    "gpu-001",
    "sku",
    Sku(gpu_model="none", gpus=0, link_layer="Ethernet", nic_rate_gbps=1),
    "r1",
    "192.0.2.1",
    ReachProfile(connection="c"),
)


def reader() -> FrameReader:
    return FrameReader(Transcript(UnitRequest(NODE, "check", COMMANDS)), NONCE)


def line(kind: str, body: Any) -> bytes:
    return probe.frame(NONCE, kind, body)


def answered(index: int, **changes: Any) -> bytes:
    return line("result", {**probe.result(index, "exited", 0, ("text", ""), (0.0, 0.1)), **changes})


WHOLE = line("begin", {}) + answered(0) + answered(1) + line("end", {})


def outcome(r: FrameReader, code: int | None = 0, stderr: bytes = b"") -> ReachStatus:
    try:
        probe_outcome(r, code, stderr, "python3")
    except UnitFaultError as fault:
        return fault.status
    return ReachStatus.OK


def test_a_whole_answer_in_any_pieces() -> None:
    noise = b"Welcome to gpu-001\nFH1 other begin {}\n"
    for size in (1, 7, 10_000):
        r = reader()
        data = noise + WHOLE
        for i in range(0, len(data), size):
            r.feed(data[i : i + size])
        r.close()
        assert outcome(r) is ReachStatus.OK
        assert [x.stdout for x in r._transcript.results] == ["text", "text"]
        assert [x.argv for x in r._transcript.results] == [("one",), ("two", "-x")]


@pytest.mark.parametrize("cut", range(0, len(WHOLE), 9))
def test_a_cut_answer_keeps_what_had_ended_and_is_never_ok(cut: int) -> None:
    r = reader()
    r.feed(WHOLE[:cut])
    r.close()
    assert outcome(r, None) is not ReachStatus.OK
    evidence = r._transcript.evidence(ReachStatus.CLOSED_EARLY)
    assert [x.name for x in evidence.results] == ["one", "two"]
    if cut > WHOLE.index(b"\n", WHOLE.index(b"result")):
        assert evidence.results[0].ran


@pytest.mark.parametrize(
    "bad",
    [
        answered(1),
        answered(0) + answered(0),
        answered(0, status="fine"),
        answered(0, status=None),
        answered(0, code="0"),
        answered(0, code=None),
        answered(0, code=True),
        answered(0, code=1 << 40),
        answered(0, out=None),
        answered(0, out=["x"]),
        answered(0) + answered(1, out="x" * 100),
        answered(0) + answered(1) + answered(2),
        answered(0) + line("end", {}),
        answered(0, i=False),
        line("begin", {}),
        line("surprise", {}),
        line("result", []),
        line("result", {}),
        f"FH1 {NONCE} result {'[' * 50_000}\n".encode(),
        f"FH1 {NONCE} result {'9' * 5_000}\n".encode(),
        f"FH1 {NONCE} result \n".encode(),
        f"FH1 {NONCE} \xff\n".encode("latin-1"),
    ],
)
def test_a_wrong_line_makes_the_answer_malformed(bad: bytes) -> None:
    r = reader()
    r.feed(line("begin", {}) + bad)
    r.close()
    assert r.problem
    assert outcome(r) is ReachStatus.MALFORMED


def overlapping(at_once: int, count: int) -> FrameReader:
    commands = tuple(Command(str(i), (str(i),)) for i in range(count))
    return FrameReader(Transcript(UnitRequest(NODE, "check", commands, at_once)), NONCE)


def test_overlapping_results_are_taken_in_any_order_that_can_be() -> None:
    r = overlapping(2, 4)
    r.feed(line("begin", {}) + answered(1, out="1") + answered(2, out="2") + answered(0, out="0"))
    assert not r.ended
    r.feed(answered(3, out="3") + line("end", {}))
    assert outcome(r) is ReachStatus.OK
    assert [x.stdout for x in r._transcript.evidence(ReachStatus.OK).results] == ["0", "1", "2", "3"]


@pytest.mark.parametrize("order", [(2,), (1, 3), (0, 0), (1, 1), (0, 1, 1), (1, 2, 3, 0, 0), (-1,), (1, 2, 3)])
def test_an_overlapping_result_that_cannot_be_yet_or_again_is_malformed(order: tuple[int, ...]) -> None:
    r = overlapping(2, 4)
    r.feed(line("begin", {}) + b"".join(map(answered, order)) + line("end", {}))
    assert r.problem
    assert outcome(r) is ReachStatus.MALFORMED


def test_of_a_cut_answer_the_overlapping_commands_were_interrupted_and_the_rest_not_run() -> None:
    r = overlapping(2, 5)
    r.feed(line("begin", {}) + answered(1) + answered(2))
    r.close()
    evidence = r._transcript.evidence(ReachStatus.CLOSED_EARLY)
    assert [(x.name, x.status.value) for x in evidence.results] == [
        *(("0", "truncated"), ("1", "exited"), ("2", "exited"), ("3", "truncated"), ("4", "not_run"))
    ]
    assert r._transcript.evidence(ReachStatus.HUNG).status is ReachStatus.HUNG


@given(st.integers(1, 6), st.integers(1, 6), st.lists(st.integers(-1, 6), max_size=8))
def test_no_order_of_results_crashes_or_passes_for_whole(at_once: int, count: int, order: list[int]) -> None:
    r = overlapping(at_once, count)
    r.feed(line("begin", {}) + b"".join(map(answered, order)) + line("end", {}))
    if outcome(r) is ReachStatus.OK:
        assert sorted(order) == list(range(count))
    assert len(r._transcript.evidence(ReachStatus.CLOSED_EARLY).results) == count


def test_lines_after_the_end_are_malformed() -> None:
    r = reader()
    r.feed(WHOLE + answered(0))
    assert outcome(r) is ReachStatus.MALFORMED


@pytest.mark.parametrize(
    ("code", "stdout", "stderr", "status"),
    [
        (127, b"", b"bash: python3: command not found\n", ReachStatus.NO_INTERPRETER),
        (2, b"", b"Unknown option: -I\n", ReachStatus.NO_INTERPRETER),
        (1, b"", b'  File "<stdin>", line 9\nSyntaxError: invalid syntax\n', ReachStatus.NO_INTERPRETER),
        (0, b"", b"", ReachStatus.EMPTY),
        (0, b"This account is not available.\n", b"", ReachStatus.MALFORMED),
        (1, b"", b"Killed\n", ReachStatus.MALFORMED),
    ],
)
def test_no_begin_is_told_apart(code: int, stdout: bytes, stderr: bytes, status: ReachStatus) -> None:
    r = reader()
    r.feed(stdout)
    r.close()
    assert outcome(r, code, stderr) is status


def test_lone_surrogates_can_be_stored() -> None:
    r = reader()
    r.feed(line("begin", {}) + answered(0, out="\ud800 half a character", err="\udfff"))
    r.feed(answered(1) + line("end", {}))
    assert outcome(r) is ReachStatus.OK
    evidence = r._transcript.evidence(ReachStatus.OK)
    assert from_bytes(to_bytes(evidence)) == evidence
    assert evidence.results[0].stdout == "\\ud800 half a character"


@pytest.mark.parametrize("times", [(-1, 2), (5, 1), (float("nan"), 1), (0, 1e12), ("x", 1), (True, True), (None, None)])
def test_times_that_cannot_be_are_not_believed(times: tuple[Any, Any]) -> None:
    r = reader()
    r.feed(line("begin", {}) + answered(0, t0=times[0], t1=times[1]))
    result = r._transcript.results[0]
    assert r._transcript.started_at <= result.started_at <= result.ended_at


def test_statuses_of_the_probe_keep_their_meaning() -> None:
    r = reader()
    r.feed(line("begin", {}) + answered(0, status="timeout", code=5) + answered(1, status="not_installed", code=127))
    first, second = r._transcript.results
    assert (first.status, first.exit_code) == (CommandStatus.TIMEOUT, None)
    assert (second.status, second.exit_code) == (CommandStatus.NOT_INSTALLED, 127)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda x: st.lists(x) | st.dictionaries(st.text(), x),
)
PIECES = st.lists(
    st.one_of(
        st.binary(max_size=60),
        st.builds(line, st.sampled_from(["begin", "result", "end", "x"]), JSON),
        st.builds(lambda i, b: answered(i, **b), st.integers(-1, 3), st.dictionaries(st.sampled_from("iot"), JSON)),
        st.builds(lambda: WHOLE[: len(WHOLE) // 2]),
    ),
    max_size=8,
)


@given(PIECES, st.none() | st.integers(-10, 300), st.binary(max_size=50))
def test_no_bytes_crash_the_reader_or_pass_silently(pieces: list[bytes], code: int | None, stderr: bytes) -> None:
    r = reader()
    for piece in pieces:
        r.feed(piece)
    r.close()
    status = outcome(r, code, stderr)
    evidence = r._transcript.evidence(status)
    assert len(evidence.results) == len(COMMANDS)
    assert to_bytes(evidence)
    if status is ReachStatus.OK:
        assert r.begun
        assert r.ended
        assert r._transcript.complete


@given(st.text() | st.binary())
def test_an_excerpt_is_one_short_printable_line(said: str | bytes) -> None:
    shown = excerpt(said)
    assert shown.isprintable()
    assert len(shown) <= 203


def test_frames_are_plain_json() -> None:
    head, nonce, kind, body = answered(0).decode().split(" ", 3)
    assert (head, nonce, kind) == ("FH1", NONCE, "result")
    assert json.loads(body)["out"] == "text"
