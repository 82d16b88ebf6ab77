"""Widths and speeds of InfiniBand links in the spellings of its tools."""

from __future__ import annotations

import re

# Gb/s of one lane (InfiniBand Architecture Specification, volume 2; XDR as the kernel's rdma drivers have it).
RATES: dict[str, float] = {
    "SDR": 2.5,
    "DDR": 5.0,
    "QDR": 10.0,
    "FDR10": 10.3125,
    "FDR": 14.0625,
    "EDR": 25.78125,
    "HDR": 53.125,
    "NDR": 106.25,
    "XDR": 212.5,
}
_WIDTH = re.compile(r"^(\d{1,2})[xX]$")
_NUMBER = re.compile(r"^\d{1,4}(?:\.\d{1,6})?$")


def lanes(text: str) -> int | None:
    """Return the lanes of ``4x`` or ``4X``; None for anything else that is no width of the specification."""
    found = _WIDTH.match(text.strip())
    count = int(found[1]) if found else 0
    return count if count in (1, 2, 4, 8, 12) else None


def lane_rate_gbps(text: str) -> float | None:
    """Return Gb/s of one lane for ``HDR`` or ``53.125``; None for a name that is not known, never a guess."""
    text = text.strip()
    if text.upper() in RATES:
        return RATES[text.upper()]
    return float(text) if _NUMBER.match(text) and float(text) > 0 else None


def speed_name(rate_gbps: float) -> str:
    """Return ``HDR`` for 53.125; the number where the rate has no name."""
    return next((n for n, r in RATES.items() if abs(r - rate_gbps) < 1e-6), f"{rate_gbps:.8g} Gb/s a lane")


def spelled(width: int, rate_gbps: float) -> str:
    """Return ``4x HDR``."""
    return f"{width}x {speed_name(rate_gbps)}"
