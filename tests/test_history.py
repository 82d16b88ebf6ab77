"""What each unit was like when it was last judged, also when runs had other scopes; and the run document."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import fabric_health
from fabric_health import history, pipeline
from fabric_health.checks.check import Context, RowSet
from fabric_health.checks.driver_firmware import DRIVER_FIRMWARE as CHECK
from fabric_health.checks.switch_config import SWITCH_CONFIG as SWITCHES
from fabric_health.checks.switch_config.derive import drift_rows
from fabric_health.checks.switch_config.tables import ConfigDrift, SwitchConfig, SwitchPort
from fabric_health.connections import connection
from fabric_health.datasets import landing
from fabric_health.datasets.contracts import Row
from fabric_health.datasets.run import RunKey, run_name
from fabric_health.datasets.store import ObjectStore
from fabric_health.datasets.tables import Coverage, Fact, Finding, Run, Severity, finding
from fabric_health.history import comparable, load_part, previous
from fabric_health.run_document import RunDocument, decode, document_key, encode
from fabric_health.site import load_site

START = datetime(2026, 11, 30, 0, 10, tzinfo=UTC)
TABLES = (*CHECK.tables, Finding, Coverage)


def key(n: int) -> RunKey:
    at = START + timedelta(hours=n)
    return RunKey("lab", run_name("weekly", str(n), at), at, "lab")


def odd(unit: str) -> Finding:
    return finding(
        check=CHECK.name,
        rule="r",
        unit=unit,
        unit_kind="nic",
        metric="m",
        severity=Severity.WARNING,
        summary="odd",
    )


def land(
    store: ObjectStore,
    n: int,
    states: dict[str, str],
    *,
    findings: tuple[str, ...] = (),
    checks: str = "driver_firmware,switch_config",
    concluded: bool = True,
) -> None:
    """Land a run in which each unit has one fact, whose value is the run's number."""
    rows = [Coverage(CHECK.name, u, "node", s) for u, s in states.items()]
    rows += [Fact(f"{u}/mlx5_0", "nic", "fw_version", "value", str(n)) for u in states]
    rows += [dataclasses.replace(odd(u), first_seen=key(n).started_at) for u in findings]
    landing.land(store, key(n), CHECK.name, [(r, None) for r in rows], TABLES)
    if concluded:
        record = Run("weekly", "x", key(n).started_at, checks, 1, 0, "HEALTHY", "h", 1.0, 0, 0, 1, 0, "0" * 64, "1")
        landing.land(store, key(n), "run", [(record, None)], (Run,))


def facts(store: ObjectStore, n: int, *units: str) -> dict[str, str | None]:
    got = previous(store, key(n), CHECK, set(units))
    return {f.unit.split("/")[0]: f.value for f in got.rows.of(Fact)}


def test_each_unit_comes_from_the_latest_run_that_judged_it(store: ObjectStore) -> None:
    land(store, 1, {"a": "judged", "b": "judged", "c": "judged"}, findings=("c/mlx5_0",))
    land(store, 2, {"a": "judged", "b": "not_judged"})
    land(store, 3, {"b": "partial"}, findings=("b/mlx5_0",))
    got = previous(store, key(9), CHECK, {"a", "b", "c", "never"})
    assert got.at == {
        "a": key(2).started_at,
        "b": key(3).started_at,
        "c": key(1).started_at,
    }
    assert facts(store, 9, "a", "b", "c") == {"a": "2", "b": "3", "c": "1"}
    assert {f.unit: f.first_seen for f in got.findings.values()} == {
        "b/mlx5_0": key(3).started_at,
        "c/mlx5_0": key(1).started_at,
    }
    assert got.runs == (key(3), key(2), key(1))


def test_a_unit_that_was_not_judged_last_time_is_looked_up_further_back(store: ObjectStore) -> None:
    land(store, 1, {"a": "judged"})
    land(store, 2, {"a": "not_judged"})
    assert facts(store, 3, "a") == {"a": "1"}


def test_a_run_that_could_not_see_a_finding_does_not_end_its_series(store: ObjectStore) -> None:
    land(store, 1, {"a": "judged", "b": "judged"}, findings=("a/mlx5_0", "b/mlx5_0"))
    land(store, 2, {"a": "partial", "b": "judged"})
    got = previous(store, key(3), CHECK, {"a", "b"})
    assert {f.unit: f.first_seen for f in got.findings.values()} == {"a/mlx5_0": key(1).started_at}
    assert got.at == {"a": key(2).started_at, "b": key(2).started_at}
    assert got.runs == (key(2),)
    assert facts(store, 3, "a") == {"a": "2"}


def test_a_unit_that_is_always_judged_in_part_costs_a_few_runs_only(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "PARTIAL_RUNS_BACK", 2)
    land(store, 1, {"a": "partial"}, findings=("a/mlx5_0",))
    for n in (2, 3, 4):
        land(store, n, {"a": "partial"})
    assert previous(store, key(4), CHECK, {"a"}).findings
    assert not previous(store, key(5), CHECK, {"a"}).findings


def land_switch(store: ObjectStore, n: int, state: str, *rows: Row) -> None:
    covered = Coverage(SWITCHES.name, "leaf-1", "switch", state)
    found = [(r, None) for r in (covered, *rows)]
    landing.land(store, key(n), SWITCHES.name, found, (*SWITCHES.tables, Finding, Coverage))
    record = Run("weekly", "x", key(n).started_at, SWITCHES.name, 1, 0, "HEALTHY", "h", 1.0, 0, 0, 1, 0, "0" * 64, "1")
    landing.land(store, key(n), "run", [(record, None)], (Run,))


def config(mtu: int) -> SwitchConfig:
    return SwitchConfig("leaf-1", "eos", f"interface Ethernet1/1\n   mtu {mtu}\n", str(mtu))


def test_what_a_run_judged_in_part_did_not_read_is_of_the_run_before_it(store: ObjectStore) -> None:
    port, drifted = SwitchPort("leaf-1", "Ethernet1/1", mtu_bytes=9214), drift(1)
    land_switch(store, 1, "judged", config(9214), port, drifted)
    land_switch(store, 2, "partial", dataclasses.replace(port, mtu_bytes=1500))  # its config could not be read
    got = previous(store, key(3), SWITCHES, {"leaf-1"})
    assert [c.config_sha256 for c in got.rows.of(SwitchConfig)] == ["9214"]
    assert [p.mtu_bytes for p in got.rows.of(SwitchPort)] == [1500]
    assert got.rows.of(ConfigDrift) == [drifted]
    assert got.at == {"leaf-1": key(2).started_at}
    assert got.carried_at == {("leaf-1", t): key(1).started_at for t in ("switch_configs", "config_drift")}
    assert got.seen_at(SwitchConfig) == {"leaf-1": key(1).started_at}
    assert got.seen_at(SwitchPort) == {"leaf-1": key(2).started_at}


def test_a_change_beside_a_run_that_could_not_read_the_config_is_not_missed(store: ObjectStore) -> None:
    site = load_site(Path(fabric_health.__file__).parents[1] / "sites" / "lab.yaml")
    switch = dataclasses.replace(site.switches[0], name="leaf-1", platform="eos", golden=None)
    site = dataclasses.replace(site, switches=(switch,))
    land_switch(store, 1, "judged", config(9214))
    land_switch(store, 2, "partial", SwitchPort("leaf-1", "Ethernet1/1"))
    got = previous(store, key(3), SWITCHES, {"leaf-1"})
    ctx = Context(site, "r", key(3).started_at, (switch,), {}, got.rows, got.at, got.carried_at)
    assert [r.path for r in drift_rows(RowSet.gather([config(1500)]), ctx)] == ["interface Ethernet1/1 / mtu"]
    assert drift_rows(RowSet.gather([config(9214)]), ctx) == []


def test_what_a_whole_run_does_not_have_is_gone(store: ObjectStore) -> None:
    land_switch(store, 1, "judged", config(9214), drift(1))
    land_switch(store, 2, "judged", config(9214))
    land_switch(store, 3, "partial", SwitchPort("leaf-1", "Ethernet1/1"))
    got = previous(store, key(4), SWITCHES, {"leaf-1"})
    assert (len(got.rows.of(SwitchConfig)), got.rows.of(ConfigDrift)) == (1, [])


def drift(n: int) -> ConfigDrift:
    at = key(n).started_at
    return ConfigDrift("leaf-1", "golden", "changed", "interface Ethernet1/1 / mtu", at, at)


def test_findings_on_a_whole_fleet_come_from_the_latest_run_of_most_of_it(store: ObjectStore) -> None:
    land(store, 1, {"a": "judged", "b": "judged", "c": "judged"}, findings=("sku-x",))
    land(store, 2, {"a": "judged"})
    assert [f.unit for f in previous(store, key(3), CHECK, {"a", "b", "c"}).findings.values()] == ["sku-x"]
    land(store, 3, {"a": "judged", "b": "judged", "c": "not_judged"})
    assert not previous(store, key(4), CHECK, {"a", "b", "c"}).findings


def test_findings_of_a_benchmark_are_found_by_the_units_it_measures(store: ObjectStore) -> None:
    of_launches = dataclasses.replace(CHECK, unit_kind="launch", launches=lambda _site, _nodes, _run: ())
    land(store, 1, {"a": "judged", "b": "judged"}, findings=("a/rail3", "the-benchmark"))
    got = previous(store, key(2), of_launches, {"a", "b"})
    assert {f.unit for f in got.findings.values()} == {"a/rail3", "the-benchmark"}
    assert got.rows.rows == {}


def test_units_out_of_scope_are_known_too() -> None:
    """They vote on what is usual for their SKU when a few nodes are looked at."""
    site = load_site(Path(fabric_health.__file__).parents[1] / "sites" / "lab.yaml")
    document = RunDocument(key(1), "weekly", "x", (CHECK.name,), ("gpu-001",), "0" * 64, "0.1")
    rooms = pipeline.Rooms(None, site, connection)  # type: ignore[arg-type]  # nothing is read
    assert pipeline._known(rooms, document, CHECK) == {n.name for n in site.nodes}


def test_later_runs_runs_of_other_checks_and_runs_that_never_ended_do_not_count(store: ObjectStore) -> None:
    land(store, 1, {"a": "judged"})
    land(store, 2, {"a": "judged"}, concluded=False)
    land(store, 3, {"a": "judged"}, checks="switch_config")
    land(store, 5, {"a": "judged"})
    assert facts(store, 4, "a") == {"a": "1"}
    assert facts(store, 5, "a") == {"a": "1"}, "a run is not its own past"
    assert facts(store, 1, "a") == {}


def test_each_result_is_compared_with_the_latest_run_that_has_its_like(store: ObjectStore) -> None:
    land(store, 1, {"a": "judged", "b": "judged"})
    land(store, 2, {"a": "judged"})
    land(store, 3, {"a": "judged"}, concluded=False)
    land(store, 4, {"a": "judged"}, checks="switch_config")
    land(store, 6, {"a": "judged"})
    now = [Fact(f"{unit}/mlx5_0", "nic", "fw_version", "value", "5") for unit in ("a", "b", "c", "d")]

    def like(f: Fact) -> str | None:
        return None if f.unit.startswith("d") else f.unit

    got = comparable(store, key(5), CHECK.name, Fact, now, like)
    assert {f.unit: f.value for f in got.rows} == {"a/mlx5_0": "2", "b/mlx5_0": "1"}
    assert got.at == {"a/mlx5_0": key(2).started_at, "b/mlx5_0": key(1).started_at}
    assert comparable(store, key(5), CHECK.name, Fact, [], like) == comparable(
        store, key(1), CHECK.name, Fact, now, like
    )


def test_the_past_reaches_over_weeks(store: ObjectStore) -> None:
    land(store, -200, {"a": "judged"})
    assert key(-200).week < key(0).week
    assert facts(store, 0, "a") == {"a": "-200"}


def test_a_first_run_has_no_past(store: ObjectStore) -> None:
    got = previous(store, key(1), CHECK, {"a"})
    assert (got.at, got.findings, got.runs, got.rows.rows) == ({}, {}, (), {})
    assert load_part(store, Fact, key(1), CHECK.name) == []


@pytest.mark.parametrize("scope", [("gpu-001", "leaf-1"), ()])
def test_a_run_document_is_read_back_as_it_was(scope: tuple[str, ...]) -> None:
    document = RunDocument(key(1), "weekly", 'scheduled__2026-11-30 "x"', ("driver_firmware",), scope, "0" * 64, "0.1")
    assert decode(encode(document)) == document
    assert encode(decode(encode(document))) == encode(document)
    name = document_key("lab", key(1).week, key(1).run)
    assert name == f"runs/site=lab/week=2026-11-30/{key(1).run}/run.json"


def test_a_run_document_gives_units_in_the_order_of_the_site() -> None:
    site = load_site(Path(fabric_health.__file__).parents[1] / "sites" / "lab.yaml")
    document = RunDocument(key(1), "weekly", "x", (), ("leaf-1", "gpu-003", "gpu-001", "gone-now"), "0" * 64, "0.1")
    assert [u.name for u in document.units(site, CHECK)] == ["gpu-001", "gpu-003"]
