"""JSON within a tool's output, and typed looks into it that give None instead of raising."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any, NoReturn

from fabric_health.checks.untrusted import listing

MAX_STARTS = 200


def documents(text: str) -> Iterator[dict[str, Any]]:
    """Yield every JSON object that starts a line, in order; log lines between them and cut objects are passed over."""
    decoder = json.JSONDecoder(parse_constant=_refuse)
    at, starts = 0, 0
    while at < len(text) and starts < MAX_STARTS:
        if text.startswith("{", at):
            starts += 1
            try:
                value, at = decoder.raw_decode(text, at)
                if isinstance(value, dict):
                    yield value
            except (ValueError, RecursionError):
                pass
        line_end = text.find("\n", at)
        if line_end < 0:
            return
        at = line_end + 1
        while at < len(text) and text[at] in " \t\r":
            at += 1


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number")


def text(value: Any) -> str | None:
    """Return a non-empty string, None for anything else."""
    return value if isinstance(value, str) and value else None


def texts(value: Any) -> tuple[str, ...]:
    """Return the strings of a JSON array."""
    return tuple(v for v in listing(value) if isinstance(v, str) and v)


def moment(value: Any) -> datetime | None:
    """Return an RFC 3339 time with any number of decimals and a zone, None for anything else."""
    if not isinstance(value, str) or not 20 <= len(value) <= 40:
        return None
    head, dot, tail = value.partition(".")
    digits = len(tail) - len(tail.lstrip("0123456789"))
    trimmed = f"{head}.{tail[:digits][:6].ljust(6, '0')}{tail[digits:]}" if dot else value
    try:
        found = datetime.fromisoformat(trimmed)
    except ValueError:
        return None
    return found if found.tzinfo is not None and found.year > 1 else None
