"""Puts together what all files of a launch say: each is read by its reader, what is missing or cut is noted."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from fabric_health.checks.elastic_training.events import CheckLine, Event, Kind, Reading, Source
from fabric_health.checks.elastic_training.launches import (
    FAULTS_FILE,
    JOB_FILE,
    MASTER_LOG,
    PODS_FILE,
    TRAINING_FILE,
    injects_faults,
    local_files,
)
from fabric_health.checks.elastic_training.parsers.dlrover_log import read_dlrover_log
from fabric_health.checks.elastic_training.parsers.job_report import JobReport, read_job_report
from fabric_health.checks.elastic_training.parsers.training_events import read_faults, read_pods, read_training
from fabric_health.checks.elastic_training.timeline import node_names
from fabric_health.checks.untrusted import clip
from fabric_health.evidence import CommandStatus, UnitEvidence

_AGENT_LOG = re.compile(r"agent-(\d{1,6})(-again)?\.log")
# What a program, or the backend, puts where it left text out of a log.
_LEFT_OUT = re.compile(r"^\[\.\.\. \d{1,15} bytes left out \.\.\.\]$", re.M)


@dataclass
class Gathered:
    """What a launch's evidence says. ``problem`` is why nothing can be judged by it, ``unread`` what it lacks.

    ``ranks`` is rank by node id, ``names`` node by rank.
    """

    texts: list[list[Event]] = field(default_factory=list)
    checks: list[CheckLine] = field(default_factory=list)
    ranks: dict[int, int] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    unread: list[str] = field(default_factory=list)
    report: JobReport | None = None
    problem: str = ""

    def take(self, reading: Reading, what: str) -> None:
        """Add what one text gave."""
        self.texts.append(reading.events)
        self.checks += reading.checks
        self.ranks.update(reading.ranks)
        if reading.damaged:
            self.unread.append(f"{what}: {reading.damaged} lines cannot be read")
        if reading.cut:
            self.unread.append(f"{what}: more than is read")

    def lacks(self, problem: str) -> None:
        """Note why the launch cannot be judged; the first reason counts."""
        self.problem = self.problem or problem


def gather(launch: str, evidence: UnitEvidence, agents: int, local: bool) -> Gathered:
    """Read all that a launch left. Never raises."""
    out = Gathered()
    job = evidence.result("job")
    if job is None or job.status in (CommandStatus.NOT_RUN, CommandStatus.NOT_INSTALLED):
        out.lacks(clip(evidence.detail) or "the job did not run")
        return out
    if local:
        _local(out, launch, evidence, agents)
    else:
        _cluster(out, evidence)
    return out


def _local(out: Gathered, launch: str, evidence: UnitEvidence, agents: int) -> None:
    files = local_files(launch, agents)
    report = _text(out, evidence, JOB_FILE)
    out.report = read_job_report(report) if report is not None else None
    if out.report is None:
        out.lacks(f"{JOB_FILE} is missing" if report is None else f"{JOB_FILE} is not the report that was expected")
    if injects_faults(launch):
        for name, reader in ((TRAINING_FILE, read_training), (FAULTS_FILE, read_faults)):
            _needed(out, evidence, name, reader)
    own_events = any(e.source is Source.TRAINING for text in out.texts for e in text)
    returned = {e.node for text in out.texts for e in text if e.kind is Kind.RETURN_AGENT}
    for name in files:
        found = _AGENT_LOG.fullmatch(name)
        if not found and name != MASTER_LOG:
            continue
        # The log of an agent that came back is there only when it did.
        if found and found[2] and found[1] not in returned and evidence.result(f"artefact:{name}") is None:
            continue
        log = _text(out, evidence, name)
        if log is not None:
            reading = read_dlrover_log(log, Source.AGENT if found else Source.MASTER, found[1] if found else None)
            # What training prints is in its own file, too.
            reading.events = [e for e in reading.events if not (own_events and e.source is Source.TRAINING)]
            out.take(reading, name)


def _cluster(out: Gathered, evidence: UnitEvidence) -> None:
    job = evidence.result("job")
    if job is None:
        return
    if job.status is CommandStatus.TRUNCATED:
        out.unread.append("output of workers: cut")
    # Written when a fault was made, and not otherwise.
    faults = _text(out, evidence, FAULTS_FILE) if evidence.result(f"artefact:{FAULTS_FILE}") else None
    made = read_faults(faults or "")
    out.take(made, FAULTS_FILE)
    for what, log in (("output of workers", job.stdout), ("log of agents", job.stderr)):
        reading = read_dlrover_log(log, Source.AGENT)
        # A worker that is deleted may have been cut off within a line.
        reading.damaged = max(0, reading.damaged - len(made.events))
        out.take(reading, what)
    master = _text(out, evidence, MASTER_LOG)
    if master is not None:
        out.take(read_dlrover_log(master, Source.MASTER), MASTER_LOG)
    pods = _text(out, evidence, PODS_FILE)
    if pods is not None:
        reading = read_pods(pods)
        out.take(reading, PODS_FILE)
        out.names = node_names(reading.events)
        out.ranks.update({e.value: e.peer for e in reading.events if e.value is not None and e.peer is not None})


def _needed(out: Gathered, evidence: UnitEvidence, name: str, reader: Callable[[str], Reading]) -> None:
    text = _text(out, evidence, name)
    if text is None:
        out.lacks(f"{name} is missing")
    else:
        out.take(reader(text), name)


def _text(out: Gathered, evidence: UnitEvidence, name: str) -> str | None:
    """Return the text of a file, None without one; notes where it is missing or cut."""
    file = evidence.result(f"artefact:{name}")
    if file is None:
        out.unread.append(f"{name}: missing")
        return None
    if not file.ran or _LEFT_OUT.search(file.stdout):
        out.unread.append(f"{name}: cut")
    return file.stdout
