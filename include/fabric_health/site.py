"""Load and validate a site file: one cluster's nodes, switches, cabling plan, storage and expected state.

The file is YAML with node ranges (``gpu-[001-016]``, ClusterShell syntax). :func:`load_site` either returns a fully
expanded :class:`Site` or raises :class:`~fabric_health.errors.SiteError` naming file, line and key of every fault.
"""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from ClusterShell.NodeSet import NodeSet, NodeSetException
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from fabric_health.errors import SiteError, UsageError

# libyaml's safe loader where PyYAML was built with it: ten times faster on a site of a thousand nodes.
_YAML_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
MAX_SITE_BYTES = 16 << 20
MAX_UNITS = 100_000
Platform = Literal["cumulus", "sonic", "onyx", "eos", "nxos"]
Identifier = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_.-]{0,62}$")]
PciAddress = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$")]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, str_strip_whitespace=True)


class ReachProfile(_Model):
    """How units are reached. ``connection`` names credentials (user, key, known hosts), never holds them."""

    kind: Literal["ssh", "local"] = "ssh"
    connection: Identifier | None = Field(None, description="connection id with user, key and known_hosts")
    port: int | None = Field(None, ge=1, le=65535, description="overrides the connection's port")
    jump: Identifier | None = Field(None, description="connection id of a jump host")
    python: str = Field("python3", description="interpreter for the read-only probe on nodes")
    connect_timeout_s: float = Field(10, gt=0, le=300)
    unit_timeout_s: float = Field(120, gt=0, le=3600, description="all commands of one unit together")
    concurrency: int = Field(64, ge=1, le=1024)


class Nic(_Model):
    """One NIC port of a SKU. ``netdev`` is absent on InfiniBand without IPoIB."""

    name: str = Field(description="RDMA device, e.g. mlx5_0")
    rail: int = Field(ge=0)
    netdev: str | None = None
    pci: str | None = Field(None, description="0000:5e:00.0, lower case")
    psid: str | None = None
    gpu: int | None = Field(None, ge=0, description="GPU that shares its PCIe switch")


class Sku(_Model):
    """What a node of this SKU has and should show."""

    gpu_model: str
    gpus: int = Field(ge=0, le=64)
    gpu_pci: tuple[PciAddress, ...] = Field(
        (), description="PCI addresses of the GPUs in bus order (0000:5a:00.0): a GPU that is gone keeps its number"
    )
    nvlinks_per_gpu: int | None = Field(None, ge=0, le=72)
    link_layer: Literal["InfiniBand", "Ethernet"]
    nic_rate_gbps: float = Field(gt=0, description="Gb/s per port")
    nics: tuple[Nic, ...] = ()
    drives: tuple[str, ...] = Field((), description="NVMe controllers, e.g. /dev/nvme0")
    nfs_mounts: tuple[str, ...] = Field((), description="mount points that must use proto=rdma")
    netdev_mtu_bytes: int | None = Field(None, ge=576, le=65535)
    pcie_gen: int | None = Field(None, ge=1, le=7)
    pcie_width: int | None = Field(None, ge=1, le=32)
    expected: dict[str, str] = Field(
        default_factory=dict, description="attribute -> pinned value; unpinned attributes follow the majority"
    )
    nic_firmware: dict[str, str] = Field(default_factory=dict, description="PSID -> firmware version")
    has_fabric_manager: bool = True
    iommu: Literal["off", "pt", "on"] | None = None
    acs: Literal["off", "on"] | None = None


class NodeGroup(_Model):
    names: str
    sku: str
    rack: str
    reach: str
    address: str | None = Field(None, description="range of the same length as names; default: the names")
    labels: dict[str, str] = Field(default_factory=dict)


class SwitchGroup(_Model):
    names: str
    platform: Platform
    reach: str
    role: str = "leaf"
    rack: str | None = None
    address: str | None = None
    golden: str | None = Field(None, description="path of the golden config, relative to the site file; {name} allowed")


class PortProfile(_Model):
    """What a cabled switch port should show. None means "not judged"."""

    speed_gbps: float | None = Field(None, gt=0, description="Gb/s")
    mtu_bytes: int | None = Field(None, ge=576, le=65535)
    fec: Literal["rs", "fc", "none"] | None = None
    pfc_priorities: tuple[int, ...] | None = None
    ecn: bool | None = None
    vlan: int | None = Field(None, ge=1, le=4094, description="untagged/access VLAN")


class CableGroup(_Model):
    """``nodes`` x one ``nic`` to ``ports`` of a switch, or ``ports`` to ``peer_ports`` of a peer switch, zipped."""

    switch: str
    ports: str
    profile: str
    nodes: str | None = None
    nic: str | None = None
    peer: str | None = None
    peer_ports: str | None = None


class Storage(_Model):
    object_store_endpoint: str | None = None
    nfs_servers: tuple[str, ...] = ()


class Thresholds(_Model):
    """Limits of the rules; every default has its source in docs/thresholds.md."""

    error_packet_ratio: float = Field(1e-5, ge=0, le=1, description="delta errors / delta packets")
    pause_surge_factor: float = Field(5.0, gt=1, description="pause frames of a window against the last window")
    pause_surge_min_frames: int = Field(10_000, ge=0)
    link_flaps_per_day: int = Field(5, ge=1, description="lost carrier events in 24 h that fail a NIC")
    kernel_log_window_h: float = Field(168, gt=0, le=24 * 60)
    ecc_sram_uncorrectable: int = Field(0, ge=0)
    ecc_sram_correctable: int = Field(10_000, ge=0)
    ecc_dram_correctable: int = Field(20_000_000, ge=0)
    remapped_rows_uncorrectable: int = Field(512, ge=0)
    drive_percentage_used: int = Field(90, ge=0, le=255)
    drive_temperature_c: int = Field(75, ge=0)
    mtu_tolerance_bytes: int = Field(2, ge=0, description="EOS 9214 pairs with 9216 elsewhere")
    majority_min_share: float = Field(0.6, gt=0.5, le=1, description="share that makes an unpinned value the norm")


class SiteFile(_Model):
    """The site file as written."""

    site: Identifier
    title: str
    origin: Literal["measured", "lab"] = "measured"
    timezone: str = "UTC"
    coverage_floor: float = Field(0.95, ge=0, le=1, description="share of units judged below which no run is healthy")
    reach: dict[str, ReachProfile]
    skus: dict[str, Sku]
    nodes: tuple[NodeGroup, ...] = Field(min_length=1)
    switches: tuple[SwitchGroup, ...] = ()
    port_profiles: dict[str, PortProfile] = Field(default_factory=dict)
    cabling: tuple[CableGroup, ...] = ()
    storage: Storage = Storage()
    thresholds: Thresholds = Thresholds()
    jobs: dict[str, Any] = Field(default_factory=dict, description="how workloads run; see docs/jobs.md")
    checks: dict[str, dict[str, Any]] = Field(default_factory=dict, description="settings of checks, by check")


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
    path = Path(path)
    text = _read(path)
    root = _compose(path, text)
    data = yaml.load(text, Loader=_YAML_LOADER)  # noqa: S506  a safe loader in either form
    if not isinstance(data, dict):
        raise SiteError(f"{path}:1: expected a mapping with the keys {', '.join(SiteFile.model_fields)}")
    try:
        file = SiteFile.model_validate(data)
    except ValidationError as error:
        lines = []
        for e in error.errors(include_url=False):
            where = _line(root, e["loc"])
            key = ".".join(str(p) for p in e["loc"])
            lines.append(f"{path}:{where}: {key}: {_explain(e, SiteFile)}")
        raise SiteError("\n".join(lines)) from None
    return _Expansion(path, file, root, text).site()


@dataclass
class _Expansion:
    """Cross-checks and expands a valid site file; collects every fault before it raises."""

    path: Path
    file: SiteFile
    root: yaml.Node
    text: str
    faults: list[str] = field(default_factory=list)

    def site(self) -> Site:
        nodes = self._nodes()
        switches, golden_texts = self._switches({n.name for n in nodes})
        cables = self._cables({n.name: n for n in nodes}, {s.name: s for s in switches})
        if self.faults:
            raise SiteError("\n".join(self.faults))
        digest = hashlib.sha256(self.text.encode())
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
            path=self.path,
            jobs=f.jobs,
            checks=f.checks,
        )

    def _fault(self, loc: tuple[str | int, ...], message: str) -> None:
        key = ".".join(str(p) for p in loc)
        self.faults.append(f"{self.path}:{_line(self.root, loc)}: {key}: {message}")

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
        target = self.path.parent / pattern.replace("{name}", name)
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


def _read(path: Path) -> str:
    try:
        if path.stat().st_size > MAX_SITE_BYTES:
            raise SiteError(f"{path}: larger than {MAX_SITE_BYTES} bytes; expected a site file")
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise SiteError(f"{path}: {error.strerror or error}; expected a readable site file") from None
    except UnicodeDecodeError as error:
        raise SiteError(f"{path}: not UTF-8 at byte {error.start}; expected a YAML text file") from None


def _compose(path: Path, text: str) -> yaml.Node:
    try:
        root = yaml.compose(text, Loader=_YAML_LOADER)
        if root is None:
            raise SiteError(f"{path}:1: the file is empty; expected a site, see include/sites/example.yaml")
        duplicate = next(_duplicates(root), None)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise SiteError(f"{path}:{line}: {error.problem or 'not valid YAML'}; expected valid YAML") from None
    except (yaml.YAMLError, RecursionError) as error:
        raise SiteError(f"{path}:1: {error}; expected valid YAML") from None
    if duplicate is not None:
        line, key = duplicate
        raise SiteError(f"{path}:{line}: {key}: the key is given twice; expected once")
    return root


def _duplicates(node: yaml.Node) -> Iterator[tuple[int, str]]:
    stack = [node]
    seen_nodes: set[int] = set()
    while stack:
        n = stack.pop()
        if id(n) in seen_nodes:
            continue
        seen_nodes.add(id(n))
        if isinstance(n, yaml.MappingNode):
            seen: set[str] = set()
            for k, v in n.value:
                if k.value in seen and k.value != "<<":
                    yield k.start_mark.line + 1, str(k.value)
                seen.add(str(k.value))
                stack.append(v)
        elif isinstance(n, yaml.SequenceNode):
            stack.extend(n.value)


def _line(root: yaml.Node, loc: tuple[str | int, ...]) -> int:
    """Return the 1-based line of the deepest part of ``loc`` that the file has."""
    node, line = root, root.start_mark.line + 1
    for part in loc:
        if isinstance(node, yaml.MappingNode):
            hit = next(((k, v) for k, v in node.value if k.value == str(part)), None)
            if hit is None:
                break
            line, node = hit[0].start_mark.line + 1, hit[1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            node = node.value[part]
            line = node.start_mark.line + 1
        else:
            break
    return line


def _explain(error: Any, model: type[BaseModel]) -> str:
    """Say what was expected, with the nearest key for a misspelt one."""
    kind, given = error["type"], error.get("input")
    if kind == "missing":
        return "required key is missing"
    if kind == "extra_forbidden":
        keys = _keys_at(model, error["loc"][:-1])
        near = difflib.get_close_matches(str(error["loc"][-1]), keys, n=1)
        return "unknown key" + (f"; did you mean {near[0]!r}?" if near else f"; expected one of: {', '.join(keys)}")
    shown = repr(given)
    return f"{error['msg']}; got {shown if len(shown) <= 60 else shown[:57] + '...'}"


def _keys_at(model: type[BaseModel], loc: tuple[str | int, ...]) -> list[str]:
    current: Any = model
    for part in loc:
        fields = getattr(current, "model_fields", {})
        if isinstance(part, str) and part in fields:
            current = _inner_model(fields[part].annotation)
        if current is None:
            return []
    return list(getattr(current, "model_fields", {}))


def _inner_model(annotation: Any) -> Any:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for arg in getattr(annotation, "__args__", ()):
        found = _inner_model(arg)
        if found is not None:
            return found
    return None
