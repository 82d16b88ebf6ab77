"""What is read from each recorded-style output, as a file beside it; ``--update`` writes them anew."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from fabric_health.checks.collectives.parsers.nccl_log import read_log, split
from fabric_health.checks.collectives.parsers.nccl_text import hosts_in, read_text

FOLDER = Path(__file__).parents[2] / "fixtures" / "collectives"
CASES = sorted(p.stem for p in FOLDER.glob("nccl_*.txt"))


def reading_of(text: str) -> dict[str, object]:
    lines, entries = split(text, hosts_in(text))
    reading, log = asdict(read_text(lines)), read_log(entries)
    reading["devices"] = [list(d.values()) for d in reading["devices"]]
    return {**reading, "log": {"version": log.version, "transports": log.transports(), "nics": log.nics()}}


@pytest.mark.parametrize("case", CASES)
def test_reading(case: str, request: pytest.FixtureRequest) -> None:
    found = json.dumps(reading_of((FOLDER / f"{case}.txt").read_text(encoding="utf-8")), indent=1) + "\n"
    golden = FOLDER / f"{case}.golden.json"
    if request.config.getoption("--update"):
        golden.write_text(found, encoding="utf-8")
    assert golden.is_file(), "no golden file; look at the output with --update, then commit it"
    assert found == golden.read_text(encoding="utf-8")


def test_there_are_cases() -> None:
    assert len(CASES) >= 10
