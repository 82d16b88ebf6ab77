"""How states are read per kind, and what keeps a job from running in words a person can act on."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric_health.jobs.kubernetes.kinds import ELASTIC_JOB, KINDS, MPI_JOB, POD, VOLCANO_JOB, Phase, kind_of
from fabric_health.jobs.kubernetes.reasons import first, of_pod, refusal, unschedulable


@pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))
@pytest.mark.parametrize("obj", [{}, {"status": None}, {"status": {}}, {"status": {"conditions": None}}])
def test_without_a_status_an_object_is_pending(kind, obj):
    assert kind.state(obj).phase is Phase.PENDING


@pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))
@given(
    st.dictionaries(
        st.sampled_from(["phase", "state", "conditions", "reason"]),
        st.none()
        | st.text()
        | st.integers()
        | st.lists(st.text() | st.none())
        | st.dictionaries(st.just("phase"), st.text()),
    )
)
def test_no_status_makes_reading_raise_or_succeed(kind, status):
    assert kind.state({"status": status}).phase in (Phase.PENDING, Phase.FAILED, Phase.RUNNING) or status


@pytest.mark.parametrize(
    ("kind", "status", "phase"),
    [
        (POD, {"phase": "Succeeded"}, Phase.SUCCEEDED),
        (POD, {"phase": "Failed", "reason": "Evicted"}, Phase.FAILED),
        (POD, {"phase": "Unknown"}, Phase.PENDING),
        (VOLCANO_JOB, {"state": {"phase": "Completed"}}, Phase.SUCCEEDED),
        (VOLCANO_JOB, {"state": {"phase": "Completing"}}, Phase.RUNNING),
        (VOLCANO_JOB, {"state": {"phase": "Aborted"}}, Phase.FAILED),
        (VOLCANO_JOB, {"state": {"phase": "Terminated"}}, Phase.FAILED),
        (VOLCANO_JOB, {"state": {"phase": "Restarting"}}, Phase.PENDING),
        (ELASTIC_JOB, {"phase": "Scaling"}, Phase.RUNNING),
        (ELASTIC_JOB, {"phase": "Created"}, Phase.PENDING),
        (ELASTIC_JOB, {"phase": "Suspended"}, Phase.PENDING),
        (ELASTIC_JOB, {"phase": "Unheard"}, Phase.PENDING),
        (ELASTIC_JOB, {"phase": "Succeeded"}, Phase.SUCCEEDED),
        (MPI_JOB, {"conditions": [{"type": "Created", "status": "True"}]}, Phase.PENDING),
        (
            MPI_JOB,
            {"conditions": [{"type": "Running", "status": "False"}, {"type": "Succeeded", "status": "True"}]},
            Phase.SUCCEEDED,
        ),
        (
            MPI_JOB,
            {
                "conditions": [
                    {"type": "Running", "status": "True"},
                    {"type": "Failed", "status": "True", "reason": "MPIJobEvicted"},
                ]
            },
            Phase.FAILED,
        ),
    ],
)
def test_states(kind, status, phase):
    assert kind.state({"status": status}).phase is phase


def test_the_kind_of_a_manifest():
    assert kind_of({"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob"}) is MPI_JOB
    with pytest.raises(ValueError, match="known: Pod"):
        kind_of({"apiVersion": "batch/v1", "kind": "Job"})


def test_unschedulable_names_the_resource_and_the_taint():
    said = (
        "0/16 nodes are available: 3 Insufficient nvidia.com/gpu, 12 node(s) didn't match Pod's node "
        "affinity/selector, 1 node(s) had untolerated taint {maintenance: true}."
    )
    told = unschedulable(said)
    assert "not enough nvidia.com/gpu on 3 node(s)" in told
    assert "taint {maintenance: true} is not tolerated" in told
    assert said in told


def waiting(reason: str, message: str = "") -> dict:
    state = {"waiting": {"reason": reason, "message": message}}
    return {
        "metadata": {"name": "p"},
        "status": {"phase": "Pending", "containerStatuses": [{"name": "job", "image": "r/x:1", "state": state}]},
    }


def ended(code: int, reason: str = "Error") -> dict:
    state = {"terminated": {"exitCode": code, "reason": reason}}
    return {"metadata": {"name": "p"}, "status": {"containerStatuses": [{"name": "job", "state": state}]}}


@pytest.mark.parametrize(
    ("pod", "words", "hopeless", "infrastructure"),
    [
        (waiting("ImagePullBackOff", "not found"), "image r/x:1 cannot be pulled (ImagePullBackOff)", True, False),
        (waiting("CreateContainerConfigError", 'secret "s" not found'), 'secret "s" not found', True, False),
        (ended(137, "OOMKilled"), "ran out of memory", True, False),
        (ended(2), "exit 2", True, False),
        (
            {"metadata": {"name": "p"}, "status": {"phase": "Failed", "reason": "Evicted", "message": "low on disk"}},
            "Evicted: low on disk",
            True,
            True,
        ),
        (
            {
                "metadata": {"name": "p"},
                "status": {
                    "conditions": [{"type": "PodScheduled", "status": "False", "message": "1 Insufficient x/y"}]
                },
            },
            "not enough x/y on 1 node(s)",
            False,
            False,
        ),
    ],
)
def test_what_is_wrong_with_a_pod(pod, words, hopeless, infrastructure):
    trouble = of_pod(pod)
    assert words in trouble.text
    assert (trouble.hopeless, trouble.infrastructure) == (hopeless, infrastructure)


def test_a_pod_that_runs_or_just_waits_is_no_trouble():
    assert of_pod(waiting("ContainerCreating")) is None
    assert of_pod(ended(0, "Completed")) is None
    assert of_pod({"metadata": {"name": "p"}}) is None
    assert first([None, of_pod(waiting("ContainerCreating"))]) is None


def test_events_tell_of_pods_that_are_never_made():
    event = {
        "type": "Warning",
        "reason": "FailedCreate",
        "message": 'pods "x" is forbidden: exceeded quota: gpus, requested: requests.nvidia.com/gpu=8, '
        "used: requests.nvidia.com/gpu=8, limited: requests.nvidia.com/gpu=8",
    }
    trouble = of_pod({"metadata": {"name": "job"}}, [event])
    assert "quota gpus is used up: asked for requests.nvidia.com/gpu=8" in trouble.text


def body(message: str) -> str:
    return json.dumps({"kind": "Status", "message": message})


@pytest.mark.parametrize(
    ("status", "message", "words"),
    [
        (
            403,
            'pods is forbidden: User "system:serviceaccount:a:b" cannot create resource "pods" in API group "" in the '
            'namespace "bench"',
            "system:serviceaccount:a:b may not create pods in namespace 'bench'; see deploy/rbac.yaml",
        ),
        (
            403,
            'pods "x" is forbidden: exceeded quota: q, requested: cpu=8, used: cpu=1, limited: cpu=4',
            "quota q is used up: asked for cpu=8, used cpu=1, limit cpu=4",
        ),
        (
            400,
            'admission webhook "validate.kyverno.svc" denied the request: images must come from registry.example',
            "admission webhook validate.kyverno.svc refused the Pod: images must come from registry.example",
        ),
        (401, "Unauthorized", "credentials"),
        (404, 'namespaces "bench" not found', "namespace 'bench' does not exist"),
        (422, "spec.containers: Required value", "invalid: spec.containers"),
        (418, "teapot", "answered 418 to create pods"),
    ],
)
def test_refusals(status, message, words):
    assert words in refusal(status, body(message), "create", POD, "bench")


def test_a_cluster_without_the_kind_says_what_to_install():
    said = refusal(404, "404 page not found", "create", MPI_JOB, "bench")
    assert said == "the cluster has no MPIJob (kubeflow.org/v2beta1); install Kubeflow's MPI operator"


@given(st.integers(100, 599), st.text(max_size=200))
def test_no_answer_makes_a_refusal_raise(status, text):
    assert refusal(status, text, "create", POD, "n")
