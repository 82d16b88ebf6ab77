"""Manifests built from descriptions: valid against the schemas, deterministic, and with no more rights than needed."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import jsonschema
import kubernetes_validate
import pytest

from fabric_health.errors import UsageError
from fabric_health.jobs.kubernetes import manifests
from fabric_health.jobs.kubernetes.elastic import problem_of
from fabric_health.jobs.kubernetes.kinds import ELASTIC_JOB, MPI_JOB, POD, VOLCANO_JOB, kind_of
from fabric_health.jobs.settings import KubernetesSettings
from fabric_health.jobs.spec import Disturbance, JobSpec, Resources, SecretReference

sys.path.insert(0, str(Path(__file__).parents[1] / "cluster"))
import crds

NOW = datetime(2026, 11, 30, 3, 0, tzinfo=UTC)
IMAGES = {"nccl-tests": "registry.example.org/nccl@sha256:" + "a" * 64, "elastic": "registry.example.org/dlrover:1"}
GPU = Resources(cpu=16, memory_mib=65536, gpu=8, rdma=8, shared_memory_mib=8192)


def settings(**more) -> KubernetesSettings:
    return KubernetesSettings(namespace="bench", images=IMAGES, **more)


def job(spec: JobSpec, **more) -> manifests.Job:
    return manifests.job(spec, settings(**more), "site-a", "weekly-1", NOW)


ONE = JobSpec(
    "all_reduce:gpu-001",
    "nccl-tests",
    ("all_reduce_perf", "-g", "8", "-J", "{artefacts}/r.json"),
    env={"NCCL_DEBUG": "INFO"},
    secrets={"AWS_SECRET_ACCESS_KEY": SecretReference("fabric_health_s3", "password")},
    nodes=("gpu-001",),
    ranks_per_node=8,
    resources=GPU,
    artefacts=("r.json",),
)
MANY = JobSpec(
    "all_reduce", "nccl-tests", ("mpirun", "--host", "{hosts}", "x"), nodes=("gpu-001", "gpu-002"), resources=GPU
)
ELASTIC = JobSpec("elastic", "elastic", ("dlrover-run", "t.py"), nodes=("gpu-001", "gpu-002"), family="elastic")
ALL = [
    (ONE, {}, POD),
    (MANY, {}, MPI_JOB),
    (MANY, {"run_as_user": 1000, "home": "/home/bench", "ssh_port": 2222, "host_network": True}, MPI_JOB),
    (MANY, {"multi_node": "volcano", "queue": "bench", "priority_class": "low"}, VOLCANO_JOB),
    (ELASTIC, {"service_account": "workload", "image_pull_secrets": ("pull",)}, ELASTIC_JOB),
]


MODELS = {"claim": "models", "mount": "/srv/models", "sub_path": "fabric-health"}
WITH_MODELS = (
    replace(ONE, argv=("{python}", "{tool}/measure.py", "--model", "{models}/tiny"), env={}),
    replace(ONE, argv=("x",), env={"HF_HOME": "{models}/.cache"}),
    replace(MANY, argv=("mpirun", "{rank}", "x", "{models}/tiny")),
    replace(ELASTIC, argv=("{python}", "{tool}/train.py", "--model={models}/tiny")),
)
ALL += [
    (spec, {"models": MODELS, "run_as_user": 1000, "ssh_port": 2222}, k)
    for spec, k in zip(WITH_MODELS, (POD, POD, MPI_JOB, ELASTIC_JOB), strict=True)
]


def pod_specs(built: manifests.Job) -> list[dict]:
    found = []

    def look(value) -> None:
        if isinstance(value, dict):
            if "containers" in value:
                found.append(value)
            for v in value.values():
                look(v)
        elif isinstance(value, list):
            for v in value:
                look(v)

    look(built.manifest)
    return found


@pytest.mark.parametrize(("spec", "more", "kind"), ALL)
@pytest.mark.parametrize("version", ["1.29", "1.37"])
def test_every_manifest_is_valid(spec, more, kind, version):
    built = job(spec, **more)
    assert built.kind is kind_of(built.manifest) is kind
    if kind is not POD:
        jsonschema.validate(built.manifest["spec"], crds.strict(crds.SPECS[kind]))
    for pod in pod_specs(built):
        whole = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": pod}
        kubernetes_validate.validate(whole, version, strict=True)


def test_the_offline_schemas_refuse_what_a_project_does_not_have():
    built = job(MANY)
    built.manifest["spec"]["runPolicy"]["cleanPodPolicie"] = "None"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(built.manifest["spec"], crds.strict(crds.MPI))


@pytest.mark.parametrize(("spec", "more", "kind"), ALL)
def test_pods_have_least_rights(spec, more, kind):
    for pod in pod_specs(job(spec, **more)):
        assert pod["automountServiceAccountToken"] is False
        assert pod["restartPolicy"] == "Never"
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod.get("hostPID") is None
        for container in pod["containers"]:
            assert container["securityContext"]["allowPrivilegeEscalation"] is False
            assert container["securityContext"]["capabilities"]["drop"] == ["ALL"]
            assert "privileged" not in container["securityContext"]
            added = set(container["securityContext"]["capabilities"].get("add", ()))
            if container["command"][0] != "/usr/sbin/sshd" or more.get("run_as_user"):
                assert added <= {"IPC_LOCK"}
        assert not [v for v in pod["volumes"] if "hostPath" in v]


def test_a_pod_is_placed_sized_and_bounded():
    pod = job(ONE).manifest["spec"]
    terms = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert terms == [{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["gpu-001"]}]}]
    container = pod["containers"][0]
    assert container["resources"]["limits"] == {
        "cpu": "16000m",
        "memory": "73728Mi",
        "nvidia.com/gpu": "8",
        "rdma/hca": "8",
    }
    assert container["securityContext"]["capabilities"]["add"] == ["IPC_LOCK"]
    assert pod["volumes"][0] == {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "8192Mi"}}
    assert pod["tolerations"] == [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    assert pod["activeDeadlineSeconds"] == 600 + 900 + manifests.MARGIN_S


def test_secrets_are_references_and_the_command_is_a_list():
    container = job(ONE).manifest["spec"]["containers"][0]
    reference = {"secretKeyRef": {"name": "fabric-health-s3", "key": "password"}}
    assert {"name": "AWS_SECRET_ACCESS_KEY", "valueFrom": reference} in container["env"]
    assert container["command"][:3] == ["python3", "-I", "-c"]
    request = json.loads(container["command"][4])
    assert request["argv"] == ["all_reduce_perf", "-g", "8", "-J", "/artefacts/r.json"]


def test_a_name_follows_from_its_job_alone_and_is_a_dns_label():
    assert job(ONE).manifest == job(ONE).manifest
    names = {
        manifests.object_name(s, r, n)
        for s in ("a", "b")
        for r in ("r1", "r2")
        for n in ("x", "x:1", "X/1", "é", "-", "n" * 300, "")
    }
    assert len(names) == 28
    for name in names:
        assert len(name) <= 40
        assert name.replace("-", "a").isalnum()
        assert name[-1] != "-"


def test_labels_and_deadline_say_whose_it_is_and_until_when():
    metadata = job(ONE).manifest["metadata"]
    assert metadata["labels"][manifests.MANAGED_BY] == "fabric-health"
    assert metadata["labels"][manifests.RUN] == manifests.run_label("site-a", "weekly-1")
    assert metadata["annotations"][manifests.DEADLINE] == "2026-11-30T03:27:00+00:00"
    assert all(len(v) <= 63 for v in metadata["labels"].values())


def test_an_mpi_job_names_its_workers_and_its_launcher_waits_for_them():
    built = job(MANY, ssh_port=2222)
    spec = built.manifest["spec"]
    launcher = spec["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]
    request = json.loads(launcher["containers"][0]["command"][4])
    hosts = [f"{built.name}-worker-{i}.{built.name}.bench.svc" for i in (0, 1)]
    assert request["wait_for"] == hosts
    assert request["argv"][2] == ",".join(hosts)
    assert "affinity" not in launcher
    assert "nvidia.com/gpu" not in launcher["containers"][0]["resources"]["limits"]
    worker = spec["mpiReplicaSpecs"]["Worker"]
    assert worker["replicas"] == 2
    spread = worker["template"]["spec"]["affinity"]["podAntiAffinity"]
    (term,) = spread["requiredDuringSchedulingIgnoredDuringExecution"]
    labels = worker["template"]["metadata"]["labels"]
    assert term["labelSelector"]["matchLabels"].items() <= labels.items()
    assert spec["runPolicy"]["backoffLimit"] == 0


@pytest.mark.parametrize("kind", ["mpijob", "volcano"])
def test_artefacts_of_ranks_are_asked_of_rank_0_and_not_of_the_launcher(kind):
    argv = ("mpirun", "--host", "{hosts}", "{rank}", "all_reduce_perf", "-J", "{artefacts}/r.json")
    spec = replace(MANY, argv=argv, artefacts=("r.json",))
    built = job(spec, multi_node=kind)
    launcher = next(p for p in pod_specs(built) if p["containers"][0]["command"][0] == "python3")
    request = json.loads(launcher["containers"][0]["command"][4])
    assert built.ranks_send
    assert request["artefacts"] == []
    assert request["rank_bytes"] > spec.artefact_max_bytes
    python, _, _, source, asked = request["argv"][3:8]
    assert (python, request["argv"][8:]) == ("python3", ["all_reduce_perf", "-J", "{artefacts}/r.json"])
    compile(source, "rank_wrapper", "exec")
    assert json.loads(asked)["artefacts"] == ["r.json"]
    assert ":" not in request["argv"], "a word of its own it would begin another program of mpirun"


def test_ranks_of_one_pod_write_where_its_own_program_does_and_are_local():
    argv = ("mpirun", "--host", "{hosts}", "{rank}", "all_reduce_perf", "-J", "{artefacts}/r.json")
    built = job(replace(ONE, argv=argv))
    request = json.loads(built.manifest["spec"]["containers"][0]["command"][4])
    assert request["argv"] == ["mpirun", "--host", "localhost", "all_reduce_perf", "-J", "/artefacts/r.json"]
    assert (request["artefacts"], request["rank_bytes"]) == (["r.json"], 0)
    assert not built.ranks_send


def test_a_volcano_job_completes_with_its_launcher_and_fails_with_any_pod():
    spec = job(MANY, multi_node="volcano").manifest["spec"]
    launcher, worker = spec["tasks"]
    assert launcher["policies"] == [{"event": "TaskCompleted", "action": "CompleteJob"}]
    assert spec["policies"] == [{"events": ["PodFailed", "PodEvicted"], "action": "TerminateJob"}]
    assert spec["minAvailable"] == 1 + worker["replicas"] == 3
    assert "--publish-not-ready-addresses" in spec["plugins"]["svc"]


@pytest.mark.parametrize("spec", WITH_MODELS)
@pytest.mark.parametrize("sub_path", ["fabric-health", None])
def test_models_are_on_a_volume_that_every_pod_of_the_job_may_write(spec, sub_path):
    built = job(spec, models={**MODELS, "sub_path": sub_path}, run_as_user=1000, ssh_port=2222)
    pods = pod_specs(built)
    for pod in pods:
        assert {"name": "models", "persistentVolumeClaim": {"claimName": "models"}} in pod["volumes"]
        (mount,) = [m for m in pod["containers"][0]["volumeMounts"] if m["name"] == "models"]
        assert mount == {"name": "models", "mountPath": "/srv/models", **({"subPath": sub_path} if sub_path else {})}
        assert pod["securityContext"]["fsGroup"] == 1000
    assert "{models}" not in json.dumps(built.manifest)
    assert "/srv/models/" in json.dumps(built.manifest)


def test_only_jobs_that_name_models_mount_them():
    for spec in (ONE, MANY, ELASTIC):
        assert '"models"' not in json.dumps(job(spec, models=MODELS).manifest)


@pytest.mark.parametrize("spec", WITH_MODELS)
def test_a_job_that_needs_models_is_refused_by_a_site_without_a_volume_for_them(spec):
    with pytest.raises(UsageError, match=r"needs \{models\}.*jobs\.kubernetes\.models with `claim`"):
        job(spec)


def test_values_of_the_environment_are_filled_as_on_the_other_backend():
    container = job(replace(ONE, env={"OUT": "{artefacts}/x"})).manifest["spec"]["containers"][0]
    assert {"name": "OUT", "value": "/artefacts/x"} in container["env"]


def test_an_elastic_job_is_one_that_dlrover_makes_workers_of():
    job_ = job(replace(ELASTIC, resources=GPU, disturb=Disturbance()))
    worker = job_.manifest["spec"]["replicaSpecs"]["worker"]
    assert problem_of(job_.manifest) == ""
    assert (worker["replicas"], worker["restartCount"]) == (2, 3)
    assert worker["template"]["metadata"]["labels"][manifests.OBJECT] == job_.name
    pod = worker["template"]["spec"]
    assert (pod["restartPolicy"], pod["containers"][0]["name"]) == ("Never", "main")
    (term,) = pod["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    # By the labels that DLRover puts on its pods itself: a schema may prune those of a template.
    assert term["labelSelector"]["matchLabels"] == {
        "elasticjob.dlrover/name": job_.name,
        "elasticjob.dlrover/replica-type": "worker",
    }
    assert pod["volumes"][0] == {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "8192Mi"}}


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (replace(MANY, disturb=Disturbance()), "only an elastic job survives the loss of a worker"),
        (replace(ELASTIC, disturb=Disturbance(2)), "disturb names rank 2 of 2 workers; expected one of 0 to 1"),
    ],
)
def test_a_disturbance_that_cannot_be_made_is_refused(spec, message):
    with pytest.raises(UsageError, match=message):
        job(spec)


def test_a_tool_without_an_image_is_named():
    with pytest.raises(UsageError, match=r"no image for tool 'vllm'; it has: elastic, nccl-tests"):
        job(JobSpec("x", "vllm", ("x",)))
