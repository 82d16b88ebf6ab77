"""Numbers that may be used, as rows: all ranks together, and each node or rail by itself where the tool's file allows.

nccl-tests prints one result over all groups of a split. Its JSON holds the iterations of every process (``-I 1``), from
which each group's own time follows: a group is as slow as its slowest process.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from fabric_health.checks.collectives.arithmetic import algorithm_bandwidth, bus_factor
from fabric_health.checks.collectives.asked import Asked
from fabric_health.checks.collectives.comparability import comparability
from fabric_health.checks.collectives.parsers.nccl_log import Log
from fabric_health.checks.collectives.parsers.reading import Device, Line, Reading, spread
from fabric_health.checks.collectives.tables import Collective, CollectiveSample
from fabric_health.checks.collectives.validate import Seen
from fabric_health.errors import UsageError
from fabric_health.site import Node, Site


@dataclass(frozen=True)
class _Group:
    """One communicator: its name as a unit, its ranks, and the numbers of its processes."""

    name: str
    devices: tuple[Device, ...]
    processes: tuple[int, ...] = ()


def collective_rows(launch: str, want: Asked, seen: Seen, log: Log, site: Site) -> list[Collective]:
    """Return a row per group and measurement of a launch whose numbers may be used."""
    devices = sorted(seen.reading.devices, key=lambda d: d.rank)
    sku = node_of(site, want.nodes[0]) if want.nodes else None
    groups = _groups(want, devices, seen, sku)
    first = tuple(d for d in devices if d.group == devices[0].group)
    slowest = _Group("all" if want.grouping == "all" else f"{want.grouping}:slowest", first)
    out: list[Collective] = []
    for line in seen.reading.lines:
        if want.grouping == "ranks":
            out.append(_row(launch, want, seen, log, _of_ranks(line, devices), line, sku))
            continue
        single = want.grouping != "all" and len(line.process_times_us) == len(devices)
        for group in groups if single else (slowest,):
            own = _of_group(line, group, line.collective or want.workload) if single else line
            out.append(_row(launch, want, seen, log, group, own, sku))
    return out


def sample_rows(launch: str, want: Asked, reading: Reading) -> Iterator[CollectiveSample]:
    """Yield single iterations of launches whose ranks work together; those of groups are summed up in their rows."""
    if want.grouping != "all":
        return
    for line in reading.lines:
        for iteration, time in enumerate(line.times_us):
            yield CollectiveSample(
                launch=launch,
                collective=line.collective or want.workload,
                dtype=line.dtype,
                redop=line.redop,
                root=line.root,
                size_bytes=line.size_bytes,
                in_place=line.in_place,
                iteration=iteration,
                time_us=time,
            )


def _groups(want: Asked, devices: Sequence[Device], seen: Seen, sku: Node | None) -> list[_Group]:
    numbers: dict[int, list[int]] = {}
    for number, device in enumerate(devices):
        numbers.setdefault(device.group, []).append(number)
    rails = {nic.gpu: nic.rail for nic in sku.sku.nics} if sku else {}
    out = []
    for members in numbers.values():
        own = tuple(devices[n] for n in members)
        if want.grouping == "node":
            name = seen.node(own[0].host)
        else:
            gpu = own[0].device
            name = f"rail-{rails.get(gpu, gpu)}"
        out.append(_Group(name, own, tuple(members)))
    return out


def _of_ranks(line: Line, devices: Sequence[Device]) -> _Group:
    own = tuple(d for d in devices if d.group == line.group)
    return _Group("ranks-" + "-".join(str(d.device) for d in own), own)


def _of_group(line: Line, group: _Group, collective: str) -> Line:
    """Return the measurement of one group: every iteration takes as long as the group's slowest process."""
    own = [line.process_times_us[n] for n in group.processes]
    times = tuple(max(step) for step in zip(*own, strict=False))
    time = max(sum(t) / len(t) for t in own)
    low, high, p99, cv = spread(times)
    algbw = algorithm_bandwidth(line.size_bytes, time)
    return replace(
        line,
        time_us=time,
        algbw_gbps=algbw,
        busbw_gbps=algbw * (bus_factor(collective, len(group.devices)) or 0.0),
        time_min_us=low,
        time_max_us=high,
        time_p99_us=p99,
        time_cv=cv,
    )


def _row(launch: str, want: Asked, seen: Seen, log: Log, group: _Group, line: Line, sku: Node | None) -> Collective:
    collective = line.collective or want.workload
    hosts = Counter(seen.node(d.host) for d in group.devices)
    places = frozenset((d.host, d.device) for d in group.devices)
    algorithm, protocol = log.tuning(collective, line.size_bytes)
    named = "".join(f"{h}:{n}\n" for h, n in sorted(hosts.items()))
    row = Collective(
        launch=launch,
        group=group.name,
        group_kind=want.grouping,
        collective=collective,
        dtype=line.dtype,
        redop=line.redop,
        root=line.root,
        size_bytes=line.size_bytes,
        in_place=line.in_place,
        time_us=line.time_us,
        algbw_gbps=line.algbw_gbps,
        busbw_gbps=line.busbw_gbps,
        ranks=len(group.devices),
        ranks_per_node=max(hosts.values()),
        nodes=len(hosts),
        hosts_sha=hashlib.sha256(named.encode()).hexdigest()[:16],
        engine=want.engine,
        timing=want.timing,
        comparability="",
        iterations=line.iterations or seen.reading.iterations,
        wrong=line.wrong,
        time_min_us=line.time_min_us,
        time_max_us=line.time_max_us,
        time_p99_us=line.time_p99_us,
        time_cv=line.time_cv,
        transport=seen.transport if want.grouping in ("all", "ranks") else log.transports(places),
        nics=log.nics(places),
        algorithm=algorithm,
        protocol=protocol,
        nvls=log.nvls,
        sharp=log.sharp,
        library_version=seen.reading.library_version,
        tool_version=seen.reading.tool_version,
        sku=sku.sku_name if sku else None,
    )
    return replace(row, comparability=comparability(row))


def node_of(site: Site, name: str) -> Node | None:
    """Return the node that a launch names, None where the site has none of that name."""
    try:
        unit = site.unit(name)
    except UsageError:
        return None
    return unit if isinstance(unit, Node) else None
