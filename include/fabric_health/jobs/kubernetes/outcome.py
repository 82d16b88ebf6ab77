"""What a finished object amounts to: judged from its pods' logs, never from its controller's word alone."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from fabric_health.jobs.kubernetes import elastic
from fabric_health.jobs.kubernetes.framed_log import FramedLog
from fabric_health.jobs.kubernetes.kinds import ELASTIC_JOB, Kind, Phase, State
from fabric_health.jobs.kubernetes.reasons import Trouble, first, of_pod
from fabric_health.jobs.spec import JobResult, JobSpec, JobStatus

Json = dict[str, Any]
HOSTS_FILE = "hosts.json"
PODS_FILE = "pods.log"
_WORST_FIRST = ("timeout", "cancelled", "not_started", "exited")
_STATUS = {
    "exited": JobStatus.EXITED,
    "timeout": JobStatus.TIMEOUT,
    "cancelled": JobStatus.CANCELLED,
    "not_started": JobStatus.NOT_STARTED,
}


@dataclass(frozen=True)
class Seen:
    """What was seen of a job: its state, its pods, the logs of the pods that carry frames, and other pods' logs.

    ``logs`` say how it ended. ``earlier`` are those of an elastic job's workers that were replaced or are gone: what
    they said is kept, and how they ended says nothing. ``artefacts`` are the backend's own, ``note`` is for a person.
    """

    state: State
    pods: Sequence[Json]
    logs: Sequence[FramedLog]
    other_logs: bytes = b""
    started_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    earlier: Sequence[FramedLog] = ()
    artefacts: Mapping[str, bytes] = field(default_factory=dict)
    note: str = ""


def split_pods(kind: Kind, pods: Sequence[Json]) -> tuple[list[Json], list[Json]]:
    """Return the pods whose logs carry frames, and the others; each in the order of their names' numbers."""
    ordered = sorted(pods, key=lambda p: _numbers(_name(p)))
    if kind.name == ELASTIC_JOB.name:
        return elastic.split(ordered)
    if kind.main_pod is None:
        return ordered, []
    key, value = kind.main_pod
    main = [p for p in ordered if (_get(p, "metadata", "labels") or {}).get(key) == value]
    return main, [p for p in ordered if p not in main]


def judged_by(kind: Kind, pods: Sequence[Json]) -> list[Json]:
    """Return the pods whose troubles are the job's: all, and of an elastic job the newest one of each rank."""
    if kind.name != ELASTIC_JOB.name:
        return list(pods)
    return elastic.newest_of_ranks(split_pods(kind, pods)[0])[0]


def hosts_of(kind: Kind, pods: Sequence[Json]) -> dict[str, str]:
    """Return host name as the job's output shows it -> node, for the pods that do the job's work."""
    main, others = split_pods(kind, pods)
    return {
        str(_get(p, "spec", "hostname") or (node if _get(p, "spec", "hostNetwork") else _name(p))): str(node)
        for p in (others if others and kind.main_pod else main)
        if (node := _get(p, "spec", "nodeName"))
    }


def result_of(spec: JobSpec, kind: Kind, seen: Seen, ended: JobStatus | None = None, why: str = "") -> JobResult:
    """Return the result of a job that is over; ``ended`` and ``why`` say how when it was us who ended it."""
    log = _merged(seen.logs, seen.earlier)
    hosts = hosts_of(kind, seen.pods)
    trouble = first(of_pod(p) for p in judged_by(kind, seen.pods))
    status, code, reason = _verdict(kind, seen, log, trouble)
    if ended is not None:
        status, reason = ended, "; ".join(r for r in (why, log.reason) if r)
    reason = "; ".join(r for r in (reason, seen.note) if r)
    artefacts = {**log.artefacts, **seen.artefacts}
    if len(seen.pods) > 1 or spec.nodes:
        # Also of a single pod where a node was asked for: its output shows the pod's name.
        artefacts[HOSTS_FILE] = json.dumps(hosts, indent=1, sort_keys=True).encode()
    if seen.other_logs:
        artefacts[PODS_FILE] = seen.other_logs
    return JobResult(
        name=spec.name,
        status=status,
        exit_code=code,
        stdout=log.stdout,
        stderr=log.stderr,
        started_at=_at(log.started_at, seen.started_at),
        ended_at=_at(log.ended_at, datetime.now(UTC)),
        reason=reason[:2000],
        artefacts=artefacts,
        hosts=tuple(hosts.values()),
        truncated=log.truncated,
    )


def _verdict(kind: Kind, seen: Seen, log: FramedLog, trouble: Trouble | None) -> tuple[JobStatus, int | None, str]:
    """Return status, exit code and reason of a job that ended by itself."""
    if log.whole and log.status is not None:
        if kind.name == ELASTIC_JOB.name and seen.state.phase is not Phase.SUCCEEDED and log.status == "exited":
            return JobStatus.EXITED, log.exit_code or 1, f"{log.reason}; {seen.state.said}".strip("; ")
        said = trouble.text if trouble and log.exit_code and "memory" in trouble.text else ""
        return _STATUS[log.status], log.exit_code, "; ".join(r for r in (log.reason, said) if r)
    if trouble and trouble.infrastructure:
        return JobStatus.LOST, None, trouble.text
    if trouble and trouble.hopeless:
        code = _exit_code(seen.pods)
        return (JobStatus.EXITED if code is not None else JobStatus.LOST), code, f"{trouble.text}; {log.problem}"
    if kind.name == ELASTIC_JOB.name and seen.state.phase is Phase.FAILED and (seen.logs or seen.earlier):
        # DLRover gave the job up: its workers ran, and were ended before they could say how. No job to try again.
        return JobStatus.EXITED, log.exit_code or 1, f"the {kind.kind} says {_said(seen)}; {log.problem}"
    missing = f"{log.problem}: that is no result" if seen.pods else "its pods are gone, and their logs with them"
    return JobStatus.LOST, None, f"the {kind.kind} says {_said(seen)} but {missing}"


def _said(seen: Seen) -> str:
    return seen.state.said or seen.state.phase.value


def _merged(logs: Sequence[FramedLog], earlier: Sequence[FramedLog] = ()) -> FramedLog:
    """Return one log for all: of several (workers of an elastic job) it is whole when each of them is.

    What ``earlier`` workers said comes first.
    """
    if not logs:
        said = [*earlier] or [FramedLog()]
        return FramedLog(_joined(said, "stdout"), _joined(said, "stderr"), truncated=True, problem="there is no log")
    if len(logs) == 1 and not earlier:
        return logs[0]
    artefacts: dict[str, bytes] = {}
    for log in reversed(logs):
        artefacts.update(log.artefacts)
    everything = [*earlier, *logs]
    ended = [log.status for log in logs]
    return FramedLog(
        stdout=_joined(everything, "stdout"),
        stderr=_joined(everything, "stderr"),
        status=next((s for s in _WORST_FIRST if s in ended), None) if None not in ended else None,
        exit_code=None if None in ended else max((log.exit_code or 0 for log in logs), default=0),
        reason="; ".join(dict.fromkeys(log.reason for log in logs if log.reason)),
        started_at=min((log.started_at for log in everything if log.started_at), default=None),
        ended_at=max((log.ended_at for log in logs if log.ended_at), default=None),
        truncated=any(log.truncated for log in logs),
        problem=next((log.problem for log in logs if log.problem), ""),
        artefacts=artefacts,
    )


def _joined(logs: Sequence[FramedLog], stream: Literal["stdout", "stderr"]) -> str:
    """Return what several pods said; a line that one left unfinished does not run into the next one's."""
    *texts, last = [log.stdout if stream == "stdout" else log.stderr for log in logs]
    return "".join(t if t.endswith("\n") or not t else f"{t}\n" for t in texts) + last


def _exit_code(pods: Sequence[Json]) -> int | None:
    for pod in pods:
        for container in (pod.get("status") or {}).get("containerStatuses") or ():
            code = _get(container, "state", "terminated", "exitCode")
            if isinstance(code, int) and code:
                return code
    return None


def _at(seconds: float | None, otherwise: datetime) -> datetime:
    return otherwise if seconds is None else datetime.fromtimestamp(seconds, UTC)


def _name(pod: Mapping[str, Any]) -> str:
    return str(_get(pod, "metadata", "name"))


def _numbers(name: str) -> list[tuple[int, str]]:
    return [(int(p), "") if p.isdigit() else (-1, p) for p in re.split(r"(\d+)", name)]


def _get(obj: Mapping[str, Any], *keys: str) -> Any:
    value: Any = obj
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value
