"""Load and expand a site file: one cluster's nodes, switches, cabling plan, storage and expected state.

The file is YAML with node ranges (``gpu-[001-016]``, ClusterShell syntax). :func:`load_site` either returns a fully
expanded :class:`Site` or raises :class:`~fabric_health.errors.SiteError` naming file, line and key of every fault.
The file's own keys are in :mod:`fabric_health.site_file`; what others need of them is here too.
"""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from ClusterShell.NodeSet import NodeSet, NodeSetException
from ClusterShell.NodeUtils import GroupResolverError

from fabric_health.errors import SiteError, UsageError
from fabric_health.site_expected import expected_changes, names_in
from fabric_health.site_file import (
    MAX_SITE_BYTES,
    CableGroup,
    ExpectedChange,
    Identifier,
    Nic,
    NodeGroup,
    PciAddress,
    Platform,
    PortProfile,
    ReachProfile,
    Retention,
    SiteFile,
    SiteSource,
    Sku,
    Storage,
    SwitchGroup,
    Thresholds,
    read_site_file,
)
from fabric_health.verdict.expected import Expected

__all__ = [
    "Cable",
    "CableGroup",
    "ExpectedChange",
    "Fabric",
    "Identifier",
    "Nic",
    "Node",
    "NodeGroup",
    "PciAddress",
    "Platform",
    "PortProfile",
    "ReachProfile",
    "Retention",
    "Site",
    "SiteFile",
    "Sku",
    "Storage",
    "Switch",
    "SwitchGroup",
    "Thresholds",
    "expand",
    "load_site",
]

MAX_UNITS = 100_000


@dataclass(frozen=True)
class Node:
    """One node of the site, expanded."""

    name: str
    sku_name: str
    sku: Sku
    rack: str
    address: str
    reach: ReachProfile
    kind: Literal["node"] = "node"

    def nic_unit(self, nic: str) -> str:
        """Return the unit id of a NIC: ``gpu-001/mlx5_3``."""
        return f"{self.name}/{nic}"

    def gpu_unit(self, index: int) -> str:
        """Return the unit id of a GPU by its index in PCI bus order: ``gpu-001/gpu3``."""
        return f"{self.name}/gpu{index}"


@dataclass(frozen=True)
class Switch:
    """One switch of the site, expanded; ``golden`` is the text of its golden config, None where none is given."""

    name: str
    platform: Platform
    role: str
    rack: str | None
    address: str
    reach: ReachProfile
    golden: str | None
    kind: Literal["switch"] = "switch"

    def port_unit(self, port: str) -> str:
        """Return the unit id of a port: ``leaf-2/Ethernet12``."""
        return f"{self.name}/{port}"


@dataclass(frozen=True)
class Fabric:
    """One InfiniBand fabric, asked as a whole from one place on it: a node of the site, or the machine we run on."""

    name: str
    via: str
    address: str
    reach: ReachProfile
    kind: Literal["fabric"] = "fabric"


@dataclass(frozen=True)
class Cable:
    """One planned cable: switch ``port`` to ``peer_port`` (a NIC name or a switch port) of ``peer``."""

    switch: str
    port: str
    peer: str
    peer_port: str
    peer_kind: Literal["node", "switch"]
    profile: PortProfile
    rail: int | None


@dataclass(frozen=True)
class Site:
    """A validated, expanded site. ``sha256`` names the site file and its golden configs together."""

    name: str
    title: str
    origin: str
    coverage_floor: float
    nodes: tuple[Node, ...]
    switches: tuple[Switch, ...]
    cables: tuple[Cable, ...]
    storage: Storage
    thresholds: Thresholds
    sha256: str
    path: Path
    jobs: Mapping[str, Any] = field(default_factory=dict)
    checks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    retention: Retention = field(default_factory=Retention)
    expected_changes: tuple[Expected, ...] = ()
    _by_name: dict[str, Node | Switch] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._by_name.update({n.name: n for n in self.nodes})
        self._by_name.update({s.name: s for s in self.switches})

    def unit(self, name: str) -> Node | Switch:
        """Return the node or switch called ``name``. Raises UsageError with the nearest names."""
        try:
            return self._by_name[name]
        except KeyError:
            near = difflib.get_close_matches(name, self._by_name, n=3)
            hint = f"; nearest: {', '.join(near)}" if near else ""
            raise UsageError(f"site {self.name!r} has no unit {name!r}{hint}") from None

    def select(self, ranges: str | None) -> tuple[Node | Switch, ...]:
        """Return the units that ``ranges`` names (``gpu-[001-004],leaf-1``), all of them for None or empty.

        Raises UsageError for a malformed range or a unit the site does not have.
        """
        if not ranges or not ranges.strip():
            return (*self.nodes, *self.switches)
        return tuple(self.unit(n) for n in expand(ranges))

    def cables_of(self, switch: str) -> tuple[Cable, ...]:
        """Return the planned cables of a switch, from its own side, including those planned from the peer's side."""
        own = [c for c in self.cables if c.switch == switch]
        from_peer = [
            Cable(switch, c.peer_port, c.switch, c.port, "switch", c.profile, c.rail)
            for c in self.cables
            if c.peer_kind == "switch" and c.peer == switch
        ]
        return (*own, *from_peer)

    def cable_of_nic(self, node: str, nic: str) -> Cable | None:
        """Return the planned cable of a node's NIC, None when the plan has none."""
        return next((c for c in self.cables if c.peer == node and c.peer_port == nic), None)


def expand(ranges: str) -> list[str]:
    """Expand a ClusterShell range into names, in the order of the range. Raises UsageError when malformed."""
    out: list[str] = []
    try:
        for part in _split_top_level(ranges):
            names = NodeSet(part, resolver=_NO_GROUPS)
            if len(out) + len(names) > MAX_UNITS:
                raise UsageError(f"range {ranges!r} names more than {MAX_UNITS} units")
            out.extend(str(n) for n in names)
    except NodeSetException as error:
        raise UsageError(f"range {ranges!r}: {error}") from None
    except GroupResolverError:
        raise UsageError(f"range {ranges!r}: groups (@name) are not known here; expected names") from None
    return out


def _split_top_level(text: str) -> Iterator[str]:
    depth, start = 0, 0
    for i, c in enumerate(text):
        depth += (c == "[") - (c == "]")
        if c == "," and depth == 0:
            yield text[start:i].strip()
            start = i + 1
    yield text[start:].strip()


def _no_groups() -> Any:
    from ClusterShell.NodeUtils import GroupResolver

    return GroupResolver(illegal_chars=set())


_NO_GROUPS = _no_groups()


def load_site(path: Path | str) -> Site:
    """Load, validate and expand a site file.

    Raises SiteError with one line per fault: ``file:line: key: what was expected``.
    """
    return _Expansion(read_site_file(path)).site()


@dataclass
class _Expansion:
    """Cross-checks and expands a valid site file; collects every fault before it raises."""

    source: SiteSource
    faults: list[str] = field(default_factory=list)

    @property
    def file(self) -> SiteFile:
        return self.source.file

    def site(self) -> Site:
        nodes = self._nodes()
        switches, golden_texts = self._switches({n.name for n in nodes})
        cables = self._cables({n.name: n for n in nodes}, {s.name: s for s in switches})
        expected = expected_changes(
            self.file.expected_changes,
            {n.name: n.sku for n in nodes},
            [s.name for s in switches],
            [*self.file.skus, *names_in(self.file.checks)],
            self._expand,
            self._fault,
        )
        if self.faults:
            raise SiteError("\n".join(self.faults))
        digest = hashlib.sha256(self.source.text.encode())
        for name in sorted(golden_texts):
            digest.update(f"\0{name}\0{golden_texts[name]}".encode())
        f = self.file
        return Site(
            name=f.site,
            title=f.title,
            origin=f.origin,
            coverage_floor=f.coverage_floor,
            nodes=tuple(nodes),
            switches=tuple(switches),
            cables=tuple(cables),
            storage=f.storage,
            thresholds=f.thresholds,
            sha256=digest.hexdigest(),
            path=self.source.path,
            jobs=f.jobs,
            checks=f.checks,
            retention=f.retention,
            expected_changes=expected,
        )

    def _fault(self, loc: tuple[str | int, ...], message: str) -> None:
        self.faults.append(self.source.fault(loc, message))

    def _expand(self, loc: tuple[str | int, ...], ranges: str) -> list[str]:
        try:
            return expand(ranges)
        except UsageError as error:
            self._fault(loc, f"{error}; expected a range such as gpu-[001-016]")
            return []

    def _zip(self, loc: tuple[str | int, ...], names: list[str], ranges: str | None) -> list[str]:
        if ranges is None:
            return names
        out = self._expand(loc, ranges)
        if len(out) != len(names):
            self._fault(loc, f"{ranges!r} gives {len(out)} values, expected {len(names)}, one for each name")
            return names
        return out

    def _known(self, loc: tuple[str | int, ...], name: str, known: Iterable[str], what: str) -> bool:
        known = list(known)
        if name in known:
            return True
        near = difflib.get_close_matches(name, known, n=3) or known[:5]
        self._fault(loc, f"no {what} {name!r}; expected one of: {', '.join(near) or '(none defined)'}")
        return False

    def _nodes(self) -> list[Node]:
        out: list[Node] = []
        seen: set[str] = set()
        for i, g in enumerate(self.file.nodes):
            loc = ("nodes", i)
            names = self._expand((*loc, "names"), g.names)
            addresses = self._zip((*loc, "address"), names, g.address)
            ok = self._known((*loc, "sku"), g.sku, self.file.skus, "SKU")
            if not (self._known((*loc, "reach"), g.reach, self.file.reach, "reach profile") and ok):
                continue
            for name, address in zip(names, addresses, strict=True):
                if name in seen:
                    self._fault((*loc, "names"), f"{name!r} is named twice; expected each node once")
                seen.add(name)
                out.append(Node(name, g.sku, self.file.skus[g.sku], g.rack, address, self.file.reach[g.reach]))
        return out

    def _switches(self, taken: set[str]) -> tuple[list[Switch], dict[str, str]]:
        out: list[Switch] = []
        texts: dict[str, str] = {}
        for i, g in enumerate(self.file.switches):
            loc = ("switches", i)
            names = self._expand((*loc, "names"), g.names)
            addresses = self._zip((*loc, "address"), names, g.address)
            if not self._known((*loc, "reach"), g.reach, self.file.reach, "reach profile"):
                continue
            for name, address in zip(names, addresses, strict=True):
                if name in taken:
                    self._fault((*loc, "names"), f"{name!r} is named twice; expected each unit once")
                taken.add(name)
                golden = self._golden((*loc, "golden"), name, g.golden)
                if golden is not None:
                    texts[name] = golden
                out.append(Switch(name, g.platform, g.role, g.rack, address, self.file.reach[g.reach], golden))
        return out, texts

    def _golden(self, loc: tuple[str | int, ...], name: str, pattern: str | None) -> str | None:
        if pattern is None:
            return None
        target = self.source.path.parent / pattern.replace("{name}", name)
        try:
            if target.stat().st_size > MAX_SITE_BYTES:
                self._fault(loc, f"golden config {target} is larger than {MAX_SITE_BYTES} bytes")
                return None
            return target.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            self._fault(loc, f"golden config of {name}: {error}; expected a readable UTF-8 file")
            return None

    def _cables(self, nodes: dict[str, Node], switches: dict[str, Switch]) -> list[Cable]:
        out: list[Cable] = []
        used: set[tuple[str, str]] = set()
        for i, g in enumerate(self.file.cabling):
            loc = ("cabling", i)
            ok = self._known((*loc, "switch"), g.switch, switches, "switch")
            if not (self._known((*loc, "profile"), g.profile, self.file.port_profiles, "port profile") and ok):
                continue
            ports = self._expand((*loc, "ports"), g.ports)
            peers = self._peers(loc, g, ports, nodes, switches)
            profile = self.file.port_profiles[g.profile]
            for port, (peer, peer_port, kind, rail) in zip(ports, peers, strict=False):
                for end in ((g.switch, port), (peer, peer_port)):
                    if end in used:
                        self._fault((*loc, "ports"), f"{end[0]}/{end[1]} is cabled twice; expected one cable a port")
                    used.add(end)
                out.append(Cable(g.switch, port, peer, peer_port, kind, profile, rail))
        return out

    def _peers(
        self,
        loc: tuple[str | int, ...],
        g: CableGroup,
        ports: list[str],
        nodes: dict[str, Node],
        switches: dict[str, Switch],
    ) -> list[tuple[str, str, Literal["node", "switch"], int | None]]:
        if g.nodes is not None and g.nic is not None and g.peer is None:
            names = self._expand((*loc, "nodes"), g.nodes)
            if len(names) != len(ports):
                self._fault((*loc, "ports"), f"{len(ports)} ports for {len(names)} nodes; expected as many")
            out: list[tuple[str, str, Literal["node", "switch"], int | None]] = []
            for n in names:
                if not self._known((*loc, "nodes"), n, nodes, "node"):
                    return []
                nic = next((x for x in nodes[n].sku.nics if x.name == g.nic), None)
                if nic is None:
                    self._known((*loc, "nic"), g.nic, [x.name for x in nodes[n].sku.nics], f"NIC of {n}")
                    return []
                out.append((n, g.nic, "node", nic.rail))
            return out
        if g.peer is not None and g.peer_ports is not None and g.nodes is None:
            if not self._known((*loc, "peer"), g.peer, switches, "switch"):
                return []
            peer_ports = self._expand((*loc, "peer_ports"), g.peer_ports)
            if len(peer_ports) != len(ports):
                self._fault((*loc, "ports"), f"{len(ports)} ports for {len(peer_ports)} peer ports; expected as many")
            return [(g.peer, p, "switch", None) for p in peer_ports]
        self._fault(loc, "expected either nodes and nic, or peer and peer_ports")
        return []
