"""Onyx configs: flat lines, one attribute each, that may name a range of ports."""

from __future__ import annotations

import re
from collections.abc import Iterator

MAX_RANGE = 4096

_COMMENT = re.compile(r"^\s*#")
_SUBJECT = re.compile(
    r"^(?P<no>no )?interface (?P<kind>ethernet|ib|port-channel|mlag-port-channel|vlan) (?P<ports>[\d/,\-]+)"
    r"(?: (?P<rest>.*))?$"
)
_PREFIX_MODE = re.compile(r"^(?:no )?cli default prefix-modes enable$")


def flatten(lines: list[str]) -> list[str]:
    """Return one line per port and attribute: comments, ``exit`` and ``force`` dropped, port ranges expanded.

    A block (``interface ethernet 1/1`` with lines below, as written without prefix modes) becomes flat lines too.
    """
    out: list[str] = []
    subjects: list[str] = []
    depth = 0
    for raw in lines:
        bare = " ".join(raw.split())
        indent = len(raw) - len(raw.lstrip())
        if not bare or _COMMENT.match(bare) or bare in ("exit", "end", "!") or _PREFIX_MODE.match(bare):
            subjects = [] if bare in ("exit", "end") else subjects
            continue
        found = _SUBJECT.match(bare)
        if found is None:
            if subjects and indent > depth:
                out.extend(f"{s} {_unforced(bare)}" for s in subjects)
            else:
                subjects = []
                out.append(_unforced(bare))
            continue
        heads = [f"interface {found['kind']} {p}" for p in expand_ports(found["ports"])]
        if found["rest"] and found["rest"] != "force":
            subjects = []
            out.extend(f"{found['no'] or ''}{h} {_unforced(found['rest'])}" for h in heads)
        else:
            subjects, depth = ([] if found["no"] else heads), indent
            out.extend(f"{found['no'] or ''}{h}" for h in heads)
    return list(dict.fromkeys(out))


def expand_ports(text: str) -> list[str]:
    """Expand ``1/1-1/4,1/7`` or ``1-4``; what is no range, or too wide to be one, stays as it is."""
    out: list[str] = []
    for part in text.split(","):
        expanded = list(_expand(part))
        if len(out) + len(expanded) > MAX_RANGE:
            return [text]
        out.extend(expanded)
    return [p for p in out if p] or [text]


def _expand(part: str) -> Iterator[str]:
    first, dash, last = part.partition("-")
    head, _, low = first.rpartition("/")
    other_head, _, high = last.rpartition("/")
    fits = low.isascii() and low.isdigit() and high.isascii() and high.isdigit() and len(low) < 7 and len(high) < 7
    if not dash or not fits or other_head not in ("", head) or not int(low) <= int(high) < int(low) + MAX_RANGE:
        yield part
        return
    for number in range(int(low), int(high) + 1):
        yield f"{head}/{number}" if head else str(number)


def _unforced(line: str) -> str:
    return line.removesuffix(" force")
