"""The form of a run after maintenance: read into types, checked against the site, controls chosen."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fabric_health
from fabric_health.checks.collectives.settings import settings as collectives
from fabric_health.checks.object_store.settings import settings as object_store
from fabric_health.errors import UsageError
from fabric_health.maintenance import Change, checks_of, choose_controls, declare, resolve, role_of, site_for
from fabric_health.site import Site, load_site

LAB = Path(fabric_health.__file__).parents[1] / "sites" / "lab.yaml"


@pytest.fixture(scope="module")
def site() -> Site:
    return load_site(LAB)


def change(site: Site, touched: str, **form: object) -> Change:
    return resolve(declare({"touched": touched, **form}), site)


def test_touched_nodes_have_all_others_of_a_small_site_as_controls(site: Site) -> None:
    got = change(site, "gpu-[001-004]", kind="driver", ticket="CHG-7")
    assert got.touched == ("gpu-001", "gpu-002", "gpu-003", "gpu-004")
    # The switches in front of them are audited, too: somebody may have changed a line there meanwhile.
    assert got.controls == (*(f"gpu-{i:03}" for i in range(5, 17)), "leaf-1", "leaf-2", "leaf-3", "leaf-4")
    assert (got.kind, got.ticket, got.launches, got.baseline) == ("driver", "CHG-7", None, None)
    assert got.scope == (*got.touched, *got.controls)


def test_a_touched_port_is_its_switch_and_switches_of_its_role_are_audited_beside_it(site: Site) -> None:
    got = change(site, "leaf-2/Ethernet32,leaf-2/Ethernet[0-16/8]")
    assert got.touched == ("leaf-2",)
    assert got.controls[-3:] == ("leaf-1", "leaf-3", "leaf-4")
    assert len(got.controls) == 16 + 3


@pytest.mark.parametrize(
    ("ranges", "touched"),
    [
        ("gpu-[001-007/2]", ["gpu-001", "gpu-003", "gpu-005", "gpu-007"]),
        ("gpu-[001-007/3]/mlx5_[0-1], leaf-2/Ethernet[0,8]", ["gpu-001", "gpu-004", "gpu-007", "leaf-2"]),
        ("gpu-[001-003]/mlx5_0!gpu-002", ["gpu-001", "gpu-003"]),
        ("leaf-2/1/1/1 ,gpu-003", ["gpu-003", "leaf-2"]),
    ],
)
def test_a_part_of_a_unit_hides_no_other_unit_and_a_step_is_no_part(
    site: Site, ranges: str, touched: list[str]
) -> None:
    assert list(change(site, ranges).touched) == touched


def test_on_a_large_site_controls_are_twice_as_many_taken_evenly_over_racks(site: Site) -> None:
    nodes = tuple(dataclasses.replace(site.nodes[0], name=f"n{i:04}", rack=f"r{i % 10}") for i in range(1000))
    large = dataclasses.replace(site, nodes=nodes, _by_name={})
    controls = choose_controls(large, nodes[:10])
    assert len(controls) == 20
    assert {c.rack for c in controls} == {f"r{i}" for i in range(10)}
    assert not {c.name for c in controls} & {n.name for n in nodes[:10]}


@pytest.mark.parametrize(
    ("form", "message"),
    [
        ({}, "touched: needed: which units were touched"),
        ({"touched": "gpu-0[001"}, "touched: range .* missing bracket"),
        ({"touched": "@all:nodes"}, "groups .@name. are not known here"),
        ({"touched": "gpu-017"}, "no unit 'gpu-017'; nearest: gpu-01"),
        ({"touched": "gpu-001/mlx5_0 gpu-002"}, "no unit 'gpu-001 gpu-002'"),
        ({"touched": "gpu-001/mlx5_0\ngpu-002"}, "no unit 'gpu-001.*gpu-002'"),
        ({"touched": "gpu-001", "kind": "magic"}, "kind: Input should be 'driver'"),
        ({"touched": "gpu-001", "launches": 0}, "launches: .*greater than or equal to 1"),
        ({"touched": "gpu-001", "unit": "x"}, "unit: no such field; known: touched, kind"),
        ({"touched": "gpu-001", "controls": "gpu-[001-003]"}, "controls: gpu-001 was touched"),
        ({"touched": "gpu-001", "controls": "gpu-0x1"}, "controls: .* no unit 'gpu-0x1'"),
        ({"touched": "gpu-001", "checks": ["nccl"]}, "no check is called 'nccl'"),
    ],
)
def test_a_mistake_in_the_form_is_named_with_what_was_expected(
    site: Site, form: dict[str, object], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        resolve(declare(form), site), checks_of(declare(form))


@given(st.dictionaries(st.sampled_from(["touched", "kind", "controls", "baseline", "ticket", "launches"]), st.text()))
def test_no_form_does_anything_but_pass_or_be_refused(form: dict[str, str]) -> None:
    site = load_site(LAB) if not _CACHE else _CACHE[0]
    _CACHE[:] = [site]
    try:
        got = resolve(declare(form), site)
    except UsageError:
        return
    assert got.touched
    assert not set(got.touched) & set(got.controls)


_CACHE: list[Site] = []


def test_checks_are_all_or_those_asked_for_with_audits_first() -> None:
    assert checks_of(declare({"touched": "x", "checks": ["nccl_benchmark", "driver_firmware"]})) == (
        "driver_firmware",
        "collectives",
    )
    assert len(checks_of(declare({"touched": "x"}))) >= 5


def test_asked_launches_count_for_every_benchmark_of_the_run(site: Site) -> None:
    more = site_for(site, change(site, "gpu-001", launches=7))
    assert more.checks["collectives"]["launches"] == more.checks["object_store"]["launches"] == 7
    assert more.checks["collectives"]["engines"] == site.checks["collectives"]["engines"]
    assert site_for(site, change(site, "gpu-001")) is site_for(site, None) is site


def test_asked_launches_count_also_where_the_site_file_says_nothing_of_benchmarks(site: Site) -> None:
    silent = dataclasses.replace(site, checks={})
    more = site_for(silent, change(silent, "gpu-001", launches=7))
    assert collectives(more).launches == object_store(more).launches == 7
    assert collectives(silent).launches == object_store(silent).launches == 3


@pytest.mark.parametrize(
    ("touched", "unit", "kind", "role"),
    [
        ("gpu-[001-004]", "gpu-002", "node", "touched"),
        ("gpu-[001-004]", "gpu-005", "node", "control"),
        ("gpu-[001-004]", "gpu-004>gpu-009/mlx5_0", "link", "touched"),
        ("gpu-[001-004]", "gpu-008>gpu-009/mlx5_0", "link", "control"),
        ("gpu-[001-004]", "rail-3", "rail", "touched"),
        ("leaf-2", "rail-2", "rail", "touched"),
        ("leaf-2", "rail-0", "rail", "control"),
        ("leaf-2", "gpu-001", "node", "control"),
        ("leaf-[1-4]", "gpu-001", "node", "touched"),
        ("gpu-001", "lab_fleet", "benchmark", "touched"),
        ("gpu-001", "fleet", "fleet", "touched"),
        ("gpu-001", "r1", "rack", "touched"),
        ("gpu-001", "r2", "rack", "control"),
        ("leaf-[1-4]", "r2", "rack", "touched"),
        ("gpu-001", "h100-8x400-roce", "sku", "touched"),
        ("leaf-1", "h100-8x400-roce", "sku", "control"),
        ("gpu-001", "leaf-2", "leaf", "touched"),
        ("leaf-2", "leaf-2", "leaf", "touched"),
        ("leaf-2", "leaf-1", "leaf", "control"),
        ("leaf-2", "leaf-1+leaf-2", "leaf", "touched"),
    ],
)
def test_who_was_touched_follows_the_cabling(site: Site, touched: str, unit: str, kind: str, role: str) -> None:
    assert role_of(unit, kind, change(site, touched), site) == role


def test_a_unit_outside_the_run_is_neither(site: Site) -> None:
    held = change(site, "gpu-001", controls="gpu-002")
    assert role_of("gpu-016", "node", held, site) is None
    assert role_of("r2", "rack", held, site) is None
