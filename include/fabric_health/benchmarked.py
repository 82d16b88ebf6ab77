"""What a run's benchmarks have landed, beside the latest earlier results that may be compared with it."""

from __future__ import annotations

from fabric_health.checks import registry
from fabric_health.checks.collectives.tables import Collective, CollectiveLaunch, Isolation, LaunchProblem
from fabric_health.checks.object_store.tables import ObjectStoreResult
from fabric_health.datasets.store import ObjectStore
from fabric_health.history import comparable, load_part
from fabric_health.launching import read_plan
from fabric_health.report.data import CollectiveResults, ObjectStoreResults
from fabric_health.run_document import RunDocument

COLLECTIVES, OBJECT_STORE = "collectives", "object_store"


def collective_results(store: ObjectStore, run: RunDocument) -> CollectiveResults | None:
    """Return the collectives of a run; None when the run was not to run any."""
    if COLLECTIVES not in run.checks:
        return None
    rows = load_part(store, Collective, run.key, COLLECTIVES)
    return CollectiveResults(
        launches=tuple(load_part(store, CollectiveLaunch, run.key, COLLECTIVES)),
        problems=tuple(load_part(store, LaunchProblem, run.key, COLLECTIVES)),
        rows=tuple(rows),
        origins=_origins(store, run, COLLECTIVES),
        before=comparable(store, run.key, COLLECTIVES, Collective, rows, _collective_key),
        isolations=tuple(
            r for part in registry.entry(COLLECTIVES).parts for r in load_part(store, Isolation, run.key, part)
        ),
    )


def object_store_results(store: ObjectStore, run: RunDocument) -> ObjectStoreResults | None:
    """Return the object store benchmark of a run; None when the run was not to run it."""
    if OBJECT_STORE not in run.checks:
        return None
    rows = load_part(store, ObjectStoreResult, run.key, OBJECT_STORE)
    return ObjectStoreResults(
        rows=tuple(rows),
        origins=_origins(store, run, OBJECT_STORE),
        before=comparable(store, run.key, OBJECT_STORE, ObjectStoreResult, rows, _object_store_key),
    )


def _collective_key(row: Collective) -> str | None:
    return None if row.wrong else row.comparability


def _object_store_key(row: ObjectStoreResult) -> str | None:
    return None if row.problem is not None or row.errors else row.comparability


def _origins(store: ObjectStore, run: RunDocument, check: str) -> dict[str, str]:
    plan = read_plan(store, run, registry.check(check))
    return {x.name: x.origin or run.key.origin for x in plan.launches} if plan else {}
