"""Follows the pods of an elastic job while they come and go, and takes one away when the job asks for it."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from fabric_health.errors import FabricHealthError
from fabric_health.jobs.kubernetes.api import Cluster, ClusterRefusedError
from fabric_health.jobs.kubernetes.elastic import WORKER, Replica, replica_of, split
from fabric_health.jobs.kubernetes.kinds import Kind
from fabric_health.jobs.kubernetes.pod_lives import LIVES_FILE, PodEvent, PodLives, deleted_at
from fabric_health.jobs.spec import Disturbance

Json = dict[str, Any]
Tell = Callable[[str], None]
FAULTS_FILE = "faults.jsonl"
MASTER_LOG = "master.log"
# Written to the object before a pod is deleted, so that a task which begins anew does not delete a second one.
MARK = "fabric-health/disturbed"
# Long enough for the kubelet to do it in order, too short for a worker to hand anything over: it is to be lost.
GRACE_S = 1
# While a job is to be disturbed it is looked at this often, s: a step more or less does not matter.
FOLLOW_S = 2.0
# Of pods that may vanish, the end of the log is read now and then, s.
SNAPSHOT_S = 30.0
SNAPSHOT_PODS = 64
SNAPSHOT_LINES, SNAPSHOT_BYTES = 5000, 1 << 20
MASTER_LINES, MASTER_BYTES = 20_000, 2 << 20
# Of a few workers the last lines are searched for steps: all workers of a job are at the same one.
STEP_PODS, STEP_LINES, STEP_BYTES = 8, 200, 256 << 10
_EVENT = re.compile(rb"(?:^|[\s:\]])EV (\{[^\r\n]{2,4096}\})", re.M)


@dataclass(frozen=True)
class Fault:
    """A worker pod that we deleted: when (s since 1970, the API server's clock), which, and the last step before."""

    t: float
    pod: str
    uid: str
    rank_index: int
    replica_id: int | None
    node: str | None
    step: int | None
    detail: str

    def line(self) -> bytes:
        """Return the line of ``faults.jsonl``."""
        told = {"t": self.t, "fault": "delete-worker", "node": self.node, "rank": None, "rank_index": self.rank_index}
        return (json.dumps({**told, "pod": self.pod, "step": self.step, "detail": self.detail}) + "\n").encode()


@dataclass
class Workers:
    """The pods of one elastic job. ``log_bytes`` bounds the log of the worker that is deleted.

    ``problem`` says why a disturbance that was asked for has not been made.
    """

    cluster: Cluster
    kind: Kind
    name: str
    uid: str
    disturb: Disturbance | None
    tell: Tell
    log_bytes: int
    lives: PodLives = field(default_factory=PodLives)
    fault: Fault | None = None
    problem: str = ""
    ran: bool = False
    kept: dict[str, tuple[Json, bytes]] = field(default_factory=dict)
    _read_at: dict[str, float] = field(default_factory=dict)

    @property
    def waits_to_disturb(self) -> bool:
        """Whether the disturbance that was asked for is still to come."""
        return self.disturb is not None and self.fault is None and not self.problem

    def look(self, obj: Json) -> None:
        """Look at the job's pods once; ``obj`` is the job's object."""
        pods = self.cluster.pods_of(self.kind, self.name)
        at = self._now()
        self.lives.see(pods, at)
        workers, _ = split(pods)
        self.ran = self.ran or any(self.lives.ran_since(p) is not None for p in workers)
        self._keep(pods)
        if self.waits_to_disturb and not self._done_before(obj, workers):
            self._maybe_disturb(workers, at)

    def gone(self, pods: Sequence[Json]) -> list[tuple[Json, bytes]]:
        """Return the workers that are not among ``pods``, with what could be read of their logs before they went."""
        present = {str(p["metadata"]["uid"]) for p in pods}
        left = [(p, data) for uid, (p, data) in self.kept.items() if uid not in present]
        return [(p, data) for p, data in left if replica_of(p).type == WORKER]

    def last_read(self, pod: Json) -> bytes | None:
        """Return what was last read of a pod's log, None when nothing was."""
        return self.kept.get(str(pod["metadata"]["uid"]), (pod, None))[1]

    def artefacts(self, pods: Sequence[Json]) -> dict[str, bytes]:
        """Return what is kept of the job beside its workers' output; ``pods`` are those that it has now."""
        made = {LIVES_FILE: self.lives.lines()}
        if self.fault:
            made[FAULTS_FILE] = self.fault.line()
        present = {str(p["metadata"]["uid"]): p for p in pods}
        was = {u: p for u, (p, _) in self.kept.items()}
        masters = [p for p in {**was, **present}.values() if replica_of(p).type != WORKER]
        logs = [
            data for p in sorted(masters, key=lambda p: str(p["metadata"]["name"])) if (data := self._master_log(p))
        ]
        if logs:
            made[MASTER_LOG] = b"".join(logs)[-MASTER_BYTES:]
        return made

    def _master_log(self, pod: Json) -> bytes | None:
        data = self.cluster.log(pod["metadata"]["name"], None, MASTER_BYTES, MASTER_LINES)
        return data or self.last_read(pod)

    # -- logs that may vanish --------------------------------------------------------------------------------------

    def _keep(self, pods: Sequence[Json]) -> None:
        """Read the ends of the logs of pods that run, those first whose log was read longest ago."""
        now = time.monotonic()
        running = [p for p in pods if _runs(p) and not (self.fault and p["metadata"]["uid"] == self.fault.uid)]
        for pod in sorted(running, key=lambda p: self._read_at.get(str(p["metadata"]["uid"]), 0.0))[:SNAPSHOT_PODS]:
            uid = str(pod["metadata"]["uid"])
            # A pod that is being deleted is read each time: it may be the last one.
            if deleted_at(pod) is None and now - self._read_at.get(uid, float("-inf")) < SNAPSHOT_S:
                continue
            self._read_at[uid] = now
            self._take(pod, self.cluster.log(pod["metadata"]["name"], None, SNAPSHOT_BYTES, SNAPSHOT_LINES))

    def _take(self, pod: Json, data: bytes | None) -> None:
        uid = str(pod["metadata"]["uid"])
        if data:
            self.kept[uid] = (pod, data)

    # -- the disturbance -------------------------------------------------------------------------------------------

    def _done_before(self, obj: Json, workers: Sequence[Json]) -> bool:
        """Take over what an earlier try of this task has begun: its deletion is finished, and never repeated."""
        text = (obj["metadata"].get("annotations") or {}).get(MARK)
        if text is None:
            return False
        fault = _of_mark(text)
        if fault is None:
            self._refused(f"the job's annotation {MARK} says that one was, and cannot be read")
            return True
        try:
            for pod in workers:
                if pod["metadata"]["uid"] == fault.uid and deleted_at(pod) is None:
                    self.cluster.end_pod(fault.pod, fault.uid, GRACE_S)
        except ClusterRefusedError as error:
            self._refused(str(error))
            return True
        self.fault = fault
        # The pod itself may be gone, and with it what it would tell.
        taken = Replica(WORKER, fault.replica_id, fault.rank_index, None, fault.node)
        self.lives.add(fault.uid, PodEvent(fault.t, fault.pod, "deleted", taken))
        self.tell(f"worker pod {fault.pod} was deleted before this task began anew; no other one is")
        return True

    def _maybe_disturb(self, workers: Sequence[Json], at: float) -> None:
        assert self.disturb is not None
        running = [p for p in workers if _runs(p) and deleted_at(p) is None]
        victim = next((p for p in running if _rank(p) == self.disturb.rank_index), None)
        if victim is None:
            return
        others = sorted((p for p in running if p is not victim), key=lambda p: (_rank(p) is None, _rank(p) or 0))
        asked = [victim, *others][:STEP_PODS]
        step = last_step(self.cluster.log(p["metadata"]["name"], None, STEP_BYTES, STEP_LINES) for p in asked)
        since = self.lives.ran_since(victim)
        ran_s = 0.0 if since is None else at - since
        if (step is not None and step >= self.disturb.at_step) or ran_s >= self.disturb.at_latest_s:
            self._delete(victim, step, ran_s)

    def _delete(self, victim: Json, step: int | None, ran_s: float) -> None:
        """Delete one worker's pod, once: first say so on the object, then do it."""
        name, uid, replica = str(victim["metadata"]["name"]), str(victim["metadata"]["uid"]), replica_of(victim)
        log = self.cluster.log(name, None, self.log_bytes)
        self._take(victim, log)
        step = max((s for s in (step, last_step([log])) if s is not None), default=None)
        rank = _rank(victim)
        assert rank is not None
        why = f"a worker said step {step}" if step is not None else f"after {ran_s:.0f} s without a step"
        detail = f"pod {name} deleted, {GRACE_S} s grace: {why}"
        fault = Fault(self._now(), name, uid, rank, replica.id, replica.node, step, detail)
        try:
            self.cluster.annotate(self.kind, self.name, self.uid, {MARK: json.dumps(asdict(fault))})
            ended = self.cluster.end_pod(name, uid, GRACE_S)
        except ClusterRefusedError as error:
            self._refused(str(error))
            return
        if ended is None:
            self._refused(f"pod {name} went by itself just then")
            return
        t = deleted_at(ended) or self._now()
        self.fault = Fault(t, name, uid, rank, replica.id, replica.node, step, detail)
        self.lives.note(victim, "deleted", t)
        self.tell(f"worker pod {name} (rank {rank}, node {replica.node}) is deleted: {why}")
        self._last_words(victim)

    def _refused(self, why: str) -> None:
        self.problem = f"no worker was taken away: {why}"
        self.tell(self.problem)

    def _last_words(self, victim: Json) -> None:
        """Read the log of a pod that is going away until it is gone."""
        until = time.monotonic() + GRACE_S + 2.0
        while time.monotonic() < until:
            try:
                log = self.cluster.log(victim["metadata"]["name"], None, self.log_bytes)
            except FabricHealthError:
                return
            if log is None:
                return
            self._take(victim, log)
            self.cluster.sleep(0.3)

    def _now(self) -> float:
        return time.time() if self.cluster.server_time is None else self.cluster.server_time


def last_step(logs: Iterable[bytes | None]) -> int | None:
    """Return the highest training step that logs tell of, None when there is none. Never raises."""
    steps = [_step(found[1]) for log in logs if log for found in _EVENT.finditer(log)]
    return max((s for s in steps if s is not None), default=None)


def _step(text: bytes) -> int | None:
    try:
        event = json.loads(text)
    except (ValueError, RecursionError):
        return None
    step = event.get("step") if isinstance(event, dict) and event.get("kind") == "step" else None
    return step if type(step) is int and 0 <= step < 1 << 53 else None


def _runs(pod: Mapping[str, Any]) -> bool:
    return bool((pod.get("status") or {}).get("phase") == "Running")


def _rank(pod: Mapping[str, Any]) -> int | None:
    """Return a worker's rank among the job's nodes; where no label says it, the id of one that is no replacement."""
    replica = replica_of(pod)
    return replica.id if replica.rank_index is None else replica.rank_index


def _of_mark(text: Any) -> Fault | None:
    try:
        fault = Fault(**json.loads(text))
    except (TypeError, ValueError, RecursionError):
        return None
    fine = isinstance(fault.t, int | float) and isinstance(fault.pod, str) and isinstance(fault.uid, str)
    return fault if fine else None
