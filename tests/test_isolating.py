"""The stage isolate on the fleet model: the launches are those of the stage, the lab's program answers in process."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

import fabric_health
from fabric_health import isolated, isolating
from fabric_health.checks import registry
from fabric_health.checks.check import Context, Launch, RowSet
from fabric_health.checks.collectives.group_test import group_result, group_spec
from fabric_health.checks.collectives.settings import settings
from fabric_health.datasets.tables import Finding, FindingKind
from fabric_health.evidence import StoredEvidence, UnitEvidence
from fabric_health.isolation_cases import cases_of, merged
from fabric_health.jobs.spec import JobResult, JobStatus
from fabric_health.lab.fleet import all_reduce_perf
from fabric_health.lab.state import Fault, LabState
from fabric_health.launching import Plan, evidence_of
from fabric_health.site import Site, load_site

RUN = "weekly-20261130T030000-0a1b2c3d"
SITE = Path(fabric_health.__file__).parents[1] / "sites" / "lab.yaml"
CHECK = registry.check("collectives")
START = datetime(2026, 11, 30, 3, tzinfo=UTC)


class Lab:
    """A launcher whose jobs the lab's program plays with ``faults``, within a budget of launches."""

    def __init__(self, site: Site, faults: Iterable[Fault] = (), budget: int = 1000) -> None:
        self.site, self.budget = site, budget
        self.state = LabState(up_since=START, faults=tuple(faults))
        self.made: list[str] = []
        self.answers: dict[str, JobResult] = {}

    def spent(self) -> str:
        return "the budget is used up" if len(self.made) >= self.budget else ""

    def __call__(self, launches: Sequence[Launch]) -> dict[str, UnitEvidence]:
        out = {}
        for launch in launches:
            if not self.spent():
                self.made.append(launch.name)
                out[launch.name] = self.evidence(launch)
        return out

    def evidence(self, launch: Launch) -> UnitEvidence:
        spec, stdout, stderr = launch.spec, [], []
        with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
            patch.setattr(all_reduce_perf, "_lab", lambda *_: (self.site, self.state))
            hosts = ",".join(spec.nodes)
            argv = [w.replace("{hosts}", hosts).replace("{artefacts}", folder) for w in spec.argv[3:]]
            code = all_reduce_perf.run(argv, spec.env, stdout.append, stderr.append)
            files = {p.name: p.read_bytes() for p in Path(folder).iterdir()}
        result = JobResult(
            launch.name,
            JobStatus.EXITED,
            code,
            "".join(stdout),
            "".join(stderr),
            START,
            START + timedelta(seconds=30),
            artefacts=files,
        )
        return evidence_of(launch, "collectives", result)


@pytest.fixture(scope="module")
def site() -> Site:
    """The lab's site with the fleet's engine alone, one launch for nodes and one for rails."""
    found = load_site(SITE)
    nccl = {**found.checks["collectives"]["nccl"], "iterations": 20, "groups": ["node", "rail"]}
    checks = {**found.checks, "collectives": {"engines": ["lab_fleet"], "launches": 1, "nccl": nccl}}
    return dataclasses.replace(found, checks=checks)


def fault(kind: str, unit: str, value: str | None) -> Fault:
    return Fault(kind, unit, value, START)


def judged(site: Site, plan: Plan, lab: Lab) -> list[Finding]:
    """Make the run's own launches and judge them, as the stages before do."""
    rows, reach = [], {}
    for launch in plan.launches:
        evidence = lab.evidence(launch)
        reach[launch.name] = StoredEvidence(launch.name, "k", "0" * 64, evidence.status)
        rows += CHECK.parse(launch, evidence, site)
    return CHECK.judge(RowSet.gather(rows), Context(site, RUN, START, plan.launches, reach))


@dataclasses.dataclass
class Found:
    lab: Lab
    slow: list[Finding]
    told: isolated.Told
    outcomes: list[isolated.Outcome]


def isolate(site: Site, *faults: Fault, run: str = RUN, budget: int = 1000) -> Found:
    """Judge a run with ``faults`` and isolate what it finds."""
    lab = Lab(site, faults, budget)
    plan = Plan(CHECK.launches(site, site.nodes, run))
    slow = judged(site, plan, lab)
    outcomes = [isolating.look_into(c, site, run, lab, lambda _: None) for c in cases_of(slow, plan, site)]
    return Found(lab, slow, isolated.tell(outcomes, site), outcomes)


def test_a_slow_rail_of_one_node_is_named(site: Site) -> None:
    found = isolate(site, fault("slow-rail", "gpu-003/mlx5_2", "20"))
    assert [f.unit for f in found.slow if f.severity != "info"] == ["rail-2"]
    (told,) = found.told.findings
    assert (told.unit, told.unit_kind, told.severity, told.kind) == ("gpu-003/mlx5_2", "nic", "critical", "deviation")
    (row,) = found.told.rows
    assert (row.case, row.outcome, row.unit, row.rail, row.extent) == ("rail-2", "blamed", told.unit, 2, "rail")
    assert row.loss is not None
    assert abs(row.loss - 0.20) < 0.04
    assert row.loss_low <= row.loss <= row.loss_high
    assert len((row.partners or "").split(",")) >= 2
    assert row.tests + row.references == len(found.lab.made) <= 30
    assert "leaf-2/Ethernet16" in (told.action or "")  # the port at the other end of the cable
    assert told.evidence_unit in found.lab.made
    (explained,) = found.told.explained
    assert (explained.unit, explained.explained_by) == ("rail-2", told.finding)


def test_a_slow_node_is_named_with_all_its_rails(site: Site) -> None:
    found = isolate(site, fault("slow-node", "gpu-005", "15"))
    (told,) = found.told.findings
    assert (told.unit, told.unit_kind, told.severity) == ("gpu-005", "node", "critical")
    (row,) = found.told.rows
    assert (row.extent, row.rail) == ("whole", None)
    assert row.loss is not None
    assert abs(row.loss - 0.15) < 0.04
    assert [(f.unit, f.explained_by) for f in found.told.explained] == [("gpu-005", told.finding)]


def test_rails_that_are_slow_everywhere_name_the_switch_that_carries_them(site: Site) -> None:
    found = isolate(site, fault("bad-leaf", "leaf-3", "15"))
    (told,) = found.told.findings
    assert (told.unit, told.unit_kind, told.severity) == ("leaf-3", "switch", "critical")
    assert [(r.case, r.unit, r.rail) for r in found.told.rows] == [("rail-4", "leaf-3", 4), ("rail-5", "leaf-3", 5)]
    assert {(f.unit, f.explained_by) for f in found.told.explained} == {
        ("rail-4", told.finding),
        ("rail-5", told.finding),
    }


def test_one_of_the_rails_of_a_switch_is_no_fault_of_the_switch(site: Site) -> None:
    faults = [fault("slow-rail", f"gpu-{n:03}/mlx5_4", "15") for n in range(1, 17)]
    found = isolate(site, *faults)
    (told,) = found.told.findings
    assert (told.unit, told.unit_kind) == ("rail-4", "rail")
    assert "leaf-3 (also rail 5)" in told.summary


def test_a_healthy_run_costs_nothing(site: Site) -> None:
    found = isolate(site)
    assert found.lab.made == []
    assert (found.told.findings, found.told.rows) == ((), ())


def test_two_slow_nics_on_one_rail_are_both_named(site: Site) -> None:
    faults = [fault("slow-rail", "gpu-003/mlx5_2", "25"), fault("slow-rail", "gpu-010/mlx5_2", "15")]
    found = isolate(site, *faults)
    assert [f.unit for f in found.told.findings] == ["gpu-003/mlx5_2", "gpu-010/mlx5_2"]  # the larger loss first
    assert [f.explained_by for f in found.told.explained] == [found.told.findings[0].finding]


def slow_finding(site: Site, plan: Plan, unit: str, kind: str) -> Finding:
    """A finding of a run in which ``unit`` was slow by chance."""
    lab = Lab(site, [fault("slow-rail", "gpu-003/mlx5_2", "20")])
    own = next(f for f in judged(site, plan, lab) if f.unit == "rail-2")
    return dataclasses.replace(own, unit=unit, unit_kind=kind, rule=f"{kind}_as_fast_as_peers", finding="0" * 16)


@pytest.mark.parametrize(("unit", "kind", "severity"), [("rail-2", "rail", "warning"), ("gpu-005", "node", "info")])
def test_what_was_slow_once_and_is_not_again_blames_nobody(site: Site, unit: str, kind: str, severity: str) -> None:
    plan = Plan(CHECK.launches(site, site.nodes, RUN))
    (case,) = cases_of([slow_finding(site, plan, unit, kind)], plan, site)
    told = isolated.tell([isolating.look_into(case, site, RUN, Lab(site), lambda _: None)], site)
    (finding,) = told.findings
    assert (finding.kind, finding.severity, finding.unit) == (FindingKind.NOT_JUDGED, severity, unit)
    assert [(r.outcome, r.unit) for r in told.rows] == [("nothing", None)]
    assert told.explained == ()


@pytest.mark.parametrize("budget", [0, 2, 7, 11])
def test_a_spent_budget_blames_nobody_and_says_so(site: Site, budget: int) -> None:
    found = isolate(site, fault("slow-rail", "gpu-003/mlx5_2", "20"), budget=budget)
    assert len(found.lab.made) == budget
    assert all(f.kind == FindingKind.NOT_JUDGED for f in found.told.findings)
    assert "the budget is used up" in found.told.findings[0].summary
    assert found.told.rows[0].outcome == "undecided"
    assert found.told.explained == ()


def test_a_node_that_does_not_start_is_named_by_the_groups_it_breaks(site: Site) -> None:
    plan = Plan(CHECK.launches(site, site.nodes, RUN))
    (case,) = cases_of([slow_finding(site, plan, "gpu-009", "node")], plan, site)
    lab = Lab(site, [fault("node-unreachable", "gpu-009", None)])
    told = isolated.tell([isolating.look_into(case, site, RUN, lab, lambda _: None)], site)
    assert [f.unit for f in told.findings] == ["gpu-009"]
    assert "gives no number with any partner" in told.findings[0].summary


def test_nothing_that_runs_is_no_fault_of_any_node(site: Site) -> None:
    """Without a single reference no group is slow or broken relative to anything: the trouble is that of all."""
    plan = Plan(CHECK.launches(site, site.nodes, RUN))
    (case,) = cases_of([slow_finding(site, plan, "rail-2", "rail")], plan, site)

    class Broken(Lab):
        def evidence(self, launch: Launch) -> UnitEvidence:
            good = super().evidence(launch)
            return dataclasses.replace(good, results=tuple(dataclasses.replace(r, exit_code=1) for r in good.results))

    told = isolated.tell([isolating.look_into(case, site, RUN, Broken(site), lambda _: None)], site)
    assert [f.kind for f in told.findings] == [FindingKind.NOT_JUDGED]


def test_a_test_runs_rings_on_all_rails_or_on_one_gpu_and_its_nic(site: Site) -> None:
    nccl = settings(site).nccl
    pair = site.nodes[:2]
    whole = group_spec(nccl, "isolate-x", pair, None)
    assert whole.env["NCCL_ALGO"] == "Ring"
    assert (whole.ranks_per_node, whole.nodes) == (8, ("gpu-001", "gpu-002"))
    one = group_spec(nccl, "isolate-x", pair, 5)
    assert (one.env["NCCL_TESTS_DEVICE"], one.env["NCCL_IB_HCA"]) == ("5", "=mlx5_5")
    assert one.ranks_per_node == 1
    assert one.resources.gpu == 8  # the device is chosen by its number among all of the node
    assert one.argv[one.argv.index("-np") + 1] == "2"
    assert "NCCL_TESTS_DEVICE" in one.argv
    with pytest.raises(ValueError, match="rail 9"):
        group_spec(nccl, "isolate-x", pair, 9)


@pytest.mark.parametrize(
    ("status", "excused"),
    [(JobStatus.NOT_STARTED, True), (JobStatus.CANCELLED, True), (JobStatus.LOST, True), (JobStatus.TIMEOUT, False)],
)
def test_a_job_that_did_not_run_says_nothing_about_its_nodes_and_a_hang_does(
    site: Site, status: JobStatus, excused: bool
) -> None:
    launch = Launch("isolate-x", group_spec(settings(site).nccl, "isolate-x", site.nodes[:2], None, lab=RUN), ())
    result = JobResult("isolate-x", status, None, "", "", START, START, "quota")
    found = group_result(launch, evidence_of(launch, "collectives", result), site)
    assert (found.busbw_gbps, found.excused) == (None, excused)


def test_wrong_values_and_other_hosts_give_no_number(site: Site) -> None:
    lab = Lab(site)
    launch = Launch("isolate-x", group_spec(settings(site).nccl, "isolate-x", site.nodes[:2], None, lab=RUN), ())
    elsewhere = Launch("isolate-x", group_spec(settings(site).nccl, "isolate-x", site.nodes[2:4], None, lab=RUN), ())
    assert group_result(launch, lab.evidence(launch), site).busbw_gbps
    moved = group_result(launch, lab.evidence(elsewhere), site)
    assert (moved.busbw_gbps, moved.excused) == (None, True)
    assert "hosts_as_asked" in moved.reason


def test_isolating_that_is_due_and_not_there_is_a_finding(site: Site) -> None:
    plan = Plan(CHECK.launches(site, site.nodes, RUN))
    slow = slow_finding(site, plan, "rail-2", "rail")
    case = cases_of([slow], plan, site)
    assert [f.kind for f in merged([slow], None, case)] == [FindingKind.DEVIATION, FindingKind.NOT_JUDGED]
    assert merged([slow], None, []) == [slow]
    assert merged([slow], [], case) == [slow]
    found = isolate(site, fault("slow-rail", "gpu-003/mlx5_2", "20"))
    both = merged(found.slow, [*found.told.findings, *found.told.explained], [])
    assert len(both) == len(found.slow) + 1
    assert {f.unit: f.explained_by for f in both if f.unit == "rail-2"} == {"rail-2": found.told.findings[0].finding}


def test_only_findings_of_engines_that_test_groups_start_a_case(site: Site) -> None:
    plan = Plan(CHECK.launches(site, site.nodes, RUN))
    slow = slow_finding(site, plan, "rail-2", "rail")
    assert [c.name for c in cases_of([slow], plan, site)] == ["rail-2"]
    for other in (
        dataclasses.replace(slow, evidence_unit="gloo-1"),
        dataclasses.replace(slow, severity="info"),
        dataclasses.replace(slow, kind=FindingKind.NOT_JUDGED),
        dataclasses.replace(slow, rule="busbw_floor"),
    ):
        assert cases_of([other], plan, site) == []


class Failing(Lab):
    """A lab in which launches of certain nodes do not end well: how, or None for those that run."""

    def __init__(self, site: Site, how: Callable[[frozenset[str]], JobStatus | int | None]) -> None:
        super().__init__(site)
        self.how = how

    def evidence(self, launch: Launch) -> UnitEvidence:
        how = self.how(frozenset(launch.spec.nodes))
        if how is None:
            return super().evidence(launch)
        status, code = (how, None) if isinstance(how, JobStatus) else (JobStatus.EXITED, how)
        error = "" if code is None else "gpu-007: Test NCCL failure: unhandled system error\n"
        end = START + timedelta(seconds=30)
        return evidence_of(
            launch, "collectives", JobResult(launch.name, status, code, "", error, START, end, "it failed")
        )


def all_nodes_together(site: Site, **nccl: object) -> Site:
    """The site with benchmarks of all nodes together as well, each launched twice."""
    own = site.checks["collectives"]
    more = {**own["nccl"], "groups": ["all", "node"], "collectives": ["all_reduce", "alltoall"], **nccl}
    return dataclasses.replace(site, checks={"collectives": {**own, "launches": 2, "nccl": more}})


def isolate_failing(site: Site, lab: Lab) -> Found:
    plan = Plan(CHECK.launches(site, site.nodes, RUN))
    slow = judged(site, plan, lab)
    outcomes = [isolating.look_into(c, site, RUN, lab, lambda _: None) for c in cases_of(slow, plan, site)]
    return Found(lab, slow, isolated.tell(outcomes, site), outcomes)


@pytest.mark.parametrize("how", [255, 2, JobStatus.TIMEOUT])
def test_the_node_that_makes_every_launch_fail_is_named(site: Site, how: JobStatus | int) -> None:
    wide = all_nodes_together(site)
    lab = Failing(wide, lambda nodes: how if "gpu-007" in nodes else None)
    found = isolate_failing(wide, lab)
    told = [f for f in found.slow if f.rule == "benchmark_runs"]
    assert [f.metric for f in told] == [f"{m}.16_nodes" for m in ("all_reduce.all", "all_reduce.node", "alltoall.all")]
    assert {(f.severity, f.kind, f.unit_kind) for f in told} == {("critical", FindingKind.DEVIATION, "benchmark")}
    (named,) = found.told.findings
    assert (named.unit, named.unit_kind, named.severity, named.kind) == ("gpu-007", "node", "critical", "deviation")
    assert "gives no number with any partner" in named.summary
    assert "It broke groups with" in named.summary
    (row,) = found.told.rows
    assert (row.case, row.outcome, row.unit, row.extent, row.references) == ("failing", "blamed", "gpu-007", "whole", 0)
    assert row.tests == len(lab.made) <= 20
    explained = {f.rule for f in found.told.explained if f.explained_by == named.finding}
    assert {"benchmark_runs", "launches_complete"} <= explained


def test_two_nodes_that_fail_are_both_named(site: Site) -> None:
    wide = all_nodes_together(site)
    found = isolate_failing(wide, Failing(wide, lambda nodes: 1 if nodes & {"gpu-002", "gpu-013"} else None))
    assert sorted(f.unit for f in found.told.findings) == ["gpu-002", "gpu-013"]


@pytest.mark.parametrize("most", [0, 1, 8])
def test_what_fails_without_a_node_that_does_is_no_fault_of_a_node(site: Site, most: int) -> None:
    """Nothing runs at all, or all that is larger than a few nodes fails: blaming one would be a guess."""
    wide = all_nodes_together(site)
    found = isolate_failing(wide, Failing(wide, lambda nodes: 1 if len(nodes) > most else None))
    assert {f.rule for f in found.slow} >= {"benchmark_runs"}
    assert [f.kind for f in found.told.findings] == [FindingKind.NOT_JUDGED]
    assert found.told.rows[0].unit is None
    said = "every group runs by itself" if most == 8 else "no group of them runs"
    assert said in found.told.findings[0].summary
    assert found.told.explained == ()
    assert len(found.lab.made) <= 60


def test_failures_that_say_nothing_of_a_node_start_no_case(site: Site) -> None:
    wide = all_nodes_together(site)
    assert isolate_failing(wide, Failing(wide, lambda _: JobStatus.NOT_STARTED)).outcomes == []
    assert isolate_failing(wide, Failing(wide, lambda _: JobStatus.LOST)).outcomes == []
    sound = Lab(wide)
    assert isolate_failing(wide, sound).outcomes == []
    once = Failing(wide, lambda nodes: 1)
    first = CHECK.launches(wide, wide.nodes, RUN)[0].name
    once.evidence = lambda launch: (Failing if launch.name == first else Lab).evidence(once, launch)  # type: ignore[method-assign]
    assert isolate_failing(wide, once).outcomes == []  # the others of its benchmark ran


def test_a_failing_collective_is_isolated_only_where_all_reduce_would_show_it(site: Site) -> None:
    wide = all_nodes_together(site)
    plan = Plan(CHECK.launches(wide, wide.nodes, RUN))
    failing = [f for f in judged(wide, plan, Failing(wide, lambda _: 1)) if f.rule == "benchmark_runs"]
    by_metric = {f.metric.split(".16")[0]: f for f in failing}
    assert [c.name for c in cases_of(failing, plan, wide)] == ["failing"]
    assert cases_of([by_metric["alltoall.all"]], plan, wide) == []
    assert cases_of([by_metric["all_reduce.node"]], plan, wide) == []
    assert len(cases_of([by_metric["all_reduce.all"]], plan, wide)) == 1


def test_a_group_that_may_hang_is_not_waited_for_as_long_as_a_benchmark(site: Site) -> None:
    wide = all_nodes_together(site, time_limit_s=900)
    plan = Plan(CHECK.launches(wide, wide.nodes, RUN))
    (case,) = cases_of(judged(wide, plan, Failing(wide, lambda _: 1)), plan, wide)
    assert case.launch(wide, RUN, "t", ["gpu-001", "gpu-002"], None).spec.time_limit_s == 180
    slow = dataclasses.replace(case, fails=False)
    assert slow.launch(wide, RUN, "t", ["gpu-001", "gpu-002"], None).spec.time_limit_s == 900


@pytest.mark.parametrize("seed", range(5))
def test_over_runs_the_right_nic_is_named_and_no_other_unit(site: Site, seed: int) -> None:
    found = isolate(site, fault("slow-rail", "gpu-011/mlx5_6", "15"), run=f"weekly-{seed}")
    assert [f.unit for f in found.told.findings if f.kind == FindingKind.DEVIATION] == ["gpu-011/mlx5_6"]
