"""A run of gloo in which one rank is really late: seen, isolated and named by the chain. And one in which none is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fabric_health import pipeline
from fabric_health.checks.collectives.tables import Collective, Isolation
from fabric_health.datasets.tables import Coverage
from fabric_health.errors import UsageError
from fabric_health.history import load_part
from fabric_health.isolation_cases import PART
from fabric_health.lab import lab

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).parents[2]
CHECK = "collectives"
START = datetime(2026, 11, 30, 3, tzinfo=UTC)
ABOUT_RANKS = ("ranks_as_fast_as_peers", "isolated")


@pytest.fixture
def run(healthy, monkeypatch, with_tools) -> Callable[..., tuple]:
    """Make runs of gloo alone, up to what is explained: ``launches`` small sweeps, and as many of three pairs."""
    with_tools(healthy.home, CHECK)
    monkeypatch.setenv("FABRIC_HEALTH_HOME", str(healthy.home))
    chain = healthy.chain()
    gloo = {**chain.rooms.site.checks[CHECK]["gloo"], "collectives": ["all_reduce"], "max_bytes": 65536}
    checks = {CHECK: {"engines": ["gloo"], "launches": 1, "gloo": gloo}}
    jobs = {**chain.rooms.site.jobs, "tools": str(ROOT / "include" / "tools")}
    chain.rooms = replace(chain.rooms, site=replace(chain.rooms.site, checks=checks, jobs=jobs))

    def make(name: str) -> tuple:
        ref = pipeline.open_run(
            chain.rooms, dag="e2e", scheduler_run_id=name, started_at=START, checks=[CHECK], scope="gpu-001"
        )
        pipeline.collect(chain.rooms, ref, CHECK)
        pipeline.land(chain.rooms, ref, CHECK)
        pipeline.judge(chain.rooms, ref, CHECK)
        pipeline.isolate(chain.rooms, ref)
        pipeline.explain(chain.rooms, ref)
        return chain, ref

    return make


def test_a_delayed_rank_is_seen_isolated_and_named(run, healthy) -> None:
    lab.add_fault(healthy.home, "delayed-rank", "localhost/rank-3")
    chain, ref = run("delayed")
    found = {f.rule: f for f in chain.findings(ref) if f.rule in ABOUT_RANKS}
    slow, named = found["ranks_as_fast_as_peers"], found["isolated"]
    assert (slow.unit, slow.explained_by) == ("ranks-2-3", named.finding)
    assert (named.unit, named.unit_kind, named.severity) == ("localhost/rank-3", "rank", "warning")
    assert (named.kind, named.explained_by) == ("deviation", None)
    key = pipeline.load_run(chain.rooms, ref).key
    (row,) = load_part(chain.rooms.store, Isolation, key, PART)
    assert (row.case, row.outcome, row.engine, row.unit, row.extent) == (
        "ranks",
        "blamed",
        "gloo",
        "localhost/rank-3",
        None,
    )
    assert row.loss is not None
    assert row.loss > 0.5
    assert "rank-2" in (row.partners or "").split(",")
    assert len((row.partners or "").split(",")) >= 2  # slow with its neighbour, and with another one as well
    # Two for the neighbours apart at least; more where other load on this machine makes launches slow.
    assert 5 <= row.tests <= 15
    assert f"{row.tests} tests in {row.rounds} rounds and {row.references} reference launches" in named.summary
    evidence = [k for k in chain.rooms.store.list("evidence/") if "/isolate-ranks-" in k]
    assert len(evidence) == row.tests + row.references
    pairs = {r.group: r for r in load_part(chain.rooms.store, Collective, key, CHECK) if r.group_kind == "ranks"}
    assert set(pairs) == {"ranks-0-1", "ranks-2-3", "ranks-4-5"}
    assert pairs["ranks-2-3"].time_us >= 2000  # the delay itself: it is no figure of a model


def test_no_rank_is_named_where_none_is_late(run) -> None:
    for number in range(3):
        chain, ref = run(f"healthy-{number}")
        assert [f.summary for f in chain.findings(ref) if f.rule in ABOUT_RANKS] == []
        assert {c.unit: c.state for c in chain.landed(ref).of(Coverage)} == {"localhost": "judged"}


def test_a_benchmark_is_not_launched_while_an_audit_has_not_finished(healthy) -> None:
    chain = healthy.chain()
    ref = chain.open(("driver_firmware", CHECK), "gpu-001")
    with pytest.raises(UsageError, match="nothing is launched: driver_firmware did not finish"):
        pipeline.collect(chain.rooms, ref, CHECK)
