"""How often attribution names the change that did it, on simulated maintenance weeks.

A week: on a fleet of nodes in racks of 16, one change (or two at once) is made on some nodes and costs each of them 5 %
(times a factor of 0.7 to 1.3 a node). The comparison before it finds a node that lost with ``detection``, calls a sound
one slower in 5 % of weeks, and could not judge 2 % of the nodes. Meanwhile other things change, none of which matters:
a package on every node (in 30 % of weeks), a firmware on one rack (50 %), a kernel on 5 % of the nodes (50 %), each of
three settings on 1 to 4 nodes drawn at random, a part on 1 % of the nodes, each with a serial of its own, and a config
line on the switch ports of 1 % of the nodes.

*first*: the change is named, alone. *tied*: it is among changes that are said to be inseparable. With one change that
is right too: another fell on exactly the same judged nodes, which no data tell apart, and is likely on one node of
few. With two changes at once, *tied* holds both, and only that is right. *wrong*: another change is named; *and sure*:
as strong evidence. *none*: none is named.

    python bench/verdict_attribution.py [--repeats 200] [--seed 1] [--nodes 16,64,232,1000]

Prints a Markdown table. Exit status 1 when, at a detection of 97 %, a single change is named first in less than 95 % of
the weeks without a tie, or two changes on the same nodes are not said to be inseparable in every week.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from dataclasses import dataclass

from fabric_health.verdict.attribution import Attribution, Explains, rank
from fabric_health.verdict.recorded import RecordedChange

RACK = 16
TARGET = 0.95


@dataclass(frozen=True)
class Case:
    """``changed`` of ``nodes`` nodes get ``changes`` changes (1 or 2) that cost; ``detection`` finds each loss."""

    nodes: int
    changed: int
    changes: int = 1
    detection: float = 0.97


@dataclass(frozen=True)
class Week:
    """What a week recorded, what was said of it, which nodes lost, and the attributes of the changes that did it."""

    changes: list[RecordedChange]
    moved: dict[str, float]
    unmoved: list[str]
    reach: dict[str, list[str]]
    hit: frozenset[str]
    injected: frozenset[str]


def week(case: Case, rng: random.Random) -> Week:
    """Draw one week of a case; see the module for its laws."""
    names = [f"gpu-{i:04}" for i in range(1, case.nodes + 1)]
    hit = rng.sample(names, case.changed)
    made = [_made(kind, hit) for kind in rng.sample(range(3), case.changes)]
    reach = {f"leaf-1/swp{i}": [n] for i, n in enumerate(names, 1)}
    lost = {n: 0.05 * rng.uniform(0.7, 1.3) for n in hit}
    found = {n: x for n, x in lost.items() if rng.random() < case.detection}
    if rng.random() < 0.05 and len(hit) < len(names):
        found[rng.choice([n for n in names if n not in lost])] = 0.04
    unmoved = [n for n in names if n not in found and rng.random() >= 0.02]
    changes = [c for group in made for c in group] + _meanwhile(names, rng)
    return Week(changes, found, unmoved, reach, frozenset(hit), frozenset(group[0].attribute for group in made))


def _made(kind: int, nodes: list[str]) -> list[RecordedChange]:
    if kind == 0:
        along = ("driver_version", "kernel_module_version", "cuda_driver_version")
        return [RecordedChange(n, a, "580.95", "580.126") for a in along for n in nodes]
    if kind == 1:
        return [RecordedChange(f"{n}/mlx5_{i}", "nic_fw", "28.42", "28.43") for n in nodes for i in range(8)]
    return [
        RecordedChange.of_config("leaf-1", f"interface {p} > mtu", "9216", "1500", p)
        for p in (f"swp{int(n.removeprefix('gpu-'))}" for n in nodes)
    ]


def _meanwhile(names: list[str], rng: random.Random) -> list[RecordedChange]:
    out: list[RecordedChange] = []
    if rng.random() < 0.3:
        out += [RecordedChange(n, "package", "1", "2") for n in names]
    if rng.random() < 0.5:
        start = rng.randrange(0, len(names), RACK)
        out += [RecordedChange(n, "bmc_version", "1", "2") for n in names[start : start + RACK]]
    if rng.random() < 0.5:
        out += [RecordedChange(n, "kernel_release", "5", "6") for n in rng.sample(names, max(1, len(names) // 20))]
    for i in range(3):
        out += [RecordedChange(n, f"setting_{i}", "off", "on") for n in rng.sample(names, rng.randint(1, 4))]
    few = max(1, len(names) // 100)
    out += [RecordedChange(f"{n}/gpu0", "serial", f"old {n}", f"new {n}") for n in rng.sample(names, few)]
    ports = rng.sample(range(1, len(names) + 1), few)
    return out + [RecordedChange.of_config("leaf-1", f"swp{i} > fec", "rs", None, f"swp{i}") for i in ports]


def outcome(week: Week, found: Attribution) -> str:
    """Return ``first``, ``tied``, ``wrong`` or ``none``."""
    if found.first is None:
        return "none"
    named = {found.first.group.attribute, *(c.group.attribute for c in found.inseparable)}
    if week.injected <= named:
        return "tied" if found.outcome is Explains.INSEPARABLE else "first"
    return "wrong"


def simulate(case: Case, repeats: int, seed: int) -> dict[str, float]:
    """Return the share of each outcome over weeks in which a node that lost was found slower."""
    counts: Counter[str] = Counter()
    rng = random.Random(f"{seed} {case}")
    while counts["weeks"] < repeats:
        drawn = week(case, rng)
        if not drawn.hit & drawn.moved.keys():
            continue
        found = rank(drawn.changes, drawn.moved, drawn.unmoved, drawn.reach)
        told = outcome(drawn, found)
        counts.update(("weeks", told))
        if told == "wrong" and found.first is not None and found.first.strong:
            counts["wrong, and sure"] += 1
    return {k: counts[k] / repeats for k in ("first", "tied", "wrong", "none", "wrong, and sure")}


def cases(nodes: int) -> list[Case]:
    """Return the cases of a fleet."""
    several = [1, 4, min(16, nodes // 2)]
    return [
        *(Case(nodes, k) for k in several),
        *(Case(nodes, k, detection=0.7) for k in several[1:]),
        *(Case(nodes, k, changes=2) for k in several),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--nodes", default="16,64,232,1000")
    args = parser.parse_args()
    print(f"Weeks a row: {args.repeats}; seed {args.seed}.\n")
    print("| nodes | changed | changes at once | detection | first | tied | wrong | wrong, and sure | none |")
    print("|--:|--:|--:|--:|--:|--:|--:|--:|--:|")
    missed = False
    for n in map(int, args.nodes.split(",")):
        for case in cases(n):
            got = simulate(case, args.repeats, args.seed)
            shares = " | ".join(f"{got[k]:.1%}" for k in ("first", "tied", "wrong", "wrong, and sure", "none"))
            print(f"| {n} | {case.changed} | {case.changes} | {case.detection:.0%} | {shares} |", flush=True)
            if case.detection > 0.9:
                missed |= got["tied"] < 1 if case.changes > 1 else got["first"] < TARGET * (1 - got["tied"])
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
