"""SQL over the tables, read only: DuckDB on pyarrow datasets of the objects in the store, with ``views.sql``.

DuckDB itself touches neither network nor files: pyarrow reads the store with the credentials of the connection.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds

from fabric_health.datasets import arrow
from fabric_health.datasets.contracts import COMMON, Row, columns
from fabric_health.datasets.landing import table_prefix
from fabric_health.datasets.registry import all_tables
from fabric_health.datasets.run import RunKey
from fabric_health.datasets.store import ObjectStore
from fabric_health.errors import UsageError

_OPEN_RUNS = pa.schema([pa.field("site", pa.string()), pa.field("run", pa.string())])
# What is in an object's path rather than in the object; readers see it as columns.
PARTITIONS = pa.schema([pa.field("site", pa.string()), pa.field("week", pa.string())])


def connect(store: ObjectStore, open_run: RunKey | None = None) -> duckdb.DuckDBPyConnection:
    """Return a connection in which each table is a relation and the views of ``views.sql`` exist.

    Views show concluded runs alone; ``open_run`` is one that view ``measurements`` shows before it is concluded.

    A table that nothing has landed in yet is there, empty, with its columns. ``table_columns`` lists every column
    with its type, unit of measure and description. The caller closes the connection. Raises StoreError.
    """
    tables = all_tables()
    connection = duckdb.connect(":memory:")
    try:
        objects = _objects(store, tables)
        filesystem = store.filesystem() if any(objects.values()) else None
        for row_type in tables:
            connection.register(row_type.TABLE, _relation(store, filesystem, row_type, objects[row_type]))
        connection.register("table_columns", _table_columns(tables))
        held = [open_run] if open_run else []
        names = {"site": [k.site for k in held], "run": [k.run for k in held]}
        connection.register("open_runs", pa.table(names, schema=_OPEN_RUNS))
        connection.execute(files("fabric_health.datasets").joinpath("views.sql").read_text(encoding="utf-8"))
        connection.execute("SET TimeZone = 'UTC'")
        for setting in ("enable_external_access", "python_enable_replacements", "autoinstall_known_extensions"):
            connection.execute(f"SET {setting} = false")
        connection.execute("SET lock_configuration = true")
    except BaseException:
        connection.close()
        raise
    return connection


def records(connection: duckdb.DuckDBPyConnection, sql: str, values: Sequence[Any] = ()) -> list[dict[str, Any]]:
    """Run a statement of ours with a user's ``values`` in the place of its question marks; return its rows."""
    result = connection.execute(sql, list(values))
    names = [d[0] for d in result.description or ()]
    return [dict(zip(names, row, strict=True)) for row in result.fetchall()]


def query(store: ObjectStore, sql: str) -> pa.Table:
    """Run one reading statement and return its result. Raises UsageError with DuckDB's message, and StoreError."""
    with connect(store) as connection:
        try:
            statements = connection.extract_statements(sql)
            if len(statements) != 1:
                raise UsageError(f"expected one SQL statement, got {len(statements)}")
            if statements[0].type not in _READING:
                raise UsageError(
                    f"{statements[0].type.name} changes something; the tables are read only: expected SELECT, "
                    "DESCRIBE, SHOW, SUMMARIZE or EXPLAIN"
                )
            return connection.sql(sql).to_arrow_table()
        except duckdb.Error as error:
            raise UsageError(f"the query cannot be answered: {error}") from None


_READING = frozenset({duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN, duckdb.StatementType.RELATION})


def _objects(store: ObjectStore, tables: Sequence[type[Row]]) -> dict[type[Row], list[str]]:
    """Return the Parquet objects of each table, from one listing of all."""
    keys = [k for k in store.list("tables/") if k.endswith(".parquet")]
    return {t: [k for k in keys if k.startswith(table_prefix(t))] for t in tables}


def _relation(store: ObjectStore, filesystem: Any, row_type: type[Row], keys: list[str]) -> Any:
    schema = arrow.schema(row_type)
    for field in PARTITIONS:
        schema = schema.append(field)
    if not keys:
        return schema.empty_table()
    return ds.dataset(
        [f"{store.bucket}/{k}" for k in keys],
        schema=schema,
        format="parquet",
        filesystem=filesystem,
        partitioning=ds.partitioning(PARTITIONS, flavor="hive"),
        partition_base_dir=f"{store.bucket}/{table_prefix(row_type)}",
    )


def _table_columns(tables: Sequence[type[Row]]) -> pa.Table:
    listed = [(t, c) for t in tables for c in (*columns(t), *COMMON)]
    return pa.table(
        {
            "table": [t.TABLE for t, _ in listed],
            "column": [c.name for _, c in listed],
            "type": [c.type.__name__ for _, c in listed],
            "nullable": [c.nullable for _, c in listed],
            "unit": [c.unit for _, c in listed],
            "description": [c.description for _, c in listed],
        }
    )
