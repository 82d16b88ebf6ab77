"""Is this the measurement that was asked for? Every rule fails closed: what is not shown to hold does not hold.

"OK" in the tool's output is about values only: a run over TCP, on other hosts or at a smaller size prints it too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from fabric_health.checks.collectives.arithmetic import (
    SHARED_SIZES,
    agrees,
    algorithm_bandwidth,
    bus_factor,
)
from fabric_health.checks.collectives.asked import FLEET_ENGINES, Asked
from fabric_health.checks.collectives.parsers.reading import Device, Line, Reading
from fabric_health.evidence import CommandResult

_NAMED = 4
# The tool rounds a size that ranks share down to whole 16-byte pieces for each.
_PIECE_BYTES = 16
REFUSES = frozenset(
    {
        "launch_completes", "output_complete", "output_readable", "collective_as_asked", "hosts_as_asked",
        "ranks_as_asked", "ranks_once", "groups_as_asked", "arithmetic_holds", "tool_reports_no_error",
        "artefact_of_this_launch", "links_measured",
    }
)  # fmt: skip
"""Rules whose breach leaves no number that can be used; the others leave numbers that mean what they say."""
OF_THE_GROUP = ("launch_completes", "tool_reports_no_error", "no_wrong_results", "transport_as_expected")
"""What a node of the launch may be to blame for: it failed, computed wrong values or left the fabric."""


_OWN_CAUSES = ("tool_reports_no_error", "output_readable", "ranks_once", "library_warns_not")


@dataclass(frozen=True)
class Problem:
    """A broken rule, with what was expected and what came."""

    rule: str
    detail: str
    expected: str | None = None
    actual: str | None = None

    @property
    def refuses(self) -> bool:
        """Whether it makes the launch's numbers unusable."""
        return self.rule in REFUSES


@dataclass(frozen=True)
class Seen:
    """What a launch gave: its reading, the transport between ranks, and the site's names of the job's hosts."""

    reading: Reading
    transport: str | None
    warnings: tuple[str, ...]
    names: Mapping[str, str]

    def node(self, host: str) -> str:
        """Return the site's name of a host that the tool reports (which cuts names at the first dot)."""
        return self.names.get(host) or self.names.get(short(host)) or host


def short(host: str) -> str:
    """Return a host name up to its first dot; addresses stay whole."""
    return host if host.replace(".", "").isdecimal() else host.split(".", 1)[0]


def problems(want: Asked, seen: Seen, job: CommandResult, transport: str) -> list[Problem]:
    """Return every rule that the launch breaks, each once. ``transport`` is the site's setting, ``rdma`` or ``any``."""
    reading = seen.reading
    found = [
        *_ended(want, reading, job),
        *(Problem(rule, detail) for rule, detail in reading.faults),
        *_placement(want, seen),
        *_sizes(want, reading),
        *_values(want, reading),
        *_arithmetic(want, reading),
        *_transport(want, seen, transport),
    ]
    if seen.warnings:
        found.append(Problem("library_warns_not", f"NCCL warned: {seen.warnings[0]}", "no warning", seen.warnings[0]))
    once = list({p.rule: p for p in reversed(found)}.values())[::-1]
    if reading.lines:
        return once
    # Without a result all else follows from that: what ended the launch, or what it said, is the cause to tell.
    cause = next((r for r in ("launch_completes", "output_complete") if any(p.rule == r for p in once)), None)
    return [p for p in once if p.rule in (cause, *_OWN_CAUSES)]


def _ended(want: Asked, reading: Reading, job: CommandResult) -> Iterator[Problem]:
    wrong = reading.out_of_bounds or any(x.wrong for x in reading.lines)
    if not job.ran or job.exit_code is None:
        yield Problem("launch_completes", f"the job did not end by itself: {job.status.value}", "exit code 0", None)
    elif job.exit_code != 0 and not wrong:
        last = next((x for x in reversed((job.stderr or job.stdout).splitlines()) if x.strip()), "no output")
        yield Problem(
            "launch_completes", f"exit code {job.exit_code}: {last.strip()[:200]}", "exit code 0", str(job.exit_code)
        )
    if not reading.lines:
        yield Problem("output_complete", "there is no result at all", "results", "none")
    elif not reading.concluded:
        yield Problem("output_complete", "the output ends before the tool's own last line", "its footer", "none")
    if reading.collective and reading.collective not in want.collectives:
        yield Problem(
            "collective_as_asked", "another collective ran", ", ".join(want.collectives), reading.collective[:40]
        )


def _placement(want: Asked, seen: Seen) -> Iterator[Problem]:
    """Slots are filled in host order, so a rank count that fits on fewer hosts leaves the last ones out, silently."""
    devices = seen.reading.devices
    hosts = {seen.node(d.host) for d in devices}
    if not devices:
        yield Problem("hosts_as_asked", "the output does not say where it ran", _listed(want.nodes), "unknown")
        return
    if want.nodes:
        missing = sorted({short(n) for n in want.nodes} - {short(h) for h in hosts})
        strange = sorted({short(h) for h in hosts} - {short(n) for n in want.nodes})
        if missing or strange:
            said = [f"asked for and not used: {_listed(missing)}"] if missing else []
            said += [f"used and not asked for: {_listed(strange)}"] if strange else []
            yield Problem("hosts_as_asked", "; ".join(said), _listed(want.nodes), _listed(sorted(hosts)))
    elif len(hosts) != 1:
        yield Problem("hosts_as_asked", "a launch on one machine ran on several", "1 host", _listed(sorted(hosts)))
    per_host = Counter(seen.node(d.host) for d in devices)
    if len(devices) != want.ranks or len(set(per_host.values())) != 1:
        yield Problem(
            "ranks_as_asked",
            f"{len(devices)} ranks on {len(per_host)} hosts, {want.ranks} asked for, the same number on each",
            f"{want.ranks} ranks, {want.ranks // max(1, len(want.nodes))} a host",
            _listed([f"{n} on {h}" for h, n in sorted(per_host.items())]),
        )
    yield from _groups(want, devices, seen)


def _groups(want: Asked, devices: Sequence[Device], seen: Seen) -> Iterator[Problem]:
    groups: dict[int, list[Device]] = {}
    for d in devices:
        groups.setdefault(d.group, []).append(d)
    hosts = {seen.node(d.host) for d in devices}
    spans = {g: Counter(seen.node(d.host) for d in members) for g, members in groups.items()}
    if want.grouping == "node":
        fits = len(groups) == len(hosts) and all(len(s) == 1 for s in spans.values())
    elif want.grouping == "rail":
        same_gpu = all(len({d.device for d in members}) == 1 for members in groups.values())
        fits = same_gpu and all(set(s) == hosts and set(s.values()) == {1} for s in spans.values())
    elif want.grouping == "ranks":
        fits = [tuple(d.device for d in groups[g]) for g in sorted(groups)] == list(want.groups)
    else:
        fits = len(groups) == 1
    if not fits:
        expected = {
            "node": "one group a node",
            "rail": "one group a rail, one GPU of each node in it",
            "ranks": "groups " + _listed([",".join(str(m) for m in g) for g in want.groups]),
        }
        yield Problem(
            "groups_as_asked",
            "the communicators are not those asked for (the split counts processes: one process a GPU is needed)",
            expected.get(want.grouping, "one group"),
            f"{len(groups)} groups over {len(hosts)} hosts",
        )


def _sizes(want: Asked, reading: Reading) -> Iterator[Problem]:
    missing: list[str] = []
    for collective, group in product(want.collectives, range(max(1, len(want.groups)))):
        own = [x for x in reading.lines if (x.collective or collective) == collective and x.group == group]
        reached = sorted({x.size_bytes for x in own})
        slack = _PIECE_BYTES * max(1, want.ranks) if collective in SHARED_SIZES else _PIECE_BYTES
        missing += [
            f"{collective} {size} B" for size in want.sizes if not any(size - slack < r <= size for r in reached)
        ]
    if missing and reading.lines:
        largest = max(x.size_bytes for x in reading.lines)
        yield Problem(
            "sizes_reached",
            f"not measured: {_listed(missing)}",
            f"{len(want.sizes)} sizes up to {want.sizes[-1]} B",
            f"up to {largest} B",
        )


def _values(want: Asked, reading: Reading) -> Iterator[Problem]:
    wrong = [x for x in reading.lines if x.wrong]
    if wrong or reading.out_of_bounds:
        worst = max(wrong, key=lambda x: x.wrong or 0, default=None)
        where = f"{worst.wrong} elements wrong at {worst.size_bytes} B" if worst else "values out of bounds"
        yield Problem("no_wrong_results", where, "0 wrong", f"{len(wrong)} measurements with wrong elements")
    # In place is not checked for alltoall and sendrecv; what is not checked in any place is not checked.
    checked = {(x.collective, x.size_bytes, x.root) for x in reading.lines if x.wrong is not None}
    unchecked = {(x.collective, x.size_bytes, x.root) for x in reading.lines} - checked
    if want.checked and unchecked and not (wrong or reading.out_of_bounds):
        yield Problem("results_checked", f"the values of {len(unchecked)} sizes were not checked", "checked", "N/A")


def _arithmetic(want: Asked, reading: Reading) -> Iterator[Problem]:
    """A column read as another, or another number of ranks than reported, shows as bandwidths that do not fit."""
    if not reading.devices:
        return
    first = min(reading.devices, key=lambda d: d.rank)
    ranks = sum(d.group == first.group for d in reading.devices)
    for line in reading.lines:
        factor = bus_factor(line.collective or want.workload, ranks)
        if factor is None:
            yield Problem("arithmetic_holds", f"no factor is known for {line.collective or want.workload}")
            return
        bus = factor * line.algbw_gbps
        if not agrees(line.busbw_gbps, bus, line.busbw_rounding + factor * line.algbw_rounding):
            yield Problem(
                "arithmetic_holds",
                f"bus bandwidth at {line.size_bytes} B is not {factor:.4g} x algorithm bandwidth of {ranks} ranks",
                f"{bus:.4g} GB/s",
                f"{line.busbw_gbps:.4g} GB/s",
            )
            return
        if not _time_fits(line):
            yield Problem(
                "arithmetic_holds",
                f"algorithm bandwidth at {line.size_bytes} B is not size / time",
                f"{algorithm_bandwidth(line.size_bytes, line.time_us):.4g} GB/s",
                f"{line.algbw_gbps:.4g} GB/s",
            )
            return


def _time_fits(line: Line) -> bool:
    low = algorithm_bandwidth(line.size_bytes, line.time_us + line.time_rounding)
    high = algorithm_bandwidth(line.size_bytes, max(line.time_us - line.time_rounding, 1e-9))
    slack = line.algbw_rounding + 1e-3 * line.algbw_gbps
    return low - slack <= line.algbw_gbps <= high + slack


def _transport(want: Asked, seen: Seen, transport: str) -> Iterator[Problem]:
    if transport != "rdma" or len(want.nodes) < 2 or want.grouping == "node" or want.engine not in FLEET_ENGINES:
        return
    if seen.transport is None or "NET/" not in seen.transport:
        if want.engine == "nccl-tests":
            yield Problem(
                "transport_known",
                "NCCL's log does not say which transport connected the nodes",
                "an RDMA transport in the log (NCCL_DEBUG=INFO)",
                seen.transport or "nothing logged",
            )
    elif "NET/Socket" in seen.transport:
        yield Problem(
            "transport_as_expected",
            "NCCL fell back to TCP between nodes (NET/Socket): the speed of the host network, not of the fabric",
            "an RDMA transport, e.g. NET/IB",
            seen.transport,
        )


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_NAMED])
    return f"{shown} and {len(names) - _NAMED} more" if len(names) > _NAMED else shown or "none"
