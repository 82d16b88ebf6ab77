"""A training worker with the lab's faults: ``elastic_worker.py KINDS train.py ARGUMENTS``, started by DLRover's agent.

Runs by path in the environment of the tool ``dlrover`` (see elastic_job.py).
"""

from __future__ import annotations

import os
import runpy
import shutil
import sys
from pathlib import Path


def dies_again() -> None:
    """End at once when this worker was started again: what a node with a broken device does to every new process."""
    if os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0":
        sys.stderr.write("lab: the worker dies whenever it is started again\n")
        sys.exit(1)


def loses_checkpoints(folder: Path) -> None:
    """Empty the folder of checkpoints, and the agent's list of what it holds in memory.

    All ranks do so before their group forms, so none of them reads what another one has not yet removed.
    """
    from dlrover.python.common.multi_process import SharedDict  # type: ignore[import-not-found]

    shutil.rmtree(folder, ignore_errors=True)
    held = SharedDict(name=f"ckpt_meta_{os.environ.get('LOCAL_RANK', '0')}", create=False)
    if held.is_available():
        held.set({})
        sys.stderr.write("lab: the checkpoints are lost\n")


def main(argv: list[str]) -> None:
    """Do what the faults do, then run the training program as if it had been started itself."""
    kinds, program, *arguments = argv
    if "never-resumes" in kinds.split(","):
        dies_again()
    if "lost-checkpoints" in kinds.split(","):
        loses_checkpoints(Path(arguments[arguments.index("--checkpoints") + 1]))
    sys.argv = [program, *arguments]
    sys.path[0] = str(Path(program).parent)
    runpy.run_path(program, run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
