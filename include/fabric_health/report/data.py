"""What a report is made from: rows of one run, plain data."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from statistics import median

from fabric_health.changes import Change
from fabric_health.checks.collectives.tables import Collective, CollectiveLaunch, Isolation, LaunchProblem
from fabric_health.checks.driver_firmware.tables import Link
from fabric_health.checks.elastic_training.tables import ElasticEvent, ElasticNodeCheck, ElasticRecovery, ElasticRun
from fabric_health.checks.model_eval.tables import (
    ModelBuild,
    ModelLaunchProblem,
    ModelQuality,
    ModelServer,
    ModelServing,
    Quantization,
)
from fabric_health.checks.object_store.tables import ObjectStoreResult
from fabric_health.checks.switch_config.tables import ConfigDrift, SwitchPort
from fabric_health.datasets.run import RunKey
from fabric_health.datasets.tables import Coverage, Finding, QualityResult, Quarantine, Run
from fabric_health.datasets.verdict_tables import Attribution, Verdict
from fabric_health.evidence import StoredEvidence, UnitEvidence
from fabric_health.history import Comparable
from fabric_health.maintenance import Change as DeclaredChange
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
class CollectiveResults:
    """Collective benchmarks of a run. ``origins``: per launch, `measured` or `lab`. ``before``: comparable rows."""

    launches: tuple[CollectiveLaunch, ...]
    problems: tuple[LaunchProblem, ...]
    rows: tuple[Collective, ...]
    origins: dict[str, str]
    before: Comparable[Collective] = field(default_factory=Comparable)
    isolations: tuple[Isolation, ...] = ()


@dataclass(frozen=True)
class ObjectStoreResults:
    """Object store benchmark of a run, as :class:`CollectiveResults`."""

    rows: tuple[ObjectStoreResult, ...]
    origins: dict[str, str]
    before: Comparable[ObjectStoreResult] = field(default_factory=Comparable)


@dataclass(frozen=True)
class ModelResults:
    """Models of a run: how they were made and quantised, served, and how well they answer. As the others otherwise."""

    builds: tuple[ModelBuild, ...]
    quantizations: tuple[Quantization, ...]
    servers: tuple[ModelServer, ...]
    serving: tuple[ModelServing, ...]
    quality: tuple[ModelQuality, ...]
    problems: tuple[ModelLaunchProblem, ...]
    origins: dict[str, str]
    before: Comparable[ModelServing] = field(default_factory=Comparable)


@dataclass(frozen=True)
class ElasticResults:
    """Elastic training of a run. ``origins``: per launch, `measured` or `lab`."""

    runs: tuple[ElasticRun, ...]
    recoveries: tuple[ElasticRecovery, ...]
    events: tuple[ElasticEvent, ...]
    node_checks: tuple[ElasticNodeCheck, ...]
    origins: dict[str, str]


@dataclass(frozen=True)
class Level:
    """What one unit reached in one run, over its launches: median, least and most, in the metric's own unit."""

    run: str
    started_at: datetime
    median: float
    low: float
    high: float
    launches: int


@dataclass(frozen=True)
class Trend:
    """The last runs of a unit that got slower, oldest first, this run last. Bus bandwidth in GB/s (1e9 bytes/s).

    ``what``: what was measured. ``margin``: the smallest loss that matters, as a share.
    """

    unit: str
    what: str
    margin: float
    levels: tuple[Level, ...]

    @property
    def usual(self) -> float:
        """Return the median of the levels before this run."""
        return median(x.median for x in self.levels[:-1])


@dataclass(frozen=True)
class VerdictResults:
    """What comparing a run with earlier ones said. ``change``: what was declared, None for a run of no change."""

    rows: tuple[Verdict, ...]
    attributions: tuple[Attribution, ...] = ()
    change: DeclaredChange | None = None
    trends: tuple[Trend, ...] = ()


@dataclass(frozen=True)
class ReportData:
    """Everything on the page. ``previous_at`` is the start of the newest run compared with, None for a first run.

    ``evidence`` refers to the evidence of every unit in scope, by (check, unit); ``evidence_shown`` holds the
    evidence of units with findings, to be rendered beside the page. Results of benchmarks are None when none was asked,
    ``verdict`` is None when the run was not compared with earlier ones.
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
    collectives: CollectiveResults | None = None
    object_store: ObjectStoreResults | None = None
    models: ModelResults | None = None
    elastic: ElasticResults | None = None
    verdict: VerdictResults | None = None
