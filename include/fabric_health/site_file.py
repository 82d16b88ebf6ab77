"""A site file as written: its keys and their types, where in the file each stands, and what is wrong with it."""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from fabric_health.errors import SiteError
from fabric_health.site_pods import ProbePods

# libyaml's safe loader where PyYAML was built with it: ten times faster on a site of a thousand nodes.
_YAML_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
MAX_SITE_BYTES = 16 << 20
Platform = Literal["cumulus", "sonic", "onyx", "eos", "nxos"]
Identifier = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_.-]{0,62}$")]
PciAddress = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$")]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, str_strip_whitespace=True)


class ReachProfile(_Model):
    """How units are reached. ``connection`` names credentials (user, key, known hosts), never holds them."""

    kind: Literal["ssh", "local", "kubernetes"] = "ssh"
    connection: Identifier | None = Field(
        None, description="connection id with user, key and known_hosts; of the cluster for kubernetes"
    )
    port: int | None = Field(None, ge=1, le=65535, description="overrides the connection's port")
    jump: Identifier | None = Field(None, description="connection id of a jump host")
    python: str = Field("python3", description="interpreter for the read-only probe on nodes")
    connect_timeout_s: float = Field(10, gt=0, le=300)
    unit_timeout_s: float = Field(120, gt=0, le=3600, description="all commands of one unit together")
    concurrency: int = Field(64, ge=1, le=1024)
    kubernetes: ProbePods | None = Field(None, description="the pods that ask nodes, for kind kubernetes")

    @model_validator(mode="after")
    def _of_its_kind(self) -> ReachProfile:
        if self.kind == "kubernetes":
            if self.kubernetes is None:
                raise ValueError("kind is kubernetes; expected `kubernetes` with at least namespace and image")
            fields = type(self).model_fields
            alien = [k for k in ("port", "jump", "python") if getattr(self, k) != fields[k].default]
            if alien:
                raise ValueError(f"{', '.join(alien)} beside kind kubernetes; expected them with ssh only")
        elif self.kubernetes is not None:
            raise ValueError(f"`kubernetes` beside kind {self.kind}; expected `kind: kubernetes`")
        return self


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


class Retention(_Model):
    """How long housekeeping leaves what it may delete. Tables are never deleted."""

    evidence_days: int = Field(
        400, ge=14, le=36_500, description="evidence of runs that started longer ago is deleted, in days"
    )


Named = Annotated[str, StringConstraints(min_length=1, max_length=300, strip_whitespace=True)]


class ExpectedChange(_Model):
    """A difference that is wanted, or known, until a date. Patterns know ``*`` and ``?``."""

    units: Named = Field(description="units as ranges, with their parts: gpu-[001-004],leaf-1/swp3")
    attribute: Named | None = Field(None, description="pattern of facts and config lines")
    metric: Named | None = Field(None, description="pattern of the metric of findings")
    rule: Named | None = Field(None, description="pattern of the rule of findings")
    value: Named | None = Field(None, description="pattern of the value that is expected; default: any")
    owner: Named = Field(description="who answers for it")
    reason: Named
    ticket: Named | None = None
    expires: date = Field(description="last day (UTC) on which it holds: 2026-12-31")

    @model_validator(mode="after")
    def _one_thing(self) -> ExpectedChange:
        if sum(x is not None for x in (self.attribute, self.metric, self.rule)) != 1:
            raise ValueError("expected one of attribute, metric and rule")
        return self


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
    retention: Retention = Retention()
    thresholds: Thresholds = Thresholds()
    expected_changes: tuple[ExpectedChange, ...] = Field((), max_length=1000)
    jobs: dict[str, Any] = Field(default_factory=dict, description="how workloads run; see docs/jobs.md")
    checks: dict[str, dict[str, Any]] = Field(default_factory=dict, description="settings of checks, by check")


@dataclass(frozen=True)
class SiteSource:
    """A site file that keeps its schema, with its text. Whether its names hang together is not yet known."""

    path: Path
    text: str
    file: SiteFile
    root: yaml.Node

    def fault(self, loc: tuple[str | int, ...], message: str) -> str:
        """Return ``file:line: key: message`` for the value at ``loc``."""
        return _fault(self.path, self.root, loc, message)


def read_site_file(path: Path | str) -> SiteSource:
    """Read a site file and hold it against the schema.

    Raises SiteError with one line per fault: ``file:line: key: what was expected``.
    """
    path = Path(path)
    text = _read(path)
    root = _compose(path, text)
    with _as_site_error(path):
        data = yaml.load(text, Loader=_YAML_LOADER)  # noqa: S506  a safe loader in either form
    if not isinstance(data, dict):
        raise SiteError(f"{path}:1: expected a mapping with the keys {', '.join(SiteFile.model_fields)}")
    try:
        file = SiteFile.model_validate(data)
    except ValidationError as error:
        found = error.errors(include_url=False)
        raise SiteError("\n".join(_fault(path, root, e["loc"], _explain(e, SiteFile)) for e in found)) from None
    return SiteSource(path, text, file, root)


def _fault(path: Path, root: yaml.Node, loc: tuple[str | int, ...], message: str) -> str:
    key = ".".join(str(p) for p in loc)
    return f"{path}:{_line(root, loc)}: {key}: {message}"


def _read(path: Path) -> str:
    try:
        if path.stat().st_size > MAX_SITE_BYTES:
            raise SiteError(f"{path}: larger than {MAX_SITE_BYTES} bytes; expected a site file")
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise SiteError(f"{path}: {error.strerror or error}; expected a readable site file") from None
    except UnicodeDecodeError as error:
        raise SiteError(f"{path}: not UTF-8 at byte {error.start}; expected a YAML text file") from None


@contextlib.contextmanager
def _as_site_error(path: Path) -> Iterator[None]:
    """Turn whatever the YAML library raises into a SiteError: its constructors let Python's own errors through."""
    try:
        yield
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        raise SiteError(f"{path}:{line}: {error.problem or 'not valid YAML'}; expected valid YAML") from None
    except (yaml.YAMLError, RecursionError, ValueError, TypeError, OverflowError) as error:
        raise SiteError(f"{path}:1: {error}; expected valid YAML") from None


def _compose(path: Path, text: str) -> yaml.Node:
    with _as_site_error(path):
        root = yaml.compose(text, Loader=_YAML_LOADER)
    if root is None:
        raise SiteError(f"{path}:1: the file is empty; expected a site, see include/sites/example.yaml")
    for line, key in _duplicates(root):
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
                stack.append(v)
                if isinstance(k, yaml.ScalarNode) and k.value != "<<":
                    if k.value in seen:
                        yield k.start_mark.line + 1, k.value
                    seen.add(k.value)
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
