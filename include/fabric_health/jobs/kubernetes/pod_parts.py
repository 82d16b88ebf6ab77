"""The pods that jobs are made of: container, volumes, placement, and no more rights than a plain process has."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fabric_health.errors import UsageError
from fabric_health.jobs.argv import MODELS, filled_env, uses_models
from fabric_health.jobs.settings import KubernetesSettings, ModelVolume
from fabric_health.jobs.spec import JobSpec

Json = dict[str, Any]
ARTEFACTS = "/artefacts"
TOOLS = "/opt/fabric-health/tools"
SPREAD = "fabric-health/spread"
CONTAINER = "job"
# sshd as root, for the images that need it: it changes users, owns terminals and writes an audit record.
SSHD = ("AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "NET_BIND_SERVICE", "SETGID", "SETUID", "SYS_CHROOT")


@dataclass(frozen=True)
class PodParts:
    """Makes the parts of one job's pods; ``apart`` are the labels of pods that each want a node of their own."""

    spec: JobSpec
    settings: KubernetesSettings
    image: str
    labels: Mapping[str, str]
    apart: Mapping[str, str]

    def template(self, pod: Json) -> Json:
        """Return a pod template with the job's labels."""
        # Only pods that ask for one of the nodes repel each other: the launcher goes anywhere.
        spread = {SPREAD: "true"} if "podAntiAffinity" in pod.get("affinity", {}) else {}
        return {"metadata": {"labels": {**self.labels, **spread}}, "spec": pod}

    def pod_spec(self, container: Json, nodes: list[str], spread: bool = False) -> Json:
        """Return a pod on one of ``nodes``, anywhere when there are none; ``spread``: no two of the job on one node."""
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
                        "labelSelector": {"matchLabels": dict(self.apart)},
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

    def container(self, command: list[str], limits: Json, capabilities: tuple[str, ...] = ()) -> Json:
        """Return the container that runs ``command`` within ``limits``."""
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

    def places(self, hosts: tuple[str, ...]) -> dict[str, str]:
        """Return what the placeholders of the command line stand for in these pods."""
        models = self._models
        return {
            "python": "python3",
            "tool": f"{TOOLS}/{self.spec.tool}",
            "artefacts": ARTEFACTS,
            "hosts": ",".join(hosts),
            **({"models": models.mount} if models else {}),
        }

    def _env(self) -> list[Json]:
        filled_in = filled_env(self.spec.env, self.places(self.spec.nodes))
        plain: list[Json] = [{"name": k, "value": v} for k, v in sorted(filled_in.items())]
        refs: list[Json] = [
            {"name": k, "valueFrom": {"secretKeyRef": {"name": secret_name(r.connection), "key": r.field}}}
            for k, r in sorted(self.spec.secrets.items())
        ]
        return [*plain, *refs]

    def resources(self) -> Json:
        """Return what one node of the job asks for, and may not go beyond."""
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


def secret_name(connection: str) -> str:
    """Return the name of the Secret that holds a connection's fields: its id with dashes."""
    return re.sub(r"[^a-z0-9.-]+", "-", connection.lower()).strip("-.")


def _without_none(values: Json) -> Json:
    return {k: v for k, v in values.items() if v is not None}
