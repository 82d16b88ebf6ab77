"""Deletes what of ours has outlived its deadline: what a task left when it was killed and nobody asked again."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from fabric_health.jobs.kubernetes import manifests
from fabric_health.jobs.kubernetes.api import Cluster, ClusterRefusedError
from fabric_health.jobs.kubernetes.backend import deadline_of
from fabric_health.jobs.kubernetes.kinds import KINDS, Kind

# An object of ours whose deadline cannot be read is old enough to go after this.
WITHOUT_DEADLINE = timedelta(days=2)


def sweep(
    cluster: Cluster, now: datetime, kinds: Iterable[Kind] = tuple(KINDS.values()), *, dry_run: bool = False
) -> list[str]:
    """Delete our objects past their deadline. Return their names, e.g. ``MPIJob fh-all-reduce-1a2b3c4d5e``.

    ``dry_run`` only names them.

    Objects that belong to another one (pods of an MPIJob) go with it. A kind that the cluster does not have is passed
    over; what we may not do in the namespace is raised as ClusterRefusedError.
    """
    swept: list[str] = []
    for kind in kinds:
        try:
            objects = cluster.objects(kind, f"{manifests.MANAGED_BY}={manifests.OWNER}")
        except ClusterRefusedError as error:
            if error.status == 404:
                continue
            raise
        for obj in objects:
            metadata = obj["metadata"]
            if metadata.get("ownerReferences") or not _past(obj, now):
                continue
            if dry_run or cluster.delete(kind, metadata["name"], metadata["uid"]):
                swept.append(f"{kind.kind} {metadata['name']}")
    return swept


def _past(obj: dict[str, Any], now: datetime) -> bool:
    deadline = deadline_of(obj)
    if deadline is not None:
        return now.timestamp() > deadline
    try:
        created = datetime.fromisoformat(str(obj["metadata"].get("creationTimestamp")).replace("Z", "+00:00"))
    except ValueError:
        return False
    return now.astimezone(UTC) - created > WITHOUT_DEADLINE
