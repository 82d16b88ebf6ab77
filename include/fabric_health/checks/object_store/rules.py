"""What the rules of this check share: where they come from, and how they make a finding."""

from __future__ import annotations

from fabric_health.checks.untrusted import clip
from fabric_health.datasets.tables import Finding, FindingKind, Severity, finding

CHECK = "object_store"
WARP = "https://github.com/minio/warp/blob/master/README.md"
MC_ADMIN_INFO = "https://github.com/minio/mc/blob/master/cmd/admin-info.go"
ERASURE = "https://github.com/minio/minio/blob/master/docs/distributed/README.md"
STORAGE_CLASS = "https://github.com/minio/minio/blob/master/docs/erasure/storage-class/README.md"
SITE_FILE = "site file"


def deviation(
    rule: str,
    unit: str,
    metric: str,
    severity: Severity,
    summary: str,
    *,
    expected: str,
    actual: str,
    action: str,
    source: str,
    unit_kind: str = "object_store",
) -> Finding:
    """Make a finding of this check; texts that came from the store are cut to one line."""
    return finding(
        check=CHECK,
        rule=rule,
        unit=unit,
        unit_kind=unit_kind,
        metric=metric,
        severity=severity,
        summary=clip(summary),
        expected=clip(expected),
        actual=clip(actual),
        action=action,
        source=source,
        command="job",
    )


def not_judged(
    rule: str, unit: str, metric: str, summary: str, *, unit_kind: str, action: str, explained_by: str | None = None
) -> Finding:
    """Make the finding that something could not be judged, which is never a pass."""
    return finding(
        check=CHECK,
        rule=rule,
        unit=unit,
        unit_kind=unit_kind,
        metric=metric,
        severity=Severity.WARNING,
        kind=FindingKind.NOT_JUDGED,
        summary=clip(summary),
        action=action,
        source=SITE_FILE,
        command="job",
        explained_by=explained_by,
    )
