"""Weekly fabric health: the scheduled run of every check on every site."""

from datetime import timedelta

from airflow.sdk import DAG, CronTriggerTimetable

from fabric_health.airflow.accepting import ACCEPTING_LIMIT, accept, accept_param
from fabric_health.airflow.chain import DEFAULT_ARGS, ENTRIES, budget, chain_of, run_params
from fabric_health.airflow.sites import site_entries
from fabric_health.airflow.telling import tell

RUNBOOK = """
### Weekly fabric health
**What it does.** Audits drivers and firmware of every node, the configuration and ports of every switch and the
InfiniBand fabric; measures collectives and the object store on the nodes found fit; names what makes slow what is slow;
compares with earlier runs; and writes one page: what is wrong, what changed, did it hurt, where, and how sure we are.

**When.** Mondays 03:00 UTC (set per site in `FABRIC_HEALTH_SITE_FILES`), or by hand with *Trigger*.

**How to read the result.** Open *Fabric health* in the menu: the answer is the first line. Findings are results, not
failures: the run is green when the pipeline completed, whatever it found. Choose `fail_on` to alert on DAG state.

**Who is told.** The connections of `FABRIC_HEALTH_NOTIFY`, by the task `notify`; of which runs,
`FABRIC_HEALTH_NOTIFY_WHEN` says.

**Accepting it.** Triggered by hand with *Accept as baseline* on *ask*, the run waits for an answer under *Required
Actions*, 24 hours at most. A scheduled run never does.

**When a task fails.**
- `collect`: a connection is missing or the object store is away. A unit that does not answer is a finding instead.
- `isolate`, `compare`: clear it; launches that were made are read back. Until then what is slow names no unit, or
  nothing is said of what got slower.
- `land`, `judge`: clear the task; the evidence is kept, nothing is asked again. If it fails again, report it to us.
- `gate`: it says which check did not finish, which data-quality expectation broke, or which findings `fail_on` meets.
- `notify`: a channel was not told; its message says which and why. The run is not affected. Clear it to tell again.
- Any task after an outage of the object store: clear it. Stages write the same objects again, nothing is doubled.
"""

entries = site_entries()
for site in entries:
    with DAG(
        dag_id=f"weekly_fabric_health{site.suffix(len(entries) > 1)}",
        dag_display_name=f"Weekly fabric health{f' ({site.name})' if len(entries) > 1 else ''}",
        # Airflow starts no run of a Monday that has passed as soon as it comes up for the first time: no start_date,
        # and no tolerance. (False stands for a tolerance of a tenth of the week: a run until Monday evening.)
        schedule=CronTriggerTimetable(site.weekly_cron, timezone="UTC", run_immediately=timedelta(0)),
        catchup=False,
        max_active_runs=1,
        default_args=DEFAULT_ARGS,
        dagrun_timeout=budget(ENTRIES) + ACCEPTING_LIMIT,
        params={**run_params(fixed_site=site), **accept_param()},
        tags=["fabric-health", "weekly"],
        doc_md=RUNBOOK,
    ):
        done = chain_of(ENTRIES, fixed_site=site)
        tell(done)
        accept(done)
