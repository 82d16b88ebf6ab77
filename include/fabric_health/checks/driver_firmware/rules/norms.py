"""What a value should be: pinned in the site file, else a default, else what most units of the SKU have.

Every unit of the SKU votes with its latest known value, also those that this run does not judge, so that a run over
a few nodes still has a norm.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from fabric_health.checks.driver_firmware.rules.attributes import DEFAULTS, UNIFORM
from fabric_health.checks.driver_firmware.view import Facts, Fleet, NodeView, PartKind, of_kind
from fabric_health.datasets.tables import Fact, FactState
from fabric_health.site import Node, Sku

ABSENT = "not available"


@dataclass(frozen=True)
class Norm:
    """A value, why it is the norm, and whether the site file or a default says so (else the majority does)."""

    value: str
    why: str
    given: bool
    pinned: bool


@dataclass(frozen=True)
class Ballot:
    """Votes on one attribute of one kind of unit, by the group that units are compared within."""

    kind: PartKind
    attribute: str
    votes: Mapping[str, Counter[str]]


class Norms:
    """The norms of one SKU."""

    def __init__(self, fleet: Fleet, sku_name: str, views: list[NodeView]) -> None:
        self.sku_name = sku_name
        self.sku: Sku = views[0].node.sku
        self.min_share = fleet.context.site.thresholds.majority_min_share
        others = {n.name: n for n in fleet.context.site.nodes if n.sku_name == sku_name}
        self._voters: list[tuple[Node, Facts]] = [(v.node, v.facts) for v in views]
        self._voters += [(others[n], f) for n, f in sorted(fleet.others.items()) if n in others]

    def shows(self, kind: PartKind, attribute: str) -> bool:
        """Return True when units of this kind can have the attribute."""
        return attribute in UNIFORM[kind] or any(
            attribute in of_unit for _, facts in self._voters for of_unit in of_kind(facts, kind).values()
        )

    def ballot(self, kind: PartKind, attribute: str) -> Ballot:
        """Count the values of an attribute."""
        votes: dict[str, Counter[str]] = {}
        for node, facts in self._voters:
            for unit, of_unit in of_kind(facts, kind).items():
                vote = _vote(of_unit.get(attribute))
                if vote is not None:
                    group = self.group(node, kind, attribute, unit.partition("/")[2], of_unit)
                    votes.setdefault(group, Counter())[vote] += 1
        return Ballot(kind, attribute, votes)

    def group(self, node: Node, kind: PartKind, attribute: str, name: str, facts: Mapping[str, Fact]) -> str:
        """Return what a unit is compared within: PSID for NIC firmware, the place of a NIC, the model of a drive."""
        if kind == "nic":
            given = next((n.psid for n in node.sku.nics if n.name == name), None)
            psid = _vote(facts.get("psid"))
            psid = given if psid in (None, ABSENT) else psid
            return f"PSID {psid}" if attribute == "fw_version" and psid else name
        if kind == "drive":
            return f"drives {_vote(facts.get('drive_model')) or 'of unknown model'}"
        return f"{kind}s"

    def norm(self, ballot: Ballot, group: str) -> Norm | None:
        """Return the norm of a group; None when nothing is given and no value has the majority."""
        attribute, pinned = ballot.attribute, self.sku.expected.get(ballot.attribute)
        if attribute == "fw_version":
            pinned = self.sku.nic_firmware.get(group.removeprefix("PSID "), pinned)
        if pinned is not None:
            return Norm(pinned, "pinned in the site file", given=True, pinned=True)
        if attribute in DEFAULTS:
            return Norm(DEFAULTS[attribute], "the default for GPU nodes", given=True, pinned=False)
        counts = ballot.votes.get(group, Counter())
        total = sum(counts.values())
        if total < 2:
            return None
        value, count = min(counts.items(), key=lambda item: (-item[1], item[0]))
        if count < self.min_share * total:
            return None
        return Norm(value, f"as {count} of {total} {group} of {self.sku_name}", given=False, pinned=False)


def _vote(fact: Fact | None) -> str | None:
    """Return the vote of a fact: what could not be read does not vote, what is not there votes for that."""
    if fact is None:
        return None
    if fact.state == FactState.UNSUPPORTED:
        return ABSENT
    return fact.value if fact.state == FactState.VALUE else None
