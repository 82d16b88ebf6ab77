"""Columns of a row type: resolved once, in order, and only of types that tables can hold."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, dataclass
from typing import ClassVar

import pytest

from fabric_health.datasets.contracts import Row, column, columns, optional
from fabric_health.datasets.registry import all_tables


@dataclass(frozen=True)
class Sample(Row):
    TABLE: ClassVar[str] = "sample"
    KEY: ClassVar[tuple[str, ...]] = ("run", "name")

    name: str = column("name")
    ratio: float | None = optional("ratio", minimum=0)


def test_columns_are_resolved_once_and_cannot_be_changed() -> None:
    found = columns(Sample)
    assert columns(Sample) is found
    assert [(c.name, c.type, c.nullable, c.minimum) for c in found] == [
        ("name", str, False, None),
        ("ratio", float, True, 0),
    ]
    assert isinstance(found, tuple)
    with pytest.raises(FrozenInstanceError):
        found[0].name = "other"  # type: ignore[misc]


def test_every_table_has_columns_of_its_own() -> None:
    tables = all_tables()
    assert len({id(columns(t)) for t in tables}) == len(tables)


@dataclass(frozen=True)
class Listed(Row):
    bad: list[str] = column("a list of a type that tables can hold")


@dataclass(frozen=True)
class Mixed(Row):
    bad: int | str | None = optional("one of two types")


@dataclass(frozen=True)
class Opaque(Row):
    bad: object = column("anything")


@pytest.mark.parametrize("row_type", [Listed, Mixed, Opaque])
def test_a_type_that_tables_cannot_hold_is_refused_every_time(row_type: type[Row]) -> None:
    for _ in range(2):
        with pytest.raises(TypeError, match="bad"):
            columns(row_type)
