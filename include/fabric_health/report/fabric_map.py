"""The fabric as two grids of cells, nodes x rails and switches x ports: what is wrong, fine, or not measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fabric_health.datasets.tables import Coverage, CoverageState, Finding, FindingKind, Severity
from fabric_health.report.data import ReportData

# Symbol, word and class: colour is never the only signal.
FINE = ("·", "fine", "fine")
WARNING = ("!", "warning", "warning")
CRITICAL = ("✕", "critical", "critical")
EXPLAINED = ("→", "explained by another finding", "explained")
UNKNOWN = ("?", "not measured", "unknown")


@dataclass(frozen=True)
class Cell:
    """One cell: its label for hover and focus, and how it looks. ``anchor`` is the finding to jump to."""

    label: str
    symbol: str
    look: str
    anchor: str | None = None


@dataclass(frozen=True)
class GridRow:
    """One row of cells; ``head`` is the node or switch."""

    head: str
    cells: tuple[Cell | None, ...]


def rail_grid(data: ReportData) -> tuple[tuple[str, ...], tuple[GridRow, ...]]:
    """Return column heads (node, then rails) and a row per node in scope; a NIC without a landed link is unknown."""
    rails = sorted({nic.rail for n in data.site.nodes for nic in n.sku.nics})
    scope = {c.unit for c in data.coverage if c.unit_kind == "node"}
    links = {link.nic: link for link in data.links}
    by_unit = _by_unit(data.findings)
    unjudged = _unjudged(data.coverage, "node")
    rows = []
    for node in data.site.nodes:
        if node.name not in scope:
            continue
        cells: list[Cell | None] = [_cell(node.name, "node", by_unit, node.name in unjudged)]
        for rail in rails:
            nic = next((x for x in node.sku.nics if x.rail == rail), None)
            if nic is None:
                cells.append(None)
                continue
            unit = node.nic_unit(nic.name)
            link = links.get(unit)
            told = f"{link.state}, {link.rate_gbps or 0:g} Gb/s" if link else "no link row"
            cells.append(_cell(unit, told, by_unit, link is None))
        rows.append(GridRow(node.name, tuple(cells)))
    return ("node", *(f"rail {r}" for r in rails)), tuple(rows)


def port_grid(data: ReportData) -> tuple[GridRow, ...]:
    """Return a row per switch in scope: the switch itself, then its cabled ports in the order of the cabling plan."""
    scope = {c.unit for c in data.coverage if c.unit_kind == "switch"}
    ports = {(p.switch, p.port): p for p in data.switch_ports}
    by_unit = _by_unit(data.findings)
    unjudged = _unjudged(data.coverage, "switch")
    rows = []
    for switch in data.site.switches:
        if switch.name not in scope:
            continue
        cells: list[Cell | None] = [_cell(switch.name, switch.platform, by_unit, switch.name in unjudged)]
        for cable in data.site.cables_of(switch.name):
            port = ports.get((switch.name, cable.port))
            told = f"to {cable.peer}/{cable.peer_port}"
            if port is not None:
                up = {True: "up", False: "down", None: "state unknown"}[port.oper_up]
                told += f", {up}, {port.speed_gbps or 0:g} Gb/s, MTU {port.mtu_bytes or 'unknown'}"
            cells.append(_cell(switch.port_unit(cable.port), told, by_unit, port is None))
        rows.append(GridRow(switch.name, tuple(cells)))
    return tuple(rows)


def _by_unit(findings: Sequence[Finding]) -> dict[str, list[Finding]]:
    out: dict[str, list[Finding]] = {}
    for f in findings:
        if f.severity != Severity.INFO:
            out.setdefault(f.unit, []).append(f)
    return out


def _unjudged(coverage: Sequence[Coverage], kind: str) -> set[str]:
    return {c.unit for c in coverage if c.unit_kind == kind and c.state == CoverageState.NOT_JUDGED}


def _cell(unit: str, told: str, by_unit: dict[str, list[Finding]], missing: bool) -> Cell:
    found = by_unit.get(unit, [])
    deviations = [f for f in found if f.kind == FindingKind.DEVIATION]
    look = FINE
    if deviations:
        own = [f for f in deviations if f.explained_by is None]
        look = EXPLAINED
        if own:
            look = CRITICAL if any(f.severity == Severity.CRITICAL for f in own) else WARNING
    elif missing or found:
        look = UNKNOWN
    first = found[0] if found else None
    label = f"{unit}: {look[1]}" + (f". {first.summary}" if first else f" ({told})")
    return Cell(label, look[0], look[2], first.finding if first else None)
