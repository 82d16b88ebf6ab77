"""Rules on DLRover's node check: every node passes, none is slow. Findings are on nodes where those are known."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from statistics import median_low

from fabric_health.checks.elastic_training.events import Kind
from fabric_health.checks.elastic_training.launches import UNIT
from fabric_health.checks.elastic_training.rules import AGENT, MASTER, deviation, not_judged, trains
from fabric_health.checks.elastic_training.settings import Asked
from fabric_health.checks.elastic_training.tables import ElasticEvent, ElasticNodeCheck, ElasticRun
from fabric_health.datasets.tables import Finding, Severity
from fabric_health.site import Site

# A node that takes longer by less than this is not slow, whatever the ratio: starting processes takes that long.
LEAST_GAP_S = 1.0


def node_findings(
    runs: Mapping[str, ElasticRun],
    checks: Sequence[ElasticNodeCheck],
    events: Sequence[ElasticEvent],
    wanted: Asked,
    site: Site,
) -> Iterator[Finding]:
    """Judge the newest round that each node has: earlier ones blame a slow node's partner, too."""
    by_launch: dict[str, dict[str, ElasticNodeCheck]] = defaultdict(dict)
    for row in sorted(checks, key=lambda r: (r.launch, r.round)):
        by_launch[row.launch][row.node] = row
    known = {n.name for n in site.nodes}
    told: set[tuple[str, str]] = set()
    for name, newest in sorted(by_launch.items()):
        run = runs.get(name)
        if run is None:
            continue
        for found in (*_failed(newest, run, known), *_slow(newest, run, known, wanted)):
            # The same node in another launch is the same finding.
            if (found.rule, found.unit + found.metric) not in told:
                told.add((found.rule, found.unit + found.metric))
                yield found
    yield from _failed_unnamed(runs, by_launch, events)
    for name, run in sorted(runs.items()):
        if wanted.own.node_check and run.problem is None and not by_launch[name] and _checks_nodes(run):
            yield not_judged(
                "node_check_known",
                f"{name.rpartition('-')[0]}.node_check",
                f"{name}: DLRover's node check was asked for, and no result of it was found",
                action="See the master's log in the evidence; a release that is not known yet may word it otherwise.",
                launch=name,
            )


def _checks_nodes(run: ElasticRun) -> bool:
    return run.backend == "kubernetes" or not trains(run)


def _where(run: ElasticRun, node: str, known: set[str]) -> tuple[str, str, str]:
    """Return unit, its kind, and the words for a node: a node of the site, or else an agent or worker of the job."""
    if node in known:
        return node, "node", node
    kind = "agent" if run.backend == "local" else "worker"
    return f"{UNIT}/{kind}-{node}", kind, f"{kind} {node} of the job"


def _failed(newest: Mapping[str, ElasticNodeCheck], run: ElasticRun, known: set[str]) -> Iterator[Finding]:
    for node, row in sorted(newest.items()):
        if row.passed is not False:
            continue
        unit, kind, named = _where(run, node, known)
        yield deviation(
            "node_check_passes",
            "node_check",
            Severity.CRITICAL,
            f"{named} failed DLRover's node check (matrix products and an all_gather) in round {row.round}",
            expected="passed",
            actual="failed",
            action="Look at its GPUs, NVLink and NICs in this run's audits; test it alone before it trains again.",
            source=AGENT,
            launch=run.launch,
            unit=unit,
            unit_kind=kind,
        )


def _slow(newest: Mapping[str, ElasticNodeCheck], run: ElasticRun, known: set[str], wanted: Asked) -> Iterator[Finding]:
    """Yield the nodes beyond the ratio to the lower median: with half of the nodes slow, the usual median is slow."""
    times = {n: r.elapsed_s for n, r in newest.items() if r.elapsed_s is not None and r.passed is not False}
    usual = median_low(times.values()) if times else 0.0
    limit = wanted.own.limits.node_check_ratio
    for node, row in sorted(newest.items()):
        time = times.get(node)
        beyond = time is not None and len(times) > 1 and time > limit * usual and time - usual > LEAST_GAP_S
        if not beyond and not (row.straggler and row.passed is not False):
            continue
        unit, kind, named = _where(run, node, known)
        said = "; DLRover names it a straggler" if row.straggler else ""
        took = f"{time:.1f} s against a median of {usual:.1f} s" if time is not None else "for an unknown time"
        yield deviation(
            "no_stragglers",
            "node_check.elapsed_s",
            Severity.WARNING,
            f"{named} is slow in DLRover's node check: {took}{said}",
            expected=f"<= {limit:g} x the median",
            actual=f"{time / usual:.1f} x" if time is not None and usual else "named by DLRover",
            action="Compare clocks, power limits, PCIe and NIC counters of the node with its peers: it slows all.",
            source=MASTER,
            launch=run.launch,
            unit=unit,
            unit_kind=kind,
        )


def _failed_unnamed(
    runs: Mapping[str, ElasticRun],
    by_launch: Mapping[str, Mapping[str, ElasticNodeCheck]],
    events: Sequence[ElasticEvent],
) -> Iterator[Finding]:
    """Yield a finding for a check that ended the job where no row says which node it was."""
    for name, run in sorted(runs.items()):
        rows = by_launch.get(name, {}).values()
        if any(r.passed is False or r.straggler for r in rows):
            continue
        said = [e for e in events if e.launch == name and e.kind == Kind.NODE_CHECK_FAILED]
        # Suspicions of an early round are taken back by the next one, which the rows have.
        if not said or (rows and run.final_status == "succeeded"):
            continue
        yield deviation(
            "node_check_passes",
            f"{name.rpartition('-')[0]}.node_check",
            Severity.CRITICAL,
            f"{name}: DLRover's node check failed: {said[-1].detail or 'no reason given'}",
            expected="passed on all nodes",
            actual="failed",
            action="Read master.log and the agents' logs in the evidence for the node; of three it is not told.",
            source=AGENT,
            launch=name,
        )
