"""One cause is one piece of news: what explains that a unit got slower, and what does not."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from fabric_health.datasets.tables import Finding, FindingKind, Severity, finding
from fabric_health.verdict.downstream import REGRESSION, findings_behind, regressions_behind
from fabric_health.verdict.outcome import Judgement, Layer, Outcome

GOOD = datetime(2026, 11, 23, 3, tzinfo=UTC)
NOW = GOOD + timedelta(days=7)
NODES = [f"gpu-{i:03}" for i in range(1, 9)]
REACH = {
    "leaf-1": {*NODES[:4], "rail-0"},
    "leaf-2": set(NODES),
    **{f"leaf-1/swp{i}": {n, f"{n}/mlx5_0", "rail-0"} for i, n in enumerate(NODES[:4], 1)},
    **{f"{n}/mlx5_0": {n, f"{n}/mlx5_0", "rail-0"} for n in NODES[:4]},
}


def made(unit: str, rule: str = "port_mtu", *, first: datetime = NOW, severity: Severity = Severity.WARNING) -> Finding:
    check = "collectives" if rule == REGRESSION else "driver_firmware"
    f = finding(check=check, rule=rule, unit=unit, unit_kind="x", metric=rule, severity=severity, summary=rule)
    return replace(f, first_seen=first)


def slower(unit: str) -> Finding:
    return made(unit, REGRESSION)


def behind(*findings: Finding, sound: set[str] | None = frozenset()) -> dict[str, str]:  # type: ignore[assignment]
    """Return rule@unit of what explains it, by the unit that got slower."""
    by_id = {f.finding: f for f in findings}
    good_at = {f.finding: GOOD for f in findings}
    found = findings_behind(findings, REACH, sound=sound, good_at=good_at)
    return {by_id[e].unit: f"{by_id[c].rule}@{by_id[c].unit}" for e, c in found.items()}


@pytest.mark.parametrize("cause", ["gpu-001", "gpu-001/mlx5_0", "gpu-001/gpu3", "leaf-1/swp1"])
def test_a_node_is_explained_by_what_is_on_it_in_it_and_at_its_cable(cause: str) -> None:
    assert behind(slower("gpu-001"), made(cause)) == {"gpu-001": f"port_mtu@{cause}"}


@pytest.mark.parametrize("cause", ["gpu-002", "gpu-002/mlx5_0", "leaf-1/swp2", "leaf-9"])
def test_what_is_elsewhere_explains_nothing(cause: str) -> None:
    assert behind(slower("gpu-001"), made(cause)) == {}


def test_a_part_is_explained_by_its_node_not_by_another_part() -> None:
    nic = slower("gpu-001/mlx5_0")
    assert behind(nic, made("gpu-001", "pcie_width")) == {"gpu-001/mlx5_0": "pcie_width@gpu-001"}
    assert behind(nic, made("gpu-001/mlx5_1")) == {}


def test_a_bad_leaf_explains_all_its_nodes() -> None:
    nodes = [slower(n) for n in NODES[:4]]
    assert behind(*nodes, made("leaf-1"), sound=set(NODES[4:])) == dict.fromkeys(NODES[:4], "port_mtu@leaf-1")


def test_a_leaf_most_of_whose_nodes_are_sound_explains_none() -> None:
    assert behind(slower("gpu-001"), made("leaf-1"), sound=set(NODES[1:])) == {}
    # Nor where it is not known who is sound; the cause on the unit itself needs no such knowledge.
    assert behind(slower("gpu-001"), made("leaf-1"), sound=None) == {}
    assert behind(slower("gpu-001"), made("gpu-001"), sound=None) == {"gpu-001": "port_mtu@gpu-001"}


def test_rails_and_nodes_behind_a_leaf_are_counted_apart() -> None:
    # All nodes are sound as such; the one rail of the leaf is slow: the leaf explains the rail.
    assert behind(slower("rail-0"), made("leaf-1"), sound=set(NODES)) == {"rail-0": "port_mtu@leaf-1"}


def test_the_nearest_and_then_the_most_severe_explains() -> None:
    leaf = made("leaf-1", severity=Severity.CRITICAL)
    assert behind(slower("gpu-001"), leaf, made("gpu-001/mlx5_0"))["gpu-001"] == "port_mtu@gpu-001/mlx5_0"
    port = made("leaf-1/swp1")
    assert behind(slower("gpu-001"), leaf, port)["gpu-001"] == "port_mtu@leaf-1"
    worse = made("gpu-001", "xid_79", severity=Severity.CRITICAL)
    assert behind(slower("gpu-001"), made("gpu-001"), worse)["gpu-001"] == "xid_79@gpu-001"


def test_slower_than_peers_is_the_same_news_and_comes_after_any_cause() -> None:
    peers = made("gpu-001", "node_as_fast_as_peers")
    assert behind(slower("gpu-001"), peers) == {"gpu-001": "node_as_fast_as_peers@gpu-001"}
    assert behind(slower("gpu-001"), peers, made("leaf-1/swp1")) == {"gpu-001": "port_mtu@leaf-1/swp1"}


def test_what_was_there_in_the_last_good_run_explains_nothing() -> None:
    assert behind(slower("gpu-001"), made("gpu-001", first=GOOD)) == {}
    assert behind(slower("gpu-001"), made("gpu-001", first=GOOD + timedelta(days=1))) != {}


def test_where_the_last_good_run_is_not_known_every_finding_counts_as_new() -> None:
    old, slow = made("gpu-001", first=GOOD), slower("gpu-001")
    assert findings_behind([old, slow], REACH, sound=None) == {slow.finding: old.finding}


@pytest.mark.parametrize(
    "cause",
    [
        made("gpu-001", severity=Severity.INFO),
        replace(made("gpu-001"), kind=FindingKind.NOT_JUDGED.value),
        replace(made("gpu-001"), explained_by="another"),
        replace(made("gpu-001"), acknowledged_by="owner until 2027-01-01: wanted"),
        replace(made("gpu-001/nvme0"), unit_kind="drive"),
        made("gpu-001", "nfs_over_rdma"),
        slower("gpu-001/mlx5_0"),
    ],
)
def test_what_cannot_be_the_reason(cause: Finding) -> None:
    assert "gpu-001" not in behind(slower("gpu-001"), cause)


def test_nothing_is_hidden_behind_a_lesser_finding() -> None:
    bad = replace(slower("gpu-001"), severity="critical")
    assert behind(bad, made("gpu-001")) == {}
    assert behind(bad, made("gpu-001", severity=Severity.CRITICAL)) != {}


def test_what_is_explained_or_was_not_judged_stays_as_it_is() -> None:
    assert behind(replace(slower("gpu-001"), explained_by="another"), made("gpu-001")) == {}
    assert behind(replace(slower("gpu-001"), kind=FindingKind.NOT_JUDGED.value), made("gpu-001")) == {}


def judged(subject: str, loss: float, metric: str = "busbw_gbps", outcome: Outcome = Outcome.REGRESSED) -> Judgement:
    return Judgement(
        subject, "node", metric, "k", Layer.POOLED, outcome, "r", 0.03,
        loss=loss, loss_low=loss - 0.01, loss_high=loss + 0.01,
    )  # fmt: skip


def led(*judgements: Judgement) -> dict[str, str]:
    return {x.judgement.subject: x.by.subject for x in regressions_behind(judgements, REACH)}


def test_a_slow_leaf_tells_of_its_nodes_but_not_of_one_that_lost_more() -> None:
    assert led(judged("leaf-1", 0.1), judged("gpu-001", 0.1), judged("gpu-002", 0.3)) == {"gpu-001": "leaf-1"}
    assert led(judged("leaf-1", 0.1), judged("gpu-008", 0.1)) == {}
    assert led(judged("leaf-1", 0.1, metric="latency_us"), judged("gpu-001", 0.1)) == {}
    assert led(judged("leaf-1", 0.1, outcome=Outcome.PASS), judged("gpu-001", 0.1)) == {}


def test_of_several_in_front_the_one_that_reaches_most_tells() -> None:
    assert led(judged("leaf-1", 0.1), judged("leaf-2", 0.1), judged("gpu-001", 0.1))["gpu-001"] == "leaf-2"
