"""The chain of a run as Airflow tasks: each is one stage of ``fabric_health.pipeline``, called with a reference.

Tasks pass on the run's reference and a few numbers, never data. Everything heavy is imported inside a task.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import (
    Asset,
    ExceptionRetryPolicy,
    Param,
    RetryAction,
    RetryRule,
    TriggerRule,
    get_current_context,
    task,
    task_group,
)
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from fabric_health.airflow.sites import SiteEntry, site_entries, site_entry
from fabric_health.checks.registry import ENTRIES, Entry

if TYPE_CHECKING:
    from airflow.sdk.definitions.xcom_arg import XComArg

    from fabric_health.pipeline import Rooms

log = logging.getLogger(__name__)
RESULTS = Asset(name="fabric_health_results", uri="fabric-health://results")
STAGE_LIMIT = timedelta(minutes=20)
# Isolating and confirming start no launch after their budgets of minutes (55 at most each); the last one may take its
# own limit of time.
LAUNCHING_LIMIT = timedelta(minutes=75)
AROUND = ("open_run", "compare", "explain", "quality", "conclude", "publish", "gate")

# A mistake of a person does not go away by trying again; a store or a network that is away may come back.
RETRIES = ExceptionRetryPolicy(
    rules=[
        RetryRule(
            exception=[
                "fabric_health.errors.UsageError",
                "fabric_health.errors.SiteError",
                "fabric_health.errors.ConnectionSettingError",
                "fabric_health.errors.ContractError",
            ],
            action=RetryAction.FAIL,
            reason="a setting or the code has to change first",
        )
    ]
)
DEFAULT_ARGS: dict[str, Any] = {
    "owner": "fabric-health",
    "retries": 2,
    "retry_delay": timedelta(seconds=30),
    "retry_policy": RETRIES,
    "execution_timeout": STAGE_LIMIT,
}


def run_params(fixed_site: SiteEntry | None = None) -> dict[str, Param]:
    """Return the form of a run: its site (when it is not fixed), its scope, and when its last task fails."""
    params: dict[str, Param] = {}
    if fixed_site is None:
        names = [e.name for e in site_entries()]
        params["site"] = Param(names[0], type="string", enum=names, title="Site")
    params["scope"] = Param(
        None,
        type=["null", "string"],
        maxLength=10_000,
        title="Scope",
        description="Units as ranges, e.g. gpu-[001-004],leaf-1. Empty: the whole site.",
    )
    params["fail_on"] = fail_on_param()
    return params


def fail_on_param() -> Param:
    """Return the field that says what makes the last task of a run fail."""
    return Param(
        "never",
        type="string",
        enum=["never", "warning", "critical", "regressed"],
        title="Fail on",
        description="Findings are results, not failures. Choose what makes the last task fail: findings of a severity, "
        "or the verdict REGRESSED.",
    )


def budget(entries: tuple[Entry, ...]) -> timedelta:
    """Return the time limit of a whole run: the budgets of its checks, and the stages within and around them."""
    within = timedelta(minutes=sum(e.budget_minutes for e in entries)) + 2 * len(entries) * STAGE_LIMIT
    within += sum(e.isolates for e in entries) * 2 * LAUNCHING_LIMIT
    return within + len(AROUND) * STAGE_LIMIT


def rooms_of(site: str) -> Rooms:
    """Return what stages reach outside themselves, with Airflow's connections and log."""
    from pathlib import Path

    from fabric_health.airflow.connections import airflow_connection
    from fabric_health.rooms import open_rooms

    return open_rooms(Path(site_entry(site).file), log.info, airflow_connection)


def _site(context: Any, fixed: str | None) -> str:
    return fixed or str(context["params"]["site"])


@task
def open_run(checks: list[str], fixed_site: str | None) -> dict[str, str]:
    """Open the run and return its site and reference."""
    from fabric_health import pipeline

    context = get_current_context()
    dag_run = context["dag_run"]
    started_at: datetime = dag_run.run_after  # unlike start_date, clearing the run does not move it
    site = _site(context, fixed_site)
    ref = pipeline.open_run(
        rooms_of(site),
        dag=dag_run.dag_id,
        scheduler_run_id=dag_run.run_id,
        started_at=started_at,
        checks=checks,
        scope=context["params"].get("scope"),
    )
    return {"site": site, "ref": ref}


@task
def collect(run: dict[str, str], check: str) -> dict[str, int]:
    """Ask every unit in scope; keep the evidence. A check that the run was not asked for is skipped."""
    from fabric_health import pipeline

    rooms = rooms_of(run["site"])
    if check not in pipeline.load_run(rooms, run["ref"]).checks:
        raise AirflowSkipException(f"{check} was not asked for in this run")
    return pipeline.collect(rooms, run["ref"], check)


@task
def land(run: dict[str, str], check: str) -> dict[str, int]:
    """Parse evidence into rows and write the check's tables."""
    from fabric_health import pipeline

    return pipeline.land(rooms_of(run["site"]), run["ref"], check)


@task(trigger_rule=TriggerRule.NONE_FAILED)
def judge(run: dict[str, str], check: str) -> dict[str, int]:
    """Judge the rows; keep the findings.

    Of a check that the run was not asked for there are none. The task ends well then: skipped, it would have everything
    skipped that waits for all checks.
    """
    from fabric_health import pipeline

    rooms = rooms_of(run["site"])
    if check not in pipeline.load_run(rooms, run["ref"]).checks:
        log.info("%s was not asked for in this run", check)
        return {}
    return pipeline.judge(rooms, run["ref"], check)


def check_group(entry: Entry, run: XComArg) -> Any:
    """Return the task group of one check: collect, land, judge.

    A benchmark waits for what was wired before it, and not for its success: one that failed is no reason to leave out
    the next. Its stage launches nothing when an audit did not finish.
    """
    rule = TriggerRule.ALL_DONE_MIN_ONE_SUCCESS if entry.is_benchmark else TriggerRule.ALL_SUCCESS

    @task_group(group_id=entry.name, tooltip=entry.title)
    def group() -> None:
        limit = timedelta(minutes=entry.budget_minutes)
        asked = collect.override(pool=entry.pool, execution_timeout=limit, trigger_rule=rule)(run, entry.name)
        asked >> land(run, entry.name) >> judge(run, entry.name)

    return group()


@task(trigger_rule=TriggerRule.ALL_DONE_MIN_ONE_SUCCESS, execution_timeout=LAUNCHING_LIMIT)
def isolate(run: dict[str, str]) -> dict[str, Any]:
    """Find which unit makes slow what the benchmarks found slow; nothing to do when nothing is."""
    from fabric_health import pipeline

    return pipeline.isolate(rooms_of(run["site"]), run["ref"])


@task(trigger_rule=TriggerRule.ALL_DONE_MIN_ONE_SUCCESS)
def compare(run: dict[str, str]) -> dict[str, Any]:
    """Launch again what looks slower than before, and say what got slower: verdict on every unit and on the run."""
    from fabric_health import pipeline

    return pipeline.compare(rooms_of(run["site"]), run["ref"])


@task(trigger_rule=TriggerRule.ALL_DONE_MIN_ONE_SUCCESS)
def explain(run: dict[str, str]) -> dict[str, int]:
    """Link findings that another one explains; land findings and coverage. Runs also when a check did not finish."""
    from fabric_health import pipeline

    return pipeline.explain(rooms_of(run["site"]), run["ref"])


@task
def quality(run: dict[str, str]) -> dict[str, Any]:
    """Hold the tables against their data-quality suites; land the results."""
    from fabric_health import pipeline

    return pipeline.check_quality(rooms_of(run["site"]), run["ref"])


@task(outlets=[RESULTS])
def conclude(run: dict[str, str]) -> dict[str, Any]:
    """Conclude the run in one word and one sentence."""
    from fabric_health import pipeline

    return pipeline.conclude(rooms_of(run["site"]), run["ref"])


@task
def publish(run: dict[str, str]) -> dict[str, str]:
    """Render and write the page."""
    from fabric_health import pipeline

    return pipeline.publish(rooms_of(run["site"]), run["ref"])


@task(retries=0)
def gate(explained: dict[str, int], checked: dict[str, Any], answer: dict[str, Any]) -> str:
    """Fail, after everything has landed, on unfinished checks, broken data, or findings of the chosen severity."""
    fail_on = get_current_context()["params"]["fail_on"]
    reasons = []
    if explained["unfinished_checks"]:
        reasons.append(f"{explained['unfinished_checks']} check(s) did not finish")
    if checked["critical_failures"]:
        reasons.append(f"critical data-quality failures: {'; '.join(checked['critical_failures'])}")
    if fail_on == "regressed" and answer["verdict"] == "REGRESSED":
        reasons.append("the verdict is REGRESSED")
    count = answer["critical"] + (answer["warning"] if fail_on == "warning" else 0)
    if fail_on in ("warning", "critical") and count:
        reasons.append(f"{count} finding(s) of severity {fail_on} or worse")
    if reasons:
        raise AirflowFailException(". ".join(reasons) + f". {answer['answer']}: {answer['headline']}")
    return str(answer["answer"])


@task
def trend_quality(site: str) -> dict[str, Any]:
    """Hold a site's tables of the last weeks against their suites; fail, once landed, on a critical failure."""
    from fabric_health import pipeline

    dag_run = get_current_context()["dag_run"]
    result: dict[str, Any] = pipeline.check_trends(rooms_of(site), dag_run.run_id, dag_run.run_after)
    if result["critical_failures"]:
        raise AirflowFailException("critical data-quality failures: " + "; ".join(result["critical_failures"]))
    return result


@dataclass(frozen=True)
class Concluded:
    """What a chain ends with, for tasks that follow: the run's site and reference, and the address of its page."""

    run: XComArg
    page: XComArg


def chain_of(
    entries: tuple[Entry, ...], fixed_site: SiteEntry | None = None, opened: XComArg | None = None
) -> Concluded:
    """Wire the whole chain of a run into the DAG that is being defined: audits, benchmarks, and what concludes it.

    ``opened`` is a task that opens the run, where it is not opened by site and scope.
    """
    run = open_run([e.name for e in entries], fixed_site.name if fixed_site else None) if opened is None else opened
    previous: Any = run
    audits = [check_group(e, run) for e in entries if not e.is_benchmark]
    if audits:
        run >> audits
        previous = audits
    for e in entries:
        if e.is_benchmark:
            group = check_group(e, run)
            previous >> group
            previous = group
    for e in entries:
        if e.isolates:
            isolated = isolate.override(pool=e.pool)(run)
            previous >> isolated
            previous = isolated
    if any(e.is_benchmark for e in entries):
        # It launches suspects again: with the fabric to itself, and time for that, as isolating.
        again = next(({"pool": e.pool, "execution_timeout": LAUNCHING_LIMIT} for e in entries if e.isolates), {})
        compared = compare.override(**again)(run)
        previous >> compared
        previous = compared
    explained = explain(run)
    checked = quality(run)
    answer = conclude(run)
    page = publish(run)
    if audits:
        audits >> explained
    previous >> explained >> checked >> answer >> page
    page >> gate(explained, checked, answer)
    return Concluded(run, page)


__all__ = ["DEFAULT_ARGS", "ENTRIES", "RESULTS", "Concluded", "budget", "chain_of", "run_params"]
