"""Plays what a bare API server lacks: scheduler, kubelet, garbage collector and the operators of the three job kinds.

Pods really run: the kubelet starts a pod's command on this machine and serves its log to the API server.
"""

from __future__ import annotations

import contextlib
import json
import os
import ssl
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from control_plane import ADMIN, ControlPlane, certificate
from elastic_player import Dlrover
from kubernetes import client
from kubernetes.client.exceptions import ApiException

from fabric_health.jobs.kubernetes.kinds import ELASTIC_JOB, KINDS, MPI_JOB, POD, VOLCANO_JOB, Kind

Json = dict[str, Any]
FOREGROUND = "foregroundDeletion"


@dataclass
class Running:
    uid: str
    process: subprocess.Popen[bytes] | None
    log: Path


@dataclass
class Player:
    """One namespace's cluster. Knobs say what goes wrong; ``logs`` overrides what a pod's log holds."""

    plane: ControlPlane
    namespace: str
    folder: Path
    logs: dict[str, bytes | None] = field(default_factory=dict)
    lost_logs: bool = False
    unschedulable: str = ""
    image_pull_fails: bool = False
    controllers: bool = True
    killed_by_memory: bool = False
    evicts: bool = False
    running: dict[str, Running] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    webhook_refuses: str = ""
    dlrover: Dlrover = field(default_factory=Dlrover)

    def __post_init__(self) -> None:
        api = self.plane.client(ADMIN)
        self.core, self.custom = client.CoreV1Api(api), client.CustomObjectsApi(api)
        self.stopping = threading.Event()
        self._serve()
        self.thread = threading.Thread(target=self._loop, daemon=True)

    # -- the kubelet's server ----------------------------------------------------------------------------------------

    def _serve(self) -> None:
        player = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_args: object) -> None:
                pass

            def do_GET(self) -> None:
                url = urlsplit(self.path)
                path, query = url.path.split("/"), parse_qs(url.query)
                body = player.log_of(path[3]) if path[1:2] == ["containerLogs"] and len(path) > 4 else None
                if body is not None and "tailLines" in query:
                    body = b"".join(body.splitlines(keepends=True)[-int(query["tailLines"][0]) :])
                self._answer(404 if body is None else 200, body or b"", "text/plain")

            def do_POST(self) -> None:
                review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                response = {"uid": review["request"]["uid"], "allowed": not player.webhook_refuses}
                if player.webhook_refuses:
                    response["status"] = {"message": player.webhook_refuses, "code": 403}
                answer = {"apiVersion": review["apiVersion"], "kind": "AdmissionReview", "response": response}
                self._answer(200, json.dumps(answer).encode(), "application/json")

            def _answer(self, status: int, body: bytes, kind: str) -> None:
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        self.crt, key = certificate(self.folder, "kubelet")
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.crt, key)
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.kubelet_port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def log_of(self, pod: str) -> bytes | None:
        if self.lost_logs or pod not in self.running:
            return None
        if pod in self.logs:
            return self.logs[pod]
        with contextlib.suppress(OSError):
            return self.running[pod].log.read_bytes()
        return b""

    # -- set up --------------------------------------------------------------------------------------------------

    def add_node(self, name: str) -> None:
        with contextlib.suppress(ApiException):
            node = {"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}}
            self.core.create_node(node, _preload_content=False).drain_conn()
        self.core.patch_node_status(
            name,
            {
                "status": {
                    "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
                    "daemonEndpoints": {"kubeletEndpoint": {"Port": self.kubelet_port}},
                    "conditions": [{"type": "Ready", "status": "True", "reason": "x", "message": "x"}],
                }
            },
            _preload_content=False,
        ).drain_conn()  # a response that is not read costs its connection, and the next request a handshake

    def start(self) -> None:
        self.thread.start()

    def stop(self) -> None:
        self.stopping.set()
        self.thread.join(20)
        self.server.shutdown()
        for running in self.running.values():
            self._kill(running)

    # -- the loop ------------------------------------------------------------------------------------------------

    def _loop(self) -> None:
        while not self.stopping.wait(0.1):
            try:
                pods = self.core.list_namespaced_pod(self.namespace, _preload_content=False)
                self.turn(json.loads(pods.data)["items"])
            except Exception as error:  # the API may be away: that is part of the tests
                if not isinstance(error, ApiException) or error.status not in (0, 404, 409):
                    self.errors.append(f"{type(error).__name__}: {str(error)[:300]}")

    def turn(self, pods: list[Json]) -> None:
        for kind in (MPI_JOB, VOLCANO_JOB, ELASTIC_JOB):
            for obj in self.custom.list_namespaced_custom_object(kind.group, kind.version, self.namespace, kind.plural)[
                "items"
            ]:
                self._object(kind, obj, [p for p in pods if _owner(p) == obj["metadata"]["uid"]])
        for pod in pods:
            with contextlib.suppress(ApiException):  # it is gone or has changed since it was listed
                self._pod(pod)

    def _object(self, kind: Kind, obj: Json, pods: list[Json]) -> None:
        name = obj["metadata"]["name"]
        if obj["metadata"].get("deletionTimestamp"):
            for pod in pods:
                self._delete_pod(pod)
            if not pods and FOREGROUND in (obj["metadata"].get("finalizers") or ()):
                self.custom.patch_namespaced_custom_object(
                    kind.group, kind.version, self.namespace, kind.plural, name, {"metadata": {"finalizers": None}}
                )
            return
        if not self.controllers:
            return
        if kind is ELASTIC_JOB:
            self.dlrover.reconcile(self, obj, pods)
            return
        if not pods and not kind.state(obj).phase.final:
            for pod in _pods_of(kind, obj):
                self.core.create_namespaced_pod(self.namespace, pod)
            return
        main = [p for p in pods if kind.main_pod is None or p["metadata"]["labels"].get(kind.main_pod[0]) == "launcher"]
        phases = {(p.get("status") or {}).get("phase", "Pending") for p in main}
        if phases and phases <= {"Succeeded", "Failed"}:
            self.set_status(kind, name, _status(kind, "Failed" if "Failed" in phases else "Succeeded"))
        elif "Running" in phases and not obj.get("status"):
            self.set_status(kind, name, _status(kind, "Running"))

    def set_status(self, kind: Kind, name: str, status: Json) -> None:
        self.custom.patch_namespaced_custom_object_status(
            kind.group, kind.version, self.namespace, kind.plural, name, {"status": status}
        )

    def _pod(self, pod: Json) -> None:
        name, status = pod["metadata"]["name"], pod.get("status") or {}
        if pod["metadata"].get("deletionTimestamp"):
            self._delete_pod(pod)
        elif not pod["spec"].get("nodeName"):
            self._schedule(pod)
        elif status.get("phase", "Pending") == "Pending" and self.image_pull_fails:
            waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}
            self.set_pod(pod, "Pending", waiting)
        elif name not in self.running or self.running[name].uid != pod["metadata"]["uid"]:
            self.running[name] = self._start(pod)
            self.set_pod(pod, "Running", {"running": {"startedAt": _now()}})
        elif status.get("phase") == "Running":
            self._finish(pod)

    def _schedule(self, pod: Json) -> None:
        name = pod["metadata"]["name"]
        if self.unschedulable:
            condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
            self.core.patch_namespaced_pod_status(
                name, self.namespace, {"status": {"conditions": [{**condition, "message": self.unschedulable}]}}
            )
            return
        affinity = (pod["spec"].get("affinity") or {}).get("nodeAffinity")
        nodes = ["node-1"]
        if affinity:
            (term,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
            nodes = (term.get("matchFields") or term["matchExpressions"])[0]["values"]
        number = name.rsplit("-", 1)[-1]
        node = nodes[int(number) % len(nodes)] if number.isdigit() else nodes[0]
        body = {"metadata": {"name": name}, "target": {"kind": "Node", "name": node, "apiVersion": "v1"}}
        self.core.create_namespaced_binding(self.namespace, body, _preload_content=False).drain_conn()

    def _start(self, pod: Json) -> Running:
        command = pod["spec"]["containers"][0].get("command") or ["sleep", "60"]
        log = self.folder / f"{pod['metadata']['uid']}.log"
        if command[0] != "python3":
            log.write_bytes(b"Server listening on 0.0.0.0 port 22.\n")
            return Running(pod["metadata"]["uid"], None, log)
        request = json.loads(command[4])
        request.update(artefact_folder=str(self.folder / pod["metadata"]["uid"]), wait_for=[])
        old = "/artefacts"
        request["argv"] = [a.replace(old, request["artefact_folder"]) for a in request["argv"]]
        told = {e["name"]: e["value"] for e in pod["spec"]["containers"][0].get("env") or () if "value" in e}
        with open(log, "wb") as out:
            process = subprocess.Popen(
                [sys.executable, *command[1:4], json.dumps(request)],
                stdout=out,
                stderr=out,
                start_new_session=True,
                env={**os.environ, **told},
            )
        return Running(pod["metadata"]["uid"], process, log)

    def _finish(self, pod: Json) -> None:
        running = self.running[pod["metadata"]["name"]]
        if running.process is None:
            return
        if self.killed_by_memory:
            self._kill(running)
            self.set_pod(pod, "Failed", {"terminated": {"exitCode": 137, "reason": "OOMKilled"}})
        elif self.evicts:
            self._kill(running)
            self.core.patch_namespaced_pod_status(
                pod["metadata"]["name"],
                self.namespace,
                {"status": {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: disk."}},
            )
        elif (code := running.process.poll()) is not None:
            reason = "Completed" if code == 0 else "Error"
            self.set_pod(
                pod,
                "Succeeded" if code == 0 else "Failed",
                {"terminated": {"exitCode": code, "reason": reason, "finishedAt": _now()}},
            )

    def set_pod(self, pod: Json, phase: str, state: Json) -> None:
        container = pod["spec"]["containers"][0]
        status = {
            "phase": phase,
            "containerStatuses": [
                {
                    "name": container["name"],
                    "image": container["image"],
                    "imageID": "",
                    "ready": phase == "Running",
                    "restartCount": 0,
                    "state": state,
                }
            ],
        }
        self.core.patch_namespaced_pod_status(
            pod["metadata"]["name"], self.namespace, {"status": status}, _preload_content=False
        ).drain_conn()

    def _delete_pod(self, pod: Json) -> None:
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        if name in self.running and self.running[name].uid == uid:
            self._kill(self.running.pop(name))
        # By uid: a new pod may have the name by now.
        body = {"gracePeriodSeconds": 0, "preconditions": {"uid": uid}}
        with contextlib.suppress(ApiException):
            if pod["metadata"].get("finalizers"):
                free = {"metadata": {"uid": uid, "finalizers": None}}
                self.core.patch_namespaced_pod(name, self.namespace, free, _preload_content=False).drain_conn()
            self.core.delete_namespaced_pod(name, self.namespace, body=body, _preload_content=False).drain_conn()

    @staticmethod
    def _kill(running: Running) -> None:
        if running.process is not None:
            with contextlib.suppress(OSError):
                os.killpg(running.process.pid, 9)
            running.process.wait(10)

    # -- for tests -----------------------------------------------------------------------------------------------

    def left(self) -> list[str]:
        """Return every object of ours in the namespace that is not on its way out."""
        out = [f"Pod {p.metadata.name}" for p in self.core.list_namespaced_pod(self.namespace).items]
        for kind in (MPI_JOB, VOLCANO_JOB, ELASTIC_JOB):
            found = self.custom.list_namespaced_custom_object(kind.group, kind.version, self.namespace, kind.plural)
            out += [f"{kind.kind} {o['metadata']['name']}" for o in found["items"]]
        return out

    def wait_until(self, condition: Any, limit_s: float = 30.0) -> Any:
        until = time.monotonic() + limit_s
        while not (found := condition()):
            assert time.monotonic() < until, f"nothing happened in time; player: {self.errors[-3:]}"
            time.sleep(0.05)
        return found

    def an_object(self, kind: Kind) -> Json | None:
        """Return the one object of a kind, None while there is none."""
        if kind is POD:
            found = json.loads(self.core.list_namespaced_pod(self.namespace, _preload_content=False).data)["items"]
        else:
            found = self.custom.list_namespaced_custom_object(kind.group, kind.version, self.namespace, kind.plural)[
                "items"
            ]
        return found[0] if found else None


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _owner(pod: Json) -> str | None:
    owners = pod["metadata"].get("ownerReferences") or []
    return owners[0]["uid"] if owners else None


def _pods_of(kind: Kind, obj: Json) -> list[Json]:
    """Return the pods that the kind's operator would make."""
    name, spec = obj["metadata"]["name"], obj["spec"]
    made: list[tuple[str, Json, Json]] = []
    if kind is MPI_JOB:
        parts = spec["mpiReplicaSpecs"]
        labels = {"training.kubeflow.org/job-name": name}
        launcher = {**labels, "training.kubeflow.org/job-role": "launcher"}
        made.append((f"{name}-launcher-x7k2p", launcher, parts["Launcher"]["template"]))
        made += [
            (f"{name}-worker-{i}", {**labels, "training.kubeflow.org/job-role": "worker"}, parts["Worker"]["template"])
            for i in range(parts["Worker"]["replicas"])
        ]
    elif kind is VOLCANO_JOB:
        made += [
            (
                f"{name}-{task['name']}-{i}",
                {"volcano.sh/job-name": name, "volcano.sh/task-spec": task["name"]},
                task["template"],
            )
            for task in spec["tasks"]
            for i in range(task["replicas"])
        ]
    owner = {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "name": name,
        "uid": obj["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return [
        {
            "metadata": {
                "name": pod,
                "labels": {**(template.get("metadata") or {}).get("labels", {}), **labels},
                "ownerReferences": [owner],
            },
            "spec": template["spec"],
        }
        for pod, labels, template in made
    ]


def _status(kind: Kind, phase: str) -> Json:
    if kind is MPI_JOB:
        return {"conditions": [{"type": phase, "status": "True", "reason": f"MPIJob{phase}", "message": "m"}]}
    if kind is VOLCANO_JOB:
        return {"state": {"phase": {"Succeeded": "Completed"}.get(phase, phase)}}
    raise AssertionError(f"{kind.kind} has its own player")


__all__ = ["KINDS", "Player"]
