"""Land rows as Parquet objects whose keys are a pure function of table, site, week, run and part.

A repeated landing of the same rows writes the same bytes under the same keys, so a retry neither loses nor
duplicates anything. Readers find tables as a Hive-partitioned dataset.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.parquet as pq

from fabric_health.datasets import arrow
from fabric_health.datasets.contracts import Row
from fabric_health.datasets.run import RunKey
from fabric_health.datasets.store import ObjectStore
from fabric_health.datasets.tables import Quarantine
from fabric_health.errors import ContractError

ROW_GROUP_ROWS = 128 << 10
PARQUET_TYPE = "application/vnd.apache.parquet"
_PART = re.compile(r"[a-z0-9][a-z0-9_.-]{0,62}")


@dataclass(frozen=True)
class Landed:
    """What a landing wrote: rows by table (0 for a table that had none), rows quarantined, object keys."""

    rows: Mapping[str, int] = field(default_factory=dict)
    quarantined: int = 0
    keys: tuple[str, ...] = ()

    @property
    def total(self) -> int:
        """Rows landed in all tables, without quarantine."""
        return sum(self.rows.values())


def table_prefix(row_type: type[Row], site: str | None = None) -> str:
    """Return the prefix of all objects of a table's contract version, or of one site's."""
    prefix = f"tables/{row_type.TABLE}/v={row_type.MAJOR}/"
    return prefix if site is None else f"{prefix}site={site}/"


def table_key(row_type: type[Row], key: RunKey, part: str) -> str:
    """Return the object key of one part of a table.

    For example ``tables/facts/v=1/site=lab/week=2026-11-30/<run>__driver_firmware.parquet``.
    Raises ContractError when ``part`` is not a short lower-case name, or holds the ``__`` that sets it off.
    """
    if not _PART.fullmatch(part) or "__" in part:
        raise ContractError(f"part {part!r} cannot be in an object key; expected [a-z0-9_.-], without `__`")
    return f"{table_prefix(row_type, key.site)}week={key.week}/{key.run}__{part}.parquet"


def land(
    store: ObjectStore,
    key: RunKey,
    part: str,
    rows: Sequence[tuple[Row, str | None]],
    row_types: Sequence[type[Row]],
    *,
    quarantine_part: str | None = None,
    origin_of: Callable[[Row], str | None] | None = None,
) -> Landed:
    """Write one object per table in ``row_types`` (also for none of its rows), and one of quarantined rows.

    ``rows`` are (row, SHA-256 of its evidence or None). ``part`` is the check, or whatever else lands
    by itself within a run; ``quarantine_part`` keeps the quarantine of a second landing of the same part apart;
    ``origin_of`` gives a row's origin where it is not the run's.
    Raises ContractError for a row of a type that is not in ``row_types``, StoreError when the store stays away.
    """
    grouped: dict[type[Row], list[tuple[Row, str | None]]] = {t: [] for t in row_types}
    for row, evidence in rows:
        if type(row) not in grouped:
            known = ", ".join(t.__name__ for t in row_types)
            raise ContractError(f"part {part!r} got a {type(row).__name__}; expected only {known}")
        grouped[type(row)].append((row, evidence))
    objects: list[tuple[str, bytes]] = []
    counts: dict[str, int] = {}
    bad: list[tuple[Quarantine, str | None]] = []
    for row_type, pairs in grouped.items():
        table, broken = arrow.split(row_type, pairs, key, part, origin_of)
        objects.append((table_key(row_type, key, part), parquet(table)))
        counts[row_type.TABLE] = table.num_rows
        bad += [(q, None) for q in broken]
    table, left = arrow.split(Quarantine, bad, key, part)
    if left:
        raise ContractError(f"part {part!r}: {len(left)} quarantined rows break their own contract: {left[0].reason}")
    objects.append((table_key(Quarantine, key, quarantine_part or part), parquet(table)))
    store.put_many(objects, content_type=PARQUET_TYPE)
    return Landed(counts, len(bad), tuple(k for k, _ in objects))


def parquet(table: pa.Table) -> bytes:
    """Return a table as Parquet: equal tables give equal bytes for one version of pyarrow."""
    sink = pa.BufferOutputStream()
    pq.write_table(
        table,
        sink,
        version="2.6",
        compression="zstd",
        compression_level=3,
        row_group_size=ROW_GROUP_ROWS,
        use_dictionary=True,
        write_statistics=True,
        store_schema=True,
    )
    data: bytes = sink.getvalue().to_pybytes()
    return data
