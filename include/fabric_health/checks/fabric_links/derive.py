"""What needs the previous run: counter windows of ports, and nodes that were there and are not any more."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import timedelta
from operator import attrgetter, ge, lt, sub

from fabric_health.checks.check import Context, RowSet
from fabric_health.checks.fabric_links.cables import Directory
from fabric_health.checks.fabric_links.counters import ENDS, ERRORS, TRAFFIC
from fabric_health.checks.fabric_links.settings import FabricSettings, settings
from fabric_health.checks.fabric_links.tables import FabricNode, FabricPort, FabricWindow
from fabric_health.datasets.contracts import Row

COUNTERS = (*ERRORS.values(), *TRAFFIC.values())
# A fabric under load fills the counter of waiting ticks within hours; it is kept, and no rule rests on it.
_JUDGED_ENDS = tuple(math.inf if c == "xmit_wait" else ENDS.get(c, math.inf) for c in COUNTERS)
_counters = attrgetter(*COUNTERS)
# Without a cabling plan only the past tells which nodes there should be; a node that was taken out is not asked for
# longer than this. With a plan, the plan says for how long.
REMEMBERED = timedelta(days=28)


def derive(rows: RowSet, context: Context) -> list[Row]:
    """Return a window for every port that an earlier run has seen, and a row for every node that is gone."""
    return [*windows(rows, context), *absent_nodes(rows, context)]


def windows(rows: RowSet, context: Context) -> list[FabricWindow]:
    """Return what each port counted since the previous run.

    A counter that went back makes the window unknown. One that stands at its end counts no further: what it counted
    up to there is a lower bound, and nothing at all is known once it stood there before.
    """
    before = {(p.fabric, p.guid, p.port): p for p in context.previous.of(FabricPort)}
    out = []
    for port in rows.of(FabricPort):
        old = before.get((port.fabric, port.guid, port.port))
        window = context.window(port.fabric, FabricPort, old.collected_at, port.collected_at) if old else None
        if old is None or window is None:
            continue
        reset, stuck, deltas = _counted(old, port)
        out.append(
            FabricWindow(
                fabric=port.fabric,
                guid=port.guid,
                port=port.port,
                node=port.node,
                since=window[0],
                window_s=window[1],
                reset=reset,
                stuck=",".join(stuck) or None,
                **({} if reset else deltas),
            )
        )
    return out


def _counted(old: FabricPort, new: FabricPort) -> tuple[bool, list[str], dict[str, int]]:
    """Return whether a counter went back, which stand at their end, and what the others counted."""
    then, now = _counters(old), _counters(new)
    # Nearly every port: all is known, and nothing stands at its end.
    if None not in then and None not in now and not any(map(ge, now, _JUDGED_ENDS)):
        return any(map(lt, now, then)), [], dict(zip(COUNTERS, map(sub, now, then), strict=True))
    reset, stuck, deltas = False, [], {}
    for counter, end, a, b in zip(COUNTERS, _JUDGED_ENDS, then, now, strict=True):
        if a is None or b is None:
            continue
        reset = reset or b < a
        if b >= end:
            stuck.append(counter)
            if a >= end:
                continue
        deltas[counter] = b - a
    return reset, stuck, deltas


def absent_nodes(rows: RowSet, context: Context) -> list[FabricNode]:
    """Return nodes of the previous run that this one did not find, for fabrics whose discovery could be read."""
    found = [n for n in rows.of(FabricNode) if n.present]
    seen = {(n.fabric, n.guid) for n in found}
    read = {n.fabric for n in found}
    planned = {f.name: f for f in settings(context.site).fabrics if f.cabling}
    out = []
    for node in context.previous.of(FabricNode):
        if node.fabric not in read or (node.fabric, node.guid) in seen:
            continue
        last_seen = node.last_seen or context.seen_at(node.fabric, FabricNode)
        if last_seen is None:
            continue
        if context.started_at - last_seen <= REMEMBERED or _in_plan(node, planned.get(node.fabric)):
            out.append(replace(node, present=False, last_seen=last_seen, lid=None))
    return out


def _in_plan(node: FabricNode, fabric: FabricSettings | None) -> bool:
    find = Directory([node]).find
    return fabric is not None and any(find(end.node) for cable in fabric.cables for end in (cable.one, cable.other))
