"""Faults planted in models and in elastic training, found by the chain: real servers, real training.

Minutes for each; not part of the usual tests: ``make soak``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from fabric_health import pipeline
from fabric_health.datasets.tables import Finding
from fabric_health.lab import lab
from fabric_health.landed import Landed

pytestmark = [pytest.mark.e2e, pytest.mark.soak, pytest.mark.timeout(3600)]

ROOT = Path(__file__).parents[2]
MODELS, ELASTIC = "model_eval", "elastic_training"
BASE, W8, W4, EMBED = "tiny-qwen3", "tiny-qwen3/w8a8-gptq", "tiny-qwen3/w4a16-gptq", "tiny-embed"


@pytest.fixture
def run(healthy, monkeypatch, with_tools) -> Callable[..., Landed]:
    """Make whole runs of one check on one bucket: small models and loads, the lab's own programs."""
    with_tools(healthy.home, "llm-compressor", "vllm", "dlrover")
    monkeypatch.setenv("FABRIC_HEALTH_HOME", str(healthy.home))
    chain = healthy.chain()
    held = chain.rooms.site
    model = {"name": BASE, "schemes": ["w8a8-gptq", "w4a16-gptq"]}
    embedding = next(m for m in held.checks[MODELS]["models"] if m["name"] == EMBED)
    small = {
        **held.checks[MODELS],
        "models": [model, embedding],
        "serving": {**held.checks[MODELS]["serving"], "concurrency": [2], "prompts": 8, "repeats": 1},
        "quality": {"windows": 8, "window_tokens": 256, "greedy_tokens": 24, "items": 20},
        "built_in": {"steps": 200},
    }
    jobs = {**held.jobs, "tools": str(ROOT / "include" / "tools")}
    elastic = {**held.checks[ELASTIC], "faults": ["kill-rank"], "steps": 120, "stall_limit_s": 60}

    def make(check: str, **changed: Any) -> Landed:
        checks = {MODELS: {**small, **changed}, ELASTIC: {**elastic, **changed}}
        chain.rooms = replace(chain.rooms, site=replace(held, jobs=jobs, checks={check: checks[check]}))
        ref = chain.conclude([check], scope="gpu-001")
        return Landed(chain.rooms.store, pipeline.load_run(chain.rooms, ref))

    return make


def by_rule(landed: Landed) -> dict[tuple[str, str], Finding]:
    return {(f.unit, f.rule): f for f in landed.of(Finding)}


def left(home: Path) -> list[str]:
    """Return processes that jobs of ``home`` left."""
    jobs = str(home / "jobs")
    return [str(p) for p in psutil.process_iter() if any(jobs in word for word in _words(p))]


def _words(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def test_each_fault_of_a_served_model_is_found_on_its_form(run, healthy) -> None:
    before = run(MODELS, models=[{"name": BASE, "schemes": [], "serve": ["base"]}])
    assert [f.summary for f in before.of(Finding) if f.severity != "info"] == []
    for kind, unit in (("flipped-bit", BASE), ("corrupt-shard", W8), ("server-errors", W4), ("wrong-model", EMBED)):
        lab.add_fault(healthy.home, kind, unit, None)
    after = run(MODELS)
    found = by_rule(after)
    told = [(f.unit, f.rule, f.severity, f.summary) for f in after.of(Finding)]
    drift = found.get((BASE, "same_answers_as_before"))
    assert drift is not None, told
    assert drift.severity in ("critical", "warning")
    assert "token" in drift.summary
    corrupt = [f for (unit, rule), f in found.items() if unit == W8 and rule.startswith("weights_")]
    assert {f.severity for f in corrupt} == {"critical"}
    assert found[W4, "requests_complete"].severity == "critical"
    wrong = found[EMBED, "served_as_asked"]
    assert wrong.severity == "critical"
    blamed = {f.unit for f in after.of(Finding) if f.severity != "info"}
    assert blamed == {BASE, W8, W4, EMBED}, told
    whole = after.verdict()
    assert whole is not None
    assert whole.outcome == "REGRESSED"
    assert left(healthy.home) == []


@pytest.mark.parametrize(
    ("kind", "rule"), [("never-resumes", "training_resumes"), ("lost-checkpoints", "resumes_from_checkpoint")]
)
def test_training_that_does_not_come_back_as_it_should_is_found(run, healthy, kind: str, rule: str) -> None:
    lab.add_fault(healthy.home, kind, "elastic", None)
    found = by_rule(run(ELASTIC, node_check=False))
    assert any(r == rule for _, r in found), sorted(found)
    assert left(healthy.home) == []


def test_a_straggler_of_the_node_check_is_named(run, healthy) -> None:
    lab.add_fault(healthy.home, "slow-node-check", "elastic/agent-3", None)
    found = by_rule(run(ELASTIC))
    stragglers = [unit for unit, rule in found if rule == "no_stragglers"]
    assert stragglers == ["elastic/agent-3"], sorted(found)
