"""From a job's description to the object that runs it. Pure: the same description gives the same manifest."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cache
from importlib import resources
from typing import Any

from fabric_health.errors import UsageError
from fabric_health.jobs.argv import filled
from fabric_health.jobs.kubernetes import elastic
from fabric_health.jobs.kubernetes.kinds import ELASTIC_JOB, MPI_JOB, POD, VOLCANO_JOB, Kind
from fabric_health.jobs.kubernetes.pod_parts import ARTEFACTS, SPREAD, SSHD, PodParts
from fabric_health.jobs.rank_artefacts import asked_of_ranks, rank_words, room_bytes
from fabric_health.jobs.settings import KubernetesSettings
from fabric_health.jobs.spec import JobSpec

Json = dict[str, Any]
MANAGED_BY = "app.kubernetes.io/managed-by"
OWNER = "fabric-health"
RUN = "fabric-health/run"
OBJECT = "fabric-health/object"
SITE = "fabric-health/site"
DEADLINE = "fabric-health/deadline"
# Beside a job's own limits: images pulled, pods ended, logs read.
MARGIN_S = 120


@dataclass(frozen=True)
class Job:
    """A job on a cluster: its kind, its manifest, and what its log's frames carry.

    ``ranks_send`` says that its artefacts are within the output, put there by rank 0 in a pod of its own.
    """

    kind: Kind
    name: str
    manifest: Json
    nonce: str
    ranks_send: bool = False


def object_name(site: str, run: str, name: str) -> str:
    """Return the object's name: a DNS-1123 label of at most 40 characters that depends on nothing else."""
    digest = hashlib.sha256("\0".join((site, run, name)).encode()).hexdigest()[:10]
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:24].strip("-")
    return f"fh-{slug}-{digest}" if slug else f"fh-{digest}"


def run_label(site: str, run: str) -> str:
    """Return the label value that all objects of a run share."""
    return hashlib.sha256(f"{site}\0{run}".encode()).hexdigest()[:16]


def job(spec: JobSpec, settings: KubernetesSettings, site: str, run: str, now: datetime) -> Job:
    """Return the object that runs ``spec``: a pod, or for several nodes a job of the site's chosen kind.

    Raises UsageError when the site names no image for the tool, or the description cannot be run on a cluster.
    """
    image = settings.images.get(spec.tool)
    if image is None:
        known = ", ".join(sorted(settings.images)) or "none"
        raise UsageError(f"jobs.kubernetes.images has no image for tool {spec.tool!r}; it has: {known}")
    return _Build(spec, settings, site, run, now, image).job()


@dataclass(frozen=True)
class _Build:
    spec: JobSpec
    settings: KubernetesSettings
    site: str
    run: str
    now: datetime
    image: str

    def job(self) -> Job:
        self._refuse_disturbance()
        kind = self._kind()
        spec = {POD: self._pod, MPI_JOB: self._mpi, VOLCANO_JOB: self._volcano, ELASTIC_JOB: self._elastic}[kind]()
        manifest = {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": {
                "name": self.name,
                "namespace": self.settings.namespace,
                "labels": self._labels(),
                "annotations": self._annotations(),
            },
            "spec": spec,
        }
        return Job(kind, self.name, manifest, self.nonce, self._ranks_send)

    def _kind(self) -> Kind:
        if self.spec.family == "elastic":
            return ELASTIC_JOB
        if len(self.spec.nodes) <= 1:
            return POD
        return VOLCANO_JOB if self.settings.multi_node == "volcano" else MPI_JOB

    @property
    def name(self) -> str:
        return object_name(self.site, self.run, self.spec.name)

    @property
    def nonce(self) -> str:
        return hashlib.sha256(f"nonce\0{self.site}\0{self.run}\0{self.spec.name}".encode()).hexdigest()[:16]

    @property
    def _ranks_send(self) -> bool:
        return self._kind() in (MPI_JOB, VOLCANO_JOB) and asked_of_ranks(self.spec)

    @property
    def _limit_s(self) -> int:
        return int(self.spec.time_limit_s + self.settings.start_limit_s) + MARGIN_S

    @property
    def _parts(self) -> PodParts:
        apart = {OBJECT: self.name, SPREAD: "true"}
        if self._kind() is ELASTIC_JOB:
            # DLRover's own labels are on its workers' pods whatever becomes of the template's.
            apart = {elastic.NAME: self.name, elastic.REPLICA_TYPE: elastic.WORKER}
        return PodParts(self.spec, self.settings, self.image, self._labels(), apart)

    def _labels(self) -> Json:
        return {
            MANAGED_BY: OWNER,
            RUN: run_label(self.site, self.run),
            OBJECT: self.name,
            SITE: self.site[:63].strip("-_."),
        }

    def _annotations(self) -> Json:
        until = self.now.timestamp() + self._limit_s
        return {
            DEADLINE: datetime.fromtimestamp(int(until), UTC).isoformat(),
            "fabric-health/run-name": self.run,
            "fabric-health/job-name": self.spec.name,
            "fabric-health/description": _description(self.spec),
        }

    # -- kinds -----------------------------------------------------------------------------------------------------

    def _pod(self) -> Json:
        # A pod's host name is not its node's: mpirun would look for the node's sshd.
        hosts = ("localhost",) if self.spec.nodes else ()
        container = self._parts.container(self._wrapped(hosts), self._parts.resources())
        pod = self._parts.pod_spec(container, list(self.spec.nodes))
        return {**pod, "activeDeadlineSeconds": self._limit_s}

    def _mpi(self) -> Json:
        n, ns = len(self.spec.nodes), self.settings.namespace
        hosts = tuple(f"{self.name}-worker-{i}.{self.name}.{ns}.svc" for i in range(n))
        home = self.settings.home
        launcher, worker = self._parts.template(self._launcher(hosts)), self._parts.template(self._worker())
        return {
            "slotsPerWorker": self.spec.ranks_per_node,
            "runLauncherAsWorker": False,
            "mpiImplementation": "OpenMPI",
            "launcherCreationPolicy": "WaitForWorkersReady",
            "sshAuthMountPath": f"{home}/.ssh",
            "runPolicy": {
                # Pods stay until their logs are read; we delete the object then, and the cluster does in any case.
                "cleanPodPolicy": "None",
                "ttlSecondsAfterFinished": self.settings.ttl_s,
                "activeDeadlineSeconds": self._limit_s,
                "backoffLimit": 0,
            },
            "mpiReplicaSpecs": {
                "Launcher": {"replicas": 1, "restartPolicy": "Never", "template": launcher},
                "Worker": {"replicas": n, "restartPolicy": "Never", "template": worker},
            },
        }

    def _volcano(self) -> Json:
        n = len(self.spec.nodes)
        hosts = tuple(f"{self.name}-worker-{i}.{self.name}" for i in range(n))
        ssh = [f"--ssh-key-file-path={self.settings.home}/.ssh", f"--ssh-port={self.settings.ssh_port}"]
        ended = [{"events": ["PodFailed", "PodEvicted"], "action": "TerminateJob"}]
        return {
            "schedulerName": "volcano",
            "queue": self.settings.queue,
            "minAvailable": n + 1,
            "maxRetry": 1,
            "ttlSecondsAfterFinished": self.settings.ttl_s,
            **({"priorityClassName": self.settings.priority_class} if self.settings.priority_class else {}),
            # Names of pods that are not ready yet must resolve: the launcher waits for the workers' sshd.
            "plugins": {"env": [], "ssh": ssh, "svc": ["--publish-not-ready-addresses", "--inject-hosts-env=false"]},
            "policies": ended,
            "tasks": [
                {
                    "name": "launcher",
                    "replicas": 1,
                    # Workers only serve: the job is complete when its launcher is.
                    "policies": [{"event": "TaskCompleted", "action": "CompleteJob"}],
                    "template": self._parts.template(self._launcher(hosts)),
                },
                {"name": "worker", "replicas": n, "template": self._parts.template(self._worker())},
            ],
        }

    def _elastic(self) -> Json:
        parts, workers = self._parts, max(1, len(self.spec.nodes))
        container = parts.container(self._wrapped(hosts=self.spec.nodes), parts.resources())
        pod = parts.pod_spec({**container, "name": elastic.MAIN}, list(self.spec.nodes), spread=True)
        worker = {"replicas": workers, "restartCount": elastic.RESTARTS, "template": parts.template(pod)}
        return {
            "distributionStrategy": "AllreduceStrategy",
            "optimizeMode": "single-job",
            "replicaSpecs": {elastic.WORKER: worker},
        }

    def _refuse_disturbance(self) -> None:
        """Raise UsageError where there is no worker that could be taken away."""
        asked, workers = self.spec.disturb, max(1, len(self.spec.nodes))
        if asked is None:
            return
        if self.spec.family != "elastic":
            raise UsageError(
                f"job {self.spec.name!r}: only an elastic job survives the loss of a worker; expected family `elastic` "
                "or no `disturb`"
            )
        if asked.rank_index >= workers:
            raise UsageError(
                f"job {self.spec.name!r}: disturb names rank {asked.rank_index} of {workers} workers; expected one "
                f"of 0 to {workers - 1}"
            )

    # -- pods ------------------------------------------------------------------------------------------------------

    def _launcher(self, hosts: tuple[str, ...]) -> Json:
        small: Json = {"cpu": "1", "memory": "2Gi"}
        limits = {"requests": small, "limits": small}
        return self._parts.pod_spec(self._parts.container(self._wrapped(hosts, wait_for=hosts), limits), [])

    def _worker(self) -> Json:
        s = self.settings
        sshd = ["/usr/sbin/sshd", "-D", "-e", "-p", str(s.ssh_port)]
        if s.run_as_user:
            sshd += ["-f", f"{s.home}/.sshd_config"]
        container = self._parts.container(sshd, self._parts.resources(), capabilities=() if s.run_as_user else SSHD)
        container["readinessProbe"] = {"tcpSocket": {"port": s.ssh_port}, "periodSeconds": 2, "failureThreshold": 60}
        return self._parts.pod_spec(container, list(self.spec.nodes), spread=True)

    def _wrapped(self, hosts: tuple[str, ...], wait_for: tuple[str, ...] = ()) -> list[str]:
        places = self._parts.places(hosts)
        apart = self._ranks_send
        request = {
            "nonce": self.nonce,
            "argv": filled(self.spec.argv, places, rank_words(self.spec, self.nonce) if apart else ()),
            "time_limit_s": self.spec.time_limit_s,
            "output_max_bytes": self.spec.output_max_bytes,
            "artefact_folder": ARTEFACTS,
            "artefacts": [] if apart else list(self.spec.artefacts),
            "rank_bytes": room_bytes(self.spec) if apart else 0,
            "artefact_max_bytes": self.spec.artefact_max_bytes,
            "wait_for": list(wait_for),
            "wait_port": self.settings.ssh_port,
            "wait_limit_s": min(300.0, self.settings.start_limit_s),
        }
        return ["python3", "-I", "-c", _wrapper(), json.dumps(request)]


def fingerprint_of(obj: Mapping[str, Any]) -> str | None:
    """Return the hash of the description that an object was made from, None when it is not ours."""
    metadata = obj.get("metadata") or {}
    annotations = metadata.get("annotations") or {}
    value = annotations.get("fabric-health/description")
    return value if isinstance(value, str) else None


def description_of(manifest: Mapping[str, Any]) -> str:
    """Return a hash of a manifest that was not made from a job's description."""
    return hashlib.sha256(json.dumps(manifest, sort_keys=True, default=str).encode()).hexdigest()


@cache
def _wrapper() -> str:
    return resources.files("fabric_health.jobs.kubernetes").joinpath("wrapper.py").read_text(encoding="utf-8")


def _description(spec: JobSpec) -> str:
    return hashlib.sha256(json.dumps(asdict(spec), sort_keys=True, default=str).encode()).hexdigest()
