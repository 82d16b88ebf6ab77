"""What is read of an elastic job's pods: who they are, how they lived, what they trained; and what is refused."""

from __future__ import annotations

import copy
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric_health.jobs.kubernetes.api import Cluster
from fabric_health.jobs.kubernetes.elastic import newest_of_ranks, problem_of, replica_of, split
from fabric_health.jobs.kubernetes.framed_log import FramedLog
from fabric_health.jobs.kubernetes.kinds import ELASTIC_JOB, MPI_JOB, Phase, State
from fabric_health.jobs.kubernetes.outcome import Seen, hosts_of, result_of, split_pods
from fabric_health.jobs.kubernetes.pod_lives import PodLives, deleted_at, started_at, unix
from fabric_health.jobs.kubernetes.workers import last_step
from fabric_health.jobs.spec import JobSpec, JobStatus

ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
TEMPLATE = {"metadata": {"labels": {"a": "b"}}, "spec": {"restartPolicy": "Never", "containers": [{"name": "main"}]}}
JOB = {
    "apiVersion": ELASTIC_JOB.api_version,
    "kind": "ElasticJob",
    "spec": {"replicaSpecs": {"worker": {"replicas": 4, "template": TEMPLATE}}},
}


def pod(number: int, rank: int | None, phase: str = "Running", relaunched: int = 0, **metadata) -> dict:
    labels = {
        "elasticjob.dlrover/replica-type": "worker",
        "elasticjob.dlrover/replica-index": str(number),
        "elasticjob.dlrover/relaunch-count": str(relaunched),
        **({} if rank is None else {"elasticjob.dlrover/rank-index": str(rank)}),
    }
    made = {"creationTimestamp": f"2026-11-30T03:00:{number:02}Z", "labels": labels, **metadata}
    return {
        "metadata": {"name": f"j-edljob-worker-{number}", "uid": f"u{number}", **made},
        "spec": {"nodeName": f"gpu-{number}"},
        "status": {"phase": phase},
    }


def changed(*path: str, value: object = None) -> dict:
    made = copy.deepcopy(JOB)
    at: dict = made
    for key in path[:-1]:
        at = at[key]
    if value is None:
        del at[path[-1]]
    else:
        at[path[-1]] = value
    return made


WORKER = ("spec", "replicaSpecs", "worker")


@pytest.mark.parametrize(
    ("job", "message"),
    [
        (changed(*WORKER), "spec.replicaSpecs has no `worker`"),
        (changed("spec", "replicaSpecs"), "spec.replicaSpecs has no `worker`"),
        (changed(*WORKER, "replicas"), "worker.replicas is None"),
        (changed(*WORKER, "replicas", value=0), "worker.replicas is 0"),
        (changed(*WORKER, "template"), "worker.template has no metadata.labels"),
        (changed(*WORKER, "template", "metadata"), "worker.template has no metadata.labels"),
        (changed(*WORKER, "template", "metadata", "labels", value={}), "worker.template has no metadata.labels"),
        (changed(*WORKER, "template", "spec", "restartPolicy"), "worker.template has no spec.restartPolicy"),
        (changed(*WORKER, "template", "spec", "restartPolicy", value="never"), "spec.restartPolicy 'never'"),
        (changed(*WORKER, "template", "spec", "containers", value=[{"name": "job"}]), "no container called `main`"),
    ],
)
def test_what_dlrover_silently_makes_no_workers_of_is_named(job, message):
    assert message in problem_of(job)


def test_a_complete_manifest_has_no_problem_whatever_its_master_is_like():
    assert problem_of(JOB) == ""
    assert problem_of(changed("spec", "replicaSpecs", "dlrover-master", value={"replicas": 1})) == ""
    assert problem_of({"apiVersion": MPI_JOB.api_version, "kind": "MPIJob"}) == ""


@given(ANY, ANY)
def test_no_manifest_makes_the_check_raise_or_pass(replicas, template):
    job = {**JOB, "spec": {"replicaSpecs": replicas}}
    assert problem_of(job)
    made = {**JOB, "spec": {"replicaSpecs": {"worker": {"replicas": 1, "template": template}}}}
    assert problem_of(made)


def test_a_pod_is_known_by_its_labels_and_by_its_name_without_them():
    assert replica_of(pod(7, 3, relaunched=1)) == replica_of(pod(7, 3, relaunched=1))
    assert (replica_of(pod(7, 3)).id, replica_of(pod(7, 3)).rank_index) == (7, 3)
    bare = pod(5, None)
    bare["metadata"]["labels"] = {}
    assert (replica_of(bare).type, replica_of(bare).id, replica_of(bare).rank_index) == ("worker", 5, None)
    for name in ("elasticjob-j-dlrover-master", "elasticjob-j-dlrover-master-1"):
        assert replica_of({"metadata": {"name": name}}).type == "dlrover-master"


@given(st.dictionaries(st.sampled_from(["metadata", "spec", "status"]), st.dictionaries(st.text(), st.text())))
def test_no_pod_makes_reading_raise(made):
    assert replica_of(made).type
    started_at(made)
    deleted_at(made)


def test_the_newest_pod_of_a_rank_speaks_for_it_and_one_that_leaves_for_nobody():
    leaving = pod(3, 3, deletionTimestamp="2026-11-30T03:01:00Z")
    pods = [pod(0, 0), pod(1, 1, "Failed"), pod(2, 2), leaving, pod(4, 1, relaunched=1), pod(10, None)]
    deciding, earlier = newest_of_ranks(pods)
    assert [p["metadata"]["uid"] for p in deciding] == ["u0", "u2", "u4", "u10"]
    assert [p["metadata"]["uid"] for p in earlier] == ["u1", "u3"]
    assert newest_of_ranks([leaving]) == ([leaving], [])


def test_the_masters_pod_is_none_of_the_workers_and_no_host():
    master = {"metadata": {"name": "elasticjob-j-dlrover-master", "uid": "m"}, "spec": {"nodeName": "cpu-1"}}
    pods = [master, pod(1, 1), pod(0, 0)]
    assert split_pods(ELASTIC_JOB, pods) == ([pod(0, 0), pod(1, 1)], [master])
    assert split(pods)[1] == [master]
    assert hosts_of(ELASTIC_JOB, pods) == {"j-edljob-worker-0": "gpu-0", "j-edljob-worker-1": "gpu-1"}


def whole(text: str, code: int = 0, status: str = "exited") -> FramedLog:
    return FramedLog(text, "", status, code, started_at=1.0, ended_at=2.0)


CUT = FramedLog("lost", "", truncated=True, problem="the log stops before the job's end")
SPEC = JobSpec("elastic", "x", ("x",), nodes=("a", "b"), family="elastic")


@pytest.mark.parametrize(
    ("phase", "logs", "earlier", "status", "code"),
    [
        (Phase.SUCCEEDED, [whole("a\n"), whole("b\n")], [CUT], JobStatus.EXITED, 0),
        (Phase.SUCCEEDED, [whole("a\n"), whole("b\n")], [whole("old\n", 1)], JobStatus.EXITED, 0),
        (Phase.SUCCEEDED, [whole("a\n"), whole("b\n", 3)], [], JobStatus.EXITED, 3),
        (Phase.SUCCEEDED, [whole("a\n"), CUT], [], JobStatus.LOST, None),
        (Phase.FAILED, [whole("a\n"), whole("b\n")], [], JobStatus.EXITED, 1),
        (Phase.FAILED, [whole("a\n", 1), CUT], [CUT], JobStatus.EXITED, 1),
        (Phase.FAILED, [whole("a\n"), whole("b\n", 143, "timeout")], [], JobStatus.TIMEOUT, 143),
        (Phase.SUCCEEDED, [], [CUT], JobStatus.LOST, None),
    ],
)
def test_an_elastic_job_is_judged_by_every_rank_and_never_by_a_replaced_worker(phase, logs, earlier, status, code):
    seen = Seen(State(phase, phase.value), [pod(0, 0), pod(1, 1)], logs, earlier=earlier)
    result = result_of(SPEC, ELASTIC_JOB, seen)
    assert (result.status, result.exit_code) == (status, code), result.reason
    said = "".join(f"{log.stdout.rstrip()}\n" for log in [*earlier, *logs])
    assert result.stdout.rstrip() == said.rstrip(), "what every worker said is kept, one after the other"


def test_an_evicted_worker_that_was_replaced_is_not_the_jobs_end():
    evicted = pod(1, 1, "Failed")
    evicted["status"]["reason"] = "Evicted"
    pods = [pod(0, 0), evicted, pod(2, 1)]
    seen = Seen(State(Phase.SUCCEEDED), pods, [whole("a\n"), whole("c\n")], earlier=[CUT])
    assert result_of(SPEC, ELASTIC_JOB, seen).status is JobStatus.EXITED


def test_a_pods_life_is_told_in_the_apis_times_once_and_to_its_end():
    lives = PodLives()
    running = pod(1, 1)
    state = {"running": {"startedAt": "2026-11-30T03:00:05Z"}}
    running["status"]["containerStatuses"] = [{"state": state}]
    leaving = copy.deepcopy(running)
    # What the API says is the end of the grace; the request came that much earlier.
    leaving["metadata"] |= {"deletionTimestamp": "2026-11-30T03:01:00Z", "deletionGracePeriodSeconds": 30}
    ended = pod(2, 1, "Succeeded", relaunched=1)
    state = {"terminated": {"startedAt": "2026-11-30T03:01:10Z", "finishedAt": "2026-11-30T03:02:00Z"}}
    ended["status"]["containerStatuses"] = [{"state": state}]
    start = unix("2026-11-30T03:00:00Z")
    assert start is not None
    for pods, at in (([running], 6), ([running], 8), ([leaving], 31), ([ended], 62), ([ended], 130)):
        lives.see(pods, start + at)
    told = [json.loads(line) for line in lives.lines().splitlines()]
    assert [(e["pod"][-1], e["event"], e["t"] - start) for e in told] == [
        ("1", "created", 1),
        ("2", "created", 2),
        ("1", "running", 5),
        ("1", "deleted", 30),
        ("1", "gone", 62),
        ("2", "running", 70),
        ("2", "succeeded", 120),
    ]
    assert told[-1] == {
        "t": start + 120,
        "pod": "j-edljob-worker-2",
        "event": "succeeded",
        "replica_type": "worker",
        "replica_id": 2,
        "rank_index": 1,
        "relaunch_count": 1,
        "node": "gpu-2",
    }


@pytest.mark.parametrize("text", [None, "", "2026-11-30T03:00:00", "yesterday", 5, "9999999-01-01T00:00:00Z"])
def test_what_is_no_time_of_the_api_is_none(text):
    assert unix(text) is None


@pytest.mark.parametrize(
    ("log", "step"),
    [
        (b'EV {"kind": "step", "step": 5}\nEV {"kind": "step", "step": 12}\n', 12),
        (b'[rank0]:EV {"kind": "step", "step": 7}\n', 7),
        (b'FHJ1 abc err EV {"kind": "step", "step": 8}\r\n', 8),
        (b'EV {"kind": "save", "step": 9}\n', None),
        (
            b'EV {"kind": "step", "step": "9"}\nEV {"kind": "step", "step": true}\nEV {"kind": "step", "step": -1}\n',
            None,
        ),
        (b'EV {"kind": "step", "step": 9\n', None),
        (b'SEV {"kind": "step", "step": 9}\n', None),
        (b"EV [1]\nEV {}\nEV " + b"{" * 5000 + b"\n", None),
        (b"", None),
    ],
)
def test_steps_are_read_from_our_events_alone(log, step):
    assert last_step([None, log]) == step


@given(st.lists(st.none() | st.binary() | st.text().map(lambda t: f"EV {{{t}}}".encode())))
def test_no_log_makes_reading_steps_raise(logs):
    assert last_step(logs) is None


class Kubelet(Cluster):
    """Serves one log as a kubelet does: so many lines before its end, and from there so many bytes."""

    served = b""

    def _call(self, verb: object, kind: object, method: str, path: str, *, query=None, body=None) -> bytes:
        asked = {k: int(v) for k, v in query}
        lines = self.served.splitlines(keepends=True)[-asked.get("tailLines", 0) :]
        return b"".join(lines)[: asked["limitBytes"]]


def test_of_long_lines_fewer_are_read_so_that_the_end_is_among_them() -> None:
    cluster = Kubelet(None, "jobs")
    cluster.served = b"".join(b"line %06d\n" % n for n in range(1000))
    assert cluster.log("worker", None, 1 << 20, 50) == cluster.served[-600:]
    assert cluster.log("worker", None, 601, 200) == cluster.served[-600:]
    assert cluster.log("worker", None, 600, 200) == cluster.served[-300:]
    assert cluster.log("worker", None, 24) == cluster.served[:24]
    assert cluster.log("worker", None, 5, 200) == b"line "
    cluster.served = b""
    assert cluster.log("worker", None, 5, 200) == b""
