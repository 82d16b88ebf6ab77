"""Asking a person whether a run becomes the baseline, and recording what was answered."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from fabric_health import baselines
from fabric_health.datasets.store import ObjectStore
from fabric_health.datasets.tables import Answer, Run
from fabric_health.datasets.verdict_tables import Baseline
from fabric_health.errors import UsageError
from fabric_health.history import load_part
from fabric_health.landed import Landed
from fabric_health.notice_text import plain
from fabric_health.run_document import RunDocument
from fabric_health.verdict.outcome import Outcome

APPROVE, REJECT = "Approve", "Reject"
# Verdicts after which accepting the run says that a new level is here to stay.
NEW_LEVEL = (Outcome.REGRESSED.value, Outcome.IMPROVED.value)
_MARKDOWN = re.compile(r"([\\`*_{}\[\]()<>#+\-.!|~&])")
_TEXT_SHOWN = 350


@dataclass(frozen=True)
class Question:
    """What a person is asked: one line, and a body in Markdown."""

    subject: str
    body: str


def question(store: ObjectStore, run: RunDocument, page: str | None = None) -> Question | None:
    """Return what is asked before a run becomes the baseline; None for one that could not be judged.

    A run that regressed may be accepted, too: the loss may be the price of what was changed. The question says so.
    """
    record = next(iter(load_part(store, Run, run.key, "run")), None)
    if record is None or record.answer == Answer.NOT_JUDGED:
        return None
    verdict = Landed(store, run).verdict()
    word = verdict.outcome if verdict else "no verdict"
    lines = [f"**{word}**" + (f": {_markdown(verdict.reason)}" if verdict else ""), _markdown(record.headline)]
    if verdict and verdict.explanation:
        lines.append(_markdown(verdict.explanation))
    if verdict and verdict.outcome == Outcome.REGRESSED:
        lines.append("To approve is to say that **the loss is accepted**: later runs are held against this level.")
    if verdict and verdict.outcome in NEW_LEVEL:
        lines.append("Earlier runs no longer count as history.")
    if page:
        # The address is ours, and percent-encoded: nothing in it ends the link.
        lines.append(f"[The page of the run]({page})" if page.startswith(("http://", "https://")) else _markdown(page))
    return Question(plain(f"{word}: accept {run.key.run} as baseline of {run.key.site}?", 200), "\n\n".join(lines))


def _markdown(text: str) -> str:
    return _MARKDOWN.sub(r"\\\1", plain(text, _TEXT_SHOWN))


def accept(store: ObjectStore, run: RunDocument, answer: Mapping[str, Any], origin: str) -> Baseline:
    """Record that a person approved a run as baseline: who, when and why come from ``answer``.

    ``answer`` is what Airflow's ``ApprovalOperator`` returns: ``chosen_options``, ``responded_by_user`` (``id``,
    ``name``), ``responded_at``, ``params_input`` (``reason``). Raises UsageError unless it is an approval by somebody.
    """
    if answer.get("chosen_options") != [APPROVE]:
        raise UsageError(f"run {run.key.run} was not approved: {str(answer.get('chosen_options'))[:100]}")
    verdict = Landed(store, run).verdict()
    word = verdict.outcome if verdict else "none"
    given = answer.get("params_input")
    reason = given.get("reason") if isinstance(given, Mapping) else None
    reason = reason.strip() if isinstance(reason, str) else ""
    return baselines.accept(
        store,
        run.key.site,
        run.key.run,
        by=_who(answer.get("responded_by_user"), run),
        reason=reason[: baselines.MAX_TEXT] or f"approved in Airflow, without a reason; verdict {word}",
        now=_when(answer.get("responded_at")),
        resets_history=word in NEW_LEVEL,
        origin=origin,
    )


def _who(user: Any, run: RunDocument) -> str:
    """Return the name of a user, with the id where it says more. Raises UsageError for nobody."""
    held = user if isinstance(user, Mapping) else vars(user) if hasattr(user, "__dict__") else {}
    name, ident = (plain(str(held.get(k) or ""), 200) for k in ("name", "id"))
    if not (name or ident):
        raise UsageError(f"nobody is named as having approved run {run.key.run}; accept it by `baseline accept`")
    return name if not ident or ident == name else f"{name} ({ident})" if name else ident


def _when(moment: Any) -> datetime:
    """Return when it was answered, so that a repeated task records the same act; now, when that is not known."""
    if isinstance(moment, str):
        try:
            moment = datetime.fromisoformat(moment)
        except ValueError:
            moment = None
    if not isinstance(moment, datetime):
        return datetime.now(UTC)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
