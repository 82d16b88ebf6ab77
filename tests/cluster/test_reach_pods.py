"""Nodes asked by pods, against a real API server: every end a pod can have is told, and nothing is left behind."""

from __future__ import annotations

import asyncio
import base64
import signal
import socket
import subprocess
import sys
import textwrap
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml
from control_plane import ADMIN, NOBODY, WORKER, ControlPlane, free_port
from kubernetes import client
from node_player import NodePlayer

from fabric_health import housekeeping
from fabric_health.checks import registry
from fabric_health.checks.check import Context, RowSet
from fabric_health.connections import Connection
from fabric_health.evidence import Command, CommandStatus, ReachStatus, StoredEvidence, UnitEvidence
from fabric_health.jobs.kubernetes import api
from fabric_health.jobs.kubernetes.api import Cluster
from fabric_health.lab import nodes as lab_nodes
from fabric_health.lab import server as lab_server
from fabric_health.lab.answer import Answer
from fabric_health.lab.place import Place
from fabric_health.lab.server import LabServer
from fabric_health.lab.state import Fault, LabState, save
from fabric_health.reach import UnitRequest, collect, collect_async, pods
from fabric_health.reach.pod_manifest import ProbePod
from fabric_health.site import Node, ReachProfile, Sku, load_site
from fabric_health.unanswered import unanswered

ROOT = Path(__file__).parents[2]
RBAC = ROOT / "deploy" / "probe-rbac.yaml"
SKU = Sku(gpu_model="none", gpus=0, link_layer="Ethernet", nic_rate_gbps=1)
HELLO = (Command("hello", ("echo", "hello")), Command("missing", ("no-such-tool",)))
NODES = tuple(f"gpu-{i:03}" for i in range(1, 4))


def echo(_node: str, argv: tuple[str, ...]) -> Answer:
    return Answer(stdout="hello\n") if argv[0] == "echo" else Answer(stderr="not found\n", exit_code=127)


@pytest.fixture
def namespace(plane: ControlPlane) -> str:
    """A fresh namespace with the rights of deploy/probe-rbac.yaml and no others."""
    name = f"p-{uuid.uuid4().hex[:8]}"
    client.CoreV1Api(plane.client(ADMIN)).create_namespace({"metadata": {"name": name}})
    rbac = client.RbacAuthorizationV1Api(plane.client(ADMIN))
    for document in yaml.safe_load_all(RBAC.read_text()):
        document["metadata"]["namespace"] = name
        if document["kind"] == "Role":
            rbac.create_namespaced_role(name, document)
        if document["kind"] == "RoleBinding":
            rbac.create_namespaced_role_binding(name, document)
    return name


@pytest.fixture
def player(plane: ControlPlane, namespace: str, tmp_path: Path) -> Iterator[NodePlayer]:
    made = NodePlayer(plane, namespace, tmp_path, speak=echo)
    for node in NODES:
        made.add_node(node)
    made.start()
    try:
        yield made
    finally:
        made.stop()
        assert not [e for e in made.errors if "AssertionError" in e]


@pytest.fixture
def profile(namespace: str) -> ReachProfile:
    settings = {"namespace": namespace, "image": "registry.example.org/node-probe:1", "start_limit_s": 20}
    return ReachProfile.model_validate(
        {"kind": "kubernetes", "connection": "cluster", "unit_timeout_s": 20, "kubernetes": settings}
    )


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pods, "LOOK_S", 0.2)


@pytest.fixture
def ask(plane: ControlPlane, player: NodePlayer) -> Callable[..., dict[str, UnitEvidence]]:
    """Ask nodes by pods with the least rights, and leave nothing."""

    def asked(*requests: UnitRequest, token: str = WORKER) -> dict[str, UnitEvidence]:
        got: list[UnitEvidence] = []
        connection = Connection("cluster", extra={"kube_config": plane.kubeconfig(token)})
        collect(requests, lambda _id: connection, got.append)
        assert sorted(e.unit for e in got) == sorted(r.unit.name for r in requests)
        player.wait_until(lambda: not player.left())
        return {e.unit: e for e in got}

    return asked


def request_of(profile: ReachProfile, name: str = "gpu-001", commands=HELLO, sku: Sku = SKU) -> UnitRequest:
    return UnitRequest(Node(name, "sku", sku, "r1", name, profile), "driver_firmware", commands)


def shorter(profile: ReachProfile, unit_timeout_s: float = 20.0, **pods_settings) -> ReachProfile:
    changed = profile.kubernetes.model_copy(update=pods_settings)
    return profile.model_copy(update={"kubernetes": changed, "unit_timeout_s": unit_timeout_s})


def test_several_nodes_answer(ask, player, profile):
    got = ask(*(request_of(profile, n) for n in NODES))
    for evidence in got.values():
        assert (evidence.status, evidence.detail) == (ReachStatus.OK, "")
        hello, missing = evidence.results
        assert (hello.stdout, hello.exit_code, hello.status) == ("hello\n", 0, CommandStatus.EXITED)
        assert missing.status is CommandStatus.NOT_INSTALLED
    assert {p["spec"]["nodeName"] for p in player.seen} == set(NODES)


def test_the_probe_itself_runs_in_a_pod_as_it_runs_here(ask, player, profile):
    player.speak = None
    commands = (
        Command("uname", ("uname", "-a")),
        Command("version", ("cat", "/proc/version", "/no/such/file")),
        Command("missing", ("no-such-tool",)),
        Command("long", ("seq", "300000")),
        Command("flood", ("yes",), max_bytes=50_000),
        Command("slow", ("sleep", "30"), timeout_s=0.3),
    )
    (by_pod,) = ask(request_of(profile, commands=commands)).values()
    here = ReachProfile(kind="local", python=sys.executable)
    got: list[UnitEvidence] = []
    collect([request_of(here, commands=commands)], lambda _id: pytest.fail("no connection"), got.append)
    plain = [(r.name, r.argv, r.status, r.exit_code, r.stdout, r.stderr) for r in by_pod.results]
    assert plain == [(r.name, r.argv, r.status, r.exit_code, r.stdout, r.stderr) for r in got[0].results]
    assert (by_pod.status, by_pod.detail) == (got[0].status, got[0].detail)
    assert all(by_pod.started_at <= r.started_at <= r.ended_at <= by_pod.ended_at for r in by_pod.results)


def at_one_moment(evidence: UnitEvidence, at: datetime) -> UnitEvidence:
    results = tuple(replace(r, started_at=at, ended_at=at) for r in evidence.results)
    return replace(evidence, started_at=at, ended_at=at, results=results)


async def test_by_pod_and_by_ssh_the_same_rows_and_findings(plane, player, namespace, profile, tmp_path, monkeypatch):
    """The lab's nodes, with faults, over real SSH and by pods, at one and the same moment of the lab."""
    at = datetime(2026, 11, 30, 6, 0, tzinfo=UTC)
    monkeypatch.setattr(lab_server, "now", lambda: at)
    site = load_site(ROOT / "include" / "sites" / "lab.yaml")
    place = Place(tmp_path / "home")
    chosen = site.nodes[:3]
    site = replace(site, nodes=chosen, switches=(), cables=())
    nic = chosen[1].sku.nics[0].name
    since = at - timedelta(hours=2)
    faults = (
        Fault("driver-version", chosen[0].name, "570.148.08", since),
        Fault("nic-down", f"{chosen[1].name}/{nic}", None, since),
    )
    state = LabState(at - timedelta(days=3), faults)
    save(place.state, state)
    by_name = {n.name: n for n in chosen}
    player.speak = lambda node, argv: lab_nodes.answer(by_name[node], site, state, argv, at)
    check = registry.check("driver_firmware")

    async def collected(reach: ReachProfile, connection: Connection) -> tuple[RowSet, list]:
        got: list[UnitEvidence] = []
        units = [replace(n, reach=reach) for n in chosen]
        if reach.kind == "kubernetes":
            units = [replace(n, address=n.name) for n in units]
            for n in units:
                player.add_node(n.name)
        await collect_async(
            [UnitRequest(n, check.name, check.commands(n, site)) for n in units], lambda _id: connection, got.append
        )
        assert {e.status for e in got} == {ReachStatus.OK}, [e.detail for e in got]
        by_unit = {e.unit: e for e in got}
        fixed = [at_one_moment(by_unit[n.name], at) for n in chosen]
        rows = [row for n, e in zip(chosen, fixed, strict=True) for row in check.parse(n, e, site)]
        reached = {e.unit: StoredEvidence(e.unit, "k", "0" * 64, e.status) for e in fixed}
        context = Context(site, "run", at, chosen, reached)
        parsed = RowSet.gather(rows)
        parsed = RowSet.gather([*rows, *check.derive(parsed, context)])
        return rows, check.judge(parsed, context)

    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    playing = LabServer(site, place, port)
    await playing.start()
    try:
        key = place.client_key.read_text()
        ssh = Connection(
            "lab_ssh", None, port, "fabric", None, {"private_key": key, "known_hosts": str(place.known_hosts)}
        )
        by_ssh = await collected(chosen[0].reach, replace(ssh, login=lab_server.USER))
    finally:
        await playing.close()
    by_pod = await collected(profile, Connection("cluster", extra={"kube_config": plane.kubeconfig(WORKER)}))
    assert len(by_ssh[0]) > 300
    assert by_pod[0] == by_ssh[0]
    assert {f.unit.split("/")[0] for f in by_ssh[1]} >= {chosen[0].name, chosen[1].name}
    assert by_pod[1] == by_ssh[1]


def test_a_pod_that_cannot_be_placed_is_a_finding_with_the_schedulers_reason(ask, player, profile):
    player.taints["gpu-002"] = (
        "0/3 nodes are available: 1 node(s) had untolerated taint {maintenance: true}, "
        "2 node(s) didn't match Pod's node affinity/selector."
    )
    player.taints["gpu-003"] = "0/3 nodes are available: 1 Insufficient memory."
    short = shorter(profile, start_limit_s=2)
    got = ask(*(request_of(short, n) for n in NODES))
    assert got["gpu-001"].status is ReachStatus.OK
    assert [got[n].status for n in NODES[1:]] == [ReachStatus.NOT_PLACED] * 2
    assert "cannot be placed: taint {maintenance: true} is not tolerated" in got["gpu-002"].detail
    assert "not enough memory on 1 node(s)" in got["gpu-003"].detail
    assert {r.status for r in got["gpu-002"].results} == {CommandStatus.NOT_RUN}
    stored = [StoredEvidence(u, "k", "0" * 64, e.status, e.detail) for u, e in got.items()]
    found = {f.unit: f for f in unanswered(registry.check("driver_firmware"), stored)}
    assert set(found) == {"gpu-002", "gpu-003"}
    assert "maintenance" in found["gpu-002"].summary
    assert "taint" in found["gpu-002"].action


def test_an_image_that_cannot_be_pulled(ask, player, profile, monkeypatch):
    monkeypatch.setattr(pods, "HOPELESS_S", 1.0)
    player.image_pull_fails = True
    got = ask(request_of(profile))["gpu-001"]
    assert got.status is ReachStatus.NOT_PLACED
    assert "image registry.example.org/node-probe:1 cannot be pulled (ImagePullBackOff)" in got.detail


def test_a_pod_that_waits_in_silence_gives_the_last_event(ask, player, profile, plane):
    player.controllers = False
    original, named = player._pod, []

    def silent(pod):
        if pod["metadata"].get("deletionTimestamp") or not pod["spec"].get("nodeName"):
            return original(pod)
        if pod["metadata"]["name"] not in named:
            named.append(pod["metadata"]["name"])
            body = {
                "metadata": {"name": f"e-{uuid.uuid4().hex[:6]}"},
                "involvedObject": {"kind": "Pod", "name": named[-1], "namespace": player.namespace},
                "reason": "FailedMount",
                "message": "hostPath type check failed: /opt/x is not a directory",
                "type": "Warning",
            }
            player.core.create_namespaced_event(player.namespace, body, _preload_content=False)
        return None

    player._pod = silent
    got = ask(request_of(shorter(profile, start_limit_s=1.5)))["gpu-001"]
    assert got.status is ReachStatus.NOT_PLACED
    assert "FailedMount: hostPath type check failed: /opt/x is not a directory" in got.detail


@pytest.mark.parametrize(
    ("end", "status", "words"),
    [
        (
            {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: disk."},
            ReachStatus.CLOSED_EARLY,
            "ended by its node: Evicted: The node was low on resource: disk.",
        ),
        (
            {"phase": "Failed", "reason": "DeadlineExceeded", "message": "active on the node longer than allowed"},
            ReachStatus.HUNG,
            "DeadlineExceeded",
        ),
    ],
)
def test_a_pod_that_its_node_ends(ask, player, profile, end, status, words):
    player.hanging, player.ends = {"gpu-001"}, {"gpu-001": end}
    got = ask(request_of(profile))["gpu-001"]
    assert got.status is status
    assert words in got.detail


def test_a_probe_that_runs_out_of_memory_keeps_what_it_had_said(ask, player, profile):
    player.speak, player.killed_by_memory = None, True
    commands = (Command("first", ("echo", "1")), Command("second", ("sleep", "30"), 30))
    got = ask(request_of(profile, commands=commands))["gpu-001"]
    assert got.status is ReachStatus.CLOSED_EARLY
    assert "OOMKilled" in got.detail
    assert "1 of 2 commands had ended" in got.detail
    assert [r.status for r in got.results] == [CommandStatus.EXITED, CommandStatus.TRUNCATED]


def test_a_hanging_node_is_given_up_and_the_others_are_not_held_up(ask, player, profile):
    player.hanging = {"gpu-002"}
    got = ask(*(request_of(shorter(profile, unit_timeout_s=2), n) for n in NODES))
    assert [got[n].status for n in NODES] == [ReachStatus.OK, ReachStatus.HUNG, ReachStatus.OK]
    assert "did not end within 2 s" in got["gpu-002"].detail


def test_a_command_that_hangs_ends_in_an_answer(ask, player, profile):
    player.speak = None
    commands = (Command("quick", ("echo", "1")), Command("stuck", ("sleep", "60"), 60))
    got = ask(request_of(shorter(profile, unit_timeout_s=6), commands=commands))["gpu-001"]
    assert got.status is ReachStatus.PARTIAL
    assert [r.status for r in got.results] == [CommandStatus.EXITED, CommandStatus.TIMEOUT]


def test_a_log_that_is_cut_rotated_lost_or_rubbish_is_never_a_whole_answer(ask, player, profile, monkeypatch):
    monkeypatch.setattr(pods, "LOG_TRIES", 1)
    cases = {
        "cut": (lambda log: log[: len(log) * 2 // 3], ReachStatus.CLOSED_EARLY, "stops in the middle"),
        "end": (lambda log: log[:-9], ReachStatus.CLOSED_EARLY, "stops in the middle"),
        "rotated": (lambda log: log[log.index(b"\n") + 1 :], ReachStatus.MALFORMED, "beginning of its pod's log"),
        "lost": (lambda _log: None, ReachStatus.MALFORMED, "there is no log"),
        "empty": (lambda _log: b"", ReachStatus.EMPTY, "answered nothing"),
        "rubbish": (lambda _log: b"hello\n", ReachStatus.MALFORMED, "not a probe's answer: hello"),
        "bits": (lambda log: log.replace(b" result ", b" result x", 1), ReachStatus.MALFORMED, "not JSON"),
    }
    for name in cases:
        player.add_node(name)
    player.damage = lambda pod, log: cases[pod.split("-")[2]][0](log)
    got = ask(*(request_of(profile, name) for name in cases))
    for name, (_damage, status, words) in cases.items():
        assert got[name].status is status, got[name].detail
        assert words in got[name].detail


def test_a_log_that_comes_late_is_read_again(ask, player, profile):
    reads: list[int] = []

    def late(_pod: str, log: bytes) -> bytes:
        reads.append(1)
        return log[:40] if len(reads) < 3 else log

    player.damage = late
    assert ask(request_of(profile))["gpu-001"].status is ReachStatus.OK


def test_a_pod_deleted_behind_our_back(ask, player, profile):
    player.hanging = {"gpu-001"}
    original = player._finish

    def gone(pod):
        player.core.delete_namespaced_pod(pod["metadata"]["name"], player.namespace, grace_period_seconds=0)
        return original

    player._finish = gone
    got = ask(request_of(profile))["gpu-001"]
    assert got.status is ReachStatus.CLOSED_EARLY
    assert "deleted before it was read, and not by us" in got.detail


def test_without_rights_the_verb_is_named(ask, profile, plane, namespace, monkeypatch):
    got = ask(request_of(profile), token=NOBODY)["gpu-001"]
    assert got.status is ReachStatus.AUTH_FAILED
    assert f"nobody may not create pods in namespace {namespace!r}" in got.detail
    monkeypatch.setattr(api, "SETTLE_S", 0.5)
    rbac = client.RbacAuthorizationV1Api(plane.client(ADMIN))
    role = next(d for d in yaml.safe_load_all(RBAC.read_text()) if d["kind"] == "Role")
    role["metadata"]["namespace"] = namespace
    role["rules"] = [r for r in role["rules"] if r["resources"] != ["pods/log"]]
    rbac.replace_namespaced_role("fabric-health-probes", namespace, role)
    time.sleep(0.5)
    got = ask(request_of(profile))["gpu-001"]
    assert got.status is ReachStatus.AUTH_FAILED
    assert "may not get pods/log" in got.detail


def test_a_quota_and_a_webhook_are_named(ask, player, profile, plane):
    body = {"metadata": {"name": "small"}, "spec": {"hard": {"requests.cpu": "5m"}}}
    player.core.create_namespaced_resource_quota(player.namespace, body)
    status = {"status": {"hard": {"requests.cpu": "5m"}, "used": {"requests.cpu": "0"}}}
    player.core.patch_namespaced_resource_quota_status("small", player.namespace, status)
    got = ask(request_of(profile))["gpu-001"]
    assert got.status is ReachStatus.NOT_PLACED
    assert "quota small is used up: asked for requests.cpu=10m" in got.detail
    player.core.delete_namespaced_resource_quota("small", player.namespace)
    player.webhook_refuses = "no host folders here"
    hooks = client.AdmissionregistrationV1Api(plane.client(ADMIN))
    hook = {
        "name": "folders.example.org",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": "Fail",
        "clientConfig": {
            "url": f"https://127.0.0.1:{player.kubelet_port}/",
            "caBundle": base64.b64encode(player.crt.read_bytes()).decode(),
        },
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
    }
    hooks.create_validating_webhook_configuration({"metadata": {"name": player.namespace}, "webhooks": [hook]})
    try:
        time.sleep(1.5)  # the API server reads its webhooks from a cache
        got = ask(request_of(profile))["gpu-001"]
    finally:
        hooks.delete_validating_webhook_configuration(player.namespace)
    assert got.status is ReachStatus.NOT_PLACED
    assert "admission webhook folders.example.org refused the Pod: no host folders here" in got.detail


def test_two_hundred_nodes_never_more_at_once_than_allowed(ask, player, profile, monkeypatch):
    monkeypatch.setattr(pods, "LOOK_S", 0.5)
    player.quick = True
    names = [f"many-{i:03}" for i in range(200)]
    for name in names:
        player.add_node(name)
    bounded = shorter(profile, unit_timeout_s=300, start_limit_s=300).model_copy(update={"concurrency": 50})
    got = ask(*(request_of(bounded, n) for n in names))
    assert {e.status for e in got.values()} == {ReachStatus.OK}, {e.detail for e in got.values()}
    assert len(player.seen) == 200
    assert not player.errors
    assert 5 < player.at_once <= 50


def test_a_collection_that_is_cancelled_or_fails_leaves_nothing(plane, player, profile):
    player.hanging = set(NODES)
    connection = Connection("cluster", extra={"kube_config": plane.kubeconfig(WORKER)})
    requests = [request_of(profile, n) for n in NODES]

    async def cancelled() -> None:
        task = asyncio.create_task(collect_async(requests, lambda _id: connection, lambda _e: None))
        await asyncio.to_thread(player.wait_until, lambda: len(player.running) == 3)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    player.wait_until(lambda: not player.left())
    player.hanging = {"gpu-002", "gpu-003"}

    def store(_evidence: UnitEvidence) -> None:
        raise OSError("the store is gone")

    with pytest.raises(OSError, match="the store is gone"):
        collect(requests, lambda _id: connection, store)
    player.wait_until(lambda: not player.left())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_task_that_is_stopped_leaves_nothing(plane, player, profile, number):
    """As a worker stops its task: by a signal that raises where the task happens to be."""
    player.hanging = set(NODES)
    source = f"""
    import signal, sys
    from fabric_health.connections import Connection
    from fabric_health.evidence import Command
    from fabric_health.reach import UnitRequest, collect
    from fabric_health.site import Node, ReachProfile, Sku

    def stop(number, frame):
        raise SystemExit(3)

    signal.signal(signal.SIGTERM, stop)
    profile = ReachProfile.model_validate({profile.model_dump()!r})
    sku = Sku.model_validate({SKU.model_dump()!r})
    connection = Connection("cluster", extra={{"kube_config": {plane.kubeconfig(WORKER)!r}}})
    requests = [UnitRequest(Node(n, "s", sku, "r", n, profile), "c", (Command("x", ("true",)),)) for n in {NODES!r}]
    collect(requests, lambda _id: connection, lambda e: print(e.unit, e.status))
    """
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(source)],
        env={"PYTHONPATH": str(ROOT / "include"), "PATH": "/usr/bin:/bin"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    try:
        player.wait_until(lambda: len(player.running) == 3 or process.poll() is not None)
        assert process.poll() is None, process.communicate()
        process.send_signal(number)
        said, _ = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode != 0
    assert b"OK" not in said
    player.wait_until(lambda: not player.left())


def test_what_a_killed_task_leaves_is_deleted_past_its_deadline(ask, plane, player, profile, namespace):
    cluster = Cluster(plane.client(WORKER), namespace)
    now = datetime.now(UTC)
    player.hanging = {"gpu-002", "gpu-003"}
    for name, age_h in (("gpu-002", 2), ("gpu-003", 0)):
        left = ProbePod(
            request_of(profile, name), profile.kubernetes, "c0ffee", f"{age_h:016x}", 10.0, now - timedelta(hours=age_h)
        )
        cluster.create(pods.POD, left.manifest())
    foreign = {"containers": [{"name": "c", "image": "x"}], "nodeName": "x"}
    player.core.create_namespaced_pod(namespace, {"metadata": {"name": "foreign"}, "spec": foreign})
    site = load_site(ROOT / "include" / "sites" / "lab.yaml")
    site = replace(site, nodes=(replace(site.nodes[0], reach=profile),))
    connection = Connection("cluster", extra={"kube_config": plane.kubeconfig(WORKER)})
    told = housekeeping.sweep_cluster(site, lambda _id: connection, now, dry_run=True)
    assert (told.deleted, told.skipped) == (1, "")
    # The next collection need not wait for housekeeping.
    got: list[UnitEvidence] = []
    collect([request_of(profile)], lambda _id: connection, got.append)
    assert got[0].status is ReachStatus.OK
    player.wait_until(lambda: len(player.left()) == 2)
    assert housekeeping.sweep_cluster(site, lambda _id: connection, now).deleted == 0
    assert housekeeping.sweep_cluster(site, lambda _id: connection, now + timedelta(hours=1)).deleted == 1
    player.wait_until(lambda: player.left() == ["Pod foreign"])


def test_an_api_that_does_not_answer_is_told(profile, plane, monkeypatch):
    monkeypatch.setattr(pods, "PATIENCE_S", 0.5)
    monkeypatch.setattr(pods, "LAST_PATIENCE_S", 0.1)
    config = plane.kubeconfig(WORKER)
    config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{free_port()}"
    got: list[UnitEvidence] = []
    collect([request_of(profile)], lambda _id: Connection("cluster", extra={"kube_config": config}), got.append)
    assert got[0].status is ReachStatus.UNREACHABLE
    assert "the cluster's API did not answer" in got[0].detail


def test_the_api_server_keeps_every_field_that_it_knows(plane, player, profile, namespace):
    """Version 1.20 does not know read-only mounts of what is mounted beneath; every other field must be kept."""
    player.stopping.set()
    full = shorter(
        profile,
        runtime_class="nvidia",
        selinux_type="spc_t",
        priority_class="high",
        host_pid=True,
        service_account="node-probe",
        image_pull_secrets=("registry",),
        capabilities=("SYSLOG",),
    )
    sku = SKU.model_copy(update={"gpus": 8})
    made = ProbePod(request_of(full, sku=sku), full.kubernetes, "c0ffee", "0" * 16, 10.0, datetime.now(UTC))
    manifest = made.manifest()
    manifest["spec"].pop("runtimeClassName")  # its admission wants the class to exist
    kept = Cluster(plane.client(WORKER), namespace).create(pods.POD, manifest)
    assert not lost(manifest["spec"], kept["spec"]) - {"containers.0.volumeMounts.0.recursiveReadOnly"}
    player.core.delete_collection_namespaced_pod(namespace, grace_period_seconds=0)


def lost(sent: object, kept: object, at: str = "") -> set[str]:
    """Return where ``kept`` differs from what was sent; what was added counts for nothing."""
    if isinstance(sent, dict):
        inner = kept if isinstance(kept, dict) else {}
        return {x for k, v in sent.items() if v is not False for x in lost(v, inner.get(k), f"{at}.{k}".strip("."))}
    if isinstance(sent, list):
        inner = kept if isinstance(kept, list) else []
        return {x for i, v in enumerate(sent) for x in lost(v, inner[i] if i < len(inner) else None, f"{at}.{i}")}
    return set() if sent == kept else {at}
