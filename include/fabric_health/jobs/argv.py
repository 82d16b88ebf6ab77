"""Placeholders in a job's command line, filled in by the backend that runs it."""

from __future__ import annotations

import re
from collections.abc import Mapping

from fabric_health.errors import UsageError

_PLACEHOLDER = re.compile(r"\{(python|tool|artefacts|hosts)\}")


def filled(argv: tuple[str, ...], values: Mapping[str, str]) -> tuple[str, ...]:
    """Return ``argv`` with its placeholders replaced by ``values``; other braces stay as they are.

    Raises UsageError for a placeholder that has no value here, or an empty command line.
    """
    if not argv:
        raise UsageError("a job without a command line; expected argv of at least one word")

    def value(found: re.Match[str]) -> str:
        if found[1] not in values:
            raise UsageError(f"argv has {found[0]}, which this backend cannot fill in")
        return values[found[1]]

    return tuple(_PLACEHOLDER.sub(value, a) for a in argv)
