"""The deferrable operator and its trigger against a real API server."""

from __future__ import annotations

import asyncio
import json
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException, TaskDeferred
from control_plane import WORKER

from fabric_health.airflow import custom_job
from fabric_health.airflow.custom_job import CustomJobOperator, CustomJobTrigger, pod_settings
from fabric_health.jobs.kubernetes import manifests
from fabric_health.jobs.kubernetes.kinds import MPI_JOB
from fabric_health.jobs.spec import JobSpec


class State(dict):
    """The task's state store, kept across tries."""

    def set(self, key, value, **_more):
        self[key] = value


@pytest.fixture
def task(plane, namespace, settings, monkeypatch):
    """Return a function that makes the operator of one task, and its context."""
    from fabric_health.connections import Connection

    kubeconfig = plane.kubeconfig(WORKER)
    cluster = Connection("cluster", extra={"kube_config": json.dumps(kubeconfig)})
    monkeypatch.setattr(custom_job, "airflow_connection", lambda _id: cluster)
    state = State()

    def make(source: str, try_number: int = 1, family: str = "mpi", **more):
        argv, nodes = ("{python}", "-c", source), ("gpu-001", "gpu-002")
        spec = JobSpec("job", "self", argv, nodes=nodes, time_limit_s=60, family=family)
        job = manifests.job(spec, settings, "site-a", "run-1", datetime(2026, 11, 30, tzinfo=UTC))
        manifest = {k: job.manifest[k] for k in ("apiVersion", "kind", "spec")}
        arguments = {
            "manifest": manifest,
            "namespace": namespace,
            "deadline_s": 60,
            "nonce": job.nonce,
            "kubernetes_conn_id": "cluster",
            "poll_s": 0.2,
            **more,
        }
        operator = CustomJobOperator(task_id="elastic", **arguments)
        ti = SimpleNamespace(dag_id="d", run_id="r", task_id="elastic", map_index=-1, try_number=try_number)
        return operator, {"ti": ti, "task_state_store": state}

    return make


def deferred(operator, context) -> CustomJobTrigger:
    """Execute up to the deferral and return the trigger as the triggerer would make it."""
    with pytest.raises(TaskDeferred) as raised:
        operator.execute(context)
    assert raised.value.method_name == "execute_complete"
    path, kwargs = raised.value.trigger.serialize()
    assert path == "fabric_health.airflow.custom_job.CustomJobTrigger"
    assert raised.value.timeout.total_seconds() > kwargs["deadline"] - time.time()
    return CustomJobTrigger(**json.loads(json.dumps(kwargs)))


def fired(trigger: CustomJobTrigger, limit_s: float = 60.0) -> dict:
    async def one() -> dict:
        async with asyncio.timeout(limit_s):
            async for event in trigger.run():
                return event.payload
        raise AssertionError("no event")

    return asyncio.run(one())


def test_success(task, player):
    operator, context = task("print('fine')")
    event = fired(deferred(operator, context))
    assert event["status"] == "final"
    result = operator.execute_complete(context, event)
    assert result["log_bytes"] > 0
    assert len(json.dumps(result)) < 500
    player.wait_until(lambda: not player.left())


def test_a_failed_job_fails_the_task_for_good_and_leaves_nothing(task, player):
    operator, context = task("import sys; sys.exit(7)")
    event = fired(deferred(operator, context))
    with pytest.raises(AirflowFailException, match="exit code 7"):
        operator.execute_complete(context, event)
    player.wait_until(lambda: not player.left())


def test_completed_with_a_log_that_does_not_show_it_is_a_failure(task, player):
    operator, context = task("print('nothing of note')", nonce=None, success_pattern=r"world_size=2")
    with pytest.raises(AirflowFailException, match="no match for 'world_size=2'"):
        operator.execute_complete(context, fired(deferred(operator, context)))
    player.wait_until(lambda: not player.left())
    with pytest.raises(ValueError, match="judged from its log"):
        task("pass", nonce=None)


def test_a_retried_task_adopts_the_running_job_and_replaces_a_failed_one(task, player):
    operator, context = task("import time; time.sleep(3); print('once')")
    first = deferred(operator, context)
    again, context = task("import time; time.sleep(3); print('once')", try_number=2)
    second = deferred(again, context)
    assert first.identity == second.identity
    assert fired(first)["status"] == fired(second)["status"] == "final"
    again.execute_complete(context, {**second.identity, "status": "final", "message": ""})
    player.wait_until(lambda: not player.left())

    failing, context = task("import sys; sys.exit(1)", keep_failed=True)
    trigger = deferred(failing, context)
    with pytest.raises(AirflowFailException):
        failing.execute_complete(context, fired(trigger))
    assert player.left(), "kept for inspection"
    retried, context = task("import sys; sys.exit(1)", try_number=2)
    fresh = deferred(retried, context)
    assert fresh.identity["uid"] != trigger.identity["uid"]
    retried.on_kill()
    player.wait_until(lambda: not player.left())


def test_a_job_that_has_ended_is_judged_without_deferring(task, player):
    operator, context = task("print('fine')")
    assert fired(deferred(operator, context))["status"] == "final"
    again, context = task("print('fine')")
    assert again.execute(context)["log_bytes"] > 0
    player.wait_until(lambda: not player.left())


def test_the_deadline_is_an_event_and_deletes_the_job(task, player):
    operator, context = task("import time; time.sleep(60)", deadline_s=2)
    event = fired(deferred(operator, context))
    assert event["status"] == "timeout"
    with pytest.raises(AirflowException, match="deadline passed"):
        operator.execute_complete(context, event)
    player.wait_until(lambda: not player.left())


def test_deleted_or_replaced_behind_our_back(task, player):
    operator, context = task("import time; time.sleep(60)")
    trigger = deferred(operator, context)
    player.custom.delete_namespaced_custom_object(
        MPI_JOB.group, MPI_JOB.version, player.namespace, MPI_JOB.plural, trigger.identity["name"]
    )
    event = fired(trigger)
    assert event["status"] == "gone"
    with pytest.raises(AirflowException, match="deleted or replaced"):
        operator.execute_complete(context, event)


def test_killing_the_deferred_task_deletes_the_job_and_a_restart_of_the_triggerer_does_not(task, player):
    operator, context = task("import time; time.sleep(60)")
    trigger = deferred(operator, context)
    player.wait_until(lambda: player.running)

    async def restarted() -> None:
        running = asyncio.ensure_future(anext(trigger.run()))
        await asyncio.sleep(1)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await trigger.cleanup()

    asyncio.run(restarted())
    assert any(left.startswith("MPIJob") for left in player.left())
    asyncio.run(trigger.on_kill())
    player.wait_until(lambda: not player.left())


def test_the_trigger_never_blocks_the_loop(task, player):
    """The API server is away for a while: other triggers go on."""
    operator, context = task("import time; time.sleep(5); print('x')")
    trigger = deferred(operator, context)
    gaps: list[float] = []

    async def beside() -> dict:
        async def beat() -> None:
            while True:
                before = time.monotonic()
                await asyncio.sleep(0.05)
                gaps.append(time.monotonic() - before)

        beating = asyncio.ensure_future(beat())
        async with asyncio.timeout(90):
            event = await anext(trigger.run())
        beating.cancel()
        return event.payload

    player.plane.stop_api()
    with ThreadPoolExecutor(1) as triggerer:
        event = triggerer.submit(lambda: asyncio.run(beside()))
        time.sleep(1)
        player.plane.start_api()  # in this thread: the kernel ends the server with the thread that started it
        assert event.result()["status"] == "final"
    assert sorted(gaps)[int(len(gaps) * 0.99)] < 2.0
    operator.execute_complete(context, {**trigger.identity, "status": "final", "message": ""})
    player.wait_until(lambda: not player.left())


def test_a_refusal_is_final_and_in_words(task, player):
    operator, context = task("pass", namespace="nowhere")
    with pytest.raises(AirflowFailException, match="may not create mpijobs"):
        operator.execute(context)


def test_an_elastic_job_is_judged_by_its_workers_and_not_by_dlrovers_master(task, player):
    operator, context = task("print('trained')", family="elastic")
    result = operator.execute_complete(context, fired(deferred(operator, context)))
    assert result["kind"] == "elasticjob"
    player.wait_until(lambda: not player.left())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda template: template.pop("metadata"), "worker.template has no metadata.labels"),
        (lambda template: template["spec"].pop("restartPolicy"), "worker.template has no spec.restartPolicy"),
    ],
)
def test_a_template_of_which_dlrover_would_make_no_workers_is_refused_before_it_is_sent(task, player, change, message):
    operator, context = task("print('trained')", family="elastic")
    change(operator.manifest["spec"]["replicaSpecs"]["worker"]["template"])
    with pytest.raises(AirflowFailException, match=f"{message}: DLRover would start its master, no workers"):
        operator.execute(context)
    assert not player.left()


def test_pod_settings_fit_the_pod_operator():
    import inspect

    from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator

    known = inspect.signature(KubernetesPodOperator.__init__).parameters
    assert set(pod_settings("n")) <= set(known)
    assert pod_settings("n")["do_xcom_push"] is False
