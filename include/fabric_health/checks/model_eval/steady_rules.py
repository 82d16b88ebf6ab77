"""Rules on answers of several launches of one run: started anew, a server must answer the same."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

from fabric_health.checks.check import RowSet
from fabric_health.checks.model_eval.drift import COSINE_MIN, LOGPROB_TOLERANCE, Drift, drifted, moved
from fabric_health.checks.model_eval.rules import deviation
from fabric_health.checks.model_eval.tables import Fingerprint, ModelEmbedding
from fabric_health.datasets.tables import Finding, Severity

R = TypeVar("R", Fingerprint, ModelEmbedding)
_SOURCE = "ours: greedy decoding of the same weights by the same kernels is deterministic"


def steady_findings(rows: RowSet) -> Iterator[Finding]:
    """Yield a finding for every form that two launches of the run answered otherwise."""
    for unit, launches in _by_launch(rows.of(Fingerprint)).items():
        first, *others = launches.items()
        for name, of in others:
            found = drifted(of, first[1])
            if found and found[0].is_drift:
                yield _other_answers(unit, found[0], first[0], name)
                break
    for unit, vectors in _by_launch(rows.of(ModelEmbedding)).items():
        (start, before), *more = vectors.items()
        for name, now in more:
            apart = moved(now, before)
            if apart and apart[0].is_moved:
                yield deviation(
                    "vectors_deterministic",
                    unit,
                    "cosine",
                    Severity.WARNING,
                    f"Launch {name} gives {unit} other vectors than {start}: text {apart[0].text}, cosine "
                    f"{apart[0].cosine:.6f}",
                    expected=f">= {COSINE_MIN:g}",
                    actual=f"{apart[0].cosine:.6f}",
                    action=_ACTION,
                    source="ours: other rounding in 16 bits stays above 0.9999",
                    launch=name,
                )
                break


_ACTION = (
    "Where the launches ran on different nodes, compare these: one computes otherwise. On one node, look for kernels "
    "that are not deterministic, and for ECC and Xid findings."
)


def _other_answers(unit: str, found: Drift, first: str, name: str) -> Finding:
    if not found.differing:
        return deviation(
            "likelihoods_deterministic",
            unit,
            "logprob",
            Severity.INFO,
            f"Launch {name} gives the same answers of {unit} as {first} with other likelihoods: up to "
            f"{found.largest_move:.2g} nats a token",
            expected=f"<= {LOGPROB_TOLERANCE:g} nats a token",
            actual=f"{found.largest_move:.2g} nats a token",
            action=_ACTION,
            source="ours: other orders of 16-bit sums stay below it",
            launch=name,
        )
    now, was = ("the end" if t is None else f"token {t}" for t in (found.token_now, found.token_before))
    return deviation(
        "answers_deterministic",
        unit,
        "greedy_tokens",
        Severity.WARNING,
        f"Launch {name} gives {unit} other answers than {first} with the same weights and flags: "
        f"{found.differing} of {found.prompts} prompts; prompt {found.prompt} has {now} "
        f"at position {found.position}, not {was}",
        expected=f"{found.prompts} equal answers",
        actual=f"{found.prompts - found.differing} equal answers",
        action=_ACTION,
        source=_SOURCE,
        launch=name,
    )


def _by_launch(rows: Sequence[R]) -> Mapping[str, dict[str, list[R]]]:
    """Return rows by unit and launch, both in order."""
    out: dict[str, dict[str, list[R]]] = defaultdict(dict)
    for row in sorted(rows, key=lambda r: (r.unit, r.launch)):
        out[row.unit].setdefault(row.launch, []).append(row)
    return out
