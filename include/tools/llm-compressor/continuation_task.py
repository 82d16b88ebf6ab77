"""A task of lm-evaluation-harness made from held-out text: which of four pieces goes on?

The wrong ones are the right one with two neighbouring words in the other order, so that all four have the same words
and the same length, and only a model of their order tells them apart. It compares forms of one model; it says nothing
about language.
"""

from __future__ import annotations

import random
import re
from typing import Any

NAME = "continuation"
VERSION = 1
CHOICES = 4
CONTEXT_WORDS = 12
WORDS = 5
_WORD = re.compile(r"\s*\S+")

TASK = f"""\
# Multiple choice over continuation.jsonl, which lies beside this file. The name of the data is relative: run lm_eval
# in this folder.
task: {NAME}
dataset_path: json
dataset_kwargs:
  data_files:
    test: {NAME}.jsonl
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{context}}}}"
doc_to_choice: "{{{{choices}}}}"
doc_to_target: label
target_delimiter: ""
metric_list:
  - metric: acc
    aggregation: mean
    higher_is_better: true
  - metric: acc_norm
    aggregation: mean
    higher_is_better: true
metadata:
  version: {VERSION}
"""


def _cuts(texts: tuple[str, ...]) -> list[tuple[str, tuple[str, ...]]]:
    """Return (context, words of the continuation) of every place where the words give enough wrong orders."""
    cuts = []
    for text in texts:
        words = _WORD.findall(text)
        step = CONTEXT_WORDS + WORDS
        for start in range(0, len(words) - step + 1, step):
            middle = start + CONTEXT_WORDS
            going_on = tuple(w.strip() for w in words[middle : middle + WORDS])
            if len(_swapped(going_on)) >= CHOICES - 1:
                cuts.append(("".join(words[start:middle]).lstrip(), going_on))
    return cuts


def _swapped(words: tuple[str, ...]) -> list[str]:
    """Return the pieces with one pair of neighbours exchanged, each once, in order."""
    swaps = {
        _piece((*words[:i], words[i + 1], words[i], *words[i + 2 :])): None
        for i in range(len(words) - 1)
        if words[i] != words[i + 1]
    }
    return list(swaps)


def _piece(words: tuple[str, ...]) -> str:
    return "".join(f" {word}" for word in words)


def items(texts: tuple[str, ...], count: int, seed: int) -> list[dict[str, Any]]:
    """Return ``count`` items {"id", "context", "choices", "label"}, the same for the same texts and seed.

    Raises ValueError when the texts do not give that many.
    """
    draw = random.Random(seed)  # noqa: S311 - to be the same each time, not to be unknown
    cuts = _cuts(texts)
    if len(cuts) < count:
        raise ValueError(f"the held-out text gives {len(cuts)} items, {count} are wanted")
    made = []
    for number, (context, words) in enumerate(draw.sample(cuts, count)):
        wrong = draw.sample(_swapped(words), CHOICES - 1)
        label = draw.randrange(CHOICES)
        choices = [*wrong[:label], _piece(words), *wrong[label:]]
        made.append({"id": f"{NAME}-{number:03d}", "context": context, "choices": choices, "label": label})
    return made


def prompts(texts: tuple[str, ...], count: int) -> list[dict[str, Any]]:
    """Return ``count`` prompts {"id", "prompt"}: beginnings of texts, for greedy answers that must not change."""
    starts = [w for t in texts if len(w := _WORD.findall(t)) > CONTEXT_WORDS]
    if len(starts) < count:
        raise ValueError(f"the held-out text gives {len(starts)} prompts, {count} are wanted")
    chosen = [starts[i * len(starts) // count] for i in range(count)]
    return [{"id": f"prompt-{i:02d}", "prompt": "".join(w[:CONTEXT_WORDS]).lstrip()} for i, w in enumerate(chosen)]
