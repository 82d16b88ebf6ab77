"""The tasks that ask a person whether a run becomes the baseline, and record the answer.

A run asks only when its form says so: a scheduled one, or one without anybody to answer, never waits.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import Param, get_current_context, task
from airflow.sdk.exceptions import AirflowSkipException

from fabric_health.airflow.addresses import page_address
from fabric_health.airflow.chain import STAGE_LIMIT, rooms_of

if TYPE_CHECKING:
    from fabric_health.airflow.chain import Concluded

FIELD = "accept_as_baseline"
# No answer within a day is a no; accepting it later is `fabric-health baseline accept`.
ANSWER_LIMIT = timedelta(hours=24)
# What asking adds to the time limit of a run: the answer, and three tasks.
ACCEPTING_LIMIT = ANSWER_LIMIT + 3 * STAGE_LIMIT


def accept_param() -> dict[str, Param]:
    """Return the field of the form that says whether a person is asked."""
    return {
        FIELD: Param(
            "no",
            type="string",
            enum=["no", "ask"],
            title="Accept as baseline",
            description="Ask: when the page is there, the run waits (24 hours at most) for somebody to approve it as "
            "what later runs are compared with, under Required Actions.",
        )
    }


@task
def ask_baseline(run: dict[str, str], page: dict[str, str]) -> dict[str, str]:
    """Return what a person is asked; skipped, with what follows, when nobody is to be asked."""
    from fabric_health import pipeline, review

    if get_current_context()["params"].get(FIELD) != "ask":
        raise AirflowSkipException(f"{FIELD} is not `ask`; `fabric-health baseline accept` does it at any time")
    rooms = rooms_of(run["site"])
    asked = review.question(rooms.store, pipeline.load_run(rooms, run["ref"]), page_address(page))
    if asked is None:
        raise AirflowSkipException("the run could not be judged; it cannot be what later runs are compared with")
    return {"subject": asked.subject, "body": asked.body}


@task
def accept_baseline(run: dict[str, str], answer: dict[str, Any] | None) -> dict[str, Any]:
    """Record the run as accepted baseline, with who approved it and why."""
    from fabric_health import pipeline, review

    if answer is None:  # marked as success by hand: that is no approval by anybody
        raise AirflowSkipException("nobody approved the run; `fabric-health baseline accept` names who does")
    rooms = rooms_of(run["site"])
    row = review.accept(rooms.store, pipeline.load_run(rooms, run["ref"]), answer, rooms.site.origin)
    rooms.tell(f"accepted as baseline by {row.accepted_by}: {row.reason}")
    return {"accepted_by": row.accepted_by, "resets_history": row.resets_history}


def accept(done: Concluded) -> None:
    """Add the tasks to a chain, after its page."""
    asked = ask_baseline(done.run, done.page)
    approved = ApprovalOperator(
        task_id="approve_baseline",
        subject=asked["subject"],
        body=asked["body"],
        defaults=ApprovalOperator.REJECT,
        response_timeout=ANSWER_LIMIT,
        fail_on_reject=False,
        params={"reason": Param("", type=["null", "string"], maxLength=2000, title="Reason")},
    )
    accept_baseline(done.run, approved.output)
