"""What models answered, from the tables of a run and of those before it: through the store, as the stage compares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import fabric_health
from fabric_health import baselines
from fabric_health.answered import CHECK, findings
from fabric_health.answered_before import Answers, compare_answers
from fabric_health.checks.model_eval.tables import Fingerprint, ModelEmbedding, PerItem, Quantization
from fabric_health.datasets import landing
from fabric_health.datasets.contracts import Row
from fabric_health.datasets.run import RunKey, run_name
from fabric_health.datasets.store import ObjectStore
from fabric_health.datasets.tables import Run, Severity
from fabric_health.site import Site, load_site
from fabric_health.verdict.outcome import Outcome

LAB = Path(fabric_health.__file__).parents[1] / "sites" / "lab.yaml"
START = datetime(2026, 11, 2, 3, tzinfo=UTC)
TABLES = (PerItem, Fingerprint, ModelEmbedding, Quantization)
BASE, W8, KEY = "tiny-qwen3", "tiny-qwen3/w8a8-gptq", "model=tiny-qwen3;revision=abc;scheme=base;version=1"
HASH, OTHER = "a" * 64, "b" * 64


@pytest.fixture(scope="module")
def site() -> Site:
    return load_site(LAB)


def key(site: Site, week: int) -> RunKey:
    at = START + timedelta(weeks=week)
    return RunKey(site.name, run_name("weekly", str(week), at), at, site.origin)


def land(store: ObjectStore, site: Site, week: int, rows: Sequence[Row]) -> None:
    of = key(site, week)
    concluded = Run("weekly", "x", of.started_at, CHECK, 1, 0, "HEALTHY", "nothing", 1.0, 0, 0, 1, 0, "0" * 64, "1")
    landing.land(store, of, CHECK, [(r, None) for r in rows], TABLES)
    landing.land(store, of, "run", [(concluded, None)], (Run,))


def compared(store: ObjectStore, site: Site, week: int) -> Answers:
    of = key(site, week)
    against = baselines.reference(store, site.name, checks=(CHECK,), before=of.started_at)
    return compare_answers(store, site, of, against)


ITEMS = [PerItem("s-1", BASE, "continuation", str(i), f"{KEY};task=continuation", correct=i < 120) for i in range(200)]
SAID = Fingerprint("s-1", BASE, "p", HASH, "1 2 3", HASH, f"{KEY};task=fingerprint", -1.5)
POINTS = ModelEmbedding("e-1", "tiny-embed", "t", 2, "[1,0]", HASH, "model=tiny-embed;task=embeddings")
MADE = Quantization(
    "q-1", BASE, "w8a8-gptq", W8, source_sha256=HASH, weights_sha256=HASH, recipe_sha256=HASH, tool_version="1",
    device="cpu",
)  # fmt: skip
ALL = (*ITEMS, SAID, POINTS, MADE)


def test_a_run_that_answers_as_before_passes_and_a_first_one_is_only_new(store: ObjectStore, site: Site) -> None:
    land(store, site, 0, ALL)
    first = compared(store, site, 0)
    assert (first.with_before, [o.closest for o in first.incomparable]) == ((), [None])
    land(store, site, 1, ALL)
    again = compared(store, site, 1)
    assert [(x.judgement.metric, x.judgement.outcome) for x in again.with_before] == [
        ("accuracy", Outcome.PASS), ("same_answers", Outcome.PASS), ("same_vectors", Outcome.PASS),
    ]  # fmt: skip
    assert (again.incomparable, again.remade) == ((), ())


def test_other_tokens_other_vectors_and_other_weights_are_found(store: ObjectStore, site: Site) -> None:
    land(store, site, 0, ALL)
    changed = replace(SAID, tokens="1 2"), replace(POINTS, vector="[0,1]"), replace(MADE, weights_sha256=OTHER)
    land(store, site, 1, (*ITEMS, *changed))
    got = compared(store, site, 1)
    found = findings(got.with_before, got.with_base, "the last run")
    assert [(f.unit, f.metric, f.severity) for f in found] == [
        (BASE, "same_answers", Severity.CRITICAL), ("tiny-embed", "same_vectors", Severity.CRITICAL),
    ]  # fmt: skip
    assert "first prompt p, token 3: 3 became the end" in found[0].summary
    assert [r.unit for r in got.remade] == [W8]


def test_equal_tokens_that_became_less_likely_are_a_drift_too(store: ObjectStore, site: Site) -> None:
    """Three tokens: a thousandth of a nat each is what other rounding explains."""
    land(store, site, 0, (SAID,))
    land(store, site, 1, (replace(SAID, logprob=-1.502),))
    land(store, site, 2, (replace(SAID, logprob=-1.51),))
    (rounding,) = compared(store, site, 1).with_before
    assert rounding.judgement.outcome is Outcome.PASS
    drift = compared(store, site, 2).with_before
    assert [x.judgement.outcome for x in drift] == [Outcome.REGRESSED]
    (found,) = findings(drift, (), "the last run")
    assert (found.rule, found.severity) == ("same_answers_as_before", Severity.WARNING)
    assert "same tokens" in found.summary


def test_requantised_weights_are_held_against_the_reference_alone(store: ObjectStore, site: Site) -> None:
    """Some run long ago made others: that was told then."""
    land(store, site, 0, (replace(MADE, weights_sha256=OTHER),))
    land(store, site, 1, (MADE,))
    land(store, site, 2, (MADE,))
    assert compared(store, site, 2).remade == ()


def test_what_the_reference_did_not_evaluate_is_held_against_an_older_run(store: ObjectStore, site: Site) -> None:
    land(store, site, 0, ALL)
    land(store, site, 1, (MADE,))
    land(store, site, 2, [replace(r, correct=False) for r in ITEMS])
    (judged,) = compared(store, site, 2).with_before
    assert judged.judgement.outcome is Outcome.REGRESSED
    assert judged.measured.panel.runs[0] == key(site, 0).run
