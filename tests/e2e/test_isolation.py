"""A run of the lab's fleet with a fault that no audit sees: the chain names the unit, and nothing else."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from fabric_health import pipeline
from fabric_health.checks.collectives.tables import Isolation
from fabric_health.datasets.store import ObjectStore
from fabric_health.datasets.tables import Finding
from fabric_health.history import load_part
from fabric_health.isolation_cases import PART
from fabric_health.jobs import backend
from fabric_health.lab import lab
from fabric_health.landed import Landed

pytestmark = pytest.mark.e2e

CHECK = "collectives"
# The run's name seeds the noise of the fleet, and is the test's here: the same numbers every time.
START = datetime(2026, 11, 30, 3, tzinfo=UTC)


@pytest.fixture
def chain(healthy, monkeypatch, request):
    """A chain whose site runs the lab's fleet alone, two launches for all nodes and two for all rails."""
    monkeypatch.setenv("FABRIC_HEALTH_HOME", str(healthy.home))
    made = healthy.chain()
    nccl = {**made.rooms.site.checks[CHECK]["nccl"], "groups": ["node", "rail"], "iterations": 20}
    checks = {CHECK: {"engines": ["lab_fleet"], "launches": 2, "nccl": nccl}}
    made.rooms = replace(made.rooms, site=replace(made.rooms.site, checks=checks))
    made.name = request.node.name
    return made


def run(chain) -> str:
    """Make the run's launches, judge them, isolate and explain."""
    ref = pipeline.open_run(
        chain.rooms, dag="e2e", scheduler_run_id=chain.name, started_at=START, checks=[CHECK], scope="gpu-[001-016]"
    )
    pipeline.collect(chain.rooms, ref, CHECK)
    pipeline.land(chain.rooms, ref, CHECK)
    pipeline.judge(chain.rooms, ref, CHECK)
    pipeline.isolate(chain.rooms, ref)
    pipeline.compare(chain.rooms, ref)
    pipeline.explain(chain.rooms, ref)
    return ref


def isolations(chain, ref: str) -> list[Isolation]:
    return load_part(chain.rooms.store, Isolation, pipeline.load_run(chain.rooms, ref).key, PART)


def to_look_at(chain, ref: str) -> list[Finding]:
    return [f for f in chain.findings(ref) if f.severity != "info" and f.explained_by is None]


def test_a_slow_rail_is_isolated_even_by_a_task_that_was_killed_and_asks_nothing_twice(
    chain, healthy, monkeypatch
) -> None:
    lab.add_fault(healthy.home, "slow-rail", "gpu-003/mlx5_2", "20")
    store, put, kept = chain.rooms.store, ObjectStore.put, []

    def die(self: ObjectStore, key: str, data: bytes, content_type: str | None = None) -> None:
        if "/isolate-" in key:
            if len(kept) == 6:
                raise KeyboardInterrupt
            kept.append(key)
        put(self, key, data, content_type)

    monkeypatch.setattr(ObjectStore, "put", die)
    with pytest.raises(KeyboardInterrupt):
        run(chain)
    monkeypatch.setattr(ObjectStore, "put", put)
    (ref,) = [k for k in store.list("runs/") if k.endswith("/run.json")]
    pipeline.explain(chain.rooms, ref)
    assert [f.metric for f in to_look_at(chain, ref) if f.rule == "isolated"] == ["finishes"]

    pipeline.isolate(chain.rooms, ref)
    pipeline.compare(chain.rooms, ref)
    pipeline.explain(chain.rooms, ref)
    (named,) = to_look_at(chain, ref)
    assert (named.unit, named.rule, named.severity) == ("gpu-003/mlx5_2", "isolated", "critical")
    assert named.first_seen == START
    assert [f.explained_by for f in chain.findings(ref) if f.unit == "rail-2"] == [named.finding]
    (row,) = isolations(chain, ref)
    assert (row.unit, row.rail, row.extent) == ("gpu-003/mlx5_2", 2, "rail")
    assert row.loss is not None
    assert abs(row.loss - 0.20) < 0.04
    evidence = [k for k in store.list("evidence/") if "/isolate-" in k]
    assert set(kept) <= set(evidence)
    assert len({k.split("/")[-2] for k in evidence}) == len(evidence) == row.tests + row.references <= 30

    def forbidden(*_: object) -> None:
        raise AssertionError("a launch was made again")

    before = {k: store.get(k) for k in store.list("")}
    monkeypatch.setattr(backend, "open_backend", forbidden)
    pipeline.isolate(chain.rooms, ref)
    pipeline.compare(chain.rooms, ref)
    pipeline.explain(chain.rooms, ref)
    assert {k: store.get(k) for k in store.list("")} == before


def test_a_slow_node_is_isolated(chain, healthy) -> None:
    lab.add_fault(healthy.home, "slow-node", "gpu-005", "15")
    ref = run(chain)
    (named,) = to_look_at(chain, ref)
    assert (named.unit, named.unit_kind, named.rule) == ("gpu-005", "node", "isolated")
    (row,) = isolations(chain, ref)
    assert (row.extent, row.rail) == ("whole", None)


def test_a_bad_leaf_is_isolated_to_the_switch(chain, healthy) -> None:
    lab.add_fault(healthy.home, "bad-leaf", "leaf-3", "15")
    ref = run(chain)
    (named,) = to_look_at(chain, ref)
    assert (named.unit, named.unit_kind, named.rule) == ("leaf-3", "switch", "isolated")
    assert [(r.rail, r.unit) for r in isolations(chain, ref)] == [(4, "leaf-3"), (5, "leaf-3")]


def test_a_healthy_fleet_is_not_looked_into(chain) -> None:
    ref = run(chain)
    assert to_look_at(chain, ref) == []
    assert isolations(chain, ref) == []
    assert [k for k in chain.rooms.store.list("evidence/") if "/isolate-" in k] == []
    document = pipeline.load_run(chain.rooms, ref)
    assert Landed(chain.rooms.store, document).counts()[Isolation.TABLE] == 0
    findings = ref.replace("run.json", f"{PART}.findings.json")
    assert json.loads(chain.rooms.store.get(findings)) == []
