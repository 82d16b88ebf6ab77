"""Why a job does not run, in words a person can act on: read from refusals of the API, pods and their events."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fabric_health.jobs.kubernetes.kinds import Kind

_INSUFFICIENT = re.compile(r"(\d+) Insufficient ([\w./-]*\w)")
_NODES = re.compile(r"(\d+)/(\d+) nodes are available")
_TAINT = re.compile(r"(?:untolerated taint|had taint) \{([^}]{1,200})\}")
_WEBHOOK = re.compile(r'admission webhook "([^"]{1,253})" denied the request:? ?(.*)', re.S)
_QUOTA = re.compile(r"exceeded quota: (\S+), requested: (.*?), used: (.*?), limited: (.*)", re.S)
_FORBIDDEN = re.compile(r'User "([^"]+)" cannot (\w+) resource "([^"]+)" in API group "([^"]*)"')
# A container that waits for one of these may still come up; this long it is left alone.
IMAGE_PATIENCE_S = 120.0
_IMAGE = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable")
_CONFIG = ("CreateContainerConfigError", "CreateContainerError", "RunContainerError")


@dataclass(frozen=True)
class Trouble:
    """What is wrong with a pod. ``hopeless``: waiting longer does not help (beyond a short patience)."""

    text: str
    hopeless: bool = False
    infrastructure: bool = False


def refusal(status: int, body: str, verb: str, kind: Kind, namespace: str) -> str:
    """Return why the API refused ``verb`` on ``kind``, and what to do; ``body`` is its answer."""
    message = _message(body)
    what = f"{kind.plural} in namespace {namespace!r}"
    if found := _WEBHOOK.search(message):
        return f"admission webhook {found[1]} refused the {kind.kind}: {found[2].strip()[:400] or 'no reason given'}"
    if found := _QUOTA.search(message):
        return (
            f"quota {found[1]} is used up: asked for {found[2]}, used {found[3]}, limit {found[4]}; "
            f"free some or raise it"
        )[:600]
    if status == 403:
        found = _FORBIDDEN.search(message)
        who = found[1] if found else "our account"
        group = found[4] if found else kind.group
        verb, resource = (found[2], found[3]) if found else (verb, kind.plural)
        in_group = f' of group "{group}"' if group else ""
        return f"{who} may not {verb} {resource}{in_group} in namespace {namespace!r}; see deploy/rbac.yaml"
    if status == 401:
        return "the cluster does not accept our credentials: they are missing or have expired"
    if status == 404 and "namespaces" in message and "not found" in message:
        return f"namespace {namespace!r} does not exist"
    if status == 404 and verb == "create":
        hint = f"; install {kind.install}" if kind.install else ""
        return f"the cluster has no {kind.kind} ({kind.api_version}){hint}"
    if status == 422:
        return f"the cluster holds the {kind.kind} for invalid: {message[:500]}"
    return f"the cluster answered {status} to {verb} {what}: {message[:400]}"


def of_pod(pod: Mapping[str, Any], events: Sequence[Mapping[str, Any]] = ()) -> Trouble | None:
    """Return what keeps a pod from running or ended it, None when nothing is wrong with it."""
    name = _get(pod, "metadata", "name")
    status = pod.get("status") or {}
    if status.get("reason") in ("Evicted", "Preempting", "NodeLost", "NodeShutdown", "Terminated", "Shutdown"):
        text = f"pod {name} was ended by its node: {status['reason']}: {str(status.get('message') or '')[:300]}"
        return Trouble(text, hopeless=True, infrastructure=True)
    if status.get("reason") in ("DeadlineExceeded", "UnexpectedAdmissionError", "OutOfcpu", "OutOfmemory"):
        return Trouble(f"pod {name}: {status['reason']}: {str(status.get('message') or '')[:300]}", hopeless=True)
    for container in [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]:
        if trouble := _of_container(str(name), container):
            return trouble
    for condition in status.get("conditions") or ():
        if condition.get("type") == "DisruptionTarget" and condition.get("status") == "True":
            text = f"pod {name} was ended by the cluster: {condition.get('reason')}: {condition.get('message')}"
            return Trouble(text[:500], hopeless=True, infrastructure=True)
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return Trouble(f"pod {name} cannot be placed: {unschedulable(str(condition.get('message') or ''))}")
    return _of_events(str(name), events)


def _of_container(name: str, container: Mapping[str, Any]) -> Trouble | None:
    state = container.get("state") or {}
    waiting, terminated = state.get("waiting") or {}, state.get("terminated") or {}
    reason, image = waiting.get("reason"), container.get("image")
    if reason in _IMAGE:
        said = str(waiting.get("message") or "")[:300]
        return Trouble(f"pod {name}: image {image} cannot be pulled ({reason}): {said}", hopeless=True)
    if reason in _CONFIG:
        return Trouble(f"pod {name} cannot start ({reason}): {str(waiting.get('message') or '')[:300]}", hopeless=True)
    if terminated.get("reason") == "OOMKilled":
        return Trouble(
            f"pod {name} ran out of memory (OOMKilled, exit {terminated.get('exitCode')}); "
            "give the job more memory or shared memory",
            hopeless=True,
        )
    if terminated.get("exitCode"):
        said = str(terminated.get("message") or "").strip()
        text = f"pod {name}: container {container.get('name')} ended with exit {terminated['exitCode']}"
        return Trouble(text + (f": {said[-300:]}" if said else ""), hopeless=True)
    return None


def _of_events(name: str, events: Sequence[Mapping[str, Any]]) -> Trouble | None:
    for event in reversed(events):
        reason, message = str(event.get("reason")), str(event.get("message") or "")
        if event.get("type") != "Warning":
            continue
        if reason in ("FailedScheduling", "Unschedulable"):
            return Trouble(f"{name} cannot be placed: {unschedulable(message)}")
        if reason in ("FailedCreate", "FailedCreatePodSandBox", "FailedMount", "FailedAttachVolume"):
            if found := _QUOTA.search(message):
                return Trouble(f"quota {found[1]} is used up: asked for {found[2]}, used {found[3]}, limit {found[4]}")
            return Trouble(f"{name}: {reason}: {message[:300]}")
    return None


def unschedulable(message: str) -> str:
    """Return the scheduler's message with what is missing first: ``not enough nvidia.com/gpu (4 nodes); ...``."""
    parts = [f"not enough {what} on {count} node(s)" for count, what in _INSUFFICIENT.findall(message)]
    parts += [f"taint {{{t}}} is not tolerated" for t in dict.fromkeys(_TAINT.findall(message))]
    if "affinity/selector" in message or "node(s) didn't match" in message:
        parts.append("no other node is the one asked for")
    said = message.strip()[:400] or "the scheduler gave no reason"
    return f"{'; '.join(parts)} ({said})" if parts else said


def first(troubles: Iterable[Trouble | None]) -> Trouble | None:
    """Return the trouble that says most: one that is hopeless before one that may pass."""
    found = [t for t in troubles if t is not None]
    return next((t for t in found if t.hopeless), found[0] if found else None)


def _message(body: str) -> str:
    try:
        parsed = json.loads(body)
        return str(parsed.get("message") or body) if isinstance(parsed, dict) else body
    except (ValueError, RecursionError):
        return body


def _get(obj: Mapping[str, Any], *keys: str) -> Any:
    value: Any = obj
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value
