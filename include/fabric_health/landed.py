"""What one run has landed, read back: for its conclusion and for its page."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice, product
from typing import TypeVar

from fabric_health import answer
from fabric_health.benchmarked import collective_results, elastic_results, model_results, object_store_results
from fabric_health.changes import Change, fact_changes
from fabric_health.checks import registry
from fabric_health.checks.driver_firmware.tables import Link
from fabric_health.checks.switch_config.tables import ConfigDrift, SwitchPort
from fabric_health.compared import PART, RUN
from fabric_health.datasets import arrow, landing, reading
from fabric_health.datasets import evidence as evidence_store
from fabric_health.datasets.contracts import Row
from fabric_health.datasets.run import RunKey
from fabric_health.datasets.store import ObjectStore
from fabric_health.datasets.tables import (
    Coverage,
    CoverageState,
    Fact,
    Finding,
    QualityResult,
    Quarantine,
    Run,
    Severity,
    asked,
)
from fabric_health.datasets.verdict_tables import Verdict
from fabric_health.evidence import StoredEvidence, UnitEvidence
from fabric_health.history import judged_part, load_part, previous
from fabric_health.report.data import PastRun, ReportData
from fabric_health.run_document import RunDocument
from fabric_health.site import Site
from fabric_health.verdict_results import verdict_results

R = TypeVar("R", bound=Row)
PAST_RUNS_SHOWN = 12
EVIDENCE_SHOWN = 200


@dataclass(frozen=True)
class Landed:
    """Reads back what the stages of one run have landed."""

    store: ObjectStore
    run: RunDocument

    def of(self, row_type: type[R]) -> list[R]:
        """Return the rows of a table that the run's checks landed."""
        return [row for part in self._parts() for row in load_part(self.store, row_type, self.run.key, part)]

    def quality(self) -> list[QualityResult]:
        """Return the run's data-quality results."""
        return load_part(self.store, QualityResult, self.run.key, "quality")

    def verdicts(self) -> list[Verdict]:
        """Return what comparing the run with earlier ones said."""
        return load_part(self.store, Verdict, self.run.key, PART)

    def verdict(self) -> Verdict | None:
        """Return the verdict on the run as a whole; None when it was not compared."""
        return next((v for v in self.verdicts() if v.subject_kind == RUN), None)

    def quarantined(self) -> list[Quarantine]:
        """Return every row that broke its contract."""
        parts = [*self._parts(), *map(judged_part, self.run.checks)]
        return [r for part in parts for r in load_part(self.store, Quarantine, self.run.key, part)]

    def counts(self) -> dict[str, int]:
        """Return rows landed per table by the checks of the run."""
        counts: dict[str, int] = {}
        for name in self.run.checks:
            tables: tuple[type[Row], ...] = (*registry.check(name).tables, Finding, Coverage)
            for row_type, part in product(tables, registry.entry(name).parts):
                n = arrow.count(self.store, landing.table_key(row_type, self.run.key, part))
                counts[row_type.TABLE] = counts.get(row_type.TABLE, 0) + n
        counts[Quarantine.TABLE] = len(self.quarantined())
        return counts

    def _parts(self) -> list[str]:
        return [part for name in self.run.checks for part in registry.entry(name).parts]


def report_data(store: ObjectStore, site: Site, run: RunDocument) -> ReportData:
    """Gather what the page of a concluded run shows."""
    parts = Landed(store, run)
    findings = parts.of(Finding)
    changes: list[Change] = []
    resolved: list[Finding] = []
    compared: list[datetime] = []
    evidence: dict[tuple[str, str], StoredEvidence] = {}
    for name in run.checks:
        check = registry.check(name)
        covered = [c for c in parts.of(Coverage) if c.check == name]
        before = previous(store, run.key, check, {c.unit for c in covered if c.unit_kind != "pair"})
        compared += before.at.values()
        judged = {c.unit for c in covered if c.state == CoverageState.JUDGED}
        if Fact in check.tables:
            now = load_part(store, Fact, run.key, name)
            changes += fact_changes(now, still_known(before.rows.of(Fact), now, judged), before.seen_at(Fact))
        still = {f.finding for f in findings}
        resolved += [
            f for f in before.findings.values() if f.finding not in still and f.unit.split("/", 1)[0] in judged
        ]
        for part in registry.entry(name).parts:
            for stored in evidence_store.read_manifest(store, run.key, part) or ():
                evidence[(name, stored.unit)] = stored
    record = load_part(store, Run, run.key, "run")[0]
    return ReportData(
        site=site,
        key=run.key,
        record=record,
        findings=tuple(answer.urgent_first(findings)),
        coverage=tuple(parts.of(Coverage)),
        changes=tuple(changes),
        drift=tuple(parts.of(ConfigDrift)),
        resolved=tuple(f for f in resolved if f.severity != Severity.INFO),
        links=tuple(parts.of(Link)),
        switch_ports=tuple(parts.of(SwitchPort)),
        quality=tuple(parts.quality()),
        quarantine=tuple(parts.quarantined()),
        rows_by_table=parts.counts(),
        past=tuple(_past(store, run.key)),
        previous_at=max(compared, default=None),
        evidence=evidence,
        evidence_shown=_shown(store, findings, evidence),
        collectives=collective_results(store, run),
        object_store=object_store_results(store, run),
        models=model_results(store, run),
        elastic=elastic_results(store, run),
        verdict=verdict_results(store, run),
    )


def still_known(before: Sequence[Fact], now: Sequence[Fact], judged: Collection[str]) -> list[Fact]:
    """Return the earlier facts that can be compared with those of now.

    A fact that is gone is a change on a unit that was judged in full. On any other it was not read: no change.
    """
    read = {(f.unit, f.attribute) for f in now}
    return [f for f in before if f.unit.split("/", 1)[0] in judged or (f.unit, f.attribute) in read]


def _shown(
    store: ObjectStore, findings: Sequence[Finding], evidence: dict[tuple[str, str], StoredEvidence]
) -> tuple[UnitEvidence, ...]:
    wanted: dict[tuple[str, str], None] = {}
    for f in answer.urgent_first(findings):
        pair = (f.check, asked(f))
        if pair in evidence and len(wanted) < EVIDENCE_SHOWN:
            wanted[pair] = None
    return tuple(evidence_store.get_evidence(store, evidence[p]) for p in wanted)


def _past(store: ObjectStore, key: RunKey) -> list[PastRun]:
    newest = islice(reading.concluded(store, key.site, before=key.started_at), PAST_RUNS_SHOWN)
    return [
        PastRun(
            p.run, p.started_at, p.row.answer, p.row.findings_critical, p.row.findings_warning, p.row.coverage_ratio
        )
        for p in newest
    ][::-1]
