"""From what is asked of a node to the pod that asks it. Pure: the same request gives the same manifest.

The pod is as weak as its site allows (docs/decisions/0011): one container, the node's root read-only beneath ``/host``,
and of all capabilities the one that lets the probe make that root its own.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from fabric_health.jobs.kubernetes.manifests import DEADLINE, MANAGED_BY, OBJECT, OWNER
from fabric_health.reach.frames import script
from fabric_health.reach.request import UnitRequest
from fabric_health.site import Node
from fabric_health.site_pods import NODE_NAME, ProbePods

Json = dict[str, Any]
CONTAINER = "probe"
HOST = "/host"
COLLECTION = "fabric-health/collection"
# What the kernel takes for one argument of a program, less the last byte.
MAX_SCRIPT_BYTES = (128 << 10) - 1
# A pod that is over its time has been read and deleted by then; one that nobody reads any more ends itself.
MARGIN_S = 60
# The probe, and one tool at a time, a fabric's two: most take 30 MiB, nvidia-smi and journalctl some hundred.
REQUESTS: Mapping[str, str] = {"cpu": "10m", "memory": "64Mi"}
LIMITS: Mapping[str, str] = {"cpu": "1", "memory": "1Gi"}


@dataclass(frozen=True)
class ProbePod:
    """One pod to be: ``deadline_s`` is the probe's own limit on all commands, ``limit_s`` ours on the running pod."""

    request: UnitRequest
    pods: ProbePods
    collection: str
    nonce: str
    deadline_s: float
    now: datetime

    @property
    def name(self) -> str:
        """A name that no other pod has: of the unit, for people, and of the nonce."""
        slug = re.sub(r"[^a-z0-9]+", "-", self.request.unit.name.lower()).strip("-")[:30].strip("-")
        return f"fh-probe-{slug}-{self.nonce}" if slug else f"fh-probe-{self.nonce}"

    @property
    def script(self) -> str:
        """The program that the pod runs, whole and readable in the pod's description."""
        asked = self.request
        return script(asked.commands, self.deadline_s, self.nonce, HOST, at_once=asked.side_by_side).decode("utf-8")

    def manifest(self) -> Json:
        """Return the pod's manifest."""
        limit_s = self.request.unit.reach.unit_timeout_s
        until = self.now + timedelta(seconds=math.ceil(self.pods.start_limit_s + limit_s) + MARGIN_S)
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": self.name,
                "namespace": self.pods.namespace,
                "labels": {MANAGED_BY: OWNER, COLLECTION: self.collection, OBJECT: self.name},
                "annotations": {
                    DEADLINE: until.astimezone(UTC).isoformat(timespec="seconds"),
                    "fabric-health/unit": self.request.unit.name,
                    "fabric-health/check": self.request.check,
                },
            },
            "spec": {**self._spec(), "activeDeadlineSeconds": math.ceil(limit_s) + MARGIN_S},
        }

    def _spec(self) -> Json:
        p = self.pods
        optional = {
            "hostNetwork": p.host_network or None,
            "hostPID": p.host_pid or None,
            "serviceAccountName": p.service_account,
            "imagePullSecrets": [{"name": n} for n in p.image_pull_secrets],
            "priorityClassName": p.priority_class,
            "runtimeClassName": p.runtime_class if self._gpus else None,
        }
        return {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": 5,
            # No name is looked up; the cluster's own name server must not matter to a probe.
            "dnsPolicy": "Default",
            "securityContext": {
                "seccompProfile": {"type": "RuntimeDefault"},
                **({"seLinuxOptions": {"type": p.selinux_type}} if p.selinux_type else {}),
            },
            "tolerations": [t.model_dump(exclude_none=True) for t in p.tolerations],
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": self._only_here()}},
            "containers": [self._container()],
            "volumes": [
                # Of a type: a folder that the node lacks is said, never made.
                {"name": f"host-{i}", "hostPath": {"path": path, "type": "Directory"}}
                for i, path in enumerate(p.host_paths)
            ],
            **{k: v for k, v in optional.items() if v},
        }

    def _only_here(self) -> Json:
        # Left to the scheduler, which says why it cannot place a pod; a pod with a node's name set says nothing and
        # passes over taints and room. By the node's name the scheduler looks at that node alone (from 1.24 on).
        key = self.pods.node_selector_key
        asked = [{"key": key, "operator": "In", "values": [self.request.unit.address]}]
        return {"nodeSelectorTerms": [{"matchFields" if key == NODE_NAME else "matchExpressions": asked}]}

    @property
    def _gpus(self) -> bool:
        unit = self.request.unit
        return isinstance(unit, Node) and unit.sku.gpus > 0

    def _container(self) -> Json:
        env = {"SYSTEMD_IGNORE_CHROOT": "1"}
        if self._gpus:
            # NVIDIA's container runtime hands over the GPUs' devices for this; no GPU is taken from a job.
            env |= {"NVIDIA_VISIBLE_DEVICES": "all", "NVIDIA_DRIVER_CAPABILITIES": "utility"}
        return {
            "name": CONTAINER,
            "image": self.pods.image,
            "command": ["python3", "-I", "-c", self.script],
            "env": [{"name": k, "value": v} for k, v in sorted(env.items())],
            "resources": {"requests": dict(REQUESTS), "limits": dict(LIMITS)},
            "securityContext": self._security(),
            "volumeMounts": [
                # With what is mounted beneath it read-only too, where the cluster knows how (1.30).
                {
                    "name": f"host-{i}",
                    "mountPath": HOST if path == "/" else HOST + path,
                    "readOnly": True,
                    "recursiveReadOnly": "IfPossible",
                }
                for i, path in enumerate(self.pods.host_paths)
            ],
        }

    def _security(self) -> Json:
        security: Json = {"runAsUser": 0, "runAsGroup": 0, "readOnlyRootFilesystem": True}
        if self.pods.privileged:
            return {**security, "privileged": True}
        added = sorted({"SYS_CHROOT", *self.pods.capabilities})
        return {
            **security,
            "privileged": False,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"], "add": added},
        }
