"""What is read from recorded runs and from logs of the older release, as files; ``--update`` writes them anew."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from elastic_samples import Run, check_files, evidence, local_site

from fabric_health.checks.elastic_training.events import Source
from fabric_health.checks.elastic_training.node_checks import node_checks
from fabric_health.checks.elastic_training.parsers.dlrover_log import read_dlrover_log
from fabric_health.checks.elastic_training.tables import ElasticEvent, ElasticNodeCheck, ElasticRecovery, ElasticRun

FOLDER = Path(__file__).parents[2] / "fixtures" / "elastic_training"
GOLDEN = FOLDER / "golden"
CASES = sorted(p.name for p in (FOLDER / "real").iterdir() if p.is_dir())


# The recorded runs wrote every fourth checkpoint to disk, and what comes back takes one from there.
LENIENT = {"limits": {"lost_steps": 20}}


def recorded(case: str, **more: Any) -> tuple[str, Run]:
    """Return a recorded launch's name, and a run of the check that consists of it and of another, good one."""
    files = {p.name: p.read_text(encoding="utf-8") for p in (FOLDER / "real" / case).iterdir()}
    job = json.loads(files["job.json"])
    checks = job["scenario"] == ["node-check"]
    asked: dict[str, Any] = {} if checks else {"faults": job["scenario"], "steps": job["steps_asked"], **more}
    name = "elastic-check-1" if checks else "elastic-1"
    run = Run(check_files() if checks else files, local_site(**asked))
    run.evidence[name] = evidence(
        name,
        files,
        exit_code=int(bool(job["problem"])),
        seconds=job["ended_at"] - job["started_at"],
        begin=datetime.fromtimestamp(job["started_at"], UTC),
    )
    run.read()
    return name, run


def compare(name: str, found: Any, update: bool) -> None:
    text = json.dumps(found, indent=1, default=str) + "\n"
    golden = GOLDEN / f"{name}.json"
    if update:
        GOLDEN.mkdir(exist_ok=True)
        golden.write_text(text, encoding="utf-8")
    assert golden.is_file(), "no golden file; look at the result with --update, then commit it"
    assert text == golden.read_text(encoding="utf-8")


@pytest.mark.parametrize("case", CASES)
def test_recorded_run(case: str, request: pytest.FixtureRequest) -> None:
    name, run = recorded(case)
    rows = {
        kind.__name__: [asdict(r) for r in run.of(kind) if r.launch == name]
        for kind in (ElasticRun, ElasticRecovery, ElasticNodeCheck)
    }
    kinds = Counter(f"{e.source} {e.kind}" for e in run.of(ElasticEvent) if e.launch == name)
    findings = [(f.rule, f.severity, f.unit, f.metric, f.summary) for f in run.findings() if f.evidence_unit == name]
    found = {**rows, "events": dict(sorted(kinds.items())), "findings": findings}
    compare(case, found, request.config.getoption("--update"))
    assert run.quarantined() == []


@pytest.mark.parametrize(
    ("case", "rules"),
    [
        ("good", []),
        ("node-check", []),
        ("node-check-straggler", ["no_stragglers"]),
        ("never-resumes", ["training_completes", "training_resumes"]),
        ("hang", ["training_completes", "training_resumes"]),
        ("lost-checkpoints", ["resumes_from_checkpoint"]),
    ],
)
def test_each_recorded_fault_is_found_and_nothing_else(case: str, rules: list[str]) -> None:
    name, run = recorded(case, **LENIENT)
    assert sorted({f.rule for f in run.findings() if f.evidence_unit == name}) == rules


def test_a_returned_agent_costs_what_lies_between_checkpoints_on_disk() -> None:
    name, run = recorded("good")
    (found,) = [f for f in run.findings() if f.evidence_unit == name]
    assert (found.rule, found.metric) == ("lost_steps_within_checkpoint", "return-agent.lost_steps")


@pytest.mark.parametrize(("file", "source"), [("master.log", Source.MASTER), ("agent.log", Source.AGENT)])
def test_logs_of_the_older_release(file: str, source: Source, request: pytest.FixtureRequest) -> None:
    reading = read_dlrover_log((FOLDER / "older" / file).read_text(encoding="utf-8"), source, "1")
    found = {
        "events": [asdict(e) for e in reading.events],
        "node_checks": [asdict(r) for r in node_checks("x", reading.checks, reading.ranks, {})],
        "damaged": reading.damaged,
    }
    compare(f"older-{file.removesuffix('.log')}", found, request.config.getoption("--update"))
    assert reading.damaged == 0
