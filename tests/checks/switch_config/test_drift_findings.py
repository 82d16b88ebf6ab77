"""Drift rows carry their history; findings say which line, how bad, and what to do."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from fabric_health.checks.check import Context, RowSet
from fabric_health.checks.switch_config.derive import drift_rows
from fabric_health.checks.switch_config.drift_findings import MAX_FINDINGS, drift_findings
from fabric_health.checks.switch_config.normalise import normalise
from fabric_health.checks.switch_config.tables import ConfigDrift, SwitchConfig
from fabric_health.datasets.contracts import Row
from fabric_health.site import Site, load_site

CONFIGS = Path(__file__).parents[2] / "fixtures" / "switch_config" / "configs"
EOS = (CONFIGS / "eos.cfg").read_text(encoding="utf-8")
SONIC = (CONFIGS / "sonic.json").read_text(encoding="utf-8")
NOW = datetime(2026, 11, 30, 3, tzinfo=UTC)
WEEK = timedelta(days=7)

SITE = """
site: t
title: test
reach: {ssh: {kind: ssh, connection: c}}
skus: {s: {gpu_model: H100, gpus: 8, link_layer: Ethernet, nic_rate_gbps: 400, nics: [{name: mlx5_0, rail: 0}]}}
nodes: [{names: "gpu-[001-002]", sku: s, rack: r1, reach: ssh}]
switches:
  - {names: leaf-1, platform: eos, reach: ssh, golden: "{name}.cfg"}
  - {names: leaf-2, platform: sonic, reach: ssh, golden: "{name}.cfg"}
  - {names: leaf-3, platform: eos, reach: ssh}
port_profiles: {gpu: {speed_gbps: 400}}
cabling:
  - {switch: leaf-1, ports: "Ethernet1/1", nodes: gpu-001, nic: mlx5_0, profile: gpu}
  - {switch: leaf-2, ports: "Ethernet0", nodes: gpu-002, nic: mlx5_0, profile: gpu}
"""


@pytest.fixture
def site(tmp_path: Path) -> Site:
    (tmp_path / "leaf-1.cfg").write_text(EOS)
    (tmp_path / "leaf-2.cfg").write_text(SONIC)
    path = tmp_path / "t.yaml"
    path.write_text(SITE)
    return load_site(path)


def config_row(switch: str, platform: str, raw: str) -> SwitchConfig:
    result = normalise(platform, raw)  # type: ignore[arg-type]
    assert result.well_formed, result.problem
    digest = hashlib.sha256(result.config.encode()).hexdigest()
    return SwitchConfig(switch=switch, platform=platform, config=result.config, config_sha256=digest)


def context(site: Site, previous: list[Row] | None = None, at: datetime | None = None, now: datetime = NOW) -> Context:
    names = {s.name for s in site.switches}
    return Context(
        site=site,
        run="r",
        started_at=now,
        scope=site.switches,
        reach={},
        previous=RowSet.gather(previous or []),
        previous_at=dict.fromkeys(names, at) if at else {},
    )


def judged(site: Site, *configs: SwitchConfig) -> tuple[list[ConfigDrift], list]:  # type: ignore[type-arg]
    ctx = context(site)
    rows = drift_rows(RowSet.gather(configs), ctx)
    return rows, drift_findings(RowSet.gather([*configs, *rows]), ctx)


DRIFTED = EOS.replace("gpu-001 mlx5_4\n   mtu 9214", "gpu-001 mlx5_4\n   mtu 1500")


def test_configs_as_golden_give_no_row_and_no_finding(site: Site) -> None:
    assert judged(site, config_row("leaf-1", "eos", EOS), config_row("leaf-2", "sonic", SONIC)) == ([], [])


def test_a_drifted_line_is_one_row_and_one_finding_on_its_port(site: Site) -> None:
    rows, findings = judged(site, config_row("leaf-1", "eos", DRIFTED))
    assert [(r.switch, r.against, r.change, r.path, r.topic) for r in rows] == [
        ("leaf-1", "golden", "changed", "interface Ethernet1/1 / mtu", "mtu")
    ]
    assert rows[0].parents == "interface Ethernet1/1"
    assert rows[0].first_seen == rows[0].last_seen == NOW
    (f,) = findings
    assert (f.check, f.rule, f.unit, f.unit_kind) == (
        "switch_config",
        "config_equals_golden",
        "leaf-1/Ethernet1/1",
        "port",
    )
    assert (f.severity, f.kind, f.expected, f.actual) == ("critical", "deviation", "mtu 9214", "mtu 1500")
    assert f.action == "interface Ethernet1/1\n  mtu 9214"
    assert f.summary == "golden line `mtu 9214` under `interface Ethernet1/1` reads `mtu 1500`"


def test_first_seen_goes_on_while_the_series_is_unbroken(site: Site) -> None:
    drifted = config_row("leaf-1", "eos", DRIFTED)
    first = drift_rows(RowSet.gather([drifted]), context(site, now=NOW - 2 * WEEK))
    second = drift_rows(RowSet.gather([drifted]), context(site, [drifted, *first], at=NOW - 2 * WEEK, now=NOW - WEEK))
    assert (second[0].first_seen, second[0].last_seen) == (NOW - 2 * WEEK, NOW - WEEK)
    # The switch was read a week ago without the drift: what is seen now is new.
    again = drift_rows(RowSet.gather([drifted]), context(site, [drifted, *first], at=NOW - WEEK))
    assert (again[0].first_seen, again[0].last_seen) == (NOW, NOW)


def test_changes_since_the_previous_run_are_rows_and_no_findings(site: Site) -> None:
    before, after = config_row("leaf-3", "eos", EOS), config_row("leaf-3", "eos", DRIFTED)
    ctx = context(site, [before], at=NOW - WEEK)
    rows = drift_rows(RowSet.gather([after]), ctx)
    assert [(r.against, r.path, r.first_seen) for r in rows] == [("previous", "interface Ethernet1/1 / mtu", NOW)]
    (f,) = drift_findings(RowSet.gather([after, *rows]), ctx)
    assert (f.rule, f.severity, f.kind, f.unit) == ("golden_given", "info", "not_judged", "leaf-3")


def test_what_an_earlier_release_stored_breaks_nothing(site: Site) -> None:
    old = replace(config_row("leaf-2", "sonic", SONIC), config="not the normal form of today")
    assert drift_rows(RowSet.gather([config_row("leaf-2", "sonic", SONIC)]), context(site, [old])) == []


@pytest.mark.parametrize(
    ("old", "new", "severity"),
    [
        ('0,1,2,3,4,5,6,7", "mtu": "9216"', '0,1,2,3,4,5,6,7", "mtu": "1500"', "critical"),
        ('12,13,14,15", "mtu": "9216"', '12,13,14,15", "mtu": "1500"', "warning"),
        ('"ecn": "ecn_all"', '"ecn": "ecn_none"', "critical"),
        ('"PACKET_ACTION": "DROP"', '"PACKET_ACTION": "FORWARD"', "critical"),
        ('"description": "gpu-001 mlx5_2"', '"description": "<script>alert(1)</script>"', "info"),
        ('"NTP_SERVER": {"10.0.0.10": {}}', '"NTP_SERVER": {}', "warning"),
    ],
)
def test_severity_by_topic_and_cable(site: Site, old: str, new: str, severity: str) -> None:
    assert SONIC.count(old) == 1
    _, findings = judged(site, config_row("leaf-2", "sonic", SONIC.replace(old, new)))
    assert [f.severity for f in findings] == [severity]


def test_another_config_is_one_finding_and_all_rows(site: Site) -> None:
    extra = "".join(f"ntp server 10.9.{i // 250}.{i % 250}\n" for i in range(MAX_FINDINGS + 1))
    rows, findings = judged(
        site, config_row("leaf-1", "eos", EOS.replace("hostname leaf-3\n", "hostname leaf-3\n" + extra))
    )
    assert len(rows) == MAX_FINDINGS + 1
    (f,) = findings
    assert (f.unit, f.metric, f.actual) == ("leaf-1", "config", f"{MAX_FINDINGS + 1} differences")


def test_a_golden_config_that_is_none_is_said(site: Site, tmp_path: Path) -> None:
    (tmp_path / "leaf-1.cfg").write_text("<html>not found</html>")
    broken = load_site(tmp_path / "t.yaml")
    rows, findings = judged(broken, config_row("leaf-1", "eos", EOS))
    assert rows == []
    (f,) = findings
    assert (f.rule, f.severity, f.kind) == ("golden_given", "warning", "not_judged")
    assert "HTML" in f.summary


def test_finding_ids_are_unique(site: Site) -> None:
    _, findings = judged(site, config_row("leaf-1", "eos", DRIFTED.replace("10.0.0.2", "10.0.0.9")))
    assert len(findings) > 2
    assert len({f.finding for f in findings}) == len(findings)
