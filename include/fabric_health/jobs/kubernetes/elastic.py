"""DLRover's ElasticJob: its pods by their labels, and manifests from which it would make no workers.

Labels and names are those of DLRover's pod scaler (``dlrover/python/master/scaler/pod_scaler.py``) and of its
controller (``go/elasticjob/pkg``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fabric_health.jobs.kubernetes.kinds import ELASTIC_JOB

Json = dict[str, Any]
NAME = "elasticjob.dlrover/name"
REPLICA_TYPE = "elasticjob.dlrover/replica-type"
REPLICA_INDEX = "elasticjob.dlrover/replica-index"
RANK_INDEX = "elasticjob.dlrover/rank-index"
RELAUNCH_COUNT = "elasticjob.dlrover/relaunch-count"
MASTER = "dlrover-master"
WORKER = "worker"
MAIN = "main"
# A pod of a worker is relaunched at most this often: DLRover's own default, said so that it stays.
RESTARTS = 3
_WORKER_NAME = re.compile(r"-edljob-worker-(\d{1,9})\Z")
_MASTER_NAME = re.compile(r"\Aelasticjob-.+-dlrover-master(-\d{1,9})?\Z")
_RESTART = ("Never", "OnFailure", "Always")
_SILENT = "DLRover would start its master, no workers, and report no error"


@dataclass(frozen=True)
class Replica:
    """What a pod is within its job; None where it does not say. A relaunched worker has a new id and its old rank."""

    type: str
    id: int | None
    rank_index: int | None
    relaunch_count: int | None
    node: str | None


def replica_of(pod: Mapping[str, Any]) -> Replica:
    """Return what a pod is, by DLRover's labels, by its name where it has none. Never raises."""
    metadata = pod.get("metadata") or {}
    labels = metadata.get("labels") or {}
    name = str(metadata.get("name"))
    numbered = _WORKER_NAME.search(name)
    kind = labels.get(REPLICA_TYPE) or (MASTER if _MASTER_NAME.match(name) else WORKER)
    number = _number(labels.get(REPLICA_INDEX))
    if number is None and numbered:
        number = int(numbered[1])
    node = (pod.get("spec") or {}).get("nodeName")
    return Replica(
        type=str(kind),
        id=number,
        rank_index=_number(labels.get(RANK_INDEX)) if kind != MASTER else None,
        relaunch_count=_number(labels.get(RELAUNCH_COUNT)),
        node=str(node) if node else None,
    )


def split(pods: Iterable[Json]) -> tuple[list[Json], list[Json]]:
    """Return the workers' pods, and those of DLRover's master."""
    workers: list[Json] = []
    masters: list[Json] = []
    for pod in pods:
        (masters if replica_of(pod).type == MASTER else workers).append(pod)
    return workers, masters


def newest_of_ranks(workers: Sequence[Json]) -> tuple[list[Json], list[Json]]:
    """Return the pods that speak for their ranks, and the earlier ones.

    DLRover keeps pods of workers that failed and were replaced: a job is counted by its ranks, never by its pods. A pod
    that says no rank speaks for itself, one that is being deleted for nobody while there are others.
    """
    newest: dict[str, Json] = {}
    for pod in sorted(workers, key=_age):
        if not pod["metadata"].get("deletionTimestamp"):
            rank = replica_of(pod).rank_index
            newest[f"rank {rank}" if rank is not None else str(pod["metadata"].get("uid"))] = pod
    if not newest:
        return list(workers), []
    speaking = {str(p["metadata"].get("uid")) for p in newest.values()}
    return (
        [p for p in workers if str(p["metadata"].get("uid")) in speaking],
        [p for p in workers if str(p["metadata"].get("uid")) not in speaking],
    )


def problem_of(manifest: Mapping[str, Any]) -> str:
    """Return why DLRover would not run an ElasticJob as it is meant, and what to write; "" when it would. Never raises.

    Another kind of object has no such problem.
    """
    if (manifest.get("apiVersion"), manifest.get("kind")) != (ELASTIC_JOB.api_version, ELASTIC_JOB.kind):
        return ""
    replicas = _at(manifest, "spec", "replicaSpecs")
    if not isinstance(replicas, Mapping) or not isinstance(replicas.get(WORKER), Mapping):
        return f"ElasticJob: spec.replicaSpecs has no `{WORKER}`: {_SILENT}; expected `{WORKER}` with its template"
    for name, replica in replicas.items():
        if name != MASTER and (problem := _problem_of_replica(replica)):
            return f"ElasticJob: spec.replicaSpecs.{name}{problem}"
    return ""


def _problem_of_replica(replica: Any) -> str:
    count = _at(replica, "replicas")
    if type(count) is not int or count < 1:
        return f".replicas is {count!r}: {_SILENT}; expected how many there are to be"
    if (
        not isinstance(_at(replica, "template", "metadata", "labels"), Mapping)
        or not replica["template"]["metadata"]["labels"]
    ):
        return f".template has no metadata.labels: {_SILENT}; expected at least one label"
    policy = _at(replica, "template", "spec", "restartPolicy")
    if policy not in _RESTART:
        said = "has no spec.restartPolicy" if policy is None else f"has spec.restartPolicy {policy!r}"
        return f".template {said}: {_SILENT}; expected one of {', '.join(_RESTART)}"
    containers = _at(replica, "template", "spec", "containers")
    names = [_at(c, "name") for c in containers] if isinstance(containers, list) else []
    if MAIN not in names:
        return f".template has no container called `{MAIN}`, the one that DLRover gives its environment to"
    return ""


def _age(pod: Json) -> tuple[str, int]:
    number = replica_of(pod).id
    return str(pod["metadata"].get("creationTimestamp")), -1 if number is None else number


def _number(text: Any) -> int | None:
    return int(text) if isinstance(text, str) and re.fullmatch(r"[0-9]{1,9}", text) else None


def _at(value: Any, *keys: str) -> Any:
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value
