"""How many tests it takes to find what is slow, and how often the answer is right, on simulated fabrics.

Every method runs on the same simulation (`isolation_fabric.py` states its laws) with the same seeds. A run is *right*
when exactly the places at fault are blamed and nothing is undecided, *wrong* when a place is blamed that has no fault,
*undecided* when the method says so, *missed* when it says or implies that all is well or leaves a fault out. "rail" is
the share of rail faults whose rail is named too. Fabric-health looks for losses of 5 % or more; what it knows of the
noise beforehand is 2 %, whatever the noise is.

    python bench/isolation.py [--repeats 200] [--seed 1] [--nodes 16,64,232,1024] [--noise 0.01,0.02,0.05] \
        [--only node] [--no-rivals]

Prints a Markdown table. Exit status 1 when a target at 232 nodes is missed (10 % loss or more, 2 % noise): 99 % right
in at most 40 tests and 5 rounds on average, rails named in 95 %, a healthy fleet in at most 20 tests on average and
blamed in at most 1 %.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from isolation_fabric import Fabric, Fault, draw_faults, fleet_of
from isolation_rivals import STRAGGLER, bisection, exhaustive_pairs, two_passes, two_rounds

from fabric_health.isolation.fleet import Kind
from fabric_health.isolation.session import run
from fabric_health.isolation.state import Settings, State
from fabric_health.isolation.verdict import Verdict

OURS = "fabric-health"
# Pairs of 1,024 nodes are half a million tests: a few repeats say what there is to say.
FEW_REPEATS = 10
RIVALS: dict[str, Callable[[Fabric, random.Random], set[str]]] = {
    "exhaustive pairs": exhaustive_pairs,
    "two-round node check": two_rounds,
    "two-round, its own limit (half speed)": partial(two_rounds, threshold=STRAGGLER),
    "two passes, good partner": two_passes,
    "bisection": bisection,
}


@dataclass(frozen=True)
class Case:
    """``count`` faults of ``kind`` with losses drawn from ``loss`` (fractions), on ``nodes`` nodes at ``noise``."""

    nodes: int
    noise: float
    kind: str
    count: int
    loss: tuple[float, float]

    def __str__(self) -> str:
        """Return e.g. ``1 node, 10 %``."""
        if not self.count:
            return "healthy"
        low, high = (f"{100 * x:.0f}" for x in self.loss)
        return f"{self.count} {self.kind}, " + (f"{low} %" if low == high else f"{low}-{high} %")


@dataclass
class Tally:
    """What one method did over the repeats of one case."""

    outcomes: Counter[str] = field(default_factory=Counter)
    tests: list[int] = field(default_factory=list)
    rounds: list[int] = field(default_factory=list)
    rails: int = 0

    def share(self, outcome: str) -> float:
        """Return the share of ``outcome`` in percent."""
        return 100 * self.outcomes[outcome] / max(1, sum(self.outcomes.values()))


def cases(nodes: Sequence[int], noises: Sequence[float]) -> Iterator[Case]:
    """Yield the settings of the table: every kind at 2 % noise, the node faults at every noise."""
    for n in nodes:
        for noise in noises:
            yield Case(n, noise, "node", 0, (0, 0))
            for loss in (0.05, 0.1, 0.2):
                yield Case(n, noise, "node", 1, (loss, loss))
            yield Case(n, noise, "rail", 1, (0.1, 0.3))
            if noise == 0.02:
                for count in (2, 3):
                    yield Case(n, noise, "node", count, (0.1, 0.3))
                for kind in ("leaf", "uplink", "path", "spine"):
                    yield Case(n, noise, kind, 1, (0.1, 0.3))


def outcome_of(found: Verdict, faults: Sequence[Fault]) -> tuple[str, bool]:
    """Return how the verdict compares with the truth, and whether the rail was named."""
    truth = {(f.component.kind, f.component.place) for f in faults}
    blamed = {(b.component.kind, b.component.place) for b in found.blamed}
    rail = {f.component for f in faults} == {b.component for b in found.blamed}
    if blamed - truth:
        return "wrong", False
    if found.undecided or (not blamed and not found.healthy):
        return "undecided", rail and not found.undecided
    return ("right" if blamed == truth else "missed"), rail


def run_ours(case: Case, seed: int) -> tuple[str, bool, Fabric]:
    """Run one isolation session."""
    fabric, faults = prepared(case, seed)
    _, found = run(State(fabric.fleet, Settings(seed=seed)), fabric.run, lambda _state: None)
    return *outcome_of(found, faults), fabric


def run_rival(name: str, case: Case, seed: int) -> tuple[str, bool, Fabric]:
    """Run another method once. Blaming every node of a slow leaf's domain counts as naming the leaf."""
    fabric, faults = prepared(case, seed)
    blamed = RIVALS[name](fabric, random.Random(seed))
    truth: set[str] = set()
    for c in (f.component for f in faults):
        if c.kind is Kind.NODE:
            truth.add(c.place)
        elif c.kind is Kind.LEAF:
            truth |= set(fabric.fleet.domains[c.place])
    if blamed - truth:
        return "wrong", False, fabric
    return ("right" if blamed == truth and (truth or not faults) else "missed"), False, fabric


def prepared(case: Case, seed: int) -> tuple[Fabric, list[Fault]]:
    """Return the fabric of a case and seed with its faults: the same for every method."""
    fleet = fleet_of(case.nodes)
    faults = draw_faults(fleet, case.kind, case.count, case.loss, random.Random(f"{case} {seed}"))
    return Fabric(fleet, faults, case.noise, seed), faults


def tally(case: Case, method: str, repeats: int, seed: int) -> Tally:
    """Run ``method`` over the repeats of ``case``."""
    found = Tally()
    for i in range(repeats):
        outcome, rail, fabric = run_ours(case, seed + i) if method == OURS else run_rival(method, case, seed + i)
        found.outcomes[outcome] += 1
        found.tests.append(fabric.tests)
        found.rounds.append(fabric.rounds)
        found.rails += rail
    return found


def row(case: Case, method: str, t: Tally) -> str:
    """Return one line of the table."""
    tests, rounds = sorted(t.tests), sorted(t.rounds)
    p95 = int(0.95 * (len(tests) - 1))
    rail = f"{100 * t.rails / len(tests):.1f}" if case.kind == "rail" and method == OURS else "-"
    shares = " | ".join(f"{t.share(o):.1f}" for o in ("right", "wrong", "undecided", "missed"))
    return (
        f"| {case.nodes} | {100 * case.noise:.0f} % | {case} | {method} | {statistics.mean(tests):,.1f} "
        f"({tests[len(tests) // 2]:,} / {tests[p95]:,}) | {statistics.mean(rounds):,.1f} ({rounds[p95]:,}) | {shares} "
        f"| {rail} | {len(tests)} |"
    )


def failures(case: Case, t: Tally) -> list[str]:
    """Return which targets ``case`` misses."""
    if case.nodes != 232 or case.noise != 0.02 or case.count > 1 or case.kind not in ("node", "rail"):
        return []
    tests, rounds = statistics.mean(t.tests), statistics.mean(t.rounds)
    if not case.count:
        return [f"healthy: {tests:.1f} tests"] * (tests > 20) + [f"blamed {t.share('wrong'):.1f} %"] * (
            t.share("wrong") > 1
        )
    if case.loss[0] < 0.1:
        return []
    missed = [f"{case}: {tests:.1f} tests, {rounds:.1f} rounds"] * (tests > 40 or rounds > 5)
    missed += [f"{case}: right in {t.share('right'):.1f} %"] * (t.share("right") < 99)
    return missed + [f"{case}: rail named in {t.rails}"] * (case.kind == "rail" and t.rails < 0.95 * len(t.tests))


def main() -> int:
    parser = argparse.ArgumentParser(description="Tests and right answers of fault isolation on simulated fabrics.")
    parser.add_argument("--repeats", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--nodes", default="16,64,232,1024")
    parser.add_argument("--noise", default="0.01,0.02,0.05")
    parser.add_argument("--only", default="", help="only cases whose name has this in it, e.g. 'node' or 'healthy'")
    parser.add_argument("--no-rivals", action="store_true")
    args = parser.parse_args()
    nodes, noises = [int(n) for n in args.nodes.split(",")], [float(x) for x in args.noise.split(",")]
    missed: list[str] = []
    print("| nodes | noise | faults | method | tests: mean (median / p95) | rounds: mean (p95) | right % | wrong % "
          "| undecided % | missed % | rail named % | runs |")  # fmt: skip
    print("|" + "---|" * 12)
    started = time.perf_counter()
    for case in cases(nodes, noises):
        if args.only not in str(case):
            continue
        for method in [OURS] if args.no_rivals or case.noise != 0.02 else [OURS, *RIVALS]:
            many = method == "exhaustive pairs" and case.nodes > 64
            found = tally(case, method, min(args.repeats, FEW_REPEATS) if many else args.repeats, args.seed)
            print(row(case, method, found), flush=True)
            if method == OURS:
                missed += failures(case, found)
    print(f"{time.perf_counter() - started:.0f} s; missed targets: {missed or 'none'}", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
