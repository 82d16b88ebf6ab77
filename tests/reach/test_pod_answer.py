"""A pod's log, whatever it holds, is read as what it is: whole, cut, rotated, too large, or not a probe's."""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric_health.evidence import MIB, Command, CommandStatus, ReachStatus, to_bytes
from fabric_health.reach import UnitRequest, frames, pod_answer, probe
from fabric_health.reach.pod_answer import PodAnswer, take
from fabric_health.reach.transcript import Transcript, UnitFaultError
from fabric_health.site import Node, ReachProfile, Sku

NONCE = "00ff00ff00ff00ff"
COMMANDS = (Command("one", ("one",)), Command("two", ("two", "-x")))
SKU = Sku(gpu_model="none", gpus=0, link_layer="Ethernet", nic_rate_gbps=1)
NODE = Node("gpu-001", "sku", SKU, "r1", "gpu-001", ReachProfile(connection="c", unit_timeout_s=7))
ENDED: dict[str, Any] = {"metadata": {"name": "p"}, "status": {"phase": "Succeeded"}}


def line(kind: str, body: Any) -> bytes:
    return probe.packed(NONCE, kind, body)


def answered(index: int, text: str = "text") -> bytes:
    return line("result", probe.result(index, "exited", 0, (text, ""), (0.0, 0.1)))


WHOLE = line("begin", {}) + answered(0) + answered(1) + line("end", {})


def read(log: bytes | None, pod: dict[str, Any] = ENDED, over: bool = True) -> tuple[Transcript, ReachStatus, str]:
    transcript = Transcript(UnitRequest(NODE, "check", COMMANDS))
    try:
        take(transcript, NONCE, PodAnswer(pod, log, over))
    except UnitFaultError as fault:
        return transcript, fault.status, fault.detail
    return transcript, ReachStatus.OK, ""


def failed(**state: Any) -> dict[str, Any]:
    container = {"name": "probe", "image": "x", "state": {"terminated": state}}
    return {"metadata": {"name": "p"}, "status": {"phase": "Failed", "containerStatuses": [container]}}


def test_a_whole_log_counts_whatever_else_was_written_and_however_the_pod_ended() -> None:
    noise = b"Welcome\nFH1 other begin {}\n"
    for pod in (ENDED, failed(exitCode=1), {"metadata": {"name": "p"}, "status": {"reason": "Evicted"}}):
        transcript, status, _ = read(noise + WHOLE + b"bye\n", pod)
        assert status is ReachStatus.OK
        assert [r.stdout for r in transcript.results] == ["text", "text"]


def test_a_large_answer_goes_in_lines_that_no_runtime_cuts() -> None:
    large = "".join(f"{i * 7919 % 104729:x}\n" for i in range(200_000))
    log = line("begin", {}) + answered(0, large) + answered(1) + line("end", {})
    assert max(map(len, log.splitlines())) < 16 << 10
    assert len(log) < len(large)
    transcript, status, _ = read(log)
    assert status is ReachStatus.OK
    assert transcript.results[0].stdout == large
    lines = log.splitlines(keepends=True)
    for at in (1, 2, len(lines) // 2):  # a line of the middle is lost
        assert read(b"".join(lines[:at] + lines[at + 1 :]))[1] is not ReachStatus.OK


@pytest.mark.parametrize("cut", range(0, len(WHOLE), 7))
def test_a_cut_log_is_never_whole_and_keeps_what_had_ended(cut: int) -> None:
    transcript, status, detail = read(WHOLE[:cut])
    assert status is not ReachStatus.OK
    assert detail
    whole_first = len(line("begin", {}) + answered(0))
    assert len(transcript.results) == (cut >= whole_first) + (cut >= whole_first + len(answered(1)))


@pytest.mark.parametrize("lost", range(1, 4))
def test_a_log_whose_beginning_was_rotated_away(lost: int) -> None:
    _, status, detail = read(b"".join(WHOLE.splitlines(keepends=True)[lost:]))
    assert status is ReachStatus.MALFORMED
    assert "containerLogMaxSize" in detail


@pytest.mark.parametrize(
    ("log", "pod", "status", "words"),
    [
        (None, ENDED, ReachStatus.MALFORMED, "ended well, but there is no log"),
        (b"", ENDED, ReachStatus.EMPTY, "answered nothing"),
        (b"", failed(exitCode=137, reason="OOMKilled"), ReachStatus.MALFORMED, "out of memory"),
        (WHOLE[:60], failed(exitCode=137, reason="OOMKilled"), ReachStatus.CLOSED_EARLY, "out of memory"),
        (
            b"fabric-health probe: no way into the node's root, [Errno 1] Operation not permitted: '/host'\n",
            failed(exitCode=3),
            ReachStatus.MALFORMED,
            "exit 3; it said: fabric-health probe: no way into the node's root",
        ),
        (
            b"",
            failed(exitCode=128, reason="StartError", message="python3: not found"),
            ReachStatus.MALFORMED,
            "python3",
        ),
    ],
)
def test_a_pod_that_ended_without_an_answer(
    log: bytes | None, pod: dict[str, Any], status: ReachStatus, words: str
) -> None:
    _, got, detail = read(log, pod)
    assert got is status
    assert words in detail


def test_a_pod_that_is_not_over_hangs_and_keeps_its_results() -> None:
    transcript, status, detail = read(line("begin", {}) + answered(0), over=False)
    assert (status, detail) == (ReachStatus.HUNG, "its pod did not end within 7 s; it was deleted")
    evidence = transcript.evidence(status)
    assert [r.status for r in evidence.results] == [CommandStatus.EXITED, CommandStatus.TIMEOUT]


def test_a_flood_and_an_answer_that_unfolds_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_answer, "MAX_LOG_BYTES", 1000)
    _, status, detail = read(b"x" * 1000)
    assert (status, detail) == (ReachStatus.FLOODED, "its pod's log is larger than 1000 bytes")
    monkeypatch.setattr(frames, "UNPACKED_BYTES", MIB)
    monkeypatch.setattr(pod_answer, "MAX_LOG_BYTES", MIB)
    bomb = base64.b64encode(zlib.compress(b"[" * (300 * MIB // 100)))
    _, status, detail = read(line("begin", {}) + f"FH1 {NONCE} result ".encode() + bomb + b"\n")
    assert (status, detail) == (ReachStatus.MALFORMED, f"the answer unfolds to more than {MIB} bytes")


def packed_bytes(data: bytes) -> bytes:
    return base64.b64encode(zlib.compress(data))


BODIES = st.binary(max_size=30) | st.builds(packed_bytes, st.binary(max_size=30))
LINES = st.builds(
    lambda kind, body: f"FH1 {NONCE} {kind} ".encode() + body + b"\n",
    st.sampled_from(["begin", "+", "end", "result"]),
    BODIES,
)
PIECES = st.lists(
    st.one_of(st.binary(max_size=60), st.sampled_from(WHOLE.splitlines(keepends=True)), LINES), max_size=8
)
PODS = st.sampled_from([ENDED, failed(exitCode=2), {}, {"metadata": {"name": "p"}, "status": {"reason": "Evicted"}}])


@given(PIECES, PODS, st.booleans())
def test_no_log_crashes_the_reader_or_passes_silently(pieces: list[bytes], pod: dict[str, Any], over: bool) -> None:
    transcript, status, _ = read(b"".join(pieces), pod, over)
    evidence = transcript.evidence(status)
    assert len(evidence.results) == len(COMMANDS)
    assert to_bytes(evidence)
    if status is ReachStatus.OK:
        assert transcript.complete


def test_packed_and_plain_lines_say_the_same() -> None:
    body = {"i": 0, "out": "ü" * 20_000}
    parts = [text.split(b" ", 3) for text in line("result", body).splitlines()]
    assert {p[2] for p in parts[:-1]} <= {b"+"}
    assert parts[-1][2] == b"result"
    assert json.loads(zlib.decompress(base64.b64decode(b"".join(p[3] for p in parts)))) == body
