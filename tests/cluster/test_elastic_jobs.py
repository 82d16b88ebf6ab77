"""Elastic jobs against a real API server, DLRover played: a worker is taken away, replaced, or never comes back."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from control_plane import ADMIN, WORKER
from elastic_player import MASTER_SAYS
from kubernetes import client

from fabric_health.jobs.kubernetes import manifests
from fabric_health.jobs.kubernetes.api import Cluster
from fabric_health.jobs.kubernetes.backend import KubernetesBackend
from fabric_health.jobs.kubernetes.elastic import problem_of
from fabric_health.jobs.kubernetes.kinds import ELASTIC_JOB, POD
from fabric_health.jobs.spec import Disturbance, JobSpec, JobStatus, Resources

NODES = ("gpu-001", "gpu-002")
# Trains to step 12 and waits there for all workers to be back; a replaced one goes on at 10.
TRAIN = """
import json, os, pathlib, sys, time
rank, again = int(os.environ["NODE_RANK"]), os.environ["NODE_ID"] != os.environ["NODE_RANK"]
back, limit = pathlib.Path(sys.argv[1]), float(sys.argv[2])
def say(kind, **more):
    print("EV " + json.dumps({"t": time.time(), "kind": kind, "node": rank, "rank": rank, **more}), flush=True)
say("resume" if again else "start", step=10 if again else 0)
if again: back.touch()
for step in range(10 if again else 0, 13):
    say("step", step=step, loss=1 / (step + 1)); time.sleep(0.02)
until = time.monotonic() + limit
while not back.exists() and time.monotonic() < until: time.sleep(0.05)
if rank == 1 and not again: time.sleep(60)
for step in range(13, 20):
    say("step", step=step, loss=1 / (step + 1)); time.sleep(0.01)
say("done", step=20)
"""


def quiet(_message: str) -> None:
    return None


def training(tmp_path: Path, limit_s: float = 30.0, **more) -> JobSpec:
    argv = ("{python}", "-c", TRAIN, str(tmp_path / "back"), str(limit_s))
    described = {"nodes": NODES, "family": "elastic", "time_limit_s": 40.0, "disturb": Disturbance(1, at_step=12)}
    return JobSpec("elastic", "self", **{"argv": argv, **described, **more})


def lines(result, name: str) -> list[dict]:
    return [json.loads(line) for line in result.artefacts[name].splitlines()]


def steps_of(result) -> list[dict]:
    return [json.loads(line[3:]) for line in result.stdout.splitlines() if line.startswith("EV ")]


def nothing_left(backend, player) -> None:
    backend.release("elastic")
    player.wait_until(lambda: not player.left())


def test_a_worker_is_taken_away_replaced_and_the_job_finishes(backend, player, plane, tmp_path):
    told: list[str] = []
    before = time.time()
    result = backend.run(training(tmp_path), told.append)
    assert (result.status, result.exit_code, result.truncated) == (JobStatus.EXITED, 0, False), result.reason

    (fault,) = lines(result, "faults.jsonl")
    name = manifests.object_name("site-a", "run-1", "elastic")
    assert (fault["fault"], fault["pod"]) == ("delete-worker", f"{name}-edljob-worker-1")
    assert (fault["node"], fault["rank_index"], fault["step"]) == ("gpu-002", 1, 12)
    assert before - 2 <= fault["t"] <= time.time() + 2

    lives = lines(result, "pods.jsonl")
    assert [e["t"] for e in lives] == sorted(e["t"] for e in lives)
    workers = [e for e in lives if e["replica_type"] == "worker"]
    assert [e["event"] for e in workers if e["replica_id"] == 1] == ["created", "running", "deleted", "gone"]
    (gone,) = [e for e in workers if e["event"] == "deleted"]
    assert gone["t"] == fault["t"]
    replaced = [e for e in workers if e["replica_id"] == 2]
    assert [e["event"] for e in replaced] == ["created", "running", "succeeded"]
    assert {(e["rank_index"], e["relaunch_count"], e["node"]) for e in replaced} == {(1, 1, replaced[-1]["node"])}
    assert {e["pod"] for e in lives if e["replica_type"] == "dlrover-master"} == {f"elasticjob-{name}-dlrover-master"}

    # What the deleted worker said is kept beside what the others said.
    said = steps_of(result)
    assert {(e["rank"], e["kind"]) for e in said} >= {(1, "start"), (1, "resume"), (0, "start"), (0, "done")}
    assert [e["step"] for e in said if e["rank"] == 1 and e["kind"] == "step"][:13] == list(range(13))
    assert b"edljob-worker-1 on gpu-002" in result.artefacts["pods.log"]
    assert result.artefacts["master.log"] == MASTER_SAYS
    assert any("worker-1 (rank 1, node gpu-002) is deleted: a worker said step 12" in t for t in told)
    assert set(result.hosts) <= {*NODES}
    nothing_left(backend, player)


def test_a_job_whose_lost_worker_never_returns_ends_at_its_limit_with_all_it_said(backend, player, tmp_path):
    player.dlrover.relaunches = False
    result = backend.run(training(tmp_path, limit_s=60, time_limit_s=2.5), quiet)
    assert result.status is JobStatus.TIMEOUT, result.reason
    assert len(lines(result, "faults.jsonl")) == 1
    assert {e["rank"] for e in steps_of(result)} == {0, 1}
    assert max(e["step"] for e in steps_of(result)) == 12
    assert not [e for e in lines(result, "pods.jsonl") if e["relaunch_count"]]
    nothing_left(backend, player)


def test_a_job_that_goes_on_without_its_lost_worker_succeeds(backend, player, tmp_path):
    """Its pods have no labels of DLRover's: they are found by ours, and their ranks are told by their names."""
    player.dlrover.relaunches, player.dlrover.labels = False, False
    result = backend.run(training(tmp_path, limit_s=2.5), quiet)
    assert (result.status, result.exit_code) == (JobStatus.EXITED, 0), result.reason
    assert [e["rank"] for e in steps_of(result) if e["kind"] == "done"] == [0]
    assert lines(result, "faults.jsonl")[0]["rank_index"] == 1
    assert {e["replica_type"] for e in lines(result, "pods.jsonl")} == {"worker", "dlrover-master"}
    nothing_left(backend, player)


def test_without_steps_the_time_decides(backend, player):
    source = "import os, time; time.sleep(60 if os.environ['NODE_ID'] == '1' else 3)"
    spec = JobSpec("elastic", "self", ("{python}", "-c", source), nodes=NODES, family="elastic", time_limit_s=30.0)
    result = backend.run(replace(spec, disturb=Disturbance(1, at_step=5, at_latest_s=1.0)), quiet)
    assert result.exit_code == 0, result.reason
    (fault,) = lines(result, "faults.jsonl")
    assert fault["step"] is None
    assert "without a step" in fault["detail"]
    nothing_left(backend, player)


def test_a_task_that_begins_anew_takes_no_second_worker_away(backend, player, plane, namespace, tmp_path):
    spec = training(tmp_path)
    player.dlrover.relaunches = False
    results: list = []
    first = threading.Thread(target=lambda: results.append(backend.run(spec, quiet)))
    first.start()
    marked = player.wait_until(
        lambda: (o := player.an_object(ELASTIC_JOB)) and "fabric-health/disturbed" in str(o) and o
    )
    player.wait_until(lambda: not any("worker-1" in p for p in player.left()))
    player.dlrover.relaunches = True
    told: list[str] = []
    again = KubernetesBackend(Cluster(plane.client(WORKER), namespace), backend.settings, "site-a", "run-1", look_s=0.5)
    result = again.run(spec, told.append)
    first.join(30)
    assert any("was deleted before this task began anew" in t for t in told)
    assert lines(result, "faults.jsonl")[0]["pod"] == lines(results[0], "faults.jsonl")[0]["pod"]
    assert result.exit_code == results[0].exit_code == 0, result.reason
    for ended in (result, results[0]):
        assert [e["pod"][-1] for e in lines(ended, "pods.jsonl") if e["event"] == "deleted"] == ["1"]
    assert marked["metadata"]["name"] == manifests.object_name("site-a", "run-1", "elastic")
    nothing_left(backend, player)


def test_cancelling_in_the_middle_leaves_nothing(backend, player, tmp_path):
    results: list = []
    thread = threading.Thread(target=lambda: results.append(backend.run(training(tmp_path, limit_s=60), quiet)))
    player.dlrover.relaunches = False
    thread.start()
    player.wait_until(lambda: "fabric-health/disturbed" in str(player.an_object(ELASTIC_JOB)))
    backend.cancel("elastic")
    thread.join(30)
    assert results[0].status is JobStatus.CANCELLED
    player.wait_until(lambda: not player.left())


def test_without_the_right_to_it_no_worker_is_taken_away_and_the_job_says_so(
    backend, player, plane, namespace, tmp_path
):
    rbac = client.RbacAuthorizationV1Api(plane.client(ADMIN))
    role = rbac.read_namespaced_role("fabric-health-jobs", namespace)
    for rule in role.rules:
        rule.verbs = [v for v in rule.verbs if v != "patch"]
    rbac.replace_namespaced_role("fabric-health-jobs", namespace, role)
    source = 'import time; print(\'EV {"kind": "step", "step": 12}\', flush=True); time.sleep(2)'
    result = backend.run(training(tmp_path, argv=("{python}", "-c", source)), quiet)
    assert (result.status, result.exit_code) == (JobStatus.EXITED, 0), result.reason
    assert "no worker was taken away" in result.reason
    assert 'may not patch elasticjobs of group "elastic.iml.github.io"' in result.reason
    assert "faults.jsonl" not in result.artefacts
    nothing_left(backend, player)


def test_a_running_master_without_workers_is_no_running_job(backend, player, tmp_path):
    player.dlrover.makes_workers = False
    backend.settings = backend.settings.model_copy(update={"start_limit_s": 2.0})
    result = backend.run(training(tmp_path), quiet)
    assert result.status is JobStatus.NOT_STARTED
    assert "have not been made or do not run yet; no reason is given (the ElasticJob says Running)" in result.reason
    assert result.artefacts["master.log"] == MASTER_SAYS
    player.wait_until(lambda: not player.left())


def test_a_job_that_is_scaling_or_suspended_while_its_workers_run_is_followed_to_its_end(backend, player):
    player.dlrover.phase = "Suspended"
    spec = JobSpec("elastic", "self", ("{python}", "-c", "print(1)"), nodes=NODES, family="elastic", time_limit_s=30.0)
    result = backend.run(spec, quiet)
    assert (result.status, result.exit_code, result.stdout) == (JobStatus.EXITED, 0, "1\n1\n"), result.reason
    nothing_left(backend, player)


def test_what_dlrover_would_silently_make_nothing_of_is_refused_before_it_is_sent(backend, player, monkeypatch):
    spec = JobSpec("elastic", "self", ("{python}", "-c", "print(1)"), nodes=NODES, family="elastic")
    real = manifests.job

    def without_labels(*args):
        job = real(*args)
        del job.manifest["spec"]["replicaSpecs"]["worker"]["template"]["metadata"]
        return job

    monkeypatch.setattr(manifests, "job", without_labels)
    result = backend.run(spec, quiet)
    assert result.status is JobStatus.NOT_STARTED
    assert "template has no metadata.labels: DLRover would start its master, no workers" in result.reason
    assert not player.left()


MODELS = {"claim": "models", "mount": "/srv/models", "sub_path": "fabric-health"}
GPU = Resources(cpu=8, memory_mib=65536, gpu=8, rdma=8, shared_memory_mib=16384)
JOBS = [
    JobSpec("quantise", "self", ("{python}", "{tool}/quantise.py", "--model", "{models}/m"), resources=GPU),
    JobSpec("serve", "self", ("{python}", "{tool}/measure.py", "{models}/m"), nodes=("gpu-001",), resources=GPU),
    JobSpec("train", "self", ("x", "{models}/e"), nodes=NODES, family="elastic", resources=GPU, disturb=Disturbance()),
]


@pytest.mark.parametrize("spec", JOBS, ids=lambda s: s.name)
def test_the_api_server_takes_the_pods_of_model_jobs_as_they_are(backend, settings, namespace, plane, spec):
    described = {**settings.model_dump(exclude_none=True), "models": MODELS, "run_as_user": 1000}
    made = type(settings).model_validate(described)
    job = manifests.job(spec, made, "site-a", "run-1", datetime.now(UTC))
    assert problem_of(job.manifest) == ""
    kept = backend.cluster.create(job.kind, job.manifest)["spec"]
    pod = kept if job.kind is POD else kept["replicaSpecs"]["worker"]["template"]["spec"]
    if job.kind is not POD:
        assert kept == json.loads(json.dumps(job.manifest["spec"]))
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "as-the-controller-makes-it"}, "spec": pod}
        pod = backend.cluster.create(POD, body)["spec"]
    volumes = {v["name"]: v for v in pod["volumes"]}
    assert volumes["models"]["persistentVolumeClaim"] == {"claimName": "models"}
    assert volumes["shm"]["emptyDir"] == {"medium": "Memory", "sizeLimit": "16Gi"}
    container = pod["containers"][0]
    assert {"name": "models", "mountPath": "/srv/models", "subPath": "fabric-health"} in container["volumeMounts"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "8"
    assert pod["securityContext"]["fsGroup"] == 1000
