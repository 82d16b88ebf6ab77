"""A unit against its own past: a robust band over its last comparable runs, and the points where its level changed.

The band holds where there are no peers: an object store, a benchmark of the whole fleet, a site of four nodes. With
peers, ``fleet`` knows more. Before the band, the run's own effect is removed where enough units show it.
"""

from __future__ import annotations

from datetime import datetime

import numpy as np

from fabric_health.verdict import robust
from fabric_health.verdict.changepoints import WINDOW, change_points
from fabric_health.verdict.effects import cells_of
from fabric_health.verdict.outcome import Judgement, Layer, Outcome
from fabric_health.verdict.panel import Floats, Panel
from fabric_health.verdict.settings import DEFAULTS, Settings
from fabric_health.verdict.tested import Counts, Tested, between, judgement_of, slower, without_numbers

FEWEST_FOR_CHANGE_POINTS = 10
"""Runs from which change points are looked for: a segment of three and the rest of a quarter."""


def since_change(panel: Panel, since: datetime | None) -> Panel:
    """Return the panel from an accepted change on; the last run is always in it."""
    if since is None:
        return panel
    return _only(panel, [i for i, at in enumerate(panel.at) if at >= since or i == len(panel.at) - 1])


def _last(panel: Panel, runs: int) -> Panel:
    return panel if len(panel.runs) <= runs else _only(panel, list(range(len(panel.runs) - runs, len(panel.runs))))


def _only(panel: Panel, keep: list[int]) -> Panel:
    return Panel(
        panel.metric, panel.comparability, panel.unit_kind, tuple(panel.runs[i] for i in keep),
        tuple(panel.at[i] for i in keep), panel.units, panel.performance[keep], panel.groups,
    )  # fmt: skip


def judge_history(panel: Panel, settings: Settings = DEFAULTS, since: datetime | None = None) -> tuple[Judgement, ...]:
    """Judge every unit of the last run against its own last ``settings.history`` runs, from the fourth run on.

    ``since`` is the time of an accepted change: what was before it no longer counts. A band is a prediction interval
    for one more run, by Student's t on a robust standard deviation, at ``settings.alpha`` shared out over the units.
    """
    panel = since_change(panel, since)
    panel = _last(panel, 3 * settings.history + 1)
    if not panel.runs or not panel.units:
        return ()
    level, launches = levels(panel, settings)
    measured = max(1, int(np.isfinite(level[-1]).sum()))
    each = settings.alpha / measured / settings.panels
    recent = panel.performance[-settings.history - 1 :]
    noise = cells_of(np.where(np.isfinite(recent), recent, np.nan)).error()[-1]
    return tuple(
        _judge(panel, u, level[:, u], launches[:, u], float(noise[u]), settings, each) for u in range(len(panel.units))
    )


def levels(panel: Panel, settings: Settings = DEFAULTS) -> tuple[Floats, np.ndarray]:
    """Return the level of each run and unit, net of what the run did to all, and its number of launches.

    What a run did is the median over the units of how far each is from its own median; it is removed in runs of
    ``settings.min_units`` units or more.
    """
    performance = np.where(np.isfinite(panel.performance), panel.performance, np.nan)
    launches = np.isfinite(performance).sum(axis=1)
    value = robust.median(performance, 1)
    apart = value - robust.median(value, 0)
    common = robust.median(apart, 1)
    enough = np.isfinite(apart).sum(axis=1) >= settings.min_units
    return value - np.where(enough, np.nan_to_num(common), 0.0)[:, None], launches


def _judge(
    panel: Panel, unit: int, level: Floats, launches: np.ndarray, noise: float, settings: Settings, each: float
) -> Judgement:
    subject = (panel.units[unit], panel.unit_kind)
    held = np.flatnonzero(np.isfinite(level[:-1]))[-settings.history :]
    counts = Counts(1, int(launches[held].sum()), int(launches[-1]), len(held))
    if launches[-1] < 1 or len(held) < settings.min_history:
        have = "not measured in this run" if launches[-1] < 1 else f"{len(held)} comparable runs before this one"
        reason = f"{have}; {settings.min_history} runs before and a launch in this one are needed"
        return without_numbers(panel, subject, Layer.HISTORY, reason, "more comparable runs", counts)
    past = level[held]
    n = len(past)
    middle = float(robust.median(past))
    rough = float(robust.spread(past - middle)) / np.sqrt(1 - 1 / n)
    centre = float(robust.location(past, rough))
    sd = float(robust.spread(past - centre)) / np.sqrt(1 - 1 / n)
    # Three runs that happen to agree do not make a steady unit: never less than its launches differ by.
    variance = max(sd**2, noise if np.isfinite(noise) else 0.0, 1e-6) * (1 + robust.PRICE / n)
    df = max(1.0, robust.KEPT * (n - 1))
    tested = Tested(centre - float(level[-1]), variance, df, each, settings.alpha)
    outcome = tested.outcome(panel.metric.margin)
    if outcome is Outcome.PASS and launches[-1] < 2:
        outcome = Outcome.INCONCLUSIVE
    reason = f"{slower(tested.difference)} than its {n} comparable runs before ({between(tested)})"
    settle = None
    if outcome is Outcome.INCONCLUSIVE and launches[-1] < 2:
        reason, settle = f"{reason}, on a single launch", "another launch"
    elif outcome is Outcome.INCONCLUSIVE:
        reason += f": neither a loss is shown, nor one of {100 * panel.metric.margin:g} % ruled out"
        settle = "another run, or more comparable runs of history"
    return judgement_of(panel, subject, Layer.HISTORY, tested, (outcome, reason, settle), counts)


def judge_changes(panel: Panel, settings: Settings = DEFAULTS, since: datetime | None = None) -> tuple[Judgement, ...]:
    """Return a judgement for each unit whose level changed at some run, from ten comparable runs on.

    It looks at the last 50 runs, about a year of weeks, and tells since when a unit is slower or faster, which the
    band, that follows the last runs, forgets. The false alarm level is ``settings.alpha`` shared out over units and
    panels.
    """
    panel = _last(since_change(panel, since), WINDOW)
    level, launches = levels(panel, settings)
    found: list[Judgement] = []
    for u, unit in enumerate(panel.units):
        held = np.flatnonzero(np.isfinite(level[:, u]))
        if len(held) < FEWEST_FOR_CHANGE_POINTS:
            continue
        each = settings.alpha / len(panel.units) / settings.panels
        points = change_points(level[held, u], max_p=each, min_size=panel.metric.margin / 2)
        if not points:
            continue
        last, n = points[-1], len(held)
        start = points[-2].index if len(points) > 1 else 0
        tested = Tested(last.before - last.after, last.variance, max(1.0, n - start - 2), each, settings.alpha)
        outcome = tested.outcome(panel.metric.margin)
        at = held[last.index]
        run = f"run {panel.runs[at]} of {panel.at[at]:%d %b %Y}"
        reason = f"{slower(tested.difference)} since {run} ({between(tested)})"
        counts = Counts(
            1, int(launches[held[start : last.index], u].sum()), int(launches[held[last.index :], u].sum()),
            last.index - start,
        )  # fmt: skip
        found.append(
            judgement_of(panel, (unit, panel.unit_kind), Layer.CHANGE_POINT, tested, (outcome, reason, None), counts)
        )
    return tuple(found)
