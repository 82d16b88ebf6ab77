"""SQL over landed tables: the views answer the usual questions, and nothing can be changed or read besides them."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from landed_samples import concluded_row, config, covered, drift, fact, found, link, run_key

from fabric_health.checks.driver_firmware.tables import Link
from fabric_health.checks.elastic_training.tables import ElasticRecovery, ElasticRun
from fabric_health.checks.model_eval.tables import ModelQuality, ModelServing, Quantization
from fabric_health.checks.object_store.tables import ObjectStoreCluster, ObjectStoreResult
from fabric_health.checks.switch_config.tables import ConfigDrift, SwitchConfig, SwitchPort
from fabric_health.datasets import contracts, landing, reference, registry, sql
from fabric_health.datasets.contracts import Row
from fabric_health.datasets.store import ObjectStore
from fabric_health.datasets.tables import Coverage, Fact, Finding, Run
from fabric_health.errors import UsageError

VIEWS = re.findall(r"CREATE VIEW (\w+)", files("fabric_health.datasets").joinpath("views.sql").read_text())


def land(store: ObjectStore, weeks_ago: int, *rows: Row, conclude: bool = True, part: str = "c") -> None:
    key = run_key(weeks_ago)
    types = tuple(dict.fromkeys(type(r) for r in rows))
    landing.land(store, key, part, [(r, None) for r in rows], types)
    if conclude:
        landing.land(store, key, "run", [(concluded_row(key), None)], (Run,))


def ask(store: ObjectStore, query: str) -> list[dict[str, Any]]:
    return sql.query(store, query).to_pylist()


def test_tables_and_views_exist_before_anything_has_landed(store: ObjectStore) -> None:
    with sql.connect(store) as connection:
        for name in [t.TABLE for t in registry.all_tables()] + VIEWS:
            assert connection.execute(f'SELECT count(*) FROM "{name}"').fetchall() == [(0,)], name
        columns = connection.execute("SELECT * FROM facts").description
    assert [c[0] for c in columns or ()] == [
        *(c.name for c in (*contracts.columns(Fact), *contracts.COMMON)),
        "site",
        "week",
    ]


def test_facts_changes_need_two_concluded_runs_that_could_read_them(store: ObjectStore) -> None:
    land(store, 3, fact("gpu-001", "driver", "570.1"), fact("gpu-001", "gone", "x"))
    land(store, 2, fact("gpu-001", "driver", None, state="error"))
    land(store, 1, fact("gpu-001", "driver", "broken off"), conclude=False)
    land(store, 0, fact("gpu-001", "driver", "570.2"))
    (change,) = ask(store, "SELECT * FROM fact_changes")
    assert (change["previous_value"], change["value"]) == ("570.1", "570.2")
    assert (change["previous_run"], change["run"]) == (run_key(3).run, run_key(0).run)
    current = ask(store, "SELECT attribute, value, is_current FROM current_facts ORDER BY attribute")
    assert current == [
        {"attribute": "driver", "value": "570.2", "is_current": True},
        {"attribute": "gone", "value": "x", "is_current": False},
    ]
    assert len(ask(store, "SELECT * FROM facts WHERE week = '2026-11-23'")) == 1


def test_a_finding_is_current_until_its_unit_is_looked_at_again(store: ObjectStore) -> None:
    bad = found("gpu-001/mlx5_0")
    land(store, 2, bad, found("gpu-002"), covered("gpu-001"), covered("gpu-002"))
    land(store, 1, bad, covered("gpu-001"))
    assert {f["unit"] for f in ask(store, "SELECT unit FROM current_findings")} == {"gpu-001/mlx5_0", "gpu-002"}
    land(store, 0, covered("gpu-002"))
    assert [f["unit"] for f in ask(store, "SELECT unit FROM current_findings")] == ["gpu-001/mlx5_0"]
    history = ask(store, "SELECT unit, runs, open, first_seen, last_seen FROM findings_history ORDER BY unit")
    assert [(h["unit"], h["runs"], h["open"]) for h in history] == [("gpu-001/mlx5_0", 2, True), ("gpu-002", 1, False)]
    assert history[0]["first_seen"] == run_key(2).started_at
    assert history[0]["last_seen"] == run_key(1).started_at


def test_a_unit_that_could_not_be_judged_keeps_its_findings(store: ObjectStore) -> None:
    bad, silent = found("gpu-001/mlx5_0"), found("gpu-001", "unit_answers")
    land(store, 3, bad, found("gpu-001", "healed"), covered("gpu-001"))
    land(store, 2, bad, covered("gpu-001", "partial"))
    land(store, 1, silent, covered("gpu-001", "not_judged"))
    land(store, 0, silent, covered("gpu-001", "not_judged"))
    current = ask(store, "SELECT rule, run FROM current_findings ORDER BY rule")
    assert [(f["rule"], f["run"]) for f in current] == [
        ("driver_equals_expected", run_key(2).run),
        ("unit_answers", run_key(0).run),
    ]
    assert [h["rule"] for h in ask(store, "SELECT rule FROM findings_history WHERE open ORDER BY rule")] == [
        "driver_equals_expected",
        "unit_answers",
    ]


def test_coverage_latest_says_when_a_unit_was_last_judged(store: ObjectStore) -> None:
    land(store, 1, covered("gpu-001"))
    land(store, 0, covered("gpu-001", "not_judged"))
    (row,) = ask(store, "SELECT * FROM coverage_latest")
    assert (row["state"], row["last_judged_at"], row["runs_judged"]) == ("not_judged", run_key(1).started_at, 1)


def test_drift_is_open_until_the_switch_is_read_without_it(store: ObjectStore) -> None:
    for weeks_ago, paths in ((2, ["mtu", "acl"]), (1, ["mtu"])):
        at = run_key(weeks_ago).started_at
        land(
            store,
            weeks_ago,
            config("leaf-1"),
            *(drift("leaf-1", p, at) for p in paths),
            drift("leaf-1", "p", at, "previous"),
        )
    assert [d["path"] for d in ask(store, "SELECT path FROM drift_open")] == ["mtu"]
    assert len(ask(store, "SELECT * FROM config_changes")) == 2
    land(store, 0, config("leaf-1"))
    assert ask(store, "SELECT * FROM drift_open") == []


def test_counter_growth_is_unknown_after_a_reset(store: ObjectStore) -> None:
    for weeks_ago, packets, errors in ((2, 1000, 1), (1, 3000, 5), (0, 500, 9)):
        land(store, weeks_ago, link("gpu-001/mlx5_0", rx_packets=packets, port_rcv_errors=errors))
    rows = ask(store, "SELECT * FROM link_counter_deltas ORDER BY produced_at")
    assert [(r["rx_packets"], r["port_rcv_errors"], r["rx_error_ratio"], r["was_reset"]) for r in rows] == [
        (2000, 4, 0.002, False),
        (None, 4, None, True),
    ]
    assert rows[0]["seconds"] == 7 * 24 * 3600
    assert rows[0]["tx_packets"] is None


def test_no_packets_give_no_error_ratio(store: ObjectStore) -> None:
    for weeks_ago in (1, 0):
        land(store, weeks_ago, SwitchPort(switch="leaf-1", port="swp1", rx_packets=7, rx_errors=1))
    (row,) = ask(store, "SELECT rx_packets, rx_errors, rx_error_ratio FROM switch_port_counter_deltas")
    assert row == {"rx_packets": 0, "rx_errors": 0, "rx_error_ratio": None}


def test_measurements_come_from_concluded_runs_only(store: ObjectStore) -> None:
    row = ObjectStoreResult(
        launch="s3-get-1mib-c8-1",
        store="s3",
        op="GET",
        load="get",
        asked_object_bytes=1 << 20,
        asked_concurrency=8,
        engine="embedded",
        hosts="127.0.0.1:9000",
        comparability="x",
        errors=0,
        mib_per_s=100.0,
    )
    land(store, 1, row)
    land(store, 0, row, link("gpu-001/mlx5_0", rate_gbps=400.0), conclude=False)
    got = ask(store, "SELECT run, metric, value FROM measurements WHERE metric IN ('mib_per_s', 'rate_gbps')")
    assert got == [{"run": run_key(1).run, "metric": "mib_per_s", "value": 100.0}]


def test_erasure_coding_that_is_not_known_in_full_is_a_question_mark(store: ObjectStore) -> None:
    held = {"servers": 1, "servers_online": 1, "drives": 4, "drives_online": 4, "drives_offline": 0}
    more = {"drives_healing": 0, "versions": "", "links": 0, "links_online": 0}
    for n, (parity, drives) in enumerate([(2, 4), (2, None), (None, None)]):
        cluster = ObjectStoreCluster("c", f"s{n}", **held, **more, parity=parity, drives_per_set=drives)
        load = ("GET", "get", 1 << 20, 8, "warp", "h:9000", "x")
        land(store, 0, cluster, ObjectStoreResult("s-1", f"s{n}", *load, mib_per_s=1.0), part=f"p{n}")
    got = ask(store, "SELECT unit, comparability FROM measurements ORDER BY unit")
    assert [r["comparability"] for r in got] == ["x;erasure=EC:2/4", "x;erasure=?", "x;erasure=?"]


def test_measurements_carry_the_contracts_unit_and_leave_out_what_was_not_measured(
    store: ObjectStore,
) -> None:
    land(store, 0, link("gpu-001/mlx5_0", rate_gbps=400.0, symbol_errors=0))
    land(store, 0, SwitchPort(switch="leaf-1", port="swp1", mtu_bytes=9216), part="s")
    rows = ask(store, "SELECT unit, metric, value, unit_of_measure, comparability FROM measurements ORDER BY ALL")
    assert [tuple(r.values()) for r in rows] == [
        ("gpu-001/mlx5_0", "rate_gbps", 400.0, "Gb/s", "link_layer=InfiniBand"),
        ("gpu-001/mlx5_0", "symbol_errors", 0.0, "errors", "link_layer=InfiniBand"),
        ("leaf-1/swp1", "mtu_bytes", 9216.0, "B", ""),
    ]


def test_a_launch_of_a_served_model_counts_once_whatever_its_repeats(store: ObjectStore) -> None:
    speeds = [(1, 100.0, None), (2, 140.0, None), (3, None, "2 of 24 requests failed")]
    rows: list[Row] = [
        ModelServing("m-serve-2", "m", "vllm bench", 4, n, "k;concurrency=4", output_tokens_per_s=v, problem=why)
        for n, v, why in speeds
    ]
    rows.append(ModelQuality("m-serve-2", "m", "continuation", "acc,none", 0.6, "k;task=continuation"))
    rows.append(Quantization("m-q-1", "m", "w8a8-gptq", "m/w8a8-gptq", source_sha256="a" * 64, size_ratio=0.6))
    land(store, 0, *rows)
    got = ask(
        store, "SELECT launch, unit, metric, value, unit_of_measure, comparability FROM measurements ORDER BY ALL"
    )
    assert [tuple(r.values()) for r in got] == [
        (0, "m/w8a8-gptq", "size_ratio", 0.6, "1", f"model=m;scheme=w8a8-gptq;revision={'a' * 12};recipe=?;device=?"),
        (2, "m", "continuation acc,none", 0.6, "1", "k;task=continuation"),
        (2, "m", "output_tokens_per_s", 120.0, "tokens/s", "k;concurrency=4"),
    ]


def test_each_fault_of_elastic_training_has_a_series_of_its_own(store: ObjectStore) -> None:
    held = {"workers": 2, "min_workers": 1, "max_restarts": 3, "final_status": "succeeded", "restarts": 1}
    run = ElasticRun("elastic-2", "local", **held, comparability="workers=2", start_s=8.0)
    faults = [
        ElasticRecovery("elastic-2", n, kind, run_key(0).started_at, resumed_s=4.0 * n)
        for n, kind in ((1, "kill-rank"), (2, "lose-agent"))
    ]
    land(store, 0, run, *faults)
    query = (
        "SELECT launch, unit, metric, value, comparability FROM measurements WHERE metric <> 'restarts' ORDER BY ALL"
    )
    got = ask(store, query)
    assert [tuple(r.values()) for r in got] == [
        (2, "elastic", "resumed_s", 4.0, "workers=2;fault=1 kill-rank"),
        (2, "elastic", "resumed_s", 8.0, "workers=2;fault=2 lose-agent"),
        (2, "elastic", "start_s", 8.0, "workers=2"),
    ]


def test_measurements_name_every_number_of_links_and_switch_ports() -> None:
    text = files("fabric_health.datasets").joinpath("views.sql").read_text().split("CREATE VIEW measurements")[1]
    for row_type in (Link, SwitchPort):
        names = {c.name for c in contracts.columns(row_type) if c.type in (int, float)}
        for name in names - {"port", "rail", "vlan"}:
            assert re.search(rf"\b{name}\b", text), name


@pytest.mark.parametrize(
    "statement",
    [
        "COPY facts TO '/tmp/x.csv'",
        "CREATE TABLE x AS SELECT 1",
        "DROP VIEW runs",
        "INSERT INTO facts SELECT * FROM facts",
        "ATTACH '/tmp/x.db'",
        "INSTALL httpfs",
        "SET enable_external_access = true",
        "PRAGMA database_list",
        "CALL pragma_version()",
        "SELECT 1; SELECT 2",
        "",
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM '/etc/passwd'",
        "SELECT * FROM glob('/etc/*')",
        "SELECT read_text('/etc/passwd')",
        "SELECT * FROM store",
        "SELECT getenv('HOME')",
        "EXPLAIN ANALYZE COPY facts TO '/tmp/x.csv'",
    ],
)
def test_nothing_is_changed_and_nothing_but_the_tables_is_read(store: ObjectStore, statement: str) -> None:
    with pytest.raises(UsageError):
        sql.query(store, statement)
    assert not Path("/tmp/x.csv").exists()


@pytest.mark.parametrize(
    "statement",
    [
        "FROM facts",
        "DESCRIBE facts",
        "SHOW TABLES",
        "SUMMARIZE runs",
        "EXPLAIN SELECT 1",
        "WITH a AS (SELECT 1) FROM a",
    ],
)
def test_reading_statements_are_answered(store: ObjectStore, statement: str) -> None:
    assert sql.query(store, statement).num_columns > 0


def test_an_error_carries_the_message_of_the_engine(store: ObjectStore) -> None:
    with pytest.raises(UsageError, match="Table with name fact does not exist"):
        sql.query(store, "SELECT * FROM fact")


def test_the_table_reference_is_up_to_date() -> None:
    page = Path(__file__).parents[2] / "docs" / "tables.md"
    assert page.read_text(encoding="utf-8") == reference.render(registry.all_tables()), (
        "run `python -m fabric_health.datasets.reference`"
    )


def test_every_view_is_explained_in_the_reference() -> None:
    text = reference.render(registry.all_tables())
    for name in VIEWS:
        assert f"- `{name}`: " in text


def test_every_table_has_a_key_a_description_and_nothing_that_landing_adds() -> None:
    common = {c.name for c in contracts.COMMON} | {"site", "week"}
    for t in (*registry.all_tables(), Coverage, Finding, SwitchConfig, ConfigDrift):
        names = {c.name for c in contracts.columns(t)}
        assert t.KEY[0] == "run", t
        assert set(t.KEY[1:]) <= names, t
        assert t.DESCRIPTION.endswith("."), t
        assert not names & common, t
