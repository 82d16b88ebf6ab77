"""Faults that the simulated InfiniBand fabric can have."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

from fabric_health.errors import UsageError
from fabric_health.lab.infiniband.topology import Cable, FatTree

KINDS: dict[str, str] = {
    "ib-link-down": "the link is cut; its ends poll",
    "ib-link-width": "the link trained on one lane",
    "ib-link-speed": "the link trained one speed lower, at EDR",
    "ib-drop": "the node drops every management packet: its link stays up, and discovery leaves it out",
    "ib-errors": "the port counts symbol errors, retrainings and losses",
    "ib-no-manager": "the subnet manager is stopped",
}
# A fault of these kinds is a property of the cable, which the simulator reads when it starts.
IN_TOPOLOGY = ("ib-link-width", "ib-link-speed")
_TARGET = re.compile(r"^([a-z]+\d{1,5})(?:/(\d{1,3}))?$")
# Counts that the fault gives a port: well above what is judged a day, and below where the counters end.
ERRORS = {"SymbolErrorCounter": 5000, "LinkErrorRecoveryCounter": 30, "LinkDownedCounter": 20}


@dataclass(frozen=True)
class InfinibandFault:
    """One active fault; ``target`` is ``leaf001/3`` or ``gpu0008``, and empty for the manager; ``since`` UTC."""

    kind: str
    target: str
    since: datetime


def checked(tree: FatTree, kind: str, target: str | None, since: datetime) -> InfinibandFault:
    """Return the fault. Raises UsageError for an unknown kind, or a target that the fabric does not have."""
    if kind not in KINDS:
        raise UsageError(f"no InfiniBand fault {kind!r}; expected one of: {', '.join(KINDS)}")
    if kind == "ib-no-manager":
        return InfinibandFault(kind, "", since)
    found = _TARGET.match(target or "")
    node, number = (found[1], int(found[2] or 1)) if found else ("", 0)
    if node not in tree.switches and node not in tree.hosts:
        raise UsageError(f"fault {kind} needs a port such as leaf001/3 or a host such as gpu0008, not {target!r}")
    if node in tree.switches and found is not None and found[2] is None:
        raise UsageError(f"fault {kind} needs a port of {node}, such as {node}/3")
    if tree.find(node, number) is None:
        raise UsageError(f"{node} has no cable at port {number}")
    return InfinibandFault(kind, f"{node}/{number}", since)


def split(target: str) -> tuple[str, int]:
    """Return node and port of a checked target."""
    node, _, number = target.partition("/")
    return node, int(number)


def worn(cable: Cable, faults: tuple[InfinibandFault, ...]) -> Cable:
    """Return the cable as the faults leave it."""
    ends = {(cable.one.node, cable.one.number), (cable.other.node, cable.other.number)}
    width, speed = cable.width, cable.speed
    for fault in faults:
        if fault.kind in IN_TOPOLOGY and split(fault.target) in ends:
            width, speed = (1, speed) if fault.kind == "ib-link-width" else (width, "EDR")
    return Cable(cable.one, cable.other, width, speed)


def console_lines(tree: FatTree, fault: InfinibandFault) -> list[str]:
    """Return what to tell the simulator's console to plant a fault; nothing for those that are not planted there."""
    if fault.kind not in ("ib-link-down", "ib-drop", "ib-errors"):
        return []
    node, number = split(fault.target)
    at = f'"{tree.node_id(node)}"[{number}]'
    if fault.kind == "ib-link-down":
        return [f"Unlink {at}"]
    if fault.kind == "ib-drop":
        return [f"Error {at} 100"]
    return [f"PerformanceSet {at} PortCounters.{counter}={value}" for counter, value in ERRORS.items()]
