"""Benchmarks that fail in every launch for a reason that a node of theirs may be: they give nothing to compare.

A launch that hung, crashed or computed wrong values has a member that makes it so, or all of them have the cause in
common. Which it is takes groups of them: isolation. One that ran elsewhere or did not start says nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from fabric_health.checks.check import Context, Launch, RowSet
from fabric_health.checks.collectives.asked import FLEET_ENGINES, asked
from fabric_health.checks.collectives.tables import LaunchProblem
from fabric_health.datasets.tables import Finding, Severity, finding
from fabric_health.evidence import ReachStatus

CHECK = "collectives"
RULE = "benchmark_runs"
_FAILS = ("launch_completes", "tool_reports_no_error", "no_wrong_results")
_ELSEWHERE = "hosts_as_asked"


def judge_failing(rows: RowSet, context: Context) -> Iterator[Finding]:
    """Yield a finding for every benchmark of several nodes of which no launch gave right numbers."""
    problems: dict[str, dict[str, LaunchProblem]] = defaultdict(dict)
    for p in rows.of(LaunchProblem):
        problems[p.launch][p.rule] = p
    planned: dict[tuple[str, tuple[str, ...], str, str], list[Launch]] = defaultdict(list)
    for unit in context.scope:
        if isinstance(unit, Launch) and (benchmark := benchmark_of(unit)) is not None:
            planned[benchmark].append(unit)
    for (engine, nodes, workload, grouping), launches in sorted(planned.items()):
        faults = [_fault(launch, problems.get(launch.name, {}), context) for launch in launches]
        if not all(faults):
            continue
        yield finding(
            check=CHECK,
            rule=RULE,
            unit=engine,
            unit_kind="benchmark",
            metric=f"{workload}.{grouping}.{len(nodes)}_nodes",
            severity=Severity.CRITICAL,
            summary=f"All {len(launches)} launches of {workload} ({grouping}) on {len(nodes)} nodes failed: "
            f"{launches[0].name} {faults[0]}.",
            expected="right numbers",
            actual="none",
            action="Isolate it: groups of the nodes tell whether one makes all fail. If no group runs, it is no node.",
            command="job",
            evidence_unit=launches[0].name,
        )


def benchmark_of(launch: Launch) -> tuple[str, tuple[str, ...], str, str] | None:
    """Return engine, nodes, workload and grouping of a launch of several nodes; None for any other."""
    try:
        want = asked(launch)
    except (ValueError, KeyError):
        return None
    if want.engine not in FLEET_ENGINES or len(want.nodes) < 2:
        return None
    return want.engine, launch.units, want.workload, want.grouping


def _fault(launch: Launch, found: Mapping[str, LaunchProblem], context: Context) -> str:
    """Say why a launch failed for a reason that one of its nodes may be, empty for any other outcome."""
    stored = context.reach.get(launch.name)
    if stored is not None and stored.status is ReachStatus.HUNG:
        return "did not end"
    if (stored is not None and stored.status is not ReachStatus.OK) or _ELSEWHERE in found:
        return ""
    told: Sequence[LaunchProblem] = [found[r] for r in _FAILS if r in found]
    return f"broke the rule {told[0].rule}: {told[0].detail}" if told else ""
