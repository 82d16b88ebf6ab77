"""One fabric's evidence to rows: nodes, ports with their counters, facts about it, and what could not be read."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from fabric_health.checks.check import Unit, read_at
from fabric_health.checks.fabric_links import asked as ask
from fabric_health.checks.fabric_links.answers import Answers
from fabric_health.checks.fabric_links.cables import Expectations
from fabric_health.checks.fabric_links.commands import fabric_settings
from fabric_health.checks.fabric_links.counters import ERRORS, Counted, parse_counters
from fabric_health.checks.fabric_links.diagnet import parse_log
from fabric_health.checks.fabric_links.discovery import Discovery, lost_queries, parse_discovery
from fabric_health.checks.fabric_links.links import Link, parse_links
from fabric_health.checks.fabric_links.managers import MASTER, Manager, parse_managers, parse_sminfo, says_no_manager
from fabric_health.checks.fabric_links.names import names_of
from fabric_health.checks.fabric_links.tables import FabricNode, FabricPort
from fabric_health.datasets.contracts import Row
from fabric_health.datasets.tables import Fact, FactState
from fabric_health.evidence import UnitEvidence
from fabric_health.site import Site

_NO_ERRORS = dict.fromkeys(ERRORS.values(), 0)
ANSWER = "answer:"
"""Prefix of the facts that say which command's answer could not be read (state ``error``)."""


def parse(unit: Unit, evidence: UnitEvidence, site: Site) -> list[Row]:
    """Return the rows of one fabric. Never raises for anything its tools answered.

    An answer that could not be read leaves its columns null and gives a fact ``answer:<command>`` in state ``error``.
    Evidence without any result (the place to ask from was not reached) gives no rows: its reach status says why.
    """
    fabric = fabric_settings(unit, site)
    if fabric is None or not evidence.results:
        return []
    answers = Answers(evidence)
    discovery = _discovery(answers)
    links = _links(answers)
    counters = _Counters(_counted(answers, ask.ERRORS, (0, 1)), _counted(answers, ask.TRAFFIC, (0, 1)))
    _check_reach_of_counters(answers, discovery, counters)
    facts = [*_manager_facts(answers), *_discovery_facts(answers, discovery)]
    if fabric.ibdiagnet_log is not None:
        facts += _diagnet_facts(answers)
    counted_at = read_at(evidence, (ask.ERRORS, ask.TRAFFIC))
    rows: list[Row] = []
    if discovery is not None:
        names = names_of(discovery.nodes.values())
        rows += [
            FabricNode(fabric.name, n.guid, names[n.guid], n.kind, n.description, min(n.ports, 255), True, None, n.lid)
            for n in discovery.nodes.values()
        ]
        rows += _ports(fabric.name, discovery, names, links, counters, Expectations.of(fabric, discovery), counted_at)
    facts += [_Reading(ANSWER + c, None, c, detail) for c, detail in sorted(answers.problems.items())]
    return [*rows, *(f.fact(fabric.name) for f in facts)]


@dataclass(frozen=True)
class _Reading:
    attribute: str
    value: str | None
    command: str
    detail: str | None = None

    def fact(self, fabric: str) -> Fact:
        state = FactState.ERROR if self.value is None else FactState.VALUE
        return Fact(fabric, "fabric", self.attribute, state.value, self.value, self.detail, self.command)


@dataclass(frozen=True)
class _Counters:
    """Error counters and traffic; either may be missing."""

    errors: Counted | None
    traffic: Counted | None

    def of(self, guid: str, node_guid: str, port: int) -> dict[str, int]:
        """Return what is known of a port, which the tools show under the GUID of itself or of its node.

        An error counter that is not shown is zero once the tool has told that it asked every port, and only for a
        port whose traffic it did show.
        """
        traffic, errors = (_shown(c, guid, node_guid, port) for c in (self.traffic, self.errors))
        known = errors is not None or (self.errors is not None and self.errors.complete and traffic is not None)
        out = _NO_ERRORS | (errors or {}) if known else {}
        for column, value in (traffic or {}).items():
            if column not in _NO_ERRORS:
                out[column] = value
        return out


def _shown(counted: Counted | None, guid: str, node_guid: str, port: int) -> dict[str, int] | None:
    if counted is None:
        return None
    found = counted.ports.get((guid, port))
    return found if found is not None else counted.ports.get((node_guid, port))


def _discovery(answers: Answers) -> Discovery | None:
    text = answers.text(ask.DISCOVERY)
    if text is None:
        return None
    found = parse_discovery(text)
    if not found.nodes:
        answers.problem(ask.DISCOVERY, f"shows no node; it begins: {text.strip()[:80]}")
        return None
    _note_unread(answers, ask.DISCOVERY, found.unread)
    return found


def _links(answers: Answers) -> list[Link]:
    text = answers.text(ask.LINKS)
    if text is None:
        return []
    links, unread = parse_links(text)
    if not links:
        answers.problem(ask.LINKS, f"shows no link; it begins: {text.strip()[:80]}")
    _note_unread(answers, ask.LINKS, unread)
    return links


def _counted(answers: Answers, command: str, exit_codes: tuple[int, ...]) -> Counted | None:
    text = answers.text(command, exit_codes)
    if text is None:
        return None
    counted = parse_counters(text)
    _note_unread(answers, command, counted.unread)
    if not counted.complete:
        answers.problem(command, "ends before its summary")
    if counted.suppressed:
        answers.problem(command, f"leaves out counters: {counted.suppressed}")
        counted.nodes_checked = None
    return counted


def _note_unread(answers: Answers, command: str, unread: list[str]) -> None:
    if unread:
        answers.problem(command, f"{len(unread)} lines could not be read, the first: {unread[0].strip()[:100]}")


def _check_reach_of_counters(answers: Answers, discovery: Discovery | None, counters: _Counters) -> None:
    if discovery is None:
        return
    for command, counted in ((ask.ERRORS, counters.errors), (ask.TRAFFIC, counters.traffic)):
        if counted is not None and counted.nodes_checked not in (None, len(discovery.nodes)):
            answers.problem(command, f"asked {counted.nodes_checked} nodes of the {len(discovery.nodes)} discovered")


def _manager_facts(answers: Answers) -> list[_Reading]:
    said = answers.said(ask.MANAGER)
    known = parse_sminfo(said)
    if known is None:
        if says_no_manager(said):
            return [_Reading("sm_masters", "0", ask.MANAGER)]
        if answers.text(ask.MANAGER) is not None:
            answers.problem(ask.MANAGER, "names no subnet manager in a known form")
        return [_Reading("sm_masters", None, ask.MANAGER, answers.problems.get(ask.MANAGER))]
    listed = parse_managers(answers.text(ask.MANAGERS) or "")
    if listed is None and ask.MANAGERS not in answers.problems:
        answers.problem(ask.MANAGERS, "shows no whole record of a subnet manager")
    everyone: dict[str, Manager] = {m.guid: m for m in listed or ()}
    everyone[known.guid] = known
    masters = sorted(g for g, m in everyone.items() if m.state == MASTER)
    return [
        _Reading("sm_masters", str(len(masters)), ask.MANAGERS if listed else ask.MANAGER),
        _Reading("sm_master_guids", ",".join(masters), ask.MANAGERS if listed else ask.MANAGER),
        _Reading("sm_managers", str(len(everyone)), ask.MANAGERS if listed else ask.MANAGER),
        _Reading("sm_guid", known.guid, ask.MANAGER),
        _Reading("sm_lid", str(known.lid), ask.MANAGER),
        _Reading("sm_priority", str(known.priority), ask.MANAGER),
        _Reading("sm_state", str(known.state), ask.MANAGER),
    ]


def _discovery_facts(answers: Answers, discovery: Discovery | None) -> list[_Reading]:
    if discovery is None:
        return []
    kinds = [n.kind for n in discovery.nodes.values()]
    result = answers.evidence.result(ask.DISCOVERY)
    return [
        _Reading("switches", str(kinds.count("switch")), ask.DISCOVERY),
        _Reading("channel_adapters", str(kinds.count("ca")), ask.DISCOVERY),
        _Reading("lost_queries", str(lost_queries(result.stderr if result else "")), ask.DISCOVERY),
    ]


def _diagnet_facts(answers: Answers) -> list[_Reading]:
    text = answers.text(ask.DIAGNET)
    log = parse_log(text) if text is not None else None
    if log is None:
        answers.problem(ask.DIAGNET, "is no log of ibdiagnet")
        return []
    return [
        _Reading("ibdiagnet_errors", str(len(log.errors)), ask.DIAGNET, "\n".join(log.errors[:5]) or None),
        _Reading("ibdiagnet_warnings", str(len(log.warnings)), ask.DIAGNET, "\n".join(log.warnings[:5]) or None),
    ]


def _ports(
    fabric: str,
    discovery: Discovery,
    names: dict[str, str],
    links: list[Link],
    counters: _Counters,
    expected: Expectations,
    counted_at: datetime,
) -> list[FabricPort]:
    rows: dict[tuple[str, int], FabricPort] = {}
    for link in links:
        guid = discovery.owners.get(link.guid)
        node = discovery.nodes.get(guid) if guid else None
        if node is None or link.port == 0:
            continue
        peer_guid = discovery.owners.get(link.peer_guid) if link.peer_guid else None
        peer = discovery.nodes.get(peer_guid) if peer_guid else None
        profile = expected.profile(node.guid, link.port, peer.guid if peer else None)
        rows[node.guid, link.port] = FabricPort(
            fabric=fabric,
            guid=node.guid,
            port=link.port,
            node=names[node.guid],
            kind=node.kind,
            state=link.state,
            phys_state=link.phys_state,
            width=link.width,
            lane_gbps=link.lane_gbps,
            lid=link.lid,
            # A neighbour that discovery did not find keeps the GUID that the tool shows: it is not nothing.
            peer_guid=peer.guid if peer else link.peer_guid,
            peer_port=link.peer_port,
            peer=names[peer.guid] if peer else link.peer_guid,
            link=profile.kind,
            expected_width=profile.width,
            expected_lane_gbps=profile.lane_gbps,
            collected_at=counted_at,
            **counters.of(link.guid, node.guid, link.port),
        )
    return [rows[k] for k in sorted(rows)]
