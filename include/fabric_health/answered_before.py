"""The part of a comparison that is about models: what they answered in this run, and in the one it is held against.

Accuracy and likelihood are compared item by item, the fingerprint token by token. The same weights with the same flags,
software and device have to give the same answers: where they do not, hardware or driver computes otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from fabric_health import answered
from fabric_health.answered import CHECK, KIND, Said
from fabric_health.baselines import Reference
from fabric_health.checks.model_eval.drift import (
    LOGPROB_TOLERANCE,
    Drift,
    Moved,
    Requantised,
    drifted,
    moved,
    requantised,
)
from fabric_health.checks.model_eval.settings import settings
from fabric_health.checks.model_eval.tables import Fingerprint, ModelEmbedding, PerItem, Quantization
from fabric_health.compared import Judged
from fabric_health.datasets.reading import ConcludedRun
from fabric_health.datasets.run import RunKey
from fabric_health.datasets.store import ObjectStore
from fabric_health.history import load_part
from fabric_health.measured import Incomparable, Measured
from fabric_health.site import Site
from fabric_health.verdict.metrics import SAME_ANSWERS, SAME_VECTORS
from fabric_health.verdict.outcome import Judgement, Layer, Metric, Outcome
from fabric_health.verdict.panel import Panel, performance_of

BASE = "base"
R = TypeVar("R", Fingerprint, ModelEmbedding, Quantization)
D = TypeVar("D", Drift, Moved, Requantised)


@dataclass(frozen=True)
class Answers:
    """What comparing models gave: with an earlier run, and of quantised forms with their base in this run.

    ``remade``: forms that the same recipe and source gave other weights for.
    """

    with_before: tuple[Judged, ...] = ()
    with_base: tuple[Judged, ...] = ()
    incomparable: tuple[Incomparable, ...] = ()
    remade: tuple[Requantised, ...] = ()


@dataclass(frozen=True)
class _Run:
    """Rows of one run, read when they are asked for."""

    store: ObjectStore
    key: RunKey

    def said(self) -> Said:
        return answered.said(self.key.run, self.key.started_at, load_part(self.store, PerItem, self.key, CHECK))

    def fingerprints(self) -> list[Fingerprint]:
        return load_part(self.store, Fingerprint, self.key, CHECK)

    def quantizations(self) -> list[Quantization]:
        return load_part(self.store, Quantization, self.key, CHECK)

    def vectors(self) -> list[ModelEmbedding]:
        return load_part(self.store, ModelEmbedding, self.key, CHECK)


def compare_answers(store: ObjectStore, site: Site, key: RunKey, reference: Reference) -> Answers:
    """Compare what models answered in run ``key``. A run that evaluated no model gives nothing. Raises StoreError.

    Every form is held against the run that ``reference`` names, or else against the newest of its history that
    evaluated it in the same way.
    """
    now = _Run(store, key)
    said, prints, vectors, made = now.said(), now.fingerprints(), now.vectors(), now.quantizations()
    if not (said.of or prints or vectors or made):
        return Answers()
    earlier = [_Run(store, k) for k in _keys(site, key, reference)]
    before, odd = answered.with_before(said, (e.said() for e in earlier))
    before += [_same_answers(d, now.key, then) for d, then in _first(prints, earlier, _Run.fingerprints, drifted)]
    before += [_same_vectors(m, now.key, then) for m, then in _first(vectors, earlier, _Run.vectors, moved)]
    remade = tuple(r for r, _ in _first(made, earlier, _Run.quantizations, requantised) if r.is_other)
    wanted = settings(site)
    beside = tuple(answered.with_base(said, wanted.base_of, wanted.recovery_of))
    return Answers(tuple(before), beside, tuple(odd), remade)


def _keys(site: Site, key: RunKey, reference: Reference) -> list[RunKey]:
    """Return the runs that a run is held against, best first: the chosen one, then the others from the newest on."""
    held: list[ConcludedRun] = [*([reference.run] if reference.run else []), *reversed(reference.history)]
    return [RunKey(site.name, h.run, h.started_at, key.origin) for h in {h.run: h for h in held}.values()]


def _first(
    now: Sequence[R],
    earlier: Sequence[_Run],
    rows_of: Callable[[_Run], list[R]],
    rule: Callable[[Sequence[R], Sequence[R]], list[D]],
) -> Iterator[tuple[D, RunKey]]:
    """Yield what a rule says of every unit, by the first earlier run that it says anything of the unit with."""
    told: set[str] = set()
    units = {r.unit for r in now}
    for run in earlier:
        if told >= units:
            return
        for found in rule(now, rows_of(run)):
            if found.unit not in told:
                told.add(found.unit)
                yield found, run.key


def _same_answers(d: Drift, now: RunKey, then: RunKey) -> Judged:
    """Judge greedy answers: a pass is that every prompt gives the same tokens, each as likely as before."""
    outcome = Outcome.REGRESSED if d.is_drift else Outcome.PASS
    share = d.differing / d.prompts
    if d.differing:
        was, now_is = ("the end" if t is None else str(t) for t in (d.token_before, d.token_now))
        reason = (
            f"{d.differing} of {d.prompts} prompts give other tokens; first prompt {d.prompt}, token {d.position + 1}: "
            f"{was} became {now_is}."
        )
    else:
        reason = (
            f"All {d.prompts} prompts give the same tokens; their log-likelihood moved by {d.largest_move:.2g} nats a "
            f"token at most (other rounding explains {LOGPROB_TOLERANCE:g})."
        )
    return _judged(SAME_ANSWERS, d.unit, d.comparability, outcome, reason, share, d.prompts, now, then)


def _same_vectors(m: Moved, now: RunKey, then: RunKey) -> Judged:
    """Judge vectors of fixed texts by their cosine with the earlier ones."""
    outcome = Outcome.REGRESSED if m.is_moved else Outcome.PASS
    reason = f"The smallest cosine of {m.texts} texts with their earlier vectors is {m.cosine:.6f} (text {m.text})."
    return _judged(SAME_VECTORS, m.unit, m.comparability, outcome, reason, 1 - m.cosine, m.texts, now, then)


def _judged(
    metric: Metric,
    unit: str,
    key: str,
    outcome: Outcome,
    reason: str,
    loss: float,
    samples: int,
    now: RunKey,
    then: RunKey,
) -> Judged:
    judgement = Judgement(
        subject=unit,
        subject_kind=KIND,
        metric=metric.name,
        comparability=key,
        layer=Layer.QUALITY,
        outcome=outcome,
        reason=reason,
        margin=metric.margin,
        loss=loss,
        units=samples,
        launches_before=1,
        launches_after=1,
        runs_before=1,
    )
    values = np.array([1.0, 1.0 - loss])[:, None, None]
    runs, at = (then.run, now.run), (then.started_at, now.started_at)
    panel = Panel(metric, key, KIND, runs, at, (unit,), performance_of(metric, values))
    return Judged(judgement, Measured(panel, CHECK, "1", ""))
