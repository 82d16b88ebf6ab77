"""What the verdicts of isolating mean for the units of a site: rows and findings. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING

from fabric_health.checks.collectives.launches import LOCAL_UNIT
from fabric_health.checks.collectives.tables import Isolation
from fabric_health.datasets.tables import Finding, FindingKind, Severity, finding
from fabric_health.isolation_cases import CHECK, RULE, Case, Rank, launch_name, listed
from fabric_health.site import Site

if TYPE_CHECKING:
    from fabric_health.isolation.state import State, Test
    from fabric_health.isolation.verdict import Blame, Verdict

_CRITICAL_LOSS = 0.10
_RANK = {Severity.INFO: 0, Severity.WARNING: 1, Severity.CRITICAL: 2}


@dataclass(frozen=True)
class Outcome:
    """How a case ended. ``references`` are launches beside the tests; ``minutes`` the time of all launches together.

    ``whole_rail`` holds the losses of the screening groups when all of them are slow: no matter of one node. ``spent``
    says which budget ended the case, if one did.
    """

    case: Case
    state: State
    verdict: Verdict
    references: int
    minutes: float
    whole_rail: tuple[float, ...] = ()
    spent: str = ""

    @property
    def tests(self) -> int:
        """Tests that were launched: those that gave a number or failed by themselves."""
        return sum(not r.measurement.excused for r in self.state.results)


def slow_everywhere(case: Case, state: State, gap: float) -> tuple[float, ...]:
    """Return the losses of the first round's groups of a rail when all are slow by ``gap`` or more, and alike.

    Else none. One slow NIC slows one of several groups that share no node. Groups that are slow alike, held against
    the same nodes on other rails, have the rail itself in common.
    """
    if case.rail is None or not state.rounds:
        return ()
    measured = [r.measurement.relative for r in state.rounds[0]]
    losses = [1 - m for m in measured if m is not None]
    alike = len(losses) >= 2 and min(losses) >= max(gap, max(losses) / 2)
    return tuple(losses) if alike else ()


@dataclass(frozen=True)
class Told:
    """What a run's isolating says: its findings, those it explains (with the new ``explained_by``), and its rows."""

    findings: tuple[Finding, ...]
    explained: tuple[Finding, ...]
    rows: tuple[Isolation, ...]


def tell(outcomes: Sequence[Outcome], site: Site) -> Told:
    """Return rows and findings of all cases of a run. Rails that are slow everywhere are judged together."""
    found: list[Finding] = []
    explained: list[Finding] = []
    rows: list[Isolation] = []
    whole = {o.case.rail: o for o in outcomes if o.whole_rail}
    shared: dict[str, Finding] = {}
    for o in outcomes:
        if o.whole_rail:
            own, row = _whole_rail(o, whole, site)
            own = shared.setdefault(own.unit, own)
            new, out = [own], [row]
        else:
            new, out = _of_verdict(o, site)
        known = {f.finding for f in found}
        found += [f for f in new if f.finding not in known]  # a node and one of its rails may come to the same NIC
        rows += [replace(r, number=n) for n, r in enumerate(out)]
        explained += _explained(o, new)
    return Told(tuple(found), tuple(explained), tuple(rows))


def _explained(o: Outcome, new: Sequence[Finding]) -> list[Finding]:
    """Point what was slow at the unit that makes it slow; slow nodes and ranks are explained by themselves only."""
    blames = [f for f in new if f.kind == FindingKind.DEVIATION and f.severity != Severity.INFO]
    out = []
    for slow in o.case.slow:
        causes = [b for b in blames if slow.unit_kind == "rail" or o.case.fails or b.unit in _units_of(o.case, slow)]
        if causes:
            out.append(replace(slow, explained_by=causes[0].finding))
    return out


def _units_of(case: Case, slow: Finding) -> list[str]:
    """Return the units that a finding on nodes or ranks may be explained by."""
    return [_unit(case, "node", name, None)[0] for name in replace(case, slow=(slow,)).suspects]


def _of_verdict(o: Outcome, site: Site) -> tuple[list[Finding], list[Isolation]]:
    found: list[Finding] = []
    rows: list[Isolation] = []
    for blame in sorted(o.verdict.blamed, key=lambda b: -b.loss):
        f, row = _blamed(o, blame, site)
        found.append(f)
        rows.append(row)
    for undecided in o.verdict.undecided:
        names = [_unit(o.case, c.kind, c.place, c.rail)[0] for c in undecided.candidates]
        reason = undecided.reason + (f"; {o.spent}" if o.spent else "")
        row = replace(_row(o, "undecided", reason), loss=undecided.loss, candidates=",".join(names)[:4000] or None)
        rows.append(row)
    if o.verdict.undecided:
        found.append(_undecided(o, rows[len(o.verdict.blamed) :]))
    if not rows:
        row = _row(o, "undecided" if o.spent or not o.verdict.healthy else "nothing", _nothing(o))
        rows.append(row)
        found.append(_not_reproduced(o, row))
    return found, rows


def _blamed(o: Outcome, blame: Blame, site: Site) -> tuple[Finding, Isolation]:
    case, component = o.case, blame.component
    unit, kind, rail = _unit(case, component.kind, component.place, component.rail)
    with_unit = _tests_of(o, component.kind, component.place, blame.tests)
    partners = list(dict.fromkeys(n for t in with_unit for n in t.nodes if n != component.place))
    extent = None if kind == "rank" else blame.rails if case.rail is None else "rail"
    mean, low, high = _loss(o, blame, with_unit)
    ruled_out = _ruled_out(o, component.place, partners)
    loss = "gives no number with any partner" if mean >= 1 else f"loses {_span(mean, low, high)}"
    summary = (
        f"{unit} {loss}{_EXTENT[extent or 'rail']}: found among {len(case.nodes)} {case.noun} by {_effort(o)}. "
        f"{'Slow' if mean < 1 else 'It broke groups'} with {listed(partners)}; {ruled_out}."
    )
    row = replace(
        _row(o, "blamed", summary),
        unit=unit,
        unit_kind=kind,
        rail=rail,
        extent=extent,
        loss=min(1.0, mean),
        loss_low=low,
        loss_high=high,
        confidence=min(1.0, blame.confidence),
        partners=",".join(partners)[:4000] or None,
    )
    told = finding(
        check=CHECK,
        rule=RULE,
        unit=unit,
        unit_kind=kind,
        metric="busbw_loss",
        severity=_severity(o, mean),
        summary=summary,
        expected="as fast as sound groups of the same shape",
        actual=f"{mean:.1%} less, {blame.confidence:.1%} sure",
        action=_action(site, case, unit, kind, extent),
        source="docs/isolation.md",
        command="job",
        evidence_unit=launch_name(case, with_unit[-1].name) if with_unit else None,
    )
    return told, row


def _loss(o: Outcome, blame: Blame, with_unit: Sequence[Test]) -> tuple[float, float, float]:
    """Return the loss with its interval; that of its tests where all of them are beyond what isolating tells apart."""
    # The ends are points of a grid: with few tests both may be on one side of the mean.
    low, high = max(0.0, min(blame.low, blame.loss)), min(1.0, max(blame.high, blame.loss))
    names = {t.name for t in with_unit}
    own = [1 - r.measurement.relative for r in o.state.results if r.test.name in names and r.measurement.relative]
    if own and blame.loss < 1 and min(own) > high:
        return median(own), min(own), max(own)
    return blame.loss, low, high


_EXTENT = {
    "rail": "",
    "whole": " on every rail",
    "together": " when all its rails work at once, and on no rail alone",
    "not told": " (on which rails was not told)",
}


def _ruled_out(o: Outcome, place: str, partners: Sequence[str]) -> str:
    """Say which partners and how many other nodes were in a test that was not slow."""
    slow = {t for b in o.verdict.blamed for t in b.tests} | {t for u in o.verdict.undecided for t in u.tests}
    good: set[str] = set()
    for r in o.state.results:
        if r.test.name not in slow and r.measurement.relative is not None and place not in r.test.nodes:
            good |= set(r.test.nodes)
    sound = [p for p in partners if p in good]
    others = len(good - set(partners))
    said = f"{listed(sound)} without it are not slow" if sound else "no partner was measured without it"
    return f"{said}, nor are {others} other {o.case.noun}" if others else said


def _tests_of(o: Outcome, kind: str, place: str, names: Sequence[str]) -> list[Test]:
    """Return the tests that speak against a component; of a node those with one partner, where there are any."""
    tests = [r.test for r in o.state.results if r.test.name in names]
    if kind != "node":
        return tests
    with_place = [t for t in tests if place in t.nodes]
    return [t for t in with_place if len(t.nodes) == 2] or with_place


def _undecided(o: Outcome, rows: Sequence[Isolation]) -> Finding:
    candidates = list(dict.fromkeys(c for r in rows for c in (r.candidates or "").split(",") if c))
    may = f" It may be {listed(candidates)}." if candidates else ""
    slow = "fail" if o.case.fails else "slow"
    return _not_judged(
        o, Severity.WARNING, f"What makes {_what(o)} {slow} is undecided after {_effort(o)}: {rows[0].reason}.{may}"
    )


def _nothing(o: Outcome) -> str:
    if o.spent:
        return o.spent
    if o.case.fails and not any(r.measurement.relative for r in o.state.results):
        return "no group of them runs: what makes launches fail is no matter of one node"
    if o.case.fails and o.verdict.healthy:
        return "every group runs by itself: what made all launches fail has passed, or takes all nodes together"
    return o.verdict.reason if not o.verdict.healthy else f"not slow in tests of groups: {o.verdict.reason}"


def _not_reproduced(o: Outcome, row: Isolation) -> Finding:
    if o.case.rail is None and row.outcome == "nothing" and o.case.engine != "gloo" and not o.case.fails:
        summary = (
            f"Groups with {_what(o)} are not slow ({_effort(o)}): the trouble is inside the node, or was of one launch."
        )
        return _not_judged(o, Severity.INFO, summary)
    return _not_judged(o, Severity.WARNING, f"No unit could be named for {_what(o)} ({_effort(o)}): {row.reason}.")


def _not_judged(o: Outcome, severity: Severity, summary: str) -> Finding:
    """The slow unit's own finding stays the news; this says what became of it."""
    slow = o.case.slow[0]
    return finding(
        check=CHECK,
        rule=RULE,
        unit=slow.unit,
        unit_kind=slow.unit_kind,
        metric="undecided",
        severity=severity,
        kind=FindingKind.NOT_JUDGED,
        summary=summary,
        expected="one unit at fault",
        actual="none named",
        action=(
            f"Run the check again when the {'machine' if slow.unit_kind == 'ranks' else 'fabric'} is quiet; a fault "
            "that comes and goes needs several runs."
            if severity != Severity.INFO
            else "Look at NVLink, clocks and PCIe within the node."
        ),
        source="docs/isolation.md",
        explained_by=slow.finding,
        evidence_unit=slow.evidence_unit,
    )


def _whole_rail(o: Outcome, whole: Mapping[int | None, Outcome], site: Site) -> tuple[Finding, Isolation]:
    """Blame the switch when all that it carries is slow everywhere, else the rail as a whole."""
    case, rail = o.case, o.case.rail
    names = {n.name for n in case.nodes}
    carried: dict[str, set[int]] = {}
    for cable in site.cables:
        if cable.peer in names and cable.rail is not None:
            carried.setdefault(cable.switch, set()).add(cable.rail)
    own = sorted(s for s, rails in carried.items() if rail in rails)
    at_fault = own[0] if len(own) == 1 and carried[own[0]] <= set(whole) else None
    rails = sorted(carried[at_fault]) if at_fault else [rail]
    losses = [x for r in rails for x in whole[r].whole_rail]
    loss, low, high = median(losses), max(0.0, min(losses)), max(losses)
    groups = sum(len(whole[r].whole_rail) for r in rails)
    told = " and ".join(f"rail {r}" for r in rails)
    measured = (
        f"{told} of {len(case.nodes)} nodes lose {_span(loss, low, high)} in all {groups} groups of nodes, against "
        "the same nodes on other rails: no matter of one NIC"
    )
    if at_fault:
        summary = f"{at_fault} is slow: {measured}. Of their rails {at_fault} carries {told} only."
    else:
        also = [f"{s} (also rail {listed([str(r) for r in sorted(carried[s] - {rail})])})" for s in own]
        summary = f"rail-{rail} is slow as a whole: {measured}. It is carried by {listed(also) or 'no planned switch'}."
    unit, kind = (at_fault, "switch") if at_fault else (f"rail-{rail}", "rail")
    row = replace(
        _row(o, "blamed", summary),
        unit=unit,
        unit_kind=kind,
        rail=rail,
        extent="rail",
        loss=loss,
        loss_low=low,
        loss_high=high,
    )
    told_finding = finding(
        check=CHECK,
        rule=RULE,
        unit=unit,
        unit_kind=kind,
        metric="busbw_loss",
        severity=_severity(o, loss),
        summary=summary,
        expected="as fast as the same nodes on other rails",
        actual=f"{loss:.1%} less",
        action="Look at the switch: its configuration and temperature, buffers, pause and ECN counters, its uplinks.",
        source="docs/isolation.md",
        command="job",
        evidence_unit=launch_name(case, o.state.rounds[0][0].test.name),
    )
    return told_finding, row


def _unit(case: Case, kind: str, place: str, rail: int | None) -> tuple[str, str, int | None]:
    """Return the unit, its kind and its rail for a component of isolation."""
    at = case.rail if case.rail is not None else (None if rail is None else case.rails[rail])
    if kind == "node":
        node = case.by_name[place]
        if isinstance(node, Rank):
            return f"{LOCAL_UNIT}/{place}", "rank", None
        nic = next((n.name for n in node.sku.nics if n.rail == at), None)
        return (f"{place}/{nic}", "nic", at) if at is not None and nic else (place, "node", at)
    if kind == "path":
        return place, "path", at
    return place, "switch" if kind in ("leaf", "uplink") and "+" not in place else "path", at


def _action(site: Site, case: Case, unit: str, kind: str, extent: str | None) -> str:
    if kind == "nic":
        node, _, nic = unit.partition("/")
        cable = site.cable_of_nic(node, nic)
        port = f" and of switch port {cable.switch}/{cable.port}" if cable else ""
        return f"Look at the counters of {unit}{port}, at cable and transceiver, and at the PCIe link of NIC and GPU."
    if kind == "rank":
        return (
            f"Look at what holds up {unit} on the machine that runs jobs: other load on its CPUs, limits of its "
            "cgroup, throttled clocks."
        )
    if kind == "node":
        if extent == "together":
            return f"Look at the host of {unit}: PCIe switches, memory, clocks; then run its GPUs by themselves."
        return f"Take {unit} out of the fleet for a test of its own: GPU clocks, NVLink, PCIe, CPU and memory."
    return (
        f"Look at {unit}: configuration, temperature, buffers, pause and ECN counters, and the links to other switches."
    )


def _severity(o: Outcome, loss: float) -> Severity:
    """Critical from 10 % on, but for ranks, which are no part of the fabric.

    Never less than what it explains, or that would hide the worse one.
    """
    own = Severity.CRITICAL if loss >= _CRITICAL_LOSS and o.case.engine != "gloo" else Severity.WARNING
    return max([own, *(Severity(f.severity) for f in o.case.slow)], key=_RANK.__getitem__)


def _row(o: Outcome, outcome: str, reason: str) -> Isolation:
    return Isolation(
        case=o.case.name,
        number=0,
        outcome=outcome,
        engine=o.case.engine,
        tests=o.tests,
        references=o.references,
        rounds=len(o.state.rounds),
        minutes=o.minutes,
        reason=reason[:4000],
    )


def _what(o: Outcome) -> str:
    return listed(list(dict.fromkeys(f.unit for f in o.case.slow)))


def _span(loss: float, low: float, high: float) -> str:
    """Return a loss with its interval, where rounding leaves one."""
    if f"{low:.0%}" == f"{high:.0%}":
        return f"about {loss:.0%}"
    return f"{loss:.0%} ({low:.0%} to {high:.0%})"


def _effort(o: Outcome) -> str:
    rounds = "1 round" if len(o.state.rounds) == 1 else f"{len(o.state.rounds)} rounds"
    return f"{o.tests} tests in {rounds} and {o.references} reference launches"
