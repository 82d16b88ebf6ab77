"""What is tried again: a lost job once, a measured failure never."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime

import pytest

from fabric_health.jobs.backend import run_job
from fabric_health.jobs.spec import JobResult, JobSpec, JobStatus, RetryClass

NOW = datetime(2026, 11, 30, tzinfo=UTC)


@dataclass
class Scripted:
    """Ends its jobs as told, one after the other."""

    ends: list[JobStatus]
    done: list[str] = field(default_factory=list)

    def run(self, spec, _tell) -> JobResult:
        self.done.append("run")
        return JobResult(spec.name, self.ends.pop(0), None, "", "", NOW, NOW, "why")

    def release(self, _name) -> None:
        self.done.append("release")

    def cancel(self, _name) -> None:
        self.done.append("cancel")


def test_a_lost_job_is_tried_once_more_and_says_so():
    backend = Scripted([JobStatus.LOST, JobStatus.EXITED])
    result = run_job(JobSpec("job", "self", ("x",)), backend, lambda _: None)
    assert result.status is JobStatus.EXITED
    assert result.reason == "why; first try: why"
    assert backend.done == ["run", "release", "run"]


def test_lost_twice_is_lost():
    backend = Scripted([JobStatus.LOST, JobStatus.LOST])
    assert run_job(JobSpec("job", "self", ("x",)), backend, lambda _: None).status is JobStatus.LOST


@pytest.mark.parametrize("end", [JobStatus.EXITED, JobStatus.TIMEOUT, JobStatus.CANCELLED, JobStatus.NOT_STARTED])
def test_every_other_end_is_a_result(end):
    backend = Scripted([end])
    assert run_job(JobSpec("job", "self", ("x",)), backend, lambda _: None).status is end
    assert backend.done == ["run"]


def test_a_job_that_must_not_be_repeated_is_not():
    backend = Scripted([JobStatus.LOST])
    spec = JobSpec("job", "self", ("x",), retry=RetryClass.NEVER)
    assert run_job(spec, backend, lambda _: None).status is JobStatus.LOST
    assert backend.done == ["run"]
