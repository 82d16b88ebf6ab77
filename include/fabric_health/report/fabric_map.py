"""The fabric as two grids of cells, nodes x rails and switches x ports: what is wrong, fine, or not measured."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from fabric_health.datasets.tables import CoverageState, Finding, FindingKind, Severity
from fabric_health.report.data import ReportData

# Symbol, word and class: colour is never the only signal.
FINE = ("·", "fine", "fine")
WARNING = ("!", "warning", "warning")
CRITICAL = ("✕", "critical", "critical")
EXPLAINED = ("→", "explained by another finding", "explained")
ACKNOWLEDGED = ("○", "acknowledged", "acknowledged")
UNKNOWN = ("?", "not measured", "unknown")


@dataclass(frozen=True)
class Cell:
    """One cell: its label for hover and focus, and how it looks. ``anchor`` is the finding to jump to."""

    label: str
    symbol: str
    look: str
    anchor: str | None = None


# A grid of more rows than this shows the rows that are not fine throughout, and folds the others.
ROWS_OPEN = 40


@dataclass(frozen=True)
class GridRow:
    """One row of cells; ``head`` is the node or switch."""

    head: str
    cells: tuple[Cell | None, ...]

    @property
    def fine(self) -> bool:
        """Whether every cell is."""
        return all(c is None or c.look == FINE[2] for c in self.cells)


@dataclass(frozen=True)
class Grid:
    """A grid of cells: the ``rows`` to show and the ``folded`` ones, which are fine throughout. No ``head``: none."""

    head: tuple[str, ...]
    rows: tuple[GridRow, ...]
    folded: tuple[GridRow, ...] = ()

    @classmethod
    def of(cls, head: tuple[str, ...], rows: Sequence[GridRow]) -> Grid:
        """Fold the rows of a long grid that are fine throughout."""
        if len(rows) <= ROWS_OPEN:
            return cls(head, tuple(rows))
        return cls(head, tuple(r for r in rows if not r.fine), tuple(r for r in rows if r.fine))


def rail_grid(data: ReportData, linked: Collection[str]) -> Grid:
    """Return node and rails by node in scope; a NIC without a landed link is unknown.

    ``linked``: findings that the page has a place for, so that a cell can lead there.
    """
    rails = sorted({nic.rail for n in data.site.nodes for nic in n.sku.nics})
    scope = {c.unit for c in data.coverage if c.unit_kind == "node"}
    links = {link.nic: link for link in data.links}
    look = _Looks(data, linked)
    rows = []
    for node in data.site.nodes:
        if node.name not in scope:
            continue
        cells: list[Cell | None] = [look.cell(node.name, "node", node.name in look.unjudged)]
        for rail in rails:
            nic = next((x for x in node.sku.nics if x.rail == rail), None)
            if nic is None:
                cells.append(None)
                continue
            unit = node.nic_unit(nic.name)
            link = links.get(unit)
            told = f"{link.state or 'state unknown'}, {_gbps(link.rate_gbps)}" if link else "no row of it landed"
            cells.append(look.cell(unit, told, link is None))
        rows.append(GridRow(node.name, tuple(cells)))
    return Grid.of(("node", *(f"rail {r}" for r in rails)), rows)


def port_grid(data: ReportData, linked: Collection[str]) -> Grid:
    """Return a row per switch in scope: the switch itself, then its cabled ports in the order of the cabling plan.

    ``linked`` as in :func:`rail_grid`.
    """
    scope = {c.unit for c in data.coverage if c.unit_kind == "switch"}
    ports = {(p.switch, p.port): p for p in data.switch_ports}
    look = _Looks(data, linked)
    rows = []
    for switch in data.site.switches:
        if switch.name not in scope:
            continue
        cells: list[Cell | None] = [look.cell(switch.name, switch.platform, switch.name in look.unjudged)]
        for cable in data.site.cables_of(switch.name):
            port = ports.get((switch.name, cable.port))
            told = f"to {cable.peer}/{cable.peer_port}"
            if port is not None:
                up = {True: "up", False: "down", None: "state unknown"}[port.oper_up]
                mtu = "unknown" if port.mtu_bytes is None else port.mtu_bytes
                told += f", {up}, {_gbps(port.speed_gbps)}, MTU {mtu}"
            cells.append(look.cell(switch.port_unit(cable.port), told, port is None))
        rows.append(GridRow(switch.name, tuple(cells)))
    return Grid.of((), rows)


class _Looks:
    """How the cells of a run look: by the findings on exactly their unit, and by what was judged at all."""

    def __init__(self, data: ReportData, linked: Collection[str]) -> None:
        self._linked = linked
        self._by_unit: dict[str, list[Finding]] = {}
        for f in data.findings:
            if f.severity != Severity.INFO:
                self._by_unit.setdefault(f.unit, []).append(f)
        self.unjudged = {c.unit for c in data.coverage if c.state == CoverageState.NOT_JUDGED}

    def cell(self, unit: str, told: str, missing: bool) -> Cell:
        """Return the cell of ``unit``; ``missing``: nothing was read of it."""
        found = self._by_unit.get(unit, [])
        deviations = [f for f in found if f.kind == FindingKind.DEVIATION]
        own = [f for f in deviations if f.explained_by is None and f.acknowledged_by is None]
        if own:
            look = CRITICAL if any(f.severity == Severity.CRITICAL for f in own) else WARNING
        elif missing or len(found) > len(deviations):
            look = UNKNOWN
        else:
            expected = [f for f in deviations if f.acknowledged_by is not None]
            look = ACKNOWLEDGED if expected else EXPLAINED if deviations else FINE
        first = next((f for f in (*own, *found) if f.finding in self._linked), None)
        if first is not None:
            return Cell(f"{unit}: {look[1]}. {first.summary}", look[0], look[2], first.finding)
        return Cell(f"{unit}: {look[1]} ({told})", look[0], look[2])


def _gbps(value: float | None) -> str:
    return "rate unknown" if value is None else f"{value:g} Gb/s"
