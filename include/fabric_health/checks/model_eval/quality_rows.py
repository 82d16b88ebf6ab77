"""Answers of one launch to rows: scores of tasks with their items, likelihoods, greedy answers, vectors."""

from __future__ import annotations

import math
from collections.abc import Iterator

from fabric_health.checks.model_eval.asked import Serve
from fabric_health.checks.model_eval.comparability import Served
from fabric_health.checks.model_eval.launches import (
    EMBEDDINGS_FILE,
    FINGERPRINT_FILE,
    LM_EVAL_FILE,
    PERPLEXITY_FILE,
    samples_file,
)
from fabric_health.checks.model_eval.outcome import Outcome
from fabric_health.checks.model_eval.parsers.answers import (
    perplexity,
    read_embeddings,
    read_fingerprint,
    read_perplexity,
)
from fabric_health.checks.model_eval.parsers.lm_eval import Items, Results, Task, read_items, read_results
from fabric_health.checks.model_eval.tables import Fingerprint, ModelEmbedding, ModelQuality, PerItem
from fabric_health.datasets.contracts import Row

PERPLEXITY = "perplexity"
# What the harness rounds by when it averages.
MEAN_TOLERANCE = 1e-6


def item_rows(want: Serve, keys: Served, out: Outcome) -> Iterator[Row]:
    """Yield scores and items of every task that was asked for."""
    file = out.file(LM_EVAL_FILE)
    if file is None:
        # Results that cannot be saved are only warned of by the harness: the file tells, not the exit code.
        out.broken("result_written", out.why_missing(LM_EVAL_FILE), subject=LM_EVAL_FILE)
        return
    results = read_results(file.stdout)
    if results is None:
        out.broken("result_readable", f"{LM_EVAL_FILE} is no result of lm-evaluation-harness", subject=LM_EVAL_FILE)
        return
    for name in want.tasks:
        yield from _task_rows(want, keys, name, results, out)


def _task_rows(want: Serve, keys: Served, name: str, results: Results, out: Outcome) -> Iterator[Row]:
    task = results.tasks.get(name)
    if task is None or not task.scores:
        out.broken("result_readable", f"{LM_EVAL_FILE} has no score of task {name}", subject=name)
        return
    file = out.file(samples_file(name))
    if file is None:
        out.broken("result_written", out.why_missing(samples_file(name)), subject=samples_file(name))
        return
    items = read_items(file.stdout)
    if items.problem:
        out.broken("result_readable", f"{samples_file(name)}: {items.problem}", subject=samples_file(name))
        return
    if missing := _incomplete(want, task, items):
        out.broken("items_complete", f"task {name}: {missing}", subject=name)
        return
    if odd := _disagrees(task, items):
        out.broken("items_match_result", f"task {name}: {odd}", subject=name)
        return
    key = keys.key(task=name, task_version=task.version, items=len(items.items), harness=results.harness)
    limited = task.original is not None and len(items.items) < task.original
    yield from _scores(want, task, items, results, out, key=key, limited=limited)
    for item in items.items:
        yield PerItem(out.launch, want.unit, name, item.name, key, item.correct, item.loglikelihood)


def _incomplete(want: Serve, task: Task, items: Items) -> str | None:
    """Say how the items are not all that were asked for; None where they are."""
    found = len(items.items)
    if task.effective is not None and found != task.effective:
        return f"the file has {found} items, the result is of {task.effective}"
    expected = want.items if task.original is None or want.items is None else min(want.items, task.original)
    expected = task.original if want.items is None else expected
    if expected is not None and found != expected:
        return f"{found} items were evaluated instead of {expected}"
    return None


def _disagrees(task: Task, items: Items) -> str | None:
    """Say where the score is not the mean of the items, as the harness counted them; None where it is."""
    score = next((s for s in task.scores if s.metric == items.metric), None)
    if score is None:
        return None
    right = sum(i.correct is True and not i.mended for i in items.items) / len(items.items)
    if abs(right - score.value) > MEAN_TOLERANCE:
        return f"{items.metric} is {score.value:.6g}, of its items {right:.6g} are right"
    return None


def _scores(
    want: Serve, task: Task, items: Items, results: Results, out: Outcome, *, key: str, limited: bool
) -> Iterator[ModelQuality]:
    number = len(items.items)
    mended = any(i.mended for i in items.items)
    for score in task.scores:
        value, error = score.value, score.stderr
        if mended and score.metric == items.metric:
            value = sum(i.correct is True for i in items.items) / number
            error = math.sqrt(value * (1 - value) / (number - 1)) if number > 1 else None
        yield ModelQuality(
            launch=out.launch,
            unit=want.unit,
            task=task.name,
            metric=score.metric,
            value=value,
            comparability=key,
            stderr=error,
            items=number,
            limited=limited,
            higher_is_better=score.higher_is_better,
            task_version=task.version,
            harness_version=results.harness,
        )


def window_rows(want: Serve, keys: Served, version: str | None, out: Outcome) -> Iterator[Row]:
    """Yield the perplexity over windows of text, and the windows as items."""
    file = out.file(PERPLEXITY_FILE)
    if file is None:
        out.broken("result_written", out.why_missing(PERPLEXITY_FILE), subject=PERPLEXITY_FILE)
        return
    windows, problem = read_perplexity(file.stdout)
    if problem:
        out.broken("result_readable", f"{PERPLEXITY_FILE}: {problem}", subject=PERPLEXITY_FILE)
        return
    if len(windows) != want.windows:
        what = f"{len(windows)} windows of text were evaluated instead of {want.windows}"
        out.broken("items_complete", what, subject=PERPLEXITY)
        return
    value, error = perplexity(windows)
    key = keys.key(task=PERPLEXITY, items=f"{want.windows}x{want.window_tokens}", harness="api")
    yield ModelQuality(
        launch=out.launch,
        unit=want.unit,
        task=PERPLEXITY,
        metric=PERPLEXITY,
        value=value,
        comparability=key,
        stderr=error,
        items=len(windows),
        limited=False,
        higher_is_better=False,
        harness_version=version,
    )
    for w in windows:
        yield PerItem(out.launch, want.unit, PERPLEXITY, w.name, key, None, w.logprob, w.tokens)


def answer_rows(want: Serve, keys: Served, weights: str, out: Outcome) -> Iterator[Row]:
    """Yield the greedy answers."""
    file = out.file(FINGERPRINT_FILE)
    if file is None:
        out.broken("result_written", out.why_missing(FINGERPRINT_FILE), subject=FINGERPRINT_FILE)
        return
    answers, problem = read_fingerprint(file.stdout)
    if problem:
        out.broken("result_readable", f"{FINGERPRINT_FILE}: {problem}", subject=FINGERPRINT_FILE)
        return
    key = keys.key(task="fingerprint", greedy=want.greedy_tokens)
    for a in answers:
        tokens = " ".join(map(str, a.tokens))
        yield Fingerprint(out.launch, want.unit, a.prompt, a.prompt_sha256, tokens, weights, key, a.logprob)


def embedding_rows(keys: Served, weights: str, out: Outcome) -> Iterator[Row]:
    """Yield the vectors of the texts."""
    file = out.file(EMBEDDINGS_FILE)
    if file is None:
        out.broken("result_written", out.why_missing(EMBEDDINGS_FILE), subject=EMBEDDINGS_FILE)
        return
    vectors, problem = read_embeddings(file.stdout)
    if problem:
        out.broken("result_readable", f"{EMBEDDINGS_FILE}: {problem}", subject=EMBEDDINGS_FILE)
        return
    key = keys.key(task="embeddings", items=len(vectors))
    for v in vectors:
        yield ModelEmbedding(out.launch, out.unit, v.name, len(v.values), v.as_json(), weights, key)
