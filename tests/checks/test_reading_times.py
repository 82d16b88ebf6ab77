"""Between which two moments counters are compared: when they were read, not when the runs began."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import fabric_health
from fabric_health.checks.check import Context, RowSet, read_at
from fabric_health.checks.driver_firmware.tables import Link
from fabric_health.checks.driver_firmware.view import fleet
from fabric_health.checks.fabric_links.tables import FabricPort
from fabric_health.evidence import CommandResult, CommandStatus, ReachStatus, StoredEvidence, UnitEvidence
from fabric_health.site import Site, load_site

NOW = datetime(2026, 11, 30, 3, tzinfo=UTC)
WEEK = timedelta(days=7)


@pytest.fixture(scope="module")
def site() -> Site:
    return load_site(Path(fabric_health.__file__).parents[1] / "sites" / "lab.yaml")


def context(site: Site, **more: object) -> Context:
    node = site.nodes[0]
    reach = {node.name: StoredEvidence(node.name, "k", "0" * 64, ReachStatus.OK)}
    given = Context(site, "r", NOW, (node,), reach, previous_at={node.name: NOW - WEEK})
    return replace(given, **more)  # type: ignore[arg-type]


def test_the_first_of_the_commands_that_read_counters_counts() -> None:
    def result(name: str, minutes: int) -> CommandResult:
        at = NOW + timedelta(minutes=minutes)
        return CommandResult(name, (name,), CommandStatus.EXITED, 0, "", "", at, at)

    results = (result("config", 1), result("ethtool_S:eth1", 9), result("ethtool_S:eth0", 4), result("sysfs", 6))
    evidence = UnitEvidence("gpu-001", "node", "c", ReachStatus.OK, "", NOW, NOW, results)
    assert read_at(evidence, ("sysfs", "ethtool_S")) == NOW + timedelta(minutes=4)
    assert read_at(evidence, ("sysfs",)) == NOW + timedelta(minutes=6)
    assert read_at(evidence, ("ethtool", "other")) == read_at(evidence) == NOW


def test_a_window_needs_both_readings_or_both_runs(site: Site) -> None:
    ctx, node = context(site), site.nodes[0].name
    then, now = NOW - WEEK + timedelta(minutes=30), NOW + timedelta(minutes=40)
    assert ctx.window(node, Link, then, now) == (then, (WEEK + timedelta(minutes=10)).total_seconds())
    for one in ((None, now), (then, None), (None, None)):
        assert ctx.window(node, Link, *one) == (NOW - WEEK, WEEK.total_seconds())
    assert ctx.window(node, Link, now, then) is None
    assert ctx.window("never seen", Link, None, now) is None
    carried = context(site, carried_at={(node, FabricPort.TABLE): NOW - 2 * WEEK})
    assert carried.window(node, FabricPort, None, None) == (NOW - 2 * WEEK, 2 * WEEK.total_seconds())
    assert carried.window(node, Link, None, None) == (NOW - WEEK, WEEK.total_seconds())


def test_a_nodes_counters_are_compared_over_the_time_between_their_readings(site: Site) -> None:
    node = site.nodes[0].name
    link = Link(node, f"{node}/mlx5_0", 1)
    then, now = NOW - WEEK + timedelta(hours=1), NOW + timedelta(hours=2)
    for old, new, hours in ((then, now, 7 * 24 + 1), (None, now, 7 * 24), (then, None, 7 * 24)):
        ctx = context(site, previous=RowSet.gather([replace(link, collected_at=old)]))
        (view,) = fleet(RowSet.gather([replace(link, collected_at=new)]), ctx).nodes
        assert view.elapsed_s == hours * 3600
