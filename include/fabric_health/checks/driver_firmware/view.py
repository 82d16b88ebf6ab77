"""A node's rows as the rules read them: by unit and attribute, noting every value that a rule needed and did not get.

Rules never see a default: :meth:`NodeView.text` and :meth:`NodeView.number` give None for what was not read, and the
gap is kept, so that "could not be judged" is reported once per unit and command however many rules asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from fabric_health.checks.check import Context, RowSet
from fabric_health.checks.driver_firmware.tables import KernelEvent, Link
from fabric_health.datasets.tables import Fact, FactState
from fabric_health.evidence import ReachStatus
from fabric_health.site import Node, Thresholds

PartKind = Literal["node", "gpu", "nic", "drive"]
# Facts by unit and attribute; no unit is without a fact.
Facts = Mapping[str, Mapping[str, Fact]]
MAX_TEXT = 200


@dataclass(frozen=True, order=True)
class Part:
    """A node or a part of it, with its unit id."""

    unit: str
    kind: PartKind

    @property
    def name(self) -> str:
        """Name within the node: ``gpu3``, ``mlx5_0``; the node's own name for the node itself."""
        return self.unit.partition("/")[2] or self.unit


@dataclass(frozen=True, order=True)
class Gap:
    """A value that a rule needed and that was not read. ``unsupported``: the tool said it does not exist here."""

    part: Part
    command: str
    item: str
    reason: str
    unsupported: bool = False


@dataclass
class NodeView:
    """Rows of one node in this run, and what is known of it from the previous run."""

    node: Node
    thresholds: Thresholds
    facts: Facts
    links: Mapping[str, tuple[Link, ...]]
    events: tuple[KernelEvent, ...]
    earlier_facts: Facts
    earlier_links: Mapping[tuple[str, int], Link]
    elapsed_s: float | None
    gaps: set[Gap] = field(default_factory=set)

    @property
    def part(self) -> Part:
        """The node itself."""
        return Part(self.node.name, "node")

    @cached_property
    def gpus(self) -> tuple[Part, ...]:
        """GPUs that the node showed, in order of their index."""
        return self._parts("gpu")

    @cached_property
    def nics(self) -> tuple[Part, ...]:
        """NICs of the SKU that the node showed, in the order of the site file."""
        units = [self.node.nic_unit(n.name) for n in self.node.sku.nics]
        return tuple(Part(u, "nic") for u in units if u in self.facts or u in self.links)

    @cached_property
    def drives(self) -> tuple[Part, ...]:
        """NVMe drives that the node showed."""
        return self._parts("drive")

    def parts(self, kind: PartKind) -> tuple[Part, ...]:
        """Return the parts of one kind that the node showed."""
        return {"node": (self.part,), "gpu": self.gpus, "nic": self.nics, "drive": self.drives}[kind]

    def _parts(self, kind: PartKind) -> tuple[Part, ...]:
        return tuple(Part(u, kind) for u in sorted(of_kind(self.facts, kind), key=natural))

    def fact(self, part: Part, attribute: str) -> Fact | None:
        """Return the fact as it is, without noting a gap."""
        return self.facts.get(part.unit, {}).get(attribute)

    def peek(self, part: Part, attribute: str) -> str | None:
        """Return the value, or None, without noting a gap: for values that only add to a finding."""
        return value_of(self.fact(part, attribute))

    def text(self, part: Part, attribute: str, *, required: bool = False) -> str | None:
        """Return the value; None, and a gap, when it was not read.

        ``required`` says that the SKU has it, so that "unsupported here" is worth a line too.
        """
        fact = self.fact(part, attribute)
        if fact is None:
            self.gap(part, "", attribute, "no such line in what the node answered")
            return None
        if fact.state == FactState.VALUE and fact.value is not None:
            return fact.value
        reason = clip(fact.detail or "no value")
        if fact.state != FactState.UNSUPPORTED:
            self.gap(part, fact.command or "", attribute, reason)
        elif required:
            self.gap(part, fact.command or "", attribute, reason, unsupported=True)
        return None

    def number(self, part: Part, attribute: str, *, required: bool = False) -> int | None:
        """Return the value as a whole number; None, and a gap, when it was not read or is no number."""
        text = self.text(part, attribute, required=required)
        return None if text is None else self._number(part, attribute, text)

    def _number(self, part: Part, attribute: str, text: str) -> int | None:
        number = whole(text)
        if number is None:
            self.gap(part, self.command(part, attribute) or "", attribute, f"{clip(text)!r} is not a number")
        return number

    def gap(self, part: Part, command: str, item: str, reason: str, *, unsupported: bool = False) -> None:
        """Note a value that was needed and not read."""
        self.gaps.add(Gap(part, command, item, reason, unsupported))

    def command(self, part: Part, attribute: str) -> str | None:
        """Return the command that the fact was read from."""
        fact = self.fact(part, attribute)
        return fact.command if fact else None

    def earlier_number(self, part: Part, attribute: str) -> int | None:
        """Return the value of the previous run as a whole number, None when there is none."""
        value = value_of(self.earlier_facts.get(part.unit, {}).get(attribute))
        return None if value is None else whole(value)

    def replaced(self, part: Part) -> bool:
        """Return True when the serial number says that another part sits there than in the previous run."""
        now, before = self.peek(part, "serial"), value_of(self.earlier_facts.get(part.unit, {}).get("serial"))
        return now is not None and before is not None and now != before


@dataclass(frozen=True)
class Fleet:
    """Nodes to judge, and the latest known facts of the other nodes of the site, which only vote."""

    nodes: tuple[NodeView, ...]
    others: Mapping[str, Facts]
    context: Context


def fleet(rows: RowSet, context: Context) -> Fleet:
    """Group rows by node. Only nodes in scope that answered are judged; row order makes no difference."""
    facts = _facts_by_node(rows.of(Fact))
    earlier = _facts_by_node(context.previous.of(Fact))
    links: dict[str, dict[str, list[Link]]] = {}
    for link in sorted(rows.of(Link), key=repr):
        links.setdefault(link.node, {}).setdefault(link.nic, []).append(link)
    earlier_links: dict[str, dict[tuple[str, int], Link]] = {}
    for link in sorted(context.previous.of(Link), key=repr):
        earlier_links.setdefault(link.node, {})[link.nic, link.port] = link
    events: dict[str, list[KernelEvent]] = {}
    for event in sorted(rows.of(KernelEvent), key=repr):
        events.setdefault(event.unit.partition("/")[0], []).append(event)

    nodes = []
    for node in sorted((u for u in context.scope if isinstance(u, Node)), key=lambda n: natural(n.name)):
        reach = context.reach.get(node.name)
        if reach is None or reach.status not in (ReachStatus.OK, ReachStatus.PARTIAL):
            continue
        nodes.append(
            NodeView(
                node=node,
                thresholds=context.site.thresholds,
                facts=facts.get(node.name, {}),
                links={u: tuple(rows) for u, rows in links.get(node.name, {}).items()},
                events=tuple(events.get(node.name, ())),
                earlier_facts=earlier.get(node.name, {}),
                earlier_links=earlier_links.get(node.name, {}),
                elapsed_s=_elapsed_s(context, node.name, links.get(node.name, {}), earlier_links.get(node.name, {})),
            )
        )
    judged = {v.node.name for v in nodes if v.facts}
    return Fleet(tuple(nodes), {n: f for n, f in earlier.items() if n not in judged}, context)


def _facts_by_node(facts: Iterable[Fact]) -> dict[str, dict[str, dict[str, Fact]]]:
    out: dict[str, dict[str, dict[str, Fact]]] = {}
    for fact in sorted(facts, key=lambda f: (f.unit, f.attribute, f.state, f.value or "", f.detail or "")):
        node = fact.unit.partition("/")[0]
        out.setdefault(node, {}).setdefault(fact.unit, {})[fact.attribute] = fact
    return out


def _elapsed_s(
    context: Context, node: str, links: Mapping[str, Sequence[Link]], earlier: Mapping[tuple[str, int], Link]
) -> float | None:
    """Return the seconds between the two readings of a node's counters; one command reads those of all its NICs."""
    now = next((link.collected_at for found in links.values() for link in found), None)
    then = next((link.collected_at for link in earlier.values()), None)
    window = context.window(node, Link, then, now)
    return None if window is None else window[1]


def of_kind(facts: Facts, kind: PartKind) -> dict[str, Mapping[str, Fact]]:
    """Return the units of one kind with their facts."""
    return {u: f for u, f in facts.items() if next(iter(f.values())).unit_kind == kind}


def value_of(fact: Fact | None) -> str | None:
    """Return the value of a fact whose state is ``value``, else None."""
    return fact.value if fact is not None and fact.state == FactState.VALUE else None


def whole(text: str) -> int | None:
    """Return a non-negative decimal as int, None for anything else (signs, fractions, other scripts' digits)."""
    text = text.strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 19 else None


def clip(text: str) -> str:
    """Return text from a unit on one line, short enough for a finding, without control characters."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text[: MAX_TEXT * 4]).split())
    return line if len(line) <= MAX_TEXT else line[: MAX_TEXT - 3] + "..."


def natural(name: str) -> tuple[tuple[int, int, str], ...]:
    """Return a sort key that puts ``gpu2`` before ``gpu10``."""
    out: list[tuple[int, int, str]] = []
    digits = ""
    for c in name + "\0":
        if c.isascii() and c.isdigit():
            digits += c
            continue
        if digits:
            out.append((0, int(digits[:18]), digits))
            digits = ""
        out.append((1, 0, c))
    return tuple(out)
