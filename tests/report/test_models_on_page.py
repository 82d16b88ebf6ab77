"""Models and elastic training on the page: forms beside their base, faults with what they cost, no value not seen."""

from __future__ import annotations

import dataclasses
from datetime import timedelta

import pytest
from strict_page import read

from fabric_health.checks.elastic_training.tables import ElasticEvent, ElasticNodeCheck, ElasticRecovery, ElasticRun
from fabric_health.checks.model_eval.tables import (
    ModelBuild,
    ModelLaunchProblem,
    ModelQuality,
    ModelServer,
    ModelServing,
    Quantization,
)
from fabric_health.datasets.verdict_tables import Verdict
from fabric_health.history import Comparable
from fabric_health.report import elastic, elastic_plot, models, models_plot, page
from fabric_health.report.data import ElasticResults, ModelResults, ReportData, VerdictResults

MODEL, W8 = "tiny", "tiny/w8a8-gptq"


def quality(unit: str, task: str, metric: str, value: float) -> ModelQuality:
    key = f"model=tiny;scheme={unit.partition('/')[2] or 'base'};task={task};items=200"
    return ModelQuality(f"serve-{unit}-1".replace("/", "-"), unit, task, metric, value, key, 0.03, 200)


def serving(unit: str, concurrency: int, tokens: float, repeat: int = 1, problem: str | None = None) -> ModelServing:
    return ModelServing(
        launch=f"serve-{unit}-1".replace("/", "-"),
        unit=unit,
        client="vllm bench",
        concurrency=concurrency,
        repeat=repeat,
        comparability=f"unit={unit};concurrency={concurrency}",
        output_tokens_per_s=None if problem else tokens,
        ttft_p50_ms=None if problem else 20.0,
        problem=problem,
    )


@pytest.fixture
def with_models(healthy: ReportData) -> ReportData:
    """A base and two quantised forms, one of which was not served, one worse than its base; a refused bench."""
    worse = Verdict(
        against="base",
        subject=W8,
        subject_kind="model",
        check="model_eval",
        metric="accuracy",
        comparability="model=tiny;scheme=w8a8-gptq;task=continuation;items=200",
        outcome="REGRESSED",
        layer="quality",
        reason="Of 200 items 30 are no longer right <b>",
        loss=0.12,
    )
    found = ModelResults(
        builds=(ModelBuild("prepare", MODEL, parameters=656_000, bytes=1 << 20, corpus="docstrings, PSF-2.0"),),
        quantizations=(
            Quantization("q1", MODEL, "w8a8-gptq", W8, bytes=700_000, size_ratio=0.67, duration_s=12.5),
            Quantization("q2", MODEL, "w4a16-gptq", "tiny/w4a16-gptq", bytes=500_000, size_ratio=0.48),
        ),
        servers=(ModelServer("serve-tiny-1", MODEL, version="0.32.0", start_s=28.0, peak_memory_mib=2900.0),),
        serving=(
            serving(MODEL, 4, 100.0),
            serving(MODEL, 4, 120.0, repeat=2),
            serving(W8, 4, 90.0),
            serving(W8, 1, 0.0, problem="3 of 24 requests failed"),
        ),
        quality=(
            quality(MODEL, "continuation", "acc,none", 0.62),
            quality(MODEL, "perplexity", "perplexity", 36.4),
            quality(W8, "continuation", "acc,none", 0.5),
            quality(W8, "perplexity", "perplexity", 39.9),
        ),
        problems=(ModelLaunchProblem("serve-w8-1", W8, "completed", "bench-c1-r1", True, "3 of 24 requests failed"),),
        origins={},
        before=Comparable((serving(MODEL, 4, 220.0),)),
    )
    return dataclasses.replace(healthy, models=found, verdict=VerdictResults((worse,)))


def test_a_form_stands_beside_its_base(with_models: ReportData) -> None:
    (model,) = models.models(with_models)
    assert [f.scheme for f in model.forms] == ["base", "w4a16-gptq", "w8a8-gptq"]
    base, unserved, worse = model.forms
    assert base.fastest is not None
    assert base.fastest.tokens_per_s == 110.0
    assert base.fastest.change == pytest.approx(-0.5)
    assert unserved.quality == ()
    continuation = worse.of("continuation")
    assert continuation is not None
    assert continuation.beside is not None
    assert [s.concurrency for s in worse.speed] == [4], "what was refused is no speed"
    assert models_plot.quality_against_cost(model).count("<svg") == 1


def test_the_page_tells_of_models(with_models: ReportData) -> None:
    pages = page.render(with_models)
    read(pages)
    text = pages["index.html"].decode()
    assert 'href="#models"' in text
    assert "3 of 24 requests failed" in text
    assert "regressed" in text
    assert "no longer right &lt;b&gt;" in text
    assert "656,000 parameters" in text


def test_a_single_form_has_no_plot(with_models: ReportData) -> None:
    (model,) = models.models(with_models)
    assert models_plot.quality_against_cost(dataclasses.replace(model, forms=model.forms[:1])) == ""


@pytest.fixture
def with_elastic(healthy: ReportData) -> ReportData:
    """A run that lost a rank and came back, and then lost an agent for good; one node is a straggler."""
    start = healthy.record.started_at

    def at(s: float) -> dict[str, object]:
        return {"event_at": start + timedelta(seconds=s)}

    run = ElasticRun(
        launch="elastic-1",
        backend="local",
        workers=2,
        min_workers=1,
        max_restarts=3,
        final_status="hung",
        restarts=1,
        comparability="",
        checkpoint_every=5,
        started_at=start,
        start_s=8.0,
        steps=60,
        steps_asked=200,
    )
    events = [
        ElasticEvent("elastic-1", i, "training", "step", step=10 * i, world_size=2, **at(8 + i)) for i in range(7)
    ]
    recoveries = (
        ElasticRecovery(
            "elastic-1", 1, "kill-rank", start + timedelta(seconds=12), rank=1, resumed_s=3.5, lost_steps=3
        ),
        ElasticRecovery("elastic-1", 2, "lose-agent", start + timedelta(seconds=15), problem="no step came after it"),
    )
    checks = (
        ElasticNodeCheck("elastic-1", 0, "gpu-001", 20.0, passed=True, straggler=False),
        ElasticNodeCheck("elastic-1", 0, "gpu-002", 150.0, passed=True, straggler=True),
    )
    return dataclasses.replace(healthy, elastic=ElasticResults((run,), recoveries, tuple(events), checks, {}))


def test_faults_and_what_they_cost(with_elastic: ReportData) -> None:
    (launch,) = elastic.launches(with_elastic)
    assert [(m.at_s, m.until_s) for m in launch.marks] == [(12.0, 15.5), (15.0, None)]
    assert [c.node for c in launch.checks] == ["gpu-002", "gpu-001"]
    assert "a rank killed" in elastic_plot.timeline(launch)
    pages = page.render(with_elastic)
    read(pages)
    text = pages["index.html"].decode()
    assert "no step came after it" in text
    assert "straggler" in text
    assert ">hung<" in text


def test_no_steps_no_timeline(with_elastic: ReportData) -> None:
    (launch,) = elastic.launches(with_elastic)
    assert elastic_plot.timeline(dataclasses.replace(launch, steps=())) == ""
