"""One difference between a reference config and a running one."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

ORDER = "(order)"
"""Last part of the path of a difference that is about the order of a section's lines only."""


class Change(StrEnum):
    """What happened, seen from the reference."""

    MISSING = "missing"
    EXTRA = "extra"
    CHANGED = "changed"


@dataclass(frozen=True)
class Difference:
    """One difference, in the words of the platform.

    ``path`` names it: section headers and line joined by `` / `` on CLI platforms, an RFC 6901 JSON pointer on
    Cumulus and SONiC. It is unique within one comparison and stable between runs. ``port`` is spelled as in the
    cabling plan; ``remediation`` holds the commands that restore the reference, one per line, where they are known.
    """

    change: Change
    path: str
    parents: tuple[str, ...] = ()
    port: str | None = None
    topic: str | None = None
    expected: str | None = None
    actual: str | None = None
    remediation: str | None = None
