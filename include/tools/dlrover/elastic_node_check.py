"""DLRover's own check of nodes before training, over agents on this machine: each computes and talks to a partner.

DLRover excludes a straggler, a node that takes more than twice the median time, and wants four nodes or more for that:
of two neither is above twice their mean. The agents are stock ``dlrover-run --network-check --exclude-straggler``; only
the folder in which a node keeps its check's times, one fixed path that a pod has for itself, is each agent's own
(``own_folder/sitecustomize.py``). Nothing is trained: after the check the program prints a line and ends.
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import elastic_agents
from elastic_agents import Agent, Place, Plan
from elastic_memory import Peak

FEWEST = 4
FOLDER = "FABRIC_HEALTH_NODE_FOLDER"
# Python loads sitecustomize.py from here when an agent or its check starts.
OWN_FOLDER = Path(__file__).resolve().parent / "own_folder"
LOOK_S = 0.1


def run(plan: Plan, place: Place, report: dict[str, Any], started: list[Agent], peak: Peak) -> str:
    """Run the check on all agents. Returns what went wrong with the run; what the check found is in the logs."""
    until = time.monotonic() + plan.limit_s
    # A node that the check turns away leaves the others, which then go on without it.
    plan = replace(plan, min_agents=plan.agents - 1, max_restarts=0)
    report["min_agents"], report["max_restarts"], report["steps_asked"] = plan.min_agents, plan.max_restarts, 0
    elastic_agents.start_master(place, plan.agents, plan.out, until)
    argv = [*elastic_agents.agent_arguments(plan), "--network-check", "--exclude-straggler", str(Path(__file__))]
    for node in range(plan.agents):
        more = agent_environment(place, node)
        started.append(elastic_agents.start_agent(place, plan, node, node, f"agent-{node}", argv, more))
    while any(a.process.poll() is None for a in started):
        peak.look()
        if time.monotonic() > until:
            return f"not finished after {plan.limit_s:g} s"
        time.sleep(LOOK_S)
    codes = [a.process.returncode for a in started]
    return "" if any(c == 0 for c in codes) else f"no agent passed the check: exit codes {codes}"


def agent_environment(place: Place, node: int) -> dict[str, str]:
    """Return what an agent of the check has in its environment beside that of any agent."""
    return {FOLDER: str(place.scratch / f"node-{node}"), "PYTHONPATH": str(OWN_FOLDER)}


if __name__ == "__main__":
    # The program that an agent runs once its node has passed.
    sys.stdout.write(f"node {os.environ.get('NODE_RANK')} passed\n")
