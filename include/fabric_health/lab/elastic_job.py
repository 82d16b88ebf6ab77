"""The elastic training job with the faults that the lab puts into it: real ones, kept out of the program that measures.

Runs in the environment of the tool ``dlrover``, by path and without this package: ``python elastic_job.py <arguments
of elastic_smoke.py>``. Faults are read from the lab's state below ``FABRIC_HEALTH_HOME`` when a run starts:

- ``never-resumes`` on ``elastic``: a worker that is started again dies at once, until the job's restarts are used up.
- ``lost-checkpoints`` on ``elastic``: a worker finds no checkpoint, in memory or on disk, and starts at step 0.
- ``slow-node-check`` on ``elastic/agent-3``: in the check of nodes that agent's matrix products take so much longer.

Without a lab the job is left alone.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

WORKER_KINDS = ("never-resumes", "lost-checkpoints")
SLOW_KIND = "slow-node-check"
UNIT = "elastic"
AGENT_UNIT = "elastic/agent-"
HERE = Path(__file__).resolve().parent
TOOL = HERE.parents[1] / "tools" / "dlrover"
WORKER = HERE / "elastic_worker.py"
# Python loads sitecustomize.py from here when the slow agent or its check starts.
SLOW_CHECK = HERE / "slow_check"
SLOW_BY = "FABRIC_HEALTH_LAB_SLOW_BY_S"


@dataclass(frozen=True)
class Faults:
    """Faults of workers, and for each slow agent the time in s that is added to a matrix product of its check."""

    of_workers: tuple[str, ...] = ()
    slow_s: dict[int, float] = field(default_factory=dict)


def faults(home: str | None) -> Faults:
    """Return the faults of the lab in ``home``. Raises SystemExit for a state that is none.

    A run that silently leaves out its fault would be a wrong one.
    """
    path = Path(home or "") / "lab" / "state.json"
    if not home or not path.is_file():
        return Faults()
    try:
        known = json.loads(path.read_text(encoding="utf-8"))["faults"]
        of_workers = {str(f["kind"]) for f in known if f["kind"] in WORKER_KINDS and f["unit"] == UNIT}
        slow = [f for f in known if f["kind"] == SLOW_KIND]
        slow_s = {int(f["unit"].removeprefix(AGENT_UNIT)): float(f["value"]) / 1e6 for f in slow}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise SystemExit(f"{path}: {error!r}; expected the lab's state") from None
    return Faults(tuple(k for k in WORKER_KINDS if k in of_workers), slow_s)


def as_worker(program: Callable[..., list[str]], kinds: tuple[str, ...]) -> Callable[..., list[str]]:
    """Return ``program`` (of elastic_agents) whose training is started by the lab's worker."""

    def through_the_lab(*arguments: Any) -> list[str]:
        return [str(WORKER), ",".join(kinds), *program(*arguments)]

    return through_the_lab


def slowed(environment: Callable[..., dict[str, str]], slow_s: dict[int, float]) -> Callable[..., dict[str, str]]:
    """Return ``agent_environment`` (of elastic_node_check) in which the named agents load what makes them slow."""

    def of_agent(place: Any, node: int) -> dict[str, str]:
        given = environment(place, node)
        if node not in slow_s:
            return given
        paths = os.pathsep.join((str(SLOW_CHECK), given["PYTHONPATH"]))
        return {**given, "PYTHONPATH": paths, SLOW_BY: str(slow_s[node])}

    return of_agent


def main() -> int:
    """Run the job, with the lab's faults where there are some. Returns its exit code."""
    found = faults(os.environ.get("FABRIC_HEALTH_HOME"))
    if not (TOOL / "elastic_smoke.py").is_file():
        raise SystemExit(f"{TOOL / 'elastic_smoke.py'} is missing")
    sys.path.insert(0, str(TOOL))
    import elastic_agents  # type: ignore[import-not-found]
    import elastic_node_check  # type: ignore[import-not-found]
    import elastic_smoke  # type: ignore[import-not-found]

    if found.of_workers:
        elastic_agents.program = as_worker(elastic_agents.program, found.of_workers)
    if found.slow_s:
        elastic_node_check.agent_environment = slowed(elastic_node_check.agent_environment, found.slow_s)
    return int(elastic_smoke.main())


if __name__ == "__main__":
    sys.exit(main())
