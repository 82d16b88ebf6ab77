"""The last word on findings before they land: acknowledged, explained, and when the last good run was."""

from __future__ import annotations

import dataclasses
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import fabric_health
from fabric_health.compared import PART
from fabric_health.datasets import landing
from fabric_health.datasets.run import RunKey, run_name
from fabric_health.datasets.store import ObjectStore
from fabric_health.datasets.tables import Finding, Run, Severity, finding
from fabric_health.datasets.verdict_tables import Verdict
from fabric_health.linked import linked
from fabric_health.run_document import RunDocument
from fabric_health.site import load_site
from fabric_health.verdict.downstream import REGRESSION
from fabric_health.verdict.expected import Expected

SITE = load_site(Path(fabric_health.__file__).parents[1] / "sites" / "lab.yaml")
START = datetime(2026, 11, 16, 3, tzinfo=UTC)
WEEK = timedelta(days=7)
CHECKS = ("switch_config", "collectives")
PORT = next(f"{c.switch}/{c.port}" for c in SITE.cables if (c.peer, c.peer_port) == ("gpu-003", "mlx5_2"))


def document(n: int) -> RunDocument:
    at = START + n * WEEK
    key = RunKey("lab", run_name("weekly", str(n), at), at, "lab")
    return RunDocument(key, "weekly", str(n), CHECKS, ("gpu-003",), SITE.sha256, "0")


def conclude(store: ObjectStore, n: int, checks: str = ",".join(CHECKS)) -> None:
    at = START + n * WEEK
    row = Run("weekly", str(n), at, checks, 1, 0, "HEALTHY", "h", 1.0, 0, 0, 1, 0, SITE.sha256, "0")
    landing.land(store, document(n).key, "run", [(row, None)], (Run,))


def made(unit: str, rule: str, week: int) -> Finding:
    f = finding(
        check="collectives" if rule == REGRESSION else "switch_config",
        rule=rule,
        unit=unit,
        unit_kind="x",
        metric=rule,
        severity=Severity.WARNING,
        summary=rule,
        actual="1500",
    )
    return dataclasses.replace(f, first_seen=START + week * WEEK)


def causes(found: list[Finding]) -> dict[str, str | None]:
    rules = {f.finding: f.rule for f in found}
    return {f.rule: rules.get(f.explained_by or "") for f in found}


def test_a_new_finding_on_the_port_in_front_explains_the_loss_also_weeks_later(store: ObjectStore) -> None:
    for week in range(3):
        conclude(store, week)
    for week in (1, 2):
        found = [made("gpu-003", REGRESSION, 1), made(PORT, "port_mtu", 1)]
        assert causes(linked(store, SITE, document(week), found))[REGRESSION] == "port_mtu"


def test_what_the_last_good_run_showed_too_explains_nothing(store: ObjectStore) -> None:
    conclude(store, 0)
    conclude(store, 1, checks="switch_config")  # an audit alone says nothing of speed: it is no good run
    found = [made("gpu-003", REGRESSION, 2), made(PORT, "port_mtu", 0)]
    assert causes(linked(store, SITE, document(2), found))[REGRESSION] is None
    found = [made("gpu-003", REGRESSION, 2), made(PORT, "port_mtu", 1)]
    assert causes(linked(store, SITE, document(2), found))[REGRESSION] == "port_mtu"


def test_a_leaf_explains_its_rail_only_where_its_other_rail_is_not_sound(store: ObjectStore) -> None:
    leaf = PORT.split("/")[0]
    found = [made("rail-2", REGRESSION, 1), made(leaf, "port_mtu", 1)]
    assert causes(linked(store, SITE, document(1), found))[REGRESSION] == "port_mtu"
    nodes = [made(f"gpu-{i:03}", REGRESSION, 1) for i in range(1, 3)]
    sound = [f"gpu-{i:03}" for i in range(3, 17)]
    rows = [(Verdict("history", u, "node", "collectives", "m", "k", "PASS", "pooled", "r"), None) for u in sound]
    landing.land(store, document(1).key, PART, rows, (Verdict,))
    assert causes(linked(store, SITE, document(1), [*nodes, made(leaf, "port_mtu", 1)]))[REGRESSION] is None


def test_what_is_expected_is_acknowledged_and_explains_no_loss(store: ObjectStore) -> None:
    entry = Expected(0, frozenset({PORT}), "joe", "trial", date(2026, 11, 23), rule="port_mtu", value="1500")
    site = dataclasses.replace(SITE, expected_changes=(entry,), _by_name={})
    found = [made("gpu-003", REGRESSION, 1), made(PORT, "port_mtu", 1)]
    loss, mtu = linked(store, site, document(1), found)
    assert (loss.explained_by, loss.acknowledged_by) == (None, None)
    assert mtu.acknowledged_by == "joe until 2026-11-23: trial"
    later = linked(store, site, document(2), found)[1]
    assert (later.acknowledged_by, later.acknowledgement_expired) == (None, "joe expired since 2026-11-23: trial")
