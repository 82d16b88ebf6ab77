"""Coverage of a benchmark: what its launches were to measure, and the nodes that it leaves out."""

from __future__ import annotations

import pytest

from fabric_health.checks.check import Launch
from fabric_health.checks.collectives import COLLECTIVES as CHECK
from fabric_health.evidence import ReachStatus, StoredEvidence
from fabric_health.jobs.spec import JobSpec
from fabric_health.launching import Plan, launch_coverage

LEFT_OUT = {"gpu-009": "GPU 3 fell off the bus"}


def launch(name: str, *units: str, kind: str = "node") -> Launch:
    return Launch(name, JobSpec(name=name, tool="self", argv=("true",)), units, unit_kind=kind)  # type: ignore[arg-type]


def stored(name: str, status: ReachStatus = ReachStatus.OK) -> StoredEvidence:
    return StoredEvidence(name, "key", "0" * 64, status)


def covered(plan: Plan, refs: list[StoredEvidence], rows: set[str], *, finished: bool = True) -> dict[str, str]:
    return {c.unit: c.state for c in launch_coverage(plan, CHECK, refs, rows, finished)}


NODES = Plan((launch("a-1", "gpu-001", "gpu-002"), launch("a-2", "gpu-001")), LEFT_OUT)


@pytest.mark.parametrize(
    ("refs", "rows", "states"),
    [
        ([stored("a-1"), stored("a-2")], {"a-1", "a-2"}, ("judged", "judged")),
        ([stored("a-1"), stored("a-2")], {"a-1"}, ("partial", "judged")),
        ([stored("a-1"), stored("a-2", ReachStatus.HUNG)], {"a-1", "a-2"}, ("partial", "judged")),
        ([stored("a-2")], {"a-1", "a-2"}, ("partial", "not_judged")),
        ([], set(), ("not_judged", "not_judged")),
    ],
)
def test_a_unit_is_judged_as_far_as_its_launches_gave_results(refs, rows, states) -> None:
    assert covered(NODES, refs, rows) == {
        "gpu-001": states[0],
        "gpu-002": states[1],
        "gpu-009": "not_judged",
    }


def test_a_check_that_did_not_finish_judged_nothing() -> None:
    refs = [stored("a-1"), stored("a-2")]
    assert set(covered(NODES, refs, {"a-1", "a-2"}, finished=False).values()) == {"not_judged"}


def test_a_benchmark_of_a_store_leaves_no_node_out() -> None:
    plan = Plan((launch("s3-1", "store", kind="object_store"),), LEFT_OUT)
    assert covered(plan, [stored("s3-1")], {"s3-1"}) == {"store": "judged"}


def test_a_pair_covers_its_nodes_and_itself_whoever_serves() -> None:
    both = (launch("p-1", "gpu-001", "gpu-002", kind="pair"), launch("p-2", "gpu-002", "gpu-001", kind="pair"))
    other = launch("p-3", "gpu-003", "gpu-001", kind="pair")
    found = launch_coverage(Plan((*both, other)), CHECK, [stored("p-1"), stored("p-2")], {"p-1", "p-2"}, True)
    assert [(c.unit, c.unit_kind, c.state) for c in found] == [
        ("gpu-001", "node", "partial"),
        ("gpu-001<>gpu-002", "pair", "judged"),
        ("gpu-001<>gpu-003", "pair", "not_judged"),
        ("gpu-002", "node", "judged"),
        ("gpu-003", "node", "not_judged"),
    ]


def test_a_fit_node_that_no_launch_takes_is_not_judged() -> None:
    fit = ("gpu-001", "gpu-002", "gpu-003")
    plan = Plan((launch("a-1", "gpu-001", "gpu-002"),), {}, fit)
    assert covered(plan, [stored("a-1")], {"a-1"}) == {
        "gpu-001": "judged",
        "gpu-002": "judged",
        "gpu-003": "not_judged",
    }
    assert covered(Plan((), {}, fit), [], set()) == dict.fromkeys(fit, "not_judged")
    pair = Plan((launch("p-1", "gpu-001", "gpu-002", kind="pair"),), {}, fit)
    assert covered(pair, [stored("p-1")], {"p-1"})["gpu-003"] == "not_judged"


def test_a_benchmark_that_measures_no_node_leaves_none_unjudged() -> None:
    for kind in ("machine", "object_store"):
        assert covered(Plan((launch("x", "it", kind=kind),), {}, ("gpu-001",)), [stored("x")], {"x"}) == {
            "it": "judged"
        }


def test_every_node_left_out_is_not_nothing() -> None:
    plan = Plan((launch("gloo-1", "localhost", kind="machine"),), LEFT_OUT)
    assert covered(plan, [stored("gloo-1")], {"gloo-1"}) == {"localhost": "judged", "gpu-009": "not_judged"}
    assert covered(Plan((), LEFT_OUT), [], set()) == {"gpu-009": "not_judged"}
