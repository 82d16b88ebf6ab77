"""Each rule with a case it must pass and one it must fail; peers on whole launches as they are printed."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from nccl_output import Run, as_json, connection_log, text

from fabric_health.checks.check import Context, Launch, RowSet
from fabric_health.checks.collectives import COLLECTIVES
from fabric_health.checks.collectives.comparability import comparability
from fabric_health.checks.collectives.judge import _RULES, judge
from fabric_health.checks.collectives.peers import slow_units
from fabric_health.checks.collectives.settings import PeerSettings
from fabric_health.checks.collectives.tables import Collective, CollectiveSample
from fabric_health.checks.collectives.validate import REFUSES
from fabric_health.datasets.contracts import Row
from fabric_health.datasets.tables import Finding, FindingKind, Severity
from fabric_health.site import Site

Make = Callable[..., Launch]
RowsOf = Callable[..., RowSet]
ContextOf = Callable[..., Context]
HOSTS = tuple(f"gpu-{i:03d}" for i in range(1, 9))
QUIET = "checks: {collectives: {engines: [nccl-tests]}}\n"


def logged(run: Run, network: str = "IB") -> str:
    return "\n".join(connection_log(run, network)) + "\n" + text(run)


def together(*sets: RowSet) -> RowSet:
    rows: list[Row] = [r for s in sets for of_type in s.rows.values() for r in of_type]
    return RowSet.gather(rows)


@pytest.fixture
def judged(fleet: Site, launch_of: Make, rows_of: RowsOf, context_of: ContextOf) -> Callable[..., list[Finding]]:
    """Findings of three launches of one benchmark on all eight nodes, each printing what its Run says."""

    def make(grouping: str, *runs: Run, site: Site = fleet) -> list[Finding]:
        launches = [launch_of(grouping=grouping, nodes=8, number=i) for i in range(1, len(runs) + 1)]
        sets = [rows_of(x, logged(r), nccl_tests__json=as_json(r)) for x, r in zip(launches, runs, strict=True)]
        return judge(together(*sets), context_of(site, launches))

    return make


def test_healthy_launches_have_no_finding(judged: Callable[..., list[Finding]]) -> None:
    for grouping, split in (("all", ""), ("node", "DIV"), ("rail", "MOD")):
        runs = [Run(hosts=HOSTS, split=split, algbw=a) for a in (100.0, 101.0, 99.5)]
        assert judged(grouping, *runs) == []


def test_slow_node_is_named_with_its_effect(judged: Callable[..., list[Finding]]) -> None:
    runs = [Run(hosts=HOSTS, split="DIV", slow={6: 1.25}, algbw=a) for a in (100.0, 101.0, 99.0)]
    (found,) = judged("node", *runs)
    assert (found.unit, found.unit_kind, found.rule) == ("gpu-007", "node", "node_as_fast_as_peers")
    assert found.severity == Severity.CRITICAL
    assert "20.0 % slower than its 7 peers" in found.summary
    assert "below it in 3 of 3 measurements" in found.summary
    assert "cannot be said" in found.summary
    assert found.evidence_unit == "nccl-all-reduce-node-3"


def test_slow_rail_is_named_and_says_what_it_cannot(judged: Callable[..., list[Finding]]) -> None:
    runs = [Run(hosts=HOSTS, split="MOD", slow={3: 1.06})] * 3
    (found,) = judged("rail", *runs)
    assert (found.unit, found.unit_kind, found.severity) == ("rail-3", "rail", Severity.WARNING)
    assert "which node's NIC or which switch cannot be said" in found.summary


def test_gap_below_the_practical_one_says_nothing(judged: Callable[..., list[Finding]]) -> None:
    assert judged("node", *[Run(hosts=HOSTS, split="DIV", slow={6: 1.02})] * 3) == []


def test_few_peers_are_said_to_be_few(fleet: Site, launch_of: Make, rows_of: RowsOf, context_of: ContextOf) -> None:
    run = Run(split="DIV", slow={1: 1.5})
    launch = launch_of(grouping="node")
    (found,) = judge(rows_of(launch, logged(run), nccl_tests__json=as_json(run)), context_of(fleet, [launch]))
    assert (found.kind, found.severity) == (FindingKind.NOT_JUDGED, Severity.INFO)


def test_breach_of_all_launches_is_one_finding(judged: Callable[..., list[Finding]]) -> None:
    two = Run(hosts=HOSTS[:2])
    found = judged("all", two, two, two)
    hosts = next(f for f in found if f.rule == "hosts_as_asked")
    assert (hosts.unit, hosts.kind) == ("nccl-tests", FindingKind.NOT_JUDGED)
    assert hosts.summary.endswith("(the same in nccl-all-reduce-all-2, nccl-all-reduce-all-3).")
    missing = next(f for f in found if f.rule == "launches_complete")
    assert missing.summary.startswith("0 of 3 launches of all_reduce (all) gave numbers")
    assert missing.explained_by is not None


def test_tcp_is_critical_and_a_deviation(fleet: Site, launch_of: Make, rows_of: RowsOf, context_of: ContextOf) -> None:
    run, launch = Run(algbw=0.28), launch_of()
    rows = rows_of(launch, logged(run, "Socket"), nccl_tests__json=as_json(run))
    (found,) = judge(rows, context_of(fleet, [launch]))
    assert (found.rule, found.severity, found.kind) == (
        "transport_as_expected", Severity.CRITICAL, FindingKind.DEVIATION,
    )  # fmt: skip


def test_lost_launch_is_counted_but_not_told_twice(
    fleet: Site, launch_of: Make, rows_of: RowsOf, context_of: ContextOf
) -> None:
    launches = [launch_of(nodes=8, number=i) for i in (1, 2)]
    run = Run(hosts=HOSTS)
    sets = [
        rows_of(launches[0], logged(run), nccl_tests__json=as_json(run)),
        rows_of(launches[1], "", exit_code=None),
    ]
    found = judge(together(*sets), context_of(fleet, launches, lost=[launches[1].name]))
    assert [f.rule for f in found] == ["launches_complete"]


def test_nothing_launched_is_not_healthy(fleet: Site, context_of: ContextOf) -> None:
    (found,) = judge(RowSet(), context_of(fleet, []))
    assert (found.rule, found.kind) == ("launches_complete", FindingKind.NOT_JUDGED)


def test_floor_only_where_a_site_sets_one(make_site: Callable[..., Site], judged: Callable[..., list[Finding]]) -> None:
    floor = "{sku: h100, min_bytes: 1048576, busbw_gbps: 300, source: acceptance test of the site}"
    site = make_site("checks: {collectives: {engines: [nccl-tests], floors: [" + floor + "]}}\n")
    slow, fast = Run(hosts=HOSTS, algbw=100), Run(hosts=HOSTS, algbw=200)
    assert judged("all", fast, fast, fast, site=site) == []
    (found,) = judged("all", slow, fast, slow, site=site)
    assert (found.rule, found.source) == ("busbw_floor", "acceptance test of the site")
    assert "34.4 % below the floor of 300 GB/s" in found.summary


def test_unsteady_iterations_are_a_note(fleet: Site, launch_of: Make, rows_of: RowsOf, context_of: ContextOf) -> None:
    run, launch = Run(), launch_of()
    document = json.loads(as_json(run))
    for result in document["results"]:
        result["out_of_place_per_iter"]["times_us"] = [10.0, 10.0, 10.0, 14.0]
    rows = rows_of(launch, logged(run), nccl_tests__json=json.dumps(document))
    (found,) = judge(rows, context_of(fleet, [launch]))
    assert (found.rule, found.severity) == ("iterations_steady", Severity.INFO)


def test_node_that_lost_nvlink_is_told_from_its_peers(
    fleet: Site, launch_of: Make, context_of: ContextOf, rows_of: RowsOf
) -> None:
    run, launch = Run(hosts=HOSTS, split="DIV"), launch_of(grouping="node", nodes=8)
    log = [
        x.replace("P2P/CUMEM/read", "SHM/direct/direct") if x.startswith("gpu-005") else x for x in connection_log(run)
    ]
    rows = rows_of(launch, "\n".join(log) + "\n" + text(run), nccl_tests__json=as_json(run))
    (found,) = judge(rows, context_of(fleet, [launch]))
    assert (found.unit, found.rule, found.actual) == ("gpu-005", "transport_as_peers", "SHM")


def test_every_refusing_rule_has_words() -> None:
    assert set(_RULES) >= REFUSES
    assert all(_RULES[r].kind == FindingKind.NOT_JUDGED for r in REFUSES)


def test_peers_need_spread_and_gap() -> None:
    rules = PeerSettings()
    values = {f"n{i}": 100.0 + 0.1 * i for i in range(16)}
    assert slow_units(values, rules) == []
    (slow,) = slow_units({**values, "n3": 90.0}, rules)
    assert (slow.unit, round(slow.gap, 3)) == ("n3", 0.107)
    # Fast ones are no finding, and neither is a value within a wide spread.
    assert slow_units({**values, "n3": 130.0}, rules) == []
    wide = {f"n{i}": 100.0 + 4 * (-1) ** i * (i % 5) for i in range(16)}
    assert slow_units({**wide, "n3": 88.0}, rules) == []
    assert slow_units(dict(list(values.items())[:7]), rules) == []
    assert slow_units({f"n{i}": 0.0 for i in range(9)}, rules) == []


def test_comparability_differs_by_what_matters_and_not_by_host(launch_of: Make, rows_of: RowsOf) -> None:
    run = Run(hosts=HOSTS, split="DIV")
    found = rows_of(launch_of(grouping="node", nodes=8), logged(run), nccl_tests__json=as_json(run)).of(Collective)
    at = {r.group: r.comparability for r in found if r.size_bytes == 8 << 20 and r.in_place}
    assert len(at) == 8
    assert len(set(at.values())) == 1
    assert len({r.hosts_sha for r in found}) == 8
    assert len({r.comparability for r in found}) == 6
    assert comparability(found[0]) == found[0].comparability


def test_check_object_names_its_rows(launch_of: Make, rows_of: RowsOf) -> None:
    rows = rows_of(launch_of(), logged(Run()), nccl_tests__json=as_json(Run()))
    assert {COLLECTIVES.unit_of(r) for of in rows.rows.values() for r in of} == {"nccl-all-reduce-all-1"}
    assert set(rows.rows) <= set(COLLECTIVES.tables)
    assert rows.of(CollectiveSample)
