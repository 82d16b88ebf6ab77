"""InfiniBand fabrics: topology against the cabling plan, links against expectations, counters, subnet manager."""

from __future__ import annotations

from fabric_health.checks.check import Check
from fabric_health.checks.fabric_links.commands import AT_ONCE, commands
from fabric_health.checks.fabric_links.derive import derive
from fabric_health.checks.fabric_links.judge import judge
from fabric_health.checks.fabric_links.parse import parse
from fabric_health.checks.fabric_links.settings import fabrics
from fabric_health.checks.fabric_links.tables import FabricNode, FabricPort, FabricWindow
from fabric_health.datasets.contracts import Row
from fabric_health.datasets.tables import Fact

__all__ = ["FABRIC_LINKS"]


def _unit_of(row: Row) -> str:
    if isinstance(row, Fact):
        return row.unit.split("/", 1)[0]
    if isinstance(row, (FabricNode, FabricPort, FabricWindow)):
        return row.fabric
    raise TypeError(f"{type(row).__name__} is no row of the check fabric_links")


FABRIC_LINKS = Check(
    name="fabric_links",
    title="InfiniBand fabric",
    unit_kind="fabric",
    tables=(FabricNode, FabricPort, FabricWindow, Fact),
    commands=commands,
    parse=parse,
    derive=derive,
    judge=judge,
    unit_of=_unit_of,
    fabrics=fabrics,
    at_once=AT_ONCE,
    doc=(
        "Holds an InfiniBand fabric against its cabling plan (or the previous run), every link's width and speed "
        "against what is expected, and its error counters as rates between runs; one subnet manager, nothing lost."
    ),
)
