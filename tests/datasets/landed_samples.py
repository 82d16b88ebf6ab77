"""Rows and runs for the tests of datasets and quality."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from fabric_health.checks.driver_firmware.tables import Link
from fabric_health.checks.switch_config.tables import ConfigDrift, SwitchConfig
from fabric_health.datasets.run import RunKey, run_name
from fabric_health.datasets.tables import Coverage, Fact, Finding, Run, Severity, finding

MONDAY = datetime(2026, 11, 30, 3, 0, tzinfo=UTC)


def run_key(weeks_ago: int = 0, site: str = "lab") -> RunKey:
    started = MONDAY - timedelta(weeks=weeks_ago)
    return RunKey(site, run_name("weekly", "cli", started), started, "lab")


def fact(unit: str, attribute: str, value: str | None, state: str = "value") -> Fact:
    return Fact(unit=unit, unit_kind="node", attribute=attribute, state=state, value=value)


def link(nic: str, **values: object) -> Link:
    return Link(node=nic.split("/")[0], nic=nic, port=1, link_layer="InfiniBand", **values)  # type: ignore[arg-type]


def covered(unit: str, state: str = "judged", check: str = "driver_firmware", kind: str = "node") -> Coverage:
    return Coverage(check=check, unit=unit, unit_kind=kind, state=state)


def found(unit: str, rule: str = "driver_equals_expected", check: str = "driver_firmware") -> Finding:
    return finding(
        check=check,
        rule=rule,
        unit=unit,
        unit_kind="node",
        metric="driver_version",
        severity=Severity.WARNING,
        summary=f"{unit} breaks {rule}",
    )


def config(switch: str) -> SwitchConfig:
    return SwitchConfig(switch=switch, platform="eos", config="hostname x", config_sha256="0" * 64)


def drift(switch: str, path: str, at: datetime, against: str = "golden") -> ConfigDrift:
    return ConfigDrift(
        switch=switch, against=against, change="missing", path=path, first_seen=at, last_seen=at, expected="mtu 9216"
    )


def concluded_row(key: RunKey, answer: str = "HEALTHY") -> Run:
    return Run(
        dag="weekly",
        scheduler_run_id="cli",
        started_at=key.started_at,
        checks="driver_firmware,switch_config",
        nodes_in_scope=2,
        switches_in_scope=1,
        answer=answer,
        headline="all well",
        coverage_ratio=1.0,
        findings_critical=0,
        findings_warning=0,
        rows_landed=10,
        rows_quarantined=0,
        site_sha256="0" * 64,
        version="0.1.0",
    )
