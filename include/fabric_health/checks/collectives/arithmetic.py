"""Bus bandwidth: what nccl-tests computes, so that what a tool prints can be checked and groups can be computed.

Factors: https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md and ``GetBw`` of each ``src/<name>.cu``.
"""

from __future__ import annotations

import math

_ALL_BUT_OWN = ("all_gather", "reduce_scatter", "alltoall", "alltoallv", "gather", "scatter")
_WHOLE = ("broadcast", "reduce", "sendrecv")
COLLECTIVES = ("all_reduce", *_ALL_BUT_OWN, *_WHOLE)
SHARED_SIZES = (*_ALL_BUT_OWN,)
"""Collectives whose size is the total over ranks, hence rounded down to a multiple of the ranks."""

# Below this share two numbers differ by rounding inside the tool (single precision), not by what was measured.
_RELATIVE_ROUNDING = 1e-3


def bus_factor(collective: str, ranks: int) -> float | None:
    """Return busbw / algbw for a group of ``ranks``; None for a collective whose factor is not known."""
    if ranks < 1:
        return None
    if collective == "all_reduce":
        return 2 * (ranks - 1) / ranks
    if collective in _ALL_BUT_OWN:
        return (ranks - 1) / ranks
    return 1.0 if collective in _WHOLE else None


def algorithm_bandwidth(size_bytes: int, time_us: float) -> float:
    """Return size / time in GB/s (1e9 bytes per second); 0 for a time of 0."""
    return size_bytes / time_us / 1e3 if time_us > 0 else 0.0


def agrees(value: float, expected: float, rounding: float) -> bool:
    """Tell whether ``value`` is ``expected`` within ``rounding`` (absolute) and single precision."""
    return math.isfinite(value) and abs(value - expected) <= rounding + _RELATIVE_ROUNDING * abs(expected)


def half_unit(token: str) -> float:
    """Return half a unit of the last digit that a printed number shows: ``0.28`` -> 0.005, ``1.2e+06`` -> 5e4."""
    mantissa, _, exponent = token.lower().partition("e")
    decimals = len(mantissa.partition(".")[2])
    try:
        power = int(exponent[:6] or 0) - decimals
    except ValueError:
        return 0.0
    return float(0.5 * 10.0 ** max(-300, min(300, power)))
