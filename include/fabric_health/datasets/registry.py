"""Every table: those that all checks share, then those of each registered check."""

from __future__ import annotations

from functools import lru_cache

from fabric_health.checks import registry as checks
from fabric_health.datasets.contracts import Row
from fabric_health.datasets.tables import Coverage, Fact, Finding, QualityResult, Quarantine, Run

SHARED: tuple[type[Row], ...] = (Run, Coverage, Finding, Fact, QualityResult, Quarantine)


@lru_cache(maxsize=1)
def all_tables() -> tuple[type[Row], ...]:
    """Return every row type that is landed, each once."""
    of_checks = (row_type for entry in checks.ENTRIES for row_type in checks.check(entry.name).tables)
    return tuple(dict.fromkeys((*SHARED, *of_checks)))
