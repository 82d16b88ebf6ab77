"""What one check found may explain what another did: both ends of a cable tell of the same trouble.

Works on findings alone, after all checks have judged. A finding that explains others keeps standing for itself; the
others keep their row and point at it with ``explained_by``, so that one cause is one line on the page.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from fabric_health.datasets.tables import Finding
from fabric_health.evidence import ReachStatus
from fabric_health.site import Cable, Site

# Rules of the node side of a cable (check driver_firmware) and of the switch side (check switch_config).
LINK_DOWN, LINK_RATE, LINK_FLAPS, NIC_MISSING = "link_up", "link_rate", "link_flaps", "nic_present"
PORT_ADMIN, PORT_DOWN, PORT_NEIGHBOR = "port_admin_up", "port_up", "port_neighbor"
PORT_SPEED, PORT_FLAPS = "port_speed", "port_flaps"
# Of the run itself: a node or switch that could not be asked.
UNIT_ANSWERS = "unit_answers"

# What a switch port shows of a peer that is down, and no more.
_OF_A_DEAD_PEER = (PORT_DOWN, PORT_NEIGHBOR)
# Between two switches: (rule at one end, rules that it explains at the other), strongest first.
_BETWEEN_SWITCHES: tuple[tuple[str, tuple[str, ...]], ...] = (
    (PORT_ADMIN, _OF_A_DEAD_PEER),
    (PORT_DOWN, _OF_A_DEAD_PEER),
    (PORT_SPEED, (PORT_SPEED,)),
    (PORT_FLAPS, (PORT_FLAPS,)),
)

ByRule = Mapping[str, Finding]


def link_explanations(findings: list[Finding], site: Site) -> list[Finding]:
    """Return ``findings`` in the same order, with ``explained_by`` set where the other end of a cable is the cause.

    - A NIC that is disabled on its node, or missing, explains its switch port's "down" and missing neighbour.
    - A switch port that is shut down explains the NIC's link; a port at the wrong speed explains the NIC's rate.
    - With neither end shut down, the NIC's finding stands for both.
    - A node or switch that cannot be reached at all explains links that are down at the other end of its cables.
    - Between switches the end that is shut down stands for both, else the end that explains something already
      (a config line), else the first by name.

    Findings that are explained already are left as they are.
    """
    units: dict[str, dict[str, Finding]] = {}
    for f in findings:
        units.setdefault(f.unit, {}).setdefault(f.rule, f)
    causes = {f.explained_by for f in findings if f.explained_by}
    explained: dict[str, str] = {}
    for cable in site.cables:
        one = units.get(f"{cable.switch}/{cable.port}", {})
        other = units.get(f"{cable.peer}/{cable.peer_port}", {})
        if one and other:
            pairs = _node_cable(one, other) if cable.peer_kind == "node" else _switch_cable(cable, one, other, causes)
        else:
            pairs = _dead_end(one or other, units.get(cable.peer if one else cable.switch, {}))
        for effect, cause in pairs:
            # Never in a circle, and never through a finding that is itself explained.
            if effect.explained_by is None and cause.explained_by is None and cause.finding not in explained:
                explained.setdefault(effect.finding, cause.finding)
    return [replace(f, explained_by=explained[f.finding]) if f.finding in explained else f for f in findings]


def _node_cable(port: ByRule, nic: ByRule) -> Iterator[tuple[Finding, Finding]]:
    """Yield (effect, cause) of a cable between a switch port and a NIC."""
    down = nic.get(NIC_MISSING) or nic.get(LINK_DOWN)
    shut = port.get(PORT_ADMIN)
    if down is not None and shut is not None:
        # Disabled at both ends: two causes, both stand.
        if down.rule == LINK_DOWN and not _disabled(down):
            yield down, shut
    elif down is not None:
        yield from ((port[rule], down) for rule in _OF_A_DEAD_PEER if rule in port)
    for effect, cause in ((nic.get(LINK_RATE), port.get(PORT_SPEED)), (port.get(PORT_FLAPS), nic.get(LINK_FLAPS))):
        if effect is not None and cause is not None:
            yield effect, cause


def _dead_end(near: ByRule, far_unit: ByRule) -> Iterator[tuple[Finding, Finding]]:
    """Yield (effect, cause) where the unit at the far end was not reached, so that it says nothing of its own port."""
    silent = far_unit.get(UNIT_ANSWERS)
    if silent is not None and silent.actual == ReachStatus.UNREACHABLE:
        yield from ((near[rule], silent) for rule in (LINK_DOWN, *_OF_A_DEAD_PEER) if rule in near)


def _disabled(down: Finding) -> bool:
    return "DISABLED" in (down.actual or "").upper()


def _switch_cable(cable: Cable, near: ByRule, far: ByRule, causes: Iterable[str]) -> Iterator[tuple[Finding, Finding]]:
    """Yield (effect, cause) of a cable between two switches."""
    known = set(causes)
    ends = [(f"{cable.switch}/{cable.port}", near), (f"{cable.peer}/{cable.peer_port}", far)]
    for rule, explains in _BETWEEN_SWITCHES:
        with_rule = [end for end in ends if rule in end[1]]
        if not with_rule:
            continue
        if rule == PORT_ADMIN and len(with_rule) == 2:
            return
        _, cause_end = min(with_rule, key=lambda end: (end[1][rule].finding not in known, end[0]))
        effect_end = far if cause_end is near else near
        yield from ((effect_end[effect], cause_end[rule]) for effect in explains if effect in effect_end)
        if rule == PORT_ADMIN:
            return
