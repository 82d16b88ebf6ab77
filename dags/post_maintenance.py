"""After maintenance: did the change hurt, where, and is it the change."""

from airflow.sdk import DAG

from fabric_health.airflow.after_maintenance import maintenance_params, open_run
from fabric_health.airflow.chain import DEFAULT_ARGS, ENTRIES, budget, chain_of

RUNBOOK = """
### After maintenance
**What it does.** Audits and measures the units that were touched and control units that were not, compares both with
the run before, and says PASS, REGRESSED, IMPROVED, INCONCLUSIVE or NOT_COMPARABLE: by how much, how sure, what was
recorded to have changed on the units that moved, and what speaks against that.

**When.** By hand, once the units are back. Give *Units touched* as ranges; everything else has a default. A unit that
the site does not have, or a range that cannot be read, is refused by the first task, with the nearest names.

**How to read the result.** Open *Fabric health* in the menu. The verdict stands on top; REGRESSED is a result, the run
is green. Choose `fail_on` *regressed* to alert on DAG state. INCONCLUSIVE says how many launches would settle it: run
again with that many.

**When a task fails.**
- `open_run`: the form has a mistake; its message says which field and what was expected. Trigger again.
- Anything else: as in `weekly_fabric_health`: clear it; stages write the same objects again.
"""

with DAG(
    dag_id="post_maintenance",
    dag_display_name="After maintenance",
    schedule=None,
    max_active_runs=4,
    default_args=DEFAULT_ARGS,
    dagrun_timeout=budget(ENTRIES),
    params=maintenance_params(),
    tags=["fabric-health", "maintenance"],
    doc_md=RUNBOOK,
):
    chain_of(ENTRIES, opened=open_run())
