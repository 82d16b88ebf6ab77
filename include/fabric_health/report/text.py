"""Text from devices on a page: control characters are spelt out, and no single value can fill the page."""

from __future__ import annotations

import math
from collections.abc import Iterable
from statistics import median
from typing import Any

from markupsafe import Markup, escape

# Characters of one value: enough for every sentence of ours, a few lines of a config, and to see what a hostile one is.
VALUE_SHOWN = 500
BLOCK_SHOWN = 2_000


def visible(text: str) -> str:
    """Return text with characters that are not printable spelt out, line breaks and tabs excepted.

    What acts on a terminal (escape codes) or on the order of letters (bidirectional overrides) acts no more.
    """
    return "".join(c if c in "\n\t" or c.isprintable() else _spelt(c) for c in text)


def clipped(text: str, limit: int, where: str = "the tables hold it whole") -> str:
    """Return visible text of at most ``limit`` characters of the original; what was cut says so."""
    if len(text) <= limit:
        return visible(text)
    return visible(text[:limit]) + f" [cut here: {len(text):,} characters; {where}]"


def block(text: str) -> Markup:
    """Return a value of several lines, escaped."""
    return escape(clipped(text, BLOCK_SHOWN))


def finalize(value: Any) -> Any:
    """Make a value of a template fit to be escaped: no template can forget it."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return clipped(value, VALUE_SHOWN)
    return value


def size(count: int) -> str:
    """Return a number of bytes in the largest binary unit that it is a whole or a readable number of."""
    value, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{value:.4g} {unit}"


def figure(value: float, digits: int = 3) -> str:
    """Return a number with at least ``digits`` significant digits, thousands apart."""
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value)))) if value else 0
    return f"{value:,.{min(decimals, 6)}f}"


def median_of(values: Iterable[float | None]) -> float | None:
    """Return the median of the values that are known, None without any."""
    known = [v for v in values if v is not None]
    return median(known) if known else None


def percent(share: float) -> str:
    """Return a signed share in percent, with a real minus sign."""
    # Adding zero makes of a negative zero, which rounding leaves, a plain one.
    return f"{round(share * 100, 1) + 0.0:+.1f} %".replace("-", "\u2212")


def _spelt(c: str) -> str:
    n = ord(c)
    return f"\\x{n:02x}" if n <= 0xFF else f"\\u{n:04x}" if n <= 0xFFFF else f"\\U{n:08x}"
