"""Quality: a run that landed whole meets every expectation, and each kind of gap is named."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest
from landed_samples import concluded_row, config, covered, fact, found, link, run_key

from fabric_health.checks import registry
from fabric_health.checks.driver_firmware.tables import Link
from fabric_health.checks.switch_config.tables import SwitchPort
from fabric_health.datasets import embedded, landing
from fabric_health.datasets.contracts import Row
from fabric_health.datasets.registry import all_tables
from fabric_health.datasets.store import ObjectStore
from fabric_health.datasets.tables import Coverage, Fact, Finding, QualityResult, Run
from fabric_health.quality import run as quality
from fabric_health.quality import suites
from fabric_health.site import Node, Site, load_site

CHECKS = ("driver_firmware", "switch_config")
SHA = "a" * 64
SITE = """
site: tiny
title: Tiny
origin: lab
reach: {here: {kind: local}}
skus:
  box:
    gpu_model: H100
    gpus: 0
    link_layer: InfiniBand
    nic_rate_gbps: 400
    nics: [{name: mlx5_0, rail: 0}, {name: mlx5_1, rail: 1}]
nodes: [{names: "gpu-[001-003]", sku: box, rack: r1, reach: here}]
switches: [{names: leaf-1, platform: eos, reach: here}]
port_profiles: {node: {speed_gbps: 400}}
cabling: [{switch: leaf-1, ports: "Ethernet[1-3]", profile: node, nodes: "gpu-[001-003]", nic: mlx5_0}]
"""

Spoil = Callable[[list[Row]], Iterable[Row]]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    path = tmp_path_factory.mktemp("site") / "tiny.yaml"
    path.write_text(SITE)
    return load_site(path)


def whole(site: Site) -> list[Row]:
    rows: list[Row] = []
    for unit in site.select(None):
        rows.append(fact(unit.name, "os_version", "1"))
        if isinstance(unit, Node):
            rows.append(covered(unit.name))
            rows += [link(unit.nic_unit(n.name), rate_gbps=400.0) for n in unit.sku.nics]
        else:
            rows += [covered(unit.name, check="switch_config", kind="switch"), config(unit.name)]
            rows += [SwitchPort(switch=unit.name, port=c.port, speed_gbps=400.0) for c in site.cables_of(unit.name)]
    return rows


def land(store: ObjectStore, site: Site, weeks_ago: int, rows: Iterable[Row], *, conclude: bool) -> None:
    key = run_key(weeks_ago, site.name)
    rows = list(rows)
    for name in CHECKS:
        check = registry.check(name)
        kind_of = {u.name: u.kind for u in site.select(None)}
        own = [
            (r, None if getattr(r, "netdev", None) == "no evidence" else SHA)
            for r in rows
            if type(r) in check.tables
            and not (isinstance(r, Fact) and kind_of.get(r.unit.split("/")[0], check.unit_kind) != check.unit_kind)
        ]
        landing.land(store, key, name, own, check.tables)
        judged = [(r, SHA) for r in rows if isinstance(r, Coverage) and r.check == name]
        landing.land(store, key, name, judged, (Finding, Coverage), quarantine_part=f"{name}_judged")
    if conclude:
        landing.land(store, key, "run", [(concluded_row(key), None)], (Run,))


@dataclass(frozen=True)
class Case:
    store: ObjectStore
    outcome: quality.QualityOutcome

    def failed(self) -> dict[str, QualityResult]:
        return {r.description: r for r in self.outcome.results if not r.success}


def evaluate(store: ObjectStore, site: Site) -> quality.QualityOutcome:
    return quality.evaluate(store, site, run_key(0, site.name), [u.name for u in site.select(None)], CHECKS)


def fresh_store(s3_home: Path, bucket: str) -> ObjectStore:
    operator = embedded.operator(s3_home)
    store = ObjectStore.connect(dataclasses.replace(operator, extra={**operator.extra, "bucket": bucket}))
    store.ensure_bucket()
    return store


@pytest.fixture(scope="module")
def healthy(s3_home: Path, site: Site) -> Case:
    store = fresh_store(s3_home, "quality-healthy")
    for weeks_ago in (3, 2, 1, 0):
        land(store, site, weeks_ago, whole(site), conclude=weeks_ago > 0)
    return Case(store, evaluate(store, site))


@pytest.fixture(scope="module")
def spoilt(s3_home: Path, site: Site) -> Case:
    store = fresh_store(s3_home, "quality-spoilt")
    for weeks_ago in (5, 4, 3):
        land(store, site, weeks_ago, whole(site), conclude=True)
    rows = [r for r in whole(site) if r != covered("gpu-003")]
    rows = [r for r in rows if getattr(r, "nic", "") != "gpu-001/mlx5_1" and getattr(r, "port", "") != "Ethernet2"]
    rows += [link("gpu-001/x<script>alert(1)</script>", rate_gbps=400_000.0, netdev="no evidence")]
    rows += [link("gpu-001/bad", rate_gbps=float("nan"))]
    rows += [fact("gpu-001", f"a{i}", "v") for i in range(9)]
    rows += [fact("gpu-001", "${x}", "v", state="<script>alert(2)</script>")]
    rows = [r for r in rows if not (isinstance(r, Fact) and r.unit == "gpu-002")]
    land(store, site, 0, rows, conclude=False)
    return Case(store, evaluate(store, site))


def test_a_finding_that_did_not_land_is_critical_and_one_that_came_twice_is_not(s3_home: Path, site: Site) -> None:
    store = fresh_store(s3_home, "quality-lost-finding")
    land(store, site, 0, whole(site), conclude=False)
    key = run_key(0, site.name)
    bad = found("gpu-001")
    twice = [found("gpu-002"), found("gpu-002"), bad, dataclasses.replace(bad, severity="critical")]
    rows = [(r, SHA) for r in [*twice, *(r for r in whole(site) if isinstance(r, Coverage) and r.unit != "leaf-1")]]
    landing.land(store, key, CHECKS[0], rows, (Finding, Coverage), quarantine_part=f"{CHECKS[0]}_judged")
    (failure,) = evaluate(store, site).critical_failures
    assert "every finding and coverage row is there" in failure
    assert "another row has the same key" in failure
    assert "twice" not in failure


def test_a_whole_run_meets_every_expectation(healthy: Case) -> None:
    assert healthy.failed() == {}
    assert healthy.outcome.critical_failures == ()
    assert {r.suite for r in healthy.outcome.results} >= {
        *("facts", "links", "switch_ports", "switch_configs", "findings", "coverage"),
        *("config_drift", "kernel_events", "quarantine", "runs"),
    }
    assert any("median earlier run" in r.description for r in healthy.outcome.results)


def test_results_land_and_a_second_evaluation_gives_the_same_bytes(healthy: Case, site: Site) -> None:
    again = evaluate(healthy.store, site)
    assert again == healthy.outcome
    rows = [(r, None) for r in again.results]
    landed = landing.land(healthy.store, run_key(0, site.name), "quality", rows, (QualityResult,))
    assert (landed.rows, landed.quarantined) == ({"quality_results": len(rows)}, 0)


def test_every_gap_is_named_with_its_severity(spoilt: Case) -> None:
    failed = spoilt.failed()
    expected = {
        "coverage of every unit in scope is there": ("critical", "gpu-003 (driver_firmware)"),
        "a fact of every unit that driver_firmware judged is there": ("critical", "gpu-002"),
        "`state` is one of value, unsupported, error": ("critical", "<script>alert(2)</script>"),
        "a link of every NIC of every judged node is there": ("warning", "gpu-001/mlx5_1"),
        "every cabled port of every judged switch is there": ("warning", "leaf-1/Ethernet2"),
        "`rate_gbps` lies between 0 and 3200 Gb/s unless its unit is wrong": ("warning", "400000.0"),
        "every row names the evidence it was read from": ("warning", "null in 1 rows"),
        "no row of this run broke the contract of its table": ("warning", "1"),
        "at most 8 days lie between this run and the concluded run before it": ("warning", "21.0"),
    }
    for description, (severity, observed) in expected.items():
        assert (failed[description].severity, failed[description].observed) == (severity, observed), description
    (rows,) = [d for d in failed if "median earlier run" in d]
    assert rows.startswith("a unit that driver_firmware judged has 0.5 to 2 times")
    assert len(failed) == len(expected) + 1
    assert len(spoilt.outcome.critical_failures) == 3


def test_text_of_a_unit_is_inert_in_the_docs(spoilt: Case) -> None:
    pages = b"".join(spoilt.outcome.docs.values())
    assert b"<script>alert" not in pages
    assert b"&lt;script&gt;alert(2)" in pages or b"&amp;lt;script&amp;gt;alert(2)" in pages
    assert b"great-expectations-web-assets" not in pages
    assert "index.html" in spoilt.outcome.docs
    assert not re.findall(rb"<(?:script|link|img|iframe)\b[^>]*(?:src|href)=.?(?:https?:)?//[^>]*>", pages)
    assert sum(map(len, spoilt.outcome.docs.values())) < 2 << 20


def test_a_run_without_history_is_not_compared(store: ObjectStore, site: Site) -> None:
    land(store, site, 0, whole(site), conclude=False)
    batches = quality._batches(store, site, run_key(0, site.name), [u.name for u in site.select(None)], CHECKS)
    assert not [b for b in batches if "_rows_" in b.name or b.name == "runs_fresh"]


def test_an_unreached_node_owes_no_rows(store: ObjectStore, site: Site) -> None:
    rows = [r for r in whole(site) if getattr(r, "node", getattr(r, "unit", "")) != "gpu-002"]
    land(store, site, 0, [*rows, covered("gpu-002", "not_judged")], conclude=False)
    batches = quality._batches(store, site, run_key(0, site.name), [u.name for u in site.select(None)], CHECKS)
    missing = [m for b in batches if "missing" in b.frame for m in b.frame["missing"].dropna()]
    assert missing == []


def test_rules_of_a_suite_have_their_own_keys_and_name_columns_that_exist() -> None:
    for row_type, rules in suites.suites(all_tables(), "lab").items():
        assert len({(r.expectation, r.subject) for r in rules}) == len(rules), row_type
    for row_type, name in (*suites.VALUES, *suites.PLAUSIBLE):
        assert name in {f.name for f in dataclasses.fields(row_type)}, (row_type, name)
    assert (Link, "rate_gbps") in suites.PLAUSIBLE


def test_importing_the_module_does_not_import_great_expectations() -> None:
    code = "import sys, fabric_health.quality.run; sys.exit('great_expectations' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": ":".join(sys.path)}).returncode == 0
