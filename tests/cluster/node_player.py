"""Plays the kubelets of nodes for probe pods: a node answers as the lab's nodes do, really runs the probe, or fails."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kubernetes.client.exceptions import ApiException
from player import Player, Running

from fabric_health.lab.answer import Answer
from fabric_health.reach import probe
from fabric_health.reach.frames import ProbeRequest, read_script

Json = dict[str, Any]
Speak = Callable[[str, tuple[str, ...]], Answer]


def log_of(request: ProbeRequest, node: str, speak: Speak) -> bytes:
    """Return the log of a pod whose node answers to each command what ``speak`` says."""
    out = probe.packed(request.nonce, "begin", {"commands": len(request.commands)})
    for i, (argv, limit) in enumerate(zip(request.commands, request.max_bytes, strict=True)):
        answer = speak(node, argv)
        status = "not_installed" if answer.exit_code == 127 else "exited"
        code: int | None = answer.exit_code
        if len(answer.stdout.encode()) > limit:
            status, code = "truncated", None
        texts = (answer.stdout.encode()[:limit].decode("utf-8", "ignore"), answer.stderr)
        out += probe.packed(request.nonce, "result", probe.result(i, status, code, texts, (0.0, 0.0)))
    return out + probe.packed(request.nonce, "end", {"commands": len(request.commands)})


@dataclass
class NodePlayer(Player):
    """Answers probe pods. ``speak`` None really runs the probe here, without the way into a node's root.

    ``damage`` changes a pod's log before it is served; ``taints`` says, per node, why no pod is placed there.
    With ``quick`` a pod is over before anybody has seen it run.
    """

    speak: Speak | None = None
    damage: Callable[[str, bytes], bytes | None] = lambda _pod, log: log
    taints: dict[str, str] = field(default_factory=dict)
    hanging: set[str] = field(default_factory=set)
    ends: dict[str, Json] = field(default_factory=dict)
    quick: bool = False
    at_once: int = 0
    seen: list[Json] = field(default_factory=list)

    def turn(self, pods: list[Json]) -> None:
        """Play one round, and note how many pods there are that are not on their way out."""
        self.at_once = max(self.at_once, sum(not p["metadata"].get("deletionTimestamp") for p in pods))
        for pod in pods:
            with contextlib.suppress(ApiException):
                self._pod(pod)

    def log_of(self, pod: str) -> bytes | None:
        log = super().log_of(pod)
        return log if log is None else self.damage(pod, log)

    def _schedule(self, pod: Json) -> None:
        affinity = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        (term,) = affinity["nodeSelectorTerms"]
        node = term["matchFields"][0]["values"][0]
        self.unschedulable = self.taints.get(node, "")
        super()._schedule(pod)

    def _pod(self, pod: Json) -> None:
        if self.quick:
            self._over_at_once(pod)
        else:
            super()._pod(pod)

    def _over_at_once(self, pod: Json) -> None:
        """Place, start and end a pod in one go, with as few and as plain requests as there can be."""
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        at = f"/api/v1/namespaces/{self.namespace}/pods/{name}"
        if pod["metadata"].get("deletionTimestamp"):
            self._send("PATCH", at, {"metadata": {"uid": uid, "finalizers": None}})
            self._send("DELETE", at, {"gracePeriodSeconds": 0, "preconditions": {"uid": uid}})
        elif name not in self.running:
            terms = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
            node = terms["nodeSelectorTerms"][0]["matchFields"][0]["values"][0]
            self._send("POST", f"{at}/binding", {"metadata": {"name": name}, "target": {"kind": "Node", "name": node}})
            self.running[name] = self._start({**pod, "spec": {**pod["spec"], "nodeName": node}})
            self._send("PATCH", f"{at}/status", {"status": {"phase": "Succeeded"}})

    def _send(self, method: str, path: str, body: Json) -> None:
        api = self.core.api_client
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        headers = {"Authorization": api.configuration.api_key["BearerToken"], "Content-Type": kind}
        answer = api.rest_client.pool_manager.request(
            method, f"{api.configuration.host}{path}", body=json.dumps(body), headers=headers
        )
        if answer.status not in (200, 201, 202, 404, 409):
            self.errors.append(f"{method} {path}: {answer.status} {answer.data[:200]!r}")

    def _start(self, pod: Json) -> Running:
        self.seen.append(pod)
        uid, node = pod["metadata"]["uid"], pod["spec"]["nodeName"]
        log = self.folder / f"{uid}.log"
        text = pod["spec"]["containers"][0]["command"][3]
        request = read_script(text.encode())
        assert request is not None
        assert request.packed
        assert text.count(r"\"/host\"") == 1
        if self.speak is not None and node not in self.hanging:
            log.write_bytes(log_of(request, node, self.speak))
            return Running(uid, None, log)
        command = [sys.executable, "-I", "-c", text.replace(r"\"/host\"", "null")]
        if node in self.hanging:
            command = ["sleep", "60"]
        with open(log, "wb") as out:
            return Running(uid, subprocess.Popen(command, stdout=out, stderr=out, start_new_session=True), log)

    def _finish(self, pod: Json) -> None:
        running, node = self.running[pod["metadata"]["name"]], pod["spec"]["nodeName"]
        if self.killed_by_memory and b" result " not in running.log.read_bytes():
            return  # it dies after it has said something
        if node in self.ends:
            self._kill(running)
            name = pod["metadata"]["name"]
            self.core.patch_namespaced_pod_status(name, self.namespace, {"status": self.ends[node]})
        elif running.process is None:
            self.set_pod(pod, "Succeeded", {"terminated": {"exitCode": 0, "reason": "Completed"}})
        else:
            super()._finish(pod)
