"""``verdict`` and ``maintenance`` over runs that are in a store: which run is taken, and what is refused."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from fabric_health import baselines
from fabric_health.cli import verdicts
from fabric_health.cli.main import main
from fabric_health.connections import connection
from fabric_health.datasets import landing
from fabric_health.datasets.run import RunKey, run_name
from fabric_health.datasets.store import ObjectStore
from fabric_health.datasets.tables import Run
from fabric_health.pipeline import Rooms
from fabric_health.site import load_site

SITE = Path(__file__).parents[2] / "include" / "sites" / "lab.yaml"
START = datetime(2026, 9, 7, 3, tzinfo=UTC)


@pytest.fixture
def rooms(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> Rooms:
    """The lab's site on a store of the test's own."""
    opened = Rooms(store, load_site(SITE), connection)
    monkeypatch.setattr(verdicts, "_rooms", lambda _context: opened)
    return opened


def conclude(store: ObjectStore, day: int, checks: str) -> str:
    at = START + timedelta(days=day)
    key = RunKey("lab", run_name("weekly", str(day), at), at, "lab")
    row = Run("weekly", "x", at, checks, 1, 0, "HEALTHY", "nothing", 1.0, 0, 0, 1, 0, "0" * 64, "1")
    landing.land(store, key, "run", [(row, None)], (Run,))
    return key.run


def test_a_run_is_compared_with_one_that_measured_as_it_was_when_it_was_made(
    rooms: Rooms, capfd: pytest.CaptureFixture[str]
) -> None:
    measured = conclude(rooms.store, 0, "driver_firmware,collectives")
    conclude(rooms.store, 1, "driver_firmware")
    conclude(rooms.store, 2, "driver_firmware,collectives")
    assert main(["verdict", "--json"]) == 2
    (whole,) = map(json.loads, capfd.readouterr().out.splitlines())
    assert whole["compared_with"].endswith(f": {measured}")


def test_the_latest_run_is_the_latest_that_measured(rooms: Rooms, capfd: pytest.CaptureFixture[str]) -> None:
    conclude(rooms.store, 0, "driver_firmware")
    assert main(["baseline", "accept", "latest", "--reason", "quiet"]) == 64
    assert "no run yet that measured" in capfd.readouterr().err
    run = conclude(rooms.store, 1, "driver_firmware,object_store")
    conclude(rooms.store, 2, "driver_firmware")
    assert main(["baseline", "accept", "latest", "--reason", "quiet"]) == 0
    assert [a.run for a in baselines.accepted(rooms.store, "lab")] == [run]


def test_a_baseline_that_does_not_exist_is_refused_before_anything_is_measured(
    rooms: Rooms, capfd: pytest.CaptureFixture[str]
) -> None:
    run = conclude(rooms.store, 0, "driver_firmware,collectives")
    assert main(["maintenance", "gpu-001", "--baseline", f"{run}x"]) == 64
    said = capfd.readouterr().err
    assert f"no concluded run '{run}x'; nearest: {run}" in " ".join(said.split())
    assert rooms.store.list("runs/") == []
