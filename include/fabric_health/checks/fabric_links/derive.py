"""What needs the previous run: counter windows of ports, and nodes that were there and are not any more."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from operator import attrgetter

from fabric_health.checks.check import Context, RowSet
from fabric_health.checks.fabric_links.cables import Directory
from fabric_health.checks.fabric_links.counters import ENDS, ERRORS, TRAFFIC
from fabric_health.checks.fabric_links.settings import settings
from fabric_health.checks.fabric_links.tables import FabricNode, FabricPort, FabricWindow
from fabric_health.datasets.contracts import Row

COUNTERS = (*ERRORS.values(), *TRAFFIC.values())
# A fabric under load fills the counter of waiting ticks within hours; it is kept, and no rule rests on it.
_JUDGED_ENDS = {c: end for c, end in ENDS.items() if c != "xmit_wait"}
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
        old, since = before.get((port.fabric, port.guid, port.port)), context.previous_at.get(port.fabric)
        if old is None or since is None:
            continue
        length = (context.started_at - since).total_seconds()
        if length <= 0:
            continue
        pairs = ((c, a, b) for c, a, b in zip(COUNTERS, _counters(old), _counters(port), strict=True))
        both = [(c, a, b) for c, a, b in pairs if a is not None and b is not None]
        reset = any(b < a for _, a, b in both)
        stuck = [c for c, _, b in both if c in _JUDGED_ENDS and b >= _JUDGED_ENDS[c]]
        deltas = {c: b - a for c, a, b in both if c not in stuck or a < _JUDGED_ENDS[c]}
        out.append(
            FabricWindow(
                fabric=port.fabric,
                guid=port.guid,
                port=port.port,
                node=port.node,
                since=since,
                window_s=length,
                reset=reset,
                stuck=",".join(stuck) or None,
                **({} if reset else deltas),
            )
        )
    return out


def absent_nodes(rows: RowSet, context: Context) -> list[FabricNode]:
    """Return nodes of the previous run that this one did not find, for fabrics whose discovery could be read."""
    found = [n for n in rows.of(FabricNode) if n.present]
    seen = {(n.fabric, n.guid) for n in found}
    read = {n.fabric for n in found}
    planned = _planned(context)
    out = []
    for node in context.previous.of(FabricNode):
        if node.fabric not in read or (node.fabric, node.guid) in seen:
            continue
        last_seen = node.last_seen or context.previous_at.get(node.fabric)
        if last_seen is None:
            continue
        names = planned.get(node.fabric)
        wanted = Directory([node]) if names else None
        in_plan = wanted is not None and any(wanted.find(n) for n in names or ())
        if in_plan or context.started_at - last_seen <= REMEMBERED:
            out.append(replace(node, present=False, last_seen=last_seen, lid=None))
    return out


def _planned(context: Context) -> dict[str, set[str]]:
    return {
        f.name: {end.node for cable in f.cables for end in (cable.one, cable.other)}
        for f in settings(context.site).fabrics
        if f.cabling
    }
