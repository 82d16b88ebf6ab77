"""Which node is behind each host name of a launch: a pod has a name of its own, and its backend says where it ran.

The file is part of the proof that the nodes asked for were measured. One that cannot be read, or leaves a host out,
proves nothing: the launch is refused, even where a host happens to be called like a node.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from fabric_health.checks.collectives.asked import Asked
from fabric_health.checks.collectives.parsers.reading import Reading
from fabric_health.checks.collectives.validate import short
from fabric_health.evidence import CommandResult, CommandStatus, UnitEvidence

FILE = "hosts.json"
_NAMED = 4


@dataclass(frozen=True)
class Hosts:
    """Host name -> node, as the job's backend tells it. ``fault`` says why that cannot be used, where it cannot."""

    names: Mapping[str, str] = field(default_factory=dict)
    fault: str = ""


def hosts_of(want: Asked, reading: Reading, evidence: UnitEvidence, nodes: Collection[str]) -> Hosts:
    """Return what is known of the hosts that a launch's output names; ``nodes`` are all nodes of the site.

    Without the file, as on backends whose hosts are nodes, names stand for themselves.
    """
    file = evidence.result(f"artefact:{FILE}")
    used = list(dict.fromkeys(d.host for d in reading.devices))
    if file is None:
        known = {short(n) for n in nodes}
        if want.nodes and used and not any(short(h) in known for h in used):
            return Hosts(fault=f"{_listed(used)} are no nodes of the site, and no {FILE} says on which nodes they are")
        return Hosts()
    told = _read(file)
    return told if told.fault or not want.nodes else Hosts(told.names, _gaps(told.names, used))


def _read(file: CommandResult) -> Hosts:
    if file.status is not CommandStatus.EXITED:
        return Hosts(fault=f"{FILE} is not whole{f': {file.stderr[:200]}' if file.stderr else ''}")
    twice: list[str] = []

    def once(pairs: list[tuple[str, object]]) -> dict[str, object]:
        held = dict(pairs)
        twice.extend(k for k, n in pairs if held[k] != n)
        return held

    try:
        raw = json.loads(file.stdout, object_pairs_hook=once)
    except (ValueError, RecursionError):
        return Hosts(fault=f"{FILE} is cut off or not JSON")
    if not isinstance(raw, dict) or not all(isinstance(n, str) and h and n.strip() for h, n in raw.items()):
        return Hosts(fault=f"{FILE} is no object of host names and the nodes that they are on")
    if twice:
        return Hosts(fault=f"{FILE} has {_listed(twice)} on two nodes")
    if not raw:
        return Hosts(fault=f"{FILE} names no host")
    names = dict(raw)
    for host, node in raw.items():
        # The tool cuts names at the first dot; a short name that two hosts share stands for neither.
        if short(host) not in raw:
            names[short(host)] = node if names.get(short(host), node) == node else ""
    return Hosts({h: n for h, n in names.items() if n})


def _gaps(names: Mapping[str, str], used: Iterable[str]) -> str:
    """Say which hosts of the output the file does not place, or places on one node together; empty for none."""
    used = list(used)
    unknown = [h for h in used if h not in names and short(h) not in names]
    if unknown:
        return f"{FILE} does not say on which node {_listed(unknown)} ran"
    on: dict[str, list[str]] = {}
    for host in used:
        on.setdefault(short(names.get(host) or names[short(host)]), []).append(host)
    shared = next(((node, hosts) for node, hosts in on.items() if len(hosts) > 1), None)
    return f"{FILE} has {_listed(shared[1])} on one node, {shared[0][:100]}" if shared else ""


def _listed(names: Iterable[str]) -> str:
    names = [n[:100] for n in names]
    shown = ", ".join(names[:_NAMED])
    return f"{shown} and {len(names) - _NAMED} more" if len(names) > _NAMED else shown
