"""Which test would show which fault: a matrix of tests x hypotheses."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fabric_health.isolation.fleet import TOGETHER, WHOLE, Component, Fleet, Kind
from fabric_health.isolation.state import Settings, Test

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]

# Before anything is measured: expected number of faults of a kind, relative to `Settings.faults` slow nodes. Ours:
# nodes and their NICs fail far more often than switches and the cables between those.
SHARE = {Kind.NODE: 1.0, Kind.LEAF: 0.05, Kind.UPLINK: 0.1, Kind.POD: 0.05, Kind.PATH: 0.05, Kind.SPINE: 0.03}
# How a fault is spread over the rails of its place: one rail, all of them, or only when all run at once.
RAIL_SHARE = {"rail": 0.5, WHOLE: 0.4, TOGETHER: 0.1}


@dataclass(frozen=True)
class Hypothesis:
    """``component`` is slow. ``how`` is WHOLE or TOGETHER once rails were tested, "" before that or for one rail."""

    component: Component
    how: str = ""


@dataclass(frozen=True)
class Incidence:
    """``shows[t, h]``: test t would show hypothesis h. ``log_prior[h]``: log odds of h before any measurement."""

    hypotheses: tuple[Hypothesis, ...]
    shows: Bools
    log_prior: Floats


def incidence(fleet: Fleet, settings: Settings, tests: Sequence[Test]) -> Incidence:
    """Return hypotheses and which tests show them; a place is split into its rails once a test of one rail met it."""
    met = _met(fleet, tests)
    prior = _log_prior(fleet, settings)
    one_rail = np.array([t.rail is not None for t in tests], dtype=bool)
    split = np.flatnonzero(met[one_rail].any(axis=0)) if fleet.rails > 1 and one_rail.any() else np.array([], int)
    kept = np.setdiff1d(np.arange(met.shape[1]), split)
    hypotheses = [Hypothesis(fleet.components[i]) for i in kept]
    columns = [met[:, kept]]
    priors = [prior[kept]]
    rails = np.array([-1 if t.rail is None else t.rail for t in tests])
    for i in split:
        c, column = fleet.components[i], met[:, i]
        hypotheses += [Hypothesis(Component(c.kind, c.place, r)) for r in range(fleet.rails)]
        hypotheses += [Hypothesis(c, WHOLE), Hypothesis(c, TOGETHER)]
        by_rail = [column & ((rails == -1) | (rails == r)) for r in range(fleet.rails)]
        columns.append(np.stack([*by_rail, column, column & (rails == -1)], axis=1))
        each = [RAIL_SHARE["rail"] / fleet.rails] * fleet.rails + [RAIL_SHARE[WHOLE], RAIL_SHARE[TOGETHER]]
        priors.append(prior[i] + np.log(each))
    return Incidence(tuple(hypotheses), np.concatenate(columns, axis=1), np.concatenate(priors))


def _met(fleet: Fleet, tests: Sequence[Test]) -> Bools:
    """Return tests x ``fleet.components``, regardless of rails."""
    names = list(fleet.nodes)
    node_at = {n: i for i, n in enumerate(names)}
    domains = sorted(fleet.domains)
    domain_at = {d: i for i, d in enumerate(domains)}
    domain_of = np.array([domain_at[fleet.nodes[n].domain] for n in names])
    nodes = np.zeros((len(tests), len(names)), dtype=bool)
    for t, test in enumerate(tests):
        nodes[t, [node_at[n] for n in test.nodes]] = True
    in_domain = np.zeros((len(tests), len(domains)), dtype=bool)
    for t in range(len(tests)):
        in_domain[t, domain_of[nodes[t]]] = True
    crosses = in_domain.sum(axis=1) > 1
    blocks: list[Bools] = [nodes]
    by_kind: dict[Kind, list[Component]] = {}
    for c in fleet.components[len(names) :]:
        by_kind.setdefault(c.kind, []).append(c)
    for kind, components in by_kind.items():
        if kind is Kind.LEAF:
            blocks.append(in_domain[:, [domain_at[c.place] for c in components]])
        elif kind is Kind.UPLINK:
            blocks.append(in_domain & crosses[:, None])
        elif kind is Kind.SPINE:
            blocks.append(crosses[:, None])
        elif kind is Kind.POD:
            inside = [in_domain[:, [domain_at[d] for d in fleet.pods[c.place]]].sum(axis=1) for c in components]
            total = in_domain.sum(axis=1)
            blocks.append(np.stack([(n > 0) & (n < total) for n in inside], axis=1))
        else:
            one, other = np.triu_indices(len(domains), 1)
            blocks.append(in_domain[:, one] & in_domain[:, other])
    return np.concatenate(blocks, axis=1)


def _log_prior(fleet: Fleet, settings: Settings) -> Floats:
    count: dict[Kind, int] = {}
    for c in fleet.components:
        count[c.kind] = count.get(c.kind, 0) + 1
    # Half a fault or less a component: a fleet of two nodes has no more than even odds for each.
    log = {k: math.log(min(0.5, settings.faults * SHARE[k] / n)) for k, n in count.items()}
    return np.array([log[c.kind] for c in fleet.components])
