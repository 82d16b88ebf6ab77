"""More launches of the nodes and rails that look slower than before, in rounds, until it is certain either way.

A few launches of every unit only mark suspects. What is decided later is decided on all of a unit's launches together:
see ``verdict.fleet``. Each round's evidence is kept before the next is planned, under names that depend on the round
alone, so that a repeated stage reads back what was launched and launches only the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from fabric_health import launching
from fabric_health.checks import registry
from fabric_health.checks.check import Launch
from fabric_health.checks.collectives.asked import Asked, asked
from fabric_health.checks.collectives.launches import fleet_spec
from fabric_health.checks.collectives.settings import settings
from fabric_health.datasets import evidence as evidence_store
from fabric_health.datasets import landing
from fabric_health.datasets.contracts import Row
from fabric_health.isolating import Budget, Launches
from fabric_health.isolation_cases import CHECK
from fabric_health.measured import Measured, Measurements
from fabric_health.site import Node, Site
from fabric_health.verdict import fleet
from fabric_health.verdict.comparability import fields_of

if TYPE_CHECKING:
    from fabric_health.launching import Plan
    from fabric_health.pipeline import Rooms
    from fabric_health.run_document import RunDocument

PART = f"{CHECK}.confirm"
_PREFIX = "confirm-"
_ENGINES = ("nccl-tests", "lab_fleet")


def confirm(rooms: Rooms, run: RunDocument, read: Callable[[], Measurements]) -> Measurements:
    """Launch suspects again as far as the site's budget goes; return the run's measurements with those launches.

    ``read`` reads the run's measurements as they are landed. Costs no launch when nothing looks slow.
    """
    check = registry.check(CHECK)
    plan = launching.read_plan(rooms.store, run, check) if CHECK in run.checks else None
    if plan is None or not plan.launches:
        return read()
    # Rounds start from the run's own launches, also when the stage is repeated: the same rounds follow.
    landing.land(rooms.store, run.key, PART, [], check.tables)
    found = read()
    cfg = settings(rooms.site).confirm
    launcher = Launches(rooms, run, Budget(cfg.max_launches, cfg.max_minutes), _PREFIX)
    rows: list[tuple[Row, str | None]] = []
    origins: dict[str, str | None] = {}
    for number in range(1, len(fleet.Settings().rounds) + 1):
        wanted = list(_wanted(found, plan, rooms.site, run.key.run, number)) if cfg.enabled else []
        if not wanted or launcher.spent():
            break
        rooms.tell(f"verdict: round {number}: {len(wanted)} more launches of what looks slower than before")
        evidence = launcher(wanted)
        for launch in wanted:
            if launch.name in evidence:
                origins[launch.name] = launch.origin
                sha = launcher.refs[launch.name].sha256
                rows += [(row, sha) for row in check.parse(launch, evidence[launch.name], rooms.site)]
        evidence_store.write_manifest(rooms.store, run.key, PART, list(launcher.refs.values()))
        landing.land(
            rooms.store, run.key, PART, rows, check.tables, origin_of=lambda row: origins.get(check.unit_of(row))
        )
        found = read()
    return found


def _wanted(found: Measurements, plan: Plan, site: Site, run: str, number: int) -> Iterator[Launch]:
    """Yield the launches of a round: the same benchmark again, of nodes on the suspects alone."""
    judged = [m for m in found.panels if len(m.panel.runs) > 1]
    levels = fleet.Settings(panels=max(1, len(judged)))
    for m in judged:
        template = _template(m, plan)
        suspects = fleet.suspects(m.panel, levels) if template is not None else {}
        if template is None or not suspects:
            continue
        launch, of = template
        for i in range(1, max(suspects.values()) + 1):
            nodes = _nodes(m, launch, suspects, i, site)
            if nodes:
                name = f"{_PREFIX}{number}-{launch.name.rsplit('-', 1)[0]}-{i}"
                lab = run if of.engine == "lab_fleet" else None
                spec = fleet_spec(settings(site).nccl, name, of.workload, of.grouping, nodes, lab=lab)
                yield Launch(name, spec, tuple(n.name for n in nodes), origin=launch.origin)


def _nodes(m: Measured, launch: Launch, suspects: Mapping[str, int], i: int, site: Site) -> list[Node]:
    """Return the nodes of the ``i``-th launch: suspects that still need one; of rails all, as one rail needs them."""
    names = launch.units if m.panel.unit_kind == "rail" else [u for u in launch.units if suspects.get(u, 0) >= i]
    return [n for n in map(site.unit, names) if isinstance(n, Node)]


def _template(m: Measured, plan: Plan) -> tuple[Launch, Asked] | None:
    """Return a launch of the plan that measured a panel of nodes or rails, None where there is none."""
    fields = fields_of(m.panel.comparability)
    if m.check != CHECK or m.panel.unit_kind not in ("node", "rail") or fields.get("engine") not in _ENGINES:
        return None
    for launch in plan.launches:
        try:
            of = asked(launch)
        except (ValueError, KeyError):
            continue
        alike = (of.engine, of.grouping, of.workload)
        same_units = m.panel.unit_kind == "rail" or set(m.panel.units) & set(launch.units)
        if alike == (fields["engine"], m.panel.unit_kind, fields.get("collective")) and same_units:
            return launch, of
    return None
