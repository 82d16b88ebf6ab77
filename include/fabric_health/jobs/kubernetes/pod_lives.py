"""The lives of an elastic job's pods, as the API tells them: kept when a pod itself is gone."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from fabric_health.jobs.kubernetes.elastic import Replica, replica_of

Json = dict[str, Any]
LIVES_FILE = "pods.jsonl"
What = Literal["created", "running", "deleted", "gone", "succeeded", "failed"]
# More than any job of ours has: a controller that makes pods without end must not fill our memory.
MOST_EVENTS = 50_000
_ORDER: tuple[What, ...] = ("created", "running", "deleted", "succeeded", "failed", "gone")


@dataclass(frozen=True)
class PodEvent:
    """One event of a pod's life at ``t``, s since 1970: the API's clock, the kubelet's for starts and ends."""

    t: float
    pod: str
    event: What
    replica: Replica

    def line(self) -> str:
        """Return the event as a line of ``pods.jsonl``."""
        r = self.replica
        told = {"t": self.t, "pod": self.pod, "event": self.event, "replica_type": r.type, "replica_id": r.id}
        return json.dumps({**told, "rank_index": r.rank_index, "relaunch_count": r.relaunch_count, "node": r.node})


@dataclass
class PodLives:
    """What was seen of a job's pods, each event of a pod once."""

    events: dict[tuple[str, What], PodEvent] = field(default_factory=dict)
    known: dict[str, Json] = field(default_factory=dict)

    def see(self, pods: Sequence[Json], at: float) -> None:
        """Take in all pods that the job has at ``at``; one that was there before and is not among them is gone."""
        present = {str(p["metadata"]["uid"]) for p in pods}
        for uid in [u for u in self.known if u not in present]:
            self.note(self.known.pop(uid), "gone", at)
        for pod in pods:
            self.known[str(pod["metadata"]["uid"])] = pod
            for what, t in _events_of(pod, at):
                self.note(pod, what, t)

    def note(self, pod: Json, what: What, t: float) -> None:
        """Note one event of a pod that is at hand."""
        self.add(str(pod["metadata"].get("uid")), PodEvent(t, str(pod["metadata"].get("name")), what, replica_of(pod)))

    def add(self, uid: str, event: PodEvent) -> None:
        """Add one event of the pod of this ``uid``, unless it is known already."""
        if (uid, event.event) not in self.events and len(self.events) < MOST_EVENTS:
            self.events[uid, event.event] = event

    def ran_since(self, pod: Json) -> float | None:
        """Return when a pod began to run, s since 1970, as far as it was seen; None before that."""
        event = self.events.get((str(pod["metadata"].get("uid")), "running"))
        return event.t if event else None

    def lines(self) -> bytes:
        """Return all events in the order of time, one JSON object a line."""
        ordered = sorted(self.events.values(), key=lambda e: (e.t, e.pod, _ORDER.index(e.event)))
        return "".join(f"{e.line()}\n" for e in ordered).encode()


def started_at(pod: Mapping[str, Any]) -> float | None:
    """Return when the pod's first container began to run, s since 1970; None before that."""
    times = [_time(s, key, "startedAt") for s in _states(pod) for key in ("running", "terminated")]
    return min((t for t in times if t is not None), default=None)


def deleted_at(pod: Mapping[str, Any]) -> float | None:
    """Return when a pod's deletion was asked for: its ``deletionTimestamp`` is that plus the grace given."""
    metadata = pod.get("metadata") or {}
    until = unix(metadata.get("deletionTimestamp"))
    grace = metadata.get("deletionGracePeriodSeconds")
    if until is None:
        return None
    return until - (grace if type(grace) is int and 0 <= grace < 1 << 31 else 0)


def unix(text: Any) -> float | None:
    """Return a time of the API as s since 1970; None for what is none."""
    try:
        at = datetime.fromisoformat(str(text).replace("Z", "+00:00"))
        return at.timestamp() if at.tzinfo else None
    except (ValueError, OverflowError):
        return None


def _events_of(pod: Json, at: float) -> list[tuple[What, float]]:
    found: list[tuple[What, float]] = [("created", unix(pod["metadata"].get("creationTimestamp")) or at)]
    phase = (pod.get("status") or {}).get("phase")
    if (t := started_at(pod)) is not None or phase == "Running":
        found.append(("running", at if t is None else t))
    if (t := deleted_at(pod)) is not None:
        found.append(("deleted", t))
    if phase in ("Succeeded", "Failed"):
        ends = [e for s in _states(pod) if (e := _time(s, "terminated", "finishedAt"))]
        found.append(("succeeded" if phase == "Succeeded" else "failed", max(ends, default=at)))
    return found


def _states(pod: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    return [s.get("state") or {} for s in statuses if isinstance(s, Mapping)]


def _time(state: Mapping[str, Any], key: str, field_name: str) -> float | None:
    part = state.get(key)
    return unix(part.get(field_name)) if isinstance(part, Mapping) else None
