"""Settings of the InfiniBand check: the site file's ``checks.fabric_links``."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Annotated, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator, model_validator

from fabric_health.checks.fabric_links.lanes import lane_rate_gbps, lanes
from fabric_health.errors import SiteError, UsageError, settings_error
from fabric_health.site import Fabric, Identifier, ReachProfile, Site, expand

LOCAL = "local"
_RANGE = re.compile(r"^(\d{1,3})(?:-(\d{1,3}))?$")


def _width(value: object) -> object:
    found = lanes(str(value))
    if found is None:
        raise ValueError(f"{value!r}; expected a link width such as 4x")
    return found


def _speed(value: object) -> object:
    found = lane_rate_gbps(str(value))
    if found is None:
        raise ValueError(f"{value!r}; expected SDR, DDR, QDR, FDR10, FDR, EDR, HDR, NDR, XDR or Gb/s of one lane")
    return found


Lanes = Annotated[int, BeforeValidator(_width)]
LaneRate = Annotated[float, BeforeValidator(_speed)]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, str_strip_whitespace=True)


class LinkProfile(_Model):
    """What a link should run at. None means "not judged": what hardware *could* do is no expectation."""

    width: Lanes | None = Field(None, description="lanes, e.g. 4x")
    speed: LaneRate | None = Field(None, description="speed of one lane: EDR, HDR, NDR, ... or Gb/s such as 53.125")


class CableGroup(_Model):
    """``ports`` of ``switch`` to ``peer_ports`` of ``peers``, zipped; a single value stands for all."""

    switch: str = Field(description="node description or GUID (0x...)")
    ports: str = Field(description="port numbers, a range such as 1-8 or 1,3,5")
    peers: str = Field(description="node descriptions or GUIDs, a range such as `gpu[001-008] mlx5_0`")
    peer_ports: str = Field("1", description="port numbers at the other end")
    profile: str | None = Field(None, description="link profile; default: `hosts` or `trunks` by what is at the end")


class Limits(_Model):
    """How much a port may count in a day before it is a finding; see docs/thresholds.md for the sources.

    The first four say that a link is bad. Discards and waiting say that it is congested, which is judged as a warning
    only from a rate that no healthy fabric shows.
    """

    # The numbers of the error_thresholds file that infiniband-diags ships as its example. There they apply to the
    # whole life of a counter; here they are held against one day, so that an old event never hides a new one.
    symbol_error: float = Field(10, ge=0, description="symbol errors a day")
    link_error_recovery: float = Field(10, ge=0, description="recoveries a day")
    link_downed: float = Field(
        5, gt=0, description="link losses a day: as many flaps fail a NIC in Azure's node checks"
    )
    rcv_errors: float = Field(10, ge=0, description="packets with errors a day")
    rcv_remote_physical_errors: float = Field(100, ge=0, description="packets marked bad by another port, a day")
    rcv_switch_relay_errors: float | None = Field(None, ge=0, description="not judged: multicast counts here, too")
    xmit_discards: float = Field(100, ge=0, description="packets dropped for want of room, a day")
    xmit_constraint_errors: float = Field(100, ge=0, description="packets refused by partition rules, a day")
    rcv_constraint_errors: float = Field(100, ge=0, description="packets refused by partition rules, a day")
    local_link_integrity_errors: float = Field(10, ge=0, description="events a day")
    excessive_buffer_overrun_errors: float = Field(10, ge=0, description="events a day")
    vl15_dropped: float = Field(100, ge=0, description="management packets dropped, a day")


class FabricSettings(_Model):
    """One fabric: where it is asked from and what it should be."""

    name: Identifier
    via: str = Field(LOCAL, description="node of the site that is on the fabric, or `local` for the machine we run on")
    wrapper: tuple[str, ...] = Field((), description="put before each tool, e.g. [sudo, -n]: the tools need umad")
    ca: str | None = Field(None, pattern=r"^[A-Za-z0-9_.-]+$", description="device to ask through, e.g. mlx5_0")
    port: int | None = Field(None, ge=1, le=254, description="port of that device")
    timeout_s: float = Field(60, gt=0, le=1800, description="for each tool; 4,096 hosts take some 3 s")
    hosts: LinkProfile = Field(LinkProfile(), description="links to hosts")
    trunks: LinkProfile = Field(LinkProfile(), description="links between switches")
    profiles: dict[str, LinkProfile] = Field(default_factory=dict, description="for cables that differ from these")
    cabling: tuple[CableGroup, ...] = Field((), description="the plan; empty: topology is held against the last run")
    ibdiagnet_log: str | None = Field(None, pattern=r"^/", description="path there of a log that ibdiagnet writes")

    @cached_property
    def cables(self) -> tuple[PlannedCable, ...]:
        """The cabling plan, expanded once. Raises ValueError as :func:`plan` does."""
        return plan(self)


class Settings(_Model):
    """InfiniBand fabrics of a site and the limits they are held to."""

    fabrics: tuple[FabricSettings, ...] = ()
    limits: Limits = Limits()

    @field_validator("fabrics")
    @classmethod
    def _distinct(cls, value: tuple[FabricSettings, ...]) -> tuple[FabricSettings, ...]:
        names = [f.name for f in value]
        if len(set(names)) != len(names):
            raise ValueError(f"{', '.join(names)}; expected every fabric once")
        return value

    @model_validator(mode="after")
    def _cabled(self) -> Self:
        for fabric in self.fabrics:
            # Expanded here, so that a mistake in it is told with the other mistakes of the file.
            _ = fabric.cables
        return self


@dataclass(frozen=True)
class End:
    """One end of a cable as the plan has it: node description or GUID (16 hex digits), and port."""

    node: str
    port: int


@dataclass(frozen=True)
class PlannedCable:
    """One cable of the plan; ``profile`` None means the one for its kind."""

    one: End
    other: End
    profile: LinkProfile | None


def plan(fabric: FabricSettings) -> tuple[PlannedCable, ...]:
    """Return the cables of a fabric's plan. Raises ValueError that names the group and what was expected."""
    out: list[PlannedCable] = []
    used: set[End] = set()
    for i, group in enumerate(fabric.cabling):
        at = f"{fabric.name}: cabling.{i}"
        if group.profile is not None and group.profile not in fabric.profiles:
            raise ValueError(
                f"{at}: no profile {group.profile!r}; expected one of {', '.join(fabric.profiles) or 'none'}"
            )
        ports, peers, far = _numbers(at, group.ports), _names(at, group.peers), _numbers(at, group.peer_ports)
        count = max(len(ports), len(peers), len(far))
        columns = [c * count if len(c) == 1 else c for c in (ports, peers, far)]
        if any(len(c) != count for c in columns):
            raise ValueError(f"{at}: {len(ports)} ports, {len(peers)} peers, {len(far)} peer ports; expected as many")
        profile = fabric.profiles[group.profile] if group.profile else None
        for port, peer, peer_port in zip(*columns, strict=True):
            cable = PlannedCable(End(node_key(group.switch), int(port)), End(node_key(peer), int(peer_port)), profile)
            for end in (cable.one, cable.other):
                if end in used:
                    raise ValueError(f"{at}: {end.node} port {end.port} is cabled twice; expected one cable a port")
                used.add(end)
            out.append(cable)
    return tuple(out)


def node_key(name: str) -> str:
    """Return a GUID as 16 hex digits, and any other name as it is."""
    if name.startswith("0x"):
        try:
            return f"{int(name, 16):016x}"
        except ValueError:
            return name
    return name


def _numbers(at: str, ranges: str) -> list[str]:
    out: list[str] = []
    for part in ranges.split(","):
        found = _RANGE.match(part.strip())
        first, last = (int(found[1]), int(found[2] or found[1])) if found else (0, 0)
        if not 0 < first <= last < 255:
            raise ValueError(f"{at}: ports {ranges!r}; expected port numbers from 1 to 254, such as 1-8")
        out += [str(n) for n in range(first, last + 1)]
    return out


def _names(at: str, ranges: str) -> list[str]:
    if "[" not in ranges and "," not in ranges:
        return [ranges]
    try:
        return expand(ranges)
    except UsageError as error:
        raise ValueError(f"{at}: {error}") from None


def settings(site: Site) -> Settings:
    """Return the site's settings. Raises SiteError naming each key at fault and what was expected."""
    try:
        return _validated(json.dumps(site.checks.get("fabric_links", {}), sort_keys=True, default=str))
    except ValidationError as error:
        page = "docs/checks/fabric_links.md"
        raise settings_error(error, str(site.path), "checks.fabric_links", page) from None


@lru_cache(maxsize=8)
def _validated(text: str) -> Settings:
    # Each stage asks for the settings several times, and a plan of thousands of cables takes a second to expand.
    return Settings.model_validate(json.loads(text))


def fabrics(site: Site) -> tuple[Fabric, ...]:
    """Return the site's fabrics as units. Raises SiteError for a ``via`` that the site does not have."""
    nodes = {n.name: n for n in site.nodes}
    taken = {u.name for u in site.select(None)}
    out = []
    for i, f in enumerate(settings(site).fabrics):
        at = f"{site.path}: checks.fabric_links.fabrics.{i}"
        if f.name in taken:
            raise SiteError(f"{at}.name: {f.name!r} is a node or switch already; expected a name of its own")
        if f.via == LOCAL:
            out.append(Fabric(f.name, LOCAL, LOCAL, ReachProfile(kind="local", unit_timeout_s=_together_s(f))))
        elif f.via in nodes:
            node = nodes[f.via]
            reach = node.reach.model_copy(update={"unit_timeout_s": max(node.reach.unit_timeout_s, _together_s(f))})
            out.append(Fabric(f.name, f.via, node.address, reach))
        else:
            raise SiteError(f"{at}.via: no node {f.via!r}; expected a node of the site, or {LOCAL}")
    return tuple(out)


def _together_s(fabric: FabricSettings) -> float:
    # Six tools: two run at a time, but where only one can they still get their time.
    return min(3600.0, 6 * fabric.timeout_s + 30)
