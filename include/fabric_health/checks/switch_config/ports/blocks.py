"""Sections of a normalised CLI config (three spaces a level) as a tree."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

_INDENT = 3


@dataclass
class Block:
    """One line with the lines below it."""

    line: str
    children: list[Block] = field(default_factory=list)

    def below(self, prefix: str) -> Iterator[tuple[str, Block]]:
        """Yield (rest of the line, block) of the direct children that begin with ``prefix``."""
        for child in self.children:
            if child.line.startswith(prefix):
                yield child.line[len(prefix) :].strip(), child

    def has(self, line: str) -> bool:
        """Tell whether a direct child is exactly ``line``."""
        return any(c.line == line for c in self.children)


def read(config: str) -> Block:
    """Return the tree of a normalised config; the root's line is empty."""
    root = Block("")
    stack = [root]
    for raw in config.split("\n"):
        line = raw.lstrip(" ")
        if not line:
            continue
        level = min((len(raw) - len(line)) // _INDENT, len(stack) - 1)
        block = Block(line)
        stack[level].children.append(block)
        del stack[level + 1 :]
        stack.append(block)
    return root
