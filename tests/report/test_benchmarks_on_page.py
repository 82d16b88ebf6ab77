"""Benchmarks on the page: figures with spread and origin, change without a verdict, nothing that was not measured."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta
from statistics import median
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strict_page import Page, read

from fabric_health.checks.collectives.comparability import comparability
from fabric_health.checks.collectives.tables import Collective, CollectiveLaunch, Isolation, LaunchProblem
from fabric_health.checks.object_store.tables import ObjectStoreResult
from fabric_health.datasets.tables import Coverage, Severity, finding
from fabric_health.history import Comparable
from fabric_health.report import benchmark_plots, collectives, object_store, page, text
from fabric_health.report.data import CollectiveResults, ObjectStoreResults, ReportData

BEFORE_AT = datetime(2026, 11, 23, 3, tzinfo=UTC)
MIB = 1 << 20
SIZES = (64 * MIB, 1024 * MIB)


def row(launch: str, group: str, kind: str, size: int, busbw: float, **more: Any) -> Collective:
    r = Collective(
        launch=launch,
        group=group,
        group_kind=kind,
        collective="all_reduce",
        dtype="float",
        redop="sum",
        root=-1,
        size_bytes=size,
        in_place=False,
        time_us=1.0,
        algbw_gbps=busbw,
        busbw_gbps=busbw,
        ranks=8,
        ranks_per_node=8,
        nodes=1 if kind == "node" else 2,
        hosts_sha="0" * 16,
        engine="lab_fleet",
        timing="max",
        comparability="",
        sku="h100",
    )
    r = dataclasses.replace(r, **more)
    return dataclasses.replace(r, comparability=comparability(r))


def launch(name: str, grouping: str = "all", usable: bool = True, engine: str = "lab_fleet") -> CollectiveLaunch:
    return CollectiveLaunch(name, engine, "all_reduce", grouping, usable, 2, 16, SIZES[-1])


def of_run(factor: float = 1.0) -> tuple[Collective, ...]:
    """Two launches of all ranks, one of single nodes (the eighth is slow), one of single rails."""
    rows = [row(f"all-{i}", "all", "all", s, (280 + 10 * i) * factor) for i in (1, 2) for s in SIZES]
    rows += [row("node-1", f"gpu-{n:03}", "node", SIZES[1], (470 if n < 8 else 400) * factor) for n in range(1, 9)]
    rows += [row("rail-1", f"rail-{n}", "rail", SIZES[1], 45 * factor) for n in range(12)]
    return tuple(rows)


@pytest.fixture
def benched(healthy: ReportData) -> ReportData:
    """A run with a refused launch, a slow node, a node left out, an earlier run, and an object store."""
    slow = finding(
        check="collectives",
        rule="node_as_fast_as_peers",
        unit="gpu-008",
        unit_kind="node",
        metric="all_reduce.node.busbw_gbps",
        severity=Severity.CRITICAL,
        summary="gpu-008 is 14.9 % slower than its 7 peers",
    )
    names = ("all-1", "all-2", "node-1", "rail-1")
    before = of_run(0.5)
    results = CollectiveResults(
        launches=(*(launch(n, n.split("-")[0]) for n in names), launch("all-3", usable=False)),
        problems=(LaunchProblem("all-3", "hosts_as_asked", True, "8 of 16 hosts"),),
        rows=of_run(),
        origins=dict.fromkeys(names, "lab"),
        before=Comparable(before, {r.comparability: BEFORE_AT for r in before}),
    )
    left = Coverage("collectives", "gpu-009", "node", "not_judged", "left out: a GPU fell off the bus")
    return dataclasses.replace(
        healthy,
        findings=(slow,),
        coverage=(*healthy.coverage, left),
        collectives=results,
        object_store=ObjectStoreResults(
            rows=tuple(stored(i, "GET", 300.0 + 10 * i) for i in (1, 2, 3)),
            origins={f"s3-GET-{i}": "measured" for i in (1, 2, 3)},
            before=Comparable(tuple(stored(i, "GET", 200.0) for i in (1, 2)), {"GET": BEFORE_AT}),
        ),
    )


def stored(n: int, op: str, mib: float | None, **more: Any) -> ObjectStoreResult:
    r = ObjectStoreResult(
        launch=f"s3-{op}-{n}",
        store="object-store",
        op=op,
        load=op.lower(),
        asked_object_bytes=MIB,
        asked_concurrency=8,
        engine="embedded",
        hosts="127.0.0.1:8333",
        comparability=op,
        requests=1000,
        errors=0,
        mib_per_s=mib,
        objects_per_s=mib,
        ttfb_p50_ms=1.5,
        ttfb_p99_ms=12.0,
        latency_p99_ms=15.0,
    )
    return dataclasses.replace(r, **more)


def index(data: ReportData) -> Page:
    return read(page.render(data))["index.html"]


def section(p: Page, title: str, until: str) -> str:
    return p.text.partition(f" {title} ")[2].partition(f" {until} ")[0]


def test_a_run_without_benchmarks_has_no_such_sections(healthy: ReportData) -> None:
    p = index(healthy)
    assert not {"collectives", "object-store"} & p.ids


def test_a_benchmark_that_gave_nothing_says_so(healthy: ReportData) -> None:
    data = dataclasses.replace(
        healthy, collectives=CollectiveResults((), (), (), {}), object_store=ObjectStoreResults((), {})
    )
    p = index(data)
    assert {"collectives", "object-store"} <= p.ids
    assert "No collective was measured in this run." in p.text
    assert "The object store was not measured in this run." in p.text
    refused = CollectiveResults((launch("all-3", usable=False),), (), (), {})
    text_shown = index(dataclasses.replace(healthy, collectives=refused)).text
    assert "No launch gave numbers that can be used." in text_shown
    assert "all-3 no reason was recorded" in text_shown


def test_bandwidth_comes_with_spread_launches_origin_and_change(benched: ReportData) -> None:
    shown = section(index(benched), "Collectives lab_fleet", "Object store")
    assert shown.startswith("origin: lab 5 launches")
    assert "latest earlier run that compares: 2026-11-23 03:00:00 UTC" in shown
    assert "all_reduce 2 nodes × 8 ranks 1 GiB 295 290 to 300 2 of 3 148 (145 to 150) +100.0 %" in shown
    assert "Not used: all-3 8 of 16 hosts (rule hosts_as_asked)" in shown
    assert "Not measured: gpu-009 (left out: a GPU fell off the bus)." in shown


def test_a_first_run_compares_with_nothing(benched: ReportData) -> None:
    assert benched.collectives is not None
    assert benched.object_store is not None
    data = dataclasses.replace(
        benched,
        collectives=dataclasses.replace(benched.collectives, before=Comparable()),
        object_store=dataclasses.replace(benched.object_store, before=Comparable()),
    )
    p = index(data)
    assert "2 of 3 nothing comparable Change" in p.text
    assert "latest earlier run" not in p.text
    assert "before 235.0" not in " ".join(v.get("title") or "" for _, v in p.elements)


def test_nodes_and_rails_stand_against_their_own_median(benched: ReportData) -> None:
    p = index(benched)
    titles = {v["title"]: v.get("class") for tag, v in p.elements if tag == "td" and v.get("title")}
    assert titles["gpu-001: 470.0 GB/s, median of all 470.0 GB/s, before 235.0 GB/s"] == "shade-0"
    slow = "gpu-008: 400.0 GB/s, median of all 470.0 GB/s, before 200.0 GB/s. gpu-008 is 14.9 % slower than its 7 peers"
    assert titles[slow] == "critical"
    assert f"#f-{benched.findings[0].finding}" in p.links
    shown = section(p, "Collectives lab_fleet", "Object store")
    assert "gpu-007 +0.0 % gpu-008 ✕ −14.9 %" in shown
    assert "rail-9 +0.0 % rail-10 +0.0 % rail-11" in shown, "rails stand in the order of their numbers"
    assert "gpu-009 +" not in shown


def test_rows_with_wrong_values_have_no_bandwidth(benched: ReportData) -> None:
    assert benched.collectives is not None
    rows = tuple(dataclasses.replace(r, wrong=3) for r in benched.collectives.rows)
    data = dataclasses.replace(benched, collectives=dataclasses.replace(benched.collectives, rows=rows))
    (engine,) = collectives.engines(data, frozenset())
    assert (engine.curves, engine.maps) == ((), ())


def test_curves_that_may_not_be_compared_are_told_apart(benched: ReportData) -> None:
    assert benched.collectives is not None
    tcp = [row("all-1", "all", "all", s, 3.0, transport="NET/Socket") for s in SIZES]
    ib = [row("all-2", "all", "all", s, 290.0, transport="NET/IB") for s in SIZES]
    data = dataclasses.replace(benched, collectives=dataclasses.replace(benched.collectives, rows=(*tcp, *ib)))
    (engine,) = collectives.engines(data, frozenset())
    assert {(c.setting, c.top.median, c.before) for c in engine.curves} == {
        ("2 nodes × 8 ranks, transport NET/Socket", 3.0, ()),
        ("2 nodes × 8 ranks, transport NET/IB", 290.0, ()),
    }


def test_what_this_machine_measured_comes_before_what_the_lab_plays(benched: ReportData) -> None:
    assert benched.collectives is not None
    results = dataclasses.replace(
        benched.collectives,
        launches=(*benched.collectives.launches, launch("w-1", engine="zloo")),
        rows=(*benched.collectives.rows, row("w-1", "all", "all", SIZES[0], 1.0, engine="zloo")),
        origins={**benched.collectives.origins, "w-1": "measured"},
    )
    found = collectives.engines(dataclasses.replace(benched, collectives=results), frozenset())
    assert [(e.name, e.origins) for e in found] == [("zloo", ("measured",)), ("lab_fleet", ("lab",))]


def test_many_nodes_fold_the_rows_without_a_finding(benched: ReportData) -> None:
    assert benched.collectives is not None
    rows = tuple(row("node-1", f"gpu-{n:04}", "node", SIZES[1], 470.0 - n % 7) for n in range(1, 1025))
    slow = dataclasses.replace(benched.findings[0], unit="gpu-0500")
    results = dataclasses.replace(benched.collectives, rows=rows, before=Comparable())
    data = dataclasses.replace(benched, findings=(slow,), collectives=results)
    (engine,) = collectives.engines(data, frozenset())
    assert [len(m.rows) for m in engine.maps] == [1]
    assert sum(map(len, (*engine.maps[0].rows, *engine.maps[0].folded))) == 1024
    assert "127 rows without a finding" in index(data).text


def test_what_isolating_found_stands_with_its_interval(benched: ReportData) -> None:
    assert benched.collectives is not None
    blamed = Isolation(
        case="rail-2",
        number=0,
        outcome="blamed",
        engine="lab_fleet",
        tests=9,
        references=1,
        rounds=3,
        minutes=1.25,
        reason="slow with two different partners <b>",
        unit="gpu-003/mlx5_2",
        loss=0.185,
        loss_low=0.17,
        loss_high=0.2,
        confidence=0.999,
    )
    open_ = dataclasses.replace(
        blamed, number=1, outcome="undecided", unit=None, candidates="leaf-3, rail-4", loss=None, confidence=None
    )
    results = dataclasses.replace(benched.collectives, isolations=(blamed, open_))
    shown = index(dataclasses.replace(benched, collectives=results)).text
    assert "rail-2 blamed gpu-003/mlx5_2 18.5 % (17.0 to 20.0 %) 99.9 % 9 tests in 3 rounds, 1.2 min slow with" in shown
    assert "rail-2 undecided leaf-3, rail-4 9 tests" in shown


def test_object_store_figures_have_units_and_spread(benched: ReportData) -> None:
    shown = section(index(benched), "Object store object-store, measured by embedded", "Coverage")
    assert shown.startswith("origin: measured")
    assert "GET 1 MiB 8 at once 320 MiB/s 310 to 330 320 1.50 / 12.0 15.0 0 3 of 3 200 (200 to 200) +60.0 %" in shown


def test_failed_requests_are_counted_and_not_compared(benched: ReportData) -> None:
    assert benched.object_store is not None
    rows = [dataclasses.replace(r, errors=7) for r in benched.object_store.rows]
    rows.append(stored(4, "GET", None, problem="ran on 10.0.0.9, expected one host"))
    data = dataclasses.replace(benched, object_store=dataclasses.replace(benched.object_store, rows=tuple(rows)))
    shown = index(data).text
    assert "21 of 3,000 3 of 4 not compared: errors" in shown
    assert "Not used: s3-GET-4, GET ran on 10.0.0.9, expected one host" in shown


def test_operations_without_payload_are_counted_in_objects(benched: ReportData) -> None:
    assert benched.object_store is not None
    rows = tuple(stored(n, "STAT", None, objects_per_s=900.0, ttfb_p50_ms=None, ttfb_p99_ms=None) for n in (1, 2))
    data = dataclasses.replace(benched, object_store=dataclasses.replace(benched.object_store, rows=rows))
    (found,) = object_store.stores(data)
    assert [(x.unit, x.speed.median, x.ttfb_p50_ms) for x in found.lines] == [("objects/s", 900.0, None)]
    assert "STAT 1 MiB 8 at once 900 objects/s" in index(data).text


HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</text></svg><svg onload=alert(1)>",
    "{{ 7*7 }}{% raw %}",
    "\x1b[2J\x00\r\x85\u2028\u202e",
    "\ud800",
    "datum.value; ]]> &lt;b&gt;",
    "a" * (1 << 16),
)


@pytest.mark.parametrize("hostile", HOSTILE, ids=lambda h: repr(h[:20]))
def test_hostile_text_is_inert_also_in_plots(benched: ReportData, hostile: str) -> None:
    c, s = benched.collectives, benched.object_store
    assert c is not None
    assert s is not None
    spoilt: dict[str, Any] = {"collective": hostile, "transport": hostile, "sku": hostile, "engine": hostile}
    more = tuple(dataclasses.replace(r, **spoilt) for r in c.rows) + tuple(
        row("all-9", f"x{hostile}", "node", SIZES[1], 1.0) for _ in (1,)
    )
    data = dataclasses.replace(
        benched,
        collectives=dataclasses.replace(
            c,
            rows=(*more, *c.rows),
            launches=(*c.launches, launch(hostile, usable=False, engine=hostile)),
            problems=(LaunchProblem(hostile, hostile, True, hostile),),
        ),
        object_store=dataclasses.replace(
            s,
            rows=(
                *(dataclasses.replace(r, op=hostile, server=hostile, store=hostile) for r in s.rows),
                dataclasses.replace(s.rows[0], problem=hostile, launch=hostile),
            ),
        ),
    )
    body = page.render(data)["index.html"]
    read({"index.html": body})
    assert len(body) < 5 << 20
    assert not set("\x1b\x00\u202e") & set(body.decode())


def test_plots_are_xml_whose_labels_are_text(benched: ReportData) -> None:
    (engine,) = collectives.engines(benched, frozenset())
    (store,) = object_store.stores(benched)
    labels = []
    for svg in (benchmark_plots.busbw_curves(engine.drawn), benchmark_plots.object_store_points(store.lines)):
        root = ElementTree.fromstring(svg)
        assert not list(root.iter("{http://www.w3.org/2000/svg}image"))
        labels += [e.text for e in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"all_reduce", "2 nodes × 8 ranks", "busbw, GB/s", "64 MiB", "1 GiB", "GET 1 MiB", "MiB/s"} <= set(labels)
    assert benchmark_plots.busbw_curves(()) == benchmark_plots.object_store_points(()) == ""


def test_a_bandwidth_of_nothing_is_drawn_and_not_divided_by(benched: ReportData) -> None:
    assert benched.collectives is not None
    zero = tuple(dataclasses.replace(r, busbw_gbps=0.0) for r in benched.collectives.rows)
    past = Comparable(zero, {r.comparability: BEFORE_AT for r in zero})
    results = dataclasses.replace(benched.collectives, rows=zero, before=past)
    (engine,) = collectives.engines(dataclasses.replace(benched, collectives=results), frozenset())
    assert [c.change for c in engine.curves] == [None]
    index(dataclasses.replace(benched, collectives=results))


@settings(max_examples=60, deadline=timedelta(seconds=5))
@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=9))
def test_a_point_spans_its_launches(values: list[float]) -> None:
    rows = tuple(row(f"l{i}", "all", "all", MIB, v) for i, v in enumerate(values))
    (point,) = collectives._points(rows)
    assert (point.low, point.median, point.high) == (min(values), median(values), max(values))
    assert point.launches == len(values)


@pytest.mark.parametrize(
    ("value", "shown"), [(0, "0"), (0.3479, "0.348"), (12.34, "12.3"), (295.4, "295"), (12345.6, "12,346")]
)
def test_figures_have_three_significant_digits(value: float, shown: str) -> None:
    assert text.figure(value) == shown


def test_sizes_and_shares_read_well() -> None:
    assert [text.size(n) for n in (0, 512, 65536, 3 << 19, 1 << 40)] == ["0 B", "512 B", "64 KiB", "1.5 MiB", "1 TiB"]
    assert [text.percent(x) for x in (-0.185, 0.0, 0.5)] == ["−18.5 %", "+0.0 %", "+50.0 %"]


def test_pairs_of_ranks_stand_side_by_side_and_only_a_finding_is_marked(benched: ReportData) -> None:
    values = {"ranks-0-1": 0.288, "ranks-2-3": 0.0271, "ranks-4-5": 0.192}
    cpu = {"engine": "gloo", "timing": "best", "sku": None, "ranks": 2, "ranks_per_node": 2, "nodes": 1}
    rows = tuple(row("gloo-pairs-1", g, "ranks", 65536, v, **cpu) for g, v in values.items())
    named, slow = (
        finding(
            check="collectives",
            rule=rule,
            unit=unit,
            unit_kind=kind,
            metric=metric,
            severity=Severity.WARNING,
            summary=summary,
        )
        for rule, unit, kind, metric, summary in (
            ("isolated", "localhost/rank-3", "rank", "busbw_loss", "localhost/rank-3 loses about 90 %"),
            ("ranks_as_fast_as_peers", "ranks-2-3", "ranks", "all_reduce.ranks.busbw_gbps", "ranks-2-3 is slow"),
        )
    )
    slow = dataclasses.replace(slow, explained_by=named.finding)
    isolation = Isolation(
        case="ranks", number=0, outcome="blamed", engine="gloo", tests=5, references=3, rounds=2, minutes=0.5,
        reason="slow with rank-2 and rank-1", unit="localhost/rank-3", unit_kind="rank", loss=0.9,
    )  # fmt: skip
    results = CollectiveResults(
        launches=(launch("gloo-pairs-1", "ranks", engine="gloo"),),
        problems=(),
        rows=rows,
        origins={"gloo-pairs-1": "measured"},
        before=Comparable(),
        isolations=(isolation,),
    )
    p = index(dataclasses.replace(benched, findings=(named, slow), collectives=results))
    titles = {v["title"]: v.get("class") for tag, v in p.elements if tag == "td" and v.get("title")}
    assert titles["ranks-4-5: 0.1920 GB/s, median of all 0.1920 GB/s"] == "shade-0"
    assert titles["ranks-2-3: 0.02710 GB/s, median of all 0.1920 GB/s. ranks-2-3 is slow"] == "explained"
    shown = section(p, "Collectives gloo", "Object store")
    assert "Pairs of ranks against the median of all" in shown
    assert "localhost/rank-3 90.0 %" in shown
    assert "5 tests in 2 rounds" in shown
