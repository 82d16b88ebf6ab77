"""The log of ``ibdiagnet``: its lines are marked -I- (information), -W- (warning) and -E- (error)."""

from __future__ import annotations

from dataclasses import dataclass

from fabric_health.checks.fabric_links.answers import printable

MAX_LINE = 200


@dataclass(frozen=True)
class DiagnetLog:
    """Marked lines of a log, in order, without their mark."""

    errors: tuple[str, ...]
    warnings: tuple[str, ...]


def parse_log(text: str) -> DiagnetLog | None:
    """Return errors and warnings; None for a text without a single marked line, which is no such log."""
    marked: dict[str, list[str]] = {"-E-": [], "-W-": [], "-I-": []}
    for line in text.splitlines():
        stripped = line.strip()
        if stripped[:3] in marked:
            marked[stripped[:3]].append(printable(stripped[3:]).strip()[:MAX_LINE])
    if not any(marked.values()):
        return None
    return DiagnetLog(tuple(marked["-E-"]), tuple(marked["-W-"]))
