"""Sets of domains whose groups tell uplinks, paths and the spine apart."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import numpy as np

from fabric_health.isolation.fleet import Fleet, Kind
from fabric_health.isolation.incidence import Bools

DRAWS = 40
# Share of the domains in a draw: an uplink is told best by half of them, a path by more, a confirmation by few.
DRAW_SHARES = (0.2, 0.4, 0.6)


class Cut:
    """Divides what may be at fault between domains, one group of domains after another.

    ``weights`` are probabilities by (kind, place), places between domains only. Places that no group so far tells
    apart are in one cell; a draw is the better the less probability stays together.
    """

    def __init__(self, fleet: Fleet, weights: Mapping[tuple[Kind, str], float], seed: str) -> None:
        self.keys = list(weights)
        self.domains = list(fleet.domains)
        self.at = {d: i for i, d in enumerate(self.domains)}
        self.weight = np.array([weights[k] for k in self.keys])
        self.behind = np.zeros((len(self.keys), len(self.domains)), dtype=np.int64)
        for i, key in enumerate(self.keys):
            self.behind[i, [self.at[d] for d in fleet.domains_behind(*key)]] = 1
        self.path = np.array([kind is Kind.PATH for kind, _ in self.keys], dtype=bool)
        self.pod = np.array([kind is Kind.POD for kind, _ in self.keys], dtype=bool)
        self.cell = np.zeros(len(self.keys), dtype=np.int64)
        self.rng = random.Random(seed)  # noqa: S311 - a draw, no secret

    def shows(self, drawn: Sequence[str]) -> Bools:
        """Return which places a group of these domains (two or more) would show."""
        inside = self.behind[:, [self.at[d] for d in drawn]].sum(axis=1)
        least = np.where(self.path, 2, 1)
        return np.asarray((inside >= least) & ~(self.pod & (inside == len(drawn))))

    def draw(self, domains: Sequence[str], must_show: tuple[Kind, str] | None) -> list[str]:
        """Return the best of some random sets of two or more ``domains``; none when no draw shows ``must_show``."""
        best: list[str] = []
        least = np.inf
        for _ in range(DRAWS):
            share = self.rng.choice(DRAW_SHARES)
            drawn = [d for d in domains if self.rng.random() < share]
            if len(drawn) < 2:
                continue
            shown = self.shows(drawn)
            if must_show is not None and not shown[self.keys.index(must_show)]:
                continue
            together = float((np.bincount(2 * self.cell + shown, weights=self.weight) ** 2).sum())
            if together < least:
                best, least = drawn, together
        return best

    def apply(self, drawn: Sequence[str]) -> None:
        """Note that a group of ``drawn`` is measured."""
        _, self.cell = np.unique(2 * self.cell + self.shows(drawn), return_inverse=True)
