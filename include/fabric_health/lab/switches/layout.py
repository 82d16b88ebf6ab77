"""Text layouts that network operating systems share: ruler tables, port ranges, hashed secrets."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from itertools import groupby

from fabric_health.lab.switches.device import Port


def ruler_table(header: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[bool] | None = None) -> str:
    """Return a table with a dash ruler under its header, two spaces between columns, as SONiC's CLI prints.

    ``right`` says which columns are right-aligned; the first is left-aligned and the rest right-aligned by default.
    """
    body = [tuple(r) for r in rows]
    align = list(right) if right is not None else [i > 0 for i in range(len(header))]
    widths = [max(len(r[i]) for r in (tuple(header), *body)) for i in range(len(header))]

    def line(cells: Sequence[str]) -> str:
        padded = (c.rjust(w) if a else c.ljust(w) for c, w, a in zip(cells, widths, align, strict=True))
        return "  ".join(padded).rstrip()

    return "\n".join((line(header), "  ".join("-" * w for w in widths), *map(line, body))) + "\n"


def fixed_table(widths: Sequence[int], rows: Iterable[Sequence[str]]) -> str:
    """Return rows in columns of fixed widths; a cell that fills its column is cut so that one space stays free."""
    out = []
    for row in rows:
        cells = [c[: w - 1].ljust(w) for c, w in zip(row[:-1], widths, strict=False)]
        out.append(("".join(cells) + row[-1]).rstrip())
    return "\n".join(out) + "\n"


def runs(ports: Iterable[Port]) -> list[tuple[Port, Port]]:
    """Return first and last port of every run of neighbouring face-plate positions."""
    out = []
    for _, group in groupby(sorted(ports, key=lambda p: p.position), key=_run_key()):
        members = list(group)
        out.append((members[0], members[-1]))
    return out


class _run_key:  # noqa: N801 - a key function that remembers how far it has come
    def __init__(self) -> None:
        self._count = 0

    def __call__(self, port: Port) -> int:
        self._count += 1
        return port.position - self._count


def hashed(scheme: str, key: str) -> str:
    """Return text in the form of a crypt hash (``$6$salt$...``), made from ``key``; there is no password behind it."""
    text = hashlib.sha512(f"lab/{key}".encode()).hexdigest()
    return f"${scheme}${text[:16]}${text[16:102]}"


def secret(key: str, length: int = 16) -> str:
    """Return a made-up shared secret, such as an SNMP community, for the configuration of a lab switch."""
    return hashlib.sha256(f"lab/{key}".encode()).hexdigest()[:length]
