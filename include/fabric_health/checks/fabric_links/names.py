"""What nodes of a fabric are called in rows and findings."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from fabric_health.checks.fabric_links.answers import printable
from fabric_health.checks.fabric_links.discovery import Discovered

# What managed switches of NVIDIA call themselves: `MF0;leaf001:MQM9700/U1`.
_MANAGED_SWITCH = re.compile(r"^MF\d;([^:;]{1,64}):[^/]{1,64}/[A-Z]\d{1,2}$")
MAX_NAME = 80


def short_name(description: str) -> str:
    """Return the name within a node description: ``leaf001`` of ``MF0;leaf001:MQM9700/U1``; others as they are."""
    text = " ".join(printable(description).split())
    found = _MANAGED_SWITCH.match(text)
    return (found[1] if found else text)[:MAX_NAME]


def names_of(nodes: Iterable[Discovered]) -> dict[str, str]:
    """Return a name for every GUID: the short name where it is the only one, with the GUID where it is not."""
    short = {n.guid: short_name(n.description) for n in nodes}
    count = Counter(short.values())
    return {g: s if s and count[s] == 1 else f"{s} {g}".strip() for g, s in short.items()}
