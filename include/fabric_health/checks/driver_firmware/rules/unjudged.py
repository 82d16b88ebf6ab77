"""What could not be judged: one finding per unit and command, however many values are missing behind it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fabric_health.checks.driver_firmware.rules.rule import CHECK, deviation
from fabric_health.checks.driver_firmware.view import Gap, NodeView, Part
from fabric_health.datasets.tables import Finding, FindingKind, Severity, finding

MAX_ITEMS = 4


def unjudged_findings(view: NodeView) -> Iterator[Finding]:
    """Report the gaps that the rules left in a node's view. Call it after every other rule has run."""
    grouped: dict[tuple[str, bool], dict[Part, list[Gap]]] = {}
    for gap in sorted(view.gaps):
        # `ethtool_i:enp1s0` and its siblings are one tool.
        key = (gap.command.partition(":")[0], gap.unsupported)
        grouped.setdefault(key, {}).setdefault(gap.part, []).append(gap)
    for (command, unsupported), by_part in sorted(grouped.items()):
        for part, gaps in _folded(view, by_part):
            yield _unsupported(part, command, gaps) if unsupported else _unread(part, command, gaps)


def _folded(view: NodeView, by_part: dict[Part, list[Gap]]) -> list[tuple[Part, list[Gap]]]:
    """Make one group of it when a tool failed for the node, or for all parts of one kind."""
    kinds = {p.kind for p in by_part}
    whole = any(
        len(siblings) > 1 and set(siblings) <= set(by_part)
        for siblings in (view.parts(kind) for kind in sorted(kinds - {"node"}))
    )
    if len(by_part) > 1 and (whole or view.part in by_part):
        return [(view.part, [g for part in sorted(by_part) for g in by_part[part]])]
    return sorted(by_part.items())


def _unread(part: Part, command: str, gaps: Sequence[Gap]) -> Finding:
    reason = gaps[0].reason
    others = len({g.reason for g in gaps}) - 1
    more = f" (and {others} other reasons)" if others > 0 else ""
    what = f"by {command} " if command else ""
    return finding(
        check=CHECK,
        rule="readable",
        unit=part.unit,
        unit_kind=part.kind,
        metric=command or "rows",
        severity=Severity.WARNING,
        kind=FindingKind.NOT_JUDGED,
        summary=f"{_items(gaps)} of {part.unit} could not be read {what}and was not judged: {reason}{more}",
        expected="a readable value",
        actual=reason,
        action=f"Run {command or 'the check'} on {part.unit.partition('/')[0]} by hand; install it or fix permissions.",
        source="what the tool answered",
        command=command or None,
    )


def _unsupported(part: Part, command: str, gaps: Sequence[Gap]) -> Finding:
    return deviation(
        part,
        "supported",
        command or "rows",
        Severity.INFO,
        f"{_items(gaps)} of {part.unit} is not supported here although its SKU expects it: {gaps[0].reason}",
        expected="supported",
        actual=gaps[0].reason,
        action="Correct the SKU in the site file if this unit cannot have it.",
        source="what the tool answered",
        command=command or None,
    )


def _items(gaps: Sequence[Gap]) -> str:
    items = list(dict.fromkeys(g.item for g in gaps))
    rest = len(items) - MAX_ITEMS
    return ", ".join(items[:MAX_ITEMS]) + (f" and {rest} more" if rest > 0 else "")
