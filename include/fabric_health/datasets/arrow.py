"""Contracts as Arrow schemas, and the gate that every row passes on its way into a table.

:func:`split` never drops a row: what breaks the contract comes back as a Quarantine row with the reason.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import fields
from datetime import UTC, datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from fabric_health.datasets.contracts import COMMON, Column, Row, columns
from fabric_health.datasets.run import RunKey
from fabric_health.datasets.tables import Quarantine
from fabric_health.errors import ContractError

if TYPE_CHECKING:
    from fabric_health.datasets.store import ObjectStore

R = TypeVar("R", bound=Row)
MAX_TEXT_BYTES = 1 << 20
# End of the reason of a row that is quarantined though nothing is lost with it.
SAME_ROW = "the same row twice"
# Text in a quarantined row is cut here: the raw evidence has it whole, and one table must stay readable.
MAX_QUARANTINED_TEXT = 64 << 10
_INT64_MIN, _INT64_MAX = -(1 << 63), (1 << 63) - 1
_ARROW_TYPES: dict[type, pa.DataType] = {
    str: pa.string(),
    int: pa.int64(),
    float: pa.float64(),
    bool: pa.bool_(),
    datetime: pa.timestamp("us", tz="UTC"),
}


def schema(row_type: type[Row]) -> pa.Schema:
    """Return the Arrow schema of a table: the row's columns, then those that landing adds.

    A field's metadata holds ``description`` and, where there is one, ``unit``; the schema's metadata holds
    ``table``, ``contract_version`` and ``key``.
    """
    return pa.schema(
        [_field(c) for c in (*columns(row_type), *COMMON)],
        metadata={
            "table": row_type.TABLE,
            "contract_version": str(row_type.MAJOR),
            "key": ",".join(row_type.KEY),
        },
    )


def split(
    row_type: type[R],
    rows: Sequence[tuple[R, str | None]],
    key: RunKey,
    check: str,
    origin_of: Callable[[Row], str | None] | None = None,
) -> tuple[pa.Table, list[Quarantine]]:
    """Return the rows that keep the contract as a table in key order, and the others with the reason.

    ``rows`` are (row, SHA-256 of its evidence or None); ``check`` names the producer in quarantine. A row is kept
    when every value has its column's type, required values are there, numbers are finite and within bounds, text is
    valid and at most 1 MiB, and no other row of the same content or smaller has its key. The result does not depend
    on the order of ``rows``. ``origin_of`` gives a row's origin where it is not the run's. Raises ContractError when
    a row is not a ``row_type`` at all.
    """
    for row, _ in rows:
        if type(row) is not row_type:
            raise ContractError(f"a {type(row).__name__} was handed to table {row_type.TABLE!r}")
    spec = columns(row_type)
    reasons = _broken(spec, [r for r, _ in rows])
    data = {c.name: [getattr(r, c.name) for r, _ in rows] for c in spec}
    good = [i for i in range(len(rows)) if i not in reasons]
    names = [k for k in row_type.KEY if k != "run"]
    keys = {i: tuple(data[n][i] for n in names) for i in good}
    good.sort(key=keys.__getitem__)
    kept = _unique(good, keys, [repr(r) for r, _ in rows] if _has_duplicates(good, keys) else None, reasons, names)
    origins = [(origin_of(rows[i][0]) if origin_of else None) or key.origin for i in kept]
    values = {n: [v[i] for i in kept] for n, v in data.items()}
    table = _table(row_type, values, [rows[i][1] for i in kept], origins, key)
    return table, _quarantined(row_type, rows, reasons, check)


def rows(row_type: type[R], table: pa.Table) -> list[R]:
    """Return a table's rows as ``row_type``.

    Nullable columns that an older object lacks are None; columns that this version does not know are ignored.
    Raises ContractError when a required column is missing.
    """
    data: list[list[Any]] = []
    for c in columns(row_type):
        if c.name not in table.column_names:
            if not c.nullable:
                raise ContractError(f"a stored object of table {row_type.TABLE!r} lacks the required column {c.name!r}")
            data.append([None] * table.num_rows)
            continue
        values = table.column(c.name).to_pylist()
        if c.type is datetime:
            values = [None if v is None else v.astimezone(UTC) for v in values]
        data.append(values)
    return [row_type(*values) for values in zip(*data, strict=True)]


def read(data: bytes) -> pa.Table:
    """Return the table that a Parquet object holds. Raises ContractError when the bytes are not Parquet."""
    try:
        return pq.read_table(io.BytesIO(data))
    except (pa.ArrowException, OSError) as error:
        raise ContractError(f"not a Parquet object that can be read: {error}") from None


def count(store: ObjectStore, key: str) -> int:
    """Return how many rows the object under ``key`` holds; 0 when there is none."""
    from fabric_health.datasets.store import ObjectMissing

    try:
        data = store.get(key)
    except ObjectMissing:
        return 0
    try:
        rows_held: int = pq.read_metadata(io.BytesIO(data)).num_rows
    except (pa.ArrowException, OSError) as error:
        raise ContractError(f"{store.uri(key)} is not a Parquet object that can be read: {error}") from None
    return rows_held


def _field(c: Column) -> pa.Field:
    meta = {"description": c.description} | ({"unit": c.unit} if c.unit else {})
    return pa.field(c.name, _ARROW_TYPES[c.type], nullable=c.nullable, metadata=meta)


def _table(
    row_type: type[Row], data: dict[str, list[Any]], evidence: list[str | None], origins: list[str], key: RunKey
) -> pa.Table:
    s = schema(row_type)
    n = len(evidence)
    common: dict[str, list[Any]] = {
        "run": [key.run] * n,
        "produced_at": [key.started_at.astimezone(UTC)] * n,
        "origin": origins,
        "evidence": evidence,
    }
    arrays = [pa.array((data | common)[f.name], type=f.type) for f in s]
    return pa.Table.from_arrays(arrays, schema=s)


def _broken(spec: Sequence[Column], given: Sequence[Row]) -> dict[int, str]:
    """Return why a row breaks its contract, by index; whole columns that are plainly fine cost one pass."""
    reasons: dict[int, str] = {}
    for c in spec:
        values = [getattr(r, c.name) for r in given]
        if _plainly_fine(c, values):
            continue
        for i, value in enumerate(values):
            fault = _fault(c, value)
            if fault and i not in reasons:
                reasons[i] = f"{c.name}: {fault}"
    return reasons


def _plainly_fine(c: Column, values: list[Any]) -> bool:
    """Tell whether a column of text holds nothing but short ASCII: by far the most common case."""
    if c.type is not str:
        return False
    kinds = set(map(type, values))
    if not kinds <= ({str, type(None)} if c.nullable else {str}):
        return False
    texts = [v for v in values if v is not None] if type(None) in kinds else values
    return all(len(t) <= MAX_TEXT_BYTES and t.isascii() for t in texts)


def _fault(c: Column, value: Any) -> str | None:
    """Say how a value breaks its column's rule, None when it keeps it."""
    if value is None:
        return None if c.nullable else "is required and missing"
    if not _is(c.type, value):
        return f"expected {c.type.__name__}, got {type(value).__name__}"
    return _FAULTS[c.type](c, value)


def _is(expected: type, value: Any) -> bool:
    if expected is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if expected is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    return isinstance(value, expected)


def _text_fault(_c: Column, value: str) -> str | None:
    if len(value) > MAX_TEXT_BYTES:
        return f"{len(value)} characters of text; at most {MAX_TEXT_BYTES} bytes are kept in a table"
    try:
        size = len(value.encode("utf-8"))
    except UnicodeEncodeError:
        return "text is not valid Unicode (lone surrogate)"
    return f"{size} bytes of text; at most {MAX_TEXT_BYTES} are kept in a table" if size > MAX_TEXT_BYTES else None


def _number_fault(c: Column, value: int | float) -> str | None:
    if isinstance(value, float) and not math.isfinite(value):
        return f"{value} is not a number that was measured"
    if isinstance(value, int) and not _INT64_MIN <= value <= _INT64_MAX:
        return "integer of more than 64 bits"
    if c.type is float and isinstance(value, int) and int(float(value)) != value:
        return f"{value} cannot be held exactly as a float"
    if c.minimum is not None and value < c.minimum:
        return f"{value} is below {c.minimum:g}{_spaced(c.unit)}"
    if c.maximum is not None and value > c.maximum:
        return f"{value} is above {c.maximum:g}{_spaced(c.unit)}"
    return None


def _time_fault(_c: Column, value: datetime) -> str | None:
    if value.tzinfo is None or value.utcoffset() is None:
        return "time without a zone"
    try:
        value.astimezone(UTC)
    except OverflowError:
        return "time outside the calendar in UTC"
    return None


def _no_fault(_c: Column, _value: bool) -> None:
    return None


def _spaced(unit: str) -> str:
    return f" {unit}" if unit not in {"", "1"} else ""


_FAULTS: dict[type, Callable[[Column, Any], str | None]] = {
    str: _text_fault,
    int: _number_fault,
    float: _number_fault,
    bool: _no_fault,
    datetime: _time_fault,
}


def _has_duplicates(good: list[int], keys: dict[int, tuple[Any, ...]]) -> bool:
    return any(keys[a] == keys[b] for a, b in pairwise(good))


def _unique(
    good: list[int],
    keys: dict[int, tuple[Any, ...]],
    content: list[str] | None,
    reasons: dict[int, str],
    names: list[str],
) -> list[int]:
    """Return the indices to keep in key order; of rows with one key the first by content stays, whatever the order."""
    if content is None:
        return good
    good.sort(key=lambda i: (keys[i], content[i]))
    kept = good[:1]
    for i in good[1:]:
        if keys[i] != keys[kept[-1]]:
            kept.append(i)
            continue
        same = SAME_ROW if content[i] == content[kept[-1]] else "another row has the same key"
        reasons[i] = f"{', '.join(names)}: {same}"
    return kept


def _quarantined(
    row_type: type[Row], given: Sequence[tuple[Row, str | None]], reasons: dict[int, str], check: str
) -> list[Quarantine]:
    texts = sorted((reason, _row_json(given[i][0])) for i, reason in reasons.items())
    return [
        Quarantine(check=check, target_table=row_type.TABLE, part=n, reason=reason, row_json=text)
        for n, (reason, text) in enumerate(texts)
    ]


def _row_json(row: Row) -> str:
    """Return a row as ASCII JSON whatever it holds: NaN, bytes, surrogates, text of any length."""
    return json.dumps({f.name: _plain(getattr(row, f.name)) for f in fields(row)}, sort_keys=True)


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if isinstance(value, int) and _INT64_MIN <= value <= _INT64_MAX:
        return value
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, int):
        return f"integer of {value.bit_length()} bits"
    text = value if isinstance(value, str) else repr(value)
    if len(text) > MAX_QUARANTINED_TEXT:
        return f"{text[:MAX_QUARANTINED_TEXT]}... [cut: {len(text)} characters in all]"
    return text
