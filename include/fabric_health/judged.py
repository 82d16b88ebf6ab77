"""What judging gave, kept between the stages of a run until findings are explained and landed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from fabric_health.datasets.store import ObjectMissing, ObjectStore
from fabric_health.datasets.tables import Finding
from fabric_health.run_document import RunDocument


def findings_key(run: RunDocument, check: str) -> str:
    """Return the key under which a check's findings wait within a run."""
    return f"runs/site={run.key.site}/week={run.key.week}/{run.key.run}/{check}.findings.json"


def write_findings(store: ObjectStore, run: RunDocument, check: str, findings: Sequence[Finding]) -> None:
    """Keep the findings of a check as JSON, in their order."""
    body = json.dumps([_plain(f) for f in findings], indent=1)
    store.put(findings_key(run, check), body.encode(), "application/json")


def read_findings(store: ObjectStore, run: RunDocument, check: str) -> list[Finding] | None:
    """Return the findings of a check, None when it has not been judged."""
    try:
        raw = json.loads(store.get(findings_key(run, check)))
    except ObjectMissing:
        return None
    return [_finding(f) for f in raw]


def _plain(f: Finding) -> dict[str, Any]:
    return {**asdict(f), "first_seen": f.first_seen.isoformat() if f.first_seen else None}


def _finding(raw: dict[str, Any]) -> Finding:
    return Finding(**{**raw, "first_seen": datetime.fromisoformat(raw["first_seen"]) if raw["first_seen"] else None})
