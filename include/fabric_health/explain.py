"""What one check found may explain what another did: both ends of a cable tell of the same trouble.

Works on findings alone, after all checks have judged. A finding that explains others keeps standing for itself; the
others keep their row and point at it with ``explained_by``, so that one cause is one line on the page.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain

from fabric_health.datasets.tables import Finding, FindingKind, Severity
from fabric_health.evidence import ReachStatus
from fabric_health.site import Cable, Site

# Rules of the node side of a cable (check driver_firmware) and of the switch side (check switch_config).
LINK_DOWN, LINK_RATE, LINK_FLAPS, NIC_MISSING = "link_up", "link_rate", "link_flaps", "nic_present"
PORT_ADMIN, PORT_DOWN, PORT_NEIGHBOR = "port_admin_up", "port_up", "port_neighbor"
PORT_SPEED, PORT_FLAPS = "port_speed", "port_flaps"
# What the node side's LINK_DOWN says first of a port that was shut there, not merely without a peer.
SHUT_ON_NODE = "administratively down"
# Of the run itself: a node or switch that could not be asked.
UNIT_ANSWERS = "unit_answers"

# Of isolation: the NIC that makes its rail slow.
ISOLATED = "isolated"

# What a switch port shows of a peer that is down, and no more.
_OF_A_DEAD_PEER = (PORT_DOWN, PORT_NEIGHBOR)
_RANK = {Severity.INFO: 0, Severity.WARNING: 1, Severity.CRITICAL: 2}

ByRule = Mapping[str, Finding]


def link_explanations(findings: list[Finding], site: Site) -> list[Finding]:
    """Return ``findings`` in the same order, with ``explained_by`` set where the other end of a cable is the cause.

    - A NIC that is shut on its node, or missing, explains its switch port's "down" and missing neighbour.
    - A switch port that is shut down explains the NIC's link; a port at the wrong speed explains the NIC's rate.
    - With neither end shut down, the NIC's finding stands for both.
    - A node or switch that cannot be reached at all explains links that are down at the other end of its cables.
    - A NIC that makes its rail slow is explained by what an audit says of it or of its switch port, and so is the rail.
    - Of a flapping link between switches the first end by name stands for both. (Other findings on both ends of such
      a cable come from one check, which explains them itself.)

    Findings that are explained already are left as they are, and nothing is explained by a lesser finding.
    """
    units: dict[str, dict[str, Finding]] = {}
    for f in findings:
        units.setdefault(f.unit, {}).setdefault(f.rule, f)
    explained: dict[str, str] = {}
    for cable in site.cables:
        one = units.get(f"{cable.switch}/{cable.port}", {})
        other = units.get(f"{cable.peer}/{cable.peer_port}", {})
        if one and other:
            pairs = _node_cable(one, other) if cable.peer_kind == "node" else _switch_cable(cable, one, other)
        else:
            dead = _dead_end(one or other, units.get(cable.peer if one else cable.switch, {}))
            pairs = chain(dead, _slow_nic(one, other))
        for effect, cause in pairs:
            # Never in a circle, never through a finding that is itself explained, never hiding the worse one.
            open_ends = effect.explained_by is None and cause.explained_by is None and cause.finding not in explained
            if open_ends and _RANK[Severity(cause.severity)] >= _RANK[Severity(effect.severity)]:
                explained.setdefault(effect.finding, cause.finding)
    # The cause of a slow NIC is the cause of the slow rail that the NIC explains.
    slow = {f.finding for f in findings if f.rule == ISOLATED and f.finding in explained}
    explained |= {f.finding: explained[f.explained_by] for f in findings if f.explained_by in slow}
    return [replace(f, explained_by=explained[f.finding]) if f.finding in explained else f for f in findings]


def _node_cable(port: ByRule, nic: ByRule) -> Iterator[tuple[Finding, Finding]]:
    """Yield (effect, cause) of a cable between a switch port and a NIC."""
    down = nic.get(NIC_MISSING) or nic.get(LINK_DOWN)
    shut = port.get(PORT_ADMIN)
    if down is not None and shut is not None:
        # Shut at both ends: two causes, both stand.
        if down.rule == LINK_DOWN and not _shut(down):
            yield down, shut
    elif down is not None:
        yield from ((port[rule], down) for rule in _OF_A_DEAD_PEER if rule in port)
    yield from _slow_nic(port, nic)
    for effect, cause in ((nic.get(LINK_RATE), port.get(PORT_SPEED)), (port.get(PORT_FLAPS), nic.get(LINK_FLAPS))):
        if effect is not None and cause is not None:
            yield effect, cause


def _slow_nic(port: ByRule, nic: ByRule) -> Iterator[tuple[Finding, Finding]]:
    """Yield (effect, cause) of a NIC that makes its rail slow: the worst that an audit says of either end."""
    slow = nic.get(ISOLATED)
    # What somebody expects explains no loss: that it costs performance is news.
    seen = [
        f
        for f in (*port.values(), *nic.values())
        if f.rule != ISOLATED and f.kind == FindingKind.DEVIATION and f.acknowledged_by is None
    ]
    if slow is not None and seen:
        yield slow, max(seen, key=lambda f: (_RANK[Severity(f.severity)], f.rule))


def _dead_end(near: ByRule, far_unit: ByRule) -> Iterator[tuple[Finding, Finding]]:
    """Yield (effect, cause) where the unit at the far end was not reached, so that it says nothing of its own port."""
    silent = far_unit.get(UNIT_ANSWERS)
    if silent is not None and silent.actual == ReachStatus.UNREACHABLE:
        yield from ((near[rule], silent) for rule in (LINK_DOWN, *_OF_A_DEAD_PEER) if rule in near)


def _shut(down: Finding) -> bool:
    """Return whether the node shut the link itself; whose word that is depends on the link layer, so the rule says."""
    return (down.actual or "").startswith(SHUT_ON_NODE)


def _switch_cable(cable: Cable, near: ByRule, far: ByRule) -> Iterator[tuple[Finding, Finding]]:
    """Yield (effect, cause) of a cable between two switches."""
    if PORT_FLAPS in near and PORT_FLAPS in far:
        near_first = f"{cable.switch}/{cable.port}" < f"{cable.peer}/{cable.peer_port}"
        yield (far[PORT_FLAPS], near[PORT_FLAPS]) if near_first else (near[PORT_FLAPS], far[PORT_FLAPS])
