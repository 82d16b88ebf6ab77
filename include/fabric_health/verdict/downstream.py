"""Which regression is the consequence of what: one cause is one piece of news.

A unit that got slower is explained by a finding on itself, on a part of it, on its node, or on the switch or port in
front of it, and by a regression of what stands in front of it. What explains keeps standing for itself.

A finding explains a regression only if it may be why the unit is *slower than before*:

* it is a deviation, not something that could not be judged, and it stands by itself;
* it was first seen after the run that was still good: what was there then did no harm;
* nobody acknowledged it: an expected change that turns out to cost performance is news;
* of the judged units behind a switch or port that has it, at least half got slower: one that did not would be odd;
* it is no lesser finding than the regression, or that would hide the worse one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from fabric_health.datasets.tables import Finding, FindingKind, Severity
from fabric_health.verdict.outcome import Judgement, Outcome

# The rule of findings that say "slower than before".
REGRESSION = "as_fast_as_before"
# Findings that say the same as a regression, of the same run against its peers: they come after any other cause.
SLOWER_THAN_PEERS = frozenset({"node_as_fast_as_peers", "rail_as_fast_as_peers", "link_as_fast_as_peers"})
# What does not slow the fabric down.
_NOT_OF_THE_FABRIC = frozenset({"nfs_over_rdma"})
_FABRIC_CHECKS = frozenset({"collectives"})

_RANK = {Severity.INFO: 0, Severity.WARNING: 1, Severity.CRITICAL: 2}

Reach = Mapping[str, Collection[str]]


def findings_behind(
    findings: Sequence[Finding],
    reach: Reach,
    *,
    sound: Collection[str] | None,
    good_at: Mapping[str, datetime] | None = None,
) -> dict[str, str]:
    """Return, for findings that say "slower than before", the id of the finding that explains each, where one does.

    ``reach`` gives, per NIC, port and switch, the units behind it. ``sound`` are units that were judged and did not get
    slower; None: not known, so that nothing in front of a unit explains it. ``good_at`` is, by the id of the finding
    that says "slower", the start (UTC) of the last run before it was first seen; where it is not known, every finding
    counts as new. The nearest finding explains: on the unit before on its parts before on what stands in front of it;
    then the most severe.
    """
    slower = {f.unit for f in findings if _is_regression(f)}
    front = {} if sound is None else _in_front({u: r for u, r in reach.items() if _mostly(r, slower, sound)})
    causes: dict[str, list[Finding]] = {}
    for f in findings:
        if _may_explain(f):
            causes.setdefault(f.unit, []).append(f)
            owner = f.unit.split("/", 1)[0]
            if owner != f.unit:
                causes.setdefault(f"{owner}/", []).append(f)
    out: dict[str, str] = {}
    for f in findings:
        if not _is_regression(f) or f.explained_by is not None:
            continue
        worthy = [
            (near, c)
            for near, c in _candidates(f.unit, causes, front)
            if _rank(c) >= _rank(f)
            and _is_newer(c, (good_at or {}).get(f.finding))
            and not (f.check in _FABRIC_CHECKS and _not_of_the_fabric(c))
        ]
        if worthy:
            _, best = min(worthy, key=lambda x: (x[1].rule in SLOWER_THAN_PEERS, x[0], -_rank(x[1]), x[1].finding))
            out[f.finding] = best.finding
    return out


def _is_regression(f: Finding) -> bool:
    return f.rule == REGRESSION and f.kind == FindingKind.DEVIATION


def _mostly(behind: Collection[str], slower: Collection[str], sound: Collection[str]) -> bool:
    """Return whether of the judged units behind something at least half got slower, of each kind that did."""
    for kind in {_kind(u) for u in behind if u in slower}:
        of_kind = [u for u in behind if _kind(u) == kind]
        if sum(u in slower for u in of_kind) < sum(u in sound and u not in slower for u in of_kind):
            return False
    return True


def _kind(unit: str) -> str:
    return "rail" if unit.startswith("rail-") else "part" if "/" in unit else "whole"


def _may_explain(f: Finding) -> bool:
    stands = f.explained_by is None and f.acknowledged_by is None
    return f.rule != REGRESSION and f.kind == FindingKind.DEVIATION and f.severity != Severity.INFO and stands


def _is_newer(f: Finding, good_at: datetime | None) -> bool:
    return good_at is None or f.first_seen is None or f.first_seen > good_at


def _not_of_the_fabric(f: Finding) -> bool:
    return f.unit_kind == "drive" or f.rule in _NOT_OF_THE_FABRIC


def _candidates(
    unit: str, causes: Mapping[str, Sequence[Finding]], in_front: Mapping[str, Sequence[str]]
) -> list[tuple[int, Finding]]:
    """Return findings on and in front of a unit, with how far away each is."""
    owner = unit.split("/", 1)[0]
    found = [(0, f) for f in causes.get(unit, ())]
    if owner == unit:
        found += [(1, f) for f in causes.get(f"{unit}/", ())]
    else:
        found += [(1, f) for f in causes.get(owner, ())]
    return found + [(2, f) for u in in_front.get(unit, ()) for f in causes.get(u, ())]


def _in_front(reach: Reach) -> dict[str, list[str]]:
    """Return, per unit, the switches, ports and NICs that reach it: those that reach fewest first."""
    out: dict[str, list[str]] = {}
    for upstream, units in sorted(reach.items(), key=lambda x: (len(x[1]), x[0])):
        for u in units:
            if u != upstream:
                out.setdefault(u, []).append(upstream)
    return out


def _rank(f: Finding) -> int:
    return _RANK[Severity(f.severity)]


@dataclass(frozen=True)
class Led:
    """A regression that another one explains."""

    judgement: Judgement
    by: Judgement


def regressions_behind(judgements: Iterable[Judgement], reach: Reach) -> list[Led]:
    """Return the regressions that are told by a regression of what stands in front: a leaf's tells those of its nodes.

    Only of the same metric, and not of a unit that lost more than the interval of the other allows: it has a trouble
    of its own. Of several in front, the one that reaches most units explains.
    """
    lost = [j for j in judgements if j.outcome is Outcome.REGRESSED and j.loss is not None]
    in_front = _in_front(reach)
    by_subject: dict[tuple[str, str], list[Judgement]] = {}
    for j in lost:
        by_subject.setdefault((j.subject, j.metric), []).append(j)
    out = []
    for j in lost:
        for upstream in reversed(in_front.get(j.subject, [])):
            leads = [x for x in by_subject.get((upstream, j.metric), ()) if _covers(x, j)]
            if leads:
                out.append(Led(j, max(leads, key=lambda x: (x.comparability == j.comparability, x.loss or 0.0))))
                break
    return out


def _covers(lead: Judgement, j: Judgement) -> bool:
    most = lead.loss_high if lead.loss_high is not None else lead.loss
    return most is not None and (j.loss_low if j.loss_low is not None else j.loss or 0.0) <= most
