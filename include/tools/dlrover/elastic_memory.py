"""The most memory that the processes of a job held together."""

from __future__ import annotations

import time
from dataclasses import dataclass

import psutil
from elastic_tidy import Traces

LOOK_EVERY_S = 2.0


@dataclass
class Peak:
    """The largest sum of the processes' proportional set sizes (what they share counts once), in MiB."""

    traces: Traces
    mib: float = 0.0
    _looked: float = 0.0

    def look(self) -> None:
        """Measure, unless that was done a moment ago."""
        if time.monotonic() - self._looked < LOOK_EVERY_S:
            return
        self._looked = time.monotonic()
        total = 0
        for process in self.traces.processes():
            try:
                total += process.memory_full_info().pss
            except (psutil.Error, OSError, AttributeError):
                continue
        self.mib = max(self.mib, round(total / 2**20, 1))
