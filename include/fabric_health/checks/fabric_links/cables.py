"""The cabling plan laid over what discovery found: which node each end names, and what each link should run at."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from fabric_health.checks.fabric_links.discovery import Discovery
from fabric_health.checks.fabric_links.names import short_name
from fabric_health.checks.fabric_links.settings import End, FabricSettings, LinkProfile, PlannedCable, node_key


class _Named(Protocol):
    @property
    def guid(self) -> str: ...
    @property
    def description(self) -> str: ...


class Directory:
    """Finds nodes by GUID, by whole description or by short name; a name that several nodes bear finds none."""

    def __init__(self, nodes: Iterable[_Named]) -> None:
        self._guids: set[str] = set()
        by_name: dict[str, set[str]] = defaultdict(set)
        for node in nodes:
            self._guids.add(node.guid)
            for name in {node.description, short_name(node.description)}:
                by_name[name].add(node.guid)
        self._by_name = {name: next(iter(guids)) for name, guids in by_name.items() if len(guids) == 1}
        self._found: dict[str, str | None] = {}
        self.ambiguous = {name for name, guids in by_name.items() if len(guids) > 1}

    def find(self, name: str) -> str | None:
        """Return the GUID of the node that ``name`` (as in the plan) stands for."""
        # A plan names a switch once for each of its cables.
        if name not in self._found:
            key = node_key(name)
            self._found[name] = key if key in self._guids else self._by_name.get(name)
        return self._found[name]


@dataclass(frozen=True)
class Expected:
    """What a link should be; None where it is not judged. ``kind`` is ``host`` or ``trunk``, None without a peer."""

    kind: str | None
    width: int | None
    lane_gbps: float | None


@dataclass(frozen=True)
class Expectations:
    """What every port of a fabric should run at: by its planned cable, else by what is at both ends."""

    fabric: FabricSettings
    kinds: dict[str, str]
    planned: dict[tuple[str, int], tuple[PlannedCable, str | None]] = field(default_factory=dict)

    @classmethod
    def of(cls, fabric: FabricSettings, discovery: Discovery) -> Expectations:
        """Lay the fabric's plan over the nodes that were discovered."""
        find = Directory(discovery.nodes.values()).find
        planned: dict[tuple[str, int], tuple[PlannedCable, str | None]] = {}
        for cable in fabric.cables:
            one, other = find(cable.one.node), find(cable.other.node)
            if one is not None:
                planned[one, cable.one.port] = (cable, other)
            if other is not None:
                planned[other, cable.other.port] = (cable, one)
        return cls(fabric, {g: n.kind for g, n in discovery.nodes.items()}, planned)

    def profile(self, guid: str, port: int, peer: str | None) -> Expected:
        """Return what the link of a port should be."""
        cable, planned_peer = self.planned.get((guid, port), (None, None))
        far = peer or planned_peer
        kind = None
        if self.kinds.get(guid) != "switch":
            kind = "host"
        elif far is not None:
            kind = "trunk" if self.kinds.get(far) == "switch" else "host"
        by_kind = LinkProfile() if kind is None else self.fabric.hosts if kind == "host" else self.fabric.trunks
        own = cable.profile if cable is not None and cable.profile is not None else by_kind
        return Expected(kind, own.width, own.speed)


def end_name(end: End) -> str:
    """Return how an end of the plan is written for a person."""
    return f"{short_name(end.node)} port {end.port}"
