"""Land a run's facts and query them back, against one Parquet object per node written through pandas.

``python bench/land.py [--nodes 1000] [--facts 300] [--runs 3]`` starts an embedded store of its own. Both sides use
the same store, rows, client and number of threads in the same process; each step is taken ``--runs`` times in turns
and the median is shown with the spread.
"""

from __future__ import annotations

import argparse
import dataclasses
import io
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import pandas as pd
import pyarrow.dataset as ds

from fabric_health.datasets import embedded, landing, sql
from fabric_health.datasets.run import RunKey
from fabric_health.datasets.store import ObjectStore
from fabric_health.datasets.tables import Fact

THREADS = 16
COUNT = "SELECT count(*), count(DISTINCT unit) FROM facts"
ODD = (
    "SELECT attribute, count(*) AS nodes FROM facts WHERE attribute = 'attribute_007' "
    "GROUP BY attribute, value ORDER BY nodes LIMIT 5"
)


def facts(nodes: int, per_node: int) -> list[Fact]:
    """Make facts as an audit gives them: few distinct values per attribute, one odd node."""
    return [
        Fact(
            unit=f"gpu-{n:04}",
            unit_kind="node",
            attribute=f"attribute_{a:03}",
            state="value",
            value="older" if (n, a) == (7, 7) else f"1.{a}.{a * 7 % 13}",
            command=f"command_{a % 20}",
        )
        for n in range(nodes)
        for a in range(per_node)
    ]


def pandas_objects(store: ObjectStore, rows: list[Fact], key: RunKey) -> None:
    """Write one object per node with ``pandas.to_parquet``: the usual way, without contract, quarantine or order."""
    frame = pd.DataFrame(rows)
    frame["run"], frame["produced_at"] = key.run, key.started_at
    objects = []
    for unit, part in frame.groupby("unit"):
        sink = io.BytesIO()
        part.to_parquet(sink, compression="zstd", index=False)
        objects.append((f"pandas/facts/week={key.week}/{unit}.parquet", sink.getvalue()))
    store.put_many(objects, threads=THREADS)


def pandas_query(store: ObjectStore, query: str) -> list[tuple[object, ...]]:
    """Ask the same of the per-node objects, through the same engine."""
    keys = [f"{store.bucket}/{k}" for k in store.list("pandas/facts/")]
    with duckdb.connect() as connection:
        connection.register("facts", ds.dataset(keys, filesystem=store.filesystem(), format="parquet"))
        return connection.execute(query).fetchall()


def our_query(store: ObjectStore, query: str) -> list[tuple[object, ...]]:
    """Ask through the product's SQL."""
    return [tuple(r.values()) for r in sql.query(store, query).to_pylist()]


def timed(action: Callable[[], object]) -> float:
    """Return how long ``action`` takes, in seconds."""
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--facts", type=int, default=300, help="facts per node")
    parser.add_argument("--runs", type=int, default=3, help="repetitions of each step")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-land-") as folder:
        home = Path(folder)
        embedded.start(home)
        try:
            return measure(home, given.nodes, given.facts, given.runs)
        finally:
            embedded.stop(home)


def measure(home: Path, nodes: int, per_node: int, runs: int) -> int:
    """Time both sides and print the table. Returns 1 when they do not hold the same rows."""
    conn = embedded.operator(home)
    store = ObjectStore.connect(dataclasses.replace(conn, extra={**conn.extra, "bucket": "bench"}))
    store.ensure_bucket()
    started = datetime(2026, 11, 30, 3, tzinfo=UTC)
    key = RunKey("bench", "bench-20261130T030000-00000000", started, "lab")
    rows = facts(nodes, per_node)
    pairs = [(r, "a" * 64) for r in rows]
    steps: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
        "land": (
            lambda: landing.land(store, key, "driver_firmware", pairs, (Fact,)),
            lambda: pandas_objects(store, rows, key),
        ),
        "count": (lambda: our_query(store, COUNT), lambda: pandas_query(store, COUNT)),
        "odd value": (lambda: our_query(store, ODD), lambda: pandas_query(store, ODD)),
    }
    print(f"{nodes} nodes x {per_node} facts = {len(rows)} rows, {runs} repetitions, {THREADS} threads")
    print(f"{'step':<12}{'ours s':>18}{'pandas, object a node s':>28}{'ratio':>8}")
    for name, (ours, theirs) in steps.items():
        a, b = zip(*((timed(ours), timed(theirs)) for _ in range(runs)), strict=True)
        x, y = statistics.median(a), statistics.median(b)
        print(f"{name:<12}{_spread(a):>18}{_spread(b):>28}{y / x:>7.1f}x")
    sizes = [sum(map(len, store.get_many(store.list(p)))) for p in ("tables/facts/", "pandas/facts/")]
    counts = [len(store.list(p)) for p in ("tables/facts/", "pandas/facts/")]
    print(f"{'objects':<12}{counts[0]:>18}{counts[1]:>28}")
    print(f"{'MiB':<12}{sizes[0] / 2**20:>18.2f}{sizes[1] / 2**20:>28.2f}{sizes[1] / sizes[0]:>7.1f}x")
    same = our_query(store, COUNT) == pandas_query(store, COUNT) == [(len(rows), nodes)]
    print("both hold the same rows" if same else "THE TWO SIDES DIFFER")
    return 0 if same else 1


def _spread(values: tuple[float, ...]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f}..{max(values):.2f})"


if __name__ == "__main__":
    sys.exit(main())
