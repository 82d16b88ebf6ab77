"""Placeholders in a job's command line and environment, filled in by the backend that runs it."""

from __future__ import annotations

import re
from collections.abc import Mapping

from fabric_health.errors import UsageError

RANK = "{rank}"
MODELS = "{models}"
_PLACEHOLDER = re.compile(r"\{(python|tool|artefacts|hosts|models)\}")


def filled(argv: tuple[str, ...], values: Mapping[str, str], rank: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Return ``argv`` with its placeholders replaced by ``values``; other braces stay as they are.

    The word ``{rank}`` is where the command line of the ranks begins; ``rank`` takes its place. With any, what comes
    after keeps ``{artefacts}``: only the node of a rank knows its folder.

    Raises UsageError for a placeholder that has no value here, or an empty command line.
    """
    if not argv:
        raise UsageError("a job without a command line; expected argv of at least one word")
    if RANK in argv:
        at = argv.index(RANK)
        if at in (0, len(argv) - 1):
            raise UsageError(f"argv has {RANK} at an end; expected a launcher before it and a program after it")
        inner = {**values, "artefacts": "{artefacts}"} if rank else values
        return (*filled(argv[:at], values), *rank, *filled(argv[at + 1 :], inner))

    def value(found: re.Match[str]) -> str:
        if found[1] not in values:
            raise UsageError(f"argv has {found[0]}, which this backend cannot fill in")
        return values[found[1]]

    return tuple(_PLACEHOLDER.sub(value, a) for a in argv)


def filled_env(env: Mapping[str, str], values: Mapping[str, str]) -> dict[str, str]:
    """Return plain environment values with their placeholders filled. Raises UsageError for a name that is none."""
    for name in env:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise UsageError(f"environment variable {name!r}: expected letters, digits and underscores")
    return {k: filled((v,), values)[0] for k, v in env.items()}


def uses_models(argv: tuple[str, ...], env: Mapping[str, str]) -> bool:
    """Return whether a job's command line or its environment names the folder of models."""
    return any(MODELS in text for text in (*argv, *env.values()))
