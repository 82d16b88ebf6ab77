"""Rules that others use, for `bench/verdicts.py`, on the same draws: each returns the units that it calls slow.

None of them names a group, asks for more launches, or says that it cannot tell. They read the mean of the regular
launches of a run, as their own reports do (except the single delta), and the same eight runs before.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
from verdicts_fleet import LEVEL, Draw, Floats

from fabric_health.verdict.changepoints import change_points

Rule = Callable[[Draw], set[str]]


def _means(draw: Draw) -> Floats:
    with warnings.catch_warnings():  # a unit that was not measured in a run
        warnings.simplefilter("ignore", RuntimeWarning)
        return np.asarray(np.nanmean(draw.regular, axis=1))


def _named(draw: Draw, slow: Floats) -> set[str]:
    return {draw.units[i] for i in np.flatnonzero(slow)}


def static_floor(draw: Draw) -> set[str]:
    """Call slow what is below 0.9 of the nominal bandwidth of the SKU: acceptance gates of health checks."""
    return _named(draw, _means(draw)[-1] < LEVEL + np.log(0.9))


def five_percent(draw: Draw) -> set[str]:
    """Call slow what is more than 5 % below the mean of its runs before."""
    means = _means(draw)
    return _named(draw, means[-1] < np.nanmean(means[:-1], axis=0) + np.log(0.95))


def ten_percent(draw: Draw) -> set[str]:
    """Call slow what is more than 10 % below a reference that was written down once: the first run."""
    means = _means(draw)
    return _named(draw, means[-1] < means[0] + np.log(0.9))


def three_sigma(draw: Draw) -> set[str]:
    """Call slow what is more than three standard deviations of its runs before below their mean."""
    means = _means(draw)
    past = means[:-1]
    return _named(draw, (np.nanmean(past, axis=0) - means[-1]) / np.nanstd(past, axis=0, ddof=1) > 3)


def one_delta(draw: Draw) -> set[str]:
    """Call slow what lost more than 5 % from one launch of the run before to one launch of this: compare two files."""
    return _named(draw, draw.regular[-1, 0] < draw.regular[-2, 0] + np.log(0.95))


def change_point(draw: Draw) -> set[str]:
    """Call slow what has a change point (p < 0.001, 2 % or more) at the last run: a continuous benchmark's way."""
    slow = set()
    for name, series in zip(draw.units, _means(draw).T, strict=True):
        held = series[np.isfinite(series)]
        points = change_points(held, 0.001, 0.02) if np.isfinite(series[-1]) else ()
        if points and points[-1].index == len(held) - 1 and points[-1].after < points[-1].before:
            slow.add(name)
    return slow


RIVALS: dict[str, Rule] = {
    "floor: 0.9 x nominal": static_floor,
    "5 % below the mean of 8 runs": five_percent,
    "10 % below a reference run": ten_percent,
    "z > 3 of 8 runs": three_sigma,
    "one launch against one, 5 %": one_delta,
    "change points alone": change_point,
}
