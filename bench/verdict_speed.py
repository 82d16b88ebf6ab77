"""How long a verdict takes over years of weekly runs of a large fleet, and how much memory.

A panel of ``--years`` of weekly runs, three launches, of ``--nodes`` nodes of eight GPUs each, with racks, rails and
nodes as groups, is judged as the pipeline does: who needs more launches, the fleet with its groups and units, and the
change points of every unit. One unit lost 10 % in the last run and another 6 % half a year ago.

    python bench/verdict_speed.py [--nodes 1000] [--years 5]

Prints seconds of each step (wall and processor) and the largest resident memory, that of the panel included. Exit
status 1 when the steps take more than 30 s of processor time together, or a loss is not found.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

import numpy as np

from fabric_health.verdict.fleet import judge_fleet, suspects
from fabric_health.verdict.history import judge_changes
from fabric_health.verdict.metrics import JUDGED
from fabric_health.verdict.outcome import Outcome
from fabric_health.verdict.panel import Panel

GPUS, LAUNCHES, MOST_SECONDS = 8, 3, 30
SLOW, SLOW_SINCE = 17, 42


def panel_of(nodes: int, weeks: int) -> Panel:
    """Return the panel: units differ by 0.8 %, runs by 1 %, launches by 1 %; 1 % of launches are missing."""
    rng = np.random.default_rng(1)
    units = nodes * GPUS
    performance = rng.normal(0, 0.01, (weeks, LAUNCHES, units))
    performance += 6 + rng.normal(0, 0.008, units) + rng.normal(0, 0.01, (weeks, 1, 1))
    performance[rng.random(performance.shape) < 0.01] = np.nan
    performance[-1, :, SLOW] += np.log(0.9)
    performance[-26:, :, SLOW_SINCE] += np.log(0.94)
    node = np.arange(units) // GPUS
    groups = {
        "rack": tuple(f"rack-{n // 16:03d}" for n in node),
        "rail": tuple(f"rail-{u % GPUS}" for u in range(units)),
        "node": tuple(f"gpu-{n:04d}" for n in node),
    }
    start = datetime(2021, 1, 4, tzinfo=UTC)
    at = tuple(start + timedelta(weeks=w) for w in range(weeks))
    names = tuple(f"gpu-{n:04d}/{u % GPUS}" for u, n in enumerate(node))
    return Panel(JUDGED["busbw_gbps"], "simulated", "gpu", tuple(f"week-{w}" for w in range(weeks)), at, names,
                 performance, groups)  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description="Time and memory of a verdict over years of runs.")
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--years", type=int, default=5)
    args = parser.parse_args()
    panel = panel_of(args.nodes, 52 * args.years)
    size = f"{panel.performance.nbytes / 1e6:.0f} MB"
    print(f"{len(panel.runs)} runs x {LAUNCHES} launches x {len(panel.units)} units, {size}")
    steps: list[tuple[str, Callable[[Panel], Sequence[object]]]] = [
        ("who needs more launches", lambda p: list(suspects(p))),
        ("fleet, groups, units", lambda p: judge_fleet(p)),
        ("change points", lambda p: judge_changes(p)),
    ]
    spent, results = 0.0, []
    for name, step in steps:
        wall, cpu = time.perf_counter(), time.process_time()
        results.append(step(panel))
        spent += time.process_time() - cpu
        print(f"{name:24} {time.perf_counter() - wall:6.1f} s, {time.process_time() - cpu:6.1f} s of processor, "
              f"{len(results[-1])} told")  # fmt: skip
    print(f"largest resident memory  {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:6.0f} MiB")
    told = {getattr(j, "subject", "") for j in results[2] if getattr(j, "outcome", None) is Outcome.REGRESSED}
    missed = [u for u in (panel.units[SLOW],) if u not in results[0]]
    missed += [u for u in (panel.units[SLOW_SINCE],) if u not in told]
    print(f"{spent:.1f} s of processor; not found: {missed or 'none'}", file=sys.stderr)
    return 1 if missed or spent > MOST_SECONDS else 0


if __name__ == "__main__":
    sys.exit(main())
