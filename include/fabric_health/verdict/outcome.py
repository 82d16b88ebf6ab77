"""The words of a verdict, and what every layer of judging returns."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Outcome(StrEnum):
    """The judgement on one comparison.

    ``PASS``: a loss of the margin or more is ruled out, which is more than "no difference found". ``REGRESSED`` and
    ``IMPROVED``: the difference is real and of practical size. ``INCONCLUSIVE``: neither, with the reason and what
    would settle it. ``NOT_COMPARABLE``: what was measured is not the same thing, with the fields that differ.
    """

    PASS = "PASS"  # noqa: S105 - a verdict, no password
    REGRESSED = "REGRESSED"
    IMPROVED = "IMPROVED"
    INCONCLUSIVE = "INCONCLUSIVE"
    NOT_COMPARABLE = "NOT_COMPARABLE"


class Layer(StrEnum):
    """What a judgement rests on."""

    FLOOR = "floor"
    PEERS = "peers"
    PAIRED = "paired"
    HISTORY = "history"
    POOLED = "pooled"
    CHANGE_POINT = "change_point"
    QUALITY = "quality"


@dataclass(frozen=True)
class Metric:
    """A metric that is judged.

    ``name`` is that of the view ``measurements``, e.g. ``busbw_gbps``. ``margin`` is the smallest loss that matters
    (fraction, 0.03 is 3 %): the practical gap and the non-inferiority margin.
    """

    name: str
    higher_is_better: bool
    margin: float

    def __post_init__(self) -> None:
        if not 0 < self.margin < 1:
            raise ValueError(f"margin of {self.name} is {self.margin}; expected a fraction between 0 and 1")


@dataclass(frozen=True)
class Judgement:
    """What one layer says of one subject and one metric.

    Losses are shares of performance (0.05: 5 % slower than before; negative: faster), for metrics where lower is
    better too: a latency that doubles is a loss of 0.5. ``loss_low`` and ``loss_high`` bound it at ``confidence``.
    ``p_value`` is one-sided for "worse", before correction; ``p_adjusted`` after it. ``detectable_loss`` is the loss
    that data like these show with 80 % probability. ``reason`` says in words why this outcome; ``settle``, what would
    turn INCONCLUSIVE into an answer. ``units`` counts the samples: nodes, rails or pairs, never iterations.
    """

    subject: str
    subject_kind: str
    metric: str
    comparability: str
    layer: Layer
    outcome: Outcome
    reason: str
    margin: float
    confidence: float = 0.95
    loss: float | None = None
    loss_low: float | None = None
    loss_high: float | None = None
    p_value: float | None = None
    p_adjusted: float | None = None
    detectable_loss: float | None = None
    units: int = 0
    launches_before: int = 0
    launches_after: int = 0
    runs_before: int = 0
    settle: str | None = None
