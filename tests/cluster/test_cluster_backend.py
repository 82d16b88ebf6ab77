"""The Kubernetes backend against a real API server: every end a job can have, and nothing left behind."""

from __future__ import annotations

import base64
import json
import threading
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from control_plane import ADMIN, NOBODY, WORKER
from kubernetes import client

from fabric_health.jobs.backend import run_all
from fabric_health.jobs.kubernetes import manifests
from fabric_health.jobs.kubernetes.api import Cluster
from fabric_health.jobs.kubernetes.backend import KubernetesBackend
from fabric_health.jobs.kubernetes.kinds import ELASTIC_JOB, MPI_JOB, POD, VOLCANO_JOB
from fabric_health.jobs.kubernetes.sweep import sweep
from fabric_health.jobs.spec import JobSpec, JobStatus

KINDS_OF = {"pod": POD, "mpijob": MPI_JOB, "volcano": VOLCANO_JOB, "elasticjob": ELASTIC_JOB}


def quiet(_message: str) -> None:
    return None


def python(source: str, *, nodes: tuple[str, ...] = ("gpu-001",), **more) -> JobSpec:
    argv = ("{python}", "-c", source, "{artefacts}", "{hosts}")
    return JobSpec("job", "self", argv, nodes=nodes, **{"time_limit_s": 30.0, **more})


def spec_of(kind: str, source: str, **more) -> JobSpec:
    if kind == "pod":
        return python(source, **more)
    return python(source, nodes=("gpu-001", "gpu-002"), family="elastic" if kind == "elasticjob" else "mpi", **more)


def chosen(backend: KubernetesBackend, kind: str) -> KubernetesBackend:
    if kind == "volcano":
        backend.settings = backend.settings.model_copy(update={"multi_node": "volcano"})
    return backend


def in_background(backend: KubernetesBackend, spec: JobSpec, told: list[str] | None = None):
    results: list = []
    tell = quiet if told is None else told.append
    thread = threading.Thread(target=lambda: results.append(backend.run(spec, tell)))
    thread.start()

    def result(limit_s: float = 60.0):
        thread.join(limit_s)
        assert not thread.is_alive()
        return results[0]

    return result


def nothing_left(backend, player, name: str = "job") -> None:
    backend.release(name)
    player.wait_until(lambda: not player.left())


@pytest.mark.parametrize("kind", list(KINDS_OF))
def test_success_and_a_measured_failure(backend, player, kind):
    source = """
import pathlib, sys
print("hello from", sys.argv[2]); print("noise", file=sys.stderr)
pathlib.Path(sys.argv[1], "r.json").write_text("{}"); sys.exit(%d)
"""
    backend = chosen(backend, kind)
    for code in (0, 3):
        result = backend.run(spec_of(kind, source % code, artefacts=("r.json",)), quiet)
        assert (result.status, result.exit_code) == (JobStatus.EXITED, code), result.reason
        assert result.stdout.startswith("hello from ")
        assert "noise\n" in result.stderr
        assert result.artefacts["r.json"] == b"{}"
        assert not result.truncated
        assert set(result.hosts) == ({"gpu-001"} if kind == "pod" else {"gpu-001", "gpu-002"})
        if kind in ("mpijob", "volcano"):
            named = result.stdout.split()[2].split(",")
            assert sorted(json.loads(result.artefacts["hosts.json"])) == sorted(h.split(".")[0] for h in named)
            assert result.artefacts["pods.log"].count(b"Server listening") == 2
        if kind == "pod":
            assert list(json.loads(result.artefacts["hosts.json"]).values()) == ["gpu-001"]
        assert player.left(), "kept until it is released"
    nothing_left(backend, player)


@pytest.mark.parametrize("kind", list(KINDS_OF))
def test_the_api_server_keeps_every_field_that_we_send(backend, plane, namespace, kind):
    """What the schemas do not know is pruned on the way in: nothing may be."""
    backend = chosen(backend, kind)
    job = manifests.job(spec_of(kind, "pass"), backend.settings, "site-a", "run-1", datetime.now(UTC))
    made = backend.cluster.create(job.kind, job.manifest)
    wanted = json.loads(json.dumps(job.manifest["spec"]))
    if kind == "pod":
        missing = {k: v for k, v in wanted.items() if k not in made["spec"]}
        assert not missing
    else:
        assert made["spec"] == wanted
    assert made["metadata"]["labels"] == job.manifest["metadata"]["labels"]


def test_a_restarted_task_adopts_its_job(backend, player, plane, namespace):
    source = "import time; print('begun', flush=True); time.sleep(3); print('done')"
    first = in_background(backend, python(source))
    player.wait_until(lambda: player.running)
    told: list[str] = []
    again = KubernetesBackend(Cluster(plane.client(WORKER), namespace), backend.settings, "site-a", "run-1", look_s=0.5)
    second = again.run(python(source), told.append)
    assert second.stdout == first().stdout == "begun\ndone\n"
    assert any("is there already; following it" in t for t in told)
    assert len(player.left()) == 1
    nothing_left(backend, player)


def test_a_foreign_object_of_that_name_is_left_alone(backend, player):
    name = manifests.object_name("site-a", "run-1", "job")
    body = {"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "x"}]}}
    player.core.create_namespaced_pod(player.namespace, body)
    result = backend.run(python("pass"), quiet)
    assert result.status is JobStatus.NOT_STARTED
    assert "is not ours" in result.reason
    assert player.left() == [f"Pod {name}"]


def test_another_description_replaces_the_old_job(backend, player):
    first = in_background(backend, python("import time; time.sleep(60)"))
    player.wait_until(lambda: player.running)
    result = backend.run(python("print('new')"), quiet)
    assert result.stdout == "new\n"
    assert first().status is JobStatus.LOST
    nothing_left(backend, player)


def test_deletion_behind_our_back_is_a_lost_job(backend, player):
    result = in_background(backend, spec_of("mpijob", "import time; time.sleep(60)"))
    obj = player.wait_until(lambda: player.running and player.an_object(MPI_JOB))
    player.custom.delete_namespaced_custom_object(
        MPI_JOB.group, MPI_JOB.version, player.namespace, MPI_JOB.plural, obj["metadata"]["name"]
    )
    assert (lost := result()).status is JobStatus.LOST
    assert "deleted while it ran, and not by us" in lost.reason
    for name in [p for p in player.left() if p.startswith("Pod")]:  # no garbage collector without an owner to ask
        player.core.delete_namespaced_pod(name.split()[1], player.namespace, grace_period_seconds=0)
    nothing_left(backend, player)


def test_the_api_server_restarts_in_mid_run(backend, player, plane):
    result = in_background(backend, python("import time; print('a', flush=True); time.sleep(8); print('b')"))
    player.wait_until(lambda: player.running)
    plane.stop_api()
    time.sleep(2)
    plane.start_api()
    ended = result(90)
    assert (ended.status, ended.exit_code, ended.stdout) == (JobStatus.EXITED, 0, "a\nb\n"), ended.reason
    nothing_left(backend, player)


def test_a_cluster_that_stays_away_is_a_lost_job(backend, player, plane):
    backend.cluster.patience_s = 2
    result = in_background(backend, python("import time; time.sleep(60)"))
    player.wait_until(lambda: player.running)
    plane.stop_api()
    try:
        lost = result()
    finally:
        plane.start_api()
    assert lost.status is JobStatus.LOST
    assert "did not answer for 2 s" in lost.reason
    nothing_left(backend, player)


def test_an_expired_watch_costs_a_look(backend, player):
    """Version 1 is long compacted away or too old: the stream answers 410 and the object is read again."""
    events = list(backend.cluster.changes(POD, "none", "1", 2.0))
    assert all(e["type"] in ("ERROR", "BOOKMARK") for e in events)
    original = backend.cluster.changes
    backend.cluster.changes = lambda kind, name, _version, timeout: original(kind, name, "1", timeout)
    result = backend.run(python("import time; time.sleep(2); print('x')"), quiet)
    assert result.stdout == "x\n"
    nothing_left(backend, player)


def test_the_time_limit_is_kept_in_the_pod(backend, player):
    result = backend.run(python("import time; print('up', flush=True); time.sleep(60)", time_limit_s=1.0), quiet)
    assert result.status is JobStatus.TIMEOUT
    assert result.stdout == "up\n"
    nothing_left(backend, player)


def test_the_deadline_deletes_a_job_that_does_not_end(backend, player, monkeypatch):
    # Its deadline is after 6 s, and it may wait for longer to start: however slow this machine is, it is the deadline.
    monkeypatch.setattr(manifests, "MARGIN_S", -19)
    backend.settings = backend.settings.model_copy(update={"start_limit_s": 20.0})
    player.controllers = False
    result = in_background(backend, spec_of("mpijob", "pass", time_limit_s=5.0))
    obj = player.wait_until(lambda: player.an_object(MPI_JOB))
    player.set_status(MPI_JOB, obj["metadata"]["name"], {"conditions": [{"type": "Running", "status": "True"}]})
    ended = result()
    assert ended.status is JobStatus.TIMEOUT
    assert "deadline" in ended.reason
    player.wait_until(lambda: not player.left())


def test_cancelling_deletes_the_job(backend, player):
    result = in_background(backend, spec_of("mpijob", "import time; time.sleep(60)"))
    player.wait_until(lambda: len(player.running) == 3)
    backend.cancel("job")
    assert result().status is JobStatus.CANCELLED
    player.wait_until(lambda: not player.left())
    backend.cancel("job")
    KubernetesBackend(backend.cluster, backend.settings, "site-a", "run-1").cancel("never-made")


def test_an_interrupted_task_deletes_its_job(backend, player):
    def interrupt(message: str) -> None:
        raise KeyboardInterrupt(message)

    player.unschedulable = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."
    with pytest.raises(KeyboardInterrupt, match=r"not enough nvidia\.com/gpu"):
        backend.run(python("pass"), interrupt)
    player.wait_until(lambda: not player.left())


def test_logs_that_are_missing_rotated_or_cut_are_no_result(backend, player):
    source = "[print('line', i) for i in range(100)]"
    for damage, words in (
        (lambda log: None, "there is no log"),
        (lambda log: b"".join(log.splitlines(keepends=True)[5:]), "rotated away"),
        (lambda log: log[: len(log) // 2], "stops before the job's end"),
        (lambda log: b"", "the log is empty"),
    ):
        name = manifests.object_name("site-a", "run-1", "job")
        whole = player.log_of
        player.log_of = lambda pod, d=damage, w=whole: d(w(pod)) if w(pod) is not None else None
        result = backend.run(python(source), quiet)
        player.log_of = whole
        assert result.status is JobStatus.LOST, name
        assert words in result.reason
        assert "Succeeded" in result.reason or "succeeded" in result.reason
        assert result.truncated
        nothing_left(backend, player)


def test_completed_without_pods_is_no_result(backend, player):
    player.controllers = False
    result = in_background(backend, spec_of("mpijob", "pass"))
    obj = player.wait_until(lambda: player.an_object(MPI_JOB))
    player.set_status(MPI_JOB, obj["metadata"]["name"], {"conditions": [{"type": "Succeeded", "status": "True"}]})
    ended = result()
    assert ended.status is JobStatus.LOST
    assert "its pods are gone" in ended.reason
    nothing_left(backend, player)


def test_out_of_memory_and_eviction(backend, player):
    player.killed_by_memory = True
    result = backend.run(python("import time; time.sleep(60)"), quiet)
    assert (result.status, result.exit_code) == (JobStatus.EXITED, 137)
    assert "ran out of memory" in result.reason
    assert result.truncated
    nothing_left(backend, player)
    player.killed_by_memory, player.evicts = False, True
    result = backend.run(python("import time; time.sleep(60)"), quiet)
    assert result.status is JobStatus.LOST
    assert "Evicted: The node was low on resource: disk." in result.reason
    nothing_left(backend, player)


def test_an_unschedulable_job_gives_up_and_says_which_resource(backend, player):
    backend.settings = backend.settings.model_copy(update={"start_limit_s": 2.0})
    player.unschedulable = "0/3 nodes are available: 1 Insufficient rdma/hca, 2 node(s) didn't match affinity/selector."
    told: list[str] = []
    for kind in ("pod", "mpijob"):
        result = backend.run(spec_of(kind, "pass"), told.append)
        assert result.status is JobStatus.NOT_STARTED
        assert "not enough rdma/hca on 1 node(s)" in result.reason
        assert any("waits" in t and "rdma/hca" in t for t in told)
        player.wait_until(lambda: not player.left())


def test_an_image_that_cannot_be_pulled_is_given_up_early(backend, player):
    player.image_pull_fails = True
    result = backend.run(python("pass"), quiet)
    assert result.status is JobStatus.NOT_STARTED
    assert "registry.example.org/tools:1 cannot be pulled (ImagePullBackOff)" in result.reason
    player.wait_until(lambda: not player.left())


def test_without_rights_the_verb_is_named(backend, player, plane, namespace):
    nobody = KubernetesBackend(Cluster(plane.client(NOBODY), namespace), backend.settings, "site-a", "run-1")
    result = nobody.run(python("pass"), quiet)
    assert result.status is JobStatus.NOT_STARTED
    assert f"nobody may not create pods in namespace {namespace!r}; see deploy/rbac.yaml" in result.reason
    result = nobody.run(spec_of("mpijob", "pass"), quiet)
    assert 'may not create mpijobs of group "kubeflow.org"' in result.reason
    nobody.cancel("job")


def test_our_account_may_do_no_more_than_it_needs(plane, namespace):
    for verb, resource, group in (
        ("get", "secrets", ""),
        ("list", "secrets", ""),
        ("create", "pods/exec", ""),
        ("update", "pods", ""),
        ("deletecollection", "pods", ""),
        ("get", "nodes", ""),
        ("create", "serviceaccounts", ""),
        ("create", "rolebindings", "rbac.authorization.k8s.io"),
    ):
        name, _, sub = resource.partition("/")
        review = {
            "spec": {
                "resourceAttributes": {
                    "namespace": namespace,
                    "verb": verb,
                    "resource": name,
                    "subresource": sub,
                    "group": group,
                }
            }
        }
        api = client.AuthorizationV1Api(plane.client(WORKER))
        assert not api.create_self_subject_access_review(review).status.allowed, (verb, resource)


def test_a_quota_is_named(backend, player):
    body = {"metadata": {"name": "small"}, "spec": {"hard": {"requests.cpu": "500m"}}}
    player.core.create_namespaced_resource_quota(player.namespace, body)
    status = {"status": {"hard": {"requests.cpu": "500m"}, "used": {"requests.cpu": "0"}}}
    player.core.patch_namespaced_resource_quota_status("small", player.namespace, status)
    result = backend.run(python("pass"), quiet)
    assert result.status is JobStatus.NOT_STARTED
    assert "quota small is used up: asked for requests.cpu=1, used requests.cpu=0" in result.reason


def test_a_webhook_that_refuses_is_named(backend, player, plane):
    player.webhook_refuses = "images must come from our registry"
    hooks = client.AdmissionregistrationV1Api(plane.client(ADMIN))
    bundle = base64.b64encode(player.crt.read_bytes()).decode()
    hook = {
        "metadata": {"name": player.namespace},
        "webhooks": [
            {
                "name": "images.example.org",
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
                "failurePolicy": "Fail",
                "clientConfig": {"url": f"https://127.0.0.1:{player.kubelet_port}/", "caBundle": bundle},
                "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
            }
        ],
    }
    hooks.create_validating_webhook_configuration(hook)
    try:
        time.sleep(1.5)  # the API server reads its webhooks from a cache
        result = backend.run(python("pass"), quiet)
    finally:
        hooks.delete_validating_webhook_configuration(player.namespace)
    assert result.status is JobStatus.NOT_STARTED
    assert "admission webhook images.example.org refused the Pod: images must come from our registry" in result.reason


def test_a_cluster_without_the_operator_says_so(backend, plane, player, monkeypatch):
    backend.cluster = Cluster(plane.client(ADMIN), player.namespace)
    missing = replace(MPI_JOB, group="not-installed.example.org")
    monkeypatch.setattr(manifests, "MPI_JOB", missing)
    result = backend.run(spec_of("mpijob", "pass"), quiet)
    assert result.status is JobStatus.NOT_STARTED
    assert "install Kubeflow's MPI operator" in result.reason


def test_a_list_of_jobs_leaves_nothing(backend, player):
    specs = [
        JobSpec(f"job-{i}", "self", ("{python}", "-c", f"print({i})"), nodes=("gpu-001",), time_limit_s=30)
        for i in range(4)
    ]
    seen = []
    run_all(specs, backend, lambda s, r: seen.append((s.name, r.stdout)), parallel=4)
    assert sorted(seen) == [(f"job-{i}", f"{i}\n") for i in range(4)]
    player.wait_until(lambda: not player.left())


def test_the_sweep_takes_what_is_past_its_deadline_and_ours(backend, player, plane):
    player.controllers = False
    now = datetime.now(UTC)
    for run, age in (("old", timedelta(hours=2)), ("new", timedelta())):
        for kind in ("pod", "mpijob"):
            job = manifests.job(spec_of(kind, "pass"), backend.settings, "site-a", run, now - age)
            backend.cluster.create(job.kind, job.manifest)
    foreign = {"metadata": {"name": "foreign"}, "spec": {"containers": [{"name": "c", "image": "x"}]}}
    player.core.create_namespaced_pod(player.namespace, foreign)
    assert len(sweep(backend.cluster, now, dry_run=True)) == 2
    assert len(player.left()) == 5
    swept = sweep(backend.cluster, now)
    old = manifests.object_name("site-a", "old", "job")
    assert sorted(swept) == [f"MPIJob {old}", f"Pod {old}"]
    player.wait_until(lambda: not any(old in left for left in player.left()))
    assert len(player.left()) == 3
    assert sweep(backend.cluster, now) == []


def test_a_thousand_pods(backend, player, plane, namespace):
    """A job of 1,000 workers is followed and read within seconds and bounded memory."""
    player.stopping.set()
    player.thread.join(20)
    backend.look_s = 20.0
    nodes = tuple(f"n{i}" for i in range(1000))
    spec = python("pass", nodes=nodes, time_limit_s=300)
    result = in_background(backend, spec)
    obj = player.wait_until(lambda: player.an_object(MPI_JOB))
    labels = {"training.kubeflow.org/job-name": obj["metadata"]["name"]}
    container = {"name": "job", "image": "x"}
    for i in range(1000):
        role = {"training.kubeflow.org/job-role": "worker"}
        body = {
            "metadata": {"name": f"w-worker-{i}", "labels": {**labels, **role}},
            "spec": {"nodeName": f"n{i}", "containers": [container]},
        }
        # Drained, so that the connection is used again: a handshake for each would be most of this test.
        player.core.create_namespaced_pod(namespace, body, _preload_content=False).drain_conn()
    began = time.monotonic()
    player.set_status(MPI_JOB, obj["metadata"]["name"], {"conditions": [{"type": "Succeeded", "status": "True"}]})
    ended = result(120)
    assert ended.hosts == nodes
    assert len(json.loads(ended.artefacts["hosts.json"])) == 1000
    assert b"more pods, not kept" in ended.artefacts["pods.log"]
    assert time.monotonic() - began < 60
    player.core.delete_collection_namespaced_pod(namespace, grace_period_seconds=0)
    backend.release("job")
