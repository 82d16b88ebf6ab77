"""More launches of the nodes and rails that look slower than before, in rounds, until it is certain either way.

After a change of nodes also rails of the nodes left alone, as controls: see ``beside``.

A few launches of every unit only mark suspects. What is decided later is decided on all of a unit's launches together:
see ``verdict.fleet``. Each round's evidence is kept before the next is planned, under names that depend on the round
alone, so that a repeated stage reads back what was launched and launches only the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fabric_health import beside, launching
from fabric_health.checks import registry
from fabric_health.checks.check import Launch
from fabric_health.checks.collectives.asked import Asked, of_fleet
from fabric_health.checks.collectives.launches import again
from fabric_health.checks.collectives.settings import settings
from fabric_health.datasets import evidence as evidence_store
from fabric_health.datasets import landing
from fabric_health.datasets.contracts import Row
from fabric_health.isolating import Budget, Launches
from fabric_health.isolation_cases import CHECK
from fabric_health.measured import Measured, Measurements
from fabric_health.site import Site
from fabric_health.verdict import fleet
from fabric_health.verdict.comparability import fields_of

if TYPE_CHECKING:
    from fabric_health.launching import Plan
    from fabric_health.pipeline import Rooms
    from fabric_health.run_document import RunDocument

PART = f"{CHECK}.confirm"
_PREFIX = "confirm-"


def confirm(rooms: Rooms, run: RunDocument, read: Callable[[], Measurements]) -> Measurements:
    """Launch suspects again as far as the site's budget goes; return the run's measurements with those launches.

    ``read`` reads the run's measurements as they are landed. Costs no launch when no node was touched and nothing looks
    slow.
    """
    check = registry.check(CHECK)
    plan = launching.read_plan(rooms.store, run, check) if CHECK in run.checks else None
    if plan is None or not plan.launches:
        return read()
    # Rounds start from the run's own launches, also when the stage is repeated: the same rounds follow.
    landing.land(rooms.store, run.key, PART, [], check.tables)
    cfg = settings(rooms.site).confirm
    extra = _Extra(rooms, run, Launches(rooms, run, Budget(cfg.max_launches, cfg.max_minutes), _PREFIX))
    if run.change is not None and cfg.enabled:
        controls = list(beside.launches(plan, run.change, rooms.site, run.key.run, f"{_PREFIX}0-"))
        if controls:
            rooms.tell(f"verdict: {len(controls)} launches of the rails of nodes that were left alone")
            extra.make(controls, beside.of_controls)
    found = read()
    for number in range(1, len(fleet.Settings().rounds) + 1):
        wanted = list(_wanted(found, plan, rooms.site, run.key.run, number)) if cfg.enabled else []
        if not wanted or extra.launcher.spent():
            break
        rooms.tell(f"verdict: round {number}: {len(wanted)} more launches of what looks slower than before")
        extra.make(wanted)
        found = read()
    return found


@dataclass
class _Extra:
    """Makes launches beyond the plan's, and lands all that were made so far."""

    rooms: Rooms
    run: RunDocument
    launcher: Launches
    rows: list[tuple[Row, str | None]] = field(default_factory=list)
    origins: dict[str, str | None] = field(default_factory=dict)

    def make(self, launches: Sequence[Launch], changed: Callable[[Row], Row] = lambda row: row) -> None:
        """Make launches as far as the budget goes, and land their rows as ``changed`` gives them."""
        check, store = registry.check(CHECK), self.rooms.store
        evidence = self.launcher(launches)
        for launch in launches:
            if launch.name in evidence:
                self.origins[launch.name] = launch.origin
                sha = self.launcher.refs[launch.name].sha256
                self.rows += [(changed(r), sha) for r in check.parse(launch, evidence[launch.name], self.rooms.site)]
        evidence_store.write_manifest(store, self.run.key, PART, list(self.launcher.refs.values()))
        landing.land(
            store,
            self.run.key,
            PART,
            self.rows,
            check.tables,
            origin_of=lambda row: self.origins.get(check.unit_of(row)),
        )


def _wanted(found: Measurements, plan: Plan, site: Site, run: str, number: int) -> Iterator[Launch]:
    """Yield the launches of a round: the same benchmark again, of nodes on the suspects alone."""
    levels = fleet.Settings(panels=max(1, len(found.with_past)))
    for panel, m in enumerate(found.with_past, 1):
        template = _template(m, plan)
        suspects = fleet.suspects(m.panel, levels) if template is not None else {}
        if template is None or not suspects:
            continue
        launch, of = template
        for i in range(1, max(suspects.values()) + 1):
            # Suspects that still need one; of rails all, as one rail needs all its nodes.
            rail = m.panel.unit_kind == "rail"
            units = launch.units if rail else [u for u in launch.units if suspects.get(u, 0) >= i]
            if units:
                name = f"{_PREFIX}{number}-{panel}-{launch.name.rsplit('-', 1)[0]}-{i}"
                yield again(launch, of, units, name, site, run)


def _template(m: Measured, plan: Plan) -> tuple[Launch, Asked] | None:
    """Return a launch of the plan that measured a panel of nodes or rails, None where there is none."""
    fields = fields_of(m.panel.comparability)
    if m.check != CHECK or m.panel.unit_kind not in ("node", "rail"):
        return None
    for launch, of in of_fleet(plan.launches):
        alike = (of.engine, of.grouping, of.workload)
        same_units = m.panel.unit_kind == "rail" or set(m.panel.units) & set(launch.units)
        if alike == (fields.get("engine"), m.panel.unit_kind, fields.get("collective")) and same_units:
            return launch, of
    return None
