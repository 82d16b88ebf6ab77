"""The kinds of object a job can be on a cluster, and how each one's state is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

Status = Mapping[str, Any]


class Phase(StrEnum):
    """Where an object stands. ``SUCCEEDED`` is its controller's word only: the result is judged from evidence."""

    PENDING = "pending"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"

    @property
    def final(self) -> bool:
        """True when the object will not change any more."""
        return self in (Phase.SUCCEEDED, Phase.FAILED)


@dataclass(frozen=True)
class State:
    """Phase, with the controller's own words for it."""

    phase: Phase
    said: str = ""


@dataclass(frozen=True)
class Kind:
    """One kind of object. ``group`` is empty for the core API.

    ``pods(name)`` are label selectors that find the pods of an object between them.
    """

    name: str
    group: str
    version: str
    plural: str
    kind: str
    state_of: Callable[[Status], State]
    pods: Callable[[str], tuple[str, ...]]
    # The pod whose log carries the job's frames, by a label; None where every pod is the job's own.
    main_pod: tuple[str, str] | None = None
    install: str = ""

    @property
    def api_version(self) -> str:
        """``kubeflow.org/v2beta1``, ``v1``."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str, name: str | None = None) -> str:
        """Return the path of the objects of this kind in a namespace, or of one of them."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        collection = f"{root}/namespaces/{namespace}/{self.plural}"
        return collection if name is None else f"{collection}/{name}"

    def state(self, obj: Mapping[str, Any]) -> State:
        """Return the state of an object; without a status, as for the first seconds, it is pending."""
        status = obj.get("status")
        return self.state_of(status) if isinstance(status, Mapping) and status else State(Phase.PENDING)


def _pod(status: Status) -> State:
    phases = {"Pending": Phase.PENDING, "Running": Phase.RUNNING, "Succeeded": Phase.SUCCEEDED, "Failed": Phase.FAILED}
    phase = phases.get(str(status.get("phase")), Phase.PENDING)
    return State(phase, _words(status.get("reason"), status.get("message")))


def _volcano(status: Status) -> State:
    state = status.get("state")
    if not isinstance(state, Mapping):
        return State(Phase.PENDING)
    phases = {
        "Pending": Phase.PENDING,
        "Restarting": Phase.PENDING,
        "Running": Phase.RUNNING,
        "Completing": Phase.RUNNING,
        "Terminating": Phase.RUNNING,
        "Aborting": Phase.RUNNING,
        "Completed": Phase.SUCCEEDED,
        "Failed": Phase.FAILED,
        "Aborted": Phase.FAILED,
        "Terminated": Phase.FAILED,
    }
    phase = str(state.get("phase"))
    return State(phases.get(phase, Phase.PENDING), _words(phase, state.get("reason"), state.get("message")))


def _mpi(status: Status) -> State:
    """Conditions in the order of their finality; one counts when its ``status`` is "True"."""
    conditions = status.get("conditions")
    true = {
        str(c.get("type")): c
        for c in (conditions if isinstance(conditions, list) else ())
        if isinstance(c, Mapping) and c.get("status") == "True"
    }
    for name, phase in (
        ("Failed", Phase.FAILED),
        ("Succeeded", Phase.SUCCEEDED),
        ("Suspended", Phase.PENDING),
        ("Restarting", Phase.PENDING),
        ("Running", Phase.RUNNING),
    ):
        if name in true:
            return State(phase, _words(name, true[name].get("reason"), true[name].get("message")))
    return State(Phase.PENDING)


def _elastic(status: Status) -> State:
    """DLRover's word: ``Running`` means that its master runs, and says nothing about workers.

    ``Scaling`` is version 0.3.7's alone, ``Suspended`` came later.
    """
    phases = {
        "Created": Phase.PENDING,
        "Pending": Phase.PENDING,
        "Suspended": Phase.PENDING,
        "Running": Phase.RUNNING,
        "Restarting": Phase.RUNNING,
        "Scaling": Phase.RUNNING,
        "Succeeded": Phase.SUCCEEDED,
        "Failed": Phase.FAILED,
    }
    phase = str(status.get("phase"))
    return State(phases.get(phase, Phase.PENDING), _words(phase))


def _words(*parts: object) -> str:
    return ": ".join(str(p) for p in parts if p)[:500]


POD = Kind("pod", "", "v1", "pods", "Pod", _pod, lambda name: (f"fabric-health/object={name}",))
VOLCANO_JOB = Kind(
    "volcano",
    "batch.volcano.sh",
    "v1alpha1",
    "jobs",
    "Job",
    _volcano,
    lambda name: (f"volcano.sh/job-name={name}",),
    main_pod=("volcano.sh/task-spec", "launcher"),
    install="Volcano",
)
MPI_JOB = Kind(
    "mpijob",
    "kubeflow.org",
    "v2beta1",
    "mpijobs",
    "MPIJob",
    _mpi,
    lambda name: (f"training.kubeflow.org/job-name={name}",),
    main_pod=("training.kubeflow.org/job-role", "launcher"),
    install="Kubeflow's MPI operator",
)
ELASTIC_JOB = Kind(
    "elasticjob",
    "elastic.iml.github.io",
    "v1alpha1",
    "elasticjobs",
    "ElasticJob",
    _elastic,
    # DLRover puts the first on every pod, its documentation names the last; ours may be lost with a template's labels.
    lambda name: (f"elasticjob.dlrover/name={name}", f"fabric-health/object={name}", f"elasticjob-name={name}"),
    install="DLRover's operator",
)
KINDS: Mapping[str, Kind] = {k.name: k for k in (POD, VOLCANO_JOB, MPI_JOB, ELASTIC_JOB)}


def kind_of(manifest: Mapping[str, Any]) -> Kind:
    """Return the kind of a manifest. Raises ValueError that lists the known ones."""
    for kind in KINDS.values():
        if (manifest.get("apiVersion"), manifest.get("kind")) == (kind.api_version, kind.kind):
            return kind
    known = ", ".join(f"{k.kind} ({k.api_version})" for k in KINDS.values())
    raise ValueError(f"kind {manifest.get('kind')!r} ({manifest.get('apiVersion')!r}); known: {known}")
