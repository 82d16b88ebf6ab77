"""Topology: every wanted node and link is there, cabled as wanted, and answers; nothing else is."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from fabric_health.checks.fabric_links.asked import DISCOVERY, LINKS
from fabric_health.checks.fabric_links.tables import FabricNode, FabricPort
from fabric_health.checks.fabric_links.view import FabricView, deviation, not_judged
from fabric_health.checks.fabric_links.wanted import Wanted, WantedEnd, WantedLink, wanted
from fabric_health.datasets.tables import Finding, Severity

UP = "LinkUp"
_NAMED = 5


@dataclass
class _Topology:
    view: FabricView
    wanted: Wanted
    findings: list[Finding] = field(default_factory=list)
    # By the name of a missing node: what the ends of its links that are there show, and which neighbours it had.
    shown: dict[str, list[Finding]] = field(default_factory=lambda: defaultdict(list))
    neighbours: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    unshown: list[str] = field(default_factory=list)


def topology_findings(view: FabricView) -> list[Finding]:
    """Return what is wrong with nodes and cables; one cause is one line, its consequences point at it."""
    work = _Topology(view, wanted(view))
    for link in work.wanted.links:
        _link(work, link)
    _lost_nodes(work)
    _strangers(work)
    if work.wanted.planned:
        _extra(work)
    _gaps(work)
    return work.findings


def _link(work: _Topology, link: WantedLink) -> None:
    for near, far in link.ends:
        if near.guid is None:
            work.neighbours[near.name].append(far.name)
    view = work.view
    ports = [(n, f, view.ports.get((n.guid, n.port))) for n, f in link.ends if n.guid is not None]
    if any(p is not None and p.peer_guid == f.guid and p.peer_port == f.port and f.guid for _, f, p in ports):
        return
    for near, _far, port in ports:
        if port is None:
            if LINKS not in view.unread:
                work.unshown.append(str(near))
            return
    elsewhere = next(((n, f, p) for n, f, p in ports if p is not None and p.peer_guid is not None), None)
    near, far, port = elsewhere or (ports[0] if ports else (link.one, link.other, None))
    if port is None:
        return
    found = _miswired(work, near, far, port) if elsewhere else _no_peer(work, far, port)
    work.findings.append(found)
    for _, other, _ in ports:
        if other.guid is None and not elsewhere:
            work.shown[other.name].append(found)


def _miswired(work: _Topology, near: WantedEnd, far: WantedEnd, port: FabricPort) -> Finding:
    view = work.view
    actual = f"{port.peer} port {port.peer_port}"
    return deviation(
        view,
        "cable_as_wanted",
        view.of_port(port),
        "port",
        "peer",
        Severity.CRITICAL if work.wanted.planned else Severity.WARNING,
        f"{view.of_port(port)} is cabled to {actual}, not to {far}.",
        expected=str(far),
        actual=actual,
        action=f"Move the cable to {far}, or correct the cabling plan if the change is meant.",
        source=work.wanted.source,
        command=LINKS,
    )


def _no_peer(work: _Topology, far: WantedEnd, port: FabricPort) -> Finding:
    if port.phys_state == UP:
        return _silent(work.view, port, str(far), work.wanted.source)
    view = work.view
    seen = f"{port.state}/{port.phys_state}"
    disabled = port.phys_state == "Disabled"
    return deviation(
        view,
        "link_up",
        view.of_port(port),
        "port",
        "phys_state",
        Severity.CRITICAL,
        f"The link of {view.of_port(port)} to {far} is down ({port.phys_state}).",
        expected="Active/LinkUp",
        actual=seen,
        action="Enable the port: ibportstate <lid> <port> enable."
        if disabled
        else f"Check that {far.name} has power; then reseat the cable at both ends, then replace it.",
        source=work.wanted.source,
        command=LINKS,
    )


def _silent(view: FabricView, port: FabricPort, far: str | None, source: str | None) -> Finding:
    who = f" ({far})" if far else ""
    return deviation(
        view,
        "neighbour_answers",
        view.of_port(port),
        "port",
        "peer",
        Severity.CRITICAL,
        f"The link of {view.of_port(port)} is up, but what is at its other end{who} does not answer.",
        expected="a node that answers management packets",
        actual="link up, no answer: discovery leaves the node out and reports success all the same",
        action="Look at the node's host and driver (is it hung?), then at the firmware of its adapter.",
        source=source,
        command=DISCOVERY,
    )


def _lost_nodes(work: _Topology) -> None:
    """Tell of nodes that are gone. A node with one link is explained by that link; a lost switch explains its links."""
    view = work.view
    names = {n.node for n in view.absent.values()} | set(work.neighbours)
    names -= set(work.wanted.ambiguous)
    absent = {n.node: n for n in reversed(view.absent.values())}
    roots = {n: _lost_node(work, n, absent.get(n)) for n in sorted(names)}
    causes: dict[str, str] = {}
    for name, root in roots.items():
        shown, neighbours = work.shown.get(name, []), work.neighbours.get(name, [])
        if len(neighbours) == 1 and shown:
            roots[name] = replace(root, explained_by=shown[0].finding)
        elif len(neighbours) == 1 and neighbours[0] in roots:
            roots[name] = replace(root, explained_by=roots[neighbours[0]].finding)
        elif shown:
            for finding in shown:
                causes.setdefault(finding.finding, root.finding)
    work.findings = [
        replace(f, explained_by=causes[f.finding]) if f.finding in causes and f.explained_by is None else f
        for f in work.findings
    ]
    work.findings += roots.values()


def _lost_node(work: _Topology, name: str, node: FabricNode | None) -> Finding:
    view = work.view
    since = f"; last seen in the run of {node.last_seen:%d %b %Y %H:%M} UTC" if node and node.last_seen else ""
    return deviation(
        view,
        "node_present",
        view.unit(name),
        "switch" if node is not None and node.kind == "switch" else "node",
        "presence",
        Severity.CRITICAL,
        f"{view.unit(name)} is not on the fabric{since}.",
        expected="found by discovery",
        actual="not found",
        action="Check power and cables of the node; if it was taken out for good, take it out of the cabling plan.",
        source=work.wanted.source,
        command=DISCOVERY,
    )


def _strangers(work: _Topology) -> None:
    told = {f.unit for f in work.findings}
    for port in work.view.ports.values():
        if port.phys_state == UP and port.peer_guid is None and work.view.of_port(port) not in told:
            work.findings.append(_silent(work.view, port, None, None))


def _extra(work: _Topology) -> None:
    view = work.view
    ends = {(e.guid, e.port) for link in work.wanted.links for e, _ in link.ends if e.guid}
    extra = [
        f"{port.node} port {port.port} - {port.peer} port {port.peer_port}"
        for port, far in view.links
        if port.peer_guid is not None
        and (port.guid, port.port) not in ends
        and (port.peer_guid, port.peer_port) not in ends
    ]
    if extra:
        work.findings.append(
            deviation(
                view,
                "cable_in_plan",
                view.name,
                "fabric",
                "extra_links",
                Severity.WARNING,
                f"{view.name} has {len(extra)} {_s(extra, 'link')} that the cabling plan does not: {_first(extra)}.",
                expected="only planned links",
                actual="; ".join(extra[:50]),
                action="Add them to the cabling plan, or find out who cabled them.",
                source=work.wanted.source,
                command=LINKS,
            )
        )


def _gaps(work: _Topology) -> None:
    if work.wanted.ambiguous:
        work.findings.append(
            not_judged(
                work.view,
                "names_unique",
                "node_description",
                Severity.WARNING,
                f"Several nodes of {work.view.name} bear a name of the cabling plan: {_first(work.wanted.ambiguous)}.",
                action="Give each node a description of its own, or name it by GUID in the plan.",
                source=work.wanted.source,
                command=DISCOVERY,
            )
        )
    if work.unshown:
        work.findings.append(
            not_judged(
                work.view,
                "ports_shown",
                "ports",
                Severity.WARNING,
                f"{len(work.unshown)} {_s(work.unshown, 'port')} of {work.view.name} that should have a link "
                f"{'are' if len(work.unshown) > 1 else 'is'} not shown: {_first(work.unshown)}.",
                action="See the raw answer; a port number that the node does not have is a mistake of the plan.",
                source=work.wanted.source,
                command=LINKS,
            )
        )


def _first(items: Sequence[str] | Iterable[str]) -> str:
    listed = list(items)
    return ", ".join(listed[:_NAMED]) + (", ..." if len(listed) > _NAMED else "")


def _s(items: Sequence[str], word: str) -> str:
    return word if len(items) == 1 else word + "s"
