"""One deferrable operator for jobs that are custom resources, and the settings of ones that are single pods.

What kinds there are, how their states are read and what their refusals mean is ``fabric_health.jobs.kubernetes``; this
adapts it to tasks: the worker is free while the job runs, and a task that is killed, cleared or retried neither
orphans its job nor starts a second one.
"""

from __future__ import annotations

import asyncio
import copy
import random
import re
import time
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowException, AirflowFailException
from airflow.triggers.base import BaseTrigger, TriggerEvent

from fabric_health.airflow.connections import airflow_connection

if TYPE_CHECKING:
    from airflow.sdk import Context

    from fabric_health.jobs.kubernetes.api import Cluster
    from fabric_health.jobs.kubernetes.framed_log import FramedLog

STATE_KEY = "custom_job"
# The scheduler's own timeout of a deferral runs neither on_kill nor execute_complete: it must never come first.
TRIGGER_GRACE = timedelta(minutes=15)
KILL_LIMIT_S = 25.0
LOG_BYTES = 16 << 20


class CustomJobOperator(BaseOperator):
    """Run a custom resource (MPIJob, Volcano Job, ElasticJob) or a pod to its end and judge it from its log.

    The object's name follows from DAG, run, task and map index. One of that name is adopted when it carries our
    labels, and left alone otherwise. It is deleted at its end, when the task is killed, and at its deadline.

    :param manifest: the object, without a name (templated)
    :param namespace: where it is made (templated)
    :param deadline_s: seconds the object may take from being made to its end
    :param nonce: of the framed log of :mod:`fabric_health.jobs.kubernetes.wrapper`; the log must be whole and its exit
        code 0
    :param success_pattern: regular expression that the log must hold, for jobs without a framed log. One of both is
        required: that a controller says "Completed" is never enough
    :param kubernetes_conn_id: connection to the cluster; None is the worker's own account
    :param poll_s: seconds between two looks
    :param keep_failed: leave the object of a failed job for inspection; the sweep takes it after its deadline
    """

    template_fields: Sequence[str] = ("manifest", "namespace")
    template_fields_renderers = {"manifest": "yaml"}  # noqa: RUF012  as Airflow declares it
    # A templated string that ends in .yaml is no file of ours to open.
    template_ext: Sequence[str] = ()

    def __init__(
        self,
        *,
        manifest: dict[str, Any],
        namespace: str,
        deadline_s: float,
        nonce: str | None = None,
        success_pattern: str | None = None,
        kubernetes_conn_id: str | None = None,
        poll_s: float = 15.0,
        keep_failed: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if nonce is None and success_pattern is None:
            raise ValueError("expected nonce or success_pattern: a job is judged from its log")
        self.manifest = manifest
        self.namespace = namespace
        self.deadline_s = deadline_s
        self.nonce = nonce
        self.success_pattern = success_pattern
        self.kubernetes_conn_id = kubernetes_conn_id
        self.poll_s = poll_s
        self.keep_failed = keep_failed

    def execute(self, context: Context) -> dict[str, Any]:
        """Make or adopt the object and wait for its end without holding the worker."""
        from fabric_health.errors import UsageError
        from fabric_health.jobs.kubernetes.api import ClusterRefusedError
        from fabric_health.jobs.kubernetes.backend import deadline_of, make_or_adopt

        cluster = connect(self.kubernetes_conn_id, self.namespace)
        job = self._job(context)
        try:
            self._clear_failed(cluster, job, context)
            obj = make_or_adopt(cluster, job, self.log.info)
        except (ClusterRefusedError, UsageError) as error:
            raise AirflowFailException(str(error)) from None
        identity = {
            "kind": job.kind.name,
            "namespace": self.namespace,
            "name": job.name,
            "uid": str(obj["metadata"]["uid"]),
        }
        deadline = deadline_of(obj) or time.time() + self.deadline_s
        self._remember(context, identity)
        if job.kind.state(obj).phase.final:
            return self.execute_complete(context, {**identity, "status": "final", "message": ""})
        self.defer(
            trigger=CustomJobTrigger(
                **identity, kubernetes_conn_id=self.kubernetes_conn_id, deadline=deadline, poll_s=self.poll_s
            ),
            method_name="execute_complete",
            timeout=timedelta(seconds=max(0.0, deadline - time.time())) + TRIGGER_GRACE,
        )
        raise AssertionError("defer does not return")

    def execute_complete(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        """Judge the job from its log, delete its object, and return its identity and the log's size in bytes.

        Raises AirflowFailException when the job failed, AirflowException (which may be retried) when it was lost.
        """
        from fabric_health.jobs.kubernetes.kinds import KINDS, Phase
        from fabric_health.jobs.kubernetes.outcome import judged_by, split_pods
        from fabric_health.jobs.kubernetes.reasons import first, of_pod

        cluster = connect(self.kubernetes_conn_id, event["namespace"], following=True)
        kind, name, uid = KINDS[event["kind"]], event["name"], event["uid"]
        failed = True
        try:
            pods = cluster.pods_of(kind, name)
            obj = cluster.get(kind, name)
            state = kind.state(obj or {})
            judged = judged_by(kind, pods)
            trouble = first(of_pod(p) for p in judged)
            main, others = split_pods(kind, pods)
            # Of an elastic job's workers those that were replaced say nothing about its end.
            main, others = [p for p in main if p in judged], [*others, *(p for p in main if p not in judged)]
            logs = [cluster.log(p["metadata"]["name"], None, LOG_BYTES) or b"" for p in main]
            for pod, log in zip(main, logs, strict=True):
                self._tell(pod["metadata"]["name"], log)
            for pod in others[:16]:
                self._tell(pod["metadata"]["name"], cluster.log(pod["metadata"]["name"], None, 1 << 15) or b"")
            if obj is None or obj["metadata"]["uid"] != uid:
                raise AirflowException(f"{kind.kind} {name} was deleted or replaced while it ran, and not by us")
            if event["status"] in ("timeout", "error"):
                raise AirflowException(
                    f"{kind.kind} {name}: {event['message']}" + (f"; {trouble.text}" if trouble else "")
                )
            if trouble and trouble.infrastructure:
                raise AirflowException(trouble.text)
            problem = self._problem(logs)
            if state.phase is not Phase.SUCCEEDED or problem:
                said = "; ".join(p for p in (state.said, trouble.text if trouble else "", problem) if p)
                raise AirflowFailException(f"{kind.kind} {name} failed: {said}")
            failed = False
            return {**{k: event[k] for k in ("kind", "namespace", "name", "uid")}, "log_bytes": sum(map(len, logs))}
        finally:
            if not (failed and self.keep_failed and event["status"] == "final"):
                cluster.delete(kind, name, uid)

    def on_kill(self) -> None:
        """Delete the object when the worker's part of the task is killed."""
        identity = getattr(self, "_identity", None)
        if identity:
            from fabric_health.jobs.kubernetes.kinds import KINDS

            cluster = connect(self.kubernetes_conn_id, identity["namespace"])
            cluster.patience_s = KILL_LIMIT_S
            cluster.delete(KINDS[identity["kind"]], identity["name"], identity["uid"])

    def _problem(self, logs: list[bytes]) -> str:
        """Return why the logs are not those of a job that went well, "" when they are."""
        if not logs:
            return "it has no log"
        if self.nonce is not None:
            from fabric_health.jobs.kubernetes.framed_log import read_log

            framed = [read_log(log, self.nonce) for log in logs]
            return next((p for p in map(_framed_problem, framed) if p), "")
        assert self.success_pattern is not None
        text = b"\n".join(logs).decode("utf-8", "replace")
        return "" if re.search(self.success_pattern, text) else f"its log has no match for {self.success_pattern!r}"

    def _tell(self, pod: str, log: bytes) -> None:
        self.log.info("log of pod %s (%d bytes):\n%s", pod, len(log), log[-65536:].decode("utf-8", "backslashreplace"))

    def _job(self, context: Context) -> Any:
        from datetime import UTC, datetime

        from fabric_health.jobs.kubernetes import manifests
        from fabric_health.jobs.kubernetes.kinds import kind_of

        ti = context["ti"]
        run = f"{ti.dag_id}/{ti.run_id}"
        name = manifests.object_name(ti.dag_id, f"{ti.run_id}\0{ti.map_index}", ti.task_id)
        manifest = copy.deepcopy(self.manifest)
        metadata = manifest.setdefault("metadata", {})
        metadata.update(name=name, namespace=self.namespace)
        until = datetime.fromtimestamp(int(time.time() + self.deadline_s), UTC)
        metadata["labels"] = {
            **metadata.get("labels", {}),
            manifests.MANAGED_BY: manifests.OWNER,
            manifests.RUN: manifests.run_label(ti.dag_id, run),
            manifests.OBJECT: name,
        }
        metadata["annotations"] = {
            **metadata.get("annotations", {}),
            manifests.DEADLINE: until.isoformat(),
            "fabric-health/run-name": run,
            "fabric-health/description": manifests.description_of(self.manifest),
        }
        return manifests.Job(kind_of(manifest), name, manifest, self.nonce or "")

    def _clear_failed(self, cluster: Cluster, job: Any, context: Context) -> None:
        """Delete what an earlier try left when it has failed: adopting it would fail every retry at once."""
        from fabric_health.jobs.kubernetes.backend import is_ours
        from fabric_health.jobs.kubernetes.kinds import Phase

        if context["ti"].try_number <= 1:
            return
        existing = cluster.get(job.kind, job.name)
        if existing and is_ours(existing, job) and job.kind.state(existing).phase is Phase.FAILED:
            cluster.delete(job.kind, job.name, existing["metadata"]["uid"])

    def _remember(self, context: Context, identity: dict[str, str]) -> None:
        self._identity = identity
        store = context.get("task_state_store")
        if store is not None:
            store.set(STATE_KEY, identity)


class CustomJobTrigger(BaseTrigger):
    """Waits for an object's end. Fires one event whose ``status`` is final, gone, timeout or error.

    The deadline is kept here and fires an event, so that the operator can delete the object.
    """

    def __init__(
        self,
        kind: str,
        namespace: str,
        name: str,
        uid: str,
        kubernetes_conn_id: str | None,
        deadline: float,
        poll_s: float,
    ) -> None:
        super().__init__()
        self.identity = {"kind": kind, "namespace": namespace, "name": name, "uid": uid}
        self.kubernetes_conn_id = kubernetes_conn_id
        self.deadline = deadline
        self.poll_s = poll_s

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class's path and plain arguments; credentials are looked up by connection id where it runs."""
        return (
            f"{type(self).__module__}.{type(self).__qualname__}",
            {
                **self.identity,
                "kubernetes_conn_id": self.kubernetes_conn_id,
                "deadline": self.deadline,
                "poll_s": self.poll_s,
            },
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Look every ``poll_s`` seconds, give or take, until there is something to tell."""
        from fabric_health.errors import FabricHealthError

        try:
            cluster = await self._cluster()
            while True:
                status = await self._look(cluster)
                if status:
                    yield self._event(status, "")
                    return
                left_s = self.deadline - time.time()
                if left_s <= 0:
                    yield self._event("timeout", "its deadline passed; it is deleted")
                    return
                # Spread, so that many triggers that start together do not ask together for ever.
                await asyncio.sleep(min(max(left_s, 0.05), self.poll_s * random.uniform(0.8, 1.2)))  # noqa: S311
        except FabricHealthError as error:
            yield self._event("error", str(error))

    async def on_kill(self) -> None:
        """Delete the object: a person ended the task. Not called when the triggerer restarts."""
        from fabric_health.jobs.kubernetes.kinds import KINDS

        cluster = await self._cluster()
        cluster.patience_s = KILL_LIMIT_S
        await _in_thread(cluster.delete, KINDS[self.identity["kind"]], self.identity["name"], self.identity["uid"])

    async def _cluster(self) -> Cluster:
        return await _in_thread(connect, self.kubernetes_conn_id, self.identity["namespace"], True)  # type: ignore[no-any-return]

    async def _look(self, cluster: Cluster) -> str | None:
        from fabric_health.jobs.kubernetes.kinds import KINDS

        kind = KINDS[self.identity["kind"]]
        obj = await _in_thread(cluster.get, kind, self.identity["name"])
        if obj is None or obj["metadata"]["uid"] != self.identity["uid"] or obj["metadata"].get("deletionTimestamp"):
            return "gone"
        return "final" if kind.state(obj).phase.final else None

    def _event(self, status: str, message: str) -> TriggerEvent:
        return TriggerEvent({**self.identity, "status": status, "message": message})


def pod_settings(namespace: str, conn_id: str | None = None) -> dict[str, Any]:
    """Return the arguments with which a ``KubernetesPodOperator`` keeps the rules that jobs here keep.

    No result through a sidecar, no spec with its environment in the log, nothing of a killed task left running.
    """
    return {
        "namespace": namespace,
        "kubernetes_conn_id": conn_id,
        "in_cluster": conn_id is None,
        "deferrable": True,
        "do_xcom_push": False,
        "get_logs": True,
        "on_finish_action": "delete_succeeded_pod",
        "on_kill_action": "delete_pod",
        "log_pod_spec_on_failure": False,
        "automount_service_account_token": False,
        "termination_message_policy": "FallbackToLogsOnError",
        "labels": {"app.kubernetes.io/managed-by": "fabric-health"},
    }


def connect(conn_id: str | None, namespace: str, following: bool = False) -> Cluster:
    """Return the cluster that an Airflow connection names; None is the account of the pod this runs in.

    ``following``: an object of ours is there, so we were let in before, and a refusal counts only when it lasts.
    """
    from fabric_health.jobs.kubernetes.api import Cluster

    cluster = Cluster.connect(conn_id, namespace, airflow_connection)
    cluster.let_in = following
    return cluster


async def _in_thread(function: Any, *args: Any) -> Any:
    # Not asyncio.to_thread: in the triggerer a connection is looked up through the loop that this runs in.
    from asgiref.sync import sync_to_async

    return await sync_to_async(function, thread_sensitive=False)(*args)


def _framed_problem(log: FramedLog) -> str:
    if not log.whole:
        return log.problem
    if log.status != "exited" or log.exit_code != 0:
        return f"{log.status}, exit code {log.exit_code}" + (f": {log.reason}" if log.reason else "")
    return ""


__all__ = ["CustomJobOperator", "CustomJobTrigger", "pod_settings"]
