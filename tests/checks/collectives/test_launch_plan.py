"""What a run launches: from settings, in a seeded order, and read back from the command line as it was asked."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fabric_health.checks.check import Launch
from fabric_health.checks.collectives.asked import asked
from fabric_health.checks.collectives.launches import launches
from fabric_health.checks.collectives.settings import NcclSettings, settings
from fabric_health.errors import SiteError
from fabric_health.jobs.spec import JobSpec
from fabric_health.site import Site

MakeSite = Callable[..., Site]


def checks(text: str) -> str:
    return f"checks: {{collectives: {{{text}}}}}\n"


def test_embedded_default_is_three_sweeps_of_gloo(make_site: MakeSite) -> None:
    site = make_site()
    plan = launches(site, site.nodes, "r1")
    assert sorted(x.name for x in plan) == ["gloo-1", "gloo-2", "gloo-3"]
    assert {x.units for x in plan} == {("localhost",)}
    want = asked(plan[0])
    assert (want.engine, want.ranks, want.nodes, want.workload) == ("gloo", 2, (), "sweep")
    assert want.sizes == settings(site).gloo.sizes


def test_fleet_is_measured_whole_per_node_and_per_rail(fleet: Site) -> None:
    plan = launches(fleet, fleet.nodes, "r1")
    assert len(plan) == 3 * (6 + 1 + 1)
    assert len({x.name for x in plan}) == len(plan)
    launch = next(x for x in plan if x.name == "nccl-all-reduce-rail-2")
    assert launch.spec.env["NCCL_TESTS_SPLIT"] == "MOD 8"
    assert launch.spec.env["NCCL_DEBUG"] == "INFO"
    argv = launch.spec.argv
    assert argv[argv.index("-np") + 1] == "64"
    assert "ppr:8:node:OVERSUBSCRIBE" in argv
    assert [argv[i + 1] for i, w in enumerate(argv) if w == "-x"] == sorted(launch.spec.env)
    assert argv[argv.index("/opt/nccl-tests/bin/all_reduce_perf") :][-2:] == ("-J", "{artefacts}/nccl-tests.json")
    want = asked(launch)
    assert (want.grouping, want.ranks, want.timing, want.checked) == ("rail", 64, "max", True)
    assert want.sizes[0] == 8 << 20
    assert want.sizes[-1] == 8 << 30
    assert (launch.spec.resources.gpu, launch.spec.resources.rdma) == (8, 1)


def test_order_follows_the_run_and_nothing_else(fleet: Site) -> None:
    names = [[x.name for x in launches(fleet, fleet.nodes, run)] for run in ("r1", "r1", "r2")]
    assert names[0] == names[1]
    assert names[0] != names[2]
    assert sorted(names[0]) == sorted(names[2])


def test_one_node_is_measured_once_and_none_not_at_all(fleet: Site) -> None:
    assert {asked(x).grouping for x in launches(fleet, fleet.nodes[:1], "r")} == {"all"}
    assert launches(fleet, (), "r") == ()


def test_lab_runs_its_own_program_with_the_same_options(make_site: MakeSite) -> None:
    site = make_site(checks("engines: [lab_fleet], launches: 1, nccl: {groups: [node], max_bytes: 33554432}"))
    (launch,) = launches(site, site.nodes, "r")
    assert launch.spec.argv[:6] == (
        "{python}", "-m", "fabric_health.lab.fleet.all_reduce_perf", "all_reduce", "--hosts", "{hosts}",
    )  # fmt: skip
    assert launch.spec.tool == "self"
    assert (asked(launch).engine, asked(launch).grouping) == ("lab_fleet", "node")


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("engine: gloo", "engine"),
        ("launches: 0", "launches"),
        ("gloo: {min_bytes: 100, max_bytes: 10}", "gloo"),
        ("gloo: {program: 'x; rm'}", "gloo.program"),
        ("floors: [{sku: a, busbw_gbps: 3}]", "floors.0.source"),
        ("nccl: {collectives: [all_shuffle]}", "nccl.collectives.0"),
        ("nccl: {mpirun: [mpirun, --tag-output]}", "nccl.mpirun"),
        ("nccl: {mpirun: [prterun, --output, tag]}", "nccl.mpirun"),
    ],
)
def test_settings_at_fault_are_named(make_site: MakeSite, text: str, key: str) -> None:
    with pytest.raises(SiteError, match=rf"checks\.collectives\.{key}"):
        settings(make_site(checks(text)))


def test_sizes_of_a_sweep() -> None:
    assert NcclSettings(min_bytes=8, max_bytes=100, factor=3).sizes == (8, 24, 72)


def test_foreign_job_is_not_guessed_at() -> None:
    with pytest.raises(ValueError, match="no job of this check"):
        asked(Launch("x", JobSpec("x", "self", ("echo", "hello")), ()))
