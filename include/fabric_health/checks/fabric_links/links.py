"""``iblinkinfo --line``: state, width and speed of every port, and what is at the other end."""

from __future__ import annotations

import re
from dataclasses import dataclass

from fabric_health.checks.fabric_links.lanes import lane_rate_gbps, lanes

_ARROW_IN, _ARROW_OUT = "==(", ")==>"
_NEAR = re.compile(r'^(0x[0-9a-f]{16}) ".*"\s+(\d{1,5})\s+(\d{1,3})\[[^\]]{0,4}\] $')
_FAR = re.compile(r'^\s*(0x[0-9a-f]{16})\s+(\d{1,5})\s+(\d{1,3})\[[^\]]{0,4}\] ".*"(?: \(.*\))?\s*$')
_NOTHING = re.compile(r'^\s*(?:\[\s*\]\s*""(?: \(.*\))?|"Port not available")\s*$')
_LINK = re.compile(r"^(?:(\S+)\s+(\S.*?)\s+)?([A-Za-z?]+)/\s*([A-Za-z? ]+?)\s*$")


@dataclass(frozen=True)
class Link:
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
        if not line.strip():
            continue
        link = _link(line)
        if link is None or (link.guid, link.port) in links:
            unread.append(line)
        else:
            links[link.guid, link.port] = link
    return list(links.values()), unread


def _link(line: str) -> Link | None:
    if line.count(_ARROW_IN) != 1 or line.count(_ARROW_OUT) != 1:
        return None
    head, _, rest = line.partition(_ARROW_IN)
    inside, _, tail = rest.partition(_ARROW_OUT)
    near, far, how = _NEAR.match(head), _FAR.match(tail), _LINK.match(inside.strip())
    if near is None or how is None or (far is None and not _NOTHING.match(tail)):
        return None
    numbers = [int(near[2]), int(near[3]), int(far[2]) if far else 0, int(far[3]) if far else 0]
    if max(numbers[0], numbers[2]) > 0xFFFF or max(numbers[1], numbers[3]) > 254:
        return None
    return Link(
        guid=near[1][2:],
        port=numbers[1],
        lid=numbers[0],
        width=lanes(how[1]) if how[1] else None,
        lane_gbps=lane_rate_gbps(how[2].removesuffix("Gbps").strip()) if how[2] else None,
        state=how[3],
        phys_state=how[4],
        peer_guid=far[1][2:] if far else None,
        peer_port=numbers[3] if far else None,
    )
