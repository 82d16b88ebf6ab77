"""What a maintenance engineer declares about a change, checked against the site before anything runs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fabric_health.checks import registry
from fabric_health.errors import UsageError
from fabric_health.site import Node, Site, Switch, expand

ChangeKind = Literal["driver", "firmware", "switch_config", "cabling", "hardware", "software", "other"]
KINDS: tuple[ChangeKind, ...] = ("driver", "firmware", "switch_config", "cabling", "hardware", "software", "other")
MAX_LAUNCHES = 50
# Up to this many nodes a run takes all of them as controls: what needs the same set of nodes stays comparable.
ALL_NODES = 64
CONTROLS_PER_NODE = 2
MIN_CONTROLS = 8
MAX_CONTROLS = 64
# Rack, in a panel, of nodes of which the site file names none.
UNGROUPED = "?"
# Checks whose settings say how often a benchmark is launched.
_LAUNCHING = ("collectives", "object_store")


class Declaration(BaseModel):
    """The form of a run after maintenance, as it was filled in."""

    model_config = ConfigDict(extra="forbid", frozen=True, str_strip_whitespace=True)

    touched: str = Field(min_length=1, max_length=10_000, description="units touched, as ranges: gpu-[001-004],leaf-1")
    kind: ChangeKind = Field("other", description="kind of change")
    ticket: str | None = Field(None, max_length=200, description="change ticket")
    checks: tuple[str, ...] = Field((), description="checks to run; none: all")
    launches: int | None = Field(None, ge=1, le=MAX_LAUNCHES, description="launches of a benchmark; none: the site's")
    baseline: str | None = Field(None, max_length=200, description="run to compare with; none: the last accepted one")
    controls: str | None = Field(None, max_length=10_000, description="control units as ranges; none: chosen")


@dataclass(frozen=True)
class Change:
    """A declared change, checked: unit names in site order, of nodes and switches."""

    touched: tuple[str, ...]
    controls: tuple[str, ...]
    kind: str
    ticket: str | None = None
    launches: int | None = None
    baseline: str | None = None

    @property
    def scope(self) -> tuple[str, ...]:
        """The units that a run after the change looks at."""
        return (*self.touched, *self.controls)


def declare(form: Mapping[str, Any]) -> Declaration:
    """Read the form of a run after maintenance. Raises UsageError that names each field and what was expected."""
    try:
        return Declaration.model_validate({k: v for k, v in form.items() if v not in (None, "", [], ())})
    except ValidationError as error:
        known = ", ".join(Declaration.model_fields)
        lines = []
        for e in error.errors(include_url=False):
            where = ".".join(str(p) for p in e["loc"])
            message = f"no such field; known: {known}" if e["type"] == "extra_forbidden" else e["msg"]
            lines.append(f"{where}: {'needed: which units were touched' if e['type'] == 'missing' else message}")
        raise UsageError("; ".join(lines)) from None


def checks_of(declaration: Declaration) -> tuple[str, ...]:
    """Return the names of the checks to run, audits first. Raises UsageError for an unknown one."""
    wanted = {registry.entry(name).name for name in declaration.checks}
    return tuple(e.name for e in registry.ENTRIES if not wanted or e.name in wanted)


def resolve(declaration: Declaration, site: Site) -> Change:
    """Check a declaration against the site and choose control units where none are given.

    A unit may be named by a part of it (``gpu-003/mlx5_2``, ``leaf-2/Ethernet32``): the node or switch counts.
    Raises UsageError for a range at fault, an unknown unit (with the nearest names), a control that was touched.
    """
    touched = _units(site, declaration.touched, "touched")
    if declaration.controls is not None:
        controls = _units(site, declaration.controls, "controls")
        both = sorted({u.name for u in touched} & {u.name for u in controls})
        if both:
            raise UsageError(f"controls: {', '.join(both[:5])} was touched; a control is a unit left alone")
    else:
        controls = choose_controls(site, touched)
    return Change(
        touched=tuple(u.name for u in touched),
        controls=tuple(u.name for u in controls),
        kind=declaration.kind,
        ticket=declaration.ticket,
        launches=declaration.launches,
        baseline=declaration.baseline,
    )


def site_for(site: Site, change: Change | None) -> Site:
    """Return the site as a run that judges ``change`` uses it: with the launches that were asked for."""
    if change is None or change.launches is None:
        return site
    checks = {name: {**site.checks.get(name, {}), "launches": change.launches} for name in _LAUNCHING}
    return replace(site, checks={**site.checks, **checks})


def _units(site: Site, ranges: str, field: str) -> list[Node | Switch]:
    names: dict[str, None] = {}
    try:
        for name in expand(_without_parts(ranges)):
            names.setdefault(name)
        found = {site.unit(n).name for n in names}
    except UsageError as error:
        raise UsageError(f"{field}: {error}") from None
    if not found:
        raise UsageError(f"{field}: {ranges!r} names no unit; expected ranges such as gpu-[001-004],leaf-1")
    every: list[Node | Switch] = [*site.nodes, *site.switches]
    return [u for u in every if u.name in found]


def _without_parts(ranges: str) -> str:
    """Return ranges of whole units: a part's name may hold what a range gives a meaning to.

    A part ends where ClusterShell goes on to the next name; the slash of a step, ``[001-009/2]``, begins none.
    """
    kept: list[str] = []
    depth, in_part = 0, False
    for c in ranges:
        depth += (c == "[") - (c == "]")
        if depth == 0 and (c in "/,!&^" or c.isspace()):
            in_part = c == "/"
        if not in_part:
            kept.append(c)
    return "".join(kept)


def choose_controls(site: Site, touched: Sequence[Node | Switch]) -> list[Node | Switch]:
    """Return units that the change left alone and that are like those it touched.

    Nodes: all others of the same SKUs on a site of at most 64 nodes, so that what needs the same nodes stays
    comparable; otherwise twice as many as were touched (8 to 64), taken evenly over racks. After work on switches alone
    all SKUs count. Switches, which are audited only: all others of the same role, and those that touched nodes are
    cabled to, since a line that somebody changed there meanwhile is a reason as good as the change.
    """
    names = {u.name for u in touched}
    nodes = [u for u in touched if isinstance(u, Node)]
    skus = {n.sku_name for n in nodes} or {n.sku_name for n in site.nodes}
    others = [n for n in site.nodes if n.name not in names and n.sku_name in skus]
    if len(site.nodes) > ALL_NODES:
        count = min(MAX_CONTROLS, max(MIN_CONTROLS, CONTROLS_PER_NODE * len(nodes)))
        others = _spread(others, count)
    roles = {u.role for u in touched if isinstance(u, Switch)}
    in_front = {c.switch for c in site.cables if c.peer_kind == "node" and c.peer in names}
    chosen: list[Node | Switch] = [*others]
    return chosen + [s for s in site.switches if s.name not in names and (s.role in roles or s.name in in_front)]


def _spread(nodes: Sequence[Node], count: int) -> list[Node]:
    """Return ``count`` nodes, one rack after the other, in site order."""
    racks: dict[str, list[Node]] = {}
    for node in nodes:
        racks.setdefault(node.rack, []).append(node)
    longest = max(map(len, racks.values()), default=0)
    turns = [members[i] for i in range(longest) for members in racks.values() if i < len(members)]
    chosen = {n.name for n in turns[:count]}
    return [n for n in nodes if n.name in chosen]


def role_of(unit: str, unit_kind: str, change: Change, site: Site) -> Literal["touched", "control"] | None:
    """Return whether a measured unit was touched by the change, is a control, or (None) belongs to neither.

    A node was touched by itself, or when every switch that it is cabled to was. A rail was touched when one of its
    switches was; work on nodes touches every rail, since each rail's ring runs through them. A rack, the nodes of a
    SKU and the rails of a leaf were touched when one of theirs was. What takes all nodes together was touched in any
    case.
    """
    touched = set(change.touched)
    if unit_kind in ("rail", "leaf"):
        switches = {c.switch for c in site.cables if c.rail is not None and unit == f"rail-{c.rail}"}
        behind = switches if unit_kind == "rail" else set(unit.split("+"))
        return "touched" if behind & touched or touched & {u.name for u in site.nodes} else "control"
    if unit_kind in ("node", "nic", "gpu", "link", "pair"):
        return _role_of_ends({part.split("/", 1)[0] for part in re.split(r"<>|>", unit)}, change, site)
    if unit_kind in ("rack", "sku"):
        members = [n.name for n in site.nodes if unit == ((n.rack or UNGROUPED) if unit_kind == "rack" else n.sku_name)]
        roles = {_role_of_ends({name}, change, site) for name in members}
        return "touched" if "touched" in roles else "control" if "control" in roles else None
    return "touched"


def _role_of_ends(names: set[str], change: Change, site: Site) -> Literal["touched", "control"] | None:
    """Return the role of what is on a node, or between two."""
    touched = set(change.touched)
    if names & touched:
        return "touched"
    if touched & {s.name for s in site.switches}:  # the cables of a large site are many
        behind = [{c.switch for c in site.cables if c.peer == n} for n in names]
        if any(b and b <= touched for b in behind):
            return "touched"
    return "control" if names <= set(change.controls) else None
