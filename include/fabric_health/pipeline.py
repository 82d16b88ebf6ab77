"""The stages of a run as plain functions. A DAG task and a CLI command each call one of these and nothing else.

A stage takes a reference to the run (the key of its run document) and returns small, plain facts. Everything it
needs is read from the store and everything it makes is written there under keys that depend on the run alone, so
any stage can be repeated: it writes the same objects again.

    open_run -> (collect -> land -> judge) for each check -> isolate -> compare -> explain -> check_quality -> conclude
             -> publish
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from fabric_health import __version__, answer, compared, isolation_cases, launching, reach
from fabric_health.checks import registry
from fabric_health.checks.check import Check, Context, Launch, RowSet, Unit
from fabric_health.connections import ConnectionSource
from fabric_health.datasets import evidence as evidence_store
from fabric_health.datasets import landing
from fabric_health.datasets.contracts import Row
from fabric_health.datasets.run import RunKey, run_name
from fabric_health.datasets.store import ObjectMissing, ObjectStore
from fabric_health.datasets.tables import Coverage, Finding, QualityResult, Quarantine, Run, Severity, asked
from fabric_health.errors import UsageError
from fabric_health.evidence import Redactor, StoredEvidence, UnitEvidence
from fabric_health.garbage import seldom_collected
from fabric_health.history import Previous, judged_part, load_part, previous
from fabric_health.jobs.spec import JobResult, JobSpec
from fabric_health.judged import read_findings, write_findings
from fabric_health.landed import Landed, report_data
from fabric_health.linked import linked
from fabric_health.maintenance import Change, site_for
from fabric_health.run_document import RunDocument, decode, document_key, encode
from fabric_health.site import Fabric, Node, Site, Switch
from fabric_health.unanswered import coverage, did_not_finish, unanswered, without_rows

if TYPE_CHECKING:
    from fabric_health.quality.run import QualityOutcome

Progress = Callable[[str], None]
EVIDENCE_WRITERS = 8


def _silent(_message: str) -> None:
    return None


@dataclass(frozen=True)
class Rooms:
    """What stages reach outside themselves: the store, the site, credentials, and where progress is told."""

    store: ObjectStore
    site: Site
    connections: ConnectionSource
    tell: Progress = _silent


def open_run(
    rooms: Rooms,
    *,
    dag: str,
    scheduler_run_id: str,
    started_at: datetime,
    checks: Sequence[str],
    scope: str | None = None,
    change: Change | None = None,
) -> str:
    """Open a run and return its reference. Opened twice with the same identity, it is the same run.

    ``scope`` is a range of units (``gpu-[001-004],leaf-1``), None for the whole site; a run that judges a ``change``
    looks at the units that it names. Raises UsageError for an unknown unit or check, or when no unit of the scope is
    of a kind that the checks look at.
    """
    site = rooms.site
    started_at = started_at.astimezone(UTC).replace(microsecond=0)
    entries = [registry.entry(c) for c in checks]
    units = site.select(scope) if change is None else tuple(site.unit(n) for n in change.scope)
    kinds = {"node" if e.is_benchmark else e.unit_kind for e in entries}
    if not any(u.kind in kinds for u in units):
        raise UsageError(f"scope {scope!r} has no {' or '.join(sorted(kinds))} for {', '.join(checks)} to look at")
    key = RunKey(site.name, run_name(dag, scheduler_run_id, started_at), started_at, site.origin)
    document = RunDocument(
        key=key,
        dag=dag,
        scheduler_run_id=scheduler_run_id,
        checks=tuple(e.name for e in entries),
        scope=tuple(u.name for u in units),
        site_sha256=site.sha256,
        version=__version__,
        change=change,
    )
    ref = document_key(site.name, key.week, key.run)
    rooms.store.ensure_bucket()
    if not rooms.store.exists(ref):
        rooms.store.put(ref, encode(document), content_type="application/json")
    rooms.tell(f"run {key.run}: {len(units)} units, {', '.join(document.checks)}")
    return ref


@dataclass(frozen=True)
class Finished:
    """A run that went through every stage: its reference, what :func:`conclude` said, and where its page is."""

    ref: str
    conclusion: dict[str, Any]
    page: dict[str, str]


def run_all(
    rooms: Rooms,
    *,
    dag: str,
    scheduler_run_id: str,
    checks: Sequence[str],
    scope: str | None = None,
    change: Change | None = None,
    started_at: datetime | None = None,
) -> Finished:
    """Run every stage in this process, one after the other, as the command line does. ``started_at`` None: now."""
    ref = open_run(
        rooms,
        dag=dag,
        scheduler_run_id=scheduler_run_id,
        started_at=started_at or datetime.now(UTC),
        checks=checks,
        scope=scope,
        change=change,
    )
    for name in load_run(rooms, ref).checks:
        collect(rooms, ref, name)
        land(rooms, ref, name)
        judge(rooms, ref, name)
    isolate(rooms, ref)
    compare(rooms, ref)
    explain(rooms, ref)
    check_quality(rooms, ref)
    return Finished(ref, conclude(rooms, ref), publish(rooms, ref))


def load_run(rooms: Rooms, ref: str) -> RunDocument:
    """Read a run's document. Raises UsageError when there is none, or when it belongs to another site."""
    try:
        run = decode(rooms.store.get(ref))
    except ObjectMissing:
        raise UsageError(
            f"no run document at {rooms.store.uri(ref)}; expected the reference that opening gave"
        ) from None
    if run.key.site != rooms.site.name:
        raise UsageError(f"run {run.key.run} is of site {run.key.site!r}, not {rooms.site.name!r}")
    return run


def _opened(rooms: Rooms, ref: str) -> tuple[Rooms, RunDocument]:
    """Return a run with the rooms that its stages use: its own number of launches, where it asked for one."""
    run = load_run(rooms, ref)
    return replace(rooms, site=site_for(rooms.site, run.change)), run


def collect(rooms: Rooms, ref: str, check_name: str) -> dict[str, int]:
    """Ask every unit in scope and keep its evidence. Return how many units answered in which way.

    The evidence of a run is kept once: repeated after it is complete, this reads what is there and asks nobody.
    """
    rooms, run = _opened(rooms, ref)
    check = registry.check(check_name)
    refs = evidence_store.read_manifest(rooms.store, run.key, check.name)
    if refs is None:
        refs = _launch(rooms, run, check) if check.launches else _ask(rooms, run, check)
        evidence_store.write_manifest(rooms.store, run.key, check.name, refs)
    counts: dict[str, int] = {}
    for r in refs:
        counts[r.status.value] = counts.get(r.status.value, 0) + 1
    rooms.tell(f"{check.name}: " + (", ".join(f"{n} {s}" for s, n in sorted(counts.items())) or "no unit in scope"))
    return counts


def _ask(rooms: Rooms, run: RunDocument, check: Check) -> list[StoredEvidence]:
    units = run.units(rooms.site, check)
    requests = [reach.UnitRequest(u, check.name, check.commands(u, rooms.site), check.at_once) for u in units]
    redactor = Redactor(_secrets(rooms, units))
    with ThreadPoolExecutor(EVIDENCE_WRITERS) as writers:
        kept: list[Future[StoredEvidence]] = []

        def keep(evidence: UnitEvidence) -> None:
            # Stored as it comes, so that what one unit answered is safe whatever happens to the others; and by
            # other threads, so that a slow store never delays the clock of a unit that is still being asked.
            kept.append(writers.submit(evidence_store.put_evidence, rooms.store, run.key, evidence, redactor))
            if len(kept) % 50 == 0:
                rooms.tell(f"{check.name}: {len(kept)} of {len(requests)} units answered")

        reach.collect(requests, rooms.connections, keep)
        return sorted((k.result() for k in kept), key=lambda r: r.unit)


def _launch(rooms: Rooms, run: RunDocument, check: Check) -> list[StoredEvidence]:
    """Run a benchmark's launches one after the other on the nodes that the run's audits found fit.

    What a task that did not come to its end has measured already is read back; what was lost is launched again.
    """
    from fabric_health.jobs.backend import open_backend, run_all
    from fabric_health.jobs.references import secrets_of

    found = launching.findings_so_far(rooms.store, run)
    plan = launching.make_plan(rooms.store, rooms.site, run, check, found)
    for node, reason in plan.left_out.items():
        rooms.tell(f"{check.name}: {node} is left out: {reason}")
    redactor = Redactor(tuple(s for launch in plan.launches for s in secrets_of(launch.spec, rooms.connections)))
    launches = {launch.spec.name: launch for launch in plan.launches}
    refs = launching.measured_already(rooms.store, run, check, plan)
    if refs:
        rooms.tell(f"{check.name}: {len(refs)} of {len(launches)} launches were made before this stage was repeated")
    done = {ref.unit for ref in refs}

    def keep(spec: JobSpec, result: JobResult) -> None:
        evidence = launching.evidence_of(launches[spec.name], check.name, result)
        refs.append(evidence_store.put_evidence(rooms.store, run.key, evidence, redactor))
        rooms.tell(f"{check.name}: {len(refs)} of {len(launches)} launches: {spec.name} {result.status}")

    backend = open_backend(rooms.site, run.key.run, rooms.connections)
    run_all([launch.spec for launch in plan.launches if launch.name not in done], backend, keep, tell=rooms.tell)
    return refs


def _secrets(rooms: Rooms, units: Iterable[Node | Switch | Fabric]) -> tuple[str, ...]:
    ids = {i for u in units for i in (u.reach.connection, u.reach.jump) if i}
    return tuple(s for i in sorted(ids) for s in rooms.connections(i).secrets)


@seldom_collected()
def land(rooms: Rooms, ref: str, check_name: str) -> dict[str, int]:
    """Parse the evidence of a check into rows and write its tables. Return rows per table, and ``quarantine``."""
    rooms, run = _opened(rooms, ref)
    check = registry.check(check_name)
    refs = _manifest(rooms, run, check)
    units = _asked(rooms, run, check)
    pairs: list[tuple[Row, str | None]] = []
    for stored in refs:
        evidence = evidence_store.get_evidence(rooms.store, stored)
        pairs += [(row, stored.sha256) for row in check.parse(units[stored.unit], evidence, rooms.site)]
    parsed = RowSet.gather(row for row, _ in pairs)
    before = previous(rooms.store, run.key, check, _known(rooms, run, check))
    by_unit = {r.unit: r.sha256 for r in refs}
    derived = check.derive(parsed, _context(rooms, run, check, refs, before))
    pairs += [(row, by_unit.get(check.unit_of(row))) for row in derived]

    def origin_of(row: Row) -> str | None:
        unit = units.get(check.unit_of(row))
        return unit.origin if isinstance(unit, Launch) else None

    landed = landing.land(rooms.store, run.key, check.name, pairs, check.tables, origin_of=origin_of)
    counts = {**landed.rows, "quarantine": landed.quarantined}
    rooms.tell(f"{check.name}: landed " + ", ".join(f"{n} {t}" for t, n in counts.items()))
    return counts


@seldom_collected()
def judge(rooms: Rooms, ref: str, check_name: str) -> dict[str, int]:
    """Judge the landed rows of a check and keep the findings for :func:`explain`. Return findings per severity."""
    rooms, run = _opened(rooms, ref)
    check = registry.check(check_name)
    refs = _manifest(rooms, run, check)
    rows = RowSet({t: load_part(rooms.store, t, run.key, check.name) for t in check.tables})
    before = previous(rooms.store, run.key, check, _known(rooms, run, check))
    configured = not check.launches or check.name in rooms.site.checks
    found = check.judge(rows, _context(rooms, run, check, refs, before)) if configured else []
    found += unanswered(check, refs) + without_rows(check, rows, refs)
    found = [_dated(f, run, before) for f in found]
    write_findings(rooms.store, run, check.name, found)
    counts = {s.value: sum(f.severity == s for f in found) for s in Severity}
    rooms.tell(f"{check.name}: " + ", ".join(f"{n} {s}" for s, n in counts.items()))
    return counts


def isolate(rooms: Rooms, ref: str) -> dict[str, Any]:
    """Find which unit makes slow what the benchmarks found slow. Return cases, launches made and units blamed."""
    from fabric_health import isolating

    return isolating.isolate(*_opened(rooms, ref))


def compare(rooms: Rooms, ref: str) -> dict[str, Any]:
    """Hold what the run measured against what was before. Return the verdict, its reason, and what regressed."""
    from fabric_health import comparing

    return comparing.compare(*_opened(rooms, ref))


def explain(rooms: Rooms, ref: str) -> dict[str, int]:
    """Link findings that another one explains or that somebody expects, and land findings and coverage.

    A check that did not finish is not skipped: all its units are landed as not judged.
    """
    run = load_run(rooms, ref)
    judged = {name: _judged(rooms, run, name) for name in run.checks}
    everything = [f for found in judged.values() for f in found or ()]
    explained = {f.finding: f for f in linked(rooms.store, rooms.site, run, everything)}
    unfinished = 0
    for name, found in judged.items():
        check = registry.check(name)
        refs = evidence_store.read_manifest(rooms.store, run.key, name) or []
        parts = registry.entry(name).parts
        shas = {r.unit: r.sha256 for p in parts for r in evidence_store.read_manifest(rooms.store, run.key, p) or ()}
        if found is None:
            unfinished += 1
            found = [did_not_finish(run.key, check)]
        found = [explained.get(f.finding, f) for f in found]
        covered = _covered(rooms, run, check, refs, judged[name])
        rows: list[tuple[Row, str | None]] = [(f, shas.get(asked(f))) for f in found]
        rows += [(c, shas.get(c.unit)) for c in covered]
        landing.land(rooms.store, run.key, name, rows, (Finding, Coverage), quarantine_part=judged_part(name))
    return {
        "findings": len(everything),
        "explained": sum(f.explained_by is not None for f in explained.values()),
        "acknowledged": sum(f.acknowledged_by is not None for f in explained.values()),
        "unfinished_checks": unfinished,
    }


def _judged(rooms: Rooms, run: RunDocument, name: str) -> list[Finding] | None:
    """Return what a check found, with what isolating made of it; None when the check has not been judged."""
    found, check = read_findings(rooms.store, run, name), registry.check(name)
    if found is None or not registry.entry(name).is_benchmark:
        return found
    found = [*found, *_compared(rooms, run, check)]
    if not registry.entry(name).isolates:
        return _all_dated(rooms, run, check, found)
    plan = launching.read_plan(rooms.store, run, check) or launching.Plan()
    due = isolation_cases.cases_of(found, plan, rooms.site)
    whole = isolation_cases.merged(found, read_findings(rooms.store, run, isolation_cases.PART), due)
    return _all_dated(rooms, run, check, whole)


def _compared(rooms: Rooms, run: RunDocument, check: Check) -> list[Finding]:
    """Return what comparing with earlier runs found of a benchmark's units."""
    found = read_findings(rooms.store, run, compared.PART)
    if found is not None:
        return [f for f in found if f.check == check.name]
    plan = launching.read_plan(rooms.store, run, check)
    return [compared.did_not_finish(check.name)] if plan and plan.launches else []


def _all_dated(rooms: Rooms, run: RunDocument, check: Check, found: Sequence[Finding]) -> list[Finding]:
    if all(f.first_seen for f in found):
        return list(found)
    before = previous(rooms.store, run.key, check, _known(rooms, run, check))
    return [f if f.first_seen else _dated(f, run, before) for f in found]


def _covered(
    rooms: Rooms, run: RunDocument, check: Check, refs: Sequence[StoredEvidence], found: Sequence[Finding] | None
) -> list[Coverage]:
    if not check.launches:
        return coverage(check, run.units(rooms.site, check), refs, found)
    plan = launching.read_plan(rooms.store, run, check) or launching.Plan()
    rows = [r for t in check.results for r in load_part(rooms.store, t, run.key, check.name)]
    with_results = {check.unit_of(r) for r in rows if check.counts(r)}
    return launching.launch_coverage(plan, check, refs, with_results, found is not None)


@seldom_collected()
def check_quality(rooms: Rooms, ref: str) -> dict[str, Any]:
    """Hold the trend tables against their suites and land the results. Return counts and critical failures."""
    from fabric_health.quality import run as quality

    run = load_run(rooms, ref)
    return _keep_quality(rooms, run.key, quality.evaluate(rooms.store, rooms.site, run.key, run.scope, run.checks))


def check_trends(rooms: Rooms, scheduler_run_id: str, now: datetime) -> dict[str, Any]:
    """Hold the result tables of the last weeks against their suites as of ``now``, and land the results."""
    from fabric_health.quality import run as quality

    now = now.astimezone(UTC).replace(microsecond=0)
    key = RunKey(rooms.site.name, run_name("trend_quality", scheduler_run_id, now), now, rooms.site.origin)
    return _keep_quality(rooms, key, quality.evaluate_trends(rooms.store, rooms.site, key))


def _keep_quality(rooms: Rooms, key: RunKey, outcome: QualityOutcome) -> dict[str, Any]:
    landing.land(rooms.store, key, "quality", [(r, None) for r in outcome.results], (QualityResult,))
    prefix = f"quality/site={key.site}/week={key.week}/{key.run}/"
    rooms.store.put_many([(prefix + name, body) for name, body in sorted(outcome.docs.items())])
    met = sum(r.success for r in outcome.results)
    rooms.tell(f"data quality: {met} of {len(outcome.results)} expectations met")
    return {
        "expectations": len(outcome.results),
        "met": met,
        "critical_failures": [f[:300] for f in outcome.critical_failures[:5]],
        "docs": rooms.store.uri(prefix + "index.html"),
    }


def conclude(rooms: Rooms, ref: str) -> dict[str, Any]:
    """Conclude the run: land its row in ``runs``. Return answer, headline, coverage and counts."""
    run = load_run(rooms, ref)
    parts = Landed(rooms.store, run)
    result = answer.conclude(parts.of(Finding), parts.of(Coverage), parts.quality(), rooms.site.coverage_floor)
    scope = [rooms.site.unit(n) for n in run.scope]
    counts = parts.counts()
    verdict = parts.verdict()
    record = Run(
        dag=run.dag,
        scheduler_run_id=run.scheduler_run_id,
        started_at=run.key.started_at,
        checks=",".join(run.checks),
        nodes_in_scope=sum(u.kind == "node" for u in scope),
        switches_in_scope=sum(u.kind == "switch" for u in scope),
        answer=result.answer.value,
        headline=result.headline[:4000],
        coverage_ratio=result.coverage_ratio,
        findings_critical=result.critical,
        findings_warning=result.warning,
        rows_landed=sum(n for t, n in counts.items() if t != Quarantine.TABLE),
        rows_quarantined=counts.get(Quarantine.TABLE, 0),
        site_sha256=run.site_sha256,
        version=run.version,
        verdict=verdict.outcome if verdict else None,
        verdict_reason=verdict.reason if verdict else None,
        ticket=run.change.ticket if run.change else None,
    )
    landing.land(rooms.store, run.key, "run", [(record, None)], (Run,))
    rooms.tell(f"{result.answer}: {result.headline}")
    return {
        "answer": result.answer.value,
        "verdict": verdict.outcome if verdict else None,
        "headline": result.headline[:1000],
        "coverage_ratio": round(result.coverage_ratio, 4),
        "critical": result.critical,
        "warning": result.warning,
    }


def publish(rooms: Rooms, ref: str) -> dict[str, str]:
    """Render the run's page with the evidence behind it and write both. Return the page's address in the store."""
    from fabric_health.report.page import render

    run = load_run(rooms, ref)
    files = render(report_data(rooms.store, rooms.site, run))
    prefix = report_prefix(run.key)
    rooms.store.put_many([(prefix + name, body) for name, body in sorted(files.items())])
    if _is_whole(rooms.site, run):
        _point_at_latest(rooms.store, run.key, prefix + "index.html")
    rooms.tell(f"page: {rooms.store.uri(prefix + 'index.html')}")
    return {"page": rooms.store.uri(prefix + "index.html"), "prefix": prefix}


def _is_whole(site: Site, run: RunDocument) -> bool:
    """Tell whether a run looked at everything: one of a few units or one check is not the state of the site."""
    return set(run.checks) == {e.name for e in registry.ENTRIES} and len(run.scope) == len(site.select(None))


def _point_at_latest(store: ObjectStore, key: RunKey, page: str) -> None:
    """Make ``page`` the site's latest one, unless that of a later run is: an old run's stage may be repeated."""
    pointer = f"reports/site={key.site}/latest.json"
    with contextlib.suppress(ObjectMissing):
        if json.loads(store.get(pointer)).get("started_at", "") > key.started_at.isoformat():
            return
    body = {"report": page, "started_at": key.started_at.isoformat()}
    store.put(pointer, json.dumps(body).encode(), "application/json")


def report_prefix(key: RunKey) -> str:
    """Return the prefix that a run's page and its evidence pages are kept under."""
    return f"reports/site={key.site}/week={key.week}/{key.run}/"


def _asked(rooms: Rooms, run: RunDocument, check: Check) -> dict[str, Unit]:
    """Return what a check asks in a run, by name: nodes or switches of the scope, or the launches of its plan."""
    if check.launches:
        plan = launching.read_plan(rooms.store, run, check)
        return {launch.name: launch for launch in plan.launches} if plan else {}
    return {u.name: u for u in run.units(rooms.site, check)}


def _known(rooms: Rooms, run: RunDocument, check: Check) -> set[str]:
    """Return the units whose past counts: of all of the check's kind, since those out of scope say what is usual."""
    if check.launches:
        plan = launching.read_plan(rooms.store, run, check) or launching.Plan()
        return {unit for launch in plan.launches for unit in launch.units}
    if check.fabrics is not None:
        return {fabric.name for fabric in check.fabrics(rooms.site)}
    return {u.name for u in (rooms.site.nodes if check.unit_kind == "node" else rooms.site.switches)}


def _manifest(rooms: Rooms, run: RunDocument, check: Check) -> list[StoredEvidence]:
    refs = evidence_store.read_manifest(rooms.store, run.key, check.name)
    if refs is None:
        raise UsageError(f"run {run.key.run} has no evidence for {check.name}; run its collect stage first")
    return refs


def _context(rooms: Rooms, run: RunDocument, check: Check, refs: Sequence[StoredEvidence], before: Previous) -> Context:
    return Context(
        site=rooms.site,
        run=run.key.run,
        started_at=run.key.started_at,
        scope=tuple(_asked(rooms, run, check).values()),
        reach={r.unit: r for r in refs},
        previous=before.rows,
        previous_at=before.at,
        carried_at=before.carried_at,
    )


def _dated(f: Finding, run: RunDocument, before: Previous) -> Finding:
    earlier = before.findings.get(f.finding)
    first = earlier.first_seen if earlier and earlier.first_seen else run.key.started_at
    return replace(f, first_seen=first)
