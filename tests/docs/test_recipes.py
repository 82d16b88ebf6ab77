"""The analyst's queries about models and elastic training, on rows of two weeks: what they answer."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fabric_health.checks.elastic_training.tables import ElasticNodeCheck, ElasticRecovery, ElasticRun
from fabric_health.checks.model_eval.tables import Fingerprint, ModelQuality, ModelServing, PerItem, Quantization
from fabric_health.datasets import arrow, sql
from fabric_health.datasets.contracts import Row
from fabric_health.datasets.tables import Run

PAGE = Path(__file__).parents[2] / "docs" / "analyst.md"
START = datetime(2026, 11, 23, 3, tzinfo=UTC)
BASE, FORM = "tiny-qwen3", "tiny-qwen3/w8a8-gptq"


def recipe(question: str) -> str:
    """Return the first query behind a sentence of the page."""
    after = PAGE.read_text(encoding="utf-8").split(question, 1)[1]
    found = re.search(r"```sql\n(.*?)^```", after, re.M | re.S)
    assert found
    return found[1]


def week_of(number: int) -> list[Row]:
    """Return what a weekly run lands. In the second one all is slower, the form loses an item and answers otherwise."""
    later = number == 1
    rows: list[Row] = [
        Run("weekly", "1", START, "model_eval", 1, 0, "HEALTHY", "h", 1.0, 0, 0, 0, 0, "0" * 64, "1"),
        Quantization(f"{BASE}-w8a8-gptq-quantise-1", BASE, "w8a8-gptq", FORM, size_ratio=0.7),
        ElasticRun("elastic-1", "kubernetes", 4, 3, 3, "succeeded", 1, "workers=4"),
        ElasticRecovery(
            "elastic-1", 1, "delete-worker", START, detected_s=1.0, rendezvous_s=30.0, resumed_s=90.0 if later else 40.0
        ),
    ]
    rows += [ElasticNodeCheck("elastic-1", 0, f"gpu-{n:03}", 5.0 if n == 2 else 2.0, True) for n in range(4)]
    for unit, right in ((BASE, 4), (FORM, 2 if later else 3)):
        launch = unit.replace("/", "-") + "-serve-1"
        rows.append(ModelQuality(launch, unit, "task", "acc", right / 4, "task=task"))
        rows.append(ModelQuality(launch, unit, "perplexity", "perplexity", 36.0 + (4 - right), "task=perplexity"))
        rows += [PerItem(launch, unit, "task", f"{i}", "task=task", i < right) for i in range(4)]
        rows.append(PerItem(launch, unit, "perplexity", "window-0", "p", None, -900.0 - (later and unit == FORM), 256))
        rows.append(
            Fingerprint(launch, unit, "p-0", "0" * 64, f"1 {2 + later}" if unit == FORM else "1 2", "a" * 64, "k")
        )
        for concurrency in (1, 4):
            speed = 100.0 * concurrency / (1 + later)
            key = f"model=tiny;concurrency={concurrency};device=cpu"
            rows.append(ModelServing(launch, unit, "vllm bench", concurrency, 1, key, output_tokens_per_s=speed))
    return rows


def common(number: int) -> dict[str, Any]:
    at = START + timedelta(weeks=number)
    return {"site": "lab", "week": at.date().isoformat(), "run": f"weekly-{number}", "produced_at": at}


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that runs a query on the rows of both weeks."""

    def relation(_store: Any, _filesystem: Any, row_type: type[Row], _keys: Sequence[str]) -> pa.Table:
        schema = arrow.schema(row_type)
        for field in sql.PARTITIONS:
            schema = schema.append(field)
        found = [{**asdict(r), **common(n)} for n in (0, 1) for r in week_of(n) if isinstance(r, row_type)]
        return pa.Table.from_pylist([{f.name: row.get(f.name) for f in schema} for row in found], schema=schema)

    class Nothing:
        def list(self, prefix: str) -> list[str]:
            return []

    monkeypatch.setattr(sql, "_relation", relation)
    return lambda question: sql.query(Nothing(), recipe(question)).to_pylist()  # type: ignore[arg-type]


def test_recovery_by_scheme(answers: Any) -> None:
    found = {(r["week"], r["task"]): r["recovery"] for r in answers("How much of its base's quality")}
    assert found[("2026-11-23", "task")] == 0.75
    assert found[("2026-11-30", "task")] == 0.5
    assert found[("2026-11-30", "perplexity")] == pytest.approx(36 / 38)
    assert len(found) == 4


def test_throughput_by_concurrency_over_weeks(answers: Any) -> None:
    rows = answers("Throughput by concurrency")
    told = [(r["concurrency"], r["output_tokens_per_s"], r["launches"]) for r in rows if r["unit"] == FORM]
    assert told == [(1, 100.0, 1), (1, 50.0, 1), (4, 400.0, 1), (4, 200.0, 1)]


def test_items_that_two_runs_answer_otherwise(answers: Any) -> None:
    rows = answers("Which items did the latest evaluation answer otherwise")
    assert [(r["unit"], r["task"], r["item"], r["was"], r["is_now"]) for r in rows] == [
        (FORM, "perplexity", "window-0", None, None),
        (FORM, "task", "2", True, False),
    ]
    assert rows[0]["nats"] == -1.0


def test_items_that_a_scheme_lost(answers: Any) -> None:
    (row,) = answers("Which items did a scheme lose")
    assert (row["run"], row["unit"], row["items"], row["lost"], row["gained"]) == ("weekly-1", FORM, 4, 2, 0)


def test_other_answers_of_the_same_weights(answers: Any) -> None:
    (row,) = answers("Did the same weights ever answer otherwise")
    assert (row["unit"], row["prompt"], row["answers"]) == (FORM, "p-0", 2)


def test_what_quantising_costs(answers: Any) -> None:
    assert [r["size_ratio"] for r in answers("What does quantising cost")] == [0.7, 0.7]


def test_recovery_times_over_weeks(answers: Any) -> None:
    rows = answers("Recovery times over the weeks")
    assert [(r["fault"], r["median"]) for r in rows if r["metric"] == "resumed_s"] == [
        ("1 delete-worker", 40.0),
        ("1 delete-worker", 90.0),
    ]


def test_where_the_time_of_a_recovery_went(answers: Any) -> None:
    latest = answers("Where did the time of each recovery go")[0]
    assert (latest["detected_s"], latest["meeting_s"], latest["from_meeting_s"]) == (1.0, 29.0, 60.0)


def test_slow_nodes_in_the_node_check(answers: Any) -> None:
    first = answers("Which nodes are slow in DLRover's node check")[0]
    assert (first["node"], first["rounds"], first["ratio"]) == ("gpu-002", 2, 2.5)
