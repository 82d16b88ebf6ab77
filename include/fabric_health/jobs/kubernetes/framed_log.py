"""Reads a job pod's log back: the job's own output, its artefacts, and whether the log is whole."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import zlib
from dataclasses import dataclass, field
from typing import Any

from fabric_health.jobs.kubernetes import wrapper

STATUSES = ("exited", "timeout", "cancelled", "not_started")


@dataclass(frozen=True)
class FramedLog:
    """What a log holds. ``whole`` is False with a ``problem`` when its begin, its end or a part between is missing."""

    stdout: str = ""
    stderr: str = ""
    status: str | None = None
    exit_code: int | None = None
    reason: str = ""
    started_at: float | None = None
    ended_at: float | None = None
    truncated: bool = False
    problem: str = ""
    artefacts: dict[str, bytes] = field(default_factory=dict)

    @property
    def whole(self) -> bool:
        """True when the log has its begin and its end, and holds as much as the end says."""
        return not self.problem


@dataclass
class _Reading:
    nonce: str
    out: list[bytes] = field(default_factory=list)
    err: list[bytes] = field(default_factory=list)
    pieces: dict[str, list[bytes]] = field(default_factory=dict)
    begun: bool = False
    end: dict[str, Any] | None = None
    problem: str = ""


def read_log(data: bytes, nonce: str) -> FramedLog:
    """Read a log; never raises, whatever it holds."""
    reading = _Reading(nonce)
    head = f"{wrapper.MAGIC} {nonce} ".encode()
    for line in data.split(b"\n"):
        if line.startswith(head):
            _frame(reading, line[len(head) :])
        elif reading.end is None:
            reading.out.append(line + b"\n")
    if reading.out and reading.end is None:
        reading.out[-1] = reading.out[-1][:-1]  # the text after the last line end is no line
    if reading.end is None:
        return _unfinished(reading, bool(data))
    return _finished(reading, reading.end)


def _frame(reading: _Reading, rest: bytes) -> None:
    kind, _, text = rest.partition(b" ")
    if kind == b"err":
        reading.err.append(text + b"\n")
        return
    try:
        body = json.loads(text)
        if kind == b"begin" and not reading.begun:
            reading.begun = True
        elif kind == b"art":
            name, piece = body
            reading.pieces.setdefault(str(name), []).append(base64.b64decode(piece, validate=True))
        elif kind == b"end" and isinstance(body, dict) and reading.end is None:
            reading.end = body
        else:
            reading.problem = reading.problem or "the log has a line of ours where none was expected"
    except (ValueError, TypeError, RecursionError, binascii.Error):
        reading.problem = reading.problem or "a line of the log is damaged"


def _unfinished(reading: _Reading, any_data: bool) -> FramedLog:
    if not any_data:
        problem = "the log is empty"
    elif not reading.begun:
        problem = "the log holds neither the job's begin nor its end"
    else:
        problem = "the log stops before the job's end"
    return FramedLog(_text(reading.out), _text(reading.err), truncated=True, problem=reading.problem or problem)


def _finished(reading: _Reading, end: dict[str, Any]) -> FramedLog:
    problem, reasons = reading.problem, [str(end.get("reason") or "")[:2000]]
    if not reading.begun:
        problem = problem or "the log's beginning is missing (rotated away)"
    outs: list[str] = []
    truncated = False
    for i, (name, lines) in enumerate((("stdout", reading.out), ("stderr", reading.err))):
        body = b"".join(lines)
        seen, passed = _pair(end, "seen", i), _pair(end, "passed", i)
        if _flag(end, i) and body.endswith(b"\n"):
            body = body[:-1]
        if seen is None or passed is None or len(body) != passed:
            problem = problem or f"{name} in the log has {len(body)} bytes, the job passed on {passed}"
        elif seen > passed:
            truncated = True
            reasons.append(f"{name}: the first {passed} of {seen} bytes were kept")
        outs.append(body.decode("utf-8", "backslashreplace"))
    artefacts, missing = _artefacts(reading, end)
    code, status = end.get("code"), end.get("status")
    if status not in STATUSES or not (code is None or (type(code) is int and abs(code) < 1 << 31)):
        problem, status, code = problem or "the log's last line is not one of ours", None, None
    return FramedLog(
        stdout=outs[0],
        stderr=outs[1],
        status=status,
        exit_code=code,
        reason="; ".join(r for r in (*reasons, *missing) if r),
        started_at=_time(end.get("started_at")),
        ended_at=_time(end.get("ended_at")),
        truncated=truncated or bool(problem),
        problem=problem,
        artefacts=artefacts,
    )


def _artefacts(reading: _Reading, end: dict[str, Any]) -> tuple[dict[str, bytes], list[str]]:
    told = end.get("artefacts")
    kept: dict[str, bytes] = {}
    missing: list[str] = []
    for name, said in (told if isinstance(told, dict) else {}).items():
        body = _unpacked(b"".join(reading.pieces.get(name, ())), said)
        if not isinstance(said, dict) or "error" in said:
            missing.append(f"artefact {name}: {said.get('error') if isinstance(said, dict) else said}"[:300])
        elif said.get("sha256") != hashlib.sha256(body).hexdigest():
            missing.append(f"artefact {name}: damaged on its way through the log")
        else:
            kept[name] = body
    return kept, missing


def _unpacked(packed: bytes, said: object) -> bytes:
    """Return an artefact's bytes, never more than the job said it has."""
    size = said.get("size") if isinstance(said, dict) else None
    if type(size) is not int or not 0 <= size < 1 << 31:
        return b""
    try:
        return zlib.decompressobj().decompress(packed, size + 1)
    except zlib.error:
        return b""


def _pair(end: dict[str, Any], key: str, index: int) -> int | None:
    values = end.get(key)
    if not isinstance(values, list) or len(values) != 2 or type(values[index]) is not int:
        return None
    return int(values[index])


def _flag(end: dict[str, Any], index: int) -> bool:
    values = end.get("ended_in_line")
    return isinstance(values, list) and len(values) == 2 and values[index] is True


def _time(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1 << 33:
        return None
    return float(value)


def _text(lines: list[bytes]) -> str:
    return b"".join(lines).decode("utf-8", "backslashreplace")
