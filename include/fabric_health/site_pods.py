"""How a site's nodes are reached by pods: the part ``reach.<profile>.kubernetes`` of a site file."""

from __future__ import annotations

import posixpath
import re
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, field_validator, model_validator

# What Kubernetes takes for the name of a namespace, and of a Secret, an account or a class.
Namespace = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")]
KubernetesName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$")]
ImageName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9._:/@-]{0,500}$")]
Capability = Annotated[str, StringConstraints(pattern=r"^[A-Z][A-Z_]{1,30}$")]
# The field by which a pod is pinned to a node whatever its labels are.
NODE_NAME = "metadata.name"
_PATH = re.compile(r"/[\w.+@:/-]*\Z")


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, str_strip_whitespace=True)


class Toleration(_Model):
    """A taint of nodes that our pods may ignore."""

    key: str = Field(min_length=1, max_length=316)
    operator: Literal["Exists", "Equal"] = "Exists"
    value: str | None = None
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None


class ProbePods(_Model):
    """Where and how the pods run that ask nodes. The defaults need no more than ``namespace`` and ``image``."""

    namespace: Namespace = Field(description="where the pods are made; deploy/probe-rbac.yaml gives rights in it")
    image: ImageName = Field(description="image with python3, best by digest (deploy/images/node-probe)")
    image_pull_secrets: tuple[KubernetesName, ...] = ()
    service_account: KubernetesName | None = Field(
        None, description="account of the pods; it needs no rights and is not mounted; default: the namespace's"
    )
    node_selector_key: str = Field(
        NODE_NAME, min_length=1, max_length=316, description="metadata.name, or the node label that holds the address"
    )
    tolerations: tuple[Toleration, ...] = Field(
        (
            Toleration(key="nvidia.com/gpu", effect="NoSchedule"),
            # A cordoned node is one that somebody works on: the one most worth a look.
            Toleration(key="node.kubernetes.io/unschedulable", effect="NoSchedule"),
        ),
        description="taints that the pods may ignore",
    )
    host_paths: tuple[str, ...] = Field(
        ("/",), min_length=1, max_length=64, description="folders of the node that the pod sees, read-only"
    )
    host_network: bool = Field(True, description="the node's network, without which no network device is seen")
    host_pid: bool = Field(False, description="the node's processes; no command needs them")
    privileged: bool = Field(False, description="the node's devices and every capability: firmware tools, NVMe health")
    capabilities: tuple[Capability, ...] = Field((), description="beyond SYS_CHROOT, e.g. SYSLOG for dmesg")
    runtime_class: KubernetesName | None = Field(None, description="runtime class that hands GPUs over, e.g. nvidia")
    selinux_type: str | None = Field(
        None, pattern=r"^[a-z0-9_]{1,64}$", description="e.g. spc_t, where SELinux keeps containers from host files"
    )
    priority_class: KubernetesName | None = None
    start_limit_s: float = Field(
        120, gt=0, le=3600, description="time a pod may take until it runs, beside unit_timeout_s"
    )

    @field_validator("host_paths")
    @classmethod
    def _absolute(cls, paths: tuple[str, ...]) -> tuple[str, ...]:
        for path in paths:
            if not _PATH.match(path) or posixpath.normpath(path) != path:
                raise ValueError(f"{path!r}: expected the absolute path of a folder without `..` or a final slash")
        if len(set(paths)) != len(paths) or ("/" in paths and len(paths) > 1):
            raise ValueError("expected each folder once, and `/` alone: it holds all others")
        return paths

    @model_validator(mode="after")
    def _once(self) -> ProbePods:
        if self.privileged and self.capabilities:
            raise ValueError("capabilities beside `privileged: true`; expected one of them: privileged has them all")
        if "ALL" in self.capabilities:
            raise ValueError("capabilities: ALL; expected single ones, or `privileged: true`")
        return self
