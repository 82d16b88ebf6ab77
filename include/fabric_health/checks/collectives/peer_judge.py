"""Who is slower than its peers of the same run: nodes among nodes, rails among rails, pairs of gloo's ranks."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fabric_health.checks.check import RowSet
from fabric_health.checks.collectives.comparability import peer_key
from fabric_health.checks.collectives.peers import Slow, best_launch, largest_size, slow_pairs, slow_units
from fabric_health.checks.collectives.settings import LEAST_PAIRS, Settings
from fabric_health.checks.collectives.tables import Collective
from fabric_health.datasets.tables import Finding, FindingKind, Severity, finding

CHECK = "collectives"
_CRITICAL_GAP = 0.10
"""From this share on a slow unit is critical: ours: no healthy fleet that we know of spreads as far."""


@dataclass(frozen=True)
class _Kind:
    """The kind's plural, what a comparison of its units leaves unsaid, what to do, how bad it may get, and its rule."""

    plural: str
    unsaid: str
    action: str
    worst: Severity = Severity.CRITICAL
    score: str = "modified z"
    source: str = "Iglewicz and Hoaglin 1993: modified z-score beyond 3.5; gap of site settings"


_KINDS: dict[str, _Kind] = {
    "node": _Kind(
        "nodes",
        "Which of its GPUs, NVLinks or switches cannot be said from this.",
        "Test its GPUs by themselves; look at NVLink errors, clocks and PCIe links of the node.",
    ),
    "rail": _Kind(
        "rails",
        "A rail is as slow as its slowest member: which node's NIC or which switch cannot be said from this.",
        "Isolate the rail: pairs of nodes on it, each with different partners; look at its leaf switch.",
    ),
    "ranks": _Kind(
        "pairs of ranks",
        "A pair is as slow as its slower rank: which of them cannot be said from this.",
        "Measure each of its ranks with ranks of other pairs; look at what else runs on this machine.",
        worst=Severity.WARNING,  # of the machine that runs jobs, and of no part of the fabric
        score="noises below",
        source="site settings: usual noise of a pair, and gap",
    ),
}


def judge_peers(rows: RowSet, rules: Settings) -> Iterator[Finding]:
    """Yield who is slow: same collective, same everything, at the largest size that all reached."""
    grouped: dict[tuple[str, str, str], list[Collective]] = defaultdict(list)
    for row in rows.of(Collective):
        if row.group_kind in _KINDS and not row.group.endswith(":slowest") and not row.wrong:
            grouped[row.engine, row.group_kind, row.collective].append(row)
    for (engine, kind, collective), found in sorted(grouped.items()):
        least = LEAST_PAIRS if kind == "ranks" else rules.peers.minimum
        by_key: dict[str, list[Collective]] = defaultdict(list)
        for row in largest_size(found):
            by_key[peer_key(row)].append(row)
        for same in by_key.values():
            yield from _other_transports(same, kind)
            values = best_launch(same)
            if len(values) < least:
                yield _too_few(engine, kind, collective, len(values), least)
                continue
            slow_ones = (
                slow_pairs(values, rules.gloo, rules.peers.modified_z)
                if kind == "ranks"
                else slow_units(values, rules.peers)
            )
            for slow in slow_ones:
                yield _slow(slow, [r for r in same if r.group == slow.unit], len(values), kind)


def _other_transports(same: Sequence[Collective], kind: str) -> Iterator[Finding]:
    """Units that connect otherwise than most of their peers: SHM where others have P2P, another network."""
    used = {r.group: r for r in same if r.transport is not None}
    if len(used) < 3:
        return
    usual, share = Counter(r.transport for r in used.values()).most_common(1)[0]
    for group, row in sorted(used.items()):
        if row.transport == usual or share * 2 <= len(used):
            continue
        yield finding(
            check=CHECK,
            rule="transport_as_peers",
            unit=group,
            unit_kind=kind,
            metric=f"{row.collective}.{kind}.transport",
            severity=Severity.WARNING,
            summary=f"{group} connects its ranks by {row.transport}, {share} of its {len(used) - 1} peers by {usual}.",
            expected=usual,
            actual=row.transport,
            action="Look at NVLink, peer access, ACS and IOMMU of the node, and at the RDMA devices the job sees.",
            source="NCCL_DEBUG=INFO log",
            command="job",
            evidence_unit=row.launch,
        )


def _slow(slow: Slow, own: Sequence[Collective], peers: int, kind: str) -> Finding:
    worst = min(own, key=lambda r: r.busbw_gbps)
    below = sum(r.busbw_gbps < slow.median for r in own)
    told = _KINDS[kind]
    return finding(
        check=CHECK,
        rule=f"{kind}_as_fast_as_peers",
        unit=slow.unit,
        unit_kind=kind,
        metric=f"{worst.collective}.{kind}.busbw_gbps",
        severity=told.worst if slow.gap >= _CRITICAL_GAP else Severity.WARNING,
        summary=f"{slow.unit} is {slow.gap * 100:.1f} % slower than its {peers - 1} peers: {_figure(slow.value)} GB/s "
        f"of {worst.collective} bus bandwidth at {size_text(worst.size_bytes)} against a median of "
        f"{_figure(slow.median)} GB/s, below it in {below} of {len(own)} measurements. {told.unsaid}",
        expected=f"about {_figure(slow.median, 2)} GB/s",
        actual=f"{_figure(slow.value, 2)} GB/s ({told.score} {slow.z:.1f})",
        action=told.action,
        source=told.source,
        command="job",
        evidence_unit=worst.launch,
    )


def _too_few(engine: str, kind: str, collective: str, peers: int, least: int) -> Finding:
    told = _KINDS[kind]
    return finding(
        check=CHECK,
        rule=f"{kind}_as_fast_as_peers",
        unit=engine,
        unit_kind="benchmark",
        metric=f"{collective}.{kind}.busbw_gbps",
        severity=Severity.INFO,
        kind=FindingKind.NOT_JUDGED,
        summary=f"{peers} {told.plural} are too few to tell a slow one from their spread; {least} are needed.",
        expected=f">= {least} peers",
        actual=str(peers),
    )


def _figure(value: float, digits: int = 1) -> str:
    """Return a bandwidth with ``digits`` decimals; small ones, as on CPUs, with three significant digits."""
    return f"{value:.{digits}f}" if value >= 10 else f"{value:.3g}"


def size_text(size: int) -> str:
    """Return a size in B for a sentence, e.g. ``4 MiB``."""
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= scale:
            return f"{size / scale:.4g} {unit}"
    return f"{size} B"
