"""Every table: those that all checks share, then those of each registered check."""

from __future__ import annotations

from functools import lru_cache

from fabric_health.checks import registry as checks
from fabric_health.datasets.contracts import Row
from fabric_health.datasets.tables import Coverage, Fact, Finding, QualityResult, Quarantine, Run
from fabric_health.datasets.verdict_tables import Attribution, Baseline, Verdict

SHARED: tuple[type[Row], ...] = (
    Run, Coverage, Finding, Fact, Verdict, Attribution, Baseline, QualityResult, Quarantine,
)  # fmt: skip


@lru_cache(maxsize=1)
def all_tables() -> tuple[type[Row], ...]:
    """Return every row type that is landed, each once."""
    of_checks = (row_type for entry in checks.ENTRIES for row_type in checks.check(entry.name).tables)
    return tuple(dict.fromkeys((*SHARED, *of_checks)))
