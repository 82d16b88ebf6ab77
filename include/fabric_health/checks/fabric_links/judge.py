"""Rows of a run to findings: the manager first, then what could not be read, topology, links and counters."""

from __future__ import annotations

from fabric_health.checks.check import Context, RowSet
from fabric_health.checks.fabric_links import asked as ask
from fabric_health.checks.fabric_links.counter_rules import counter_findings
from fabric_health.checks.fabric_links.link_rules import link_findings
from fabric_health.checks.fabric_links.topology_rules import topology_findings
from fabric_health.checks.fabric_links.view import FabricView, deviation, not_judged, views
from fabric_health.datasets.tables import Finding, Severity

_SEVERITY = {ask.LINKS: Severity.CRITICAL, ask.MANAGERS: Severity.INFO}
_WHAT = {
    ask.MANAGER: "Its subnet manager",
    ask.MANAGERS: "The list of its subnet managers",
    ask.LINKS: "Its links",
    ask.ERRORS: "Its error counters",
    ask.TRAFFIC: "Its traffic counters, and with them which error counters are zero,",
    ask.DIAGNET: "What ibdiagnet found",
}


def judge(rows: RowSet, context: Context) -> list[Finding]:
    """Return the findings of every fabric that answered."""
    return [f for view in views(rows, context) for f in _fabric(view)]


def _fabric(view: FabricView) -> list[Finding]:
    manager = _manager(view)
    if not view.nodes:
        return [_nothing_discovered(view), *manager]
    no_manager = next((f for f in manager if view.managed is False), None)
    topology = topology_findings(view)
    out = [*manager, *_unread(view, no_manager), *_lost_queries(view, topology), *topology]
    out += link_findings(view, no_manager)
    out += counter_findings(view)
    return [*out, *_diagnet(view)]


def _nothing_discovered(view: FabricView) -> Finding:
    detail = view.unread.get(ask.DISCOVERY, "no node was found")
    # The rule that stands for a unit without rows: without discovery there are none, and nothing was judged.
    return not_judged(
        view,
        "unit_has_rows",
        "rows",
        Severity.CRITICAL,
        f"{view.name} could not be judged: {ask.DISCOVERY} {detail}.",
        expected="a topology",
        actual=detail,
        action="Run ibnetdiscover by hand where the fabric is asked from, as the same user: it needs /dev/infiniband.",
        command=ask.DISCOVERY,
    )


def _manager(view: FabricView) -> list[Finding]:
    masters = view.value("sm_masters")
    if masters is None or masters == "1":
        return []
    guids = view.value("sm_master_guids")
    none = masters == "0"
    return [
        deviation(
            view,
            "one_master_manager",
            view.name,
            "fabric",
            "sm_masters",
            Severity.CRITICAL,
            f"{view.name} has no subnet manager that is master."
            if none
            else f"{view.name} has {masters} subnet managers that are master: {guids}.",
            expected="exactly one master",
            actual=masters if none else f"{masters}: {guids}",
            action="Start opensm (or the manager of UFM or of a switch); then run the check again."
            if none
            else "Two managers do not see each other: check the links between them, then their priorities.",
            source="InfiniBand Architecture Specification: a subnet has one master subnet manager",
            command=ask.MANAGER,
        )
    ]


def _unread(view: FabricView, no_manager: Finding | None) -> list[Finding]:
    out = []
    for command, detail in sorted(view.unread.items()):
        without_manager = no_manager is not None and command in (ask.ERRORS, ask.TRAFFIC, ask.MANAGERS)
        out.append(
            not_judged(
                view,
                "answer_readable",
                command,
                _SEVERITY.get(command, Severity.WARNING),
                f"{_WHAT.get(command, 'A part')} could not be judged on {view.name}: {command} {detail}.",
                expected="a complete answer",
                actual=detail,
                action="Run the command by hand where the fabric is asked from; see the raw answer.",
                command=command,
                # These tools find their way with the manager's help, and say nothing at all, successfully, without.
                explained_by=no_manager.finding if without_manager and no_manager else None,
            )
        )
    return out


def _lost_queries(view: FabricView, topology: list[Finding]) -> list[Finding]:
    count = int(view.value("lost_queries") or 0)
    if not count:
        return []
    cause = next((f for f in topology if f.rule == "neighbour_answers"), None)
    return [
        not_judged(
            view,
            "discovery_complete",
            "lost_queries",
            Severity.WARNING,
            f"Discovery of {view.name} is not whole: {count} quer{'y was' if count == 1 else 'ies were'} not answered, "
            "and what lies behind is left out without a word.",
            expected="an answer to every query",
            actual=f"{count} not answered",
            action="Look at the ports whose link is up without a neighbour; run the check again.",
            command=ask.DISCOVERY,
            explained_by=cause.finding if cause else None,
        )
    ]


def _diagnet(view: FabricView) -> list[Finding]:
    out = []
    for attribute, severity in (("ibdiagnet_errors", Severity.WARNING), ("ibdiagnet_warnings", Severity.INFO)):
        count, fact = view.value(attribute), view.facts.get(attribute)
        if count is None or fact is None or count == "0":
            continue
        out.append(
            deviation(
                view,
                "ibdiagnet_clean",
                view.name,
                "fabric",
                attribute,
                severity,
                f"ibdiagnet tells of {count} {attribute.removeprefix('ibdiagnet_')} on {view.name}.",
                expected="0",
                actual=(fact.detail or count)[:1000],
                action="See ibdiagnet's own files for what it says of each.",
                command=ask.DIAGNET,
            )
        )
    return out
