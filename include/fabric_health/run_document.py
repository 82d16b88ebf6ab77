"""The document of a run: what it is, written once when it opens and read by every stage."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import datetime

from fabric_health.checks.check import Check
from fabric_health.datasets.run import RunKey
from fabric_health.maintenance import Change
from fabric_health.site import Fabric, Node, Site, Switch


@dataclass(frozen=True)
class RunDocument:
    """What a run is: its identity, its checks, its scope, the site it was opened on, and the change it is to judge.

    Without a ``change`` it is judged against the site's history.
    """

    key: RunKey
    dag: str
    scheduler_run_id: str
    checks: tuple[str, ...]
    scope: tuple[str, ...]
    site_sha256: str
    version: str
    change: Change | None = None

    def units(self, site: Site, check: Check) -> tuple[Node | Switch | Fabric, ...]:
        """Return the units of the scope that ``check`` looks at, in site order; fabrics are in every scope."""
        if check.fabrics is not None:
            return check.fabrics(site)
        wanted = set(self.scope)
        every: tuple[Node | Switch, ...] = site.nodes if check.unit_kind == "node" else site.switches
        return tuple(u for u in every if u.name in wanted)


def document_key(site: str, week: str, run: str) -> str:
    """Return the key of a run's document: the reference that stages pass on."""
    return f"runs/site={site}/week={week}/{run}/run.json"


def encode(document: RunDocument) -> bytes:
    """Return the document as canonical JSON."""
    body = {
        **asdict(document),
        "key": {**asdict(document.key), "started_at": document.key.started_at.isoformat()},
    }
    return json.dumps(body, indent=1, sort_keys=True).encode()


def decode(data: bytes) -> RunDocument:
    """Read what :func:`encode` wrote."""
    raw = json.loads(data)
    raw["key"]["started_at"] = datetime.fromisoformat(raw["key"]["started_at"])
    change = raw.pop("change", None)
    if change is not None:
        change = Change(**{**change, "touched": tuple(change["touched"]), "controls": tuple(change["controls"])})
    return RunDocument(
        key=RunKey(**raw.pop("key")),
        checks=tuple(raw.pop("checks")),
        scope=tuple(raw.pop("scope")),
        change=change,
        **raw,
    )
