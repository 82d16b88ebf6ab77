"""Benchmarks within a run: which nodes are fit, what is launched on them, and the evidence of each launch.

The plan of a check is written once, before anything runs, so that a repeated stage launches the same jobs and parses
them as what they were.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from pydantic import TypeAdapter

from fabric_health.checks import registry
from fabric_health.checks.check import Check, Launch
from fabric_health.datasets import evidence as evidence_store
from fabric_health.datasets.store import ObjectMissing, ObjectStore
from fabric_health.datasets.tables import Coverage, CoverageState, Finding, Severity
from fabric_health.errors import UsageError
from fabric_health.evidence import CommandResult, CommandStatus, ReachStatus, StoredEvidence, UnitEvidence
from fabric_health.jobs.spec import JobResult, JobStatus
from fabric_health.judged import read_findings
from fabric_health.run_document import RunDocument
from fabric_health.site import Node, Site
from fabric_health.unpack import file_text

# Kinds of units that nodes are no part of: a node that is unfit is not left out of measuring them.
_OF_NO_NODE = frozenset({"object_store", "model", "job"})
# How far a compressed artefact may unfold beyond the bound on its file.
UNPACKED_FACTOR = 4


@dataclass(frozen=True)
class Plan:
    """What a benchmark launches in a run, which nodes in scope it leaves out and why, and which are ``fit``."""

    launches: tuple[Launch, ...] = ()
    left_out: dict[str, str] = field(default_factory=dict)
    fit: tuple[str, ...] = ()


_PLAN: TypeAdapter[Plan] = TypeAdapter(Plan)

_STATUS = {
    JobStatus.EXITED: (ReachStatus.OK, CommandStatus.EXITED),
    JobStatus.TIMEOUT: (ReachStatus.HUNG, CommandStatus.TIMEOUT),
    JobStatus.CANCELLED: (ReachStatus.CLOSED_EARLY, CommandStatus.NOT_RUN),
    JobStatus.LOST: (ReachStatus.CLOSED_EARLY, CommandStatus.NOT_RUN),
    JobStatus.NOT_STARTED: (ReachStatus.UNREACHABLE, CommandStatus.NOT_RUN),
}


def plan_key(run: RunDocument, check: str) -> str:
    """Return the key of a benchmark's plan within a run."""
    return f"runs/site={run.key.site}/week={run.key.week}/{run.key.run}/{check}.plan.json"


def read_plan(store: ObjectStore, run: RunDocument, check: Check) -> Plan | None:
    """Return the plan of a benchmark, None when it has not been made yet."""
    try:
        return _PLAN.validate_json(store.get(plan_key(run, check.name)))
    except ObjectMissing:
        return None


def make_plan(store: ObjectStore, site: Site, run: RunDocument, check: Check, findings: Iterable[Finding]) -> Plan:
    """Plan a benchmark on the nodes in scope that the audits found fit, and keep the plan. Made already, it stays.

    A site that does not name the benchmark under ``checks`` has it not: its plan is empty. A benchmark loads what it
    measures, so nobody gets one for not having said no.
    """
    existing = read_plan(store, run, check)
    if existing is not None:
        return existing
    if check.launches is None:
        raise ValueError(f"{check.name} is no benchmark")
    if check.name not in site.checks:
        return _keep(store, run, check, Plan())
    wanted = set(run.scope)
    unfit = unfit_nodes(findings)
    nodes = [n for n in site.nodes if n.name in wanted]
    left_out = {n.name: unfit[n.name] for n in nodes if n.name in unfit}
    fit: tuple[Node, ...] = tuple(n for n in nodes if n.name not in unfit)
    made = check.launches(site, fit, run.key.run)
    return _keep(store, run, check, Plan(made, left_out, tuple(n.name for n in fit)))


def _keep(store: ObjectStore, run: RunDocument, check: Check, plan: Plan) -> Plan:
    store.put(plan_key(run, check.name), _PLAN.dump_json(plan, indent=1), "application/json")
    return plan


def findings_so_far(store: ObjectStore, run: RunDocument) -> list[Finding]:
    """Return what the checks of a run have found so far: who is fit for a benchmark follows from it.

    Raises UsageError when an audit of the run has not been judged: a benchmark would be launched blindly.
    """
    judged = {name: read_findings(store, run, name) for name in run.checks}
    missing = [name for name, found in judged.items() if found is None and not registry.entry(name).is_benchmark]
    if missing:
        raise UsageError(
            f"nothing is launched: {', '.join(missing)} did not finish, so which nodes are fit is not known; expected "
            "every audit of the run to be judged before its benchmarks; repeat the audit, then this stage"
        )
    return [f for found in judged.values() for f in found or ()]


def unfit_nodes(findings: Iterable[Finding]) -> dict[str, str]:
    """Return the nodes that an audit holds unfit, with the reason: a critical finding on the node or a part of it.

    A benchmark on such a node would measure the fault that is known already, and spoil the result of the others.
    """
    unfit: dict[str, str] = {}
    for f in findings:
        if f.severity == Severity.CRITICAL and f.unit_kind in ("node", "gpu", "nic", "drive"):
            unfit.setdefault(f.unit.split("/", 1)[0], f.summary)
    return unfit


def evidence_of(launch: Launch, check: str, result: JobResult) -> UnitEvidence:
    """Return a job's result as evidence: its output as command ``job``, each artefact as ``artefact:<file>``."""
    reach, status = _STATUS[result.status]
    if result.truncated and status is CommandStatus.EXITED:
        status = CommandStatus.TRUNCATED
    job = CommandResult(
        name="job",
        argv=launch.spec.argv,
        status=status,
        exit_code=result.exit_code,
        stdout=result.stdout,
        stderr=result.stderr,
        started_at=result.started_at,
        ended_at=result.ended_at,
    )
    artefacts = []
    for name, body in sorted(result.artefacts.items()):
        # Unpacked here, before it is redacted and stored: nothing can be redacted in compressed data.
        file = file_text(body, UNPACKED_FACTOR * launch.spec.artefact_max_bytes)
        artefacts.append(
            CommandResult(
                name=f"artefact:{name}",
                argv=(name,),
                status=CommandStatus.EXITED if file.complete else CommandStatus.TRUNCATED,
                exit_code=0 if file.complete else None,
                stdout=file.text,
                stderr=file.problem,
                started_at=result.started_at,
                ended_at=result.ended_at,
            )
        )
    return UnitEvidence(
        unit=launch.name,
        unit_kind="launch",
        check=check,
        status=reach,
        detail=result.reason,
        started_at=result.started_at,
        ended_at=result.ended_at,
        results=(job, *artefacts),
    )


def measured_already(store: ObjectStore, run: RunDocument, check: Check, plan: Plan) -> list[StoredEvidence]:
    """Return the evidence of the plan's launches that is there from a task which did not come to its end.

    A measured failure is a result. A launch that was lost, cancelled or never started is none: it is made again.
    """
    kept = evidence_store.kept_keys(store, run.key, check.name)
    found = [evidence_store.read_kept(store, x.name, kept[x.name])[0] for x in plan.launches if x.name in kept]
    return [ref for ref in found if ref.status in (ReachStatus.OK, ReachStatus.HUNG)]


def covered_units(launch: Launch) -> list[tuple[str, str]]:
    """Return the units that a launch covers, with their kinds: of a pair its two nodes, and the pair ``a<>b`` itself.

    A pair's name does not depend on who serves: the link is the same.
    """
    if launch.unit_kind != "pair":
        return [(unit, launch.unit_kind) for unit in launch.units]
    return [*((unit, "node") for unit in launch.units), ("<>".join(sorted(launch.units)), "pair")]


def launch_coverage(
    plan: Plan, check: Check, refs: Sequence[StoredEvidence], with_rows: set[str], finished: bool
) -> list[Coverage]:
    """Return one coverage row per unit that the plan's launches were to measure, or that it left out.

    A unit is judged when every launch that covers it gave rows, partly judged when some did. A fit node that no launch
    took is not judged, unless the launches measure no nodes at all. A benchmark of
    an object store, of models or of jobs leaves no node out.
    """
    answered = {r.unit for r in refs if r.status == ReachStatus.OK} & with_rows
    launches: dict[tuple[str, str], list[str]] = {}
    for launch in plan.launches:
        for unit, kind in covered_units(launch):
            launches.setdefault((unit, kind), []).append(launch.name)
    out = []
    for (unit, kind), names in sorted(launches.items()):
        good = [n for n in names if n in answered]
        state, reason = CoverageState.JUDGED, None
        if not finished:
            state, reason = CoverageState.NOT_JUDGED, "the check did not finish"
        elif not good:
            state, reason = CoverageState.NOT_JUDGED, "none of its launches gave a result"
        elif len(good) < len(names):
            state, reason = CoverageState.PARTIAL, f"{len(good)} of {len(names)} launches gave a result"
        out.append(Coverage(check.name, unit, kind, state.value, reason))
    if launches and all(kind in _OF_NO_NODE for _, kind in launches):
        return out
    out += [
        Coverage(check.name, unit, "node", CoverageState.NOT_JUDGED.value, f"left out: {reason}"[:500])
        for unit, reason in sorted(plan.left_out.items())
    ]
    kinds = {kind for _, kind in launches}
    if not kinds or kinds & {"node", "pair"}:
        out += [
            Coverage(check.name, unit, "node", CoverageState.NOT_JUDGED.value, "fit, but no launch of this run took it")
            for unit in plan.fit
            if (unit, "node") not in launches
        ]
    return out
