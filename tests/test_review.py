"""Asking whether a run becomes the baseline, and what is recorded of the answer."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import concluded_samples as samples
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric_health import baselines, review
from fabric_health.compared import Whole
from fabric_health.datasets.store import ObjectStore
from fabric_health.errors import UsageError
from fabric_health.verdict.outcome import Outcome

AT = datetime(2026, 11, 30, 9, 30, tzinfo=UTC)
BY = {"id": "7", "name": "Ada"}


def answer(**more: Any) -> dict[str, Any]:
    return {"chosen_options": ["Approve"], "responded_by_user": BY, "responded_at": AT, "params_input": {}} | more


def test_the_question_says_the_verdict_and_what_approving_means(store: ObjectStore) -> None:
    run = samples.conclude(
        store, samples.document(), "FINDINGS", "1 finding.", samples.REGRESSED, (), "driver 580 fits"
    )
    asked = review.question(store, run, "https://airflow/fabric-health/reports/site=lab/x/index.html")
    assert asked is not None
    assert asked.subject == f"REGRESSED: accept {run.key.run} as baseline of lab?"
    assert "\n\ndriver 580 fits\n\n" in asked.body
    assert "**the loss is accepted**" in asked.body
    assert "Earlier runs no longer count as history." in asked.body
    assert "[The page of the run](https://airflow/fabric-health/reports/site=lab/x/index.html)" in asked.body


def test_nothing_is_said_of_a_loss_where_there_is_none(store: ObjectStore) -> None:
    asked = review.question(store, samples.conclude(store, samples.document(), verdict=samples.PASS))
    assert asked is not None
    assert asked.subject.startswith("PASS: accept")
    assert "loss is accepted" not in asked.body
    assert "history" not in asked.body


def test_a_run_that_could_not_be_judged_is_not_asked_about(store: ObjectStore) -> None:
    assert review.question(store, samples.document()) is None
    assert review.question(store, samples.conclude(store, samples.document(), "NOT_JUDGED", "nothing judged")) is None


def test_a_question_fits_in_what_tasks_hand_on_and_holds_no_markup_of_a_device(store: ObjectStore) -> None:
    nasty = "![x](javascript:alert(1)) <script> **bold** `code` # head | cell\n\n# more" * 50
    run = samples.conclude(
        store, samples.document(), "FINDINGS", nasty[:4000], Whole(Outcome.REGRESSED, nasty[:1000]), (), nasty[:1000]
    )
    asked = review.question(store, run)
    assert asked is not None
    assert len((asked.subject + asked.body).encode()) < 3500
    assert r"\!\[x\]\(javascript:alert\(1\)\) \<script\>" in asked.body
    assert "\n# " not in asked.body


@pytest.mark.parametrize(
    ("whole", "resets"),
    [
        (samples.PASS, False),
        (samples.REGRESSED, True),
        (Whole(Outcome.IMPROVED, "faster"), True),
        (Whole(Outcome.INCONCLUSIVE, "unsettled"), False),
        (None, False),
    ],
)
def test_an_approval_is_recorded_with_who_when_and_why(store: ObjectStore, whole: Whole | None, resets: bool) -> None:
    run = samples.conclude(store, samples.document(), verdict=whole)
    given_answer = answer(params_input={"reason": " the new driver is here to stay "})
    for _ in range(2):  # a task that is repeated records the same act
        review.accept(store, run, given_answer, "lab")
    (held,) = baselines.accepted(store, "lab")
    row = held.row
    assert (held.run, row.accepted_by, row.accepted_at, row.resets_history) == (run.key.run, "Ada (7)", AT, resets)
    assert row.reason == "the new driver is here to stay"


def test_without_a_reason_it_says_so_and_one_name_is_enough(store: ObjectStore) -> None:
    run = samples.conclude(store, samples.document(), verdict=samples.PASS)
    row = review.accept(store, run, answer(responded_by_user={"id": "admin", "name": "admin"}), "lab")
    assert (row.accepted_by, row.reason) == ("admin", "approved in Airflow, without a reason; verdict PASS")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"chosen_options": ["Reject"]}, "was not approved: \\['Reject'\\]"),
        ({"chosen_options": []}, "was not approved"),
        ({"chosen_options": "Approve"}, "was not approved"),
        ({"responded_by_user": None}, "nobody is named"),
        ({"responded_by_user": {"id": "", "name": " \n"}}, "nobody is named"),
    ],
)
def test_what_is_no_approval_by_somebody_is_refused(store: ObjectStore, more: dict[str, Any], message: str) -> None:
    run = samples.conclude(store, samples.document(), verdict=samples.PASS)
    with pytest.raises(UsageError, match=message):
        review.accept(store, run, answer(**more), "lab")
    assert baselines.accepted(store, "lab") == []


_ANY = st.recursive(
    st.none() | st.booleans() | st.text() | st.integers(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
_FIELDS = ("chosen_options", "responded_by_user", "responded_at", "params_input")


@given(body=st.dictionaries(st.sampled_from(_FIELDS), _ANY))
def test_no_answer_is_taken_for_an_approval_that_is_none(body: dict[str, Any]) -> None:
    class NoStore:
        pass

    if body.get("chosen_options") == ["Approve"]:
        return
    with pytest.raises(UsageError):
        review.accept(NoStore(), samples.document(), body, "lab")  # type: ignore[arg-type]
