"""How probable it is that each component is slow, given all measurements.

A group runs at the pace of its slowest member, so with faults of log-losses l_i the log of a test's relative
bandwidth is ``run effect - max(l_i shown by the test) + noise``. Noise is normal with a share of slow outliers, so that
no single launch is proof, however slow it was. Faults are found one after the other (the largest posterior odds first),
then each is weighed again given the others. Loss is integrated over a grid, noise and run effect are estimated from the
session with priors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fabric_health.isolation.fleet import Component, Fleet, Kind
from fabric_health.isolation.incidence import Bools, Floats, Hypothesis, Incidence, incidence
from fabric_health.isolation.state import Result, Settings, State

GRID_RATIO = 1.25
# A fault does not cost the same share in every group: spread of its log-loss, relative. Ours.
LOSS_SPREAD = 0.12
# Mean log-loss of an outlier launch (slow for no lasting reason). Ours.
OUTLIER_SCALE = 0.08
# A run effect beyond this many standard deviations is none: it is something that all groups have in common, or wrong
# expectations.
RUN_EFFECTS = 3.0
# Weight of the noise known from history, in tests.
NOISE_WEIGHT = 6.0
NOISE_RANGE = (0.004, 0.10)
# Where history says that launches are noisy, the session's noise may be this much more.
NOISE_FACTOR = 2.0
# Chance that a test gives no number though nothing in it is broken, and that it does give one though something is.
FLAKE, WORKS_THOUGH_BROKEN = 0.03, 0.1
# Healthy units differ a little too: losses (share of the smallest loss of interest) with their prior odds. Ours.
SMALL_LOSSES, SMALL_ODDS = (0.4, 0.6), (0.02, 0.003)
# Weight of "broken" (gives no number) among the losses of a fault.
BROKEN_SHARE = 0.05
MAX_FAULTS = 8
# A suspicion needs these odds, and measurements that make it likelier than it was before any: what a larger fault
# hides is no suspicion. Members below this share of the best one are dropped.
SUSPICION_ODDS = 0.05
SUSPICION_RATIO = 1.5
MEMBER_SHARE = 0.005


@dataclass(frozen=True)
class Member:
    """One hypothesis of a suspicion with its share of the suspicion's probability (0..1)."""

    hypothesis: Hypothesis
    share: float


@dataclass(frozen=True)
class Suspicion:
    """Something is slow; ``members`` are what it may be, the most probable first.

    ``odds`` of there being a fault at all against none. ``loss`` is the expected loss (fraction), ``loss_low`` and
    ``loss_high`` bound 95 % of its posterior; ``broken`` that its groups give no number at all. ``tests`` are the
    names of the tests that speak most for it.
    """

    members: tuple[Member, ...]
    odds: float
    loss: float
    loss_low: float
    loss_high: float
    broken: bool
    tests: tuple[str, ...]

    def places(self) -> dict[tuple[Kind, str], float]:
        """Return shares by (kind, place): rails of a place summed."""
        found: dict[tuple[Kind, str], float] = {}
        for m in self.members:
            key = (m.hypothesis.component.kind, m.hypothesis.component.place)
            found[key] = found.get(key, 0.0) + m.share
        return found


@dataclass(frozen=True)
class Belief:
    """``noise`` and ``run_effect`` of the session (log scale, about fractions); ``suspicions`` most probable first.

    ``missed`` is the expected number of faults of at least the smallest loss of interest that no suspicion covers.
    ``node_odds`` are the odds of each node to be (part of) such a fault, given the suspicions. ``unexplained`` are
    tests far too slow for noise that no suspicion explains.
    """

    noise: float
    run_effect: float
    suspicions: tuple[Suspicion, ...]
    missed: float
    node_odds: dict[str, float]
    unexplained: tuple[str, ...]


def believe(state: State) -> Belief:
    """Return what the measurements of ``state`` say; excused tests say nothing."""
    results = tuple(r for r in state.results if not r.measurement.excused)
    table = incidence(state.fleet, state.settings, [r.test for r in results])
    screen = {r.test.name for results in state.rounds[:1] for r in results}
    return _Inference(state.fleet, state.settings, results, table).belief(screen)


class _Inference:
    """One pass over one set of results. ``level[t]`` is an index into ``losses``; 0 is "no loss"."""

    def __init__(self, fleet: Fleet, settings: Settings, results: tuple[Result, ...], table: Incidence) -> None:
        self.fleet, self.settings, self.results, self.table = fleet, settings, results, table
        count = math.ceil(math.log(settings.max_loss / settings.min_loss) / math.log(GRID_RATIO)) + 1
        grid = settings.min_loss * GRID_RATIO ** np.arange(count)
        small = settings.min_loss * np.array(SMALL_LOSSES)
        self.losses: Floats = np.concatenate([[0.0], small, grid[grid < 0.9]])
        self.small, self.broken = len(small), len(self.losses)
        each = math.log((1 - BROKEN_SHARE) / (self.broken - 1 - self.small))
        self.log_weight: Floats = np.array([each] * (self.broken - 1 - self.small) + [math.log(BROKEN_SHARE)])
        self.gave = np.array([r.measurement.relative is not None for r in results], dtype=bool)
        self.y: Floats = np.array([math.log(max(r.measurement.relative or 1.0, 1e-3)) for r in results])
        self.noise, self.run_effect = settings.noise, 0.0
        self.level = np.zeros(len(results), dtype=int)

    def belief(self, screen: set[str]) -> Belief:
        if not self.results:
            prior = np.exp(self.table.log_prior)
            return Belief(self.noise, 0.0, (), float(prior.sum()), self._node_odds(prior), ())
        # Later rounds look where it is slow, so only the screen is a fair sample before anything is explained.
        self._estimate(np.array([r.test.name in screen for r in self.results]))
        faults = self._search()
        for _ in range(2):
            self._estimate(self.level == 0)
            faults = self._search()
        suspicions = []
        for i, fault in enumerate(faults):
            self._explain([f for k, f in enumerate(faults) if k != i])
            if (found := self._suspicion(fault[0])) is not None:
                suspicions.append(found)
        self._explain(faults)
        odds = np.exp(np.minimum(self._log_odds(self._gains()), 50.0))
        return Belief(
            self.noise,
            self.run_effect,
            tuple(sorted(suspicions, key=lambda s: -s.odds)),
            float(odds.sum()),
            self._node_odds(odds),
            self._unexplained(),
        )

    def _estimate(self, fair: Bools) -> None:
        """Estimate run effect and noise from those ``fair`` tests that gave a number."""
        quiet = self.gave & fair
        if not quiet.any():
            return
        y = self.y[quiet]
        k = math.pi / 2 * (self.noise / self.settings.run_effect) ** 2
        effect = float(np.median(y)) * len(y) / (len(y) + k)
        limit = RUN_EFFECTS * self.settings.run_effect
        self.run_effect = min(max(effect, -limit), limit)
        mad = 1.4826 * float(np.median(np.abs(y - self.run_effect)))
        pooled = (NOISE_WEIGHT * self.settings.noise**2 + len(y) * mad**2) / (NOISE_WEIGHT + len(y))
        most = max(NOISE_RANGE[1], NOISE_FACTOR * self.settings.noise)
        self.noise = min(max(math.sqrt(pooled), NOISE_RANGE[0]), most)

    def _log_likelihood(self) -> Floats:
        """Return tests x (losses, broken)."""
        log_loss = -np.log1p(-self.losses)
        e = self.y[:, None] - self.run_effect + log_loss[None, :]
        spread = np.hypot(self.noise, LOSS_SPREAD * log_loss)[None, :]
        normal = np.exp(-0.5 * (e / spread) ** 2) / (spread * math.sqrt(2 * math.pi))
        slow = np.where(e < 0, np.exp(np.minimum(e, 0) / OUTLIER_SCALE) / OUTLIER_SCALE, 0.0)
        wide = np.exp(-0.5 * (e / (5 * spread)) ** 2) / (5 * spread * math.sqrt(2 * math.pi))
        w = self.settings.outliers
        log = np.log((1 - w) * normal + w * slow + 0.1 * w * wide + 1e-12)
        full = np.concatenate([log, (log[:, :1] + math.log(WORKS_THOUGH_BROKEN))], axis=1)
        full[~self.gave, :-1] = math.log(FLAKE)
        full[~self.gave, -1] = math.log(1 - WORKS_THOUGH_BROKEN)
        return np.asarray(full)

    def _gains(self) -> Floats:
        """Return hypotheses x losses: how much likelier the measurements get when the hypothesis is added."""
        return np.asarray(self.table.shows.T.astype(np.float64) @ self._deltas())

    def _deltas(self) -> Floats:
        log = self._log_likelihood()
        now = log[np.arange(len(log)), self.level]
        then = np.maximum(np.arange(1, self.broken + 1)[None, :], self.level[:, None])
        return np.asarray(np.take_along_axis(log, then, axis=1) - now[:, None])

    def _log_odds(self, gains: Floats) -> Floats:
        """Return the log odds of each hypothesis: a loss that matters, against none or a small one."""
        weighted = self._weighted(gains)
        top = weighted.max(axis=1)
        slow = top + np.log(np.exp(weighted - top[:, None]).sum(axis=1))
        small = np.log(SMALL_ODDS) + gains[:, : self.small]
        harmless = np.logaddexp.reduce(np.concatenate([np.zeros((len(gains), 1)), small], axis=1), axis=1)
        return np.asarray(self.table.log_prior + slow - harmless)

    def _weighted(self, gains: Floats) -> Floats:
        """Return log weight + gain of each loss that matters, broken last."""
        return np.asarray(gains[..., self.small :] + self.log_weight)

    def _explain(self, faults: list[tuple[int, int]]) -> None:
        self.level = np.zeros(len(self.results), dtype=int)
        for h, loss in faults:
            shown = self.table.shows[:, h]
            self.level[shown] = np.maximum(self.level[shown], loss)

    def _search(self) -> list[tuple[int, int]]:
        """Add faults while the best suspicion is worth a look; then weigh each again given the others."""
        faults: list[tuple[int, int]] = []
        self._explain(faults)
        while len(faults) < MAX_FAULTS:
            best = self._best()
            if best is None:
                break
            faults.append(best)
            self._explain(faults)
        for i in reversed(range(len(faults))):
            rest = faults[:i] + faults[i + 1 :]
            self._explain(rest)
            again = self._best()
            faults = rest if again is None else [*faults[:i], again, *faults[i + 1 :]]
        self._explain(faults)
        return faults

    def _best(self) -> tuple[int, int] | None:
        gains = self._gains()
        odds = self._log_odds(gains)
        spoken_for = odds - self.table.log_prior >= math.log(SUSPICION_RATIO)
        if not spoken_for.any():
            return None
        h = int(np.where(spoken_for, odds, -np.inf).argmax())
        together = np.exp(np.minimum(odds[self._rivals(h, gains)], 50.0)).sum()
        if together < SUSPICION_ODDS:
            return None
        return h, int(self._weighted(gains[h]).argmax()) + 1 + self.small

    def _speaking(self, h: int, gains: Floats) -> Bools:
        """Return the tests that speak most for ``h``."""
        loss = int(self._weighted(gains[h]).argmax()) + self.small
        each = np.where(self.table.shows[:, h], self._deltas()[:, loss], -np.inf)
        return np.asarray(each >= max(0.5 * float(each.max()), 0.0)) & np.isfinite(each)

    def _rivals(self, h: int, gains: Floats) -> Bools:
        """Return the hypotheses that show in the tests which speak most for ``h``."""
        speaking = self._speaking(h, gains)
        return np.asarray(self.table.shows[speaking].any(axis=0))

    def _suspicion(self, h: int) -> Suspicion | None:
        gains = self._gains()
        odds = self._log_odds(gains)
        rivals = self._rivals(h, gains)
        if not rivals.any():
            # Every test of it is better explained by the other faults.
            return None
        top = float(odds[rivals].max())
        kept = np.flatnonzero(rivals & (odds > top + math.log(MEMBER_SHARE)))
        weight = np.exp(odds[kept] - top)
        total = float(weight.sum()) * math.exp(min(top, 50.0))
        if total < SUSPICION_ODDS:
            return None
        order = np.argsort(-weight, kind="stable")
        shares = weight / weight.sum()
        members = tuple(Member(self.table.hypotheses[kept[i]], float(shares[i])) for i in order)
        loss, low, high, broken = self._loss(gains[kept[order[0]]])
        speaking = self._speaking(int(kept[order[0]]), gains)
        names = tuple(r.test.name for r, s in zip(self.results, speaking, strict=True) if s)
        return Suspicion(members, total, loss, low, high, broken, names)

    def _loss(self, gains: Floats) -> tuple[float, float, float, bool]:
        weighted = self._weighted(gains)
        p = np.exp(weighted - weighted.max())
        p /= p.sum()
        if p[-1] > 0.5:
            return 1.0, 1.0, 1.0, True
        p = p[:-1] / p[:-1].sum()
        below = np.cumsum(p)
        grid = self.losses[1 + self.small :]
        low, high = (float(grid[min(int(np.searchsorted(below, q)), len(grid) - 1)]) for q in (0.025, 0.975))
        return float(p @ grid), low, high, False

    def _node_odds(self, odds: Floats) -> dict[str, float]:
        found = dict.fromkeys(self.fleet.nodes, 0.0)
        for hypothesis, o in zip(self.table.hypotheses, odds, strict=True):
            if hypothesis.component.kind is Kind.NODE:
                found[hypothesis.component.place] += float(o)
        return found

    def _unexplained(self) -> tuple[str, ...]:
        """Return tests more than four noises slower than what the faults explain, or without a number."""
        e = self.y - self.run_effect - np.log1p(-np.concatenate([self.losses, [0.99]]))[self.level]
        odd = np.where(self.gave, e < -4 * self.noise, self.level < self.broken)
        return tuple(r.test.name for r, o in zip(self.results, odd, strict=True) if o)


def component_of(member: Member) -> Component:
    """Return the component of ``member``; its rail is set where the posterior names one."""
    return member.hypothesis.component


def common_loss(state: State) -> float:
    """Return the median loss (fraction) of the screen's groups inside one domain where three in four have a run's loss.

    A loss that is more than a run effect in three of four groups is no matter of one unit: wrong expectations, another
    transport or version, clocks. (In half of them it may be two units.) 0.0 if there is none, or fewer than three.
    """
    inside = [
        r.measurement.relative
        for results in state.rounds[:1]
        for r in results
        if r.measurement.relative is not None and not r.test.crosses
    ]
    if len(inside) < 3 or float(np.quantile(inside, 0.75)) >= math.exp(-RUN_EFFECTS * state.settings.run_effect):
        return 0.0
    return 1 - float(np.median(inside))
