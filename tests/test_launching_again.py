"""A benchmark's stage that is repeated: what it has measured is read back, what was lost is launched again."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from landed_samples import run_key

from fabric_health.checks import registry
from fabric_health.checks.check import Launch
from fabric_health.datasets import evidence as evidence_store
from fabric_health.datasets.store import ObjectStore
from fabric_health.evidence import Redactor
from fabric_health.jobs.spec import JobResult, JobSpec, JobStatus
from fabric_health.launching import Plan, evidence_of, measured_already
from fabric_health.run_document import RunDocument

AT = datetime(2026, 11, 30, 3, tzinfo=UTC)
STATES = {
    "exited-1": JobStatus.EXITED,
    "too/long-1": JobStatus.TIMEOUT,
    "lost-1": JobStatus.LOST,
    "cancelled-1": JobStatus.CANCELLED,
    "refused-1": JobStatus.NOT_STARTED,
}


def test_results_are_read_back_and_what_was_lost_is_not(store: ObjectStore) -> None:
    check, key = registry.check("model_eval"), run_key(0)
    run = RunDocument(key, "weekly", "1", (check.name,), ("n1",), "0", "0")
    launches = tuple(Launch(n, JobSpec(n, "self", ("x",)), ("m",), unit_kind="model") for n in (*STATES, "not-yet-1"))
    for launch in launches:
        if launch.name in STATES:
            result = JobResult(launch.name, STATES[launch.name], 0, "out", "", AT, AT + timedelta(seconds=1))
            evidence_store.put_evidence(store, key, evidence_of(launch, check.name, result), Redactor(()))
    refs = measured_already(store, run, check, Plan(launches))
    assert [r.unit for r in refs] == ["exited-1", "too/long-1"]
    assert evidence_store.get_evidence(store, refs[1]).results[0].stdout == "out"
    assert refs[0].commands == 1


def test_nothing_was_launched_before_a_first_try(store: ObjectStore) -> None:
    check = registry.check("model_eval")
    run = RunDocument(run_key(0), "weekly", "1", (check.name,), ("n1",), "0", "0")
    assert measured_already(store, run, check, Plan()) == []
