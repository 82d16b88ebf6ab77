"""Settings of the check: every mistake names its key and what was expected."""

from __future__ import annotations

from pathlib import Path

import pytest
from fabric_runs import SITE, load

from fabric_health.checks.fabric_links import FABRIC_LINKS
from fabric_health.checks.fabric_links.settings import fabrics, plan, settings
from fabric_health.errors import SiteError


def test_the_plan_is_expanded(tmp_path: Path) -> None:
    cables = plan(settings(load(tmp_path)).fabrics[0])
    assert len(cables) == 64
    assert (cables[0].one.node, cables[0].one.port) == ("leaf001", 1)
    assert (cables[0].other.node, cables[0].other.port) == ("gpu0001 mlx5_0", 1)
    assert cables[40].other.node == "b8599f0300200040"


def test_a_fabric_is_asked_through_a_node_or_from_here(tmp_path: Path) -> None:
    (here,) = fabrics(load(tmp_path))
    assert (here.name, here.reach.kind) == ("ib0", "local")
    (there,) = fabrics(load(tmp_path, via="gpu-001"))
    assert (there.address, there.reach.connection, there.kind) == ("gpu-001", "all_ssh", "fabric")


def test_commands_carry_wrapper_device_and_port(tmp_path: Path) -> None:
    site = load(tmp_path, more="wrapper: [sudo, -n]\n      ca: mlx5_4\n      port: 2")
    commands = {c.name: c.argv for c in FABRIC_LINKS.commands(fabrics(site)[0], site)}
    assert commands["iblinkinfo"] == ("sudo", "-n", "iblinkinfo", "-C", "mlx5_4", "-P", "2", "--line")
    assert not any("--data" in argv or "--details" in argv for argv in commands.values())


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("speed: HDR", "speed: HRD", "speed"),
        ("width: 4x", "width: 4", "a link width such as 4x"),
        ("via: local", "via: gpu-009", "no node 'gpu-009'"),
        ("name: ib0", "name: gpu-001", "a name of its own"),
        ("name: ib0", "nam: ib0", "checks.fabric_links.fabrics.0.nam"),
        ("cabling: []", "cabling: [{switch: a, ports: 1-2, peers: 'h[1-3]'}]", "expected as many"),
        ("cabling: []", "cabling: [{switch: a, ports: 1-2, peers: h}]", "cabled twice"),
        ("cabling: []", "cabling: [{switch: a, ports: 0-2, peers: 'h[1-3]'}]", "port numbers from 1 to 254"),
        ("cabling: []", "cabling: [{switch: a, ports: '1', peers: h, profile: x}]", "no profile 'x'"),
        ("cabling: []", "cabling: [{switch: a, ports: 'x[', peers: h}]", "cabling.0"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, old: str, new: str, said: str) -> None:
    from fabric_health.site import load_site

    text = SITE.replace("CABLING", "[]").replace("VIA", "local").replace("MORE", "")
    assert old in text
    (tmp_path / "ib.yaml").write_text(text.replace(old, new), encoding="utf-8")
    site = load_site(tmp_path / "ib.yaml")
    with pytest.raises(SiteError, match=r"checks\.fabric_links") as caught:
        fabrics(site)
    assert said in str(caught.value)
