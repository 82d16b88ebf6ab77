"""What models answered, held against before and against their base: item by item, and only what is the same."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from fabric_health import answered
from fabric_health.answered import Said, findings, remade, said, with_base, with_before
from fabric_health.checks.model_eval.drift import Requantised
from fabric_health.checks.model_eval.tables import PerItem
from fabric_health.compared import differences, observed_otherwise
from fabric_health.datasets.tables import FindingKind, Severity
from fabric_health.verdict.outcome import Outcome

AT = datetime(2026, 11, 23, 3, tzinfo=UTC)
BASE, W8 = "tiny", "tiny/w8a8-gptq"
ITEMS = 200


def key(unit: str, task: str, items: int = ITEMS) -> str:
    scheme = unit.partition("/")[2] or "base"
    return f"model=tiny;revision=abc;scheme={scheme};task={task};items={items};version=1;device=cpu;flags={scheme}"


def answers(unit: str, right: set[int], launch: str = "1") -> list[PerItem]:
    task = "continuation"
    return [
        PerItem(f"{unit}-serve-{launch}", unit, task, f"{i}", key(unit, task), correct=i in right) for i in range(ITEMS)
    ]


def windows(unit: str, shift: float = 0.0, seed: int = 0) -> list[PerItem]:
    """Windows of 256 tokens of about -3.6 nats each; ``shift`` is added to the likelihood of a token."""
    draw, noise, task = random.Random(1), random.Random(seed), "perplexity"
    means = [draw.gauss(-3.6, 0.3) + shift + noise.gauss(0, 0.002) for _ in range(32)]
    return [
        PerItem(f"{unit}-serve-1", unit, task, f"{i}", key(unit, task, 32), loglikelihood=256 * m, tokens=256)
        for i, m in enumerate(means)
    ]


def run(*rows: list[PerItem], week: int = 0) -> Said:
    return said(f"run-{week}", AT + timedelta(weeks=week), [r for part in rows for r in part])


RIGHT = set(range(130))


def test_a_scheme_that_loses_a_tenth_of_the_items_is_worse_than_its_base() -> None:
    lost = RIGHT - set(range(20))
    (judged,) = with_base(run(answers(BASE, RIGHT), answers(W8, lost)), lambda _: BASE, lambda _: 0.98)
    assert judged.judgement.outcome is Outcome.REGRESSED
    assert judged.judgement.subject == W8
    assert judged.judgement.loss == pytest.approx(0.1)
    assert judged.typical() == (pytest.approx(0.65), pytest.approx(0.55))
    (found,) = findings([], [judged], "the last run")
    assert (found.rule, found.severity, found.unit) == (answered.AS_BASE, Severity.WARNING, W8)


def test_a_scheme_that_loses_a_hundredth_is_not_shown_to_be_worse() -> None:
    """Two items fewer, of nine that changed."""
    churned = (RIGHT - set(range(5)) - {5}) | set(range(150, 154))
    (judged,) = with_base(run(answers(BASE, RIGHT), answers(W8, churned)), lambda _: BASE, lambda _: 0.98)
    assert judged.judgement.loss == pytest.approx(0.01)
    assert judged.judgement.outcome in (Outcome.INCONCLUSIVE, Outcome.PASS)
    assert findings([], [judged], "") == []


def test_likelihood_sees_what_right_and_wrong_cannot() -> None:
    now = run(windows(BASE), windows(W8, shift=-math.log(1.05), seed=2))
    (judged,) = with_base(now, lambda _: BASE, lambda _: 0.98)
    assert judged.judgement.metric == "perplexity"
    assert judged.judgement.outcome is Outcome.REGRESSED
    before, after = judged.typical()
    assert before is not None
    assert after is not None
    assert after / before == pytest.approx(1.05, rel=0.01)
    (same,) = with_base(run(windows(BASE), windows(W8, seed=2)), lambda _: BASE, lambda _: 0.98)
    assert same.judgement.outcome is Outcome.PASS


def test_a_base_evaluated_in_another_way_is_no_base_and_that_is_told() -> None:
    rows = [r for r in answers(W8, RIGHT) if int(r.item) < 100]
    other = [replace(r, comparability=key(W8, "continuation", 100)) for r in rows]
    (judged,) = with_base(run(answers(BASE, RIGHT), other), lambda _: BASE, lambda _: 0.98)
    assert judged.judgement.outcome is Outcome.NOT_COMPARABLE
    assert "items 200 -> 100" in judged.judgement.reason
    (found,) = findings([], [judged], "")
    assert (found.rule, found.kind, found.unit) == (answered.AS_BASE, FindingKind.NOT_JUDGED, W8)


def test_a_form_of_other_weights_than_the_base_that_is_served_does_not_pass_in_silence() -> None:
    other = [replace(r, comparability=r.comparability.replace("abc", "def")) for r in answers(W8, RIGHT)]
    (judged,) = with_base(run(answers(BASE, RIGHT), other), lambda _: BASE, lambda _: 0.98)
    assert "revision abc -> def" in findings([], [judged], "")[0].summary


def test_as_many_items_of_another_task_are_not_what_was_evaluated_before() -> None:
    now = [replace(r, item=f"new-{r.item}") for r in answers(BASE, RIGHT)]
    judged, (odd,) = with_before(run(now, week=1), [run(answers(BASE, RIGHT))])
    assert judged == []
    assert "data" in differences(odd)
    assert not observed_otherwise(odd)


def test_items_that_are_neither_right_nor_wrong_nor_of_known_length_settle_nothing() -> None:
    rows = [replace(r, correct=None, loglikelihood=-3.0) for r in answers(BASE, set())]
    (judged,), odd = with_before(run(rows, week=1), [run(rows)])
    assert (odd, judged.judgement.outcome) == ([], Outcome.INCONCLUSIVE)
    assert "neither right nor wrong" in judged.judgement.reason


def test_the_first_earlier_run_that_evaluated_in_the_same_way_counts() -> None:
    now = run(answers(BASE, RIGHT - set(range(30))), week=3)
    earlier = [run(windows(BASE), week=2), run(answers(BASE, RIGHT), week=1), run(answers(BASE, set()), week=0)]
    judged, odd = with_before(now, earlier)
    assert odd == []
    (one,) = judged
    assert one.judgement.outcome is Outcome.REGRESSED
    assert one.measured.panel.runs == ("run-1", "run-3")
    (found,) = findings(judged, [], "the last accepted run")
    assert (found.rule, found.unit, found.metric) == (answered.AS_BEFORE, BASE, "continuation accuracy")


def test_what_was_evaluated_otherwise_before_says_what_differs() -> None:
    rows = [type(r)(r.launch, r.unit, r.task, r.item, r.comparability.replace("version=1", "version=2"), r.correct)
            for r in answers(BASE, RIGHT)]  # fmt: skip
    judged, (odd,) = with_before(run(rows, week=1), [run(answers(BASE, RIGHT))])
    assert judged == []
    assert odd.closest is not None
    assert odd.closest.startswith(key(BASE, "continuation"))
    assert differences(odd).endswith("before: version 1 -> 2")
    assert odd.metric == "accuracy"


def test_of_several_launches_the_first_counts() -> None:
    now = run(answers(BASE, RIGHT, launch="2"), answers(BASE, set(), launch="1"))
    assert now.of[BASE, "continuation"].value() == 0.0


def test_speed_is_not_the_business_of_these_findings() -> None:
    (judged,) = with_base(run(answers(BASE, RIGHT), answers(W8, set())), lambda _: BASE, lambda _: 0.98)
    assert [f.severity for f in findings([], [judged], "")] == [Severity.CRITICAL]
    assert findings([judged], [], "before")[0].rule == answered.AS_BEFORE


def test_other_weights_of_the_same_recipe_are_worth_a_note() -> None:
    (note,) = remade([Requantised(W8, "a" * 64, "b" * 64)], "the last run")
    assert (note.severity, note.expected, note.actual) == (Severity.INFO, "a" * 16, "b" * 16)


def test_no_more_earlier_runs_are_read_than_are_needed() -> None:
    def earlier() -> Iterator[Said]:
        yield run(answers(BASE, RIGHT))
        raise AssertionError("a second run was read")

    judged, odd = with_before(run(answers(BASE, RIGHT), week=1), earlier())
    assert (len(judged), odd) == (1, [])
