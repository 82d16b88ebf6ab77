"""What the rules of this check share: where they come from, how they make a finding, what they know of a launch."""

from __future__ import annotations

from fabric_health.checks.elastic_training.launches import FAULTS_FILE, TRAINING_FILE, UNIT, UNIT_KIND, injects_faults
from fabric_health.checks.elastic_training.tables import ElasticRun
from fabric_health.checks.untrusted import clip
from fabric_health.datasets.tables import Finding, FindingKind, Severity, finding

CHECK = "elastic_training"
AGENT = (
    "https://github.com/intelligent-machine-learning/dlrover/blob/master/dlrover/python/elastic_agent/torch/training.py"
)
MASTER = (
    "https://github.com/intelligent-machine-learning/dlrover/blob/master/dlrover/python/master/elastic_training/"
    "rdzv_manager.py"
)
OPERATOR = (
    "https://github.com/intelligent-machine-learning/dlrover/blob/master/docs/design/elastic-training-operator.md"
)
SITE_FILE = "site file"
# Without these it is not known what training did, so that nothing follows from what they do not say.
_OF_TRAINING = (TRAINING_FILE, FAULTS_FILE, "output of workers")


def deviation(
    rule: str,
    metric: str,
    severity: Severity,
    summary: str,
    *,
    expected: str,
    actual: str,
    action: str,
    source: str,
    launch: str | None,
    unit: str = UNIT,
    unit_kind: str = UNIT_KIND,
    explained_by: str | None = None,
) -> Finding:
    """Make a finding of this check; texts that came from the job are cut to one line."""
    return finding(
        check=CHECK,
        rule=rule,
        unit=unit,
        unit_kind=unit_kind,
        metric=metric,
        severity=severity,
        summary=clip(summary, 500),
        expected=clip(expected),
        actual=clip(actual),
        action=action,
        source=source,
        command="job" if launch else None,
        explained_by=explained_by,
        evidence_unit=launch,
    )


def not_judged(
    rule: str,
    metric: str,
    summary: str,
    *,
    action: str,
    launch: str | None,
    explained_by: str | None = None,
) -> Finding:
    """Make the finding that something could not be judged, which is never a pass."""
    return finding(
        check=CHECK,
        rule=rule,
        unit=UNIT,
        unit_kind=UNIT_KIND,
        metric=metric,
        severity=Severity.WARNING,
        kind=FindingKind.NOT_JUDGED,
        summary=clip(summary, 500),
        action=action,
        source=SITE_FILE,
        command="job" if launch else None,
        explained_by=explained_by,
        evidence_unit=launch,
    )


def workload(run: ElasticRun) -> str:
    """Return the launch's name without its repetition: what stays the same from run to run."""
    return run.launch.rpartition("-")[0] or run.launch


def trains(run: ElasticRun) -> bool:
    """Tell whether a launch trains and loses workers, rather than checks nodes alone."""
    return injects_faults(run.launch)


def training_known(run: ElasticRun) -> bool:
    """Tell whether the evidence shows all that training did: only then does its silence mean anything."""
    return run.problem is None and not any(name in (run.unread or "") for name in _OF_TRAINING)


def plural(number: int, what: str) -> str:
    """Return ``1 step``, ``2 steps``."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
