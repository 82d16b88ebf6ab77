"""Links between two nodes that do not connect, stay below their rate, or are slower than those of the same rail.

A link has two ends. A NIC that is bad with every partner, and with two of them at least, is named by itself; otherwise
the link is, since nothing says which of its ends, or what between them, is at fault.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from fabric_health.checks.check import RowSet
from fabric_health.checks.collectives.peers import slow_units
from fabric_health.checks.collectives.settings import PairFloor, Settings
from fabric_health.checks.collectives.tables import PointToPoint
from fabric_health.datasets.tables import Finding, Severity, finding

CHECK = "collectives"
_CRITICAL_GAP = 0.10
# From so many links on, when more than half of them are bad, it is no matter of single ones.
_MANY = 4
_RATE_SOURCE = (
    "Azure/azurehpc-health-checks conf/: ib_write_bw reaches 180 of 200 Gb/s on A100 and 360 or 380 of 400 on H200 "
    "and H100"
)


@dataclass(frozen=True)
class _Bad:
    """A link that breaks a rule, and how it is told."""

    row: PointToPoint
    what: str
    expected: str
    severity: Severity
    source: str | None


def judge_pairs(rows: RowSet, rules: Settings) -> Iterator[Finding]:
    """Yield the findings on links; of several sizes the largest counts."""
    links = _largest(rows.of(PointToPoint))
    silent = [_silent(r) for r in links if r.problem]
    yield from _tell("link_gives_a_number", silent, links, "Look at the error, then at state, cable, GID of the NIC.")
    measured = [r for r in links if not r.problem and r.bw_average_gbitps is not None]
    low = [b for r in measured if (b := _below(r, rules)) is not None]
    yield from _tell("link_rate", low, measured, "Look at the PCIe link and relaxed ordering of the NIC, MTU, and ECN.")
    bad = {id(b.row) for b in low}
    rest = [r for r in measured if id(r) not in bad]
    slow = list(_slow(rest, rules))
    yield from _tell("link_as_fast_as_peers", slow, rest, "Look at the error counters of both ends and of their ports.")


def _largest(rows: Sequence[PointToPoint]) -> list[PointToPoint]:
    best: dict[tuple[str, str], PointToPoint] = {}
    for row in rows:
        key = (row.launch, row.device)
        if key not in best or row.size_bytes > best[key].size_bytes:
            best[key] = row
    return [best[k] for k in sorted(best)]


def _silent(row: PointToPoint) -> _Bad:
    return _Bad(row, f"gives no number: {row.problem}", "a bandwidth", Severity.CRITICAL, None)


def _below(row: PointToPoint, rules: Settings) -> _Bad | None:
    floor: PairFloor | None = next((f for f in rules.perftest.floors if f.sku == row.sku), None)
    if floor is not None:
        least, source = floor.bw_gbitps, floor.source
    elif row.rate_gbitps is not None:
        least, source = rules.perftest.min_share * row.rate_gbitps, _RATE_SOURCE
    else:
        return None
    value = row.bw_average_gbitps or 0.0
    if value >= least:
        return None
    share = f" ({value / row.rate_gbitps:.0%} of its rate)" if row.rate_gbitps else ""
    return _Bad(
        row,
        f"reaches {value:.1f} Gb/s{share}, less than {least:g} Gb/s",
        f">= {least:g} Gb/s",
        Severity.CRITICAL if value < (1 - _CRITICAL_GAP) * least else Severity.WARNING,
        source,
    )


def _slow(rows: Sequence[PointToPoint], rules: Settings) -> Iterator[_Bad]:
    """Links of one rail are peers; of one SKU where a rail has too few of them, its rails having the same rate."""
    by_rail: dict[tuple[object, ...], list[PointToPoint]] = defaultdict(list)
    for row in rows:
        by_rail[row.sku, row.test, row.size_bytes, row.memory, row.rate_gbitps, row.rail].append(row)
    groups: dict[tuple[object, ...], list[PointToPoint]] = defaultdict(list)
    for key, found in by_rail.items():
        groups[key if len(found) >= rules.peers.minimum else key[:-1]] += found
    for key, peers in groups.items():
        by_link = {_link(r): r for r in peers}
        values = {name: r.bw_average_gbitps or 0.0 for name, r in by_link.items()}
        where = f"of rail {key[-1]}" if len(key) == 6 else "of all rails"
        for one in slow_units(values, rules.peers):
            yield _Bad(
                by_link[one.unit],
                f"is {one.gap:.1%} slower than {len(values) - 1} links {where}: {one.value:.1f} Gb/s against a median "
                f"of {one.median:.1f} Gb/s",
                f"about {one.median:.1f} Gb/s",
                Severity.CRITICAL if one.gap >= _CRITICAL_GAP else Severity.WARNING,
                "Iglewicz and Hoaglin 1993: modified z-score beyond 3.5; gap of site settings",
            )


def _tell(rule: str, bad: Sequence[_Bad], links: Sequence[PointToPoint], action: str) -> Iterator[Finding]:
    """One finding for most links, else for most of a rail's, else for each NIC or link."""
    left = list(bad)
    if _most(left, links):
        yield _finding(rule, "perftest", "benchmark", left, action, of=len(links))
        return
    for rail in sorted({b.row.rail for b in left if b.row.rail is not None}):
        own = [b for b in left if b.row.rail == rail]
        if _most(own, of := [r for r in links if r.rail == rail]):
            yield _finding(rule, f"rail-{rail}", "rail", own, action, of=len(of))
            left = [b for b in left if b.row.rail != rail]
    names = {_link(b.row) for b in left}
    for nic in sorted({n for b in left for n in _ends(b.row)}):
        with_it = [r for r in links if nic in _ends(r)]
        partners = {n for r in with_it for n in _ends(r)} - {nic}
        own = [b for b in left if nic in _ends(b.row)]
        if own and len(partners) >= 2 and all(_link(r) in names for r in with_it):
            yield _finding(rule, nic, "nic", own, action)
            left = [b for b in left if nic not in _ends(b.row)]
    for one in left:
        yield _finding(rule, _link(one.row), "link", [one], action)


def _most(bad: Sequence[_Bad], links: Sequence[PointToPoint]) -> bool:
    return len(links) >= _MANY and 2 * len(bad) > len(links)


def _finding(rule: str, unit: str, kind: str, bad: Sequence[_Bad], action: str, of: int = 0) -> Finding:
    value: Callable[[_Bad], float] = lambda b: b.row.bw_average_gbitps or 0.0  # noqa: E731
    worst = min(bad, key=value)
    where = f"{_link(worst.row)}{'' if worst.row.rail is None else f' (rail {worst.row.rail})'}"
    if of:
        summary = f"{len(bad)} of {of} links of {unit} are at fault; the worst, {where}, {worst.what}."
    elif kind == "nic":
        summary = f"{unit} is at fault with each of {len(bad)} partners; the worst, {where}, {worst.what}."
    else:
        summary = f"{where} {worst.what}. Which of its ends cannot be said from this."
    measured = worst.row.bw_average_gbitps
    return finding(
        check=CHECK,
        rule=rule,
        unit=unit,
        unit_kind=kind,
        metric=f"{worst.row.test}.bw_average_gbitps",
        severity=worst.severity,
        summary=summary,
        expected=worst.expected,
        actual="none" if measured is None else f"{measured:.1f} Gb/s",
        action=action,
        source=worst.source,
        command="job",
        evidence_unit=worst.row.launch,
    )


def _link(row: PointToPoint) -> str:
    """Return the unit id of a link: ``gpu-002>gpu-001/mlx5_0``, the client first."""
    return f"{row.pair}/{row.device}"


def _ends(row: PointToPoint) -> tuple[str, ...]:
    return tuple(f"{node}/{row.device}" for node in row.pair.split(">"))
