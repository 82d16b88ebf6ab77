"""What some tests need and takes minutes to make: the Kubernetes API server's programs, and the tools' environments.

Both are made once, kept, and found again; two makers wait for each other. ``make test`` starts making them before it
lints (see :mod:`beside`); a test that needs one makes it, or waits for it, by its fixture.
"""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
if str(ROOT / "include") not in sys.path:
    sys.path.insert(0, str(ROOT / "include"))

from fabric_health.jobs import environments  # noqa: E402 - found on the path that is set above

TOOLS = ROOT / "include" / "tools"
ASSETS_SCRIPT = ROOT / "deploy" / "kubernetes-assets.sh"
ASSETS = Path(os.environ.get("KUBEBUILDER_ASSETS", "~/.cache/fabric-health/kubebuilder")).expanduser()
# Environments that tests use, in the order in which they are made beside `make test`.
USED = ("collectives", "dlrover", "llm-compressor", "vllm")


class NotPreparedError(Exception):
    """What a test needs could not be made; the message ends with what its maker said last."""


def home() -> Path:
    """Return the folder that keeps the tools' environments, in ``tools``, from one session to the next."""
    return Path(os.environ.get("FABRIC_HEALTH_TEST_TOOLS", ROOT / ".fabric-health")).resolve()


def once(make: Callable[..., Path]) -> Callable[..., Path]:
    """Let what could not be made fail at once when it is asked for again: it took minutes to fail."""
    failed: dict[tuple[object, ...], str] = {}

    @functools.wraps(make)
    def made(*asked: object) -> Path:
        if asked in failed:
            raise NotPreparedError(failed[asked])
        try:
            return make(*asked)
        except NotPreparedError as error:
            failed[asked] = str(error)
            raise

    return made


@once
def tool_python(tool: str) -> Path:
    """Return the interpreter of a tool's environment, made if need be. Raises NotPreparedError with pip's words."""
    try:
        return environments.ensure(tool, TOOLS, home(), functools.partial(print, flush=True))
    except environments.ToolEnvironmentError as error:
        raise NotPreparedError(str(error)) from None


@once
def kubernetes_assets() -> Path:
    """Return the folder with etcd and kube-apiserver, made if need be. Raises NotPreparedError with its end."""
    process = subprocess.Popen(
        [ASSETS_SCRIPT],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        process_group=0,
    )
    try:
        said, _ = process.communicate()
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait()
    if process.returncode:
        end = "\n".join(said.splitlines()[-30:])
        raise NotPreparedError(f"{ASSETS_SCRIPT.name} ended with {process.returncode}:\n{end}")
    return ASSETS


def main() -> int:
    """Make the environments that tests use, one after the other, also after one that cannot be made."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    failed = 0
    for tool in USED:
        try:
            print(f"{time.strftime('%H:%M:%S')} {tool_python(tool)}", flush=True)
        except NotPreparedError as error:
            failed = 1
            print(f"{time.strftime('%H:%M:%S')} {error}", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
