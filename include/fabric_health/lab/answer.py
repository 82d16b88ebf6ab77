"""What a lab unit answers to one command."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Answer:
    """Exit code and output of a command, as the real tool would give them."""

    stdout: str = ""
    stderr: str = ""
    exit_code: int = 0


def not_installed(program: str) -> Answer:
    """Return what a shell answers when ``program`` does not exist."""
    return Answer(stderr=f"{program}: command not found\n", exit_code=127)
