"""The gloo sweep with one slow rank: a real fault for the lab, kept out of the program that measures.

Runs in the environment of the tool ``collectives``, by path: ``python delayed_rank.py <arguments of gloo_sweep.py>``.
``FABRIC_HEALTH_DELAYED_RANK=2:20`` makes rank 2 enter every collective 20 ms late, as a throttled or descheduled
process would. It names a rank by its number among all ranks, whoever of them takes part.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

VARIABLE = "FABRIC_HEALTH_DELAYED_RANK"
SWEEP = Path(__file__).resolve().parents[2] / "tools" / "collectives" / "gloo_sweep.py"


def delayed(prepare: Callable[..., Any], seconds: float) -> Callable[..., Any]:
    """Return ``prepare`` whose buffers wait before they run."""

    def late(*arguments: Any) -> Any:
        buffers = prepare(*arguments)
        run = buffers.run

        def run_late() -> None:
            time.sleep(seconds)
            run()

        return replace(buffers, run=run_late)

    return late


def main() -> int:
    """Run the sweep, late where the variable says so. Returns its exit code."""
    spec = importlib.util.spec_from_file_location("gloo_sweep", SWEEP)
    if spec is None or spec.loader is None:
        raise SystemExit(f"{SWEEP} is missing")
    sweep = importlib.util.module_from_spec(spec)
    sys.modules["gloo_sweep"] = sweep
    spec.loader.exec_module(sweep)
    rank, _, milliseconds = os.environ.get(VARIABLE, "").partition(":")
    arguments = sys.argv[1:]
    me = arguments[arguments.index("--member") + 1] if "--member" in arguments else None
    if rank and me == rank:
        for name, kind in list(sweep.KINDS.items()):
            sweep.KINDS[name] = replace(kind, prepare=delayed(kind.prepare, float(milliseconds) / 1e3))
    return int(sweep.main())


if __name__ == "__main__":
    sys.exit(main())
