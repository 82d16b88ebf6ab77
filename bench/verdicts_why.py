"""From measurements to the change that did it: verdicts and attribution in one, on simulated maintenance weeks.

What `verdict_attribution.py` draws (which nodes got the change that costs 5 %, and what else changed meanwhile) on the
fleets of `verdicts_fleet.py` (2 % launch noise): each node's verdict comes from its launches, screened, confirmed and
judged, and attribution is given REGRESSED nodes as moved and PASS as unmoved. *all found*: weeks in which every node
that lost was blamed. *first*, *tied*, *wrong*, *none*: as in `verdict_attribution.py`; with one change, *tied* means
that another one fell on just the same judged nodes, and with two at once that both are said to be inseparable.

    python bench/verdicts_why.py [--repeats 50] [--seed 1] [--nodes 16,64,232]

Prints a Markdown table. Exit status 1 when a single change is named first in less than 95 % of weeks without a tie, or
two on the same nodes are not said to be inseparable.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Mapping

import verdict_attribution as attribution
from verdicts import with_launches
from verdicts_fleet import NOISES, Case, draw

from fabric_health.verdict.attribution import rank
from fabric_health.verdict.outcome import Outcome
from fabric_health.verdict.settings import DEFAULTS

LOSS = 0.05


def simulate(nodes: int, changed: int, changes: int, repeats: int, seed: int) -> Counter[str]:
    """Return how many weeks ended how."""
    rng = random.Random(f"{seed} {nodes} {changed} {changes}")
    counts: Counter[str] = Counter()
    for i in range(repeats):
        week = attribution.week(attribution.Case(nodes, changed, changes), rng)
        at = [int(n.removeprefix("gpu-")) - 1 for n in week.hit]
        drawn = draw(Case(nodes, NOISES["2 %"], "given units", LOSS), DEFAULTS.extra, seed + i, at)
        named = {u: f"gpu-{k:04}" for k, u in enumerate(drawn.units, 1)}
        judged = {named[j.subject]: j for j in with_launches(drawn)[0] if j.subject in named}
        moved = {n: j.loss for n, j in judged.items() if j.outcome is Outcome.REGRESSED and j.loss is not None}
        unmoved = [n for n, j in judged.items() if j.outcome is Outcome.PASS]
        counts["all found"] += moved.keys() >= week.hit
        if moved.keys() & week.hit:
            counts[attribution.outcome(week, rank(week.changes, moved, unmoved, week.reach))] += 1
        else:
            counts["none"] += 1
    return counts


def missed(counts: Mapping[str, int], changes: int, repeats: int) -> bool:
    """Tell whether the targets are missed, of weeks in which something was found."""
    weeks = repeats - counts["none"]
    if changes > 1:
        return counts["tied"] < weeks
    return counts["first"] < attribution.TARGET * (weeks - counts["tied"])


def main() -> int:
    parser = argparse.ArgumentParser(description="How often the change that did it is named, from launches on.")
    parser.add_argument("--repeats", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--nodes", default="16,64,232")
    args = parser.parse_args()
    print("| nodes | changed | changes at once | all found % | first % | tied % | wrong % | none % | weeks |")
    print("|--:|--:|--:|--:|--:|--:|--:|--:|--:|")
    failed = False
    for nodes in map(int, args.nodes.split(",")):
        for changed, changes in ((1, 1), (4, 1), (4, 2)):
            counts = simulate(nodes, changed, changes, args.repeats, args.seed)
            told = ("all found", "first", "tied", "wrong", "none")
            shares = " | ".join(f"{100 * counts[k] / args.repeats:.0f}" for k in told)
            print(f"| {nodes} | {changed} | {changes} | {shares} | {args.repeats} |", flush=True)
            failed |= missed(counts, changes, args.repeats)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
