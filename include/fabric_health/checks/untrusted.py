"""Looks into what tools and programs wrote, for the parsers of every check: None or nothing instead of an error."""

from __future__ import annotations

import math
from typing import Any

MAX_TEXT = 300


def clip(text: str, limit: int = MAX_TEXT) -> str:
    """Return untrusted text on one line, without control characters, cut to ``limit``."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text[: 4 * limit]).split())
    return line if len(line) <= limit else line[: limit - 3] + "..."


def mapping(value: Any) -> dict[str, Any]:
    """Return a JSON object, an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def listing(value: Any) -> list[Any]:
    """Return a JSON array, an empty one for anything else."""
    return value if isinstance(value, list) else []


def real(value: Any) -> float | None:
    """Return a finite number of either sign below 2^63, None for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) and abs(found) < 2**63 else None


def number(value: Any) -> float | None:
    """Return a finite number >= 0 below 2^63, None for anything else."""
    found = real(value)
    return found if found is not None and found >= 0 else None


def count(value: Any) -> int | None:
    """Return a whole number >= 0, None for anything else."""
    found = number(value)
    return int(found) if found is not None and found == int(found) else None
