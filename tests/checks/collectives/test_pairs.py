"""Pairs of nodes: which are drawn, what their jobs are asked, what their output proves, and which link is at fault."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as settings_of_hypothesis
from hypothesis import strategies as st

from fabric_health.checks.check import Context, Launch, RowSet
from fabric_health.checks.collectives.asked import asked
from fabric_health.checks.collectives.judge import judge
from fabric_health.checks.collectives.launches import launches
from fabric_health.checks.collectives.pair_plan import RUNNER, ring, rotating
from fabric_health.checks.collectives.settings import settings
from fabric_health.checks.collectives.tables import CollectiveLaunch, LaunchProblem, PointToPoint
from fabric_health.datasets.contracts import Row
from fabric_health.datasets.tables import Finding, FindingKind, Severity
from fabric_health.errors import SiteError
from fabric_health.jobs.kubernetes.pod_parts import TOOLS
from fabric_health.site import Site

MakeSite = Callable[..., Site]
PairOf = Callable[..., Launch]
RowsOf = Callable[..., RowSet]
ContextOf = Callable[..., Context]
SIZE = 1 << 20
RATE = 391.87
IMAGE = Path(__file__).parents[3] / "deploy" / "images" / "nccl-tests"


def checks(text: str = "") -> str:
    return f"checks: {{collectives: {{engines: [perftest], perftest: {{{text}}}}}}}\n"


def output(launch: Launch, rates: Mapping[str, float | str | None] | None = None, *, server: str = "", client: str = "",
           end: bool = True, gpu: bool = False) -> str:  # fmt: skip
    """What the runner prints; ``rates`` has Gb/s of devices that are not at their rate, or why they have none."""
    want, rates = asked(launch), rates or {}
    lines = [event(event="pair", server=server or want.nodes[0], client=client or want.nodes[1])]
    for device in want.devices:
        rate = rates.get(device, RATE)
        if rate is None:
            continue
        lines.append(event(event="test", device=device, size=SIZE, gpu=0 if gpu else None))
        if isinstance(rate, str):
            told = {"client": 1, "server": None, "problem": rate, "json": None}
        else:
            lines.append(table(device, rate))
            told = {"client": 0, "server": 0, "problem": "", "json": file(device, rate)}
        lines.append(event(event="result", device=device, size=SIZE, **told))
    if end:
        lines.append(event(event="end", tests=sum('"result"' in line for line in lines)))
    return "\n".join(lines)


def event(**what: object) -> str:
    return f"FHPAIR1 {json.dumps(what)}"


def table(device: str, rate: float, size: int = SIZE) -> str:
    return (
        f"{'-' * 60}\n                    RDMA_Write BW Test\n Dual-port       : OFF\t\tDevice         : {device}\n"
        " Number of qps   : 1\t\tTransport type : IB\n Mtu             : 4096[B]\n Link type       : Ethernet\n"
        " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]\n"
        f" {size}    237000           0.00               {rate:.2f}   \t\t   0.046715"
    )


def file(device: str, rate: float) -> str:
    info = {"test": "RDMA_Write BW Test", "Device": device, "Mtu": 4096, "Link_type": "Ethernet"}
    results = {"MsgSize": SIZE, "n_iterations": 237000, "BW_peak": 0.0, "BW_average": rate + 0.001, "MsgRate": 0.0467}
    return json.dumps({"test_info": info, "results": results})


# -- the plan ----------------------------------------------------------------------------------------------------------


def test_rotating_pairs_are_disjoint_and_none_comes_twice(fleet: Site) -> None:
    for nodes in (fleet.nodes, fleet.nodes[:7]):
        drawn = rotating(nodes, 99, "seed")
        assert Counter(frozenset((a.name, b.name)) for a, b in drawn) == Counter(
            frozenset((a.name, b.name)) for a, b in combinations(nodes, 2)
        )
        first = rotating(nodes, 1, "seed")
        assert len({n.name for pair in first for n in pair}) == 2 * len(first) == len(nodes) // 2 * 2
    assert rotating(fleet.nodes[:1], 3, "seed") == rotating((), 3, "seed") == []


def test_over_runs_every_pair_comes_up(make_site: MakeSite) -> None:
    site = make_site(checks())
    seen = {frozenset(x.units) for week in range(60) for x in launches(site, site.nodes, f"weekly-{week}")}
    assert len(seen) == 8 * 7 / 2
    names = [[x.units for x in launches(site, site.nodes, run)] for run in ("a", "a", "b")]
    assert names[0] == names[1]
    assert names[0] != names[2]


def test_in_a_ring_every_node_sends_once_and_receives_once(fleet: Site) -> None:
    found = ring(fleet.nodes)
    assert [(a.name, b.name) for a, b in found][-1] == ("gpu-008", "gpu-001")
    assert {a.name for a, _ in found} == {b.name for _, b in found} == {n.name for n in fleet.nodes}
    assert ring(fleet.nodes[:1]) == []


def test_a_budget_leaves_out_other_pairs_each_time(make_site: MakeSite) -> None:
    site = make_site(checks("pairs: ring, max_launches: 2"))
    plans = [launches(site, site.nodes, f"r{i}") for i in range(30)]
    assert {len(p) for p in plans} == {2}
    assert len({x.units for p in plans for x in p}) == 8
    assert launches(site, site.nodes[:1], "r") == ()


def test_a_pairs_job_is_what_was_asked(pair_of: PairOf) -> None:
    launch = pair_of(3, 1, duration_s=7, mtu_bytes=4096, rdma_cm=True, gid_index=3, rails=(2, 5), sizes=(65536, 4096))
    want = asked(launch)
    assert (want.engine, want.workload, want.grouping, want.nodes) == (
        "perftest", "ib_write_bw", "pair", ("gpu-001", "gpu-003"),
    )  # fmt: skip
    assert (want.devices, want.sizes, want.gbits, want.gpudirect) == (("mlx5_2", "mlx5_5"), (4096, 65536), True, False)
    argv = launch.spec.argv
    assert argv[argv.index("-np") + 1] == "2"
    assert "ppr:1:node:OVERSUBSCRIBE" in argv
    tool = argv[argv.index("--") + 1 :]
    assert tool == (
        "/usr/bin/ib_write_bw", "-D", "7", "-q", "1", "-F", "--report_gbits", "-m", "4096", "-x", "3", "-R",
    )  # fmt: skip
    assert (launch.spec.resources.gpu, launch.spec.resources.rdma, launch.spec.ranks_per_node) == (0, 1, 1)
    limit = float(argv[argv.index("--limit") + 1])
    assert launch.spec.time_limit_s > limit > 4 * 7


def test_from_gpu_to_gpu_each_nic_has_its_own(pair_of: PairOf) -> None:
    launch = pair_of(gpudirect=True, rails=(0, 6))
    argv = launch.spec.argv
    assert argv[argv.index("--gpus") + 1] == "0,6"
    assert launch.spec.resources.gpu == 8
    assert asked(launch).gpudirect


def test_the_runner_is_where_the_image_puts_it(pair_of: PairOf) -> None:
    assert (IMAGE / RUNNER).is_file()
    assert f"COPY {RUNNER} {TOOLS}/nccl-tests/" in (IMAGE / "Dockerfile").read_text()
    assert "{tool}/" + RUNNER in pair_of().spec.argv


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("test: ib_write_lat", "perftest.test"),
        ("sizes: [1]", "perftest.sizes"),
        ("pairs: all", "perftest.pairs"),
        ("mtu_bytes: 9000", "perftest.mtu_bytes"),
        ("floors: [{sku: h100, bw_gbitps: 380}]", "perftest.floors.0.source"),
        ("binaries: 'bin; x'", "perftest.binaries"),
    ],
)
def test_settings_at_fault_are_named(make_site: MakeSite, text: str, key: str) -> None:
    with pytest.raises(SiteError, match=rf"checks\.collectives\.{key}"):
        settings(make_site(checks(text)))


# -- what the output proves --------------------------------------------------------------------------------------------


def test_every_rail_of_a_pair_is_a_row(pair_of: PairOf, rows_of: RowsOf) -> None:
    launch = pair_of()
    rows = rows_of(launch, output(launch))
    found = rows.of(PointToPoint)
    assert [(r.pair, r.device, r.rail) for r in found] == [("gpu-002>gpu-001", f"mlx5_{n}", n) for n in range(8)]
    row = found[0]
    assert (row.bw_average_gbitps, row.bw_peak_gbitps) == (RATE + 0.001, None)  # of a duration there is no peak
    assert (row.rate_gbitps, row.memory, row.sku, row.mtu_bytes, row.problem) == (400, "host", "h100", 4096, None)
    (outcome,) = rows.of(CollectiveLaunch)
    assert (outcome.usable, outcome.hosts_seen, outcome.ranks_seen, outcome.max_bytes_reached) == (True, 2, 2, SIZE)
    assert rows.of(LaunchProblem) == []


@pytest.mark.parametrize(
    "where",
    [
        {"server": "gpu-001", "client": "gpu-001"},
        {"server": "gpu-002", "client": "gpu-001"},
        {"server": "gpu-001", "client": "gpu-003"},
        {"server": "elsewhere", "client": "gpu-002"},
    ],
)
def test_another_pair_than_asked_for_is_refused(pair_of: PairOf, rows_of: RowsOf, where: dict[str, str]) -> None:
    launch = pair_of()
    rows = rows_of(launch, output(launch, **where))
    assert rows.of(PointToPoint) == []
    assert [(p.rule, p.refuses) for p in rows.of(LaunchProblem)] == [("hosts_as_asked", True)]
    assert not rows.of(CollectiveLaunch)[0].usable


def test_pods_are_placed_by_their_file(pair_of: PairOf, rows_of: RowsOf) -> None:
    launch = pair_of()
    text = output(launch, server="fh-x-worker-0", client="fh-x-worker-1")
    placed = json.dumps({"fh-x-worker-0": "gpu-001", "fh-x-worker-1": "gpu-002"})
    assert len(rows_of(launch, text, hosts__json=placed).of(PointToPoint)) == 8
    for wrong in ("", "{}", json.dumps({"fh-x-worker-0": "gpu-001", "fh-x-worker-1": "gpu-001"}),
                  json.dumps({"fh-x-worker-0": "gpu-002", "fh-x-worker-1": "gpu-001"})):  # fmt: skip
        assert rows_of(launch, text, hosts__json=wrong).of(PointToPoint) == []
    assert rows_of(launch, text).of(PointToPoint) == []


def test_a_link_that_fails_has_a_row_that_says_why(pair_of: PairOf, rows_of: RowsOf) -> None:
    launch = pair_of()
    rows = rows_of(launch, output(launch, {"mlx5_3": "exit code 1: Failed to modify QP", "mlx5_4": None}))
    bad = {r.device: r.problem for r in rows.of(PointToPoint) if r.problem}
    assert bad == {"mlx5_3": "exit code 1: Failed to modify QP", "mlx5_4": "the test was not run"}
    assert rows.of(CollectiveLaunch)[0].usable


def test_what_the_tool_says_must_fit_what_was_asked(pair_of: PairOf, rows_of: RowsOf) -> None:
    launch = pair_of(rails=(0, 1))
    good = output(launch)
    for was, now, problem in (
        ("Device         : mlx5_0", "Device         : mlx5_7", "the tool used mlx5_7 instead"),
        (f" {SIZE}    237000", " 65536    237000", f"no result of {SIZE} B"),
        ('"client": 0', '"client": 2', "exit code of the client: 2"),
        ('"server": 0', '"server": null', "exit code of the server: None"),
        (f"{RATE:.2f}   ", "39.87   ", "bw_average_gbitps is 391.871 in the file, 39.87 as printed"),
        ("BW average[Gb/sec]", "BW average[Tb/sec]", "a row does not fit its header"),
    ):
        rows = rows_of(launch, good.replace(was, now, 1))
        found = {r.device: (r.problem or "", r.bw_average_gbitps) for r in rows.of(PointToPoint)}
        assert problem in found["mlx5_0"][0]
        assert found["mlx5_0"][1] is None
        assert found["mlx5_1"] == ("", RATE + 0.001)


@given(st.integers(0, 4000), st.integers(1, 300))
@settings_of_hypothesis(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_hole_in_the_output_never_makes_another_number(
    pair_of: PairOf, rows_of: RowsOf, start: int, length: int
) -> None:
    launch = pair_of(rails=(0, 1, 2))
    text = output(launch, {"mlx5_1": 222.22})
    whole = {r.device: r.bw_average_gbitps for r in rows_of(launch, text).of(PointToPoint)}
    for row in rows_of(launch, text[:start] + text[start + length :]).of(PointToPoint):
        value = row.bw_average_gbitps
        assert row.problem if value is None else value == pytest.approx(whole[row.device], rel=1e-3, abs=0.01)


@pytest.mark.parametrize(
    ("cut", "rule"),
    [
        (lambda t: t.replace('{"event": "end", "tests": 8}', '{"event": "end", "tests": 7}'), "output_complete"),
        (lambda t: t.rsplit("\n", 1)[0], "output_complete"),
        (lambda t: t.replace('{"event": "result"', '{"event": "?"', 1), "output_readable"),
        (lambda t: t.split("\n", 1)[1], "output_readable"),
        (lambda _: "", "output_complete"),
    ],
)
def test_an_incomplete_output_has_no_number(
    pair_of: PairOf, rows_of: RowsOf, cut: Callable[[str], str], rule: str
) -> None:
    launch = pair_of()
    rows = rows_of(launch, cut(output(launch)))
    assert rows.of(PointToPoint) == []
    assert rule in {p.rule for p in rows.of(LaunchProblem)}


def test_a_pair_that_fell_apart_and_one_without_any_number_are_refused(pair_of: PairOf, rows_of: RowsOf) -> None:
    launch = pair_of()
    apart = rows_of(launch, output(launch, end=False), exit_code=3, stderr="perftest_pair: client: no server at a")
    assert apart.of(PointToPoint) == []
    assert "exit code 3: perftest_pair: client: no server at a" in {p.detail for p in apart.of(LaunchProblem)}
    none = rows_of(launch, output(launch, {f"mlx5_{n}": "exit code 1: invalid option" for n in range(8)}))
    assert none.of(PointToPoint) == []
    assert [p.rule for p in none.of(LaunchProblem)] == ["links_measured"]


# -- judging -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def judged(fleet: Site, pair_of: PairOf, rows_of: RowsOf, context_of: ContextOf) -> Callable[..., list[Finding]]:
    """Findings of a ring of eight nodes; ``rates`` by (client, device) or by NIC."""

    def make(rates: Mapping[tuple[int, str], float | str], site: Site = fleet) -> list[Finding]:
        rows: list[Row] = []
        plan = [pair_of(i, i % 8 + 1, i) for i in range(1, 9)]
        for i, launch in enumerate(plan, 1):
            found = rows_of(launch, output(launch, {d: r for (c, d), r in rates.items() if c == i}))
            rows += [r for of_type in found.rows.values() for r in of_type]
        return judge(RowSet.gather(rows), context_of(site, plan))

    return make


def test_sound_links_have_no_finding(judged: Callable[..., list[Finding]]) -> None:
    assert judged({}) == []


@pytest.mark.parametrize(("rate", "severity"), [(359.0, Severity.WARNING), (200.0, Severity.CRITICAL)])
def test_a_link_below_its_rate_is_named(judged: Callable[..., list[Finding]], rate: float, severity: Severity) -> None:
    (found,) = judged({(3, "mlx5_2"): rate})
    assert (found.rule, found.unit, found.unit_kind) == ("link_rate", "gpu-003>gpu-004/mlx5_2", "link")
    assert (found.severity, found.kind, found.evidence_unit) == (severity, FindingKind.DEVIATION, "perftest-3")
    assert "less than 360 Gb/s" in found.summary
    assert "(rail 2)" in found.summary


def test_at_the_floor_is_good_enough(judged: Callable[..., list[Finding]], make_site: MakeSite) -> None:
    site = make_site(checks("floors: [{sku: h100, bw_gbitps: 391, source: acceptance}]"))
    assert judged({}, site) == []
    (found,) = judged({(3, "mlx5_2"): 390.5}, site)
    assert (found.rule, found.expected, found.source) == ("link_rate", ">= 391 Gb/s", "acceptance")


def test_a_nic_that_is_bad_with_each_partner_is_named_by_itself(judged: Callable[..., list[Finding]]) -> None:
    (found,) = judged({(3, "mlx5_2"): 190.0, (2, "mlx5_2"): 195.0})  # gpu-003 sends to 004, and 002 to 003
    assert (found.unit, found.unit_kind, found.rule) == ("gpu-003/mlx5_2", "nic", "link_rate")
    (silent,) = judged({(3, "mlx5_2"): "exit code 1: link is down", (2, "mlx5_2"): "ended at its time limit"})
    assert (silent.unit, silent.rule, silent.severity) == ("gpu-003/mlx5_2", "link_gives_a_number", Severity.CRITICAL)


def test_most_links_of_a_rail_or_of_all_are_one_finding(judged: Callable[..., list[Finding]]) -> None:
    (rail,) = judged({(i, "mlx5_5"): 300.0 for i in range(1, 9)})
    assert (rail.unit, rail.unit_kind) == ("rail-5", "rail")
    assert "8 of 8 links" in rail.summary
    (every,) = judged({(i, f"mlx5_{d}"): 300.0 for i in range(1, 9) for d in range(8)})
    assert (every.unit, every.unit_kind) == ("perftest", "benchmark")
    assert "64 of 64 links" in every.summary


def test_a_link_slower_than_its_rail_is_named_though_above_the_floor(judged: Callable[..., list[Finding]]) -> None:
    (found,) = judged({(6, "mlx5_1"): 370.0})
    assert (found.rule, found.unit) == ("link_as_fast_as_peers", "gpu-006>gpu-007/mlx5_1")
    assert "5.6% slower than 7 links of rail 1" in found.summary
    assert judged({(6, "mlx5_1"): 385.0}) == []  # less than the practical gap


def test_with_few_pairs_the_rails_of_a_sku_are_peers(
    fleet: Site, pair_of: PairOf, rows_of: RowsOf, context_of: ContextOf
) -> None:
    plan = [pair_of(2, 1, 1), pair_of(4, 3, 2)]
    sets = [rows_of(plan[0], output(plan[0])), rows_of(plan[1], output(plan[1], {"mlx5_7": 372.0}))]
    rows = RowSet.gather(r for s in sets for of_type in s.rows.values() for r in of_type)
    (found,) = judge(rows, context_of(fleet, plan))
    assert (found.unit, found.rule) == ("gpu-004>gpu-003/mlx5_7", "link_as_fast_as_peers")
    assert "15 links of all rails" in found.summary


def test_a_refused_pair_is_missing(fleet: Site, pair_of: PairOf, rows_of: RowsOf, context_of: ContextOf) -> None:
    launch = pair_of()
    found = judge(rows_of(launch, output(launch, client="gpu-003")), context_of(fleet, [launch]))
    assert {(f.rule, f.unit) for f in found} == {("hosts_as_asked", "perftest"), ("launches_complete", "perftest")}
