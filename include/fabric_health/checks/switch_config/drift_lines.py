"""Drift of CLI configs (EOS, NX-OS, Onyx): netutils reads the blocks, sets of (line, parents) are compared.

Blocks and lines are free to move, except where position decides: inside access lists, route maps, policy maps and
server groups. Rules with a sequence number are compared by that number.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, ClassVar

from fabric_health.checks.switch_config.attributes import (
    Attribute,
    attribute,
    flat_rule_group,
    numbered,
    order_matters,
    port_of,
    topic_of,
)
from fabric_health.checks.switch_config.difference import ORDER, Change, Difference
from fabric_health.site import Platform

Parents = tuple[str, ...]
MAX_BLOCK_LINES = 400

_ONYX_SUBJECT = re.compile(r"^(?P<no>no )?(?P<subject>interface \S+ \S+)(?: (?P<rest>.+))?$")


@dataclass(frozen=True)
class Line:
    """One config line with the headers it sits under; ``attribute`` names what it sets."""

    text: str
    parents: Parents
    attribute: Attribute

    @property
    def full(self) -> Parents:
        return (*self.parents, self.text)


class Config:
    """A normalised config as lines, indexed for comparison."""

    def __init__(self, platform: Platform, text: str) -> None:
        self.platform = platform
        self.by_path: dict[Parents, None] = {}
        self.children: dict[Parents, list[str]] = defaultdict(list)
        for path in _read(platform, text):
            if path not in self.by_path:
                self.by_path[path] = None
                self.children[path[:-1]].append(path[-1])

    def block(self, path: Parents) -> list[str]:
        """Return a line and everything below it, indented."""
        out: list[str] = []
        todo: list[tuple[Parents, int]] = [(path, 0)]
        while todo and len(out) < MAX_BLOCK_LINES:
            current, depth = todo.pop()
            out.append("   " * depth + current[-1])
            below = self.children.get(current, ())
            todo.extend(((*current, c), depth + 1) for c in reversed(below))
        return out


@cache
def _reader() -> Any:
    """Return netutils' parser of indented blocks; imported on use, so that parsing a DAG file does not pay for it."""
    from netutils.config.parser import LINUXConfigParser

    class Blocks(LINUXConfigParser):  # type: ignore[misc]
        """Indentation alone decides: normalised text has no comments and its banners are single lines."""

        comment_chars: ClassVar[list[str]] = []
        banner_start: ClassVar[list[str]] = []

    return Blocks


def _read(platform: Platform, text: str) -> Iterable[Parents]:
    if platform == "onyx":
        yield from (_onyx_path(line) for line in text.splitlines() if line.strip())
        return
    try:
        lines = _reader()(text).config_lines
    except IndexError as error:
        raise ValueError(f"not a normalised config: {error}") from None
    for line in lines:
        yield (*(p.strip() for p in line.parents), line.config_line.strip())


def _onyx_path(line: str) -> Parents:
    """Put the attribute of a flat line under its interface, so that all platforms read alike."""
    found = _ONYX_SUBJECT.match(line.strip())
    if found is None or not found["rest"]:
        return (line.strip(),)
    return (found["subject"], f"{found['no'] or ''}{found['rest']}")


def compare(platform: Platform, reference: Config, running: Config) -> list[Difference]:
    """Return the differences, in the order of the reference, then of the running config."""
    missing = _tops(reference, running)
    extra = _tops(running, reference)
    pairs = _pair(missing, extra, reference, running)
    changed = {m.full for m, _ in pairs}
    replaced = {e.full for _, e in pairs}
    out = [_changed(platform, m, e) for m, e in pairs]
    out += [_one_sided(platform, Change.MISSING, m, reference) for m in missing if m.full not in changed]
    out += [_one_sided(platform, Change.EXTRA, e, running) for e in extra if e.full not in replaced]
    out += _misordered(platform, reference, running)
    return _with_unique_paths(out)


def _tops(config: Config, other: Config) -> list[Line]:
    """Return the lines that ``other`` lacks; of a block that is lacking as a whole, its header only."""
    out: list[Line] = []
    for path in config.by_path:
        if path in other.by_path or (len(path) > 1 and path[:-1] not in other.by_path and _has(config, path[:-1])):
            continue
        out.append(Line(path[-1], path[:-1], attribute(path[-1])))
    return out


def _has(config: Config, path: Parents) -> bool:
    return path in config.by_path


def _pair(missing: list[Line], extra: list[Line], reference: Config, running: Config) -> list[tuple[Line, Line]]:
    """Pair a missing and an extra line of one section that set the same attribute: one line, another value."""
    by_key: dict[tuple[Parents, str], list[Line]] = defaultdict(list)
    for line in extra:
        by_key[line.parents, line.attribute.key].append(line)
    wanted = Counter((line.parents, line.attribute.key) for line in missing)
    out: list[tuple[Line, Line]] = []
    for line in missing:
        key = (line.parents, line.attribute.key)
        candidates = by_key[key]
        if len(candidates) != 1 or wanted[key] != 1 or candidates[0].attribute.single != line.attribute.single:
            continue
        # Headers pair only when neither has a block: two blocks of other names are two blocks.
        if reference.children.get(line.full) or running.children.get(candidates[0].full):
            continue
        out.append((line, candidates[0]))
    return out


def _changed(platform: Platform, expected: Line, actual: Line) -> Difference:
    return Difference(
        change=Change.CHANGED,
        path=" / ".join((*expected.parents, expected.attribute.key)),
        parents=expected.parents,
        port=_port(platform, expected),
        topic=topic_of(expected.text, expected.parents),
        expected=expected.text,
        actual=actual.text,
    )


def _one_sided(platform: Platform, change: Change, line: Line, config: Config) -> Difference:
    name = line.attribute.key if line.attribute.single and not config.children.get(line.full) else line.text
    text = "\n".join(config.block(line.full))
    return Difference(
        change=change,
        path=" / ".join((*line.parents, name)),
        parents=line.parents,
        port=_port(platform, line),
        topic=topic_of(line.text, line.parents),
        expected=text if change is Change.MISSING else None,
        actual=text if change is Change.EXTRA else None,
    )


def _port(platform: Platform, line: Line) -> str | None:
    return port_of(platform, line.full[0])


def _misordered(platform: Platform, reference: Config, running: Config) -> list[Difference]:
    """Find sections whose common lines stand in another order, where order means something."""
    out: list[Difference] = []
    for path, lines in reference.children.items():
        others = running.children.get(path)
        if others is None:
            continue
        if path and order_matters(path[-1]):
            out += _order_difference(platform, path, lines, others)
        elif not path:
            mine, theirs = _flat_groups(lines), _flat_groups(others)
            for group, rules in mine.items():
                out += _order_difference(platform, (group,), rules, theirs.get(group, []))
    return out


def _flat_groups(lines: Sequence[str]) -> dict[str, list[str]]:
    out: dict[str, list[str]] = defaultdict(list)
    for line in lines:
        group = flat_rule_group(line)
        if group is not None:
            out[group].append(line)
    return out


def _order_difference(
    platform: Platform, path: Parents, expected: Sequence[str], actual: Sequence[str]
) -> list[Difference]:
    common = set(expected) & set(actual)
    wanted = [line for line in expected if line in common and not numbered(line)]
    found = [line for line in actual if line in common and not numbered(line)]
    if wanted == found:
        return []
    return [
        Difference(
            change=Change.CHANGED,
            path=" / ".join((*path, ORDER)),
            parents=path,
            port=port_of(platform, path[0]),
            topic=topic_of(path[-1], path[:-1]),
            expected="\n".join(wanted[:MAX_BLOCK_LINES]),
            actual="\n".join(found[:MAX_BLOCK_LINES]),
        )
    ]


def _with_unique_paths(differences: list[Difference]) -> list[Difference]:
    """Add the line itself where an attribute that a section should hold once differs more than once."""
    seen = Counter(d.path for d in differences)
    return [
        replace(d, path=f"{d.path} = {(d.expected or d.actual or '').split(chr(10), 1)[0]}") if seen[d.path] > 1 else d
        for d in differences
    ]
