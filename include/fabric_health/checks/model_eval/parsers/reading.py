"""JSON that tools and programs write, and typed looks into it that give None instead of raising."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from fabric_health.checks.untrusted import MAX_TEXT, clip, listing, mapping

MAX_OBJECTS = 1000
MAX_LINES = 500_000
_HASH = re.compile(r"[0-9a-f]{64}")
# NaN and Infinity are no JSON; tools write them all the same. Of no number follows no measurement.
_DECODER = json.JSONDecoder(parse_constant=lambda _: None)


def document(text: str) -> dict[str, Any] | None:
    """Return the JSON object that a text is; None for any other text."""
    try:
        value = _DECODER.decode(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def documents(text: str) -> list[dict[str, Any]]:
    """Return the JSON objects that follow each other in a text, as appending to a file leaves them.

    Empty when anything else is between or after them: a file that was cut is not read up to the cut.
    """
    out: list[dict[str, Any]] = []
    at = 0
    while True:
        while at < len(text) and text[at] in " \t\r\n":
            at += 1
        if at >= len(text):
            return out
        try:
            value, at = _DECODER.raw_decode(text, at)
        except (ValueError, RecursionError):
            return []
        if not isinstance(value, dict) or len(out) >= MAX_OBJECTS:
            return []
        out.append(value)


def lines(text: str) -> Iterator[dict[str, Any] | None]:
    """Yield the object of each line that is not blank; None for a line that is no JSON object.

    Only a line feed ends a line: JSON may hold other breaks as they are, as texts of lm-evaluation-harness do (U+2028).
    """
    for number, line in enumerate(text.split("\n")):
        if number >= MAX_LINES:
            yield None
            return
        if line.strip():
            yield document(line)


def text(value: Any, limit: int = MAX_TEXT) -> str | None:
    """Return a string that is not blank, on one line and cut to ``limit``, None for anything else."""
    return clip(value, limit) or None if isinstance(value, str) else None


def texts(value: Any, limit: int = 200) -> tuple[str, ...]:
    """Return the first strings of a JSON array, each as :func:`text` gives it."""
    return tuple(t for v in listing(value)[:limit] if (t := text(v)) is not None)


def sha256(value: Any) -> str | None:
    """Return a hash of 64 lower-case hex digits, None for anything else."""
    return value if isinstance(value, str) and _HASH.fullmatch(value) else None


def versions(value: Any) -> str | None:
    """Return versions by library as one text, ``torch 2.13.0, transformers 5.24.0``; None without any."""
    found = [f"{clip(k, 40)} {v}" for k, raw in sorted(mapping(value).items())[:20] if (v := text(raw, 60))]
    return ", ".join(found) or None


def first(value: Mapping[str, Any], *names: str) -> Any:
    """Return the value of the first of ``names`` that is there, None without any."""
    return next((value[n] for n in names if n in value), None)
