"""What of a run's findings can be isolated: a slow rail, slow nodes or ranks, and what was measured with them. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from fabric_health.checks.check import Launch
from fabric_health.checks.collectives.asked import FLEET_ENGINES, asked
from fabric_health.checks.collectives.failing import RULE as BENCHMARK_RUNS
from fabric_health.checks.collectives.failing import benchmark_of
from fabric_health.checks.collectives.group_test import COLLECTIVE, group_spec
from fabric_health.checks.collectives.launches import LOCAL_UNIT, gloo_launch, ranks_spec
from fabric_health.checks.collectives.settings import settings
from fabric_health.checks.collectives.validate import OF_THE_GROUP
from fabric_health.datasets.tables import Finding, FindingKind, Severity, finding
from fabric_health.launching import Plan
from fabric_health.site import Node, Site
from fabric_health.verdict import wording

if TYPE_CHECKING:
    from fabric_health.isolation.state import Test

CHECK = "collectives"
# Under this name isolating keeps its findings, rows, evidence and state within a run, apart from the check's own.
PART = f"{CHECK}.isolation"
RULE = "isolated"
_STARTED_BY = {"rail_as_fast_as_peers": "rail", "node_as_fast_as_peers": "node", "ranks_as_fast_as_peers": "ranks"}
_ENGINES = (*FLEET_ENGINES, "gloo")
_NAMED = 5


@dataclass(frozen=True)
class Rank:
    """One of gloo's ranks, by the number that it has in all groups: a process on the machine that runs jobs."""

    number: int

    @property
    def name(self) -> str:
        """Its name within a case, e.g. ``rank-3``."""
        return f"rank-{self.number}"


@dataclass(frozen=True)
class Case:
    """Something slow among ``nodes`` of one SKU: one ``rail`` of them, or nodes (``rail`` None).

    Of the engine ``gloo``, ranks are in the place of nodes. ``slow`` are the findings that say so, ``sound_rails`` the
    rails that none of them names. ``fails`` says that launches of all nodes gave no number: what is looked for breaks
    groups rather than slows them.
    """

    name: str
    engine: str
    nodes: tuple[Node, ...] | tuple[Rank, ...]
    rail: int | None
    slow: tuple[Finding, ...]
    sound_rails: tuple[int, ...]
    fails: bool = False

    @cached_property
    def rails(self) -> tuple[int, ...]:
        """The rails that a GPU is on, ascending; of ranks none."""
        return rails_of(self.nodes[0])

    @cached_property
    def by_name(self) -> Mapping[str, Node | Rank]:
        """The nodes or ranks by name."""
        return {n.name: n for n in self.nodes}

    @property
    def noun(self) -> str:
        """What the case has many of, for a sentence."""
        return "ranks" if self.engine == "gloo" else "nodes"

    @cached_property
    def suspects(self) -> frozenset[str]:
        """The nodes or ranks that a finding names."""
        return frozenset(name for f in self.slow for name in _named(f))

    def rail_of(self, test: Test) -> int | None:
        """Return the rail that a test measures alone, None for all rails."""
        return self.rail if self.rail is not None or test.rail is None else self.rails[test.rail]

    def launch(self, site: Site, run: str, test: str, names: Sequence[str], rail: int | None) -> Launch:
        """Return the launch of a test of the nodes or ranks of these names; ``run`` seeds the noise of the lab's fleet.

        Ranks are measured one group after the other, so that all their launches are of the one machine.
        """
        name, chosen = launch_name(self, test), settings(site)
        members = [self.by_name[n] for n in names]
        if self.engine == "gloo":
            group = tuple(m.number for m in members if isinstance(m, Rank))
            return gloo_launch(name, ranks_spec(chosen.gloo, name, [group]))
        nodes = [m for m in members if isinstance(m, Node)]
        lab = run if self.engine == "lab_fleet" else None
        if self.fails:
            limit_s = min(chosen.nccl.time_limit_s, chosen.isolation.hang_limit_s)
            chosen = chosen.model_copy(update={"nccl": chosen.nccl.model_copy(update={"time_limit_s": limit_s})})
        return Launch(name, group_spec(chosen.nccl, name, nodes, rail, lab=lab), tuple(names))


def _named(f: Finding) -> Iterable[str]:
    """Return the nodes or ranks of a case that a finding names: of ``ranks-2-3`` both."""
    if f.unit_kind == "ranks":
        return tuple(f"rank-{number}" for number in f.unit.split("-")[1:])
    return (f.unit,) if f.unit_kind == "node" else ()


def rails_of(node: Node | Rank) -> tuple[int, ...]:
    """Return the rails of a node that a GPU is on, ascending; a rank has none."""
    if isinstance(node, Rank):
        return ()
    return tuple(sorted({n.rail for n in node.sku.nics if n.gpu is not None}))


def cases_of(found: Iterable[Finding], plan: Plan, site: Site) -> list[Case]:
    """Return what of the findings of a run's launches can be isolated: a case for each slow rail, one for slow nodes
    of a SKU, one for slow ranks, and one for nodes of a SKU whose launches all fail.
    """
    found = tuple(found)
    launches = {launch.name: launch for launch in plan.launches}
    grouped: dict[tuple[str, tuple[str, ...]], list[Finding]] = {}
    for f in found:
        launch = launches.get(f.evidence_unit or "")
        if launch is None or f.severity == Severity.INFO or f.kind != FindingKind.DEVIATION:
            continue
        if _STARTED_BY.get(f.rule) == f.unit_kind and (engine := _engine(launch)) in _ENGINES:
            grouped.setdefault((engine, launch.units), []).append(f)
    cases: list[Case] = []
    of_nodes = sorted((item for item in grouped.items() if item[0][0] != "gloo"), key=lambda item: item[0])
    for number, ((engine, units), slow) in enumerate(of_nodes, 1):
        nodes = tuple(n for n in map(site.unit, units) if isinstance(n, Node))
        suffix = f"-sku{number}" if len(of_nodes) > 1 else ""
        rails = {f.unit: int(m[1]) for f in slow if (m := re.fullmatch(r"rail-(\d{1,3})", f.unit))}
        sound = tuple(r for r in rails_of(nodes[0]) if r not in rails.values())
        for unit, rail in sorted(rails.items(), key=lambda item: item[1]):
            own = tuple(f for f in slow if f.unit == unit)
            cases.append(Case(f"rail-{rail}{suffix}", engine, nodes, rail, own, sound))
        own = tuple(f for f in slow if f.unit_kind == "node")
        if own:
            cases.append(Case(f"nodes{suffix}", engine, nodes, None, own, sound))
    for (engine, _), slow in grouped.items():
        if engine == "gloo":
            ranks = tuple(Rank(n) for group in settings(site).gloo.pair_groups for n in group)
            cases.append(Case("ranks", engine, ranks, None, tuple(slow), ()))
    return cases + _failing(found, plan, site)


def _failing(found: Sequence[Finding], plan: Plan, site: Site) -> list[Case]:
    """Return a case for the nodes of each SKU whose benchmarks fail in every launch, at least where all work together.

    Groups are tested with all_reduce: where that runs on all nodes, no group of them would show the failure.
    """
    benchmarks = {launch.name: b for launch in plan.launches if (b := benchmark_of(launch)) is not None}
    failing: dict[tuple[str, tuple[str, ...]], list[Finding]] = {}
    for f in found:
        if f.rule == BENCHMARK_RUNS and f.kind == FindingKind.DEVIATION and (f.evidence_unit or "") in benchmarks:
            failing.setdefault(benchmarks[f.evidence_unit or ""][:2], []).append(f)
    cases = []
    for number, ((engine, units), own) in enumerate(sorted(failing.items()), 1):
        failed = {benchmarks[f.evidence_unit or ""][2:] for f in own}
        together = {b[2:] for b in benchmarks.values() if b[:2] == (engine, units) and b[3] == "all"}
        decisive = {(COLLECTIVE, "all")} & together or together or failed
        if decisive <= failed:
            nodes = tuple(n for n in map(site.unit, units) if isinstance(n, Node))
            also = [f for f in found if f.unit == engine and f.rule in (*OF_THE_GROUP, "launches_complete")]
            name = f"failing-sku{number}" if len(failing) > 1 else "failing"
            cases.append(Case(name, engine, nodes, None, (*own, *also), rails_of(nodes[0]), fails=True))
    return cases


def _engine(launch: Launch) -> str:
    try:
        return asked(launch).engine
    except (ValueError, KeyError):
        return ""


def leaves_of(site: Site, members: Iterable[Node | Rank], rail: int | None) -> dict[str, str]:
    """Return the domain of each node: the leaf its NIC on ``rail`` is cabled to, or all leaves it is cabled to.

    A node without a planned cable is in the domain of its rack. Ranks are all on one machine.
    """
    members = list(members)
    nodes = [n for n in members if isinstance(n, Node)]
    switches: dict[str, set[str]] = {}
    nics = {(n.name, nic.name) for n in nodes for nic in n.sku.nics if rail is None or nic.rail == rail}
    for cable in site.cables:
        if (cable.peer, cable.peer_port) in nics:
            switches.setdefault(cable.peer, set()).add(cable.switch)
    ranks = {m.name: LOCAL_UNIT for m in members if isinstance(m, Rank)}
    return ranks | {n.name: "+".join(sorted(switches.get(n.name, ()))) or f"rack {n.rack}" for n in nodes}


def launch_name(case: Case, test: str) -> str:
    """Return the name of a test's launch, unique within the run."""
    return f"isolate-{case.name}-{test}"


def merged(judged: Sequence[Finding], found: Sequence[Finding] | None, due: Sequence[Case]) -> list[Finding]:
    """Return the findings of the check with those of isolating, and what these explain pointing at them.

    ``found`` None means that isolating has not finished; when something was ``due``, that is a finding too.
    """
    if found is None:
        return [*judged, *_did_not_finish([f for case in due for f in case.slow])]
    mine = {f.finding: f for f in found}
    known = {f.finding for f in judged}
    return [mine.get(f.finding, f) for f in judged] + [f for f in found if f.rule == RULE and f.finding not in known]


def _did_not_finish(slow: Sequence[Finding]) -> list[Finding]:
    if not slow:
        return []
    return [
        finding(
            check=CHECK,
            rule=RULE,
            unit=CHECK,
            unit_kind="check",
            metric="finishes",
            severity=Severity.WARNING,
            kind=FindingKind.NOT_JUDGED,
            summary=f"Isolating {listed([f.unit for f in slow])} did not finish, so no unit is named.",
            action="See the log of the task isolate; when the cause is gone, clear it or run the stage again.",
        )
    ]


def listed(names: Sequence[str]) -> str:
    """Return names for a sentence: the first few, and how many more."""
    return wording.listed(names, _NAMED)
