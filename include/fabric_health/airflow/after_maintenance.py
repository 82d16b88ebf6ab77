"""The form and the first task of a run after maintenance."""

from __future__ import annotations

from typing import Any

from airflow.sdk import Param, get_current_context, task

from fabric_health.airflow.accepting import accept_param
from fabric_health.airflow.chain import fail_on_param, rooms_of
from fabric_health.airflow.sites import site_entries
from fabric_health.checks.registry import ENTRIES

# As in ``fabric_health.maintenance``, which is too heavy to import where DAG files are read; a test compares them.
KINDS = ("driver", "firmware", "switch_config", "cabling", "hardware", "software", "other")
FIELDS = ("touched", "kind", "ticket", "checks", "launches", "baseline", "controls")
_MAX_TEXT = 10_000


def maintenance_params() -> dict[str, Param]:
    """Return the form: site, what was touched and how, and what to compare with. Only ``touched`` has no default."""
    sites = [e.name for e in site_entries()]
    checks = [e.name for e in ENTRIES]
    ranges = "Units as ranges, e.g. gpu-[001-004],leaf-1."
    return {
        "site": Param(sites[0], type="string", enum=sites, title="Site"),
        "touched": Param(type="string", minLength=1, maxLength=_MAX_TEXT, title="Units touched", description=ranges),
        "kind": Param("other", type="string", enum=list(KINDS), title="Kind of change"),
        "ticket": Param(None, type=["null", "string"], maxLength=200, title="Change ticket"),
        "checks": Param(
            None,
            type=["null", "array"],
            items={"type": "string", "enum": checks},
            examples=checks,
            title="Checks",
            description="Empty: all. Without the audits no change can be named as the reason.",
        ),
        "launches": Param(
            None,
            type=["null", "integer"],
            minimum=1,
            maximum=50,
            title="Launches",
            description="Independent repetitions of a benchmark. Empty: the site's. More see smaller losses: "
            "fabric-health verdict plan.",
        ),
        "baseline": Param(
            None,
            type=["null", "string"],
            maxLength=200,
            title="Baseline",
            description="A run, or the name it is pinned under. Empty: the last accepted run, else the latest one that "
            "did not regress.",
        ),
        "controls": Param(
            None,
            type=["null", "string"],
            maxLength=_MAX_TEXT,
            title="Control units",
            description=f"Units that the change left alone. {ranges} Empty: chosen, like those touched.",
        ),
        "fail_on": fail_on_param(),
        **accept_param(),
    }


@task
def open_run() -> dict[str, str]:
    """Check the form against the site and open the run; a mistake in it is refused before anything is measured."""
    from fabric_health import baselines, pipeline
    from fabric_health.maintenance import checks_of, declare, resolve

    context: Any = get_current_context()
    params, dag_run = context["params"], context["dag_run"]
    declaration = declare({name: params.get(name) for name in FIELDS})
    rooms = rooms_of(str(params["site"]))
    checks, change = checks_of(declaration), resolve(declaration, rooms.site)
    if change.baseline is not None:
        rooms.store.ensure_bucket()
        baselines.named(rooms.store, rooms.site.name, change.baseline, dag_run.run_after)
    ref = pipeline.open_run(
        rooms,
        dag=dag_run.dag_id,
        scheduler_run_id=dag_run.run_id,
        started_at=dag_run.run_after,
        checks=checks,
        change=change,
    )
    return {"site": rooms.site.name, "ref": ref}
