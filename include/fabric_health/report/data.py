"""What a report is made from: rows of one run, plain data."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from fabric_health.changes import Change
from fabric_health.checks.driver_firmware.tables import Link
from fabric_health.checks.switch_config.tables import ConfigDrift, SwitchPort
from fabric_health.datasets.run import RunKey
from fabric_health.datasets.tables import Coverage, Finding, QualityResult, Quarantine, Run
from fabric_health.evidence import StoredEvidence, UnitEvidence
from fabric_health.site import Site


@dataclass(frozen=True)
class PastRun:
    """One earlier concluded run, for the trend at the foot of the page."""

    run: str
    started_at: datetime
    answer: str
    findings_critical: int
    findings_warning: int
    coverage_ratio: float


@dataclass(frozen=True)
class ReportData:
    """Everything on the page. ``previous_at`` is the start of the newest run compared with, None for a first run.

    ``evidence`` refers to the evidence of every unit in scope, by (check, unit); ``evidence_shown`` holds the
    evidence of units with findings, to be rendered beside the page.
    """

    site: Site
    key: RunKey
    record: Run
    findings: tuple[Finding, ...]
    coverage: tuple[Coverage, ...]
    changes: tuple[Change, ...]
    drift: tuple[ConfigDrift, ...]
    resolved: tuple[Finding, ...]
    links: tuple[Link, ...]
    switch_ports: tuple[SwitchPort, ...]
    quality: tuple[QualityResult, ...]
    quarantine: tuple[Quarantine, ...]
    rows_by_table: dict[str, int]
    past: tuple[PastRun, ...]
    previous_at: datetime | None
    evidence: dict[tuple[str, str], StoredEvidence]
    evidence_shown: tuple[UnitEvidence, ...]
