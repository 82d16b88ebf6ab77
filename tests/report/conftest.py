"""A run of the lab's site, made by hand: one cause with its effect, a node that does not answer, drift, a past."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import fabric_health
from fabric_health.changes import Change
from fabric_health.checks.driver_firmware.tables import Link
from fabric_health.checks.switch_config.tables import ConfigDrift, SwitchPort
from fabric_health.datasets.run import RunKey
from fabric_health.datasets.tables import (
    Coverage,
    Finding,
    FindingKind,
    QualityResult,
    Quarantine,
    Run,
    Severity,
    finding,
)
from fabric_health.evidence import CommandResult, CommandStatus, ReachStatus, StoredEvidence, UnitEvidence
from fabric_health.report.data import PastRun, ReportData
from fabric_health.site import Site, load_site

# The reader of pages lies next to its tests.
sys.path.insert(0, str(Path(__file__).parent))

NOW = datetime(2026, 11, 30, 3, tzinfo=UTC)
WEEK = timedelta(days=7)
CHECK_OF = {"node": "driver_firmware", "switch": "switch_config"}


@pytest.fixture(scope="session")
def site() -> Site:
    return load_site(Path(fabric_health.__file__).parents[1] / "sites" / "lab.yaml")


@pytest.fixture
def healthy(site: Site) -> ReportData:
    """A first run in which everything is as it should be."""
    return first_run(site)


@pytest.fixture
def faulty(healthy: ReportData) -> ReportData:
    """A later run: a port's MTU with the rate that it explains, a silent node, a note, drift, failed quality."""
    mtu = finding(
        check="switch_config",
        rule="port_mtu",
        unit="leaf-2/Ethernet32",
        unit_kind="port",
        metric="mtu_bytes",
        severity=Severity.CRITICAL,
        summary="leaf-2/Ethernet32 has MTU 1500, expected 9216",
        expected="9216",
        actual="1500",
        action="config interface mtu Ethernet32 9216\nconfig save -y",
        source="site file, port profile `rail`",
        command="interfaces",
    )
    node_mtu = finding(
        check="driver_firmware",
        rule="netdev_mtu",
        unit="gpu-005/mlx5_2",
        unit_kind="nic",
        metric="netdev_mtu_bytes",
        severity=Severity.WARNING,
        summary="gpu-005/mlx5_2 has a smaller MTU than its rail",
        explained_by=mtu.finding,
        command="ibv_devinfo",
    )
    silent = finding(
        check="driver_firmware",
        rule="unit_answers",
        unit="gpu-003",
        unit_kind="node",
        metric="reach",
        severity=Severity.CRITICAL,
        kind=FindingKind.NOT_JUDGED,
        summary="gpu-003 could not be asked: unreachable",
        expected="answers to every command",
        actual="unreachable",
        action="check power, network and address of the unit",
    )
    note = finding(
        check="driver_firmware",
        rule="kernel_equal",
        unit="gpu-009",
        unit_kind="node",
        metric="kernel_release",
        severity=Severity.INFO,
        summary="gpu-009 runs a kernel of its own",
    )
    findings = (
        dataclasses.replace(mtu, first_seen=NOW - WEEK),
        dataclasses.replace(silent, first_seen=NOW),
        dataclasses.replace(node_mtu, first_seen=NOW - WEEK),
        note,
    )
    gone = dataclasses.replace(note, unit="gpu-011", summary="gpu-011 flapped", severity="warning", first_seen=NOW)
    return dataclasses.replace(
        with_findings(healthy, findings),
        changes=tuple(Change(f"gpu-{n:03}", "node", "driver_version", "570", "580", NOW - WEEK) for n in range(1, 13)),
        drift=tuple(drift(against) for against in ("golden", "previous")),
        resolved=(gone,),
        links=tuple(x for x in healthy.links if x.node != "gpu-003"),
        quality=(*healthy.quality, dataclasses.replace(healthy.quality[0], success=False, observed="21 of 22")),
        quarantine=(Quarantine("driver_firmware", "links", 0, "rate_gbps: -1 is below 0", "{}"),),
        past=tuple(
            PastRun(f"r{n}", NOW - n * WEEK, answer, n, 2 - n % 2, 1.0 if n != 2 else 0.4)
            for n, answer in ((3, "FINDINGS"), (2, "NOT_JUDGED"), (1, "HEALTHY"))
        ),
        previous_at=NOW - WEEK,
    )


@pytest.fixture(scope="session")
def run_of() -> Callable[[Site], ReportData]:
    """Return a function that makes a first run of a site in which nothing is wrong."""
    return first_run


def first_run(site: Site) -> ReportData:
    """Return a first run of a whole site in which nothing is wrong."""
    units = site.select(None)
    coverage = tuple(Coverage(CHECK_OF[u.kind], u.name, u.kind, "judged", None) for u in units)
    return ReportData(
        site=site,
        key=RunKey(site.name, "weekly_fabric_health-20261130T030000-1a2b3c4d", NOW, site.origin),
        record=Run(
            dag="weekly_fabric_health",
            scheduler_run_id="scheduled__2026-11-30",
            started_at=NOW,
            checks="driver_firmware,switch_config",
            nodes_in_scope=len(site.nodes),
            switches_in_scope=len(site.switches),
            answer="HEALTHY",
            headline=f"Nothing to look at: {len(units)} units judged, every rule met.",
            coverage_ratio=1.0,
            findings_critical=0,
            findings_warning=0,
            rows_landed=4812,
            rows_quarantined=0,
            site_sha256=site.sha256,
            version="0.1.0",
        ),
        findings=(),
        coverage=coverage,
        changes=(),
        drift=(),
        resolved=(),
        links=tuple(
            Link(n.name, n.nic_unit(nic.name), 1, nic.rail, state="ACTIVE", rate_gbps=400.0)
            for n in site.nodes
            for nic in n.sku.nics
        ),
        switch_ports=tuple(
            SwitchPort(s.name, c.port, admin_up=True, oper_up=True, speed_gbps=400.0, mtu_bytes=9216)
            for s in site.switches
            for c in site.cables_of(s.name)
        ),
        quality=(
            QualityResult("facts", "expect_compound_columns_to_be_unique", "key", "critical", True, "keys are unique"),
        ),
        quarantine=(),
        rows_by_table={"facts": 4000, "links": 128},
        past=(),
        previous_at=None,
        evidence={
            (CHECK_OF[u.kind], u.name): StoredEvidence(u.name, f"evidence/{u.name}", f"{i:064x}", ReachStatus.OK, "", 2)
            for i, u in enumerate(units)
        },
        evidence_shown=(),
    )


def with_findings(data: ReportData, findings: tuple[Finding, ...]) -> ReportData:
    """Return a run with these findings, its counts and coverage to match, and their evidence beside the page."""
    own = [f for f in findings if not f.explained_by]
    silent = {f.unit for f in findings if f.kind == FindingKind.NOT_JUDGED}
    pairs = dict.fromkeys((f.check, f.unit.split("/", 1)[0]) for f in findings)
    return dataclasses.replace(
        data,
        findings=findings,
        record=dataclasses.replace(
            data.record,
            answer="FINDINGS",
            headline=f"{len(own)} findings. {own[0].summary}.",
            findings_critical=sum(f.severity == Severity.CRITICAL for f in own),
            findings_warning=sum(f.severity == Severity.WARNING for f in own),
        ),
        coverage=tuple(
            dataclasses.replace(c, state="not_judged", reason="unreachable: timed out") if c.unit in silent else c
            for c in data.coverage
        ),
        evidence={**{p: StoredEvidence(p[1], "k", "0" * 64, ReachStatus.OK, "", 2) for p in pairs}, **data.evidence},
        evidence_shown=tuple(evidence(*p) for p in pairs),
    )


def evidence(check: str, unit: str, stdout: str = "state: ACTIVE\n", stderr: str = "") -> UnitEvidence:
    """Return what a unit answered to two commands."""
    results = tuple(
        CommandResult(name, (name, "--all"), CommandStatus.EXITED, 0, stdout, stderr, NOW, NOW + timedelta(seconds=1))
        for name in ("interfaces", "ibv_devinfo")
    )
    return UnitEvidence(unit, "node", check, ReachStatus.OK, "", NOW, NOW + timedelta(seconds=3), results)


def drift(against: str) -> ConfigDrift:
    """Return a lost MTU line."""
    return ConfigDrift(
        switch="leaf-2",
        against=against,
        change="changed",
        path="PORT/Ethernet32/mtu",
        first_seen=NOW - WEEK,
        last_seen=NOW,
        port="Ethernet32",
        topic="mtu",
        expected="9216",
        actual="1500",
        remediation="config interface mtu Ethernet32 9216",
    )
