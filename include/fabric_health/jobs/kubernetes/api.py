"""The few calls of the Kubernetes API that jobs need, on plain JSON: one way for pods and custom resources."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

from fabric_health.connections import Connection, ConnectionSource
from fabric_health.errors import ConnectionSettingError, FabricHealthError
from fabric_health.jobs.kubernetes.kinds import POD, Kind
from fabric_health.jobs.kubernetes.reasons import refusal

Json = dict[str, Any]
CALL_S = 30.0
# Connections that are kept open for the next call: as many as calls are made at once.
CONNECTIONS = 16
# An API server that restarts, or a network that is away, may take this long before it counts as trouble.
PATIENCE_S = 300.0
# One that has just come up may refuse what it will allow once it has read its rules; after we were let in before, a
# refusal to read counts only when it lasts.
SETTLE_S = 30.0
_PASSING = (408, 429, 500, 502, 503, 504)


class ClusterRefusedError(FabricHealthError):
    """The cluster said no; ``status`` is its HTTP status, the message what a person can do."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class ClusterAwayError(FabricHealthError):
    """The cluster's API did not answer within the patience given."""


@dataclass
class Cluster:
    """A cluster's API in one namespace. Calls are repeated while the API is away, for ``patience_s`` at most."""

    client: Any
    namespace: str
    patience_s: float = PATIENCE_S
    sleep: Callable[[float], None] = field(default=time.sleep, repr=False)
    let_in: bool = False
    # What the API server's clock said last, s since 1970, to the second; ours and the nodes' may be wrong.
    server_time: float | None = None

    @classmethod
    def connect(cls, connection_id: str | None, namespace: str, connections: ConnectionSource) -> Cluster:
        """Connect by a connection (Airflow's own fields), or by the pod's own account when none is named.

        Raises ConnectionSettingError when neither works.
        """
        connection = connections(connection_id) if connection_id else None
        return cls(_client(connection), namespace)

    def create(self, kind: Kind, manifest: Json) -> Json:
        """Create an object and return it. Raises ClusterRefusedError (409 when the name is taken)."""
        return self._json("create", kind, "POST", kind.path(self.namespace), body=manifest)

    def get(self, kind: Kind, name: str) -> Json | None:
        """Return an object, None when it does not exist."""
        try:
            return self._json("get", kind, "GET", kind.path(self.namespace, name))
        except ClusterRefusedError as error:
            if error.status == 404:
                return None
            raise

    def delete(self, kind: Kind, name: str, uid: str | None = None) -> bool:
        """Delete an object and what belongs to it; False when it is gone, or is another one than ``uid``."""
        body: Json = {"propagationPolicy": "Foreground"}
        if uid:
            body["preconditions"] = {"uid": uid}
        if kind is POD:
            body["gracePeriodSeconds"] = 5
        try:
            self._json("delete", kind, "DELETE", kind.path(self.namespace, name), body=body)
        except ClusterRefusedError as error:
            if error.status in (404, 409):
                return False
            raise
        return True

    def end_pod(self, name: str, uid: str, grace_s: int) -> Json | None:
        """Delete one pod with ``grace_s`` seconds for its end; return it as it is then, None when it is gone already.

        Only the pod of this ``uid`` is meant: one that has taken its name is left alone.
        """
        body: Json = {"gracePeriodSeconds": grace_s, "preconditions": {"uid": uid}, "propagationPolicy": "Background"}
        try:
            return self._json("delete", POD, "DELETE", POD.path(self.namespace, name), body=body)
        except ClusterRefusedError as error:
            if error.status in (404, 409):
                return None
            raise

    def annotate(self, kind: Kind, name: str, uid: str, annotations: Mapping[str, str]) -> Json:
        """Add annotations to the object of this ``uid`` and return it. Raises ClusterRefusedError."""
        body: Json = {"metadata": {"uid": uid, "annotations": dict(annotations)}}
        return self._json("patch", kind, "PATCH", kind.path(self.namespace, name), body=body)

    def pods_of(self, kind: Kind, name: str) -> list[Json]:
        """Return all pods of an object, by whichever of its kind's labels they are found."""
        found: dict[str, Json] = {}
        for selector in kind.pods(name):
            found.update((str(p["metadata"]["uid"]), p) for p in self.objects(POD, selector))
        return list(found.values())

    def objects(self, kind: Kind, selector: str) -> list[Json]:
        """Return all objects that carry the labels, read in pages."""
        out: list[Json] = []
        more: str | None = None
        while True:
            query = [("labelSelector", selector), ("limit", "500"), *([("continue", more)] if more else [])]
            page = self._json("list", kind, "GET", kind.path(self.namespace), query=query)
            out += page.get("items") or []
            more = (page.get("metadata") or {}).get("continue")
            if not more:
                return out

    def events(self, name: str) -> list[Json]:
        """Return the events of the object called ``name``, oldest first; none when we may not read them."""
        query = [("fieldSelector", f"involvedObject.name={name}"), ("limit", "100")]
        try:
            page = self._json("list", _EVENTS, "GET", _EVENTS.path(self.namespace), query=query)
        except ClusterRefusedError:
            return []
        return sorted(page.get("items") or [], key=lambda e: str(e.get("lastTimestamp") or e.get("eventTime") or ""))

    def log(self, pod: str, container: str | None, limit: int, last_lines: int | None = None) -> bytes | None:
        """Return a pod's log, at most ``limit`` bytes; None when there is none (not started, rotated away, gone).

        With ``last_lines`` it is the log's end: that many lines, fewer where they are longer than ``limit``.
        """
        data = self._log(pod, container, limit, last_lines)
        # The kubelet goes back so many lines and counts bytes from there: of more it would leave out the very end.
        while last_lines and last_lines > 1 and data is not None and len(data) >= limit:
            last_lines //= 2
            data = self._log(pod, container, limit, last_lines)
        return data

    def _log(self, pod: str, container: str | None, limit: int, last_lines: int | None) -> bytes | None:
        query = [("limitBytes", str(limit)), *([("container", container)] if container else [])]
        query += [("tailLines", str(last_lines))] if last_lines else []
        try:
            return self._call("get", _LOGS, "GET", f"{POD.path(self.namespace, pod)}/log", query=query)
        except ClusterRefusedError as error:
            if error.status in (400, 404, 500):
                return None
            raise

    def changes(self, kind: Kind, name: str, version: str | None, timeout_s: float) -> Iterator[Json]:
        """Yield an object's changes after ``version`` for at most ``timeout_s``; ends early on any trouble.

        A watch is only told when to look again: the caller reads the object itself, so an expired version (410), an
        API that restarts or a proxy that cuts the stream costs a look and nothing else.
        """
        query = [
            ("watch", "true"),
            ("fieldSelector", f"metadata.name={name}"),
            ("timeoutSeconds", str(max(1, int(timeout_s)))),
            *([("resourceVersion", version)] if version else []),
        ]
        try:
            response = self._request("GET", kind.path(self.namespace), query, None, timeout_s + 5, stream=True)
        except Exception:
            self.sleep(min(1.0, timeout_s))
            return
        try:
            if response.status != 200:
                self.sleep(min(1.0, timeout_s))
                return
            pending = b""
            for piece in response.stream(amt=None, decode_content=False):
                *lines, pending = (pending + piece).split(b"\n")
                for line in lines:
                    if line.strip():
                        yield json.loads(line)
        except Exception:
            return
        finally:
            response.close()
            response.release_conn()

    def _json(self, verb: str, kind: Kind, method: str, path: str, **more: Any) -> Json:
        loaded = json.loads(self._call(verb, kind, method, path, **more) or b"{}")
        return loaded if isinstance(loaded, dict) else {}

    def _call(
        self,
        verb: str,
        kind: Kind,
        method: str,
        path: str,
        *,
        query: list[tuple[str, str]] | None = None,
        body: Json | None = None,
    ) -> bytes:
        began = time.monotonic()
        wait_s = 0.2
        while True:
            status, answer = 0, b""
            try:
                response = self._request(method, path, query or [], body, CALL_S)
                status, answer = response.status, response.data
                self._heard(response.headers.get("Date"))
            except Exception as error:
                answer = f"{type(error).__name__}: {error}".encode()
            if 200 <= status < 300:
                self.let_in = True
                return answer
            text = answer.decode("utf-8", "replace")
            waited_s = time.monotonic() - began
            settling = (
                status in (401, 403) and method == "GET" and self.let_in and waited_s < SETTLE_S and kind != _EVENTS
            )
            final = status and not settling and (status not in _PASSING or "admission webhook" in text)
            if final or (status == 500 and path.endswith("/log")):
                raise ClusterRefusedError(status, refusal(status, text, verb, kind, self.namespace))
            if waited_s >= self.patience_s:
                raise ClusterAwayError(
                    f"the cluster's API did not answer for {self.patience_s:.0f} s: {text[:300] or f'status {status}'}"
                )
            self.sleep(wait_s)
            wait_s = min(5.0, wait_s * 2)

    def _heard(self, date: str | None) -> None:
        with contextlib.suppress(ValueError, TypeError):
            self.server_time = parsedate_to_datetime(str(date)).timestamp()

    def _request(
        self,
        method: str,
        path: str,
        query: list[tuple[str, str]],
        body: Json | None,
        timeout_s: float,
        stream: bool = False,
    ) -> Any:
        """Send one request through the client's own connection pool with its credentials; no status is raised."""
        from urllib.parse import urlencode

        configuration = self.client.configuration
        headers: dict[str, str] = {"Accept": "application/json", "User-Agent": "fabric-health", **self._credentials()}
        if body is not None:
            headers["Content-Type"] = f"application/{'merge-patch+' if method == 'PATCH' else ''}json"
        return self.client.rest_client.pool_manager.request(
            method,
            f"{configuration.host.rstrip('/')}{path}" + (f"?{urlencode(query)}" if query else ""),
            body=None if body is None else json.dumps(body).encode(),
            headers=headers,
            timeout=timeout_s,
            preload_content=not stream,
            retries=False,
        )

    def _credentials(self) -> Mapping[str, str]:
        # Refreshes the token of an in-cluster account, which is short-lived, before it is used.
        settings = self.client.configuration.auth_settings()
        headers = {s["key"]: s["value"] for s in settings.values() if s.get("in") == "header" and s.get("value")}
        return {k: v for k, v in headers.items() if isinstance(v, str)}


_EVENTS = Kind("events", "", "v1", "events", "Event", POD.state_of, POD.pods)
_LOGS = Kind("logs", "", "v1", "pods/log", "Pod log", POD.state_of, POD.pods)


def _client(connection: Connection | None) -> Any:
    try:
        from kubernetes import client, config
    except ImportError:
        raise ConnectionSettingError(
            "the kubernetes backend needs the Kubernetes client: pip install 'fabric-health[kubernetes]'"
        ) from None
    configuration = client.Configuration()
    configuration.connection_pool_maxsize = CONNECTIONS
    try:
        if connection is None or connection.extra.get("in_cluster"):
            config.load_incluster_config(client_configuration=configuration)
        else:
            _from_kubeconfig(connection, configuration, config)
    except (config.ConfigException, OSError, ValueError, TypeError) as error:
        name = f"connection {connection.id!r}" if connection else "no connection is named and"
        raise ConnectionSettingError(f"{name}: no way to the cluster: {error} (docs/connections.md)") from None
    return client.ApiClient(configuration)


def _from_kubeconfig(connection: Connection, configuration: Any, config: Any) -> None:
    extra = connection.extra
    context = extra.get("cluster_context") or None
    if path := extra.get("kube_config_path"):
        config.load_kube_config(
            config_file=str(Path(str(path)).expanduser()), context=context, client_configuration=configuration
        )
        return
    inline = extra.get("kube_config")
    if not inline:
        raise ConnectionSettingError(
            f"connection {connection.id!r}: expected extra.in_cluster, extra.kube_config_path or extra.kube_config"
        )
    described = json.loads(inline) if isinstance(inline, str) else inline
    config.load_kube_config_from_dict(described, context=context, client_configuration=configuration)
