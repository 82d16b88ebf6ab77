"""What the measuring program writes of answers: likelihoods of windows of text, greedy answers, vectors of texts.

Each reader returns what it read and what is wrong; with anything wrong nothing was read.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from fabric_health.checks.model_eval.parsers.reading import document, sha256, text
from fabric_health.checks.untrusted import count, listing, mapping, real

T = TypeVar("T")
_MAX = 100_000
_MAX_TOKENS = 1 << 20
_MAX_DIMENSION = 1 << 17


@dataclass(frozen=True)
class Window:
    """A window of text: the sum of the log-probabilities (nats) of ``tokens`` tokens."""

    name: str
    tokens: int
    logprob: float


@dataclass(frozen=True)
class Answer:
    """A greedy answer. ``logprob`` is the sum of the log-probabilities of its tokens (nats)."""

    prompt: str
    prompt_sha256: str
    tokens: tuple[int, ...]
    logprob: float | None


@dataclass(frozen=True)
class Vector:
    """The vector of a text."""

    name: str
    values: tuple[float, ...]

    def as_json(self) -> str:
        """Return the vector as JSON: as short as reads back to the same numbers."""
        return json.dumps(self.values, separators=(",", ":"))


def read_perplexity(report: str) -> tuple[list[Window], str | None]:
    """Read the likelihoods of windows of text."""
    whole, out = document(report), []
    for raw in listing((whole or {}).get("windows"))[:_MAX]:
        entry = mapping(raw)
        name, tokens, logprob = _name_of(entry), count(entry.get("tokens")), real(entry.get("logprob"))
        if name is None or not tokens or logprob is None or logprob > 0:
            return [], "a window has no name, no tokens or no log-probability of 0 or less"
        out.append(Window(name, tokens, logprob))
    return _once(out, [w.name for w in out], "window")


def perplexity(windows: Sequence[Window]) -> tuple[float, float | None]:
    """Return the perplexity over all tokens, and its standard error by the spread of windows (delta method).

    The error is None for fewer than two windows. Windows are of one length, so their means count alike.
    """
    tokens = sum(w.tokens for w in windows)
    value = math.exp(min(-sum(w.logprob for w in windows) / tokens, 700.0))
    if len(windows) < 2:
        return value, None
    rates = [-w.logprob / w.tokens for w in windows]
    mean = sum(rates) / len(rates)
    variance = sum((r - mean) ** 2 for r in rates) / (len(rates) - 1)
    return value, value * math.sqrt(variance / len(rates))


def read_fingerprint(report: str) -> tuple[list[Answer], str | None]:
    """Read greedy answers."""
    whole, out = document(report), []
    for raw in listing((whole or {}).get("prompts"))[:_MAX]:
        entry = mapping(raw)
        name, digest = _name(entry.get("id")), sha256(entry.get("prompt_sha256"))
        tokens = [count(t) for t in listing(entry.get("token_ids"))[:_MAX_TOKENS]]
        ids = tuple(t for t in tokens if t is not None)
        if name is None or digest is None or not ids or len(ids) != len(tokens):
            return [], "an answer has no prompt, no hash of it or no token ids"
        each = [real(v) for v in listing(entry.get("logprobs"))[:_MAX_TOKENS]]
        known = [v for v in each if v is not None]
        whole_sum = math.fsum(known) if known and len(known) == len(each) == len(ids) else None
        out.append(Answer(name, digest, ids, whole_sum))
    return _once(out, [a.prompt for a in out], "answer")


def read_embeddings(report: str) -> tuple[list[Vector], str | None]:
    """Read vectors of texts. All are of one length and none is zero: such a vector has no direction."""
    whole = document(report) or {}
    dimension, out = count(whole.get("dimension")), []
    for raw in listing(whole.get("texts"))[:_MAX]:
        entry = mapping(raw)
        name, numbers = _name_of(entry), [real(v) for v in listing(entry.get("vector"))[:_MAX_DIMENSION]]
        values = tuple(v for v in numbers if v is not None)
        if name is None or not values or len(values) != len(numbers) or len(values) != dimension:
            return [], "a text has no name, or its vector is not of finite numbers or not of the dimension"
        if not any(values):
            return [], f"the vector of {name} is zero"
        out.append(Vector(name, values))
    return _once(out, [v.name for v in out], "vector")


def _name_of(entry: Mapping[str, object]) -> str | None:
    """Return the name of a window or text, with the first digits of its hash: another text is another item."""
    name, digest = _name(entry.get("id")), sha256(entry.get("sha256"))
    return name if name is None or digest is None else f"{name}-{digest[:8]}"


def _name(value: object) -> str | None:
    number = count(value)
    return str(number) if number is not None else text(value, 100)


def _once(out: list[T], names: list[str], what: str) -> tuple[list[T], str | None]:
    if not out:
        return [], f"no {what} in it"
    if len(set(names)) != len(names):
        return [], f"a {what} is there twice"
    return out, None
