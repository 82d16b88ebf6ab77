"""Launches that are not what was asked for, results below a floor, and nodes or rails slower than their peers.

A breach that several launches of an engine share is one finding: it names them all and shows the first one's evidence.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from fabric_health.checks.check import Context, Launch, RowSet
from fabric_health.checks.collectives.asked import asked
from fabric_health.checks.collectives.failing import judge_failing
from fabric_health.checks.collectives.pair_judge import judge_pairs
from fabric_health.checks.collectives.peer_judge import judge_peers, size_text
from fabric_health.checks.collectives.peers import largest_size
from fabric_health.checks.collectives.settings import Settings, settings
from fabric_health.checks.collectives.tables import Collective, CollectiveLaunch, LaunchProblem
from fabric_health.datasets.tables import Finding, FindingKind, Severity, finding
from fabric_health.evidence import ReachStatus

CHECK = "collectives"
_NAMED = 4


@dataclass(frozen=True)
class _Rule:
    """How a broken rule of a launch is told: what it means, how bad, and what to do."""

    what: str
    severity: Severity
    kind: FindingKind
    action: str


_NOT, _DEVIATION = FindingKind.NOT_JUDGED, FindingKind.DEVIATION
_RULES: dict[str, _Rule] = {
    "hosts_as_asked": _Rule(
        "did not run on the hosts it was asked to run on",
        Severity.CRITICAL, _NOT,
        "Look at the slots of each host and the mapping of ranks: mpirun fills hosts in order and leaves the last out.",
    ),
    "ranks_as_asked": _Rule(
        "did not run the ranks it was asked to run",
        Severity.CRITICAL, _NOT,
        "Look at ranks per node, visible GPUs and slots.",
    ),
    "ranks_once": _Rule(
        "ran as independent tests", Severity.CRITICAL, _NOT, "Build nccl-tests with MPI=1 and start it by mpirun."
    ),
    "groups_as_asked": _Rule(
        "split its ranks otherwise than asked",
        Severity.CRITICAL, _NOT,
        "Start one process for each GPU, in the order of the nodes: NCCL_TESTS_SPLIT counts processes.",
    ),
    "collective_as_asked": _Rule(
        "ran another collective", Severity.CRITICAL, _NOT, "Look at the programs in the image."
    ),
    "launch_completes": _Rule(
        "failed", Severity.CRITICAL, _NOT, "Read the end of its output; NCCL WARN lines say what failed and where."
    ),
    "launch_known": _Rule(
        "is none of this check's jobs", Severity.CRITICAL, _NOT, "Plan the run again with this version."
    ),
    "output_complete": _Rule(
        "has no complete output", Severity.CRITICAL, _NOT, "Look whether it was killed or its output was cut off."
    ),
    "output_readable": _Rule(
        "printed what cannot be read", Severity.CRITICAL, _NOT, "See the evidence: the release may be a new one."
    ),
    "artefact_of_this_launch": _Rule(
        "left a file of other numbers", Severity.CRITICAL, _NOT, "Empty the folder of artefacts between launches."
    ),
    "artefact_written": _Rule(
        "left no readable file of results", Severity.INFO, _NOT, "Check that the folder of artefacts can be written."
    ),
    "tool_reports_no_error": _Rule(
        "reported an error", Severity.CRITICAL, _NOT, "Read the message; the exit code does not always tell."
    ),
    "arithmetic_holds": _Rule(
        "printed bandwidths that do not fit its own times and ranks",
        Severity.CRITICAL, _NOT,
        "See the evidence: columns read as others, or ranks that are not those reported.",
    ),
    "sizes_reached": _Rule(
        "did not reach the sizes asked for",
        Severity.WARNING, _NOT,
        "Free GPU memory or ask for smaller sizes; results of other sizes are not comparable.",
    ),
    "results_checked": _Rule(
        "did not check its results", Severity.WARNING, _NOT, "Run it with -c 1: fast and wrong is not healthy."
    ),
    "no_wrong_results": _Rule(
        "computed wrong values",
        Severity.CRITICAL, _DEVIATION,
        "Take the nodes out of service until memory, NVLink and NICs have been tested: data is being corrupted.",
    ),
    "transport_as_expected": _Rule(
        "went over TCP",
        Severity.CRITICAL, _DEVIATION,
        "Check RDMA devices in the pods, NCCL_IB_HCA, GID index, the memory lock limit and NCCL's plugin.",
    ),
    "transport_known": _Rule(
        "does not say which transport it used",
        Severity.WARNING, _NOT,
        "Set NCCL_DEBUG=INFO in checks.collectives.nccl.env.",
    ),
    "links_measured": _Rule(
        "measured nothing", Severity.CRITICAL, _NOT, "See its output: often an option that this perftest does not know."
    ),
    "library_warns_not": _Rule(
        "made NCCL warn", Severity.INFO, _DEVIATION, "Read the warning; it often precedes a failure."
    ),
}  # fmt: skip


def judge(rows: RowSet, context: Context) -> list[Finding]:
    """Return the findings of a run, what makes numbers unusable first."""
    rules = settings(context.site)
    causes: dict[str, str] = {}
    return [
        *_problems(rows, context, causes),
        *_complete(rows, context, causes),
        *judge_failing(rows, context),
        *_floors(rows, rules),
        *judge_peers(rows, rules),
        *_spread(rows, rules),
        *judge_pairs(rows, rules),
    ]


def _problems(rows: RowSet, context: Context, causes: dict[str, str]) -> list[Finding]:
    """One finding per engine and rule. A launch that did not run at all has its finding already.

    ``causes`` gets, per launch, the finding that says why its numbers are not used.
    """
    engines = {r.launch: r.engine for r in rows.of(CollectiveLaunch)}
    grouped: dict[tuple[str, str], list[LaunchProblem]] = defaultdict(list)
    for p in sorted(rows.of(LaunchProblem), key=lambda p: (p.launch, p.rule)):
        stored = context.reach.get(p.launch)
        if stored is None or stored.status is ReachStatus.OK:
            grouped[engines.get(p.launch, "unknown"), p.rule].append(p)
    out = []
    for (engine, rule), found in sorted(grouped.items()):
        first, told = found[0], _RULES.get(rule)
        if told is None:
            told = _Rule(f"broke {rule}", Severity.CRITICAL, _NOT, "See the evidence.")
        more = f" (the same in {_listed([p.launch for p in found[1:]])})" if len(found) > 1 else ""
        told_finding = finding(
            check=CHECK,
            rule=rule,
            unit=engine,
            unit_kind="benchmark",
            metric=rule,
            severity=told.severity,
            kind=told.kind,
            summary=f"{first.launch} {told.what}: {first.detail}{more}.",
            expected=first.expected,
            actual=first.actual,
            action=told.action,
            command="job",
            evidence_unit=first.launch,
        )
        out.append(told_finding)
        for p in found:
            if p.refuses:
                causes.setdefault(p.launch, told_finding.finding)
    return out


def _complete(rows: RowSet, context: Context, causes: Mapping[str, str]) -> Iterator[Finding]:
    """Every benchmark must have all its launches, or its spread is not known."""
    planned: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for unit in context.scope:
        if isinstance(unit, Launch):
            try:
                want = asked(unit)
            except (ValueError, KeyError):
                continue
            planned[want.engine, want.workload, want.grouping].append(unit.name)
    usable = {r.launch for r in rows.of(CollectiveLaunch) if r.usable}
    if not planned:
        yield finding(
            check=CHECK,
            rule="launches_complete",
            unit=CHECK,
            unit_kind="benchmark",
            metric="launches",
            severity=Severity.WARNING,
            kind=FindingKind.NOT_JUDGED,
            summary="No benchmark was launched: no node in scope is fit, or none has a GPU.",
            expected="launches",
            actual="none",
            action="See which nodes were left out and why.",
        )
    for (engine, workload, grouping), names in sorted(planned.items()):
        lost = [n for n in names if n not in usable]
        if not lost:
            continue
        yield finding(
            check=CHECK,
            rule="launches_complete",
            unit=engine,
            unit_kind="benchmark",
            metric=f"{workload}.{grouping}",
            severity=Severity.WARNING,
            kind=FindingKind.NOT_JUDGED,
            summary=f"{len(names) - len(lost)} of {len(names)} launches of {workload} ({grouping}) gave numbers: "
            f"without {_listed(lost)}.",
            expected=f"{len(names)} launches",
            actual=f"{len(names) - len(lost)} launches",
            action="Find out why they failed, then run the check again; what is missing is never assumed to be good.",
            command="job",
            explained_by=next((causes[n] for n in lost if n in causes), None),
            evidence_unit=lost[0],
        )


def _floors(rows: RowSet, rules: Settings) -> Iterator[Finding]:
    for floor in rules.floors:
        values: dict[str, list[Collective]] = defaultdict(list)
        for row in rows.of(Collective):
            if (
                (row.sku, row.collective, row.group_kind) == (floor.sku, floor.collective, floor.group)
                and floor.min_nodes <= row.nodes <= floor.max_nodes
                and row.size_bytes >= floor.min_bytes
            ):
                values[row.group].append(row)
        for group, found in sorted(values.items()):
            at_largest = largest_size(found)
            value = median(r.busbw_gbps for r in at_largest)
            if value >= floor.busbw_gbps:
                continue
            worst = min(at_largest, key=lambda r: r.busbw_gbps)
            unit, kind = _unit(worst)
            yield finding(
                check=CHECK,
                rule="busbw_floor",
                unit=unit,
                unit_kind=kind,
                metric=f"{floor.collective}.{floor.group}.busbw_gbps",
                severity=Severity.CRITICAL,
                summary=f"{floor.collective} on {_where(group, worst)} reaches {value:.1f} GB/s of bus bandwidth at "
                f"{size_text(worst.size_bytes)}, {(1 - value / floor.busbw_gbps) * 100:.1f} % below the floor of "
                f"{floor.busbw_gbps:g} GB/s for {floor.sku}.",
                expected=f">= {floor.busbw_gbps:g} GB/s",
                actual=f"{value:.2f} GB/s (median of {len(at_largest)})",
                action="Compare single nodes and rails first: one slow member slows all.",
                source=floor.source,
                command="job",
                evidence_unit=worst.launch,
            )


def _spread(rows: RowSet, rules: Settings) -> Iterator[Finding]:
    """Iterations that differ much. Not on gloo: on shared CPUs they always do."""
    grouped: dict[tuple[str, str], list[Collective]] = defaultdict(list)
    for row in rows.of(Collective):
        if row.engine != "gloo" and row.group_kind == "all" and row.time_cv is not None:
            grouped[row.engine, row.collective].append(row)
    for (engine, collective), found in sorted(grouped.items()):
        at_largest = largest_size(found)
        cv = median(r.time_cv or 0.0 for r in at_largest)
        if cv <= rules.iteration_cv:
            continue
        worst = max(at_largest, key=lambda r: r.time_cv or 0.0)
        yield finding(
            check=CHECK,
            rule="iterations_steady",
            unit=engine,
            unit_kind="benchmark",
            metric=f"{collective}.time_cv",
            severity=Severity.INFO,
            summary=f"Iterations of {collective} at {size_text(worst.size_bytes)} vary by {cv * 100:.1f} % of their "
            "mean.",
            expected=f"<= {rules.iteration_cv * 100:g} %",
            actual=f"{cv * 100:.1f} %",
            action="Look for other traffic on the fabric and for congestion counters during the run.",
            source="nccl-tests tools/analyze_perf_json.py marks more than 5 %",
            command="job",
            evidence_unit=worst.launch,
        )


def _unit(row: Collective) -> tuple[str, str]:
    if row.group_kind == "all" or row.group.endswith(":slowest"):
        return row.engine, "benchmark"
    return row.group, row.group_kind


def _where(group: str, row: Collective) -> str:
    return f"all {row.nodes} nodes" if group == "all" else group


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_NAMED])
    return f"{shown} and {len(names) - _NAMED} more" if len(names) > _NAMED else shown
