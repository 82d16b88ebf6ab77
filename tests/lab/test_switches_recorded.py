"""One line lost on many ports of a switch is one recorded change, however its platform writes a port's name."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from fabric_health.checks.switch_config.drift import drift
from fabric_health.checks.switch_config.tables import SwitchConfig
from fabric_health.site import Switch, load_site
from fabric_health.verdict.recorded import RecordedChange, exact_groups

_SPEC = importlib.util.spec_from_file_location("switch_lab", Path(__file__).with_name("switch_lab.py"))
assert _SPEC is not None
assert _SPEC.loader is not None
play = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(play)
SITE = load_site(play.LAB)


def configs(*faults: tuple[str, str, str | None]) -> dict[str, SwitchConfig]:
    rows = play.parsed(SITE, play.state(*faults), play.NOW)
    return {r.switch: r for r in rows if isinstance(r, SwitchConfig)}


@pytest.mark.parametrize(
    ("switch", "lost"),
    [
        ("leaf-1", "/interface/<port>/link/mtu 9216 -> 1500"),
        ("leaf-2", "/PORT/<port>/mtu 9216 -> 1500"),
        ("leaf-3", "lost config line `interface <port> / mtu`"),
        ("leaf-4", "lost config line `interface <port> / mtu`"),
        ("spine-1", "lost config line `interface <port> / mtu`"),
    ],
)
def test_the_mtu_line_lost_on_all_cabled_ports_is_one_change(switch: str, lost: str) -> None:
    ports = [c.port if c.switch == switch else c.peer_port for c in SITE.cables if switch in (c.switch, c.peer)]
    before, after = configs()[switch], configs(*(("switch-mtu", f"{switch}/{p}", "1500") for p in ports))[switch]
    unit = SITE.unit(switch)
    assert isinstance(unit, Switch)
    found = drift(unit.platform, before.config, after.config)
    (group,) = exact_groups(RecordedChange.of_config(switch, d.path, d.expected, d.actual, d.port) for d in found)
    assert group.name == lost
    assert group.units == {f"{switch}/{p}" for p in ports}
