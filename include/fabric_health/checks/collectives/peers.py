"""Units slower than their peers of the same run: the modified z-score, one-sided, and only beyond a practical gap.

0.6745 (x - median) / MAD beyond 3.5: B. Iglewicz and D. Hoaglin, "How to Detect and Handle Outliers", ASQC, 1993. The
median absolute deviation has a floor, so that a fleet of identical values does not make an outlier of any rounding.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from fabric_health.checks.collectives.settings import LEAST_PAIRS, GlooSettings, PeerSettings
from fabric_health.checks.collectives.tables import Collective

_NORMAL_QUARTILE = 0.6745


@dataclass(frozen=True)
class Slow:
    """A unit below its peers: its value, their median, the share it is short by, and its modified z-score."""

    unit: str
    value: float
    median: float
    gap: float
    z: float


def slow_units(values: Mapping[str, float], rules: PeerSettings) -> list[Slow]:
    """Return the units whose value is an outlier on the low side, slowest first; none with too few peers."""
    if len(values) < rules.minimum:
        return []
    centre = median(values.values())
    if centre <= 0:
        return []
    spread = max(median(abs(v - centre) for v in values.values()), rules.mad_floor * centre)
    out = []
    for unit, value in values.items():
        z, gap = _NORMAL_QUARTILE * (value - centre) / spread, (centre - value) / centre
        if z < -rules.modified_z and gap >= rules.gap:
            out.append(Slow(unit, value, centre, gap, z))
    return sorted(out, key=lambda s: (s.value, s.unit))


def slow_pairs(values: Mapping[str, float], gloo: GlooSettings, z: float) -> list[Slow]:
    """Return the pairs of ranks that are slow, slowest first; none with too few of them.

    Three pairs do not tell their own spread, so that it is the usual noise of a launch, of the logarithm, that a pair
    must be ``z`` times below the median, and by the gap.
    """
    centre = median(values.values()) if len(values) >= LEAST_PAIRS else 0.0
    out = []
    for unit, value in values.items():
        if 0 < value < centre:
            below, gap = math.log(value / centre) / gloo.pair_noise, (centre - value) / centre
            if below < -z and gap >= gloo.pair_gap:
                out.append(Slow(unit, value, centre, gap, below))
    return sorted(out, key=lambda s: (s.value, s.unit))


def largest_size(rows: Sequence[Collective]) -> list[Collective]:
    """Return the rows of the largest size; out of place where there are any, so that each launch counts once."""
    size = max(r.size_bytes for r in rows)
    at = [r for r in rows if r.size_bytes == size]
    return [r for r in at if not r.in_place] or at


def best_launch(rows: Sequence[Collective]) -> dict[str, float]:
    """Return each unit's bus bandwidth in its best launch, GB/s (the median of the launch's placements).

    What disturbs a launch only ever slows it: a unit that is as fast as its peers in one launch is not slow.
    """
    placements: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        placements[row.group][row.launch].append(row.busbw_gbps)
    return {unit: max(median(v) for v in launches.values()) for unit, launches in placements.items()}
