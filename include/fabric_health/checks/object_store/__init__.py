"""Object store benchmark: throughput and request times of S3, shares of its hosts, state of a MinIO cluster."""

from __future__ import annotations

from fabric_health.checks.check import Check, Unit
from fabric_health.checks.object_store.judge import judge
from fabric_health.checks.object_store.launches import CLUSTER_LAUNCH, launches
from fabric_health.checks.object_store.parse import parse
from fabric_health.checks.object_store.tables import ObjectStoreCluster, ObjectStoreHost, ObjectStoreResult
from fabric_health.datasets.contracts import Row
from fabric_health.datasets.tables import Fact
from fabric_health.evidence import Command
from fabric_health.site import Site

__all__ = ["OBJECT_STORE"]


def _no_commands(_unit: Unit, _site: Site) -> tuple[Command, ...]:
    return ()


def _unit_of(row: Row) -> str:
    if isinstance(row, Fact):
        # Facts are about the store, which the cluster's launch tells of, or about what is wrong with a launch.
        return row.unit.split("/", 1)[0] if row.unit_kind == "launch" else CLUSTER_LAUNCH
    if isinstance(row, (ObjectStoreResult, ObjectStoreHost, ObjectStoreCluster)):
        return row.launch
    raise TypeError(f"{type(row).__name__} is no row of the check object_store")


OBJECT_STORE = Check(
    name="object_store",
    title="Object store benchmark",
    unit_kind="launch",
    tables=(ObjectStoreResult, ObjectStoreHost, ObjectStoreCluster, Fact),
    commands=_no_commands,
    parse=parse,
    judge=judge,
    unit_of=_unit_of,
    launches=launches,
    results=(ObjectStoreResult,),
    doc=(
        "Measures an S3 object store with `warp` (production) or with the embedded engine: GET, PUT, mixed, DELETE and "
        "STAT loads at the sizes the site file names, several launches each in random order. A launch that ran on "
        "other hosts, with another size or concurrency, or not long enough is refused. Judged: request errors, shares "
        "of hosts, stability within the run, and for MinIO drives, erasure sets, versions, network and capacity."
    ),
)
