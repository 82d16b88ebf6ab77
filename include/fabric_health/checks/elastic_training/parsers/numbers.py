"""Typed looks into untrusted values: None instead of an error, for anything that is not what its name says."""

from __future__ import annotations

import ast
import json
import math
from typing import Any

# Beyond this no count, rank or step of training is real, and no table can hold it.
MAX_COUNT = 1 << 53
# The years 2001 to 2106.
FIRST_TIME, LAST_TIME = 1e9, 4294967296.0
# A dictionary of ten thousand nodes as DLRover prints it.
MAX_LITERAL = 512 << 10
MAX_MEMBERS = 100_000


def count(value: object) -> int | None:
    """Return a whole number >= 0, also one in digits (an environment variable's), None for anything else."""
    if isinstance(value, str) and 0 < len(value) <= 16 and value.isascii() and value.isdigit():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_COUNT:
        return None
    return value


def number(value: object) -> float | None:
    """Return a finite number, None for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


def seconds(value: object) -> float | None:
    """Return a finite number >= 0 of at most a year, None for anything else."""
    found = number(value)
    return found if found is not None and 0 <= found <= 366 * 86_400 else None


def moment(value: object) -> float | None:
    """Return seconds since 1970 within our time, None for anything else."""
    found = number(value)
    return found if found is not None and FIRST_TIME <= found < LAST_TIME else None


def text(value: object) -> str | None:
    """Return a non-empty string, or a number as one; None for anything else."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= MAX_COUNT:
        return str(value)
    return value if isinstance(value, str) and value else None


def document(line: str) -> dict[str, Any] | None:
    """Return the JSON object that a text is, None for anything else. NaN and Infinity are read as such."""
    if not line.lstrip().startswith("{"):
        return None
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def literal(source: str) -> dict[int, object] | list[object] | None:
    """Return a dictionary with whole numbers as keys, or a list, in Python's own notation, as DLRover prints them.

    Such a text is no JSON: keys are bare numbers, values True and False. Bounded, and never executed.
    """
    if len(source) > MAX_LITERAL or source.count(",") > MAX_MEMBERS or _nested(source):
        return None
    try:
        found = ast.literal_eval(source.strip())
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None
    if isinstance(found, list):
        return found
    if isinstance(found, dict) and all(count(k) is not None and not isinstance(k, str) for k in found):
        return {int(k): v for k, v in found.items()}
    return None


def _nested(source: str) -> bool:
    """Tell whether brackets are nested more deeply than anything that DLRover prints: parsers have a stack."""
    return sum(source.count(c) for c in "([{") > 1
