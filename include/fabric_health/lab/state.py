"""State of the lab: which faults are active. One JSON file, read by the lab's server on every answer."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path


@dataclass(frozen=True)
class Fault:
    """One active fault: ``kind`` from ``lab.faults``, the ``unit`` it sits on, an optional ``value``, when it began.

    Values by kind are given in ``lab.faults.CATALOGUE``.
    """

    kind: str
    unit: str
    value: str | None
    since: datetime


@dataclass(frozen=True)
class LabState:
    """Active faults, and the moment the lab came up (uptimes and counters grow from there)."""

    up_since: datetime
    faults: tuple[Fault, ...] = ()

    def on(self, unit: str, kind: str) -> Fault | None:
        """Return the active fault of ``kind`` on exactly ``unit``, if any."""
        return next((f for f in self.faults if f.unit == unit and f.kind == kind), None)

    def under(self, name: str) -> tuple[Fault, ...]:
        """Return active faults on the node or switch ``name`` or any part of it (``name/...``)."""
        return tuple(f for f in self.faults if f.unit == name or f.unit.startswith(name + "/"))


def load(path: Path) -> LabState:
    """Read the state file. Raises FileNotFoundError when the lab was never started."""
    raw = json.loads(path.read_text(encoding="utf-8"))
    faults = tuple(Fault(f["kind"], f["unit"], f["value"], datetime.fromisoformat(f["since"])) for f in raw["faults"])
    return LabState(datetime.fromisoformat(raw["up_since"]), faults)


def save(path: Path, state: LabState) -> None:
    """Write the state file atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    body = {
        "up_since": state.up_since.isoformat(),
        "faults": [{**asdict(f), "since": f.since.isoformat()} for f in state.faults],
    }
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    temporary.write_text(json.dumps(body, indent=1), encoding="utf-8")
    temporary.replace(path)


def now() -> datetime:
    """Return the current time, UTC, to the second."""
    return datetime.now(UTC).replace(microsecond=0)
