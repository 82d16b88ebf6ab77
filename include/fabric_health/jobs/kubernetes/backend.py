"""The Kubernetes backend: makes the object, follows it to its end, reads its logs, and deletes it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from fabric_health.connections import ConnectionSource
from fabric_health.errors import UsageError
from fabric_health.jobs.kubernetes import elastic, manifests
from fabric_health.jobs.kubernetes.api import Cluster, ClusterAwayError, ClusterRefusedError
from fabric_health.jobs.kubernetes.framed_log import FramedLog, read_log
from fabric_health.jobs.kubernetes.kinds import ELASTIC_JOB, KINDS, Kind, Phase, State
from fabric_health.jobs.kubernetes.manifests import Job
from fabric_health.jobs.kubernetes.outcome import Seen, result_of, split_pods
from fabric_health.jobs.kubernetes.reasons import IMAGE_PATIENCE_S, Trouble, first, of_pod
from fabric_health.jobs.kubernetes.workers import FOLLOW_S, Workers
from fabric_health.jobs.rank_artefacts import room_bytes, take_out
from fabric_health.jobs.settings import KubernetesSettings
from fabric_health.jobs.spec import JobResult, JobSpec, JobStatus

log = logging.getLogger(__name__)
Tell = Callable[[str], None]
Json = dict[str, Any]
LOOK_S = 10.0
LEAST_S = 0.2
GONE_S = 60.0
LOG_TRIES = 3
# Other pods' logs are kept for a person who looks for the cause, not for parsing: the end of each.
OTHER_LOG_BYTES = 32 << 10
OTHER_LOGS_BYTES = 4 << 20
# Frames, stderr heads and base64 add to what the job said.
LOG_SLACK = 1 << 20


class _OverError(Exception):
    """The job is over without a log to judge: how, and why."""

    def __init__(self, status: JobStatus, why: str) -> None:
        super().__init__(why)
        self.status = status


@dataclass
class KubernetesBackend:
    """Runs the jobs of ``run_name`` in the site's namespace (see :class:`~fabric_health.jobs.backend.Backend`).

    A job's object has a name that follows from site, run and job alone, so a restarted task finds it; one that is not
    ours is left alone. An object outlives neither its deadline (the sweep deletes it) nor its time to live.
    Of an elastic job the lives of its pods are kept (``pods.jsonl``), the log of DLRover's master (``master.log``), and
    the worker that was taken away from it (``faults.jsonl``).
    """

    cluster: Cluster
    settings: KubernetesSettings
    site: str
    run_name: str
    look_s: float = LOOK_S
    image_patience_s: float = IMAGE_PATIENCE_S
    cancelled: set[str] = field(default_factory=set, repr=False)
    _kinds: dict[str, Kind] = field(default_factory=dict, repr=False)

    @classmethod
    def open(
        cls, settings: KubernetesSettings, *, site: str, run: str, connections: ConnectionSource
    ) -> KubernetesBackend:
        """Connect to the site's cluster. Raises ConnectionSettingError."""
        return cls(Cluster.connect(settings.connection, settings.namespace, connections), settings, site, run)

    def run(self, spec: JobSpec, tell: Tell) -> JobResult:
        """Run a job to its end and return its result, judged from its log."""
        asked_at = datetime.now(UTC)
        self.cancelled.discard(spec.name)
        try:
            job = manifests.job(spec, self.settings, self.site, self.run_name, asked_at)
            self._kinds[spec.name] = job.kind
            obj = make_or_adopt(self.cluster, job, tell)
        except (UsageError, ClusterRefusedError, ClusterAwayError) as error:
            return _empty(spec, JobStatus.NOT_STARTED, asked_at, str(error))
        except BaseException:
            self.cancel(spec.name)
            raise
        try:
            return _Following(self, spec, job, str(obj["metadata"]["uid"]), tell, asked_at).to_end(obj)
        except (ClusterRefusedError, ClusterAwayError) as error:
            return _empty(spec, JobStatus.LOST, asked_at, str(error))
        except BaseException:
            self.cancel(spec.name)
            raise

    def cancel(self, name: str) -> None:
        """Delete the job's object, and with it its pods."""
        self.cancelled.add(name)
        kinds = [self._kinds[name]] if name in self._kinds else list(KINDS.values())
        object_name = manifests.object_name(self.site, self.run_name, name)
        for kind in kinds:
            try:
                self.cluster.delete(kind, object_name)
            except ClusterRefusedError:
                continue  # a kind that the cluster does not have, or that we have no right to, has no object of ours
            except ClusterAwayError as error:
                log.warning("%s %s is not deleted, the sweep will do it: %s", kind.kind, object_name, error)
                return

    def release(self, name: str) -> None:
        """Delete what is left of the job."""
        self.cancel(name)


def make_or_adopt(cluster: Cluster, job: Job, tell: Tell) -> Json:
    """Create the job's object, or return the one of the same name when it is this very job of ours.

    One that is being deleted, or that has another description, makes room first. Raises UsageError for a manifest that
    its controller would silently make nothing of, ClusterRefusedError when the cluster refuses, or when the name is
    taken by an object that is not ours.
    """
    if problem := elastic.problem_of(job.manifest):
        raise UsageError(problem)
    until = time.monotonic() + GONE_S
    while True:
        try:
            return cluster.create(job.kind, job.manifest)
        except ClusterRefusedError as error:
            if error.status != 409:
                raise
        existing = cluster.get(job.kind, job.name)
        if existing is None:
            continue
        metadata = existing["metadata"]
        if not is_ours(existing, job):
            raise ClusterRefusedError(
                409,
                f"{job.kind.kind} {job.name} exists in namespace {cluster.namespace!r} and is not ours (its labels "
                "differ); it is left alone: delete it, or find out who made it",
            )
        leaving = bool(metadata.get("deletionTimestamp"))
        if not leaving and manifests.fingerprint_of(existing) == manifests.fingerprint_of(job.manifest):
            tell(f"{job.kind.kind} {job.name} is there already; following it")
            return existing
        if not leaving:
            tell(f"{job.kind.kind} {job.name} is there with another description; it is replaced")
            cluster.delete(job.kind, job.name, metadata["uid"])
        if time.monotonic() >= until:
            raise ClusterRefusedError(409, f"{job.kind.kind} {job.name} is being deleted and does not go")
        cluster.sleep(0.5)


def is_ours(obj: Json, job: Job) -> bool:
    """Return whether an object carries the labels that this job's object has."""
    labels = obj["metadata"].get("labels") or {}
    wanted = job.manifest["metadata"]["labels"]
    return all(labels.get(k) == v for k, v in wanted.items())


@dataclass
class _Following:
    """Follows one object to its end."""

    backend: KubernetesBackend
    spec: JobSpec
    job: Job
    uid: str
    tell: Tell
    asked_at: datetime
    told: str = ""
    hopeless_since: float | None = None
    looked_at: float = float("-inf")
    workers: Workers | None = None

    def __post_init__(self) -> None:
        if self.job.kind.name == ELASTIC_JOB.name:
            self.workers = Workers(
                self.cluster, self.job.kind, self.job.name, self.uid, self.spec.disturb, self.tell, self._log_bytes()
            )

    @property
    def cluster(self) -> Cluster:
        return self.backend.cluster

    def to_end(self, obj: Json) -> JobResult:
        deadline = deadline_of(obj) or self.asked_at.timestamp() + self.spec.time_limit_s
        start_by = deadline - manifests.MARGIN_S - self.spec.time_limit_s
        try:
            while True:
                phase = self._phase(obj)
                if phase.final:
                    return self._result(obj)
                now = time.time()
                if now >= deadline:
                    return self._stopped(obj, JobStatus.TIMEOUT, "the job's deadline passed; it was deleted")
                if phase is Phase.PENDING:
                    self._pending(now >= start_by, self.job.kind.state(obj).said)
                self._wait(obj, deadline - now)
                obj = self._again()
        except _OverError as over:
            seen, why = self._seen(obj), str(over)
            if over.status is JobStatus.NOT_STARTED:
                self.cluster.delete(self.job.kind, self.job.name, self.uid)
            return result_of(self.spec, self.job.kind, seen, over.status, why)

    def _phase(self, obj: Json) -> Phase:
        """Return where the job stands; an elastic one of which no worker ever ran is pending, whatever is said."""
        phase = self.job.kind.state(obj).phase
        if self.workers is None:
            return phase
        self.workers.look(obj)
        return Phase.PENDING if phase is Phase.RUNNING and not self.workers.ran else phase

    def _again(self) -> Json:
        obj = self.cluster.get(self.job.kind, self.job.name)
        if obj is None:
            raise self._gone("was deleted")
        if obj["metadata"]["uid"] != self.uid:
            raise self._gone("was replaced by another one")
        if obj["metadata"].get("deletionTimestamp"):
            raise self._gone("is being deleted")
        return obj

    def _gone(self, how: str) -> _OverError:
        if self.spec.name in self.backend.cancelled:
            return _OverError(JobStatus.CANCELLED, "cancelled")
        return _OverError(JobStatus.LOST, f"{self.job.kind.kind} {self.job.name} {how} while it ran, and not by us")

    def _wait(self, obj: Json, left_s: float) -> None:
        version = obj["metadata"].get("resourceVersion")
        look_s = self.backend.look_s
        if self.workers and self.workers.waits_to_disturb:
            look_s = min(look_s, FOLLOW_S)
        timeout_s = max(0.2, min(look_s, left_s))
        began = time.monotonic()
        for _ in self.cluster.changes(self.job.kind, self.job.name, version, timeout_s):
            break
        if (early := LEAST_S - (time.monotonic() - began)) > 0:
            self.cluster.sleep(early)  # a watch that ends at once must not become a storm of reads

    def _pending(self, too_long: bool, said: str) -> None:
        """Say why a job waits, and give up when it has no hope or has waited long enough."""
        now = time.monotonic()
        if now - self.looked_at < self.backend.look_s and not too_long:
            return
        self.looked_at = now
        trouble = self._trouble()
        word = f" (the {self.job.kind.kind} says {said})" if said and self.workers else ""
        text = trouble.text if trouble else f"its pods have not been made or do not run yet; no reason is given{word}"
        if text != self.told and trouble:
            self.told = text
            self.tell(f"{self.spec.name} waits: {text}")
        self.hopeless_since = (self.hopeless_since or now) if trouble and trouble.hopeless else None
        hopeless = self.hopeless_since is not None and now - self.hopeless_since >= self.backend.image_patience_s
        if hopeless or too_long:
            raise _OverError(JobStatus.NOT_STARTED, text)

    def _trouble(self) -> Trouble | None:
        pods = self._pods()
        found = first(of_pod(p) for p in pods)
        if found is not None:
            return found
        names = [self.job.name, *(p["metadata"]["name"] for p in pods if _waits(p))][:4]
        return first(of_pod({"metadata": {"name": n}}, self.cluster.events(n)) for n in names)

    def _stopped(self, obj: Json, status: JobStatus, why: str) -> JobResult:
        result = result_of(self.spec, self.job.kind, self._seen(obj), status, why)
        self.cluster.delete(self.job.kind, self.job.name, self.uid)
        return result

    def _result(self, obj: Json) -> JobResult:
        return result_of(self.spec, self.job.kind, self._seen(obj))

    def _pods(self) -> list[Json]:
        return self.cluster.pods_of(self.job.kind, self.job.name)

    def _seen(self, obj: Json) -> Seen:
        pods, state = self._pods(), self.job.kind.state(obj)
        main, others = split_pods(self.job.kind, pods)
        if self.workers:
            return self._seen_elastic(self.workers, state, pods, main)
        logs = [self._log(p) for p in main]
        said = self._other_logs([(p, None) for p in others])
        return Seen(state, pods, [log for log in logs if log], said, self.asked_at)

    def _seen_elastic(self, workers: Workers, state: State, pods: list[Json], main: list[Json]) -> Seen:
        """Return what was seen of an elastic job: judged by the newest pod of each rank, said by all of them."""
        deciding, replaced = elastic.newest_of_ranks(main)
        gone = workers.gone(pods)
        earlier = [read_log(data, self.job.nonce) for _, data in gone]
        earlier += [log for p in replaced if (log := self._log(p, 1))]
        logs = [log for p in deciding if (log := self._log(p, 1 if p["status"].get("phase") == "Running" else None))]
        return Seen(
            state,
            pods,
            logs,
            self._other_logs(gone),
            self.asked_at,
            earlier,
            workers.artefacts(pods),
            workers.problem or self._undisturbed(workers),
        )

    @staticmethod
    def _undisturbed(workers: Workers) -> str:
        return "no worker was taken away: the job ended before that" if workers.waits_to_disturb else ""

    def _log_bytes(self) -> int:
        spec = self.spec
        limit = 2 * spec.output_max_bytes * 2 + len(spec.artefacts) * spec.artefact_max_bytes * 3 // 2 + LOG_SLACK
        return limit + (room_bytes(spec) if self.job.ranks_send else 0)

    def _log(self, pod: Json, tries: int | None = None) -> FramedLog | None:
        limit = self._log_bytes()
        log: FramedLog | None = None
        for attempt in range(tries or LOG_TRIES):
            if attempt:
                self.cluster.sleep(0.5 * attempt)  # a kubelet may need a moment to have the last lines
            data = self.cluster.log(pod["metadata"]["name"], None, limit)
            if data is None and self.workers:
                data = self.workers.last_read(pod)
            log = None if data is None else read_log(data, self.job.nonce)
            if log and log.whole:
                break
        return self._with_ranks(log) if log and self.job.ranks_send else log

    def _with_ranks(self, log: FramedLog) -> FramedLog:
        """Return a log with the artefacts that rank 0 sent through the output, and the output without them."""
        taken = take_out(log.stdout, self.spec, self.job.nonce)
        reasons = (log.reason, taken.cut, *taken.missing)
        return replace(
            log,
            stdout=taken.stdout,
            artefacts={**log.artefacts, **taken.artefacts},
            reason="; ".join(r for r in reasons if r),
            truncated=log.truncated or bool(taken.cut),
        )

    def _other_logs(self, pods: Sequence[tuple[Json, bytes | None]]) -> bytes:
        """Return the beginnings of other pods' logs, failed ones first, bounded in all; of gone ones what was read."""
        kept: list[bytes] = []
        size = 0
        ordered = sorted(pods, key=lambda p: (p[0].get("status") or {}).get("phase") != "Failed")
        for i, (pod, read) in enumerate(ordered):
            if size >= OTHER_LOGS_BYTES or i >= OTHER_LOGS_BYTES // OTHER_LOG_BYTES:
                kept.append(f"=== {len(pods) - i} more pods, not kept ===\n".encode())
                break
            name = pod["metadata"]["name"]
            data = self.cluster.log(name, None, OTHER_LOG_BYTES) if read is None else read[-OTHER_LOG_BYTES:]
            said = b"(no log: rotated away, or the pod never ran)\n" if data is None else data
            kept.append(f"=== pod {name} on {(pod.get('spec') or {}).get('nodeName')} ===\n".encode() + said)
            size += len(kept[-1])
        return b"".join(kept)


def deadline_of(obj: Json) -> float | None:
    """Return the deadline that an object carries, seconds since 1970."""
    text = (obj["metadata"].get("annotations") or {}).get(manifests.DEADLINE)
    try:
        return datetime.fromisoformat(str(text)).timestamp()
    except (TypeError, ValueError):
        return None


def _waits(pod: Json) -> bool:
    return bool((pod.get("status") or {}).get("phase", "Pending") == "Pending")


def _empty(spec: JobSpec, status: JobStatus, asked_at: datetime, why: str) -> JobResult:
    return JobResult(spec.name, status, None, "", "", asked_at, datetime.now(UTC), why, truncated=True)
