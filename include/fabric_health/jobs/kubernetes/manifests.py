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
from fabric_health.jobs.argv import MODELS, filled, filled_env, uses_models
from fabric_health.jobs.kubernetes.kinds import ELASTIC_JOB, MPI_JOB, POD, VOLCANO_JOB, Kind
from fabric_health.jobs.rank_artefacts import asked_of_ranks, rank_words, room_bytes
from fabric_health.jobs.settings import KubernetesSettings, ModelVolume
from fabric_health.jobs.spec import JobSpec

Json = dict[str, Any]
ARTEFACTS = "/artefacts"
TOOLS = "/opt/fabric-health/tools"
MANAGED_BY = "app.kubernetes.io/managed-by"
OWNER = "fabric-health"
RUN = "fabric-health/run"
OBJECT = "fabric-health/object"
SITE = "fabric-health/site"
SPREAD = "fabric-health/spread"
DEADLINE = "fabric-health/deadline"
# Beside a job's own limits: images pulled, pods ended, logs read.
MARGIN_S = 120
CONTAINER = "job"
# sshd as root, for the images that need it: it changes users, owns terminals and writes an audit record.
_SSHD = ("AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "NET_BIND_SERVICE", "SETGID", "SETUID", "SYS_CHROOT")


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
        container = self._container(self._wrapped(hosts), self._resources())
        pod = self._pod_spec(container, list(self.spec.nodes))
        return {**pod, "activeDeadlineSeconds": self._limit_s}

    def _mpi(self) -> Json:
        n, ns = len(self.spec.nodes), self.settings.namespace
        hosts = tuple(f"{self.name}-worker-{i}.{self.name}.{ns}.svc" for i in range(n))
        home = self.settings.home
        launcher, worker = self._template(self._launcher(hosts)), self._template(self._worker())
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
                    "template": self._template(self._launcher(hosts)),
                },
                {"name": "worker", "replicas": n, "template": self._template(self._worker())},
            ],
        }

    def _elastic(self) -> Json:
        container = self._container(self._wrapped(hosts=self.spec.nodes), self._resources())
        template = self._template(self._pod_spec({**container, "name": "main"}, list(self.spec.nodes), spread=True))
        return {
            "distributionStrategy": "AllreduceStrategy",
            "optimizeMode": "single-job",
            "replicaSpecs": {"worker": {"replicas": max(1, len(self.spec.nodes)), "template": template}},
        }

    # -- pods ------------------------------------------------------------------------------------------------------

    def _launcher(self, hosts: tuple[str, ...]) -> Json:
        small: Json = {"cpu": "1", "memory": "2Gi"}
        limits = {"requests": small, "limits": small}
        return self._pod_spec(self._container(self._wrapped(hosts, wait_for=hosts), limits), [])

    def _worker(self) -> Json:
        s = self.settings
        sshd = ["/usr/sbin/sshd", "-D", "-e", "-p", str(s.ssh_port)]
        if s.run_as_user:
            sshd += ["-f", f"{s.home}/.sshd_config"]
        container = self._container(sshd, self._resources(), capabilities=() if s.run_as_user else _SSHD)
        container["readinessProbe"] = {"tcpSocket": {"port": s.ssh_port}, "periodSeconds": 2, "failureThreshold": 60}
        return self._pod_spec(container, list(self.spec.nodes), spread=True)

    def _template(self, pod: Json) -> Json:
        # Only pods that ask for one of the nodes repel each other: the launcher goes anywhere.
        spread = {SPREAD: "true"} if "podAntiAffinity" in pod.get("affinity", {}) else {}
        return {"metadata": {"labels": {**self._labels(), **spread}}, "spec": pod}

    def _pod_spec(self, container: Json, nodes: list[str], spread: bool = False) -> Json:
        s = self.settings
        user: Json = {}
        if s.run_as_user:
            # A volume of models is large: its files change hands once, not before every pod.
            group = {"fsGroup": s.run_as_user, "fsGroupChangePolicy": "OnRootMismatch"}
            user = {"runAsNonRoot": True, "runAsUser": s.run_as_user, **group}
        pod: Json = {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": 10,
            "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}, **user},
            "tolerations": [_without_none(t.model_dump()) for t in s.tolerations],
            "containers": [container],
            "volumes": [
                {
                    "name": "shm",
                    "emptyDir": {"medium": "Memory", "sizeLimit": f"{self.spec.resources.shared_memory_mib}Mi"},
                },
                {"name": "artefacts", "emptyDir": {}},
                *self._models_volume(),
            ],
        }
        affinity: Json = {}
        if nodes:
            term = {"matchExpressions": [{"key": s.node_selector_key, "operator": "In", "values": sorted(nodes)}]}
            affinity["nodeAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
        if spread:
            affinity["podAntiAffinity"] = {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "topologyKey": "kubernetes.io/hostname",
                        "labelSelector": {"matchLabels": {OBJECT: self.name, SPREAD: "true"}},
                    }
                ]
            }
        optional = {
            "affinity": affinity,
            "serviceAccountName": s.service_account,
            "imagePullSecrets": [{"name": n} for n in s.image_pull_secrets],
            "priorityClassName": s.priority_class,
            "schedulerName": s.scheduler,
            "hostNetwork": s.host_network or None,
            "dnsPolicy": "ClusterFirstWithHostNet" if s.host_network else None,
        }
        return {**pod, **{k: v for k, v in optional.items() if v}}

    def _container(self, command: list[str], limits: Json, capabilities: tuple[str, ...] = ()) -> Json:
        # Pinned memory for RDMA; nothing else beyond what a plain process may do.
        added = sorted({*capabilities, *(("IPC_LOCK",) if self.spec.resources.rdma else ())})
        return {
            "name": CONTAINER,
            "image": self.image,
            "command": command,
            "env": self._env(),
            "resources": limits,
            "terminationMessagePolicy": "FallbackToLogsOnError",
            "securityContext": {
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"], **({"add": added} if added else {})},
            },
            "volumeMounts": [
                {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108
                {"name": "artefacts", "mountPath": ARTEFACTS},
                *self._models_mount(),
            ],
        }

    @property
    def _models(self) -> ModelVolume | None:
        """The volume of models where the job names it. Raises UsageError where the site has none."""
        if not uses_models(self.spec.argv, self.spec.env):
            return None
        if self.settings.models is None:
            raise UsageError(
                f"job {self.spec.name!r} needs {MODELS}, and the site names no volume for models; expected "
                "jobs.kubernetes.models with `claim`, the name of a PersistentVolumeClaim in namespace "
                f"{self.settings.namespace!r} (docs/jobs.md)"
            )
        return self.settings.models

    def _models_volume(self) -> list[Json]:
        models = self._models
        return [{"name": "models", "persistentVolumeClaim": {"claimName": models.claim}}] if models else []

    def _models_mount(self) -> list[Json]:
        models = self._models
        if models is None:
            return []
        below = {"subPath": models.sub_path} if models.sub_path else {}
        return [{"name": "models", "mountPath": models.mount, **below}]

    def _places(self, hosts: tuple[str, ...]) -> dict[str, str]:
        models = self._models
        return {
            "python": "python3",
            "tool": f"{TOOLS}/{self.spec.tool}",
            "artefacts": ARTEFACTS,
            "hosts": ",".join(hosts),
            **({"models": models.mount} if models else {}),
        }

    def _env(self) -> list[Json]:
        filled_in = filled_env(self.spec.env, self._places(self.spec.nodes))
        plain: list[Json] = [{"name": k, "value": v} for k, v in sorted(filled_in.items())]
        refs: list[Json] = [
            {"name": k, "valueFrom": {"secretKeyRef": {"name": secret_name(r.connection), "key": r.field}}}
            for k, r in sorted(self.spec.secrets.items())
        ]
        return [*plain, *refs]

    def _resources(self) -> Json:
        r, s = self.spec.resources, self.settings
        amounts: Json = {
            "cpu": f"{round(r.cpu * 1000)}m",
            # What is written to /dev/shm counts as the container's memory.
            "memory": f"{r.memory_mib + r.shared_memory_mib}Mi",
        }
        if r.gpu:
            amounts[s.gpu_resource] = str(r.gpu)
        if r.rdma:
            amounts[s.rdma_resource] = str(r.rdma)
        return {"requests": amounts, "limits": amounts}

    def _wrapped(self, hosts: tuple[str, ...], wait_for: tuple[str, ...] = ()) -> list[str]:
        places = self._places(hosts)
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


def secret_name(connection: str) -> str:
    """Return the name of the Secret that holds a connection's fields: its id with dashes."""
    return re.sub(r"[^a-z0-9.-]+", "-", connection.lower()).strip("-.")


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


def _without_none(values: Json) -> Json:
    return {k: v for k, v in values.items() if v is not None}
