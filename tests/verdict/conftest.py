"""Small simulated fleets for the tests of verdicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import numpy as np
import pytest

from fabric_health.verdict.outcome import Judgement, Metric
from fabric_health.verdict.panel import Floats, Panel

BUSBW = Metric("busbw_gbps", higher_is_better=True, margin=0.03)
START = datetime(2026, 1, 5, tzinfo=UTC)


def panel(performance: Floats, groups: Mapping[str, Sequence[str]] | None = None) -> Panel:
    """Return the panel of runs a week apart; units are ``gpu-0000`` and so on."""
    runs, _, units = performance.shape
    return Panel(
        BUSBW,
        "collective=all_reduce",
        "node",
        tuple(f"run-{r}" for r in range(runs)),
        tuple(START + timedelta(weeks=r) for r in range(runs)),
        tuple(f"gpu-{u:04d}" for u in range(units)),
        performance,
        {kind: tuple(names) for kind, names in (groups or {}).items()},
    )


def racks(units: int, size: int) -> dict[str, list[str]]:
    """Group units into racks."""
    return {"rack": [f"rack-{u // size:02d}" for u in range(units)]}


def performance(seed: int, units: int = 32, launch: float = 0.02, runs: int = 9, launches: int = 3) -> Floats:
    """Draw runs x launches x units: units differ by 0.8 %, runs by 1 %, launches by ``launch``."""
    rng = np.random.default_rng(seed)
    unit, run = rng.normal(6, 0.008, units), rng.normal(0, 0.01, (runs, 1, 1))
    return np.asarray(unit + run + rng.normal(0, launch, (runs, launches, units)))


def of(subject: str, judgements: Sequence[Judgement]) -> Judgement:
    """Return the judgement on a subject."""
    return next(j for j in judgements if j.subject == subject)


def more(values: Floats, unit: int, launches: Floats) -> Floats:
    """Add launches of one unit to the last run."""
    room = np.full((values.shape[0], len(launches), values.shape[2]), np.nan)
    room[-1, :, unit] = launches
    return np.concatenate([values, room], axis=1)


@pytest.fixture(scope="session")
def fleets() -> SimpleNamespace:
    """Return the functions above."""
    return SimpleNamespace(panel=panel, racks=racks, performance=performance, of=of, more=more, metric=BUSBW)
