"""Which links there should be: the cabling plan's, or without a plan those of the previous run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from fabric_health.checks.fabric_links.cables import Directory
from fabric_health.checks.fabric_links.names import short_name
from fabric_health.checks.fabric_links.settings import End
from fabric_health.checks.fabric_links.tables import FabricNode, FabricPort
from fabric_health.checks.fabric_links.view import FabricView


class WantedEnd(NamedTuple):
    """One end of a wanted link: the node's name for a person, its GUID where it was found, and the port."""

    name: str
    guid: str | None
    port: int

    def __str__(self) -> str:
        return f"{self.name} port {self.port}"


@dataclass(frozen=True)
class WantedLink:
    """A link that should be there; ``one`` is the switch's end, or the first by name."""

    one: WantedEnd
    other: WantedEnd

    @property
    def ends(self) -> tuple[tuple[WantedEnd, WantedEnd], ...]:
        """Return each end with the other one."""
        return ((self.one, self.other), (self.other, self.one))


@dataclass(frozen=True)
class Wanted:
    """All wanted links; ``ambiguous`` are names of the plan that several nodes bear."""

    links: tuple[WantedLink, ...]
    source: str
    planned: bool
    ambiguous: tuple[str, ...] = ()


def wanted(view: FabricView) -> Wanted:
    """Return the links that a fabric should have."""
    if view.settings.cabling:
        return _from_plan(view)
    return _from_previous(view)


def _from_plan(view: FabricView) -> Wanted:
    directory, absent = Directory(view.nodes.values()), Directory(view.absent.values())

    def end(planned: End) -> WantedEnd:
        guid = directory.find(planned.node)
        if guid is not None:
            return WantedEnd(view.nodes[guid].node, guid, planned.port)
        gone = absent.find(planned.node)
        return WantedEnd(view.absent[gone].node if gone else short_name(planned.node), None, planned.port)

    links = tuple(WantedLink(end(c.one), end(c.other)) for c in view.settings.cables)
    source = f"site file: checks.fabric_links, cabling of {view.name}"
    named = {end.node for c in view.settings.cables for end in (c.one, c.other)} if directory.ambiguous else set()
    ambiguous = sorted(named & directory.ambiguous)
    return Wanted(links, source, planned=True, ambiguous=tuple(ambiguous))


def _from_previous(view: FabricView) -> Wanted:
    out: list[WantedLink] = []
    done: set[tuple[str, int]] = set()

    def order(p: FabricPort) -> tuple[bool, str, int]:
        return (p.kind != "switch", p.node, p.port)

    for port in sorted(view.previous_ports.values(), key=order):
        if port.peer_guid is None or port.peer_port is None or (port.guid, port.port) in done:
            continue
        done |= {(port.guid, port.port), (port.peer_guid, port.peer_port)}
        out.append(
            WantedLink(
                _seen(view, port.guid, port.node, port.port),
                _seen(view, port.peer_guid, port.peer or port.peer_guid, port.peer_port),
            )
        )
    return Wanted(tuple(out), "the previous run; the site file has no cabling plan of this fabric", planned=False)


def _seen(view: FabricView, guid: str, name: str, port: int) -> WantedEnd:
    node: FabricNode | None = view.nodes.get(guid)
    return WantedEnd(node.node if node else name, guid if node else None, port)
