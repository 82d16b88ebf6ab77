"""Artefacts that rank 0 wrote on another machine than the launcher's: asked for, and read back from the job's output.

The lines are those of :mod:`fabric_health.jobs.rank_wrapper`. They may be cut, broken by other ranks' output, or there
twice: an artefact comes back whole, as its hash proves, or not at all and with the reason.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any

from fabric_health.jobs import rank_wrapper
from fabric_health.jobs.argv import RANK
from fabric_health.jobs.spec import JobSpec

# What broke into a line stands near it: mpirun passes on 4 KiB of a rank at a time.
_NEAR = 64 << 10
_MAX_REPAIRS = 1000
_WORTH = 16


@dataclass(frozen=True)
class Taken:
    """What was in the output: ``stdout`` without our lines, whole artefacts, and per missing one the reason.

    ``cut`` says so when the job's own output was longer than its bound.
    """

    stdout: str
    artefacts: Mapping[str, bytes] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    cut: str = ""


@dataclass(frozen=True)
class _Line:
    """One of our lines as it stands in the output, from ``start`` to ``end``; ``text`` only when it is intact."""

    key: str
    start: int
    end: int
    text: str | None


def asked_of_ranks(spec: JobSpec) -> bool:
    """Return whether a job's artefacts are written by a rank: its command line says where the ranks' begins."""
    return RANK in spec.argv and bool(spec.artefacts)


def rank_words(spec: JobSpec, nonce: str) -> tuple[str, ...]:
    """Return the words before the command line of a rank that send rank 0's artefacts back through its output."""
    if not asked_of_ranks(spec):
        return ()
    request = {
        "nonce": nonce,
        "artefacts": list(spec.artefacts),
        "max_bytes": spec.artefact_max_bytes,
        "secrets": sorted(spec.secrets),
    }
    return ("python3", "-I", "-c", _source(), json.dumps(request))


def room_bytes(spec: JobSpec) -> int:
    """Return how many bytes of output the artefacts may take beside the job's own."""
    # Base64, and a head for each line; a second copy only of what is small.
    return len(spec.artefacts) * (spec.artefact_max_bytes * 3 // 2) + 2 * rank_wrapper.TWICE_BYTES


def take_out(stdout: str, spec: JobSpec, nonce: str) -> Taken:
    """Return a job's output without our lines, and what they hold. Never raises, whatever the output is."""
    lines = list(_lines(stdout, nonce))
    intact: dict[str, str] = {}
    twice: set[str] = set()
    for line in lines:
        if line.text is not None and intact.setdefault(line.key, line.text) != line.text:
            twice.add(line.key)
    rest, cut = _bounded(_without(stdout, lines, intact), spec.output_max_bytes)
    if twice:
        why = "two ranks say that they are rank 0"
        return Taken(rest, {}, tuple(f"artefact {name}: {why}" for name in spec.artefacts), cut)
    kept: dict[str, bytes] = {}
    missing: list[str] = []
    told = _told(intact.get("end"))
    for number, name in enumerate(spec.artefacts):
        body = _artefact(number, told.get(name), intact, spec.artefact_max_bytes, bool(lines))
        if isinstance(body, bytes):
            kept[name] = body
        else:
            missing.append(f"artefact {name}: {body}"[:300])
    return Taken(rest, kept, tuple(missing), cut)


def _bounded(text: str, limit: int) -> tuple[str, str]:
    size = len(body) if len(body := text.encode("utf-8", "surrogatepass")) > limit else 0
    if not size:
        return text, ""
    return body[:limit].decode("utf-8", "ignore"), f"stdout: the first {limit} of {size} bytes were kept"


def _lines(stdout: str, nonce: str) -> list[_Line]:
    head = rf"{rank_wrapper.MAGIC} {re.escape(nonce)} (\d{{1,4}}\.\d{{1,7}}|end) (\d{{1,5}}) ([0-9a-f]{{8}}) "
    out = []
    # Looked ahead only: what broke into a line may be one of ours.
    for found in re.finditer(head + r"(?=([A-Za-z0-9+/=]{0,65536}))", stdout):
        key, length, payload = found[1], int(found[2]), found[4]
        end = found.start(4) + min(length, len(payload))
        whole = len(payload) >= length and zlib.crc32(f"{key} {payload[:length]}".encode()) == int(found[3], 16)
        out.append(_Line(key, found.start(), end, stdout[found.start() : end] if whole else None))
    return out


def _without(stdout: str, lines: Sequence[_Line], intact: Mapping[str, str]) -> str:
    """Return the output without our lines; what broke into one stays, as far as the same line's other copy tells."""
    cuts: list[tuple[int, int, bool]] = []
    repairs = 0
    for line in lines:
        if line.text is not None or line.key not in intact or repairs >= _MAX_REPAIRS:
            cuts.append((line.start, line.end, line.text is not None))
            continue
        repairs += 1
        known = intact[line.key]
        end = line.start + _shared(stdout[line.start : line.start + len(known)], known)
        cuts.append((line.start, end, False))
        left = known[end - line.start :]
        at = stdout.find(left, end, end + _NEAR) if len(left) >= _WORTH else -1
        if at >= 0:
            cuts.append((at, at + len(left), True))
    out, at = [], 0
    for start, end, whole in sorted(cuts):
        out.append(stdout[at : max(at, start)])
        at = max(at, end)
        if whole:  # its line end goes with it; a terminal makes two characters of that
            at += 2 if stdout.startswith("\r\n", at) else 1 if stdout.startswith("\n", at) else 0
    out.append(stdout[at:])
    return "".join(out)


def _shared(a: str, b: str) -> int:
    """Return how many characters two texts have in common at their beginning."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def _told(line: str | None) -> Mapping[str, Any]:
    if line is None:
        return {}
    try:
        said = json.loads(base64.b64decode(line.rsplit(" ", 1)[1], validate=True))
    except (ValueError, RecursionError, binascii.Error):
        return {}
    artefacts = said.get("artefacts") if isinstance(said, dict) else None
    return artefacts if isinstance(artefacts, dict) else {}


def _artefact(number: int, said: object, intact: Mapping[str, str], limit: int, any_lines: bool) -> bytes | str:
    """Return an artefact's bytes, or why it is not there."""
    if not isinstance(said, dict):
        if any_lines:
            return "the output stops within it, or other ranks' output broke it"
        return "rank 0 sent nothing back: its program did not end, or mpirun does not say which rank it is"
    if "error" in said:
        return str(said["error"])
    size, count = said.get("size"), said.get("pieces")
    if type(size) is not int or type(count) is not int or not 0 <= size <= limit or not 0 <= count <= limit:
        return "what rank 0 says of it cannot be"
    lines = [intact.get(f"{number}.{i}") for i in range(min(count, len(intact)))]
    there = [line for line in lines if line is not None]
    if len(there) < count:
        return f"{count - len(there)} of {count} pieces are lost: the output was cut, or other ranks' broke into it"
    try:
        packed = b"".join(base64.b64decode(line.rsplit(" ", 1)[1], validate=True) for line in there)
        body = zlib.decompressobj().decompress(packed, size + 1)
    except (ValueError, binascii.Error, zlib.error):
        return "damaged on its way"
    return body if said.get("sha256") == hashlib.sha256(body).hexdigest() else "damaged on its way"


@cache
def _source() -> str:
    return resources.files("fabric_health.jobs").joinpath("rank_wrapper.py").read_text(encoding="utf-8")
