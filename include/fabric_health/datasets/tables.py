"""Tables that every check shares: facts, findings, coverage, runs, quality results, quarantine."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import ClassVar

from fabric_health.datasets.contracts import Row, column, optional


class Severity(StrEnum):
    """How much a finding matters. ``INFO`` never changes the answer of a run."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"


class FindingKind(StrEnum):
    """``DEVIATION``: judged, and not as expected. ``NOT_JUDGED``: could not be judged, so never a pass."""

    DEVIATION = "deviation"
    NOT_JUDGED = "not_judged"


class FactState(StrEnum):
    """A cell is a value, unsupported here (tool or hardware says so), or an error; never a silent zero."""

    VALUE = "value"
    UNSUPPORTED = "unsupported"
    ERROR = "error"


@dataclass(frozen=True)
class Fact(Row):
    TABLE: ClassVar[str] = "facts"
    KEY: ClassVar[tuple[str, ...]] = ("run", "unit", "attribute")
    DESCRIPTION: ClassVar[str] = "Slowly changing attributes of units, one row per unit, attribute and run."

    unit: str = column("unit id, e.g. `gpu-001`, `gpu-001/mlx5_3`, `gpu-001/gpu0`")
    unit_kind: str = column("`node`, `gpu`, `nic`, `drive`, `switch`, `port`")
    attribute: str = column("name of the attribute, e.g. `driver_version`; its unit, if any, is in the name")
    state: str = column("`value`, `unsupported` or `error`")
    value: str | None = optional("the value as text; null unless state is `value`")
    detail: str | None = optional("why there is no value: what the tool said")
    command: str | None = optional("command of the evidence that the value was read from")


@dataclass(frozen=True)
class Finding(Row):
    TABLE: ClassVar[str] = "findings"
    KEY: ClassVar[tuple[str, ...]] = ("run", "finding")
    DESCRIPTION: ClassVar[str] = "Judgements on one unit and one rule, with expected, actual, evidence and action."

    finding: str = column("stable id of (check, rule, unit, metric): the same trouble has the same id in every run")
    check: str = column("check that judged")
    rule: str = column("rule that was broken, e.g. `driver_equals_expected`")
    unit: str = column("the unit at fault")
    unit_kind: str = column("kind of the unit")
    metric: str = column("attribute, counter or config line concerned")
    severity: str = column("`info`, `warning` or `critical`")
    kind: str = column("`deviation` (judged and wrong) or `not_judged` (could not be judged)")
    summary: str = column("one sentence for a person")
    expected: str | None = optional("what should be")
    actual: str | None = optional("what is")
    action: str | None = optional("what to do about it")
    source: str | None = optional("where the rule or threshold comes from")
    command: str | None = optional("command of the evidence that shows it")
    first_seen: datetime | None = optional("start of the first run of the unbroken series that shows it, UTC")
    explained_by: str | None = optional("id of the finding that explains this one")
    evidence_unit: str | None = optional("what was asked for the evidence, where it is not the unit: a launch")
    acknowledged_by: str | None = optional(
        "who expects it, until when and why (site file, `expected_changes`); such a finding is no news"
    )
    acknowledgement_expired: str | None = optional("the same of an entry that has expired: the finding is news again")


def finding(
    *,
    check: str,
    rule: str,
    unit: str,
    unit_kind: str,
    metric: str,
    severity: Severity,
    summary: str,
    kind: FindingKind = FindingKind.DEVIATION,
    expected: str | None = None,
    actual: str | None = None,
    action: str | None = None,
    source: str | None = None,
    command: str | None = None,
    explained_by: str | None = None,
    evidence_unit: str | None = None,
) -> Finding:
    """Make a finding with its stable id; the only way checks make them. ``first_seen`` is filled by the pipeline."""
    identity = "\x1f".join((check, rule, unit, metric))
    return Finding(
        finding=hashlib.sha256(identity.encode()).hexdigest()[:16],
        check=check,
        rule=rule,
        unit=unit,
        unit_kind=unit_kind,
        metric=metric,
        severity=severity.value,
        kind=kind.value,
        summary=summary,
        expected=expected,
        actual=actual,
        action=action,
        source=source,
        command=command,
        explained_by=explained_by,
        evidence_unit=evidence_unit,
    )


def asked(f: Finding) -> str:
    """Return the node, switch or launch whose evidence shows a finding."""
    return f.evidence_unit or f.unit.split("/", 1)[0]


class CoverageState(StrEnum):
    """How far a unit was judged by a check in a run."""

    JUDGED = "judged"
    PARTIAL = "partial"
    NOT_JUDGED = "not_judged"


@dataclass(frozen=True)
class Coverage(Row):
    TABLE: ClassVar[str] = "coverage"
    KEY: ClassVar[tuple[str, ...]] = ("run", "check", "unit")
    DESCRIPTION: ClassVar[str] = "Which units a run was asked to judge by which check, and whether it could."

    check: str = column("check")
    unit: str = column("unit in scope")
    unit_kind: str = column("kind of the unit")
    state: str = column("`judged`, `partial` or `not_judged`")
    reason: str | None = optional("why it was not, or only partly, judged")


class Answer(StrEnum):
    """The answer of a run, in the words of the exit codes: 0 healthy, 1 findings, 2 could not judge."""

    HEALTHY = "HEALTHY"
    FINDINGS = "FINDINGS"
    NOT_JUDGED = "NOT_JUDGED"


@dataclass(frozen=True)
class Run(Row):
    TABLE: ClassVar[str] = "runs"
    KEY: ClassVar[tuple[str, ...]] = ("run",)
    DESCRIPTION: ClassVar[str] = "One row per concluded run."

    dag: str = column("DAG or command that ran it")
    scheduler_run_id: str = column("run id in the scheduler, or `cli`")
    started_at: datetime = column("start, UTC")
    checks: str = column("checks that ran, comma separated")
    nodes_in_scope: int = column("nodes in scope", unit="nodes", minimum=0)
    switches_in_scope: int = column("switches in scope", unit="switches", minimum=0)
    answer: str = column("`HEALTHY`, `FINDINGS` or `NOT_JUDGED`")
    headline: str = column("the answer in one sentence")
    coverage_ratio: float = column("units judged / units in scope, over all checks", unit="1", minimum=0, maximum=1)
    findings_critical: int = column("critical findings", unit="findings", minimum=0)
    findings_warning: int = column("warnings", unit="findings", minimum=0)
    rows_landed: int = column("rows landed in all tables", unit="rows", minimum=0)
    rows_quarantined: int = column("rows that broke their contract", unit="rows", minimum=0)
    site_sha256: str = column("hash of the site file with its golden configs, as used")
    version: str = column("version of fabric-health")
    verdict: str | None = optional("verdict of the comparison with earlier runs; null when nothing was compared")
    verdict_reason: str | None = optional("why, in one sentence")
    ticket: str | None = optional("change ticket, where the run judges a declared change")


@dataclass(frozen=True)
class QualityResult(Row):
    TABLE: ClassVar[str] = "quality_results"
    KEY: ClassVar[tuple[str, ...]] = ("run", "suite", "expectation", "subject")
    DESCRIPTION: ClassVar[str] = "Outcome of each data-quality expectation on the trend tables."

    suite: str = column("suite, named after its table")
    expectation: str = column("expectation type, e.g. `expect_column_values_to_be_between`")
    subject: str = column("column or rule the expectation is about, with its parameters")
    severity: str = column("`info`, `warning` or `critical`")
    success: bool = column("whether the data met it")
    description: str = column("the expectation in words")
    observed: str | None = optional("what was observed")
    rows_checked: int | None = optional("rows looked at", unit="rows", minimum=0)
    rows_unexpected: int | None = optional("rows that did not meet it", unit="rows", minimum=0)


@dataclass(frozen=True)
class Quarantine(Row):
    TABLE: ClassVar[str] = "quarantine"
    KEY: ClassVar[tuple[str, ...]] = ("run", "check", "target_table", "part")
    DESCRIPTION: ClassVar[str] = "Rows that broke the contract of their table, kept whole with the reason."

    check: str = column("check that produced the row")
    target_table: str = column("table it was meant for")
    part: int = column("number of the row within (run, check, table)", minimum=0)
    reason: str = column("which column broke which rule")
    row_json: str = column("the row as JSON; a text beyond 64 KiB is cut there, and says so")
