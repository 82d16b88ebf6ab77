"""What a run's benchmarks have landed, beside the latest earlier results that may be compared with it."""

from __future__ import annotations

from fabric_health.checks import registry
from fabric_health.checks.collectives.tables import Collective, CollectiveLaunch, Isolation, LaunchProblem
from fabric_health.checks.elastic_training.tables import ElasticEvent, ElasticNodeCheck, ElasticRecovery, ElasticRun
from fabric_health.checks.model_eval.tables import (
    ModelBuild,
    ModelLaunchProblem,
    ModelQuality,
    ModelServer,
    ModelServing,
    Quantization,
)
from fabric_health.checks.object_store.tables import ObjectStoreResult
from fabric_health.datasets.store import ObjectStore
from fabric_health.history import comparable, load_part
from fabric_health.launching import read_plan
from fabric_health.report.data import CollectiveResults, ElasticResults, ModelResults, ObjectStoreResults
from fabric_health.run_document import RunDocument

COLLECTIVES, OBJECT_STORE = "collectives", "object_store"
MODELS, ELASTIC = "model_eval", "elastic_training"


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


def model_results(store: ObjectStore, run: RunDocument) -> ModelResults | None:
    """Return the models of a run; None when the run was not to evaluate any."""
    if MODELS not in run.checks:
        return None
    serving = load_part(store, ModelServing, run.key, MODELS)
    return ModelResults(
        builds=tuple(load_part(store, ModelBuild, run.key, MODELS)),
        quantizations=tuple(load_part(store, Quantization, run.key, MODELS)),
        servers=tuple(load_part(store, ModelServer, run.key, MODELS)),
        serving=tuple(serving),
        quality=tuple(load_part(store, ModelQuality, run.key, MODELS)),
        problems=tuple(load_part(store, ModelLaunchProblem, run.key, MODELS)),
        origins=_origins(store, run, MODELS),
        before=comparable(store, run.key, MODELS, ModelServing, serving, _serving_key),
    )


def elastic_results(store: ObjectStore, run: RunDocument) -> ElasticResults | None:
    """Return the elastic training of a run; None when the run was not to run any."""
    if ELASTIC not in run.checks:
        return None
    return ElasticResults(
        runs=tuple(load_part(store, ElasticRun, run.key, ELASTIC)),
        recoveries=tuple(load_part(store, ElasticRecovery, run.key, ELASTIC)),
        events=tuple(load_part(store, ElasticEvent, run.key, ELASTIC)),
        node_checks=tuple(load_part(store, ElasticNodeCheck, run.key, ELASTIC)),
        origins=_origins(store, run, ELASTIC),
    )


def _collective_key(row: Collective) -> str | None:
    return None if row.wrong else row.comparability


def _object_store_key(row: ObjectStoreResult) -> str | None:
    return None if row.problem is not None or row.errors else row.comparability


def _serving_key(row: ModelServing) -> str | None:
    return None if row.problem is not None else row.comparability


def _origins(store: ObjectStore, run: RunDocument, check: str) -> dict[str, str]:
    plan = read_plan(store, run, registry.check(check))
    return {x.name: x.origin or run.key.origin for x in plan.launches} if plan else {}
