"""The gate into tables: what keeps its contract lands, everything else is quarantined with the reason."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from landed_samples import fact, link, run_key

from fabric_health.checks.driver_firmware.tables import Link
from fabric_health.datasets import arrow
from fabric_health.datasets.contracts import Row, column, optional
from fabric_health.datasets.tables import Fact, FactState
from fabric_health.errors import ContractError


@dataclass(frozen=True)
class Sample(Row):
    TABLE: ClassVar[str] = "samples"
    KEY: ClassVar[tuple[str, ...]] = ("run", "name", "number")

    name: str = column("name")
    number: int = column("number", unit="B", minimum=0, maximum=100)
    ratio: float | None = optional("ratio", unit="1", minimum=0, maximum=1)
    ok: bool | None = optional("ok")
    at: datetime | None = optional("at")


AT = datetime(2026, 11, 30, tzinfo=UTC)


def split(*rows: Row) -> tuple[pa.Table, list[Any]]:
    return arrow.split(Sample, [(r, None) for r in rows], run_key(), "some_check")  # type: ignore[arg-type]


def test_schema_carries_units_descriptions_and_version() -> None:
    s = arrow.schema(Link)
    assert s.field("rate_gbps").metadata == {b"description": b"rate", b"unit": b"Gb/s"}
    assert s.metadata[b"contract_version"] == b"1"
    assert not s.field("nic").nullable
    assert s.field("rate_gbps").nullable
    assert s.field("produced_at").type == pa.timestamp("us", tz="UTC")


def test_rows_come_back_as_they_went_in_and_in_key_order() -> None:
    a, b = Sample("a", 1, 0.5, True, AT), Sample("b", 0)
    table, bad = split(b, a)
    assert bad == []
    assert arrow.rows(Sample, table) == [a, b]
    assert table.column("run").to_pylist() == [run_key().run] * 2
    assert table.column("produced_at").to_pylist() == [run_key().started_at] * 2


def test_a_whole_number_lands_in_a_float_column_and_an_enum_as_its_text() -> None:
    table, bad = arrow.split(Link, [(link("n/a", rate_gbps=400), None)], run_key(), "c")
    assert (table.column("rate_gbps").to_pylist(), bad) == ([400.0], [])
    table, bad = arrow.split(Fact, [(fact("n", "a", "v", state=FactState.VALUE), None)], run_key(), "c")
    assert (table.column("state").to_pylist(), bad) == (["value"], [])


def test_other_time_zones_land_as_utc() -> None:
    table, bad = split(Sample("a", 1, at=datetime(2026, 11, 30, 9, tzinfo=timezone(timedelta(hours=9)))))
    assert (table.column("at").to_pylist(), bad) == ([AT], [])


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (Sample(None, 1), "name: is required and missing"),
        (Sample("a", "1"), "number: expected int, got str"),
        (Sample("a", True), "number: expected int, got bool"),
        (Sample("a", 1.0), "number: expected int, got float"),
        (Sample("a", -1), "number: -1 is below 0 B"),
        (Sample("a", 101), "number: 101 is above 100 B"),
        (Sample("a", 1 << 70), "number: integer of more than 64 bits"),
        (Sample("a", 1, math.nan), "ratio: nan is not a number that was measured"),
        (Sample("a", 1, math.inf), "ratio: inf is not a number that was measured"),
        (Sample("a", 1, 1.5), "ratio: 1.5 is above 1"),
        (Sample("a", 1, ok=1), "ok: expected bool, got int"),
        (Sample("a", 1, at=datetime(2026, 1, 1)), "at: time without a zone"),
        (Sample("a", 1, at="2026-01-01"), "at: expected datetime, got str"),
        (Sample("a\ud800", 1), "name: text is not valid Unicode (lone surrogate)"),
        (Sample("ä" * (1 << 20), 1), "name: 2097152 bytes of text; at most 1048576 are kept in a table"),
        (Sample(b"bytes", 1), "name: expected str, got bytes"),
    ],
)
def test_a_row_that_breaks_its_contract_is_quarantined_with_the_reason(row: Sample, reason: str) -> None:
    good = Sample("good", 1)
    table, bad = split(good, row)
    assert arrow.rows(Sample, table) == [good]
    (q,) = bad
    assert (q.check, q.target_table, q.part, q.reason) == ("some_check", "samples", 0, reason)
    assert json.loads(q.row_json).keys() == {"name", "number", "ratio", "ok", "at"}
    assert len(q.row_json) < 600_000


def test_of_rows_with_one_key_the_same_stays_whatever_the_order() -> None:
    rows = [Sample("a", 1, 0.2), Sample("a", 1, 0.1), Sample("b", 1), Sample("b", 1)]
    table, bad = split(*rows)
    again, bad_again = split(*rows[::-1])
    assert table == again
    assert bad == bad_again
    assert [r.reason for r in bad] == ["name, number: another row has the same key", "name, number: the same row twice"]
    assert len(arrow.rows(Sample, table)) == 2


def test_a_row_of_another_type_is_an_error_of_the_caller() -> None:
    with pytest.raises(ContractError, match="Fact was handed to table 'samples'"):
        split(fact("a", "b", "c"))


def test_no_rows_make_an_empty_table_with_all_columns() -> None:
    table, bad = split()
    assert (table.num_rows, bad, table.schema) == (0, [], arrow.schema(Sample))


def test_reading_fills_columns_an_old_object_lacks_and_ignores_ones_it_does_not_know() -> None:
    table, _ = split(Sample("a", 1, 0.5))
    old = table.drop_columns(["ratio"]).append_column("later", pa.array(["x"]))
    assert arrow.rows(Sample, old) == [Sample("a", 1)]
    with pytest.raises(ContractError, match="lacks the required column 'number'"):
        arrow.rows(Sample, table.drop_columns(["number"]))


def test_bytes_that_are_not_parquet_are_a_contract_error() -> None:
    with pytest.raises(ContractError, match="not a Parquet object"):
        arrow.read(b"PAR1 nonsense")


ANYTHING = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.text(alphabet=st.characters(categories=["Cs", "L"]), max_size=4),
    st.binary(max_size=4),
    st.datetimes(),
    st.datetimes(timezones=st.just(UTC)),
    st.lists(st.integers(), max_size=2),
)


@given(st.lists(st.builds(Sample, ANYTHING, ANYTHING, ANYTHING, ANYTHING, ANYTHING), max_size=8))
def test_every_row_lands_or_is_quarantined_and_the_order_does_not_matter(rows: list[Sample]) -> None:
    table, bad = split(*rows)
    assert table.num_rows + len(bad) == len(rows)
    for row in arrow.rows(Sample, table):
        assert isinstance(row.name, str)
        assert 0 <= row.number <= 100
        assert row.ratio is None or 0 <= row.ratio <= 1
    again, bad_again = split(*rows[::-1])
    assert table.equals(again)
    assert bad == bad_again
    _, none = arrow.split(type(bad[0]), [(q, None) for q in bad], run_key(), "c") if bad else (None, [])
    assert none == []


def test_duplicates_across_types_of_zero_keep_one() -> None:
    table, bad = split(Sample("a", 0, 0.0), replace(Sample("a", 0), ratio=-0.0))
    assert (table.num_rows, len(bad)) == (1, 1)
