"""One launch of a pair of nodes to rows: its outcome, what was wrong with it, and a row for each link asked for.

A link that gives no number has a row that says why: that a NIC does not connect is what one wants to know.
"""

from __future__ import annotations

from collections.abc import Iterator

from fabric_health.checks.check import Launch
from fabric_health.checks.collectives.asked import Asked
from fabric_health.checks.collectives.hosts import hosts_of
from fabric_health.checks.collectives.parsers.pair_log import PairLog, PairTest, read_pair_log
from fabric_health.checks.collectives.parsers.reading import Device, Reading
from fabric_health.checks.collectives.rows import node_of
from fabric_health.checks.collectives.tables import CollectiveLaunch, LaunchProblem, PointToPoint
from fabric_health.checks.collectives.validate import Problem, Seen, short
from fabric_health.datasets.contracts import Row
from fabric_health.evidence import CommandResult, UnitEvidence
from fabric_health.site import Site

NOT_RUN = "the test was not run"


def pair_launch(unit: Launch, want: Asked, job: CommandResult, evidence: UnitEvidence, site: Site) -> list[Row]:
    """Return the rows of one launch. Never raises for anything it printed."""
    log = read_pair_log(job.stdout, gbits=want.gbits)
    hosts = [h for h in (log.server, log.client) if h]
    reading = Reading(devices=[Device(i, 0, h) for i, h in enumerate(hosts)])
    found = hosts_of(want, reading, evidence, [n.name for n in site.nodes])
    seen = Seen(reading, None, (), found.names)
    broken = [*_ended(want, log, job), *_placed(want, log, seen, found.fault)]
    tests = {(t.device, t.size_bytes): t for t in log.tests}
    rows = [_row(unit.name, want, device, size, tests, site) for device in want.devices for size in want.sizes]
    if not broken and all(r.problem for r in rows):
        broken = [Problem("links_measured", f"no link gave a number; {rows[0].device}: {rows[0].problem}")]
    outcome = CollectiveLaunch(
        launch=unit.name,
        engine=want.engine,
        workload=want.workload,
        grouping=want.grouping,
        usable=not broken,
        nodes_asked=len(want.nodes),
        ranks_asked=want.ranks,
        max_bytes_asked=want.sizes[-1],
        hosts_seen=len(set(hosts)) or None,
        ranks_seen=len(hosts) or None,
        max_bytes_reached=max((r.size_bytes for r in rows if not r.problem), default=None),
        exit_code=job.exit_code,
        duration_s=max(0.0, (job.ended_at - job.started_at).total_seconds()),
        transport=next((t.reading.transport for t in log.tests if t.reading.transport), None),
        nics=",".join(sorted({r.device for r in rows if not r.problem}))[:1000] or None,
    )
    problems = [LaunchProblem(unit.name, p.rule, True, p.detail, p.expected, p.actual) for p in broken]
    return [outcome, *problems, *(() if broken else rows)]


def _ended(want: Asked, log: PairLog, job: CommandResult) -> Iterator[Problem]:
    if not job.ran or job.exit_code != 0:
        last = next((x for x in reversed((job.stderr or job.stdout).splitlines()) if x.strip()), "no output")
        said = f"exit code {job.exit_code}: {last.strip()[:200]}" if job.ran else f"it did not end: {job.status.value}"
        yield Problem("launch_completes", said, "exit code 0", str(job.exit_code))
    elif log.strange:
        yield Problem("output_readable", f"no line of the runner: {log.strange!r}"[:300])
    elif not log.ended:
        yield Problem(
            "output_complete",
            "the output ends before the runner's own last line",
            f"{len(want.devices) * len(want.sizes)} tests",
            f"{len(log.tests)} tests",
        )


def _placed(want: Asked, log: PairLog, seen: Seen, fault: str) -> Iterator[Problem]:
    """Both ranks on one host, other hosts, or server and client exchanged: not the pair that was asked for."""
    if fault:
        yield Problem("hosts_as_asked", fault, ", ".join(want.nodes))
        return
    if not log.server or not log.client:
        yield Problem("hosts_as_asked", "the output does not say where it ran", ", ".join(want.nodes), "unknown")
        return
    ran = [short(seen.node(h)) for h in (log.server, log.client)]
    if ran != [short(n) for n in want.nodes]:
        yield Problem(
            "hosts_as_asked",
            f"server on {ran[0][:100]}, client on {ran[1][:100]}",
            f"server on {want.nodes[0]}, client on {want.nodes[1]}",
            ", ".join(r[:100] for r in ran),
        )


def _row(
    launch: str, want: Asked, device: str, size: int, tests: dict[tuple[str, int], PairTest], site: Site
) -> PointToPoint:
    server, client = want.nodes
    test = tests.get((device, size))
    reading = test.reading if test else None
    problem = test.problem if test else NOT_RUN
    line = next((x for x in reading.lines if x.size_bytes == size), None) if reading and not problem else None
    values = dict(line.values) if line else {}
    if not values.get("bw_peak_gbitps"):
        values.pop("bw_peak_gbitps", None)  # tests of a duration have no peak; the tool prints 0
    node = node_of(site, client)
    nic = next((n for n in node.sku.nics if n.name == device), None) if node else None
    return PointToPoint(
        launch=launch,
        pair=f"{client}>{server}",
        device=device,
        test=(reading.test if reading else None) or want.workload,
        size_bytes=size,
        iterations=line.iterations if line else None,
        mtu_bytes=reading.mtu_bytes if reading else None,
        link_layer=reading.link_layer if reading else None,
        transport=reading.transport if reading else None,
        rail=nic.rail if nic else None,
        memory="gpu" if want.gpudirect else "host",
        rate_gbitps=node.sku.nic_rate_gbps if node else None,
        sku=node.sku_name if node else None,
        problem=problem or None,
        **values,
    )
