"""Which nodes, NICs and rails a change or a fault of a unit can affect, from the cabling plan."""

from __future__ import annotations

from collections.abc import Mapping

from fabric_health.site import Site

# Switches of a fabric stand in few layers; plans may be drawn in rings.
_LAYERS = 4

Reach = Mapping[str, frozenset[str]]


def reach_of(site: Site) -> Reach:
    """Return, per node, NIC, switch port and switch, the units behind it: NICs, their nodes, and rails (``rail-3``).

    A port between two switches reaches what is behind either end's leaf side: everything that a leaf carries may pass
    its uplinks, and everything may pass a spine. What is not in the plan is not in the answer.
    """
    behind: dict[str, set[str]] = {s.name: set() for s in site.switches}
    out: dict[str, set[str]] = {}
    for node in site.nodes:
        for nic in node.sku.nics:
            out[node.nic_unit(nic.name)] = {node.nic_unit(nic.name), node.name, f"rail-{nic.rail}"}
            out.setdefault(node.name, {node.name}).add(f"rail-{nic.rail}")
    for cable in site.cables:
        if cable.peer_kind == "node":
            units = {f"{cable.peer}/{cable.peer_port}", cable.peer, f"rail-{cable.rail}"}
            out.setdefault(f"{cable.switch}/{cable.port}", set()).update(units)
            behind[cable.switch] |= units
    own = {name: frozenset(units) for name, units in behind.items()}
    between = [c for c in site.cables if c.peer_kind == "switch"]
    for _ in range(_LAYERS):
        # A switch without nodes of its own carries what the switches it is cabled to carry.
        grown = {c: set(units) for c, units in behind.items()}
        for cable in between:
            for here, there in ((cable.switch, cable.peer), (cable.peer, cable.switch)):
                if not own[here]:
                    grown[here] |= behind[there]
        if grown == behind:
            break
        behind = grown
    for cable in between:
        leafs = [s for s in (cable.switch, cable.peer) if own[s]] or [cable.switch, cable.peer]
        for end in (f"{cable.switch}/{cable.port}", f"{cable.peer}/{cable.peer_port}"):
            out.setdefault(end, set()).update(*(behind[s] for s in leafs))
    out.update((name, units) for name, units in behind.items() if units)
    return {unit: frozenset(units) for unit, units in sorted(out.items())}
