"""Facts made of cells."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fabric_health.checks.driver_firmware.parsers import cells
from fabric_health.checks.driver_firmware.parsers.cells import Cell
from fabric_health.datasets.tables import Fact, FactState


def fact(unit: str, unit_kind: str, attribute: str, cell: Cell, command: str | None) -> Fact:
    """Return the fact that ``cell`` states about one attribute of a unit, as read from ``command``."""
    return Fact(unit, unit_kind, attribute, cell.state.value, cell.value, cell.detail, command)


def facts(unit: str, unit_kind: str, found: Mapping[str, Cell], command: str) -> list[Fact]:
    """Return one fact for each cell, all from the same command."""
    return [fact(unit, unit_kind, attribute, cell, command) for attribute, cell in found.items()]


def merged(
    unit: str, unit_kind: str, attribute: str, answers: Iterable[tuple[Cell, str]], nothing: str = "not asked"
) -> Fact:
    """Return the fact of the first answer with a value, else of the first unsupported, else of the first error."""
    found = list(answers)
    for state in FactState:
        for cell, command in found:
            if cell.state is state:
                return fact(unit, unit_kind, attribute, cell, command)
    return fact(unit, unit_kind, attribute, cells.error(nothing), None)
