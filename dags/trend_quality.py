"""Trend quality: holds the result tables of every site against their suites whenever a run has landed."""

from datetime import timedelta

from airflow.sdk import DAG

from fabric_health.airflow.chain import DEFAULT_ARGS, RESULTS, STAGE_LIMIT, trend_quality
from fabric_health.airflow.sites import site_entries

RUNBOOK = """
### Trend quality
**What it does.** Holds the result tables of each site, over the last weeks, against their data-quality suites:
complete against the site, keys unique, values in range and in the right unit, fresh, no sudden change in row counts.
Results land in `quality_results`, the rendered Data Docs in the store under `quality/`.

**When.** After every run that lands results (it is scheduled on the asset `fabric_health_results`), or by hand.

**How to read the result.** A failed task means that a *critical* expectation is not met: do not trust trends of that
table before you know why. The log and `quality_results` say which, with what was observed.

**When it fails.** Missing units: look at `coverage` of the latest run. Duplicate keys or wrong units: report it, it is
our fault. Not fresh: the weekly run did not run; look at its schedule.
"""

with DAG(
    dag_id="trend_quality",
    dag_display_name="Trend quality",
    schedule=[RESULTS],
    max_active_runs=1,
    default_args=DEFAULT_ARGS,
    dagrun_timeout=STAGE_LIMIT + timedelta(minutes=10),
    tags=["fabric-health", "quality"],
    doc_md=RUNBOOK,
):
    for site in site_entries():
        trend_quality.override(task_id=f"trend_quality_{site.name}")(site.name)
