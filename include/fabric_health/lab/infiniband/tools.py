"""The InfiniBand tools of the system, pointed at the simulated fabric instead of at a device."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
from pathlib import Path

from fabric_health.errors import LabError
from fabric_health.lab.answer import Answer, not_installed

PACKAGES = ("ibsim-utils", "infiniband-diags", "opensm")
READ_ONLY = frozenset({"ibnetdiscover", "iblinkinfo", "ibqueryerrors", "perfquery", "saquery", "sminfo", "ibswitches"})
_PRELOAD = tuple(Path("/usr/lib").glob("*-linux-gnu/umad2sim/libumad2sim.so"))
_SBIN = ("/usr/sbin", "/sbin", "/usr/bin", "/bin")
TOOL_S = 60.0


def program(name: str) -> str:
    """Return the path of a tool. Raises LabError that names the packages when it is missing."""
    found = shutil.which(name, path=os.pathsep.join((*_SBIN, os.environ.get("PATH", ""))))
    if found is None:
        raise LabError(
            f"{name} is not installed; the lab's InfiniBand fabric needs the system packages {', '.join(PACKAGES)}: "
            f"apt-get install {' '.join(PACKAGES)}"
        )
    return found


def socket_name(root: Path) -> str:
    """Return the name of the simulator's sockets, which are abstract: one for each directory."""
    return "fh-ibsim-" + hashlib.sha256(str(root.resolve()).encode()).hexdigest()[:12]


def environment(root: Path, host: str | None = None) -> dict[str, str]:
    """Return what the simulator and the tools see. ``host`` is the node id to ask from; default the first host.

    Raises LabError when the library that stands in for the device is missing.
    """
    preload = next((p for p in _PRELOAD if p.is_file()), None)
    if preload is None:
        raise LabError(
            "libumad2sim.so is not installed; the lab's InfiniBand fabric needs the system packages "
            f"{', '.join(PACKAGES)}: apt-get install {' '.join(PACKAGES)}"
        )
    env = {k: os.environ[k] for k in ("HOME", "PATH") if k in os.environ}
    env |= {"LC_ALL": "C", "IBSIM_SOCKNAME": socket_name(root), "LD_PRELOAD": str(preload)}
    env |= {"OSM_TMP_DIR": str(root), "OSM_CACHE_DIR": str(root)}
    return env | ({"SIM_HOST": host} if host else {})


def run(root: Path, argv: tuple[str, ...], timeout_s: float = TOOL_S) -> Answer:
    """Run one tool on the fabric in ``root``, as it would answer on a node: a missing tool is 127.

    An exit by signal n is 128 + n, as a shell has it; one that takes longer than ``timeout_s`` is killed.
    """
    try:
        path = program(argv[0])
        env = environment(root)
    except LabError:
        return not_installed(argv[0])
    try:
        done = subprocess.run(
            [path, *argv[1:]], env=env, cwd=root, stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout_s
        )
    except subprocess.TimeoutExpired:
        return Answer(stderr=f"{argv[0]}: no answer within {timeout_s:g} s\n", exit_code=128 + signal.SIGKILL)
    except OSError as error:
        return Answer(stderr=f"{argv[0]}: {error.strerror or error}\n", exit_code=126)
    texts = (done.stdout.decode("utf-8", "backslashreplace"), done.stderr.decode("utf-8", "backslashreplace"))
    code = done.returncode if done.returncode >= 0 else 128 - done.returncode
    return Answer(*texts, code)
