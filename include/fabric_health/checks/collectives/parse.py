"""One launch's evidence to rows: its outcome, what was wrong with it, and, where that is usable, its numbers."""

from __future__ import annotations

from fabric_health.checks.check import Launch, Unit
from fabric_health.checks.collectives.asked import Asked, asked
from fabric_health.checks.collectives.hosts import hosts_of
from fabric_health.checks.collectives.pairs import pair_launch
from fabric_health.checks.collectives.parsers.gloo_json import read_gloo
from fabric_health.checks.collectives.parsers.nccl_json import read_json
from fabric_health.checks.collectives.parsers.nccl_log import Log, read_log, split
from fabric_health.checks.collectives.parsers.nccl_text import hosts_in, read_text
from fabric_health.checks.collectives.parsers.reading import Line, Reading
from fabric_health.checks.collectives.rows import collective_rows, sample_rows
from fabric_health.checks.collectives.settings import settings
from fabric_health.checks.collectives.tables import CollectiveLaunch, LaunchProblem
from fabric_health.checks.collectives.validate import Problem, Seen, problems
from fabric_health.datasets.contracts import Row
from fabric_health.errors import SiteError
from fabric_health.evidence import CommandResult, UnitEvidence
from fabric_health.site import Site

_FILE_DIFFERS = "artefact_of_this_launch"


def parse(unit: Unit, evidence: UnitEvidence, site: Site) -> list[Row]:
    """Return the rows of one launch. Never raises for anything the launch printed.

    There is always a row in ``collective_launches``; numbers only when no rule of ``collective_problems`` refuses them.
    """
    job = evidence.result("job")
    if not isinstance(unit, Launch) or job is None:
        return []
    try:
        want = asked(unit)
    except (ValueError, KeyError) as error:
        return [LaunchProblem(unit.name, "launch_known", True, str(error)[:300])]
    if want.engine == "perftest":
        return pair_launch(unit, want, job, evidence, site)
    log = Log()
    if want.engine == "gloo":
        reading = read_gloo(job.stdout)
    else:
        reading, log = _nccl(want, job, evidence)
    transport = "TCP" if want.engine == "gloo" else log.transports()
    reading.library_version = log.version or reading.library_version
    hosts = hosts_of(want, reading, evidence, [n.name for n in site.nodes])
    if hosts.fault:
        reading.fault("hosts_as_asked", hosts.fault)
    seen = Seen(reading, transport, tuple(log.warnings), hosts.names)
    broken = problems(want, seen, job, _transport(site))
    usable = not any(p.refuses for p in broken)
    rows: list[Row] = [_outcome(unit, want, job, seen, log, usable)]
    rows += _problem_rows(unit, broken)
    if usable:
        rows += collective_rows(unit.name, want, seen, log, site)
        rows += sample_rows(unit.name, want, reading)
    return rows


def _nccl(want: Asked, job: CommandResult, evidence: UnitEvidence) -> tuple[Reading, Log]:
    """Read text, log and JSON of one launch. The JSON's numbers are finer, so they count where both agree."""
    hosts = hosts_in(job.stdout)
    lines, entries = split(job.stdout, hosts)
    _, more = split(job.stderr, hosts)
    reading, log = read_text(lines), read_log([*entries, *more])
    if want.artefact is None:
        return reading, log
    name = reading.json_file.rsplit("/", 1)[-1] if reading.json_file else want.artefact
    file = evidence.result(f"artefact:{name}")
    fine = read_json(file.stdout) if file else None
    if fine is None:
        what = _why_missing(name, evidence.detail) if file is None else f"{name} is cut off or not JSON"
        reading.fault("artefact_written", f"{what}: single iterations and groups are not known")
        return reading, log
    difference = _difference(reading.lines, fine.lines)
    if difference:
        reading.fault(_FILE_DIFFERS, f"{name} holds other numbers than the output: {difference}")
        return reading, log
    reading.lines = fine.lines
    reading.devices = reading.devices or fine.devices
    reading.concluded = reading.concluded or fine.concluded
    reading.out_of_bounds = fine.out_of_bounds if reading.out_of_bounds is None else reading.out_of_bounds
    reading.iterations = fine.iterations or reading.iterations
    reading.library_version = reading.library_version or fine.library_version
    reading.faults += [f for f in fine.faults if f not in reading.faults]
    return reading, log


def _why_missing(name: str, detail: str) -> str:
    """Say that a file is missing, and why where the job's backend knew."""
    head = f"artefact {name}: "
    why = next((part[len(head) :] for part in detail.split("; ") if part.startswith(head)), "")
    return f"{name} is missing" + (f" ({why[:200]})" if why else "")


def _difference(text: list[Line], fine: list[Line]) -> str | None:
    """Say where a file does not hold what was printed (left over from another launch), None where it does."""
    known = {(x.size_bytes, x.root, x.in_place): x.time_us for x in fine}
    for line in text:
        time = known.get((line.size_bytes, line.root, line.in_place))
        if time is None:
            return f"{line.size_bytes} B is missing"
        if abs(time - line.time_us) > line.time_rounding * 1.01 + 1e-3 * time:
            return f"{time:g} us instead of {line.time_us:g} us at {line.size_bytes} B"
    return None


def _transport(site: Site) -> str:
    try:
        return settings(site).transport
    except SiteError:
        # Planning has said so already; parsing evidence of an earlier plan must still fail closed.
        return "rdma"


def _problem_rows(unit: Launch, broken: list[Problem]) -> list[LaunchProblem]:
    return [LaunchProblem(unit.name, p.rule, p.refuses, p.detail, p.expected, p.actual) for p in broken]


def _outcome(unit: Launch, want: Asked, job: CommandResult, seen: Seen, log: Log, usable: bool) -> CollectiveLaunch:
    reading = seen.reading
    return CollectiveLaunch(
        launch=unit.name,
        engine=want.engine,
        workload=want.workload,
        grouping=want.grouping,
        usable=usable,
        nodes_asked=len(want.nodes),
        ranks_asked=want.ranks,
        max_bytes_asked=want.sizes[-1],
        hosts_seen=len({d.host for d in reading.devices}) or None,
        ranks_seen=len(reading.devices) or None,
        max_bytes_reached=max((x.size_bytes for x in reading.lines), default=None),
        exit_code=job.exit_code,
        duration_s=max(0.0, (job.ended_at - job.started_at).total_seconds()),
        tool_version=reading.tool_version,
        library_version=reading.library_version,
        transport=seen.transport,
        nics=log.nics(),
    )
