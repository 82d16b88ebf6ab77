"""A concluded run as the stages leave it in a store, without anything having been asked or measured."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from fabric_health.compared import PART, Whole, run_row
from fabric_health.datasets import landing
from fabric_health.datasets.run import RunKey, run_name
from fabric_health.datasets.store import ObjectStore
from fabric_health.datasets.tables import Finding, Run, Severity, finding
from fabric_health.maintenance import Change
from fabric_health.run_document import RunDocument, document_key, encode
from fabric_health.verdict.outcome import Outcome

START = datetime(2026, 11, 30, 3, tzinfo=UTC)
CHECK = "driver_firmware"


def document(dag: str = "weekly_fabric_health", change: Change | None = None) -> RunDocument:
    key = RunKey("lab", run_name(dag, "manual__1", START), START, "lab")
    return RunDocument(key, dag, "manual__1", (CHECK,), ("gpu-001",), "0" * 64, "1", change)


def reference(run: RunDocument) -> str:
    return document_key(run.key.site, run.key.week, run.key.run)


def slow(unit: str, summary: str, metric: str = "busbw_gbps") -> Finding:
    return finding(
        check=CHECK,
        rule="r",
        unit=unit,
        unit_kind="node",
        metric=metric,
        severity=Severity.WARNING,
        summary=summary,
    )


def conclude(
    store: ObjectStore,
    run: RunDocument,
    answer: str = "HEALTHY",
    headline: str = "Nothing to look at: 1 units judged, every rule met.",
    verdict: Whole | None = None,
    findings: Sequence[Finding] = (),
    explanation: str | None = None,
) -> RunDocument:
    """Write the run's document and what its stages would have landed."""
    store.put(reference(run), encode(run), "application/json")
    record = Run(run.dag, "1", START, CHECK, 1, 0, answer, headline, 1.0, 0, len(findings), 1, 0, "0" * 64, "1")
    landing.land(store, run.key, "run", [(record, None)], (Run,))
    landing.land(store, run.key, CHECK, [(f, None) for f in findings], (Finding,))
    if verdict:
        row = run_row(verdict, "earlier", explanation=explanation)
        landing.land(store, run.key, PART, [(row, None)], (type(row),))
    return run


REGRESSED = Whole(Outcome.REGRESSED, "gpu-001 slower than in the last accepted run; worst: 9.4% (7.0% to 11.8%)")
PASS = Whole(Outcome.PASS, "no loss of 3% or more in 4 of 4 comparisons")
