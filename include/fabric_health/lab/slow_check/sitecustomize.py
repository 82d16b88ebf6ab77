"""Makes the check of one node slow: every matrix product in its process takes longer, as a throttled device's would.

Loaded by Python at start in the slow agent of a check of nodes (see ../elastic_job.py), before the tool's own
sitecustomize.py, which it runs then. Only the process that computes the check is changed; what it then measures, tells
and is judged by is DLRover's.
"""

import os
import runpy
import sys
import time
from pathlib import Path

CHECK = "dlrover.trainer.torch.node_check"


def _slow(seconds: float) -> None:
    import torch  # type: ignore[import-not-found]

    product = torch.matmul

    def late(*arguments: object, **named: object) -> object:
        time.sleep(seconds)
        return product(*arguments, **named)

    torch.matmul = late


for _path in os.environ.get("PYTHONPATH", "").split(os.pathsep):
    _other = Path(_path) / "sitecustomize.py"
    if _path and _other.is_file() and not _other.samefile(__file__):
        runpy.run_path(str(_other))
_by = os.environ.get("FABRIC_HEALTH_LAB_SLOW_BY_S")
if _by and any(a.startswith(CHECK) for a in sys.orig_argv):
    try:
        _slow(float(_by))
    except Exception as error:
        raise SystemExit(f"the check cannot be made slow: {error}") from None
