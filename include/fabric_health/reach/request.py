"""What is asked of one unit."""

from __future__ import annotations

from dataclasses import dataclass

from fabric_health.evidence import Command
from fabric_health.site import Fabric, Node, Switch


@dataclass(frozen=True)
class UnitRequest:
    """The commands of one check for one unit; ``unit.reach`` says how the unit is reached."""

    unit: Node | Switch | Fabric
    check: str
    commands: tuple[Command, ...]
