"""Tables of verdicts: what a comparison said, which change explains it, and which runs were accepted as baselines."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from fabric_health.datasets.contracts import Row, column, optional


@dataclass(frozen=True)
class Verdict(Row):
    TABLE: ClassVar[str] = "verdicts"
    KEY: ClassVar[tuple[str, ...]] = ("run", "against", "subject", "metric", "comparability")
    DESCRIPTION: ClassVar[str] = (
        "What a comparison with earlier runs says of a unit, of all units together, or of the run as a whole."
    )

    against: str = column(
        "run that it was compared with; `history` for the last comparable runs; `base` for a quantised model beside "
        "its base in the same run"
    )
    subject: str = column("unit; `fleet`, `touched` or `controls` for units together; `run` for the whole")
    subject_kind: str = column("kind of the unit; `set` for units together, `run` for the whole")
    check: str = column("check that measured; empty for the whole")
    metric: str = column(
        "metric of view `measurements`; of what a model answered `accuracy`, `perplexity`, `same_answers` or "
        "`same_vectors`; empty for the whole"
    )
    comparability: str = column("key that all values compared share; empty for the whole")
    outcome: str = column("`PASS`, `REGRESSED`, `IMPROVED`, `INCONCLUSIVE` or `NOT_COMPARABLE`")
    layer: str = column("`peers`, `paired`, `history`, `pooled`, `change_point`, ...; empty for the whole")
    reason: str = column("why, in words")
    settle: str | None = optional("what would settle it, where it is inconclusive")
    role: str | None = optional("`touched` by the change, `control`, or null where no change was declared")
    loss: float | None = optional("share of performance lost; negative when faster", unit="1", maximum=1)
    loss_low: float | None = optional("lower end of the interval of the loss", unit="1", maximum=1)
    loss_high: float | None = optional("upper end of the interval of the loss", unit="1", maximum=1)
    confidence: float | None = optional("confidence of the interval", unit="1", minimum=0, maximum=1)
    margin: float | None = optional("smallest loss that matters", unit="1", minimum=0, maximum=1)
    p_value: float | None = optional("one-sided, for a loss, before correction", unit="1", minimum=0, maximum=1)
    p_adjusted: float | None = optional("corrected for everything looked at", unit="1", minimum=0, maximum=1)
    detectable_loss: float | None = optional("loss that such data show with 80 % probability", unit="1", minimum=0)
    value_before: float | None = optional("median before, in the metric's own unit of measure")
    value_after: float | None = optional("median now, in the metric's own unit of measure")
    unit_of_measure: str | None = optional("unit of measure of both values")
    units: int | None = optional("units that are the samples of the comparison", minimum=0)
    launches_before: int | None = optional("launches before, of a unit", minimum=0)
    launches_after: int | None = optional("launches now, of a unit", minimum=0)
    runs_before: int | None = optional("earlier runs that were used", minimum=0)
    compared_with: str | None = optional("of the whole: what it was compared with and how that was chosen, in words")
    explanation: str | None = optional(
        "of the whole: which recorded change fits what got slower, what speaks against it, and what would tell several "
        "apart"
    )


@dataclass(frozen=True)
class Attribution(Row):
    TABLE: ClassVar[str] = "attributions"
    KEY: ClassVar[tuple[str, ...]] = ("run", "against", "rank")
    DESCRIPTION: ClassVar[str] = (
        "Which recorded changes separate the units that moved from those that did not, best first, with what speaks "
        "against each."
    )

    against: str = column("run that it was compared with, or `history`")
    rank: int = column("1 is the change that separates best", minimum=1)
    attribute: str = column("fact or config line that changed")
    changed_units: str = column("units that have the change, as ranges")
    moved_with: int = column("units that moved and have the change", minimum=0)
    moved_without: int = column("units that moved without it: evidence against", minimum=0)
    unmoved_with: int = column("units that have it and did not move: evidence against", minimum=0)
    unmoved_without: int = column("units that neither have it nor moved", minimum=0)
    score: float = column("how well it separates; larger is better (log-likelihood ratio)", unit="1")
    summary: str = column("one sentence for a person")
    before: str | None = optional("value before; null when there was none")
    after: str | None = optional("value now; null when there is none")
    p_value: float | None = optional("Fisher's exact test, one-sided", unit="1", minimum=0, maximum=1)
    inseparable_from: str | None = optional("changes on the same units, that these data cannot tell apart from it")


@dataclass(frozen=True)
class Baseline(Row):
    TABLE: ClassVar[str] = "baselines"
    KEY: ClassVar[tuple[str, ...]] = ("run", "accepted_at")
    DESCRIPTION: ClassVar[str] = "Runs that somebody accepted as what is normal, with who, when and why."

    accepted_at: datetime = column("when it was accepted, UTC")
    accepted_by: str = column("who accepted it")
    reason: str = column("why")
    resets_history: bool = column("whether earlier runs no longer count as history: a change of level was accepted")
    pinned_as: str | None = optional("name under which the run is pinned; null for a plain acceptance")
