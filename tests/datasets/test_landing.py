"""Landing: keys, bytes that a re-run repeats, quarantine, reading back."""

from __future__ import annotations

import io
from datetime import timedelta

import pyarrow.parquet as pq
import pytest
from landed_samples import concluded_row, fact, found, link, run_key

from fabric_health.checks.driver_firmware.tables import Link
from fabric_health.datasets import arrow, landing, reading
from fabric_health.datasets.run import RunKey
from fabric_health.datasets.store import ObjectStore
from fabric_health.datasets.tables import Fact, Finding, Quarantine, Run
from fabric_health.errors import ContractError

SHA = "a" * 64


def test_a_key_is_a_pure_function_of_table_run_and_part() -> None:
    key = run_key()
    assert landing.table_key(Fact, key, "driver_firmware") == (
        f"tables/facts/v=1/site=lab/week=2026-11-30/{key.run}__driver_firmware.parquet"
    )
    for part in ("a__b", "", "A", "a/b", "../x", "a" * 64):
        with pytest.raises(ContractError, match="part"):
            landing.table_key(Fact, key, part)


def test_landing_twice_in_any_order_leaves_the_same_bytes(store: ObjectStore) -> None:
    key = run_key()
    rows = [(fact(f"gpu-{i:03}", a, str(i)), SHA) for i in range(20) for a in ("driver_version", "kernel")]
    rows += [(link("gpu-001/mlx5_0", rate_gbps=400.0), None), (link("gpu-001/mlx5_1", rate_gbps=-1.0), None)]
    landed = landing.land(store, key, "driver_firmware", rows, (Fact, Link))
    assert landed.rows == {"facts": 40, "links": 1}
    assert (landed.quarantined, landed.total) == (1, 41)
    before = dict(zip(landed.keys, store.get_many(landed.keys), strict=True))
    again = landing.land(store, key, "driver_firmware", rows[::-1], (Fact, Link))
    assert again == landed
    assert dict(zip(again.keys, store.get_many(again.keys), strict=True)) == before
    assert store.list("tables/") == sorted(landed.keys)


def test_a_rerun_without_rows_overwrites_what_was_there(store: ObjectStore) -> None:
    key = run_key()
    landing.land(store, key, "c", [(fact("a", "b", "c"), SHA)], (Fact,))
    assert landing.land(store, key, "c", [], (Fact,)).rows == {"facts": 0}
    assert reading.read(store, Fact, "lab") == []


def test_quarantined_rows_keep_reason_and_row_and_a_second_landing_has_its_own(store: ObjectStore) -> None:
    key = run_key()
    landing.land(store, key, "c", [(link("a/b", rate_gbps=float("nan")), None)], (Link,))
    landing.land(store, key, "c", [(found("x"), None)], (Finding,), quarantine_part="c_judged")
    (bad,) = reading.read(store, Quarantine, "lab", run=key.run)
    assert (bad.check, bad.target_table) == ("c", "links")
    assert bad.reason == "rate_gbps: nan is not a number that was measured"
    assert '"nic": "a/b"' in bad.row_json
    assert arrow.count(store, landing.table_key(Quarantine, key, "c")) == 1
    assert arrow.count(store, landing.table_key(Quarantine, key, "c_judged")) == 0
    assert arrow.count(store, landing.table_key(Quarantine, key, "never")) == 0


def test_a_row_type_that_was_not_announced_is_refused(store: ObjectStore) -> None:
    with pytest.raises(ContractError, match="got a Fact; expected only Link"):
        landing.land(store, run_key(), "c", [(fact("a", "b", "c"), None)], (Link,))
    assert store.list("tables/") == []


def test_objects_are_plain_compressed_parquet(store: ObjectStore) -> None:
    landed = landing.land(store, run_key(), "c", [(fact("a", "b", "c"), SHA)], (Fact,))
    held = pq.ParquetFile(io.BytesIO(store.get(landed.keys[0])))
    assert held.metadata.row_group(0).column(0).compression == "ZSTD"
    assert b"pandas" not in (held.schema_arrow.metadata or {})
    assert held.schema_arrow.metadata[b"table"] == b"facts"
    row = held.read().to_pylist()[0]
    assert (row["evidence"], row["origin"], row["run"]) == (SHA, "lab", run_key().run)


def test_rows_are_read_by_run_and_by_week(store: ObjectStore) -> None:
    for weeks_ago in (2, 1, 0):
        landing.land(store, run_key(weeks_ago), "c", [(fact("a", "b", str(weeks_ago)), None)], (Fact,))
    landing.land(store, run_key(0, "other"), "c", [(fact("a", "b", "other"), None)], (Fact,))

    def values(**which: object) -> list[str | None]:
        return [f.value for f in reading.read(store, Fact, "lab", **which)]  # type: ignore[arg-type]

    assert values() == ["2", "1", "0"]
    assert values(run=run_key(1).run) == ["1"]
    assert values(weeks=["2026-11-30", "2026-11-16"]) == ["2", "0"]
    assert values(weeks=[]) == []


def test_concluded_runs_come_newest_first_and_end_before(store: ObjectStore) -> None:
    start = run_key(1).started_at
    later = RunKey("lab", "manual-20261123T050000-00000000", start + timedelta(hours=2), "lab")
    keys = [run_key(2), run_key(1), later, run_key(0)]
    for key in keys:
        landing.land(store, key, "run", [(concluded_row(key), None)], (Run,))
    landing.land(store, run_key(3), "c", [(fact("a", "b", "never concluded"), None)], (Fact,))
    assert [r.run for r in reading.concluded(store, "lab")] == [k.run for k in keys[::-1]]
    assert [r.run for r in reading.concluded(store, "lab", before=later.started_at)] == [keys[1].run, keys[0].run]
    assert [r.week for r in reading.concluded(store, "lab", max_weeks=1)] == ["2026-11-30"]
    assert list(reading.concluded(store, "elsewhere")) == []
