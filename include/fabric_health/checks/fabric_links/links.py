"""``iblinkinfo --line``: state, width and speed of every port, and what is at the other end."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from fabric_health.checks.fabric_links.lanes import lane_rate_gbps, lanes

# Between the arrows stand a width, a speed and two states.
_HOW_CHARACTERS = 80
_ARROW_IN, _ARROW_OUT = "==(", ")==>"
_NEAR = re.compile(r'^0x([0-9a-f]{16}) ".*"\s+(\d{1,5})\s+(\d{1,3})\[[^\]]{0,4}\] $')
_FAR = re.compile(r'^\s*0x([0-9a-f]{16})\s+(\d{1,5})\s+(\d{1,3})\[[^\]]{0,4}\] ".*"(?: \(.*\))?\s*$')
_NOTHING = re.compile(r'^\s*(?:\[\s*\]\s*""(?: \(.*\))?|"Port not available")\s*$')
_HOW = re.compile(r"^(?:(\S+)\s+(\S.*?)\s+)?([A-Za-z?]+)/\s*([A-Za-z? ]+?)\s*$")


class Link(NamedTuple):
    """One line: GUIDs as printed (of the port at a CA), 16 hex digits; None where the tool shows nothing."""

    guid: str
    port: int
    lid: int
    width: int | None
    lane_gbps: float | None
    state: str
    phys_state: str
    peer_guid: str | None
    peer_port: int | None


def parse_links(text: str) -> tuple[list[Link], list[str]]:
    """Return the links and the lines that could not be read. Never raises.

    A line with a second arrow is not read: a node description that imitates one could otherwise pass for a link. So
    is a second line for the same port.
    """
    links: dict[tuple[str, int], Link] = {}
    unread: list[str] = []
    for line in text.splitlines():
        link = _link(line)
        if link is not None:
            if links.setdefault((link.guid, link.port), link) is not link:
                unread.append(line)
        elif line.strip():
            unread.append(line)
    return list(links.values()), unread


def _link(line: str) -> Link | None:
    if line.count(_ARROW_IN) != 1 or line.count(_ARROW_OUT) != 1:
        return None
    head, _, rest = line.partition(_ARROW_IN)
    inside, _, tail = rest.partition(_ARROW_OUT)
    near, far, how = _NEAR.match(head), _FAR.match(tail), _how(inside) if len(inside) <= _HOW_CHARACTERS else None
    if near is None or how is None or (far is None and not _NOTHING.match(tail)):
        return None
    guid, lid, port = near[1], int(near[2]), int(near[3])
    if lid > 0xFFFF or port > 254:
        return None
    if far is None:
        return Link(guid, port, lid, *how, None, None)
    peer_guid, peer_lid, peer_port = far[1], int(far[2]), int(far[3])
    if peer_lid > 0xFFFF or peer_port > 254:
        return None
    return Link(guid, port, lid, *how, peer_guid, peer_port)


# The links of a fabric differ in little: thousands of lines share a dozen of these texts.
@lru_cache(maxsize=256)
def _how(inside: str) -> tuple[int | None, float | None, str, str] | None:
    """Return width, Gb/s of a lane, logical and physical state; None for text that is not of the tool's form."""
    found = _HOW.match(inside.strip())
    if found is None:
        return None
    width, speed, state, phys_state = found.groups()
    return (
        lanes(width) if width else None,
        lane_rate_gbps(speed.removesuffix("Gbps").strip()) if speed else None,
        state,
        phys_state,
    )
