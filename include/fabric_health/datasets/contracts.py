"""What a table is: a frozen dataclass per row, whose fields carry unit and description.

A contract is light (no pyarrow here): checks define rows with it, ``datasets.arrow`` turns it into a schema.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from datetime import datetime
from types import UnionType
from typing import Any, ClassVar, get_args, get_type_hints

PY_TYPES: tuple[type, ...] = (str, int, float, bool, datetime)


def column(description: str, *, unit: str = "", minimum: float | None = None, maximum: float | None = None) -> Any:
    """Declare a column. ``unit`` is the unit of measure; ``minimum``/``maximum`` bound what may land (inclusive).

    Fields annotated ``X | None`` default to None and are nullable; all others are required.
    """
    meta = {"description": description, "unit": unit, "minimum": minimum, "maximum": maximum}
    return dataclasses.field(metadata=meta)


def optional(description: str, *, unit: str = "", minimum: float | None = None, maximum: float | None = None) -> Any:
    """Declare a nullable column (annotate it ``X | None``); None means "not measured", never zero."""
    meta = {"description": description, "unit": unit, "minimum": minimum, "maximum": maximum}
    return dataclasses.field(default=None, metadata=meta)


@dataclass(frozen=True)
class Row:
    """Base of all rows. Subclasses set ``TABLE`` (name), ``MAJOR`` (contract version) and ``KEY`` (primary key)."""

    TABLE: ClassVar[str] = ""
    MAJOR: ClassVar[int] = 1
    KEY: ClassVar[tuple[str, ...]] = ()
    DESCRIPTION: ClassVar[str] = ""


@dataclass(frozen=True)
class Column:
    """One column of a contract; ``type`` is one of str, int, float, bool, datetime (UTC)."""

    name: str
    type: type
    nullable: bool
    description: str
    unit: str
    minimum: float | None
    maximum: float | None


_RESOLVED: dict[type[Row], tuple[Column, ...]] = {}


def columns(row_type: type[Row]) -> tuple[Column, ...]:
    """Return the columns of a row type in declaration order. Raises TypeError for a type tables cannot hold.

    Resolving the annotations of a type takes a millisecond, so it is done once.
    """
    if row_type not in _RESOLVED:
        _RESOLVED[row_type] = _resolve(row_type)
    return _RESOLVED[row_type]


def _resolve(row_type: type[Row]) -> tuple[Column, ...]:
    hints = get_type_hints(row_type)
    out = []
    for f in dataclasses.fields(row_type):
        hint = hints[f.name]
        nullable = isinstance(hint, UnionType) and type(None) in get_args(hint)
        base = next((t for t in PY_TYPES if hint == (t | None if nullable else t)), None)
        if base is None:
            raise TypeError(f"{row_type.__name__}.{f.name}: {hint} is not a column type")
        m = f.metadata
        out.append(Column(f.name, base, nullable, m["description"], m["unit"], m.get("minimum"), m.get("maximum")))
    return tuple(out)


# Columns that landing adds to every table, after the row's own; ``site`` and ``week`` are in the object's path.
COMMON: tuple[Column, ...] = (
    Column("run", str, False, "run that produced the row (key of table `runs`)", "", None, None),
    Column("produced_at", datetime, False, "start of that run, UTC: orders runs", "", None, None),
    Column("origin", str, False, "`measured` on real units, `lab` when the embedded lab answered", "", None, None),
    Column("evidence", str, True, "SHA-256 of the raw evidence the row was read from", "", None, None),
)
