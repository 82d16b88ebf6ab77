"""What is read from each recorded-style result, as a file beside it; ``--update`` writes them anew."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from fabric_health.checks.object_store.parse import WARP_READERS
from fabric_health.checks.object_store.reading import Reading

FOLDER = Path(__file__).parents[2] / "fixtures" / "object_store"
CASES = sorted(p.name for p in FOLDER.iterdir() if not p.name.endswith(".golden.json"))


def first_reading(text: str) -> Reading | None:
    return next((r for r in (reader(text) for reader in WARP_READERS) if r is not None), None)


@pytest.mark.parametrize("case", CASES)
def test_result(case: str, request: pytest.FixtureRequest) -> None:
    reading = first_reading((FOLDER / case).read_text(encoding="utf-8"))
    assert reading is not None
    found = json.dumps(asdict(reading), indent=1) + "\n"
    golden = FOLDER / f"{case}.golden.json"
    if request.config.getoption("--update"):
        golden.write_text(found, encoding="utf-8")
    assert golden.is_file(), "no golden file; look at the result with --update, then commit it"
    assert found == golden.read_text(encoding="utf-8")


def test_there_are_cases_of_every_layout() -> None:
    readings = [first_reading((FOLDER / c).read_text(encoding="utf-8")) for c in CASES]
    layouts = {r.layout for r in readings if r is not None}
    assert layouts >= {"warp json", "warp csv", "warp text", "warp text, before 1.1", "warp segments"}
    assert len(CASES) >= 15
