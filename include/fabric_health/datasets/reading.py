"""Read tables back as rows or as Arrow, and the list of concluded runs."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import TypeVar

import pyarrow as pa

from fabric_health.datasets import arrow
from fabric_health.datasets.contracts import Row
from fabric_health.datasets.landing import table_prefix
from fabric_health.datasets.store import ObjectStore
from fabric_health.datasets.tables import Run
from fabric_health.errors import ContractError

R = TypeVar("R", bound=Row)


@dataclass(frozen=True)
class ConcludedRun:
    """A run that has its row in table ``runs``: nothing else may serve as a reference.

    ``week`` is the Monday of its partition, ``started_at`` its start (UTC).
    """

    run: str
    week: str
    started_at: datetime
    row: Run

    @cached_property
    def checks(self) -> frozenset[str]:
        """Names of the checks that the run ran."""
        return frozenset(self.row.checks.split(","))


def read(
    store: ObjectStore,
    row_type: type[R],
    site: str,
    *,
    run: str | None = None,
    weeks: Collection[str] | None = None,
) -> list[R]:
    """Return the rows of a site's table, of one ``run`` and of ``weeks`` (Mondays, ``YYYY-MM-DD``) where given.

    Rows come in the order of week, run, part and primary key; runs that are not concluded are included. Raises
    ContractError for an object that does not fit the contract.
    """
    return arrow.rows(row_type, table(store, row_type, site, run=run, weeks=weeks))


def table(
    store: ObjectStore,
    row_type: type[Row],
    site: str,
    *,
    run: str | None = None,
    weeks: Collection[str] | None = None,
) -> pa.Table:
    """Return the same as :func:`read` as one Arrow table in today's schema, with the columns that landing adds."""
    prefix = table_prefix(row_type, site)
    folders = [prefix] if weeks is None else [f"{prefix}week={w}/" for w in sorted(set(weeks))]
    keys = [k for folder in folders for k in store.list(folder) if k.endswith(".parquet")]
    keys = [k for k in keys if run is None or _run_of(k) == run]
    schema = arrow.schema(row_type)
    parts = [_fitted(schema, store.uri(k), arrow.read(d)) for k, d in zip(keys, store.get_many(keys), strict=True)]
    return pa.concat_tables([schema.empty_table(), *parts])


def concluded(
    store: ObjectStore, site: str, *, before: datetime | None = None, max_weeks: int = 53
) -> Iterator[ConcludedRun]:
    """Yield concluded runs of a site that started before ``before``, newest first, reading week by week."""
    folders = store.folders(table_prefix(Run, site))
    weeks = [f.removeprefix("week=") for f in folders if f.startswith("week=")]
    if before is not None:
        weeks = [w for w in weeks if w <= _monday(before)]
    for week in sorted(weeks, reverse=True)[:max_weeks]:
        held = table(store, Run, site, weeks=[week])
        names = held.column("run").to_pylist()
        starts = [t.astimezone(UTC) for t in held.column("produced_at").to_pylist()]
        runs = [
            ConcludedRun(name, week, at, row)
            for name, at, row in zip(names, starts, arrow.rows(Run, held), strict=True)
        ]
        runs.sort(key=lambda r: (r.started_at, r.run), reverse=True)
        yield from (r for r in runs if before is None or r.started_at < before)


def _fitted(schema: pa.Schema, uri: str, part: pa.Table) -> pa.Table:
    """Bring an object of an older or newer minor version to ``schema``: columns may only be added, and nullable."""
    arrays = []
    for f in schema:
        if f.name in part.column_names:
            arrays.append(part.column(f.name).cast(f.type))
        elif f.nullable:
            arrays.append(pa.nulls(part.num_rows, f.type))
        else:
            raise ContractError(f"{uri} lacks the required column {f.name!r}")
    return pa.Table.from_arrays(arrays, schema=schema)


def _run_of(key: str) -> str:
    return key.rsplit("/", 1)[-1].rsplit("__", 1)[0]


def _monday(moment: datetime) -> str:
    day = moment.astimezone(UTC).date()
    return (day - timedelta(days=day.weekday())).isoformat()
