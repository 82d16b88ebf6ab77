"""One manual DAG for each check, under the name people look for."""

from airflow.sdk import DAG

from fabric_health.airflow.chain import DEFAULT_ARGS, ENTRIES, budget, chain_of, run_params

RUNBOOK = """
### {title}
**What it does.** Runs the check `{name}` alone on the site and scope you choose, with the same stages, tables and page
as the weekly run.

**When.** By hand, e.g. after work on a few units: give them as *Scope* (`gpu-[001-004]`, `leaf-1`).

**How to read the result.** Open *Fabric health* in the menu. Findings are results, not failures.

**When a task fails.** As in `weekly_fabric_health`: clear it; stages write the same objects again.
"""

for entry in ENTRIES:
    with DAG(
        dag_id=entry.dag_id,
        dag_display_name=entry.title,
        schedule=None,
        max_active_runs=4,
        default_args=DEFAULT_ARGS,
        dagrun_timeout=budget((entry,)),
        params=run_params(),
        tags=["fabric-health", "check"],
        doc_md=RUNBOOK.format(title=entry.title, name=entry.name),
    ):
        chain_of((entry,))
