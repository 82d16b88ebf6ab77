"""What is asked of one unit."""

from __future__ import annotations

from dataclasses import dataclass

from fabric_health.evidence import Command
from fabric_health.reach.probe import MOST_AT_ONCE
from fabric_health.site import Fabric, Node, Switch


@dataclass(frozen=True)
class UnitRequest:
    """The commands of one check for one unit; ``unit.reach`` says how the unit is reached.

    ``at_once`` of them at most run at the same time (the probe allows 4). A switch is asked one after the other.
    """

    unit: Node | Switch | Fabric
    check: str
    commands: tuple[Command, ...]
    at_once: int = 1

    @property
    def side_by_side(self) -> int:
        """Return how many commands may really run at the same time."""
        return 1 if self.unit.kind == "switch" else max(1, min(MOST_AT_ONCE, self.at_once))
