"""Tables that devices print for people, sliced by their ruler or header: cells may be empty or hold spaces."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_RULER = re.compile(r"^\s*-{2,}(?:\s+-{1,})+\s*$")
MAX_LINES = 100_000
MAX_WIDTH = 4_000


@dataclass(frozen=True)
class Table:
    """One table: column titles, and rows of as many cells (stripped)."""

    titles: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def records(self) -> list[dict[str, str]]:
        """Return the rows as title -> cell."""
        return [dict(zip(self.titles, row, strict=True)) for row in self.rows]


def by_ruler(text: str) -> list[Table]:
    """Return every table that has a dash ruler under its titles (SONiC's ``tabulate`` output), in order."""
    lines = [line for line in text.splitlines()[:MAX_LINES] if len(line) <= MAX_WIDTH]
    tables = []
    for i, line in enumerate(lines):
        if i == 0 or not _RULER.match(line):
            continue
        starts = [m.start() for m in re.finditer(r"-+", line)]
        body = []
        for row in lines[i + 1 :]:
            if not row.strip() or re.fullmatch(r"[\s-]+", row):
                break
            body.append(row)
        # A row of the next table's titles may follow without a blank line: its ruler ends this table's body above.
        if len(body) and i + 1 + len(body) < len(lines) and _RULER.match(lines[i + 1 + len(body)]):
            body.pop()
        tables.append(_slice(lines[i - 1], starts, body))
    return tables


def by_titles(text: str, titles: Sequence[str]) -> Table | None:
    """Return the table whose title line holds ``titles`` in this order, cut where the titles begin; None if absent.

    Rulers and blank lines are skipped; a repeated title line (paged output) is skipped too.
    """
    lines = [line for line in text.splitlines()[:MAX_LINES] if len(line) <= MAX_WIDTH]
    for i, line in enumerate(lines):
        starts = _starts(line, titles)
        if starts is None:
            continue
        body = [r for r in lines[i + 1 :] if re.search(r"[^\s=-]", r) and _starts(r, titles) is None]
        return _slice(line, starts, body)
    return None


def _starts(line: str, titles: Sequence[str]) -> list[int] | None:
    starts = []
    at = 0
    for title in titles:
        at = line.find(title, at)
        if at < 0:
            return None
        starts.append(at)
        at += len(title)
    return starts


def _slice(header: str, starts: Sequence[int], body: Sequence[str]) -> Table:
    """Cut ``body`` at ``starts``. A row with text across a cut does not follow the ruler: half a cell is no value."""
    ends = [*starts[1:], MAX_WIDTH]

    def cells(line: str) -> tuple[str, ...]:
        return tuple(line[a:b].strip() for a, b in zip(starts, ends, strict=True))

    aligned = (line for line in body if all(line[at - 1 : at].isspace() or len(line) < at for at in starts[1:]))
    return Table(cells(header), tuple(cells(line) for line in aligned))
