"""The first task of a run after maintenance, asked in one Airflow process on a real store: refuse before measuring."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import concluded_samples as samples
import pytest

from fabric_health.datasets import embedded
from fabric_health.datasets.store import ObjectStore

SITE = Path(__file__).parents[2] / "include" / "sites" / "lab.yaml"
OPEN = """
import json, os
from datetime import UTC, datetime
from types import SimpleNamespace
from fabric_health.airflow import after_maintenance
from fabric_health.errors import UsageError
dag_run = SimpleNamespace(dag_id="post_maintenance", run_id="manual__1", run_after=datetime(2026, 12, 7, tzinfo=UTC))
for params in json.loads(os.environ["CASES"]):
    after_maintenance.get_current_context = lambda: {"params": {"site": "lab", **params}, "dag_run": dag_run}
    try:
        print("RESULT", json.dumps(["opened", after_maintenance.open_run.function()["ref"]]))
    except UsageError as error:
        print("RESULT", json.dumps(["refused", str(error)]))
"""


@pytest.fixture
def opened(python_in, store: ObjectStore, s3_home: Path):
    """Return a function that opens a run for each form, and says what came of it."""
    operator = embedded.operator(s3_home)
    entry = {"host": operator.host, "port": operator.port, "login": operator.login, "password": operator.password}

    def call(*forms: dict[str, object]) -> list[list[str]]:
        out = python_in(
            OPEN,
            CASES=json.dumps(forms),
            FABRIC_HEALTH_SITE_FILES=f"lab={SITE}",
            AIRFLOW_CONN_FABRIC_HEALTH_S3=json.dumps({**entry, "extra": {**operator.extra, "bucket": store.bucket}}),
        )
        return [json.loads(x.removeprefix("RESULT ")) for x in out.splitlines() if x.startswith("RESULT ")]

    return call


def test_a_baseline_that_does_not_exist_is_refused_before_anything_is_measured(opened, store) -> None:
    run = samples.document()
    samples.conclude(store, run)
    late = samples.document("weekly_later")
    late = replace(late, key=replace(late.key, started_at=samples.START.replace(year=2027)))
    samples.conclude(store, late)
    kept = store.list("runs/")
    unknown, early, unit, good = opened(
        {"touched": "gpu-001", "baseline": f"{run.key.run}x"},
        {"touched": "gpu-001", "baseline": late.key.run},
        {"touched": "gpu-099"},
        {"touched": "gpu-001", "baseline": run.key.run},
    )
    assert unknown[0] == early[0] == unit[0] == "refused"
    assert f"baseline: site 'lab' has no concluded run '{run.key.run}x'; nearest: {run.key.run}" in unknown[1]
    assert "not before the run" in early[1]
    assert "no unit 'gpu-099'; nearest: gpu-009" in unit[1]
    assert good[0] == "opened"
    assert sorted({*store.list("runs/")} - {*kept}) == [good[1]]
