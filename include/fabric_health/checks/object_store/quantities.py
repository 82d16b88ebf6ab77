"""Quantities as S3 tools write them: ``4MiB``, ``7500.64 MiB/s``, ``1m2.5s``, ``17.1ms``; and endpoints.

Readers return None for text that is not such a quantity; they never raise and never guess a unit.
"""

from __future__ import annotations

import math
import re

MIB = 1 << 20
_BINARY = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40, "p": 1 << 50}
_DECIMAL = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "p": 10**15}
_SIZE = re.compile(r"(\d{1,18}(?:\.\d{1,12})?)\s{0,4}([kmgtp]?)(i?)(b(?:ytes?)?)?", re.I)
_DURATION = re.compile(r"(\d{1,12}(?:\.\d{1,12})?)(h|ms|m|s|µs|μs|us|ns)")
_SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ns": 1e-9}
_MAX_TEXT = 64


def size_bytes(text: str) -> int | None:
    """Return bytes of ``4MiB`` (2^20), ``4MB`` (10^6) or ``4096``; None when it is no size of at least one byte."""
    found = _SIZE.fullmatch(text.strip()) if len(text) <= _MAX_TEXT else None
    if found is None or (found[3] and not found[2]):
        return None
    scale = (_BINARY if found[3] else _DECIMAL)[found[2].lower()]
    value = float(found[1]) * scale
    return int(value) if 1 <= value < 2**62 and value == int(value) else None


def rate_mib(text: str) -> float | None:
    """Return MiB/s of ``7500.64 MiB/s``, ``1.2GiB/s``, ``980.5KiB/s``, ``12B/s`` or decimal ``55MB/s``."""
    body = text.strip()
    if len(body) > _MAX_TEXT or not body.endswith("/s"):
        return None
    found = _SIZE.fullmatch(body[:-2].strip())
    if found is None or not found[4] or (found[3] and not found[2]):
        return None
    return float(found[1]) * (_BINARY if found[3] else _DECIMAL)[found[2].lower()] / MIB


def seconds(text: str) -> float | None:
    """Return seconds of a Go duration: ``4m57s``, ``1.05s``, ``17.1ms``, ``0s``."""
    body = text.strip()
    if not body or len(body) > _MAX_TEXT:
        return None
    total, at = 0.0, 0
    while at < len(body):
        found = _DURATION.match(body, at)
        if found is None:
            return None
        total += float(found[1]) * _SECONDS[found[2]]
        at = found.end()
    return total if math.isfinite(total) else None


def millis(text: str) -> float | None:
    """Return milliseconds of a Go duration."""
    value = seconds(text)
    return None if value is None else value * 1000


def size_text(n: int) -> str:
    """Return bytes in the largest binary unit that divides them: ``4MiB``, ``1000B``."""
    for unit in ("PiB", "TiB", "GiB", "MiB", "KiB"):
        scale = _BINARY[unit[0].lower()]
        if n >= scale and n % scale == 0:
            return f"{n // scale}{unit}"
    return f"{n}B"


def endpoint(text: str) -> str:
    """Return ``host:port`` in lower case, without scheme and path; a missing port is the scheme's."""
    body = text.strip().lower()
    scheme, separator, rest = body.partition("://")
    if not separator:
        scheme, rest = "", body
    rest = rest.split("/", 1)[0]
    bare_v6 = rest.count(":") > 1 and not rest.startswith("[")
    has_port = not bare_v6 and rest.rpartition(":")[2].isdigit() and ":" in rest
    if has_port or scheme not in ("http", "https"):
        return rest
    return f"{f'[{rest}]' if bare_v6 else rest}:{'443' if scheme == 'https' else '80'}"
