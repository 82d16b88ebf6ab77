"""The nodes, their places in the fabric, and what of it can be at fault."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property


class Kind(StrEnum):
    """What can be slow, and in which groups of nodes it shows."""

    NODE = "node"  # any group with the node
    LEAF = "leaf"  # any group with a node of the domain: the leaf switch itself
    UPLINK = "uplink"  # groups with nodes of the domain and of another one
    POD = "pod"  # groups with nodes of the pod and of another one
    PATH = "path"  # groups with nodes of both domains: each half passes, together they are slow
    SPINE = "spine"  # any group of more than one domain


WHOLE = "whole"  # slows every rail of its place
TOGETHER = "together"  # shows only when all rails run at once (host, PCIe switch), on no single rail


@dataclass(frozen=True, order=True)
class Component:
    """One thing that can be at fault. ``place`` names it; ``rail`` is set when only that rail of it is slow."""

    kind: Kind
    place: str
    rail: int | None = None

    def __str__(self) -> str:
        """Return e.g. ``node gpu-007 rail 3``."""
        return f"{self.kind} {self.place}" + ("" if self.rail is None else f" rail {self.rail}")


@dataclass(frozen=True)
class Place:
    """Where a node is: its domain (the nodes below one leaf or in one rack) and the pod of that domain, if any."""

    domain: str
    pod: str = ""


@dataclass(frozen=True)
class Fleet:
    """Nodes by name with their places; ``rails`` per node. Order of ``nodes`` carries no meaning but neighbourhood."""

    nodes: Mapping[str, Place]
    rails: int = 8

    domains: Mapping[str, tuple[str, ...]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Group the nodes by domain.

        :raises ValueError: fewer than two nodes, no rail, or one domain in two pods.
        """
        if len(self.nodes) < 2:
            raise ValueError("isolation needs at least two nodes: a node is told from another by a second partner")
        if self.rails < 1:
            raise ValueError(f"rails per node: expected 1 or more, got {self.rails}")
        domains: dict[str, list[str]] = {}
        pods: dict[str, str] = {}
        for node, place in self.nodes.items():
            domains.setdefault(place.domain, []).append(node)
            if pods.setdefault(place.domain, place.pod) != place.pod:
                raise ValueError(f"domain {place.domain} is in two pods: {pods[place.domain]} and {place.pod}")
        object.__setattr__(self, "domains", {d: tuple(members) for d, members in domains.items()})

    @classmethod
    def of(cls, domains: Mapping[str, Iterable[str]], pods: Mapping[str, str] | None = None, rails: int = 8) -> Fleet:
        """Return a fleet from nodes by domain and, where the fabric has three tiers, pods by domain."""
        places = {n: Place(d, (pods or {}).get(d, "")) for d, members in domains.items() for n in members}
        return cls(places, rails)

    def domains_of(self, nodes: Iterable[str]) -> frozenset[str]:
        """Return the domains that ``nodes`` touch."""
        return frozenset(self.nodes[n].domain for n in nodes)

    @cached_property
    def pods(self) -> Mapping[str, tuple[str, ...]]:
        """Domains by pod; domains without a pod are left out."""
        found: dict[str, list[str]] = {}
        for domain, members in self.domains.items():
            if pod := self.nodes[members[0]].pod:
                found.setdefault(pod, []).append(domain)
        return {pod: tuple(domains) for pod, domains in found.items()}

    @cached_property
    def components(self) -> tuple[Component, ...]:
        """Every component that some test can tell from the others.

        With two domains their uplinks, the path and the spine show in the same groups, so they are one component: the
        path between them. The same holds for two pods.
        """
        domains = sorted(self.domains)
        found = [Component(Kind.NODE, n) for n in self.nodes]
        if len(domains) > 1:
            found += [Component(Kind.LEAF, d) for d in domains if len(self.domains[d]) > 1]
        if len(domains) > 2:
            found += [Component(Kind.UPLINK, d) for d in domains]
            found.append(Component(Kind.SPINE, "all domains"))
            found += self._pod_components
        found += [Component(Kind.PATH, f"{a} - {b}") for i, a in enumerate(domains) for b in domains[i + 1 :]]
        return tuple(found)

    @cached_property
    def _pod_components(self) -> list[Component]:
        """A pod of one domain is that domain's uplink; two pods have one boundary, named after the first."""
        pods = sorted(pod for pod, domains in self.pods.items() if len(domains) > 1)
        return [Component(Kind.POD, pod) for pod in (pods[:1] if len(self.pods) == 2 else pods)]

    def domains_behind(self, kind: Kind, place: str) -> frozenset[str]:
        """Return the domains whose traffic a component of this kind and place carries; none for a node."""
        if kind in (Kind.LEAF, Kind.UPLINK):
            return frozenset({place})
        if kind is Kind.PATH:
            return frozenset(place.split(" - "))
        if kind is Kind.POD:
            return frozenset(self.pods[place])
        return frozenset(self.domains) if kind is Kind.SPINE else frozenset()

    def shows_between(self, kind: Kind, place: str, domains: Iterable[str]) -> bool:
        """Return whether a group of these domains (two or more) shows a fault of ``place``; never for a node."""
        touched, behind = set(domains), self.domains_behind(kind, place)
        if kind is Kind.PATH:
            return behind <= touched
        return bool(behind & touched) and (kind is not Kind.POD or not touched <= behind)
