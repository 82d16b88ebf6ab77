"""What every check shares: units that did not answer or gave no rows, checks that did not finish, and coverage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fabric_health.checks.check import Check, RowSet, Unit
from fabric_health.datasets.run import RunKey
from fabric_health.datasets.tables import Coverage, CoverageState, Finding, FindingKind, Severity, finding
from fabric_health.evidence import ReachStatus, StoredEvidence

_REACH_ACTION = {
    ReachStatus.UNREACHABLE: "check power, network and address of the unit; then run the check again",
    ReachStatus.REFUSED: "check that sshd runs and listens on the port of the site file",
    ReachStatus.HOST_KEY_MISMATCH: "find out why the host key differs before trusting it; then update known_hosts",
    ReachStatus.AUTH_FAILED: "check user and key of the connection, and the account's rights on the unit or cluster",
    ReachStatus.CLOSED_EARLY: "look at the unit's memory and sshd log, or why its pod was ended; run the check again",
    ReachStatus.HUNG: "look for a hung driver or storage on the unit (processes in state D); a reboot may be needed",
    ReachStatus.FLOODED: "see in the evidence which command floods; raise its limit only if the output is right",
    ReachStatus.EMPTY: "log in and run the command by hand: the unit answers success with no text",
    ReachStatus.MALFORMED: "see the evidence for what came instead of an answer (banner, wrapper, restricted shell)",
    ReachStatus.NO_INTERPRETER: "install Python 3 on the unit or set `python` of its reach profile",
    ReachStatus.NOT_PLACED: "do what the cluster's reason asks for (room, taint, image, quota); run the check again",
}


def unanswered(check: Check, refs: Sequence[StoredEvidence]) -> list[Finding]:
    """Return a critical NOT_JUDGED finding for every unit that could not be asked, saying how and what to do."""
    return [
        finding(
            check=check.name,
            rule="unit_answers",
            unit=r.unit,
            unit_kind=check.unit_kind,
            metric="reach",
            severity=Severity.CRITICAL,
            kind=FindingKind.NOT_JUDGED,
            summary=f"{r.unit} could not be asked: {r.status.value.replace('_', ' ')}"
            + (f" ({r.detail[:200]})" if r.detail else ""),
            expected="answers to every command",
            actual=r.status.value,
            action=_REACH_ACTION[r.status],
        )
        for r in refs
        if r.status in _REACH_ACTION
    ]


def without_rows(check: Check, rows: RowSet, refs: Sequence[StoredEvidence]) -> list[Finding]:
    """Return a finding for every unit that answered but gave no row at all: it is missing from the data."""
    seen = {check.unit_of(r) for t in check.tables for r in rows.rows.get(t, ())}
    return [
        finding(
            check=check.name,
            rule="unit_has_rows",
            unit=r.unit,
            unit_kind=check.unit_kind,
            metric="rows",
            severity=Severity.CRITICAL,
            kind=FindingKind.NOT_JUDGED,
            summary=f"{r.unit} answered, but nothing in its answers could be read",
            expected="at least one row",
            actual="none",
            action="see the evidence; the tools' output may be of a version that is not known yet",
        )
        for r in refs
        if r.status not in _REACH_ACTION and r.unit not in seen
    ]


def did_not_finish(key: RunKey, check: Check) -> Finding:
    """Return the finding that stands for a check whose stages did not come to an end."""
    f = finding(
        check=check.name,
        rule="check_finishes",
        unit=check.name,
        unit_kind="check",
        metric="stages",
        severity=Severity.CRITICAL,
        kind=FindingKind.NOT_JUDGED,
        summary=f"{check.title} did not finish, so none of its units was judged",
        action="see the log of its tasks; when the cause is gone, clear them or run the stages again",
    )
    return replace(f, first_seen=key.started_at)


def coverage(
    check: Check, units: Sequence[Unit], refs: Sequence[StoredEvidence], found: Sequence[Finding] | None
) -> list[Coverage]:
    """Return one row per unit in scope. ``found`` None means that the check did not finish.

    A unit is judged in full only when every command was answered whole: what hung may have hidden what no rule misses.
    """
    status = {r.unit: r for r in refs}
    unjudged: dict[str, Finding] = {}
    for f in found or ():
        if f.kind == FindingKind.NOT_JUDGED and f.severity != Severity.INFO:
            unjudged.setdefault(f.unit.split("/", 1)[0], f)
    out = []
    for unit in units:
        ref, reason = status.get(unit.name), None
        if found is None:
            state, reason = CoverageState.NOT_JUDGED, "the check did not finish"
        elif ref is None:
            state, reason = CoverageState.NOT_JUDGED, "not asked"
        elif ref.status in _REACH_ACTION:
            state, reason = CoverageState.NOT_JUDGED, f"{ref.status.value}: {ref.detail}"[:500]
        elif unit.name in unjudged:
            blank = unjudged[unit.name].rule == "unit_has_rows"
            state = CoverageState.NOT_JUDGED if blank else CoverageState.PARTIAL
            reason = unjudged[unit.name].summary
        elif ref.status is ReachStatus.PARTIAL:
            state, reason = CoverageState.PARTIAL, (ref.detail or "not every command was answered whole")[:500]
        else:
            state = CoverageState.JUDGED
        out.append(Coverage(check.name, unit.name, unit.kind, state.value, reason))
    return out
