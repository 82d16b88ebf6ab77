"""What a benchmark of a served model says, in one shape: the readers of both clients return it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

METRICS = ("ttft", "tpot", "itl", "e2el")


@dataclass(frozen=True)
class Times:
    """Times in ms."""

    mean: float | None = None
    p50: float | None = None
    p90: float | None = None
    p99: float | None = None


@dataclass(frozen=True)
class Bench:
    """One benchmark at one concurrency. Numbers are None where the layout does not say them.

    ``prompts`` are the requests that were to be made; None where a benchmark runs for a time. ``incomplete`` requests
    were cut by its end, which is no failure.
    """

    layout: str
    model: str | None = None
    completed: int | None = None
    failed: int | None = None
    incomplete: int | None = None
    prompts: int | None = None
    concurrency: int | None = None
    duration_s: float | None = None
    requests_per_s: float | None = None
    output_tokens_per_s: float | None = None
    total_tokens_per_s: float | None = None
    goodput_per_s: float | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    times: Mapping[str, Times] = field(default_factory=dict)
