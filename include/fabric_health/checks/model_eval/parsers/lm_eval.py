"""Results and items of lm-evaluation-harness, 0.3 to 0.4.

Results have a value for each ``metric,filter`` (``metric`` alone before 0.4), a standard error that may be the text
``N/A``, and the evaluation time as text. Items are one JSON object a line, for each filter anew; numbers in ``resps``
are texts since 0.4.4.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fabric_health.checks.model_eval.parsers.reading import document, first, lines, text
from fabric_health.checks.untrusted import clip, count, listing, mapping, real

_STDERR = "_stderr"
_NO_METRIC = frozenset({"alias", "name", "sample_len", "sample_count", " "})
_RIGHT = ("acc", "exact_match", "em", "pass@1", "acc_norm")
_PREFERRED_FILTERS = ("none", "strict-match")
# Answers of models that may think hold an empty block when they did not.
_EMPTY_THOUGHT = re.compile(r"\A\s*<think>\s*</think>\s*")
_MAX_ANSWER = 20_000


@dataclass(frozen=True)
class Score:
    """One metric of one task. ``stderr`` is None where the harness gives none."""

    metric: str
    value: float
    stderr: float | None
    higher_is_better: bool | None


@dataclass(frozen=True)
class Task:
    """What the results say of one task. ``original`` items are all that it has, ``effective`` those evaluated."""

    name: str
    scores: tuple[Score, ...]
    version: str | None
    original: int | None
    effective: int | None


@dataclass(frozen=True)
class Results:
    """A file of results. ``limit`` is the number or share of items that was asked for, None for all."""

    tasks: Mapping[str, Task]
    harness: str | None
    limit: float | None


@dataclass(frozen=True)
class Item:
    """One item. ``mended`` says that the harness held its answer wrong for an empty block of thoughts before it."""

    name: str
    correct: bool | None
    loglikelihood: float | None
    mended: bool = False


@dataclass(frozen=True)
class Items:
    """The items of a task by one filter. ``problem`` says what was not as it should be."""

    metric: str | None = None
    items: tuple[Item, ...] = ()
    problem: str | None = None
    names: frozenset[str] = field(default=frozenset(), repr=False)


def metric_name(key: str) -> str:
    """Return the name that tables have for a key of the results: without the filter where it is none."""
    return key.removesuffix(",none")


def read_results(report: str) -> Results | None:
    """Read a file of results; None when it is no such file."""
    whole = document(report)
    if whole is None or not isinstance(whole.get("results"), dict):
        return None
    tasks = {}
    better = mapping(whole.get("higher_is_better"))
    sizes, versions = mapping(whole.get("n-samples")), mapping(whole.get("versions"))
    for name, raw in list(whole["results"].items())[:500]:
        size = mapping(sizes.get(name))
        tasks[name] = Task(
            name=clip(name, 100),
            scores=_scores(mapping(raw), mapping(better.get(name))),
            version=_version(versions.get(name)),
            original=count(size.get("original")),
            effective=count(size.get("effective")),
        )
    limit = real(mapping(whole.get("config")).get("limit"))
    return Results(tasks, text(first(whole, "lm_eval_version", "git_hash"), 60), limit)


def _scores(raw: Mapping[str, Any], better: Mapping[str, Any]) -> tuple[Score, ...]:
    out = []
    for key, given in list(raw.items())[:200]:
        metric, _, rule = key.partition(",")
        value = real(given)
        if value is None or metric in _NO_METRIC or metric.endswith(_STDERR):
            continue
        error = real(raw.get(f"{metric}{_STDERR}" + (f",{rule}" if rule else "")))
        more = better.get(metric)
        ok = error if error is not None and error >= 0 else None
        out.append(Score(clip(metric_name(key), 100), value, ok, more if isinstance(more, bool) else None))
    return tuple(out)


def _version(value: Any) -> str | None:
    number = real(value)
    return text(value, 40) if number is None else f"{number:g}"


def read_items(log: str) -> Items:
    """Read the items of a task. Of several filters the strict one counts, or else the first. Never raises."""
    by_filter: dict[str, list[dict[str, Any]]] = {}
    for raw in lines(log):
        if raw is None or "doc_id" not in raw:
            return Items(problem="a line is no item of lm-evaluation-harness: the file is cut or of another format")
        by_filter.setdefault(text(raw.get("filter"), 60) or "none", []).append(raw)
    if not by_filter:
        return Items(problem="the file holds no item")
    chosen = next((f for f in _PREFERRED_FILTERS if f in by_filter), next(iter(by_filter)))
    entries = by_filter[chosen]
    metric = next((m for m in _RIGHT if all(_is_right(e.get(m)) is not None for e in entries)), None)
    items = tuple(_item(e, metric) for e in entries)
    names = frozenset(i.name for i in items)
    if len(names) != len(items):
        return Items(problem="an item is there twice")
    full = None if metric is None else metric_name(f"{metric},{chosen}")
    return Items(full, items, None, names)


def _is_right(value: Any) -> bool | None:
    number = float(value) if isinstance(value, bool) else real(value)
    return None if number not in (0.0, 1.0) else number == 1.0


def _item(raw: Mapping[str, Any], metric: str | None) -> Item:
    digest = raw.get("doc_hash")
    mark = f"-{digest[:8]}" if isinstance(digest, str) and digest.isalnum() else ""
    name = clip(str(raw.get("doc_id")), 60) + mark
    correct = None if metric is None else _is_right(raw.get(metric))
    if correct is False and _is_mended(raw):
        return Item(name, True, None, mended=True)
    return Item(name, correct, _loglikelihood(raw))


def _is_mended(raw: Mapping[str, Any]) -> bool:
    """Tell whether an answer is the right one once the empty block of thoughts before it is gone."""
    target, answers = raw.get("target"), listing(raw.get("filtered_resps"))
    answer = answers[0] if answers else None
    answer = answer[0] if isinstance(answer, list) and answer else answer
    if not isinstance(target, str) or not isinstance(answer, str) or not target.strip():
        return False
    stripped, times = _EMPTY_THOUGHT.subn("", answer[:_MAX_ANSWER])
    return times == 1 and stripped.strip() == target.strip()


def _loglikelihood(raw: Mapping[str, Any]) -> float | None:
    """Return the log-likelihood of the right answer of a choice, or of a text; None where text is generated."""
    if _generates(raw):
        return None
    raws = [x[0] for x in listing(raw.get("resps")) if isinstance(x, list) and x]
    answers = listing(raw.get("filtered_resps")) or raws
    values = [_number(a[0]) if isinstance(a, list) and a else _number(a) for a in answers]
    target = 0 if len(values) == 1 else _target(raw, len(values))
    value = values[target] if target is not None and values else None
    return value if value is not None and value <= 0 else None


def _generates(raw: Mapping[str, Any]) -> bool:
    """Tell whether the request of an item has settings of generation: its answer is then text, even if it is `-5`."""
    given = raw.get("arguments")
    requests = list(given.values()) if isinstance(given, dict) else listing(given)
    for request in requests[:10]:
        words = list(request.values()) if isinstance(request, dict) else listing(request)
        if any(isinstance(w, dict) for w in words):
            return True
    return any(raw.get(m) is not None for m in ("exact_match", "em", "pass@1"))


def _target(raw: Mapping[str, Any], choices: int) -> int | None:
    target = raw.get("target")
    number = count(target)
    if number is None and isinstance(target, str) and target.isdecimal() and len(target) < 6:
        number = int(target)
    return number if number is not None and number < choices else None


def _number(value: Any) -> float | None:
    if isinstance(value, str) and len(value) < 40:
        try:
            return real(float(value))
        except ValueError:
            return None
    return real(value)
