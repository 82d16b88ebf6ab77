"""Pods have names of their own: a launch on them counts only where it is proved which nodes they were on."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nccl_output import Run, connection_log, text

from fabric_health.checks.check import Launch, RowSet
from fabric_health.checks.collectives.parse import parse
from fabric_health.checks.collectives.tables import Collective, CollectiveLaunch, LaunchProblem
from fabric_health.evidence import CommandStatus, UnitEvidence
from fabric_health.site import Site

PODS = tuple(f"job-worker-{i}" for i in range(3))
PLACED = {f"job-worker-{i}": f"gpu-00{i + 1}" for i in range(3)}
Parsed = Callable[..., RowSet]


@pytest.fixture(scope="session")
def parsed(launch_of: Callable[..., Launch], evidence_of: Callable[..., UnitEvidence], fleet: Site) -> Parsed:
    """Parse a launch on pods; ``told`` is the text of hosts.json, None where there is none."""

    def make(told: str | None, *, hosts: tuple[str, ...] = PODS, whole: bool = True, grouping: str = "all") -> RowSet:
        run = Run(hosts=hosts, split={"all": "", "node": "DIV"}[grouping])
        launch = launch_of(nodes=len(hosts), grouping=grouping, per_iteration=False)
        evidence = evidence_of(launch, "\n".join(connection_log(run, "IB")) + "\n" + text(run))
        if told is not None:
            status = CommandStatus.EXITED if whole else CommandStatus.TRUNCATED
            file = replace(evidence.results[0], name="artefact:hosts.json", stdout=told, status=status)
            evidence = replace(evidence, results=(*evidence.results, file))
        return RowSet.gather(parse(launch, evidence, fleet))

    return make


def refusal(rows: RowSet) -> str:
    """The reason for which the hosts are not taken for those asked for; no number may be there."""
    assert rows.of(Collective) == []
    assert not rows.of(CollectiveLaunch)[0].usable
    (problem,) = [p for p in rows.of(LaunchProblem) if p.rule == "hosts_as_asked"]
    assert problem.refuses
    return problem.detail


def test_pods_on_the_nodes_asked_for(parsed: Parsed) -> None:
    rows = parsed(json.dumps(PLACED))
    assert rows.of(LaunchProblem) == []
    assert len(rows.of(Collective)) == 6


def test_the_file_of_the_kubernetes_backend_is_the_one_that_is_read() -> None:
    from fabric_health.checks.collectives.hosts import FILE
    from fabric_health.jobs.kubernetes.outcome import HOSTS_FILE

    assert FILE == HOSTS_FILE


def test_a_single_pod(parsed: Parsed) -> None:
    assert len(parsed('{"fh-x-1": "gpu-001"}', hosts=("fh-x-1",)).of(Collective)) == 6
    assert "no hosts.json" in refusal(parsed(None, hosts=("fh-x-1",)))


def test_names_with_and_without_a_domain(parsed: Parsed) -> None:
    """With the node's own network a pod is called like the node; the tool cuts the name at its first dot."""
    domain = {f"gpu-00{i}.cluster.local": f"gpu-00{i}.cluster.local" for i in (1, 2, 3)}
    rows = parsed(json.dumps(domain), hosts=("gpu-001", "gpu-002", "gpu-003"))
    assert rows.of(LaunchProblem) == []
    shared = {**PLACED, "job-worker-0.a": "gpu-001", "job-worker-0.b": "gpu-002"}
    del shared["job-worker-0"]
    assert refusal(parsed(json.dumps(shared))) == "hosts.json does not say on which node job-worker-0 ran"


def test_pods_on_other_nodes(parsed: Parsed) -> None:
    told = json.dumps({**PLACED, "job-worker-2": "gpu-007"})
    assert refusal(parsed(told)) == "asked for and not used: gpu-003; used and not asked for: gpu-007"


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        (None, "job-worker-0, job-worker-1, job-worker-2 are no nodes of the site, and no hosts.json says"),
        ("", "hosts.json is cut off or not JSON"),
        (json.dumps(PLACED)[:-5], "hosts.json is cut off or not JSON"),
        ("[" * 100_000, "hosts.json is cut off or not JSON"),
        ("{}", "hosts.json names no host"),
        (json.dumps(list(PLACED.items())), "hosts.json is no object of host names"),
        (json.dumps({**PLACED, "job-worker-2": None}), "hosts.json is no object of host names"),
        (json.dumps({**PLACED, "job-worker-2": ""}), "hosts.json is no object of host names"),
        (json.dumps({**PLACED, "job-worker-2": {"a": 1, "a ": 2}}), "hosts.json is no object of host names"),
        (json.dumps(dict(list(PLACED.items())[:2])), "hosts.json does not say on which node job-worker-2 ran"),
        (json.dumps({**PLACED, "job-worker-2": "gpu-001"}), "hosts.json has job-worker-0, job-worker-2 on one node"),
        (json.dumps(PLACED)[:-1] + ', "job-worker-1": "gpu-003"}', "hosts.json has job-worker-1 on two nodes"),
    ],
)
def test_a_file_that_proves_nothing_is_refused(parsed: Parsed, told: str | None, reason: str) -> None:
    assert refusal(parsed(told)).startswith(reason)


def test_a_file_that_was_cut_is_refused_though_it_reads_well(parsed: Parsed) -> None:
    assert refusal(parsed(json.dumps(PLACED), whole=False)).startswith("hosts.json is not whole")


def test_a_pod_that_is_called_like_a_node_does_not_stand_for_it(parsed: Parsed) -> None:
    """Names agree with the nodes asked for, and the backend says that they were elsewhere, or nothing of one."""
    nodes = ("gpu-001", "gpu-002", "gpu-003")
    told = {"gpu-001": "gpu-001", "gpu-002": "gpu-002"}
    assert refusal(parsed(json.dumps(told), hosts=nodes)) == "hosts.json does not say on which node gpu-003 ran"
    told["gpu-003"] = "gpu-008"
    assert "gpu-008" in refusal(parsed(json.dumps(told), hosts=nodes))


def test_each_node_is_compared_under_its_own_name(parsed: Parsed) -> None:
    """A split by node on pods that were placed in another order than asked for."""
    rows = parsed(json.dumps(dict(zip(PODS, ("gpu-003", "gpu-001", "gpu-002"), strict=True))), grouping="node")
    assert rows.of(LaunchProblem) == []


NAMES = st.text(max_size=8) | st.sampled_from([*PODS, *PLACED.values()])
VALUES = st.recursive(
    st.none() | st.booleans() | NAMES,
    lambda v: st.lists(v, max_size=3) | st.dictionaries(st.sampled_from(PODS), v, max_size=3),
    max_leaves=6,
)


@given(told=st.text(max_size=200) | VALUES.map(json.dumps))
def test_no_text_is_taken_for_a_proof(parsed: Parsed, told: str) -> None:
    rows = parsed(told)
    try:
        placed = json.loads(told)
    except ValueError:
        placed = None
    proved = isinstance(placed, dict) and sorted(str(placed.get(h)) for h in PODS) == sorted(PLACED.values())
    if not proved:
        refusal(rows)
