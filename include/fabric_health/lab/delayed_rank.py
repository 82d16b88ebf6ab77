"""The gloo sweep with the ranks that the lab delays: a real fault, kept out of the program that measures.

Runs in the environment of the tool ``collectives``, by path and without this package: ``python delayed_rank.py
<arguments of gloo_sweep.py>``. A fault ``delayed-rank`` on ``localhost/rank-3`` makes rank 3 enter every collective
that many microseconds late, as a throttled or descheduled process would, whoever takes part in it. Faults are read
from the lab's state below ``FABRIC_HEALTH_HOME`` when a launch starts; without a lab nobody is late.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

KIND = "delayed-rank"
UNIT = "localhost/rank-"
SWEEP = Path(__file__).resolve().parents[2] / "tools" / "collectives" / "gloo_sweep.py"


def delays(home: str | None) -> dict[int, float]:
    """Return the delay in s of each rank that the lab in ``home`` delays. Raises SystemExit for a state that is none.

    A measurement that silently leaves out its fault would be a wrong one.
    """
    path = Path(home or "") / "lab" / "state.json"
    if not home or not path.is_file():
        return {}
    try:
        faults = [f for f in json.loads(path.read_text(encoding="utf-8"))["faults"] if f["kind"] == KIND]
        return {int(f["unit"].removeprefix(UNIT)): float(f["value"]) / 1e6 for f in faults}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise SystemExit(f"{path}: {error!r}; expected the lab's state") from None


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


def delay(sweep: ModuleType, late: Mapping[int, float]) -> None:
    """Make the program's ranks late: each is a process, which prepares its collectives when it starts."""
    part = sweep.sweep

    def as_rank(options: Any, group: Any, member: int, folder: Path) -> int:
        if member in late:
            for name, kind in list(sweep.KINDS.items()):
                sweep.KINDS[name] = replace(kind, prepare=delayed(kind.prepare, late[member]))
        return int(part(options, group, member, folder))

    sweep.sweep = as_rank  # type: ignore[attr-defined]


def main() -> int:
    """Run the sweep, late where the lab says so. Returns its exit code."""
    spec = importlib.util.spec_from_file_location("gloo_sweep", SWEEP)
    if spec is None or spec.loader is None:
        raise SystemExit(f"{SWEEP} is missing")
    sweep = importlib.util.module_from_spec(spec)
    sys.modules["gloo_sweep"] = sweep
    spec.loader.exec_module(sweep)
    delay(sweep, delays(os.environ.get("FABRIC_HEALTH_HOME")))
    return int(sweep.main())


if __name__ == "__main__":
    sys.exit(main())
