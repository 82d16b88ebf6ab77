"""The probe's wire format: the script that is sent to a node, and the reader of what comes back.

Whatever comes back is untrusted: commands and names are taken from the request, never from the answer, text is made
safe to store, and times are offsets laid on our own clock.
"""

from __future__ import annotations

import base64
import json
import re
import secrets
import zlib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from fabric_health.evidence import MIB, Command, CommandStatus
from fabric_health.reach import probe
from fabric_health.reach.transcript import Transcript

EXCERPT_BYTES = 200
# Packed lines unfold to no more than this, all together.
UNPACKED_BYTES = 64 * MIB
_CALL = re.compile(rb'\nsys\.exit\(main\(("[^\n]*")\)\)\n\Z')
_STATUSES = {s.value: s for s in CommandStatus}


@dataclass(frozen=True)
class ProbeRequest:
    """What a probe script asks for, as the lab reads it: per command its argv and its bound on output bytes."""

    nonce: str
    commands: tuple[tuple[str, ...], ...]
    max_bytes: tuple[int, ...]
    packed: bool = False


def new_nonce() -> str:
    """Return a fresh token that tells an answer's own lines from what a login script prints."""
    return secrets.token_hex(8)


def script(
    commands: tuple[Command, ...], deadline_s: float, nonce: str, root: str | None = None, *, at_once: int = 1
) -> bytes:
    """Return the self-contained script that runs ``commands`` within ``deadline_s`` seconds, ``at_once`` at a time.

    ``root`` is for a pod: the folder where the node's root is. Its answer is packed.
    """
    in_pod = {} if root is None else {"root": root, "packed": True}
    overlapping = {} if at_once == 1 else {"at_once": at_once}
    request = {
        **in_pod,
        **overlapping,
        "nonce": nonce,
        "deadline_s": round(deadline_s, 3),
        "commands": [{"argv": c.argv, "timeout_s": c.timeout_s, "max_bytes": c.max_bytes} for c in commands],
    }
    # A JSON string of ASCII is also a Python string literal of the same value.
    call = f"\nsys.exit(main({json.dumps(json.dumps(request))}))\n"
    return _source() + call.encode("ascii")


def read_script(payload: bytes) -> ProbeRequest | None:
    """Return what ``payload`` asks for, None when it is not a probe script."""
    found = _CALL.search(payload)
    if not found:
        return None
    try:
        request = json.loads(json.loads(found[1]))
        commands = request["commands"]
        return ProbeRequest(
            request["nonce"],
            tuple(tuple(c["argv"]) for c in commands),
            tuple(c["max_bytes"] for c in commands),
            request.get("packed") is True,
        )
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


@cache
def _source() -> bytes:
    return resources.files("fabric_health.reach").joinpath("probe.py").read_bytes()


class _TooMuchError(ValueError):
    """The answer is larger than any node's."""


class FrameReader:
    """Reads a probe's answer piece by piece and writes finished commands into a transcript."""

    def __init__(self, transcript: Transcript, nonce: str, *, packed: bool = False) -> None:
        self._transcript = transcript
        self._parts = bytearray() if packed else None
        self._room = UNPACKED_BYTES
        self._head = f"{probe.MAGIC} {nonce} ".encode("ascii")
        self._pending = bytearray()
        self._scanned = 0
        self.excerpt = b""
        self.problem: str | None = None
        self.begun = False
        self.ended = False

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the answer."""
        self._pending += data
        while (newline := self._pending.find(b"\n", self._scanned)) >= 0:
            line = bytes(self._pending[:newline])
            del self._pending[: newline + 1]
            self._scanned = 0
            self._line(line)
        self._scanned = len(self._pending)

    def close(self) -> None:
        """Take the end of the answer: what is left over is no line."""
        if self._pending and not self._pending.startswith(self._head):
            self._noise(bytes(self._pending[: EXCERPT_BYTES * 4]))
        self._pending.clear()

    def _noise(self, line: bytes) -> None:
        if len(self.excerpt) < EXCERPT_BYTES:
            self.excerpt += line[:EXCERPT_BYTES] + b" "

    def _line(self, line: bytes) -> None:
        if not line.startswith(self._head):
            self._noise(line)
            return
        kind, _, text = line[len(self._head) :].partition(b" ")
        if self._parts is not None and kind == b"+":
            self._parts += text
            return
        try:
            body = json.loads(self._unpacked(text))
        except (ValueError, RecursionError, zlib.error) as error:
            said = str(error) if isinstance(error, _TooMuchError) else f"a {kind[:20]!r} line is not JSON"
            self.problem = self.problem or said
            return
        if self.problem or self.ended or not isinstance(body, dict):
            self.problem = self.problem or "a line follows the end, or is no object"
        elif kind == b"begin" and not self.begun:
            self.begun = True
            self._transcript.start_next()
        elif kind == b"result" and self.begun:
            self._result(body)
        elif kind == b"end" and self.begun and self._transcript.complete:
            self.ended = True
        else:
            self.problem = f"a {kind[:20].decode('ascii', 'replace')!r} line where none was expected"

    def _unpacked(self, text: bytes) -> bytes:
        """Return a line's JSON. Raises ValueError or zlib.error when it was not packed as the probe packs."""
        if self._parts is None:
            return text
        packed, self._parts = bytes(self._parts) + text, bytearray()
        unfolding = zlib.decompressobj()
        out = unfolding.decompress(base64.b64decode(packed, validate=True), self._room + 1)
        if len(out) > self._room:
            raise _TooMuchError(f"the answer unfolds to more than {UNPACKED_BYTES} bytes")
        if not unfolding.eof:
            raise ValueError("cut short")
        self._room -= len(out)
        return out

    def _result(self, body: dict[str, Any]) -> None:
        index, status, code = body.get("i"), _STATUSES.get(str(body.get("status"))), body.get("code")
        out, err = body.get("out"), body.get("err")
        if (
            type(index) is not int
            or index not in self._transcript.running
            or status is None
            or not isinstance(out, str)
            or not isinstance(err, str)
            or not (code is None or (type(code) is int and abs(code) < 1 << 31))
        ):
            self.problem = "a result line lacks a field, is out of order or is of no command that was asked"
            return
        limit = self._transcript.request.commands[index].max_bytes
        if len(out) > 4 * limit or len(err) > 4 * limit:  # an undecodable byte becomes four characters
            self.problem = "a result line is longer than the command's bound"
            return
        if status is CommandStatus.EXITED and code is None:
            self.problem = "a result line says that a command exited and gives no exit code"
            return
        keeps_code = status in (CommandStatus.EXITED, CommandStatus.NOT_INSTALLED)
        self._transcript.finish(
            status,
            code if keeps_code else None,
            storable(out),
            storable(err),
            offsets=(body.get("t0"), body.get("t1")),
            index=index,
        )
        self._transcript.start_next()


def storable(text: str) -> str:
    """Return ``text`` with lone surrogates, which UTF-8 cannot hold, written as escapes."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def decoded(data: bytes) -> str:
    """Return bytes of a unit as text: UTF-8, undecodable bytes as backslash escapes."""
    return data.decode("utf-8", "backslashreplace")


def excerpt(data: bytes | str) -> str:
    """Return the beginning of what a unit said, on one line and printable, for a detail text."""
    text = decoded(data) if isinstance(data, bytes) else data
    shown = "".join(c if c.isprintable() else " " for c in text[: EXCERPT_BYTES * 2])
    shown = " ".join(shown.split())
    return shown if len(shown) <= EXCERPT_BYTES else shown[:EXCERPT_BYTES] + "..."
