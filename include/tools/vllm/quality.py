"""What the served model answers: lm-eval's tasks, perplexity of fixed windows, and greedy answers to fixed prompts."""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import api
from steps import StepError, take, write_json

# Requests of lm-eval at once, and answers scored in each: enough to keep a small server busy, few enough to fit.
EVALUATE_AT_ONCE = 2
EVALUATE_BATCH = 32
MAX_LINE = 1 << 20


@dataclass(frozen=True)
class Served:
    """Whom to ask: the port, the name that was asked to be served, and the folder with the tokenizer."""

    port: int
    name: str
    model: Path

    def post(self, path: str, body: dict[str, Any], until: float) -> Any:
        """Return the answer to ``body``, asked by name. Raises ApiError; StepError when the step's time is over."""
        left = until - time.monotonic()
        if left <= 0:
            raise StepError("ended after its limit")
        return api.post(self.port, path, {"model": self.name, **body}, left)


def evaluate_argv(served: Served, tasks: Path, names: Sequence[str], items: int, folder: Path) -> list[str]:
    """Return lm-eval's command line. Items are the first of the task; 0 are all of them."""
    arguments = {
        "model": served.name,
        "base_url": f"http://{api.HOST}:{served.port}/v1/completions",
        "tokenizer": str(served.model),
        "tokenizer_backend": "huggingface",
        "num_concurrent": EVALUATE_AT_ONCE,
        "max_retries": 1,
    }
    return [
        *("lm_eval", "run", "--model", "local-completions", "--model_args"),
        ",".join(f"{k}={v}" for k, v in arguments.items()),
        *("--include_path", str(tasks), "--tasks", ",".join(names)),
        *(["--limit", str(items)] if items else []),
        *("--batch_size", str(EVALUATE_BATCH), "--output_path", str(folder), "--log_samples"),
        *("--seed", "0,1234,1234,1234"),
    ]


def take_evaluation(folder: Path, names: Sequence[str], out: Path) -> None:
    """Move lm-eval's own files to their places. Raises StepError when one is missing: it only warns of that."""
    results = sorted(folder.rglob("results_*.json"))
    take(results[-1] if results else folder / "results_*.json", out / "lm-eval.json")
    for name in names:
        # Named samples_TASK_TIME.jsonl. The time has no "_": of tasks "qa" and "qa_long" each gets its own.
        found = folder.rglob("samples_*.jsonl")
        samples = sorted(p for p in found if p.stem.rpartition("_")[0] == f"samples_{name}")
        take(samples[-1] if samples else folder / f"samples_{name}_*.jsonl", out / f"lm-eval-samples-{name}.jsonl")


@dataclass(frozen=True)
class Windows:
    """The text whose perplexity is measured: the first ``count`` windows of ``tokens`` tokens of a JSONL file."""

    evaluation: Path
    count: int
    tokens: int


def perplexity(served: Served, text: Windows, target: Path, limit_s: float) -> None:
    """Write the log-probability of each window of the text. Raises ApiError, StepError.

    A window is ``tokens`` tokens, each predicted from those before it in the window, and from one more token in
    front. One window is asked for at a time: what is computed beside it may change the last bits of the result.
    """
    until = time.monotonic() + limit_s
    tokens = _tokens(served, text.evaluation, text.count * text.tokens + 1, until)
    found = []
    for n in range(text.count):
        window = tokens[n * text.tokens : (n + 1) * text.tokens + 1]
        body = {"prompt": window, "max_tokens": 1, "temperature": 0, "seed": 0, "prompt_logprobs": 0}
        answer = served.post("/v1/completions", body, until)
        # Windows of another text are other windows, whatever their number.
        digest = hashlib.sha256(" ".join(map(str, window)).encode()).hexdigest()
        found.append({"id": f"window-{n}", "sha256": digest, "tokens": text.tokens, "logprob": _sum_of(answer, window)})
    write_json(target, {"window_tokens": text.tokens, "windows": found})


def _sum_of(answer: Any, window: list[int]) -> float:
    """Return the sum of the log-probabilities of a window's tokens but the first."""
    scored = answer["choices"][0]["prompt_logprobs"]
    if len(scored) != len(window):
        raise StepError(f"{len(scored)} log-probabilities for {len(window)} tokens")
    total = math.fsum(float(at[str(token)]["logprob"]) for at, token in zip(scored[1:], window[1:], strict=True))
    if not math.isfinite(total):
        raise StepError("a log-probability is not a finite number")
    return total


def _tokens(served: Served, evaluation: Path, count: int, until: float) -> list[int]:
    """Return the first ``count`` tokens of a file's texts, each ended by the model's end-of-text token."""
    end = _end_of_text(served.model)
    out: list[int] = []
    for _, text in texts(evaluation, "text"):
        body = {"prompt": text, "add_special_tokens": False}
        out += [int(t) for t in served.post("/tokenize", body, until)["tokens"]] + end
        if len(out) >= count:
            return out[:count]
    raise StepError(f"{evaluation}: {len(out)} tokens of text; {count} are needed")


def _end_of_text(model: Path) -> list[int]:
    for name in ("generation_config.json", "config.json"):
        try:
            found = json.loads((model / name).read_text(encoding="utf-8")).get("eos_token_id")
        except (OSError, ValueError, AttributeError):
            continue
        first = found[0] if isinstance(found, list) and found else found
        if isinstance(first, int):
            return [first]
    return []


def fingerprint(served: Served, prompts: Path, greedy_tokens: int, target: Path, limit_s: float) -> None:
    """Write the greedy answer to each prompt, token by token, asked one at a time. Raises ApiError, StepError."""
    until = time.monotonic() + limit_s
    found = []
    for name, prompt in texts(prompts, "prompt"):
        body = {
            "prompt": prompt,
            "max_tokens": greedy_tokens,
            "temperature": 0,
            "seed": 0,
            "logprobs": 1,
            "ignore_eos": True,
            "return_token_ids": True,
        }
        choice = served.post("/v1/completions", body, until)["choices"][0]
        ids, scores = choice.get("token_ids"), choice["logprobs"]["token_logprobs"]
        if not isinstance(ids, list) or len(ids) != greedy_tokens or len(scores) != greedy_tokens:
            raise StepError(f"{name}: expected {greedy_tokens} token ids and log-probabilities (vLLM 0.10.2 or later)")
        found.append(
            {
                "id": name,
                "prompt_sha256": hashlib.sha256(prompt.encode()).hexdigest(),
                "token_ids": [int(i) for i in ids],
                "text": str(choice["text"]),
                "logprobs": [float(s) for s in scores],
            }
        )
    write_json(target, {"greedy_tokens": greedy_tokens, "prompts": found})


def texts(path: Path, key: str) -> list[tuple[str, str]]:
    """Return the id (or the number of its line) and the text of each line of a JSONL file. Raises StepError."""
    out = []
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file):
            try:
                row = json.loads(line[:MAX_LINE])
                out.append((str(row.get("id", number)), str(row[key])))
            except (ValueError, KeyError, TypeError, AttributeError):
                raise StepError(f"{path}, line {number + 1}: expected a JSON object with {key!r}") from None
    if not out:
        raise StepError(f"{path}: no text in it")
    return out
