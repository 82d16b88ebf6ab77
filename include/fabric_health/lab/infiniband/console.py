"""Become ibsim with a console that others can write to: ``python -m fabric_health.lab.infiniband.console PIPE ARG...``.

ibsim takes commands on its standard input only, and ends when that ends. A named pipe held open for reading and
writing never does.
"""

from __future__ import annotations

import os
import sys


def main(arguments: list[str]) -> None:
    """Replace this process by the simulator, its standard input being the pipe."""
    pipe, *argv = arguments
    os.dup2(os.open(pipe, os.O_RDWR), 0)
    os.execvp(argv[0], argv)  # noqa: S606  no shell: the simulator itself


if __name__ == "__main__":
    main(sys.argv[1:])
