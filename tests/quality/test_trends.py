"""Trends: the tables of many weeks together are whole, or what is wrong with them is named."""

from __future__ import annotations

import dataclasses
from datetime import timedelta

import pytest
from landed_samples import MONDAY, concluded_row, fact, run_key

from fabric_health.datasets import landing
from fabric_health.datasets.run import RunKey
from fabric_health.datasets.store import ObjectStore
from fabric_health.datasets.tables import Fact, Run
from fabric_health.quality import run as quality
from fabric_health.site import Site, load_site

SITE = """
site: lab
title: Tiny
origin: lab
reach: {here: {kind: local}}
skus: {box: {gpu_model: H100, gpus: 0, link_layer: InfiniBand, nic_rate_gbps: 400}}
nodes: [{names: "gpu-[001-003]", sku: box, rack: r1, reach: here}]
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    path = tmp_path_factory.mktemp("site") / "tiny.yaml"
    path.write_text(SITE)
    return load_site(path)


def land_weeks(store: ObjectStore, weeks: int) -> None:
    for ago in range(weeks):
        key = run_key(ago)
        landing.land(store, key, "driver_firmware", [(fact("gpu-001", "os", "1"), "a" * 64)], (Fact,))
        landing.land(store, key, "run", [(concluded_row(key), None)], (Run,))


def as_of(days_later: float) -> RunKey:
    return dataclasses.replace(run_key(), run="trend_quality-x", started_at=MONDAY + timedelta(days=days_later))


def test_weeks_that_landed_whole_meet_every_expectation(store: ObjectStore, site: Site) -> None:
    land_weeks(store, 3)
    outcome = quality.evaluate_trends(store, site, as_of(1))
    assert not [r for r in outcome.results if not r.success]
    assert {"facts", "links", "findings", "runs"} <= {r.suite for r in outcome.results}


def test_a_weekly_run_that_has_stopped_running_is_critical(store: ObjectStore, site: Site) -> None:
    land_weeks(store, 2)
    assert any("days old" in f for f in quality.evaluate_trends(store, site, as_of(9)).critical_failures)


def test_a_site_without_any_run_is_not_fresh(store: ObjectStore, site: Site) -> None:
    assert any("days old" in f for f in quality.evaluate_trends(store, site, as_of(0)).critical_failures)


def test_a_row_that_one_run_landed_twice_is_found(store: ObjectStore, site: Site) -> None:
    land_weeks(store, 2)
    # The same run landing the same unit under another part: no object is wrong by itself.
    landing.land(store, run_key(), "other", [(fact("gpu-001", "os", "2"), "b" * 64)], (Fact,))
    failures = quality.evaluate_trends(store, site, as_of(1)).critical_failures
    assert any(f.startswith("facts") and "run, unit, attribute" in f for f in failures)
