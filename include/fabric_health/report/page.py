"""Renders the page of a run and the pages of the evidence behind it.

Every value is escaped by the template engine; what comes from devices is text, whatever it holds.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from fabric_health import answer
from fabric_health.changes import Change
from fabric_health.checks import registry
from fabric_health.datasets.tables import Coverage, CoverageState, FindingKind, Severity
from fabric_health.evidence import StoredEvidence, UnitEvidence
from fabric_health.report import fabric_map, plots
from fabric_health.report.data import PastRun, ReportData

CHANGES_SHOWN = 100
DRIFT_SHOWN = 100
STREAM_SHOWN = 200_000
_UNSAFE = re.compile(r"[^\w.@+-]")


def render(data: ReportData) -> dict[str, bytes]:
    """Return the files of a report by relative name: ``index.html`` and ``evidence/<check>/<unit>.html``."""
    env = _environment()
    shown = {(e.check, e.unit): evidence_file(e.check, e.unit) for e in data.evidence_shown}
    pages = {"index.html": env.get_template("page.html.j2").render(_page(data, shown))}
    template = env.get_template("evidence.html.j2")
    for e in data.evidence_shown:
        stored = data.evidence[(e.check, e.unit)]
        pages[shown[(e.check, e.unit)]] = template.render(_evidence(e, stored, data))
    return {name: text.encode("utf-8", "backslashreplace") for name, text in pages.items()}


def evidence_file(check: str, unit: str) -> str:
    """Return the relative name of a unit's evidence page; a hash keeps names apart that only differ in odd signs."""
    safe = _UNSAFE.sub("_", unit)
    if safe != unit or safe.startswith("."):
        safe = f"{safe.lstrip('.')}-{hashlib.sha256(unit.encode()).hexdigest()[:8]}"
    return f"evidence/{check}/{safe}.html"


@dataclass(frozen=True)
class ChangeGroup:
    """Equal changes of several units, shown as one line."""

    attribute: str
    before: str
    after: str
    units: tuple[str, ...]


@dataclass(frozen=True)
class CoverageLine:
    """Coverage of one check: counts, and the units that were not fully judged with the reason."""

    check: str
    title: str
    judged: int
    total: int
    left: tuple[Coverage, ...]


def _environment() -> Environment:
    env = Environment(
        loader=PackageLoader("fabric_health.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    env.filters["utc"] = _utc
    env.filters["day"] = lambda t: t.astimezone(UTC).strftime("%d %b %Y")
    env.filters["visible"] = visible
    env.filters["count_of"] = lambda n, noun: f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"
    return env


def _page(data: ReportData, shown: dict[tuple[str, str], str]) -> dict[str, Any]:
    look = answer.news(data.findings)
    ids = {f.finding: f for f in data.findings}
    grid_head, grid = fabric_map.rail_grid(data)
    this = PastRun(
        data.key.run,
        data.record.started_at,
        data.record.answer,
        data.record.findings_critical,
        data.record.findings_warning,
        data.record.coverage_ratio,
    )
    return {
        "data": data,
        "record": data.record,
        "css": Markup(files("fabric_health.report").joinpath("templates/page.css").read_text()),  # noqa: S704  # ours
        "look": look,
        "explained": [(f, ids.get(f.explained_by or "")) for f in data.findings if f.explained_by],
        "info": [f for f in data.findings if f.severity == Severity.INFO and not f.explained_by],
        "evidence_of": lambda f: shown.get((f.check, f.unit.split("/", 1)[0])),
        "command_anchor": lambda f: f"#{anchor(f.command)}" if f.command else "",
        "new": {f.finding for f in look if f.first_seen == data.record.started_at},
        "changes": _grouped(data.changes)[:CHANGES_SHOWN],
        "changes_total": len(data.changes),
        "changed_units": len({c.unit for c in data.changes}),
        "golden_drift": [d for d in data.drift if d.against == "golden"][:DRIFT_SHOWN],
        "golden_total": sum(d.against == "golden" for d in data.drift),
        "config_changes": [d for d in data.drift if d.against == "previous"][:DRIFT_SHOWN],
        "config_changes_total": sum(d.against == "previous" for d in data.drift),
        "grid_head": grid_head,
        "grid": grid,
        "port_grid": fabric_map.port_grid(data),
        "trend": Markup(plots.findings_over_runs([*data.past, this])),  # noqa: S704  # made by us, from numbers
        "coverage": _coverage(data),
        "quality_failed": [q for q in data.quality if not q.success],
        "quality_met": sum(q.success for q in data.quality),
        "quarantine": data.quarantine[:20],
        "units_with_findings": len({f.unit.split("/", 1)[0] for f in look}),
        "units_in_scope": len({c.unit for c in data.coverage}),
        "deviation": FindingKind.DEVIATION,
    }


def _grouped(changes: Sequence[Change]) -> list[ChangeGroup]:
    groups: dict[tuple[str, str, str], list[str]] = {}
    for c in changes:
        groups.setdefault((c.attribute, c.before or "(none)", c.after or "(none)"), []).append(c.unit)
    return [ChangeGroup(a, b, n, tuple(units)) for (a, b, n), units in groups.items()]


def _coverage(data: ReportData) -> list[CoverageLine]:
    lines = []
    for name in data.record.checks.split(","):
        rows = [c for c in data.coverage if c.check == name]
        left = tuple(c for c in rows if c.state != CoverageState.JUDGED)
        lines.append(CoverageLine(name, registry.entry(name).title, len(rows) - len(left), len(rows), left))
    return lines


def _evidence(e: UnitEvidence, stored: StoredEvidence, data: ReportData) -> dict[str, Any]:
    return {
        "e": e,
        "stored": stored,
        "data": data,
        "css": Markup(files("fabric_health.report").joinpath("templates/page.css").read_text()),  # noqa: S704  # ours
        "results": [(anchor(r.name), r, _cut(r.stdout), _cut(r.stderr)) for r in e.results],
        "up": "../" * 2 + "index.html",
    }


def anchor(command: str | None) -> str:
    """Return the fragment name of a command on its evidence page."""
    return "c-" + _UNSAFE.sub("-", command or "")


def visible(text: str) -> str:
    """Return device text with control characters made visible, so that none can act on a terminal or a page."""
    return "".join(c if c in "\n\t" or c.isprintable() else f"\\x{ord(c):02x}" for c in text)


def _cut(text: str) -> str:
    if len(text) <= STREAM_SHOWN:
        return visible(text)
    return visible(text[:STREAM_SHOWN]) + f"\n[cut here: {len(text):,} characters in all; the stored evidence is whole]"


def _utc(moment: datetime | None) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC") if moment else "unknown"
