"""What screening in rounds can reach: a search for plans of rounds, on units whose noise is known.

Units have a past of 24 launches and three launches now, of 2 % noise with the tails of `verdicts_fleet.py`; the run's
effect is known. A plan is a list of rounds (standard errors from which a unit stays, launches that it then takes); a
unit that stays to the end is blamed at the level of ``--nodes`` nodes. The search is random, then around the best, for
the plan that finds most units with a 3 % loss while sound units take at most ``--budget`` more launches on average.

    python bench/verdicts_rounds.py [--nodes 1000] [--budget 0.17] [--tries 2000] [--seed 3]

Prints the default plan and the best of 3, 4, 5 and 8 rounds: launches more of sound units, share found of losses of
3 % and 5 %. A minute.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np
from scipy import special
from verdicts_fleet import LAUNCHES, Floats

from fabric_health.lab.fleet.model import SPREAD
from fabric_health.verdict import robust
from fabric_health.verdict.settings import DEFAULTS

NOISE, PAST, MOST = 0.02, 24, 69
SOUND, LOST = 20_000, 4_000
Plan = tuple[tuple[float, int], ...]


def launches(count: int, units: int, loss: float, rng: np.random.Generator) -> Floats:
    """Return launches x units around zero, less the loss."""
    values = rng.normal(np.log1p(-loss), NOISE, (count, units))
    return values - (rng.random(values.shape) < SPREAD.tail) * rng.exponential(SPREAD.tail_loss, values.shape)


def scores(units: int, loss: float, rng: np.random.Generator) -> dict[int, Floats]:
    """Return for each number of launches how many standard errors every unit is slow."""
    past = robust.location(launches(PAST, units, 0.0, rng), NOISE)
    now = launches(LAUNCHES + MOST, units, loss, rng)
    return {
        n: (past - robust.location(now[:n], NOISE)) / (NOISE * np.sqrt(robust.PRICE * (1 / n + 1 / PAST)))
        for n in range(LAUNCHES, LAUNCHES + MOST + 1)
    }


def judge(plan: Plan, of: dict[int, Floats], quantile: float) -> tuple[float, float]:
    """Return launches more (a share of the regular ones) and the share of units that is blamed."""
    stays, n, more = np.ones(len(of[LAUNCHES]), dtype=bool), LAUNCHES, 0.0
    for z, extra in plan:
        stays &= of[n] >= z
        more += extra * float(stays.mean())
        n += extra
    return more / LAUNCHES, float((stays & (of[n] > quantile)).mean())


def search(
    rounds: int, sound: dict[int, Floats], lost: dict[int, Floats], quantile: float, args: argparse.Namespace
) -> Plan:
    """Return the best plan within the budget."""
    rng = np.random.default_rng(args.seed)
    best: Plan = ()
    found = -1.0
    for i in range(args.tries):
        if not best or i < args.tries // 6:
            z = np.sort(rng.uniform(0.6, 3.4, rounds))
            extra = np.sort(np.exp(rng.uniform(0, 3.3, rounds)).astype(int))
        else:
            z = np.sort(np.clip(np.array([r[0] for r in best]) + rng.normal(0, 0.15, rounds), 0.3, 3.6))
            extra = np.array([r[1] for r in best]) * np.exp(rng.normal(0, 0.25, rounds)) + rng.uniform(
                -0.5, 0.5, rounds
            )
        plan = tuple((round(float(a), 2), max(1, round(float(b)))) for a, b in zip(z, extra, strict=True))
        if sum(r[1] for r in plan) > MOST or judge(plan, sound, quantile)[0] > args.budget:
            continue
        share = judge(plan, lost, quantile)[1]
        if share > found:
            best, found = plan, share
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description="What screening in rounds can reach.")
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--budget", type=float, default=0.17)
    parser.add_argument("--tries", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=3)
    args = parser.parse_args()
    rng = np.random.default_rng(args.seed)
    sound, lost, more_lost = (scores(n, x, rng) for n, x in ((SOUND, 0.0), (LOST, 0.03), (LOST, 0.05)))
    quantile = float(-special.ndtri(DEFAULTS.alpha * DEFAULTS.unit_share / args.nodes))
    plans: Sequence[tuple[str, Plan]] = [("default", tuple((r.z, r.launches) for r in DEFAULTS.rounds))]
    plans = [*plans, *((str(k), search(k, sound, lost, quantile, args)) for k in (3, 4, 5, 8))]
    print("| rounds | plan: standard errors, launches | more % | 3 % found % | 5 % found % |\n|---|---|--:|--:|--:|")
    for name, plan in plans:
        told = ", ".join(f"{z:g}: {extra}" for z, extra in plan)
        shares = [judge(plan, sound, quantile)[0], judge(plan, lost, quantile)[1], judge(plan, more_lost, quantile)[1]]
        print(f"| {name} | {told} | {' | '.join(f'{100 * x:.1f}' for x in shares)} |")


if __name__ == "__main__":
    main()
