"""The expected changes of a site file: their ranges expanded, and their units held against the site."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from fabric_health.site_file import ExpectedChange, Sku
from fabric_health.verdict.expected import Expected

Fault = Callable[[tuple[str | int, ...], str], None]
Expand = Callable[[tuple[str | int, ...], str], list[str]]

# Units of benchmarks with their default settings, which a file need not name.
_BENCHMARKS = ("gloo", "object-store", "tiny-qwen3", "elastic")
_MOST_NEAR = 3


def expected_changes(
    entries: Sequence[ExpectedChange],
    nodes: Mapping[str, Sku],
    switches: Iterable[str],
    named: Iterable[str],
    expand: Expand,
    fault: Fault,
) -> tuple[Expected, ...]:
    """Return the entries with their units; ``fault`` is told of every unit that the site does not have.

    ``nodes`` are the site's nodes with their SKU, ``named`` other units that findings can be about (a SKU, an engine, a
    fabric). Parts of a node are its NICs, GPUs (``gpu-001/gpu0``) and drives; those of anything else are not known.
    """
    rails = {f"rail-{nic.rail}" for sku in nodes.values() for nic in sku.nics}
    known = {*nodes, *switches, *rails, *named, *_BENCHMARKS}
    out = []
    for i, entry in enumerate(entries):
        loc = ("expected_changes", i, "units")
        units = expand(loc, entry.units)
        for message in dict.fromkeys(m for u in units for m in _unknown(u, known, nodes)):
            fault(loc, message)
        out.append(
            Expected(
                number=i,
                units=frozenset(units),
                owner=entry.owner,
                reason=entry.reason,
                expires=entry.expires,
                attribute=entry.attribute,
                metric=entry.metric,
                rule=entry.rule,
                value=entry.value,
                ticket=entry.ticket,
            )
        )
    return tuple(out)


def names_in(settings: Any) -> Iterator[str]:
    """Yield every text in the settings of checks: engines, fabrics and stores are units by the names given there."""
    stack = [settings]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, Mapping):
            stack.extend(item.values())
        elif isinstance(item, list | tuple):
            stack.extend(item)


def _unknown(unit: str, known: set[str], nodes: Mapping[str, Sku]) -> Iterator[str]:
    owner, _, part = unit.partition("/")
    if owner not in known:
        yield f"no unit {owner!r}; {_nearest(owner, known)}"
    elif part and owner in nodes:
        sku = nodes[owner]
        parts = [*(nic.name for nic in sku.nics), *(f"gpu{g}" for g in range(sku.gpus))]
        parts += [d.rstrip("/").rsplit("/", 1)[-1] for d in sku.drives]
        if part not in parts:
            yield f"{owner} has no part {part!r}; {_nearest(part, parts)}"


def _nearest(name: str, known: Iterable[str]) -> str:
    options = sorted(known)
    near = difflib.get_close_matches(name, options, n=_MOST_NEAR) or options[:5]
    return f"expected one of: {', '.join(near) or '(none defined)'}"
