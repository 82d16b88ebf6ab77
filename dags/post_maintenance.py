"""After maintenance: did the change hurt, where, and is it the change."""

from airflow.sdk import DAG

from fabric_health.airflow.accepting import ACCEPTING_LIMIT, accept
from fabric_health.airflow.after_maintenance import maintenance_params, open_run
from fabric_health.airflow.chain import DEFAULT_ARGS, ENTRIES, budget, chain_of
from fabric_health.airflow.telling import tell

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

**Accepting it.** With *Accept as baseline* on *ask* the run waits, once the page is there, for somebody to approve it
under *Required Actions*: who and why are recorded. No answer within 24 hours is a no; the run stays green.

**When a task fails.**
- `open_run`: the form has a mistake; its message says which field and what was expected. Trigger again.
- `notify`: a channel was not told; its message says which and why. The run is not affected. Clear it to tell again.
- Anything else: as in `weekly_fabric_health`: clear it; stages write the same objects again.
"""

with DAG(
    dag_id="post_maintenance",
    dag_display_name="After maintenance",
    schedule=None,
    max_active_runs=4,
    default_args=DEFAULT_ARGS,
    dagrun_timeout=budget(ENTRIES) + ACCEPTING_LIMIT,
    params=maintenance_params(),
    tags=["fabric-health", "maintenance"],
    doc_md=RUNBOOK,
):
    done = chain_of(ENTRIES, opened=open_run())
    tell(done)
    accept(done)
