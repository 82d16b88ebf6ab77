"""What findings are to each other and to what somebody expects: the last word on each before it lands.

Acknowledged first, since an expected change explains no loss; then explained by the other end of a cable; then, of
units that got slower, by what an audit or isolating says of them or of what stands in front of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from fabric_health.compared import PART
from fabric_health.datasets import reading
from fabric_health.datasets.store import ObjectStore
from fabric_health.datasets.tables import Finding
from fabric_health.datasets.verdict_tables import Verdict
from fabric_health.explain import link_explanations
from fabric_health.history import load_part
from fabric_health.run_document import RunDocument
from fabric_health.site import Site
from fabric_health.topology import reach_of
from fabric_health.verdict.downstream import REGRESSION, findings_behind
from fabric_health.verdict.expected import acknowledge
from fabric_health.verdict.outcome import Outcome


def linked(store: ObjectStore, site: Site, run: RunDocument, findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings of a run in their order, with ``acknowledged_by`` and ``explained_by`` set."""
    on = run.key.started_at.astimezone(UTC).date()
    found = link_explanations(acknowledge(findings, site.expected_changes, on), site)
    slower = [f for f in found if f.rule == REGRESSION]
    if not slower:
        return found
    verdicts = load_part(store, Verdict, run.key, PART)
    sound = {v.subject for v in verdicts if v.outcome in (Outcome.PASS, Outcome.IMPROVED)}
    causes = findings_behind(found, reach_of(site), sound=sound, good_at=_good_at(store, run, slower))
    return [replace(f, explained_by=causes[f.finding]) if f.finding in causes else f for f in found]


def _good_at(store: ObjectStore, run: RunDocument, slower: Sequence[Finding]) -> dict[str, datetime]:
    """Return, per finding that a unit got slower, the start of the last run of its check before that was first seen."""
    left = {f.finding: f for f in slower}
    out: dict[str, datetime] = {}
    for past in reading.concluded(store, run.key.site, before=run.key.started_at):
        for name, f in list(left.items()):
            if f.check in past.checks and past.started_at < (f.first_seen or run.key.started_at):
                out[name] = past.started_at
                del left[name]
        if not left:
            break
    return out
