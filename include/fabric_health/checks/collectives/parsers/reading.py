"""What any engine's output says, in one shape, before it is held against what was asked."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

MAX_LINES = 200_000
MAX_SAMPLES = 5_000_000
MAX_COUNT = 1 << 62


@dataclass(frozen=True)
class Device:
    """One rank and where it ran. ``group`` is the number of its communicator, 0 without a split.

    ``device`` is its GPU; of gloo, which has none, the number by which the rank is known in all groups.
    """

    rank: int
    group: int
    host: str
    device: int | None = None


@dataclass(frozen=True)
class Line:
    """One measurement. Times in us, bandwidths in GB/s (1e9 bytes/s); ``*_rounding`` is what printing may have cut.

    ``wrong`` is None where the tool did not check. ``process_times_us`` holds each process's iterations. ``group`` is
    the communicator that was measured, where the tool measures one after the other.
    """

    size_bytes: int
    dtype: str
    redop: str
    root: int
    in_place: bool
    time_us: float
    algbw_gbps: float
    busbw_gbps: float
    wrong: int | None
    time_rounding: float = 0.0
    algbw_rounding: float = 0.0
    busbw_rounding: float = 0.0
    collective: str = ""
    iterations: int | None = None
    time_min_us: float | None = None
    time_max_us: float | None = None
    time_p99_us: float | None = None
    time_cv: float | None = None
    times_us: tuple[float, ...] = ()
    process_times_us: tuple[tuple[float, ...], ...] = ()
    group: int = 0


@dataclass
class Reading:
    """All that one launch's output says. ``faults`` are (rule, what is wrong) found while reading."""

    collective: str | None = None
    tool_version: str | None = None
    library_version: str | None = None
    devices: list[Device] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)
    concluded: bool = False
    out_of_bounds: int | None = None
    iterations: int | None = None
    json_file: str | None = None
    faults: list[tuple[str, str]] = field(default_factory=list)

    def fault(self, rule: str, detail: str) -> None:
        """Note that the output breaks ``rule``."""
        self.faults.append((rule, detail))


def number(token: object) -> float | None:
    """Return a finite number >= 0 from a token of text or JSON, None for anything else (``nan``, ``-``, bool)."""
    if isinstance(token, bool) or not isinstance(token, (int, float, str)):
        return None
    try:
        value = float(token)
    except (ValueError, OverflowError):
        return None
    return value if math.isfinite(value) and value >= 0 else None


def count(token: object) -> int | None:
    """Return a whole number >= 0 below 2^62 (``8388608``, ``0.0``, ``3e+03``), None for anything else."""
    value = number(token)
    if value is None or value > MAX_COUNT or value != int(value):
        return None
    return int(token) if isinstance(token, int) else int(value)


def spread(times: tuple[float, ...]) -> tuple[float, float, float, float]:
    """Return minimum, maximum, 99th percentile (nearest rank) and coefficient of variation of at least one time."""
    ordered = sorted(times)
    mean = sum(ordered) / len(ordered)
    deviation = math.sqrt(sum((t - mean) ** 2 for t in ordered) / len(ordered))
    p99 = ordered[min(len(ordered), math.ceil(0.99 * len(ordered))) - 1]
    return ordered[0], ordered[-1], p99, (deviation / mean if mean > 0 else 0.0)
