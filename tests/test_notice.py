"""What people are told of a run, of which runs, and that nothing a device said is more than text in it."""

from __future__ import annotations

import html
import re
from email import message_from_string
from email.mime.text import MIMEText

import concluded_samples as samples
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric_health.compared import Whole
from fabric_health.datasets.store import ObjectStore
from fabric_health.errors import UsageError
from fabric_health.maintenance import Change
from fabric_health.notice import Notice, When, gather, unfinished
from fabric_health.notice_text import mail_body, plain, slack_text, subject
from fabric_health.verdict.outcome import Outcome

CHANGE = Change(("gpu-001",), ("gpu-002",), "driver", "CHG-7")


def told(answer: str | None = "HEALTHY", verdict: str | None = None, **more: object) -> Notice:
    return Notice("lab", "run-1", "weekly", "measured", answer, "headline", verdict, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("notice", "due"),
    [
        (told(), "always"),
        (told("HEALTHY", "PASS"), "always"),
        (told("HEALTHY", "INCONCLUSIVE"), "always"),
        (told("FINDINGS", "PASS"), "always not_healthy"),
        (told("NOT_JUDGED"), "always not_healthy"),
        (told("HEALTHY", "REGRESSED"), "always not_healthy regressed"),
        (told("FINDINGS", "REGRESSED"), "always not_healthy regressed"),
        (told("HEALTHY", "PASS", change=True), "always"),
        (told("HEALTHY", "IMPROVED", change=True), "always"),
        (told("HEALTHY", "INCONCLUSIVE", change=True), "always not_healthy"),
        (told("HEALTHY", "NOT_COMPARABLE", change=True), "always not_healthy"),
        (told("HEALTHY", None, change=True), "always not_healthy"),
        (told(None), "always not_healthy regressed"),
        (told("HEALTHY", "PASS", asks="answer in Airflow"), "always not_healthy regressed"),
    ],
)
def test_which_runs_people_are_told_of(notice: Notice, due: str) -> None:
    assert [w.value for w in When if notice.due(w)] == due.split()


def test_when_is_a_word_of_three() -> None:
    assert When.parse(" ", "X") is When.NOT_HEALTHY
    assert When.parse("always", "X") is When.ALWAYS
    with pytest.raises(UsageError, match=r"X: 'sometimes'; expected one of always, not_healthy, regressed"):
        When.parse("sometimes", "X")


def test_a_run_that_regressed_is_told_with_units_cause_and_page(store: ObjectStore) -> None:
    found = [samples.slow(f"gpu-{n:03}", f"gpu-{n:03} lost 9%.") for n in range(1, 8)]
    run = samples.conclude(
        store,
        samples.document("post_maintenance", CHANGE),
        "FINDINGS",
        "7 findings.",
        samples.REGRESSED,
        [*found, samples.slow("gpu-001", "a second one", "lat_us")],
        "driver_version 570 -> 580 on gpu-001 fits best.",
    )
    notice = gather(store, run, "https://airflow.example.org/fabric-health/page")
    assert (notice.answer, notice.verdict, notice.ticket, notice.more) == ("FINDINGS", "REGRESSED", "CHG-7", 2)
    assert [unit for unit, _ in notice.units] == [f"gpu-{n:03}" for n in range(1, 6)]
    text = slack_text(notice)
    assert text.splitlines() == [
        "lab: REGRESSED (FINDINGS) · CHG-7",
        "7 findings.",
        f"Verdict: REGRESSED: {samples.REGRESSED.reason}",
        "Cause: driver_version 570 -&gt; 580 on gpu-001 fits best.",
        *(f"• gpu-{n:03}: gpu-{n:03} lost 9%." for n in range(1, 6)),
        "and 2 more",
        "Page: https://airflow.example.org/fabric-health/page",
        f"Run: {run.key.run}; simulated by the lab",
    ]
    body = mail_body(notice)
    assert '<a href="https://airflow.example.org/fabric-health/page">' in body
    assert subject(notice) == "lab: REGRESSED (FINDINGS) · CHG-7"


def test_an_inconclusive_run_says_what_would_settle_it_and_a_waiting_one_where_to_answer(store: ObjectStore) -> None:
    whole = Whole(Outcome.INCONCLUSIVE, "one launch says nothing of the noise", "10 launches")
    run = samples.conclude(store, samples.document(), verdict=whole)
    text = slack_text(gather(store, run, None, "answer in Airflow, Required Actions"))
    assert "\nTo settle: 10 launches\n" in text
    assert "\nAccept as baseline?: answer in Airflow, Required Actions\n" in text
    assert "Page:" not in text


def test_a_run_that_was_not_concluded_says_so(store: ObjectStore) -> None:
    notice = gather(store, samples.document(), "https://airflow/dags/weekly/runs/1")
    assert notice.answer is None
    assert slack_text(notice).startswith(
        "lab: run not concluded\nThe run was not concluded: a stage failed.\nSee: https"
    )
    assert unfinished("lab", "r", "d", "", "away", None).due(When.REGRESSED)


@given(text=st.text(), limit=st.integers(2, 50))
def test_plain_text_is_one_printable_line_of_bounded_length(text: str, limit: int) -> None:
    line = plain(text, limit)
    assert len(line) <= limit
    assert line.isprintable()
    assert line == line.strip()


@given(text=st.text())
def test_no_text_of_a_device_is_markup_or_ends_a_header(text: str) -> None:
    notice = Notice(
        text, text, text, text, text, text, text, text, text, text, text, True, ((text, text),) * 5, 3, text
    )
    message = slack_text(notice)
    assert not re.search(r"[<>]", message)
    assert not re.search(r"&(?!amp;|lt;|gt;)", message)
    assert len(html.unescape(message)) < 6000
    assert set(re.findall(r"<[^>]*>", re.sub(r'<a href="[^"]*">', "<a>", mail_body(notice)))) <= {
        *("<h3>", "</h3>", "<p>", "</p>", "<b>", "</b>", "<a>", "</a>")
    }
    mail = MIMEText("")
    mail["Subject"] = subject(notice)
    assert set(message_from_string(mail.as_string()).keys()) == set(mail.keys())


def test_nobody_is_mentioned_by_a_description_of_a_port() -> None:
    text = slack_text(told("FINDINGS", units=(("leaf-1/<!channel>", "<https://evil.example|click>\nRun: forged"),)))
    assert "• leaf-1/&lt;!channel&gt;: &lt;https://evil.example|click&gt; Run: forged" in text.splitlines()
