"""Renders the page of a run and the pages of the evidence behind it.

Every value is escaped by the template engine; what comes from devices is text, whatever it holds. A page stays of a
size that a browser opens at once, whatever the size of the site: what is left out says where it is.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.resources import files
from typing import Any, Generic, TypeVar

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from fabric_health import answer
from fabric_health.checks import registry
from fabric_health.checks.switch_config.tables import ConfigDrift
from fabric_health.datasets.tables import Coverage, CoverageState, Finding, FindingKind, Severity, asked
from fabric_health.evidence import StoredEvidence, UnitEvidence
from fabric_health.report import (
    benchmark_plots,
    collectives,
    elastic,
    elastic_plot,
    fabric_map,
    models,
    models_plot,
    object_store,
    plots,
    text,
    verdict_plots,
    verdicts,
)
from fabric_health.report.data import PastRun, ReportData
from fabric_health.verdict.expected import expected_change

FINDINGS_OPEN = 50
FINDINGS_SHOWN = 200
CHANGES_SHOWN = 100
DRIFT_SHOWN = 100
QUALITY_SHOWN = 100
STREAM_SHOWN = 200_000
STREAMS_SHOWN = 2_000_000
T = TypeVar("T")
_UNSAFE = re.compile(r"[^A-Za-z0-9_.@+-]")


def render(data: ReportData) -> dict[str, bytes]:
    """Return the files of a report by relative name: ``index.html`` and ``evidence/<check>/<unit>.html``."""
    env = _environment()
    pages = {"index.html": env.get_template("page.html.j2").render(_page(data))}
    template = env.get_template("evidence.html.j2")
    for e in data.evidence_shown:
        stored = data.evidence[(e.check, e.unit)]
        pages[evidence_file(e.check, e.unit)] = template.render(_evidence(e, stored, data))
    return {name: page.encode("utf-8", "backslashreplace") for name, page in pages.items()}


def evidence_file(check: str, unit: str) -> str:
    """Return the relative name of a unit's evidence page."""
    return f"evidence/{check}/{_safe(unit)}.html"


def anchor(command: str) -> str:
    """Return the fragment name of a command on its evidence page."""
    return f"c-{_safe(command)}"


def _safe(name: str) -> str:
    """Return ``name`` fit for a file name and a fragment; a hash keeps names apart that only differ in odd signs."""
    safe = _UNSAFE.sub("_", name)[:100]
    if safe == name and not safe.startswith("."):
        return name
    return f"{safe.lstrip('.')}-{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"


@dataclass(frozen=True)
class Expectation:
    """Who expects a change, and why: ``told``, empty for nobody. ``holds``: it has not expired."""

    told: str = ""
    holds: bool = False


@dataclass(frozen=True)
class ChangeGroup:
    """Equal changes of several units, shown as one line."""

    attribute: str
    before: str
    after: str
    units: tuple[str, ...]
    expected: Expectation


@dataclass(frozen=True)
class ConfigChange:
    """A config line that changed."""

    line: ConfigDrift
    expected: Expectation


@dataclass(frozen=True)
class CoverageLine:
    """Coverage of one check: counts, and the units that were not fully judged with the reason."""

    check: str
    title: str
    judged: int
    total: int
    left: tuple[Coverage, ...]


@dataclass(frozen=True)
class Explained:
    """A finding that another one explains. ``linked``: the cause is on the page too."""

    finding: Finding
    cause: Finding | None
    linked: bool


def _environment() -> Environment:
    env = Environment(
        loader=PackageLoader("fabric_health.report"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=text.finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    env.filters["utc"] = _utc
    env.filters["day"] = lambda t: t.astimezone(UTC).strftime("%d %b %Y")
    env.filters["block"] = text.block
    env.filters["count_of"] = lambda n, noun: f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"
    env.filters["launches"] = lambda n: "1 launch" if n == 1 else f"{n:,} launches"
    env.filters["size"] = text.size
    env.filters["percent"] = text.percent
    env.filters["figure"] = text.figure
    return env


def _css() -> Markup:
    return Markup(files("fabric_health.report").joinpath("templates/page.css").read_text())  # noqa: S704  # ours


def _page(data: ReportData) -> dict[str, Any]:
    look = answer.news(data.findings)
    by_id = {f.finding: f for f in data.findings}
    explained = [f for f in data.findings if f.explained_by]
    info = [f for f in data.findings if f.severity == Severity.INFO and not f.explained_by]
    expected = answer.acknowledged(data.findings)
    shown = [*look[:FINDINGS_SHOWN], *expected[:FINDINGS_SHOWN], *explained[:FINDINGS_SHOWN]]
    anchors = {f.finding for f in (*shown, *info[:FINDINGS_SHOWN])}
    scope = {c.unit for c in data.coverage}
    drift = {against: [d for d in data.drift if d.against == against] for against in ("golden", "previous")}
    return {
        "data": data,
        "record": data.record,
        "css": _css(),
        "look": look,
        "explained": [
            Explained(f, by_id.get(f.explained_by or ""), f.explained_by in anchors) for f in explained[:FINDINGS_SHOWN]
        ],
        "explained_total": len(explained),
        "acknowledged": expected,
        "info": info,
        "open": FINDINGS_OPEN,
        "limit": FINDINGS_SHOWN,
        "evidence_link": _evidence_links(data),
        "new": {f.finding for f in shown if f.first_seen == data.record.started_at},
        "deviation": FindingKind.DEVIATION,
        "units_with_findings": len({f.unit.split("/", 1)[0] for f in look} & scope),
        "units_in_scope": len(scope),
        "grid": fabric_map.rail_grid(data, {f.finding for f in shown}),
        "port_grid": fabric_map.port_grid(data, {f.finding for f in shown}),
        "golden_drift": drift["golden"][:DRIFT_SHOWN],
        "golden_total": len(drift["golden"]),
        "trend": Markup(plots.findings_over_runs([*data.past, _this(data)])),  # noqa: S704  # made by us, from numbers
        "coverage": _coverage(data),
        "quality_failed": [q for q in data.quality if not q.success][:QUALITY_SHOWN],
        "quality_met": sum(q.success for q in data.quality),
        "quarantine": data.quarantine[:20],
        **_changes(data, drift["previous"]),
        **_benchmarks(data, frozenset(anchors)),
        **_verdict(data, frozenset(anchors)),
    }


@dataclass(frozen=True)
class Drawn(Generic[T]):
    """Results with their plot; ``before``: when the earlier results beside them were measured, ascending."""

    of: T
    plot: Markup
    before: tuple[datetime, ...]


def _verdict(data: ReportData, linked: frozenset[str]) -> dict[str, Any]:
    found = verdicts.section(data, linked)
    forest, trends = (verdict_plots.forest(found.plotted), verdict_plots.over_runs(found.trends)) if found else ("", "")
    return {
        "verdict": found,
        "verdict_badge": found.badge if found else verdicts.Badge(answer.NO_VERDICT),
        "forest": Markup(forest),  # noqa: S704  # made by us
        "trends": Markup(trends),  # noqa: S704  # made by us
        "kinds": verdicts.KINDS,
        "limits": {
            "moved": verdicts.MOVED_SHOWN,
            "open": verdicts.OPEN_SHOWN,
            "passed": verdicts.PASSED_SHOWN,
            "differing": verdicts.DIFFERING_SHOWN,
            "changes": verdicts.CHANGES_SHOWN,
        },
    }


def _when(results: Sequence[collectives.Curve | object_store.Line]) -> tuple[datetime, ...]:
    return tuple(sorted({r.before_at for r in results if r.before and r.before_at}))


def _benchmarks(data: ReportData, linked: frozenset[str]) -> dict[str, Any]:
    engines, stores = collectives.engines(data, linked), object_store.stores(data)
    curves = [Markup(benchmark_plots.busbw_curves(e.drawn)) for e in engines]  # noqa: S704  # made by us
    points = [Markup(benchmark_plots.object_store_points(s.lines)) for s in stores]  # noqa: S704  # made by us
    return {
        "engines": [Drawn(e, plot, _when(e.curves)) for e, plot in zip(engines, curves, strict=True)],
        "stores": [Drawn(s, plot, _when(s.lines)) for s, plot in zip(stores, points, strict=True)],
        "benchmark_left_out": collectives.left_out(data),
        "models": [
            Drawn(x, Markup(models_plot.quality_against_cost(x)), ())  # noqa: S704  # made by us
            for x in models.models(data)
        ],
        "elastic_launches": [
            Drawn(x, Markup(elastic_plot.timeline(x)), ())  # noqa: S704  # made by us
            for x in elastic.launches(data)
        ],
        "fault_name": elastic.name_of,
    }


def _this(data: ReportData) -> PastRun:
    r = data.record
    return PastRun(
        data.key.run, r.started_at, r.answer, r.findings_critical, r.findings_warning, coverage_ratio=r.coverage_ratio
    )


def _evidence_links(data: ReportData) -> Any:
    """Return a function from a finding to the link to its evidence; None where no page of it was made."""
    commands = {(e.check, e.unit): {r.name for r in e.results} for e in data.evidence_shown}

    def link(f: Finding) -> str | None:
        pair = (f.check, asked(f))
        if pair not in commands:
            return None
        fragment = f"#{anchor(f.command)}" if f.command in commands[pair] else ""
        return evidence_file(*pair) + fragment

    return link


def _changes(data: ReportData, lines: Sequence[ConfigDrift]) -> dict[str, Any]:
    groups: dict[tuple[Expectation, str, str, str], list[str]] = {}
    for c in data.changes:
        told = _expectation(data, c.unit, c.attribute, c.after)
        groups.setdefault((told, c.attribute, c.before or "(none)", c.after or "(none)"), []).append(c.unit)
    facts = [ChangeGroup(a, b, n, tuple(units), told) for (told, a, b, n), units in groups.items()]
    configs = [
        ConfigChange(d, _expectation(data, f"{d.switch}/{d.port}" if d.port else d.switch, d.path, d.actual))
        for d in lines
    ]
    # What nobody expects comes first.
    facts.sort(key=lambda g: g.expected.holds)
    configs.sort(key=lambda c: c.expected.holds)
    return {
        "changes": facts[:CHANGES_SHOWN],
        "change_groups": len(facts),
        "changes_total": len(data.changes),
        "changed_units": len({c.unit for c in data.changes}),
        "changes_expected": any(e.told for e in (*(g.expected for g in facts), *(c.expected for c in configs))),
        "changes_acknowledged": sum(len(g.units) for g in facts if g.expected.holds)
        + sum(c.expected.holds for c in configs),
        "config_changes": configs[:DRIFT_SHOWN],
        "config_changes_total": len(configs),
    }


def _expectation(data: ReportData, unit: str, attribute: str, after: str | None) -> Expectation:
    on = data.record.started_at.astimezone(UTC).date()
    entry = expected_change(unit, attribute, after, data.site.expected_changes)
    return Expectation(entry.told(on), not entry.expired(on)) if entry else Expectation()


def _coverage(data: ReportData) -> list[CoverageLine]:
    lines = []
    for name in data.record.checks.split(","):
        rows = [c for c in data.coverage if c.check == name]
        left = tuple(c for c in rows if c.state != CoverageState.JUDGED)
        lines.append(CoverageLine(name, registry.entry(name).title, len(rows) - len(left), len(rows), left))
    return lines


def _evidence(e: UnitEvidence, stored: StoredEvidence, data: ReportData) -> dict[str, Any]:
    left = STREAMS_SHOWN
    results = []
    for r in e.results:
        streams = []
        for stream in (r.stdout, r.stderr):
            limit = min(STREAM_SHOWN, left)
            left -= min(len(stream), limit)
            streams.append(escape(text.clipped(stream, limit, "the stored evidence is whole")))
        results.append((anchor(r.name), r, *streams))
    return {"e": e, "stored": stored, "data": data, "css": _css(), "results": results, "up": "../../index.html"}


def _utc(moment: datetime | None) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC") if moment else "unknown"
