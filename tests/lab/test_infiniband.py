"""The lab's InfiniBand fabric: real tools on a simulated fabric, asked over real SSH, with and without faults.

Needs the system packages ibsim-utils, infiniband-diags and opensm; without them these tests fail.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from fabric_health import connections
from fabric_health.checks.check import Context, RowSet
from fabric_health.checks.fabric_links import FABRIC_LINKS
from fabric_health.checks.fabric_links.settings import fabrics
from fabric_health.checks.fabric_links.tables import FabricNode, FabricPort
from fabric_health.datasets.tables import Finding
from fabric_health.errors import LabError, UsageError
from fabric_health.evidence import ReachStatus, StoredEvidence, UnitEvidence
from fabric_health.lab import infiniband, lab
from fabric_health.lab.infiniband import tools
from fabric_health.lab.infiniband.topology import Port, fat_tree, topology_file
from fabric_health.lab.place import Place
from fabric_health.reach import UnitRequest, collect
from fabric_health.site import Site, load_site

SITE = """
site: ibtiny
title: A lab of one node on an InfiniBand fabric
origin: lab
reach:
  quick: {kind: ssh, connection: lab_ssh, unit_timeout_s: 30, connect_timeout_s: 5}
skus:
  one-nic: {gpu_model: NVIDIA H100 80GB HBM3, gpus: 0, link_layer: InfiniBand, nic_rate_gbps: 200}
nodes:
  - {names: "n[1-2]", sku: one-nic, rack: r1, reach: quick, address: "127.12.SUBNET.[1-2]"}
checks:
  fabric_links:
    fabrics:
    - name: ib0
      via: n1
      hosts: {width: 4x, speed: HDR}
      trunks: {width: 4x, speed: HDR}
"""
AT = datetime(2026, 11, 30, 8, 0, tzinfo=UTC)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    path = tmp_path_factory.mktemp("site") / "ib.yaml"
    path.write_text(SITE.replace("SUBNET", str(os.getpid() % 200)), encoding="utf-8")
    return load_site(path)


@pytest.fixture(scope="module")
def home(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("home")
    info = lab.up(site.path, folder)
    try:
        assert info.no_fabric is None, info.no_fabric
        yield folder
    finally:
        lab.down(folder)


@pytest.fixture
def healthy(home: Path) -> Iterator[Path]:
    yield home
    lab.heal(home)


def ask(site: Site, home: Path) -> UnitEvidence:
    """Ask the fabric as a run does: the site's reach, the lab's keys, the check's commands."""
    entries = json.loads((home / "connections.json").read_text())
    got: list[UnitEvidence] = []
    (fabric,) = fabrics(site)
    request = UnitRequest(fabric, "fabric_links", FABRIC_LINKS.commands(fabric, site), FABRIC_LINKS.at_once)
    collect([request], lambda conn_id: connections.parse(conn_id, "test", entries[conn_id]), got.append)
    return got[0]


def audit(site: Site, home: Path, before: RowSet | None = None) -> tuple[RowSet, list[Finding]]:
    evidence = ask(site, home)
    (fabric,) = fabrics(site)
    parsed = FABRIC_LINKS.parse(fabric, evidence, site)
    context = Context(
        site=site,
        run="r",
        started_at=AT + timedelta(days=1),
        scope=(fabric,),
        reach={"ib0": StoredEvidence("ib0", "k", "0" * 64, evidence.status)},
        previous=before or RowSet(),
        previous_at={"ib0": AT} if before else {},
    )
    rows = RowSet.gather([*parsed, *FABRIC_LINKS.derive(RowSet.gather(parsed), context)])
    return rows, FABRIC_LINKS.judge(rows, context)


def causes(found: list[Finding]) -> list[tuple[str, str]]:
    return sorted({(f.rule, f.unit) for f in found if f.explained_by is None})


def test_a_healthy_fabric_is_asked_over_ssh_and_has_no_finding(site: Site, home: Path) -> None:
    evidence = ask(site, home)
    assert (evidence.status, evidence.unit, evidence.unit_kind) == (ReachStatus.OK, "ib0", "fabric")
    rows, found = audit(site, home)
    assert found == []
    assert len(rows.of(FabricNode)) == 38
    assert all(p.symbol_error == 0 for p in rows.of(FabricPort))


def test_tools_that_overlap_answer_what_they_answer_one_after_the_other(home: Path, tmp_path: Path) -> None:
    env = tools.environment(infiniband.directory(home))
    wrapper = ["env", *(f"{k}={env[k]}" for k in ("IBSIM_SOCKNAME", "LD_PRELOAD"))]
    here = SITE.replace("via: n1", f"wrapper: {json.dumps(wrapper)}").replace("SUBNET", "1")
    (tmp_path / "here.yaml").write_text(here, encoding="utf-8")
    site = load_site(tmp_path / "here.yaml")
    (fabric,) = fabrics(site)
    commands = FABRIC_LINKS.commands(fabric, site)
    assert FABRIC_LINKS.at_once == 2
    got: list[UnitEvidence] = []
    for at_once in (1, FABRIC_LINKS.at_once):
        collect([UnitRequest(fabric, "fabric_links", commands, at_once)], lambda _: pytest.fail("none"), got.append)
    alone, together = got
    assert [r.name for r in together.results] == [c.name for c in commands]
    assert together.status is ReachStatus.OK
    begun = sorted(together.results, key=lambda r: r.started_at)
    assert any(second.started_at < first.ended_at for first, second in pairwise(begun))
    for first, second in zip(alone.results, together.results, strict=True):
        assert (first.exit_code, second.exit_code) == (0, 0)
        # Traffic and time go on meanwhile: all but the counters' values, with their units, is the same.
        masked = [re.sub(r"== [^]]*|generated on .*|\d", "", r.stdout) for r in (first, second)]
        assert masked[0] == masked[1]


@pytest.mark.parametrize(
    ("kind", "unit", "expected"),
    [
        ("ib-link-down", "ib0/leaf002/2", [("link_up", "ib0/leaf002/2")]),
        ("ib-link-down", "leaf001/9", [("link_up", "ib0/leaf001/9")]),
        ("ib-link-width", "ib0/gpu0005", [("link_width", "ib0/leaf001/5")]),
        ("ib-link-speed", "leaf001/9", [("link_speed", "ib0/leaf001/9")]),
        ("ib-drop", "gpu0008", [("neighbour_answers", "ib0/leaf001/8")]),
        ("ib-no-manager", "ib0", [("one_master_manager", "ib0")]),
    ],
)
def test_each_fault_is_found_and_goes_with_healing(
    site: Site, healthy: Path, kind: str, unit: str, expected: list[tuple[str, str]]
) -> None:
    before, _ = audit(site, healthy)
    added = lab.add_fault(healthy, kind, unit)
    info = lab.status(healthy)
    assert info is not None
    assert [(f.kind, f.unit) for f in info.faults] == [(kind, added.unit)]
    assert causes(audit(site, healthy, before)[1]) == expected
    assert lab.heal(healthy, added.unit, kind) == 1
    assert audit(site, healthy, before)[1] == []


def test_errors_since_the_last_run_are_found(site: Site, healthy: Path) -> None:
    before, _ = audit(site, healthy)
    lab.add_fault(healthy, "ib-errors", "ib0/leaf001/3")
    rows, found = audit(site, healthy, before)
    assert causes(found) == [("port_errors", "ib0/leaf001/3"), ("port_flaps", "ib0/leaf001/3")]
    port = next(p for p in rows.of(FabricPort) if (p.node, p.port) == ("leaf001", 3))
    assert (port.symbol_error, port.link_downed) == (5000, 20)


def test_several_faults_stay_through_a_restart(site: Site, healthy: Path) -> None:
    for kind, unit in (("ib-link-down", "leaf003/1"), ("ib-errors", "leaf001/3"), ("ib-link-width", "leaf002/5")):
        infiniband.fault(healthy, kind, unit)
    infiniband.up(healthy, hosts=32)
    (rows, found) = audit(site, healthy)
    assert ("link_width", "ib0/leaf002/5") in causes(found)
    down = [p for p in rows.of(FabricPort) if p.phys_state == "Polling"]
    assert [(p.node, p.port) for p in down] == [("leaf003", 1)]
    assert next(p for p in rows.of(FabricPort) if (p.node, p.port) == ("leaf001", 3)).symbol_error == 5000


@pytest.mark.parametrize(
    ("kind", "target", "said"),
    [
        ("ib-nothing", "leaf001/3", "expected one of: ib-link-down"),
        ("ib-link-down", "leaf001", "needs a port of leaf001"),
        ("ib-link-down", "leaf001/99", "no cable at port 99"),
        ("ib-link-down", 'x"[1]\nQuit', "needs a port such as leaf001/3"),
        ("ib-link-down", "leaf999/1", "needs a port such as leaf001/3"),
    ],
)
def test_a_fault_that_makes_no_sense_is_refused(healthy: Path, kind: str, target: str, said: str) -> None:
    with pytest.raises(UsageError, match=r"InfiniBand fault|fault ib|no cable") as caught:
        infiniband.fault(healthy, kind, target)
    assert said in str(caught.value)


def test_without_the_system_packages_the_lab_says_which(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tools, "_SBIN", ())
    monkeypatch.setenv("PATH", str(tmp_path))
    assert shutil.which("ibsim") is None
    with pytest.raises(LabError, match="apt-get install ibsim-utils infiniband-diags opensm"):
        infiniband.up(tmp_path)
    assert infiniband.answer(tmp_path, ("sminfo",)).exit_code == 127


def test_tools_without_a_fabric_answer_that_there_is_no_device(tmp_path: Path) -> None:
    answer = infiniband.answer(tmp_path, ("ibnetdiscover",))
    assert (answer.exit_code, answer.stdout) == (255, "")


def test_down_stops_everything(tmp_path: Path) -> None:
    infiniband.up(tmp_path)
    assert infiniband.status(tmp_path) is not None
    assert infiniband.down(tmp_path)
    assert infiniband.status(tmp_path) is None
    assert not (Place(tmp_path).root / "infiniband").exists()
    assert not infiniband.down(tmp_path)


@pytest.mark.parametrize(
    ("hosts", "switches", "cables"), [(32, 6, 64), (256, 12, 512), (1024, 48, 2048), (4096, 320, 12288)]
)
def test_sizes_of_the_tree(hosts: int, switches: int, cables: int) -> None:
    tree = fat_tree(hosts)
    assert (len(tree.hosts), len(tree.switches), len(tree.cables)) == (hosts, switches, cables)
    ends: list[Port] = [p for c in tree.cables for p in (c.one, c.other)]
    assert len(set(ends)) == len(ends)
    assert topology_file(tree).count("\nvendid=") == hosts + switches - 1
