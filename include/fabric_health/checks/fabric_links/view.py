"""The rows of one fabric, in the shape that its rules look at."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from fabric_health.checks.check import Context, RowSet
from fabric_health.checks.fabric_links.answers import printable
from fabric_health.checks.fabric_links.parse import ANSWER
from fabric_health.checks.fabric_links.settings import FabricSettings, Limits, settings
from fabric_health.checks.fabric_links.tables import FabricNode, FabricPort, FabricWindow
from fabric_health.datasets.tables import Fact, FactState, Finding, FindingKind, Severity, finding
from fabric_health.evidence import ReachStatus

CHECK = "fabric_links"


@dataclass(frozen=True)
class FabricView:
    """One fabric of a run: what it should be, what was read, and what was read before."""

    settings: FabricSettings
    limits: Limits
    nodes: dict[str, FabricNode]
    absent: dict[str, FabricNode]
    ports: dict[tuple[str, int], FabricPort]
    windows: dict[tuple[str, int], FabricWindow]
    facts: dict[str, Fact]
    previous_nodes: dict[str, FabricNode] = field(default_factory=dict)
    previous_ports: dict[tuple[str, int], FabricPort] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Name of the fabric."""
        return self.settings.name

    @property
    def unread(self) -> dict[str, str]:
        """Commands whose answer could not be read, with the reason."""
        errors = (f for f in self.facts.values() if f.state == FactState.ERROR.value)
        return {
            f.attribute.removeprefix(ANSWER): f.detail or "unreadable" for f in errors if f.attribute.startswith(ANSWER)
        }

    def value(self, attribute: str) -> str | None:
        """Return a fact's value, None when it could not be read."""
        fact = self.facts.get(attribute)
        return fact.value if fact is not None and fact.state == FactState.VALUE.value else None

    @property
    def managed(self) -> bool | None:
        """Whether the fabric has a subnet manager; None when that is not known."""
        masters = self.value("sm_masters")
        return None if masters is None else masters != "0"

    def unit(self, node: str, port: int | None = None) -> str:
        """Return the unit id of a node or port: ``ib0/leaf001/3``."""
        name = " ".join(printable(node).split()) or "unnamed"
        return f"{self.name}/{name}" if port is None else f"{self.name}/{name}/{port}"

    def of_port(self, port: FabricPort) -> str:
        """Return the unit id of a port."""
        return self.unit(port.node, port.port)

    @cached_property
    def links(self) -> list[tuple[FabricPort, FabricPort | None]]:
        """Every link once, the switch's end first (of two switches the first by name), with its other end."""
        out: list[tuple[FabricPort, FabricPort | None]] = []
        done: set[tuple[str, int]] = set()
        for port in sorted(self.ports.values(), key=lambda p: (p.kind != "switch", p.node, p.port)):
            if (port.guid, port.port) in done:
                continue
            far_key = (port.peer_guid, port.peer_port) if port.peer_guid and port.peer_port is not None else None
            far = self.ports.get(far_key) if far_key else None
            done.add((port.guid, port.port))
            if far is not None and (far.peer_guid, far.peer_port) == (port.guid, port.port):
                done.add((far.guid, far.port))
            out.append((port, far))
        return out


def views(rows: RowSet, context: Context) -> list[FabricView]:
    """Return a view of each fabric that answered."""
    whole = settings(context.site)
    out = []
    for fabric in whole.fabrics:
        stored = context.reach.get(fabric.name)
        if stored is None or stored.status not in (ReachStatus.OK, ReachStatus.PARTIAL):
            continue
        nodes = [n for n in rows.of(FabricNode) if n.fabric == fabric.name]
        out.append(
            FabricView(
                settings=fabric,
                limits=whole.limits,
                nodes={n.guid: n for n in nodes if n.present},
                absent={n.guid: n for n in nodes if not n.present},
                ports={(p.guid, p.port): p for p in rows.of(FabricPort) if p.fabric == fabric.name},
                windows={(w.guid, w.port): w for w in rows.of(FabricWindow) if w.fabric == fabric.name},
                facts={f.attribute: f for f in rows.of(Fact) if f.unit == fabric.name},
                previous_nodes={n.guid: n for n in context.previous.of(FabricNode) if n.fabric == fabric.name},
                previous_ports={
                    (p.guid, p.port): p for p in context.previous.of(FabricPort) if p.fabric == fabric.name
                },
            )
        )
    return out


def deviation(
    view: FabricView,
    rule: str,
    unit: str,
    unit_kind: str,
    metric: str,
    severity: Severity,
    summary: str,
    *,
    expected: str | None = None,
    actual: str | None = None,
    action: str | None = None,
    source: str | None = None,
    command: str | None = None,
    explained_by: str | None = None,
) -> Finding:
    """Make a finding of this check; its evidence is what was asked of the whole fabric."""
    return finding(
        check=CHECK,
        rule=rule,
        unit=unit,
        unit_kind=unit_kind,
        metric=metric,
        severity=severity,
        summary=summary,
        expected=expected,
        actual=actual,
        action=action,
        source=source,
        command=command,
        explained_by=explained_by,
        evidence_unit=view.name,
    )


def not_judged(
    view: FabricView, rule: str, metric: str, severity: Severity, summary: str, **more: str | None
) -> Finding:
    """Make a finding that says what of the fabric could not be judged."""
    return finding(
        check=CHECK,
        rule=rule,
        unit=view.name,
        unit_kind="fabric",
        metric=metric,
        severity=severity,
        kind=FindingKind.NOT_JUDGED,
        summary=summary,
        evidence_unit=view.name,
        **more,
    )
