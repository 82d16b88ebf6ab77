"""What identifies a run: everything an object key may be made of."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta


@dataclass(frozen=True)
class RunKey:
    """A run of a site. ``run`` is its name in keys and tables; ``started_at`` (UTC) orders runs."""

    site: str
    run: str
    started_at: datetime
    origin: str

    @property
    def week(self) -> str:
        """Monday of the run's week, UTC, as ``YYYY-MM-DD``: the partition key."""
        day = self.started_at.astimezone(UTC).date()
        return (day - timedelta(days=day.weekday())).isoformat()


def run_name(dag: str, scheduler_run_id: str, started_at: datetime) -> str:
    """Return the run's name, a pure function of its arguments: ``weekly_fabric_health-20261130T030000-1a2b3c4d``.

    The hash keeps two scheduler runs apart that start in the same second.
    """
    stem = re.sub(r"[^a-z0-9_]+", "_", dag.lower()).strip("_")[:48]
    stamp = started_at.astimezone(UTC).strftime("%Y%m%dT%H%M%S")
    digest = hashlib.sha256(f"{dag}\x1f{scheduler_run_id}".encode()).hexdigest()[:8]
    return f"{stem}-{stamp}-{digest}"
