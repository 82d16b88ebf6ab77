"""Other ways to find a slow node, for `bench/isolation.py`: what is published of them, on the same simulated fabric.

All of them read a test as a bit: slow below ``1 - THRESHOLD`` of the expected bandwidth. None names a rail. Each
returns the nodes it blames; the fabric counts tests and rounds.
"""

from __future__ import annotations

import random

import numpy as np
from isolation_fabric import Fabric

THRESHOLD = 0.05
# DLRover calls a node a straggler when it takes twice the median time: half the bandwidth.
STRAGGLER = 0.5


def exhaustive_pairs(fabric: Fabric, _rng: random.Random) -> set[str]:
    """Measure every pair (circle method: n - 1 rounds of n / 2); blame nodes whose median pair is slow."""
    median = np.nanmedian(fabric.all_pairs(), axis=1)
    return {n for n, m in zip(fabric.fleet.nodes, median, strict=True) if m < 1 - THRESHOLD}


def two_rounds(fabric: Fabric, _rng: random.Random, threshold: float = THRESHOLD) -> set[str]:
    """DLRover's node check: neighbours, then the fastest with the slowest; a node counts by its better round.

    ``threshold`` is the loss below the median that is blamed; its own is `STRAGGLER`.
    """
    nodes = list(fabric.fleet.nodes)
    best: dict[str, float] = {}
    for _ in range(2):
        order = sorted(nodes, key=lambda n: best.get(n, 0.0))
        half = len(order) // 2
        one, other = (order[:half], order[::-1][:half]) if best else (nodes[::2], nodes[1::2])
        for pair in zip(one, other, strict=False):
            value = fabric.measure(pair)
            for n in pair:
                best[n] = max(best.get(n, 0.0), value)
        fabric.rounds += 1
    median = float(np.median(list(best.values())))
    return {n for n, value in best.items() if value < median * (1 - threshold)}


def two_passes(fabric: Fabric, rng: random.Random) -> set[str]:
    """Cluster Health Scanner's way: random pairs, then both nodes of a slow pair with a node that passed."""
    nodes = list(fabric.fleet.nodes)
    rng.shuffle(nodes)
    pairs = list(zip(nodes[::2], nodes[1::2], strict=False))
    slow = [pair for pair in pairs if fabric.measure(pair) < 1 - THRESHOLD]
    fabric.rounds += 1
    suspects = [n for pair in slow for n in pair]
    good = [n for pair in pairs if pair not in slow for n in pair]
    if not suspects or not good:
        return set()
    fabric.rounds += 1
    partners = rng.sample(good, min(len(suspects), len(good)))
    partners += rng.choices(good, k=len(suspects) - len(partners))
    return {n for n, p in zip(suspects, partners, strict=True) if fabric.measure((n, p)) < 1 - THRESHOLD}


def bisection(fabric: Fabric, rng: random.Random) -> set[str]:
    """Halve every slow group, all groups of a level side by side; at three nodes or fewer, each with a good node."""
    level = [list(fabric.fleet.nodes)]
    passed: list[str] = []
    suspects: list[str] = []
    while level:
        fabric.rounds += 1
        slow = []
        for group in level:
            if fabric.measure(group) < 1 - THRESHOLD:
                slow.append(group)
            else:
                passed += group
        level = []
        for group in slow:
            if len(group) <= 3:
                suspects += group
            else:
                level += [group[: len(group) // 2], group[len(group) // 2 :]]
    if not suspects or not passed:
        return set()
    fabric.rounds += 1
    partners = rng.sample(passed, min(len(suspects), len(passed)))
    partners += rng.choices(passed, k=len(suspects) - len(partners))
    return {n for n, p in zip(suspects, partners, strict=True) if fabric.measure((n, p)) < 1 - THRESHOLD}
