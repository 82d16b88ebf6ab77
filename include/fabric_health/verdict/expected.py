"""Differences that somebody expects, until a date: they are shown as acknowledged and are no news; then they come back.

An entry names units and one of: an attribute (of facts and config lines), a metric (of a finding), a rule. It may name
the value that is expected; another value is news. Patterns know ``*`` (anything) and ``?`` (one character).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import lru_cache

from fabric_health.datasets.tables import Finding
from fabric_health.verdict.downstream import REGRESSION


@dataclass(frozen=True)
class Expected:
    """One entry, with its units expanded. ``number`` is its place in the site file, from 0. ``expires``: last day.

    One of ``attribute``, ``metric`` and ``rule`` is given. A unit stands for its parts too.
    """

    number: int
    units: frozenset[str]
    owner: str
    reason: str
    expires: date
    attribute: str | None = None
    metric: str | None = None
    rule: str | None = None
    value: str | None = None
    ticket: str | None = None

    def expired(self, on: date) -> bool:
        """Return whether the entry no longer acknowledges anything on that day (UTC)."""
        return on > self.expires

    def told(self, on: date) -> str:
        """Return owner, until when (or since when no longer), why, and ticket."""
        when = f"expired since {self.expires}" if self.expired(on) else f"until {self.expires}"
        ticket = f" ({self.ticket})" if self.ticket else ""
        return f"{self.owner} {when}: {self.reason}{ticket}"

    def covers_finding(self, f: Finding) -> bool:
        """Return whether a finding is what this entry expects.

        An expected attribute is not an expected loss of performance: that takes an entry with a metric or a rule.
        """
        if not self._has(f.unit) or not _matches(self.value, f.actual):
            return False
        if self.rule is not None:
            return _matches(self.rule, f.rule)
        if self.metric is not None:
            return _matches(self.metric, f.metric)
        return f.rule != REGRESSION and _matches(self.attribute, f.metric)

    def covers_change(self, unit: str, attribute: str, after: str | None) -> bool:
        """Return whether a changed fact or config line is what this entry expects."""
        named = self.attribute is not None and _matches(self.attribute, attribute)
        return named and self._has(unit) and _matches(self.value, after)

    def _has(self, unit: str) -> bool:
        return unit in self.units or unit.split("/", 1)[0] in self.units


def acknowledge(findings: Iterable[Finding], entries: Sequence[Expected], on: date) -> list[Finding]:
    """Return the findings in their order, each with who expects it on that day, or whose entry for it has expired."""
    return [_acknowledged(f, entries, on) for f in findings]


def _acknowledged(f: Finding, entries: Sequence[Expected], on: date) -> Finding:
    entry = _latest([e for e in entries if e.covers_finding(f)])
    if entry is None:
        return f
    if entry.expired(on):
        return replace(f, acknowledged_by=None, acknowledgement_expired=entry.told(on))
    return replace(f, acknowledged_by=entry.told(on), acknowledgement_expired=None)


def expected_change(unit: str, attribute: str, after: str | None, entries: Sequence[Expected]) -> Expected | None:
    """Return the entry that expects a changed fact or config line, expired or not; None where none does."""
    return _latest([e for e in entries if e.covers_change(unit, attribute, after)])


def _latest(entries: Sequence[Expected]) -> Expected | None:
    """Return the entry that holds longest: one that is renewed takes the place of the one before."""
    return max(entries, key=lambda e: (e.expires, -e.number), default=None)


def _matches(pattern: str | None, value: str | None) -> bool:
    """Return whether ``value`` has the form of ``pattern``; any value has that of None."""
    return pattern is None or (value is not None and _compiled(pattern).fullmatch(value) is not None)


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str]:
    first, *rest = ("".join("." if c == "?" else re.escape(c) for c in part) for part in pattern.split("*"))
    if not rest:
        return re.compile(first, re.DOTALL)
    *inner, last = rest
    # Atomic groups: the first place where a part fits is as good as any, so none is tried twice.
    return re.compile(first + "".join(f"(?>.*?{part})" for part in inner) + f".*{last}", re.DOTALL)
