"""Housekeeping: once a day, deletes what is past its time in the store, on clusters and on this machine."""

from datetime import timedelta

from airflow.sdk import DAG, CronTriggerTimetable

from fabric_health.airflow.chain import DEFAULT_ARGS, STAGE_LIMIT
from fabric_health.airflow.sites import site_entries
from fabric_health.airflow.tidying import tidy, tidying_params

RUNBOOK = """
### Housekeeping
**What it does.** For each site: deletes evidence of runs older than `retention.evidence_days` of the site file (400),
evidence that no manifest names and that is older than 7 days, and jobs or pods of ours on the cluster that are past
their deadline. On the machine it runs on: tool environments, folders of left jobs and copies of pages that are older
than 30 days. Tables, run documents and pages in the store are never deleted.

**When.** Daily 01:30 UTC. By hand with *Trigger*; choose *Dry run* to only count what would be deleted.

**How to read the result.** The log of each task says in one line what was deleted and what is left for the next time.

**When a task fails.** Nothing is lost and nothing is half done: clear it, or wait for the next day.
- `expire_evidence`, `delete_orphans`: the store is away, or its user may not delete `evidence/*`.
- `sweep_cluster`: the cluster is away, or the account may not list or delete (apply `deploy/rbac.yaml`).
"""

with DAG(
    dag_id="housekeeping",
    dag_display_name="Housekeeping",
    # Nothing is caught up: one call deletes all that is due by now.
    schedule=CronTriggerTimetable("30 1 * * *", timezone="UTC", run_immediately=timedelta(0)),
    catchup=False,
    max_active_runs=1,
    default_args=DEFAULT_ARGS,
    dagrun_timeout=3 * STAGE_LIMIT,
    params=tidying_params(),
    tags=["fabric-health", "housekeeping"],
    doc_md=RUNBOOK,
):
    tidy(site_entries())
