"""How often the interval of a before/after comparison holds the truth, and how often its verdict is wrong.

Simulated changes on ``units`` units beside ``controls`` control units, 3 launches each before and after. Laws, in log
performance: each launch has normal noise of 2 %; a unit wanders from run to run by 0.3 % (normal) and the whole fabric
by 0.3 %. ``spikes``: 2 % of launches also lose a share drawn from an exponential of mean 8 %. ``heavy``: launch noise
is Student's t with 3 degrees of freedom of the same standard deviation. ``wander``: a unit wanders by 1 %.
``history`` is a comparison without control units in which the three noises are known. ``none`` has neither: what it
estimates is the shift between the two runs, the day's part included, and that is the truth which its interval is held
against; whatever the day does to all units then counts against its verdicts, which no target is set for.

    python bench/verdict_intervals.py [--repeats 1000] [--seed 1]

Prints a Markdown table: coverage of the 95 % interval at a loss of 5 %; false alarms (REGRESSED when nothing
changed); PASS when the loss is as large as the margin of 3 %; a 5 % loss found; median half-width of the interval. The
last four are of the comparison as a whole, units judged alone included. Exit status 1 when an interval holds in less
than 93 % of cases, or false alarms or false PASS exceed 5 %, by more than chance (three standard errors).
"""

from __future__ import annotations

import argparse
import math
import sys
from dataclasses import dataclass

import numpy as np

from fabric_health.verdict.outcome import Judgement, Metric, Outcome
from fabric_health.verdict.paired import PairedSettings, assess
from fabric_health.verdict.panel import difference_of, loss_of
from fabric_health.verdict.power import Noise

METRIC = Metric("busbw_gbps", higher_is_better=True, margin=0.03)
LOSS = 0.05
LAUNCHES, NOISE, WANDER, RUN = 3, 0.02, 0.003, 0.003
DESIGNS = ((1, 12), (2, 2), (2, 12), (4, 4), (4, 12), (8, 0), (8, 8), (16, 0), (16, 16))
HISTORY = ((1, 0), (2, 0), (4, 0), (8, 0))
LAWS = ("normal", "spikes", "heavy", "wander")
Launches = dict[str, list[float]]


@dataclass(frozen=True)
class Row:
    """Shares of the repeats, and the median half-width in percent."""

    coverage: float
    false_alarms: float
    false_pass: float
    found: float
    half_width: float


def launches(random: np.random.Generator, law: str, units: int, shift: float) -> Launches:
    """Return one run of some units, whose levels the caller has shifted by a difference of log performance."""
    wander = 0.01 if law == "wander" else WANDER
    level = random.normal(0, wander, units)[:, None] - shift
    if law == "heavy":
        noise = random.standard_t(3, (units, LAUNCHES)) * NOISE / math.sqrt(3)
    else:
        noise = random.normal(0, NOISE, (units, LAUNCHES))
    if law == "spikes":
        noise = noise - (random.random((units, LAUNCHES)) < 0.02) * random.exponential(0.08, (units, LAUNCHES))
    values = 360 * np.exp(level + noise)
    return {f"gpu-{i:03}": list(map(float, row)) for i, row in enumerate(values)}


def once(
    random: np.random.Generator, law: str, units: int, controls: int, loss: float, known: bool
) -> tuple[Judgement, float]:
    """Simulate and judge one change. Return the judgement and the loss that its interval should hold."""
    day = random.normal(0, RUN * math.sqrt(2))
    before, after = launches(random, law, units, 0.0), launches(random, law, units, difference_of(loss) + day)
    beside = launches(random, law, controls, 0.0), launches(random, law, controls, day)
    apart = tuple({f"calm-{u}": v for u, v in side.items()} for side in beside)
    settings = PairedSettings(noise=Noise(NOISE, 0.01 if law == "wander" else WANDER, RUN) if known else None)
    calm = (apart[0], apart[1]) if controls else None
    found = assess(before, after, metric=METRIC, controls=calm, settings=settings).judgement
    return found, loss if controls or known else loss_of(difference_of(loss) + day)


def measure(law: str, units: int, controls: int, known: bool, repeats: int, seed: int) -> Row:
    """Judge ``repeats`` changes each without a loss, with one of the margin and with one of ``LOSS``."""
    random = np.random.default_rng(seed)

    def judged(loss: float) -> list[tuple[Judgement, float]]:
        return [once(random, law, units, controls, loss, known) for _ in range(repeats)]

    def share(found: list[tuple[Judgement, float]], outcome: Outcome) -> float:
        return sum(j.outcome is outcome for j, _ in found) / repeats

    slow = judged(LOSS)
    # Where one unit alone makes the verdict, the interval is its own, at a stricter level, and counts as such.
    bounds = [(j.loss_low, t, j.loss_high) for j, t in slow if j.loss_low is not None and j.loss_high is not None]
    return Row(
        sum(low <= truth <= high for low, truth, high in bounds) / max(1, len(bounds)),
        share(judged(0.0), Outcome.REGRESSED),
        share(judged(METRIC.margin), Outcome.PASS),
        share(slow, Outcome.REGRESSED),
        float(np.median([(high - low) / 2 for low, _, high in bounds])) if bounds else math.nan,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    chance = 3 * math.sqrt(0.05 * 0.95 / options.repeats)
    print("| units | controls | noise | interval holds | false alarms | false PASS | 5 % found | half-width |")
    print("|---|---|---|---|---|---|---|---|")
    missed = 0
    for known, designs in ((False, DESIGNS), (True, HISTORY)):
        for units, controls in designs:
            for law in LAWS:
                row = measure(law, units, controls, known, options.repeats, options.seed)
                beside = "history" if known else controls or "none"
                shares = (row.coverage, row.false_alarms, row.false_pass, row.found, row.half_width)
                print(f"| {units} | {beside} | {law} | {' | '.join(f'{x:.1%}' for x in shares)} |", flush=True)
                wrong = max(row.false_alarms, row.false_pass) if controls or known else 0.0
                missed += row.coverage < 0.93 - chance or wrong > 0.05 + chance
    if missed:
        print(f"{missed} rows miss a target", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
