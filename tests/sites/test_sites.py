"""The site files that ship: they load, and their names and wiring hang together."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fabric_health.checks import registry
from fabric_health.cli.sites import app
from fabric_health.jobs import settings as jobs
from fabric_health.lab.faults import PLANTED
from fabric_health.site import Site, Switch, load_site

SITES = Path(__file__).parents[2] / "include" / "sites"


@pytest.fixture(scope="module")
def lab() -> Site:
    return load_site(SITES / "lab.yaml")


@pytest.mark.parametrize("name", ["lab", "example"])
def test_a_shipped_site_file_loads(name: str) -> None:
    site = load_site(SITES / f"{name}.yaml")
    assert site.name == name
    assert site.origin == ("lab" if name == "lab" else "measured")


def test_the_template_shows_every_check_that_has_settings_and_each_can_be_launched() -> None:
    site = load_site(SITES / "example.yaml")
    said = CliRunner().invoke(app, ["validate", str(site.path)])
    assert said.exit_code == 0, said.output
    benchmarks = [e.name for e in registry.ENTRIES if e.is_benchmark]
    assert set(site.checks) == {"fabric_links", *benchmarks}
    images = jobs.settings(site).in_cluster.images
    for name in benchmarks:
        plan = registry.check(name).launches
        assert plan is not None
        launches = plan(site, tuple(site.nodes), "a-run")
        assert launches, name
        assert {launch.spec.tool for launch in launches} <= set(images)


def test_lab_has_the_size_it_says(lab: Site) -> None:
    assert len(lab.nodes) == 16
    assert Counter(n.rack for n in lab.nodes) == {"r1": 8, "r2": 8}
    assert {s.platform for s in lab.switches} == {"cumulus", "sonic", "eos", "nxos", "onyx"}
    addresses = [u.address for u in lab.select(None)]
    assert len(set(addresses)) == len(addresses)
    assert all(a.startswith("127.10.") for a in addresses)


def test_every_nic_of_the_lab_has_one_cable_and_each_leaf_carries_two_rails(lab: Site) -> None:
    for node in lab.nodes:
        for nic in node.sku.nics:
            cable = lab.cable_of_nic(node.name, nic.name)
            assert cable is not None
            assert cable.rail == nic.rail
            assert cable.switch == f"leaf-{nic.rail // 2 + 1}"
    assert len(lab.cables) == 16 * 8 + 4 * 4


def test_every_leaf_has_two_cables_to_each_spine(lab: Site) -> None:
    pairs = Counter((c.switch, c.peer) for c in lab.cables if c.peer_kind == "switch")
    assert pairs == {(f"leaf-{i}", f"spine-{j}"): 2 for i in range(1, 5) for j in (1, 2)}


def test_planted_faults_sit_on_units_of_the_lab(lab: Site) -> None:
    for kind, unit, _ in PLANTED:
        name, _, part = unit.partition("/")
        owner = lab.unit(name)
        if isinstance(owner, Switch):
            assert kind.startswith(("switch-", "port-"))
            cable = next(c for c in lab.cables_of(name) if c.port == part)
            assert cable.peer_kind == "node"
        else:
            assert part in {n.name for n in owner.sku.nics}


def test_golden_configs_are_what_the_lab_renders(lab: Site, tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "fabric_health.lab.switches", str(SITES / "lab.yaml"), str(tmp_path)],
        check=True,
        env={"PYTHONPATH": str(SITES.parent)},
        capture_output=True,
        timeout=60,
    )
    written = {p.name: p.read_text() for p in tmp_path.iterdir()}
    assert written == {p.name: p.read_text() for p in (SITES / "golden").iterdir()}


def test_the_command_that_writes_golden_configs_says_what_it_expects(capsys: pytest.CaptureFixture[str]) -> None:
    from fabric_health.lab.switches.__main__ import main

    assert main([]) == 2
    assert "SITE_FILE DIRECTORY" in capsys.readouterr().err
    assert main([str(SITES / "absent.yaml"), "out"]) == 2
    assert "absent.yaml" in capsys.readouterr().err
