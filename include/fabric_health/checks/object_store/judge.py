"""Findings of the object store benchmark: what could not be read, what was not as asked, and the cluster's state."""

from __future__ import annotations

from fabric_health.checks.check import Context, Launch, RowSet
from fabric_health.checks.object_store.cluster_rules import cluster_findings
from fabric_health.checks.object_store.launches import CLUSTER_LAUNCH
from fabric_health.checks.object_store.result_rules import result_findings
from fabric_health.checks.object_store.rules import not_judged
from fabric_health.checks.object_store.settings import settings
from fabric_health.checks.object_store.tables import ObjectStoreCluster, ObjectStoreHost, ObjectStoreResult
from fabric_health.datasets.tables import Fact, FactState, Finding
from fabric_health.evidence import ReachStatus


def judge(rows: RowSet, context: Context) -> list[Finding]:
    """Return the findings of a run. Changes against earlier runs are the verdict's to judge, not this check's.

    Raises SiteError for settings that cannot be used.
    """
    wanted = settings(context.site)
    answered = {name for name, ref in context.reach.items() if ref.status is ReachStatus.OK}
    found = [_unread(f) for f in rows.of(Fact) if _is_unread(f) and f.unit.split("/", 1)[0] in answered]
    found += result_findings(rows.of(ObjectStoreResult), rows.of(ObjectStoreHost), wanted)
    clusters = rows.of(ObjectStoreCluster)
    for row in clusters:
        found += cluster_findings(row, wanted)
    planned = any(isinstance(u, Launch) and u.name == CLUSTER_LAUNCH for u in context.scope)
    if wanted.cluster_info and not planned and not clusters:
        found.append(
            not_judged(
                "cluster_known",
                wanted.store,
                "cluster",
                "The state of the cluster was not read in this run",
                unit_kind="object_store",
                action="Run the check again; the launch that reads it was not planned.",
            )
        )
    return found


def _is_unread(fact: Fact) -> bool:
    return fact.attribute == "result" and fact.state == FactState.ERROR.value


def _unread(fact: Fact) -> Finding:
    return not_judged(
        "result_readable",
        fact.unit,
        "result",
        f"No result of launch {fact.unit}: {fact.detail}",
        unit_kind="launch",
        action="Read the launch's evidence; run the check again once the cause is gone.",
    )
