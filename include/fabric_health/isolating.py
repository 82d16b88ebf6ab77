"""The stage that finds which unit makes a rail or a node slow: more launches, planned by what the last ones gave.

Every test's evidence is kept before the next is planned, and plans are a function of measurements alone. A stage that
is repeated, or goes on after it was killed, reads back what was measured and launches only what was not.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import TYPE_CHECKING, Any, Protocol

from fabric_health import isolated, launching
from fabric_health.checks import registry
from fabric_health.checks.check import Launch
from fabric_health.checks.collectives.group_test import GroupResult, group_result
from fabric_health.checks.collectives.settings import settings
from fabric_health.checks.collectives.tables import Isolation
from fabric_health.datasets import evidence as evidence_store
from fabric_health.datasets import landing
from fabric_health.datasets.contracts import Row
from fabric_health.evidence import Redactor, StoredEvidence, UnitEvidence
from fabric_health.isolated import Outcome, Told
from fabric_health.isolation.fleet import Fleet
from fabric_health.isolation.planning import plan
from fabric_health.isolation.session import update
from fabric_health.isolation.state import Measurement, Settings, State, Test
from fabric_health.isolation.verdict import verdict
from fabric_health.isolation_cases import CHECK, PART, Case, cases_of, leaves_of
from fabric_health.judged import read_findings, write_findings
from fabric_health.site import Site

if TYPE_CHECKING:
    from fabric_health.jobs.backend import Backend
    from fabric_health.jobs.spec import JobResult, JobSpec
    from fabric_health.pipeline import Rooms
    from fabric_health.run_document import RunDocument

REFERENCES = 3
# The largest loss of a rank that isolating tells from a larger one; that of its launches is told as it is.
MAX_LOSS_OF_RANKS = 0.95
# A sound group's bandwidth hardly depends on whether it has 15 or 16 nodes: references serve neighbouring sizes.
_SIZE_SLACK = 8


class Launcher(Protocol):
    """Makes launches within a budget."""

    def __call__(self, launches: Sequence[Launch]) -> Mapping[str, UnitEvidence]:
        """Return the evidence of each launch by name; those that the budget forbids are left out."""

    def spent(self) -> str:
        """Return which budget is used up, or an empty string."""


def isolate(rooms: Rooms, run: RunDocument) -> dict[str, Any]:
    """Isolate what the run's launches found slow; keep findings, rows and evidence. Return cases, launches and units.

    Costs nothing when nothing is slow, or when the check was not judged.
    """
    cfg = settings(rooms.site).isolation
    found = read_findings(rooms.store, run, CHECK) if CHECK in run.checks else None
    planned = launching.read_plan(rooms.store, run, registry.check(CHECK)) if found is not None else None
    if found is None or planned is None:
        rooms.tell("isolation: no collective benchmark was judged in this run")
        return {"cases": 0, "launches": 0, "blamed": []}
    cases = cases_of(found, planned, rooms.site) if cfg.enabled else []
    launcher = Launches(rooms, run, Budget(cfg.max_tests, cfg.max_minutes, cfg.parallel))
    states: dict[str, State] = {}
    outcomes = []
    for case in cases:
        rooms.tell(f"isolation: {case.name} of {len(case.nodes)} {case.noun}")

        def save(state: State, name: str = case.name) -> None:
            states[name] = state
            _save(rooms, run, states)

        outcomes.append(look_into(case, rooms.site, run.key.run, launcher, save))
    told = isolated.tell(outcomes, rooms.site)
    _keep(rooms, run, told, launcher.refs)
    blamed = [r.unit for r in told.rows if r.unit]
    for row in told.rows:
        rooms.tell(f"isolation: {row.case}: {row.outcome}: {row.reason}")
    if not cases:
        rooms.tell("isolation: nothing is slow" if cfg.enabled else "isolation: switched off by the site")
    return {"cases": len(cases), "launches": len(launcher.refs), "blamed": list(dict.fromkeys(blamed))}


def look_into(case: Case, site: Site, run: str, launcher: Launcher, save: Callable[[State], None]) -> Outcome:
    """Test groups of a case's nodes until the unit at fault is known or the budget is spent."""
    leaves = leaves_of(site, case.nodes, case.rail)
    domains: dict[str, list[str]] = {}
    for name, leaf in leaves.items():
        domains.setdefault(leaf, []).append(name)
    fleet = Fleet.of(domains, rails=1 if case.rail is not None else max(1, len(case.rails)))
    state = State(fleet, _session_settings(case, site))
    tests = GroupTests(case, site, run, launcher)
    whole: tuple[float, ...] = ()
    while not whole and not launcher.spent() and (round_ := plan(state)):
        state = update(state, round_, tests.measure(round_))
        save(state)
        whole = isolated.slow_everywhere(case, state, settings(site).peers.gap)
    return Outcome(case, state, verdict(state), tests.references, tests.minutes, whole, launcher.spent())


def _session_settings(case: Case, site: Site) -> Settings:
    """The launcher holds the budget of launches and minutes, for all cases of a run together.

    Ranks that share CPUs with all else that runs there are much noisier than a fabric, and a late one loses far more.
    """
    cfg, gloo = settings(site).isolation, settings(site).gloo
    found = Settings(
        min_loss=cfg.min_loss,
        noise=cfg.noise,
        false_blame=cfg.false_blame,
        max_tests=cfg.max_tests,
        max_rounds=cfg.max_rounds,
        max_minutes=cfg.max_minutes,
        minutes_per_round=cfg.max_minutes / (cfg.max_rounds + 1),
    )
    if case.engine != "gloo":
        return found
    noise = gloo.pair_noise
    return replace(found, min_loss=gloo.pair_gap, noise=noise, run_effect=noise, max_loss=MAX_LOSS_OF_RANKS)


@dataclass
class GroupTests:
    """Measures the tests of one case relative to sound groups of the same shape.

    What is expected comes from launches of this run: of a rail, from the same nodes on rails that are not slow; of
    nodes, from other groups of nodes that no finding names. Never from the tests of a round themselves, which may all
    be slow, unless there are no others.
    """

    case: Case
    site: Site
    run: str
    launcher: Launcher
    references: int = 0
    minutes: float = 0.0
    expected: dict[tuple[int, bool, bool], float] = field(default_factory=dict)
    _asked: set[tuple[int, bool, bool]] = field(default_factory=set)

    def measure(self, tests: Sequence[Test]) -> list[Measurement]:
        """Return a measurement for each test of a round."""
        for test in tests:
            if not self.case.fails and self._reference(test) is None and _shape(test) not in self._asked:
                self._refer(test, [t for t in tests if _shape(t) == _shape(test)])
        results = self._run({t.name: (t.nodes, self.case.rail_of(t)) for t in tests})
        return [self._relative(t, results[t.name], tests, results) for t in tests]

    def _relative(
        self, test: Test, found: GroupResult, tests: Sequence[Test], results: Mapping[str, GroupResult]
    ) -> Measurement:
        if found.busbw_gbps is None:
            return Measurement(test.name, None, found.reason, excused=found.excused)
        if self.case.fails:
            # Asked is whether a group runs, not how fast: one that does is sound.
            return Measurement(test.name, 1.0)
        expected = self._reference(test)
        if expected is None:
            peers = [results[t.name].busbw_gbps for t in tests if _shape(t) == _shape(test)]
            known = [p for p in peers if p is not None]
            if len(known) < REFERENCES:
                return Measurement(test.name, None, "no sound group of this shape to compare with", excused=True)
            expected = median(known)
        return Measurement(test.name, found.busbw_gbps / expected)

    def _reference(self, test: Test) -> float | None:
        nodes, alone, crosses = _shape(test)
        known = [s for s in self.expected if s[1:] == (alone, crosses) and abs(s[0] - nodes) * _SIZE_SLACK <= nodes]
        return self.expected[min(known, key=lambda s: abs(s[0] - nodes))] if known else None

    def _refer(self, test: Test, alike: Sequence[Test]) -> None:
        """Measure what sound groups of a test's shape reach; nothing is expected where fewer than two give a number."""
        shape = _shape(test)
        self._asked.add(shape)
        groups: list[tuple[tuple[str, ...], int | None]]
        if self.case.rail is not None:
            rails = self.case.sound_rails[:REFERENCES]
            groups = [(alike[i % len(alike)].nodes, r) for i, r in enumerate(rails)]
        else:
            groups = [(g, self.case.rail_of(test)) for g in self._sound_groups(test)]
        kind = f"{shape[0]}{'r' if shape[1] else ''}{'x' if shape[2] else ''}"
        results = self._run({f"ref-{kind}-{i}": group for i, group in enumerate(groups, 1)})
        self.references += len(results)
        known = [r.busbw_gbps for r in results.values() if r.busbw_gbps is not None]
        if len(known) >= 2:
            self.expected[shape] = median(known)

    def _sound_groups(self, test: Test) -> list[tuple[str, ...]]:
        """Return up to three groups of a test's size of nodes that no finding names, as far apart as possible."""
        leaves = leaves_of(self.site, self.case.nodes, self.case.rail)
        good = [n.name for n in self.case.nodes if n.name not in self.case.suspects]
        by_leaf: dict[str, list[str]] = {}
        for n in good:
            by_leaf.setdefault(leaves[n], []).append(n)
        size = len(test.nodes)
        if test.crosses:
            pools = [_interleaved(list(by_leaf.values()))]
        else:
            pools = [p for p in by_leaf.values() if len(p) >= size]
        windows = [w for i in range(REFERENCES) for pool in pools for w in _window(pool, size, i)]
        return list(dict.fromkeys(windows))[:REFERENCES]

    def _run(self, groups: Mapping[str, tuple[tuple[str, ...], int | None]]) -> dict[str, GroupResult]:
        launches = {
            name: self.case.launch(self.site, self.run, name, nodes, rail) for name, (nodes, rail) in groups.items()
        }
        evidence = self.launcher(list(launches.values()))
        out = {}
        for name, launch in launches.items():
            got = evidence.get(launch.name)
            if got is None:
                out[name] = GroupResult(None, "the budget was spent before it", excused=True)
                continue
            self.minutes += max(0.0, (got.ended_at - got.started_at).total_seconds()) / 60
            out[name] = group_result(launch, got, self.site)
        return out


def _shape(test: Test) -> tuple[int, bool, bool]:
    return len(test.nodes), test.rail is not None, test.crosses


def _interleaved(pools: Sequence[Sequence[str]]) -> list[str]:
    longest = max((len(p) for p in pools), default=0)
    return [p[i] for i in range(longest) for p in pools if i < len(p)]


def _window(pool: Sequence[str], size: int, number: int) -> Iterable[tuple[str, ...]]:
    """Yield the ``number``-th of three evenly spaced runs of ``size`` neighbours, if the pool has so many."""
    if len(pool) >= size:
        start = round((len(pool) - size) * number / (REFERENCES - 1))
        yield tuple(pool[start : start + size])


@dataclass(frozen=True)
class Budget:
    """What launches beyond the plan may take in a run; ``parallel`` of them at once, on different nodes."""

    launches: int
    minutes: float
    parallel: int = 1


class Launches:
    """Runs launches through the site's backend, each once in a run, as far as the budget goes.

    The names of all start with ``prefix``: by them a repeated stage reads back what was launched before.
    """

    def __init__(self, rooms: Rooms, run: RunDocument, budget: Budget, prefix: str = "isolate-") -> None:
        self.rooms, self.run, self.budget, self.prefix = rooms, run, budget, prefix
        self.refs: dict[str, StoredEvidence] = {}
        self.minutes = 0.0
        self._backend: Backend | None = None
        self._stored: dict[str, str] | None = None

    def spent(self) -> str:
        """Return which budget of the run is used up, or an empty string."""
        if len(self.refs) >= self.budget.launches:
            return f"the budget of {self.budget.launches} launches is used up"
        if self.minutes >= self.budget.minutes:
            return f"the budget of {self.budget.minutes:g} minutes is used up"
        return ""

    def __call__(self, launches: Sequence[Launch]) -> dict[str, UnitEvidence]:
        """Return the evidence of each launch that was made now or before; what the budget forbids is left out."""
        out: dict[str, UnitEvidence] = {}
        for wave in _waves(launches, self.budget.parallel):
            if self.minutes >= self.budget.minutes:
                break
            allowed = wave[: max(0, self.budget.launches - len(self.refs))]
            before = {launch.name: e for launch in allowed if (e := self._before(launch)) is not None}
            out |= before | self._launch([launch for launch in allowed if launch.name not in before])
        return out

    def _before(self, launch: Launch) -> UnitEvidence | None:
        """Read back the evidence of a launch that was made before this stage was repeated."""
        if self._stored is None:
            self._stored = evidence_store.kept_keys(self.rooms.store, self.run.key, CHECK, self.prefix)
        if launch.name not in self._stored:
            return None
        ref, evidence = evidence_store.read_kept(self.rooms.store, launch.name, self._stored[launch.name])
        self._note(evidence, ref)
        return evidence

    def _launch(self, launches: Sequence[Launch]) -> dict[str, UnitEvidence]:
        if not launches:
            return {}
        from fabric_health.jobs.backend import open_backend, run_all
        from fabric_health.jobs.references import secrets_of

        rooms, by_name = self.rooms, {launch.name: launch for launch in launches}
        self._backend = self._backend or open_backend(rooms.site, self.run.key.run, rooms.connections)
        redactor = Redactor(tuple(s for launch in launches for s in secrets_of(launch.spec, rooms.connections)))
        out: dict[str, UnitEvidence] = {}

        def keep(spec: JobSpec, result: JobResult) -> None:
            evidence = redactor.evidence(launching.evidence_of(by_name[spec.name], CHECK, result))
            self._note(evidence, evidence_store.put_evidence(rooms.store, self.run.key, evidence, redactor))
            out[spec.name] = evidence
            rooms.tell(f"{spec.name} {result.status}")

        specs = [launch.spec for launch in launches]
        run_all(specs, self._backend, keep, parallel=len(launches), tell=rooms.tell)
        return out

    def _note(self, evidence: UnitEvidence, ref: StoredEvidence) -> None:
        self.refs[ref.unit] = ref
        self.minutes += max(0.0, (evidence.ended_at - evidence.started_at).total_seconds()) / 60


def _waves(launches: Sequence[Launch], parallel: int) -> list[list[Launch]]:
    """Return the launches in groups of at most ``parallel`` that share no node, in their order."""
    waves: list[list[Launch]] = []
    for launch in launches:
        for wave in waves:
            if len(wave) < parallel and not any(set(launch.units) & set(other.units) for other in wave):
                wave.append(launch)
                break
        else:
            waves.append([launch])
    return waves


def _save(rooms: Rooms, run: RunDocument, states: Mapping[str, State]) -> None:
    """Keep what was asked and measured so far, for a person; ``State.from_json`` reads a case."""
    body = {"version": 1, "cases": {name: json.loads(state.to_json()) for name, state in states.items()}}
    key = f"runs/site={run.key.site}/week={run.key.week}/{run.key.run}/{PART}.state.json"
    rooms.store.put(key, json.dumps(body, indent=1, sort_keys=True).encode(), "application/json")


def _origin(row: Row) -> str | None:
    """Return the origin of a row where it is not the site's: a lab, too, measures the machine it runs on."""
    return "measured" if isinstance(row, Isolation) and row.engine == "gloo" else None


def _keep(rooms: Rooms, run: RunDocument, told: Told, refs: Mapping[str, StoredEvidence]) -> None:
    """Write evidence's manifest, rows, and last the findings: with them, isolating has finished."""
    if refs:
        evidence_store.write_manifest(rooms.store, run.key, PART, list(refs.values()))
    shows = {f.unit: refs[e].sha256 for f in told.findings if (e := f.evidence_unit) and e in refs}
    rows: list[tuple[Row, str | None]] = [(r, shows.get(r.unit or "")) for r in told.rows]
    landing.land(rooms.store, run.key, PART, rows, (Isolation,), origin_of=_origin)
    write_findings(rooms.store, run, PART, [*told.findings, *told.explained])
