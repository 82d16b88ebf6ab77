"""How a site runs its workloads: the ``jobs`` part of a site file."""

from __future__ import annotations

import posixpath
import re
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from fabric_health.errors import SiteError, settings_error
from fabric_health.site import Identifier, Site
from fabric_health.site_pods import Toleration

# What Kubernetes takes for the name of a volume claim.
_NAME = r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$"
# What Kubernetes takes for the name of a namespace, a service account or a label's value.
_LABEL = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"
# What pods have of their own, and what no volume may hide.
_TAKEN = (
    *("/artefacts", "/bin", "/dev", "/etc", "/lib", "/lib64", "/opt/fabric-health", "/proc", "/run", "/sbin", "/sys"),
    "/usr",
)
_PATH = r"(/[A-Za-z0-9_.+@-]+)+"
_IMAGE = r"^[a-z0-9][a-z0-9._:/@-]{0,500}$"


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, str_strip_whitespace=True)


class ModelVolume(_Model):
    """Where models stay from job to job: a volume claim in the jobs' namespace, written by quantisation jobs."""

    claim: str = Field(pattern=_NAME, description="name of the PersistentVolumeClaim")
    mount: str = Field("/models", description="absolute path at which pods see it")
    sub_path: str | None = Field(None, description="folder within the volume, relative; default: its root")

    @field_validator("mount")
    @classmethod
    def _apart(cls, path: str) -> str:
        if not re.fullmatch(_PATH, path) or posixpath.normpath(path) != path or len(path) > 200:
            raise ValueError(f"{path!r}: expected an absolute path without `..` or a final slash, e.g. /models")
        taken = [t for t in _TAKEN if path == t or path.startswith(f"{t}/") or t.startswith(f"{path}/")]
        if taken:
            raise ValueError(f"{path!r} hides {taken[0]} of the pods; expected a path of its own, e.g. /models")
        return path

    @field_validator("sub_path")
    @classmethod
    def _within(cls, path: str | None) -> str | None:
        if path is None:
            return None
        if not re.fullmatch(_PATH, f"/{path}") or posixpath.normpath(f"/{path}") != f"/{path}" or len(path) > 200:
            raise ValueError(f"{path!r}: expected the relative path of a folder without `..`, e.g. fabric/models")
        return path


class KubernetesSettings(_Model):
    """Where and how jobs run on a Kubernetes cluster. The defaults need no more than ``namespace`` and ``images``."""

    namespace: str = Field(pattern=_LABEL, description="where jobs are made; deploy/rbac.yaml gives rights in it")
    connection: Identifier | None = Field(
        None, description="connection id with extra.kube_config_path and extra.context; default: the pod's own account"
    )
    images: dict[str, str] = Field(description="tool -> image, best by digest (registry/name@sha256:...)")
    service_account: str | None = Field(
        None, pattern=_LABEL, description="account of the workload's pods; it needs no rights; default: the namespace's"
    )
    image_pull_secrets: tuple[str, ...] = ()
    node_selector_key: str = Field(
        "kubernetes.io/hostname", description="node label whose value is the site's name of the node"
    )
    tolerations: tuple[Toleration, ...] = (Toleration(key="nvidia.com/gpu", effect="NoSchedule"),)
    gpu_resource: str = Field("nvidia.com/gpu", description="extended resource of one GPU")
    rdma_resource: str = Field("rdma/hca", description="extended resource of the RDMA devices")
    multi_node: Literal["volcano", "mpijob"] = Field("mpijob", description="what a job of several nodes becomes")
    scheduler: str | None = Field(None, description="scheduler of single pods and MPIJobs; Volcano Jobs use volcano")
    queue: str = Field("default", description="Volcano queue")
    priority_class: str | None = None
    host_network: bool = Field(False, description="pods use the node's network (RoCE without a secondary network)")
    ssh_port: int = Field(22, ge=1, le=65535, description="of MPI workers; with host_network other than 22")
    home: str = Field(
        "/root",
        pattern=r"^/[\w./-]+$",
        max_length=201,
        description="home of the images' user: where MPI's keys are mounted",
    )
    models: ModelVolume | None = Field(
        None, description="volume for the jobs that train, quantise or serve models; such a job is refused without it"
    )
    run_as_user: int | None = Field(None, ge=1, description="numeric user of pods; default: the image's")
    start_limit_s: float = Field(
        900, gt=0, le=86_400, description="time a job may wait for its pods to run, beside its own time limit"
    )
    ttl_s: int = Field(3600, ge=60, le=604_800, description="the cluster deletes a finished job after this time")

    @model_validator(mode="after")
    def _images(self) -> KubernetesSettings:
        for tool, image in self.images.items():
            if not re.match(_IMAGE, image):
                raise ValueError(
                    f"image of {tool!r}: {image!r}; expected registry/name:tag or registry/name@sha256:..."
                )
        if self.host_network and self.multi_node == "volcano" and self.ssh_port == 22:
            raise ValueError("host_network with ssh_port 22: the node's own sshd has that port; expected another one")
        return self


class JobSettings(_Model):
    """How workloads run."""

    backend: Literal["local", "kubernetes"] = "local"
    tools: str = Field("../tools", description="folder of the tools' locked environments, relative to the site file")
    kubernetes: KubernetesSettings | None = None

    @model_validator(mode="after")
    def _described(self) -> JobSettings:
        if self.backend == "kubernetes" and self.kubernetes is None:
            raise ValueError("backend is kubernetes; expected its settings under `kubernetes`")
        return self

    @property
    def in_cluster(self) -> KubernetesSettings:
        """The Kubernetes settings of a site that has them. Raises SiteError otherwise."""
        if self.kubernetes is None:
            raise SiteError("jobs.kubernetes: required for the kubernetes backend")
        return self.kubernetes


def settings(site: Site) -> JobSettings:
    """Return the site's job settings. Raises SiteError naming each key at fault and what was expected."""
    return parse(site.jobs, str(site.path))


def parse(raw: Any, where: str) -> JobSettings:
    """Validate raw job settings; ``where`` names the file for messages. Raises SiteError."""
    try:
        return JobSettings.model_validate(dict(raw))
    except ValidationError as error:
        raise settings_error(error, where, "jobs", "docs/jobs.md") from None
