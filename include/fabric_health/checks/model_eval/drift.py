"""Whether models answer as they did: rules on rows of two runs, or of two launches of one.

Greedy decoding of the same weights by the same kernels on the same device gives the same tokens. So where weights,
flags, versions and device are equal and tokens are not, hardware or driver computes otherwise. What differs in weights
or key is never compared here.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from fabric_health.checks.model_eval.tables import Fingerprint, ModelEmbedding, Quantization
from fabric_health.checks.untrusted import listing, real

COSINE_MIN: Final = 0.999
"""Cosine of a text's vectors below which they have moved. Ours: other rounding in 16 bits stays above 0.9999."""
LOGPROB_TOLERANCE: Final = 1e-3
"""Nats a token by which equal answers may move. Ours: what another order of 16-bit sums changes stays below it."""

R = TypeVar("R", Fingerprint, ModelEmbedding)


@dataclass(frozen=True)
class Drift:
    """Answers of one form, now and before. ``position`` counts tokens from 0 and is -1 where nothing differs.

    ``prompt``, ``token_before`` and ``token_now`` are of the first prompt that differs; a token is None where its
    answer had ended. ``largest_move`` is of sums of log-probabilities of equal answers, in nats a token.
    """

    unit: str
    comparability: str
    prompts: int
    differing: int
    prompt: str = ""
    position: int = -1
    token_before: int | None = None
    token_now: int | None = None
    largest_move: float = 0.0

    @property
    def is_drift(self) -> bool:
        """Whether tokens are others, or equal ones are likelier or less likely than other rounding explains."""
        return self.differing > 0 or self.largest_move > LOGPROB_TOLERANCE


@dataclass(frozen=True)
class Moved:
    """Vectors of one form, now and before: the smallest cosine, and the text that it is of."""

    unit: str
    comparability: str
    texts: int
    cosine: float
    text: str

    @property
    def is_moved(self) -> bool:
        """Whether the vectors are others."""
        return self.cosine < COSINE_MIN


@dataclass(frozen=True)
class Requantised:
    """A form whose recipe, source, calibration and versions are as before: its weights then and now."""

    unit: str
    weights_before: str
    weights_now: str

    @property
    def is_other(self) -> bool:
        """Whether the weights are others."""
        return self.weights_before != self.weights_now


def drifted(now: Sequence[Fingerprint], before: Sequence[Fingerprint]) -> list[Drift]:
    """Return, of every form that both have with equal weights and key, whether it gives the same tokens.

    Of several launches the first that is named counts: launches of one run that differ are a finding of their own.
    """
    out = []
    for unit, pairs in _pairs(now, before, lambda r: r.prompt):
        same = [(a, b) for a, b in pairs if a.prompt_sha256 == b.prompt_sha256]
        if same:
            out.append(_drift(unit, same))
    return out


def _drift(unit: str, pairs: Sequence[tuple[Fingerprint, Fingerprint]]) -> Drift:
    others = [(a, b) for a, b in pairs if a.tokens != b.tokens]
    moves = [
        abs(a.logprob - b.logprob) / max(1, len(a.tokens.split()))
        for a, b in pairs
        if a.tokens == b.tokens and a.logprob is not None and b.logprob is not None
    ]
    key, largest = pairs[0][0].comparability, max(moves, default=0.0)
    if not others:
        return Drift(unit, key, len(pairs), 0, largest_move=largest)
    (a, b) = others[0]
    here, there = _ids(a.tokens), _ids(b.tokens)
    shared = min(len(here), len(there))
    at = next((i for i in range(shared) if here[i] != there[i]), shared)
    was, now = (ids[at] if at < len(ids) else None for ids in (there, here))
    return Drift(unit, key, len(pairs), len(others), a.prompt, at, was, now, largest)


def _ids(tokens: str) -> list[int | None]:
    return [int(t) if t.isdecimal() and len(t) < 20 else None for t in tokens.split()]


def moved(now: Sequence[ModelEmbedding], before: Sequence[ModelEmbedding]) -> list[Moved]:
    """Return, of every form that both have with equal weights and key, the smallest cosine of a text's two vectors."""
    out = []
    for unit, pairs in _pairs(now, before, lambda r: r.text):
        cosines = [(_cosine(_vector(a.vector), _vector(b.vector)), a.text) for a, b in pairs]
        value, text = min(cosines)
        out.append(Moved(unit, pairs[0][0].comparability, len(pairs), value, text))
    return out


def requantised(now: Sequence[Quantization], before: Sequence[Quantization]) -> list[Requantised]:
    """Return the forms that were made by the same recipe of the same source, text and seed, with the same versions."""
    then = {_made_of(r): r for r in before if r.problem is None}
    out = []
    for r in now:
        earlier = then.get(_made_of(r)) if r.problem is None else None
        if earlier is None or None in _made_of(r) or r.weights_sha256 is None or earlier.weights_sha256 is None:
            continue
        out.append(Requantised(r.unit, earlier.weights_sha256, r.weights_sha256))
    return out


def _made_of(r: Quantization) -> tuple[str | int | None, ...]:
    # A scheme without calibration has no hash of one.
    text = r.calibration_sha256 or "none"
    asked = r.calibration_samples or 0, r.calibration_max_length or 0, r.seed or 0
    return r.unit, r.source_sha256, r.recipe_sha256, text, *asked, r.tool_version, r.device


def _pairs(now: Sequence[R], before: Sequence[R], item: Callable[[R], str]) -> Iterator[tuple[str, list[tuple[R, R]]]]:
    """Yield, per unit, the rows of both with the same item, weights and key."""
    here, there = _first_of_each(now, item), _first_of_each(before, item)
    for unit in sorted(here.keys() & there.keys()):
        pairs = []
        for name, row in sorted(here[unit].items()):
            other = there[unit].get(name)
            if other and (row.weights_sha256, row.comparability) == (other.weights_sha256, other.comparability):
                pairs.append((row, other))
        if pairs:
            yield unit, pairs


def _first_of_each(rows: Sequence[R], item: Callable[[R], str]) -> Mapping[str, Mapping[str, R]]:
    out: dict[str, dict[str, R]] = {}
    for row in sorted(rows, key=lambda r: r.launch):
        out.setdefault(row.unit, {}).setdefault(item(row), row)
    return out


def _vector(raw: str) -> list[float]:
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError):
        return []
    return [x for v in listing(value) if (x := real(v)) is not None]


def _cosine(a: Sequence[float], b: Sequence[float]) -> float:
    """Return the cosine of two vectors; -1, the least there is, where they have no angle."""
    if len(a) != len(b) or not a:
        return -1.0
    # Scaled first: squares of very large or small numbers would leave the range of a double.
    high, low = max(map(abs, a)), max(map(abs, b))
    if not high or not low:
        return -1.0
    left, right = [x / high for x in a], [x / low for x in b]
    length = math.sqrt(math.fsum(x * x for x in left)) * math.sqrt(math.fsum(x * x for x in right))
    return max(-1.0, min(1.0, math.fsum(x * y for x, y in zip(left, right, strict=True)) / length))
