"""A client that loads its libraries while the server starts, and then runs each command in a fork of itself.

``python prepared.py bench`` (vLLM's command) or ``evaluate`` (lm-eval's): loading takes either longer than measuring a
small model. It says "ready" in one line; each line of its input is a command, ``{"argv": [..], "log": PATH, "folder":
PATH}``, answered with the process id and then with the exit code. What runs is the tool's own ``main``.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

# What each command imports before it works, and where it starts.
LOADED = {
    "bench": ("vllm.entrypoints.cli.main", "vllm.entrypoints.cli.benchmark.main", "vllm.benchmarks.serve"),
    "evaluate": ("lm_eval.__main__", "lm_eval.evaluator", "lm_eval.models.openai_completions", "transformers"),
}
ENTRY = {"bench": ("vllm.entrypoints.cli.main", "main"), "evaluate": ("lm_eval.__main__", "cli_evaluate")}


def load(name: str) -> Callable[[], Any]:
    """Import a command's libraries; return its ``main``. Raises ImportError."""
    if name == "bench":
        importlib.import_module("vllm_command")
    # The modules beside this file are not the tools' business.
    sys.path[:] = [p for p in sys.path if p != str(__file__).rpartition("/")[0]]
    for module in LOADED[name]:
        importlib.import_module(module)
    module, function = ENTRY[name]
    return getattr(importlib.import_module(module), function)  # type: ignore[no-any-return]


def run(main: Callable[[], Any], argv: list[str], log: str) -> int:
    """Run ``main`` with ``argv`` in this process, output in ``log``; return the exit code."""
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.dup2(out, 1)
    os.dup2(out, 2)
    os.close(out)
    sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115
    sys.argv = argv
    try:
        code = main()
    except SystemExit as error:
        code = error.code
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    if code is None or code is False:
        return 0
    return code if isinstance(code, int) else 1


def serve(main: Callable[[], Any]) -> None:
    """Answer commands until the input ends."""
    for line in sys.stdin:
        command = json.loads(line)
        child = os.fork()
        if child == 0:
            os.setsid()
            os.chdir(command["folder"])
            os._exit(run(main, command["argv"], command["log"]) & 0xFF)
        _say(child)
        _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        _say(128 - code if code < 0 else code)


def _say(word: object) -> None:
    os.write(_ANSWERS, f"{word}\n".encode())


# The answers have a pipe of their own: what a library prints while it loads must not be taken for one.
_ANSWERS = -1

if __name__ == "__main__":
    _ANSWERS = os.dup(1)
    os.dup2(2, 1)
    os.set_inheritable(_ANSWERS, False)
    entry = load(sys.argv[1])
    _say("ready")
    serve(entry)
