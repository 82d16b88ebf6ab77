"""Whole runs of the check on recorded answers: what must pass passes, and each fault is one line with its cause."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from fabric_runs import AT, Run, Told, changed, evidence, load, recorded, run

from fabric_health.checks.check import RowSet
from fabric_health.checks.fabric_links import FABRIC_LINKS
from fabric_health.checks.fabric_links.tables import FabricNode, FabricPort, FabricWindow
from fabric_health.datasets.tables import Fact
from fabric_health.evidence import CommandStatus
from fabric_health.site import Site

LEAF = "0xb8599f0300100040"


@pytest.fixture(scope="module")
def healthy(planned: Site) -> Run:
    return run(planned, recorded("healthy"))


@pytest.fixture(scope="module")
def healthy_unplanned(unplanned: Site) -> Run:
    return run(unplanned, recorded("healthy"))


def test_a_healthy_fabric_has_no_finding_although_its_links_could_be_12x(planned: Site, healthy: Run) -> None:
    assert "Could be 12X" in recorded("healthy")["iblinkinfo"].stdout
    assert healthy.findings == []
    assert run(planned, recorded("healthy"), healthy).findings == []


def test_rows_of_a_healthy_fabric(healthy: Run) -> None:
    nodes, ports = healthy.rows.of(FabricNode), healthy.rows.of(FabricPort)
    assert (len(nodes), len(ports)) == (38, 128)
    port = next(p for p in ports if (p.node, p.port) == ("leaf001", 9))
    assert (port.width, port.lane_gbps, port.state, port.phys_state) == (4, 53.125, "Active", "LinkUp")
    assert (port.peer, port.peer_port, port.link, port.expected_width) == ("spine001", 1, "trunk", 4)
    assert port.symbol_error == 0
    assert port.xmit_data_bytes is not None
    facts = {f.attribute: f.value for f in healthy.rows.of(Fact)}
    assert facts["sm_masters"] == "1"
    assert facts["sm_guid"] == "0c42a10300000011"
    assert (facts["switches"], facts["channel_adapters"], facts["lost_queries"]) == ("6", "32", "0")


@pytest.mark.parametrize("with_plan", [True, False])
@pytest.mark.parametrize(
    ("case", "causes"),
    [
        ("link_down", [("link_up", "ib0/leaf002/2")]),
        ("degraded", [("link_speed", "ib0/leaf001/9"), ("link_width", "ib0/leaf001/5")]),
        ("errors", [("port_errors", "ib0/leaf001/3")] * 2 + [("port_flaps", "ib0/leaf001/3")]),
        # The tool succeeds and leaves the node out; only the switch's port tells.
        ("dropping", [("neighbour_answers", "ib0/leaf001/8")]),
        # Eight links down and eight hosts gone, because of one switch.
        ("leaf_lost", [("node_present", "ib0/leaf003")]),
        ("no_manager", [("one_master_manager", "ib0")]),
    ],
)
def test_one_fault_is_one_line(
    planned: Site, unplanned: Site, with_plan: bool, case: str, causes: list[tuple[str, str]]
) -> None:
    site = planned if with_plan else unplanned
    assert run(site, recorded(case), run(site, recorded("healthy"))).causes == causes


def test_with_a_plan_a_node_that_was_never_there_is_missed(planned: Site) -> None:
    first = run(planned, recorded("dropping"))
    assert first.causes == [("neighbour_answers", "ib0/leaf001/8")]
    assert [f.unit for f in first.of("node_present")] == ["ib0/gpu0008 mlx5_0"]


def test_without_a_plan_a_lost_node_is_told_of_in_every_run_for_four_weeks(
    unplanned: Site, healthy_unplanned: Run
) -> None:
    second = run(unplanned, recorded("link_down"), healthy_unplanned)
    third = run(unplanned, recorded("link_down"), second)
    lost = [n for n in third.rows.of(FabricNode) if not n.present]
    assert [(n.node, n.last_seen) for n in lost] == [("gpu0010 mlx5_0", AT)]
    assert [f.unit for f in third.of("node_present")] == ["ib0/gpu0010 mlx5_0"]
    late = run(unplanned, recorded("link_down"), third, at=AT + timedelta(days=29))
    assert late.of("node_present") == []


def test_a_swapped_pair_of_cables_is_named_from_both_switch_ports(planned: Site, healthy: Run) -> None:
    told = recorded("healthy")
    one, two = '  1[  ] "gpu0003 mlx5_0"', '  1[  ] "gpu0004 mlx5_0"'
    text = told["iblinkinfo"].stdout
    lines = []
    for line in text.splitlines():
        if line.startswith(LEAF) and line.endswith(f"{one} (Could be 12X )"):
            line = line.replace("0x0c42a10300000031      9", "0x0c42a10300000041     10").replace(one, two)
        elif line.startswith(LEAF) and line.endswith(f"{two} (Could be 12X )"):
            line = line.replace("0x0c42a10300000041     10", "0x0c42a10300000031      9").replace(two, one)
        elif line.startswith("0x0c42a10300000031"):
            line = line.replace(" 3    3[", " 3    4[")
        elif line.startswith("0x0c42a10300000041"):
            line = line.replace(" 3    4[", " 3    3[")
        lines.append(line)
    swapped = {**told, "iblinkinfo": replace(told["iblinkinfo"], stdout="\n".join(lines))}
    found = run(planned, swapped, healthy)
    assert found.causes == [("cable_as_wanted", "ib0/leaf001/3"), ("cable_as_wanted", "ib0/leaf001/4")]
    assert (found.findings[0].expected, found.findings[0].actual) == (
        "gpu0003 mlx5_0 port 1",
        "gpu0004 mlx5_0 port 1",
    )


def test_a_link_that_the_plan_lacks_is_told_of(tmp_path_factory: pytest.TempPathFactory) -> None:
    from fabric_runs import PLAN

    some = "\n".join(line for line in PLAN.splitlines() if "leaf004, ports: 1-8" not in line)
    found = run(load(tmp_path_factory.mktemp("part"), cabling=some), recorded("healthy"))
    assert found.causes == [("cable_in_plan", "ib0")]
    assert "8 links" in found.findings[0].summary


def test_two_masters_are_critical(planned: Site) -> None:
    other = (
        "SMInfoRecord dump:\n\t\tRID\n\t\tLID...................9\n\t\tSMInfo dump:\n"
        "\t\tGUID..................0x0c42a10300000031\n\t\tPriority..............1\n\t\tSMState...............3\n"
    )
    told = recorded("healthy")
    told["saquery_sminfo"] = replace(told["saquery_sminfo"], stdout=told["saquery_sminfo"].stdout + other)
    found = run(planned, told)
    assert found.causes == [("one_master_manager", "ib0")]
    assert "0c42a10300000011,0c42a10300000031" in (found.findings[0].actual or "")
    standby = {**told, "saquery_sminfo": replace(told["saquery_sminfo"], stdout=other.replace("...3", "...2"))}
    assert run(planned, standby).findings == []


def test_links_that_nobody_brought_up_point_at_the_missing_manager(planned: Site) -> None:
    told = recorded("no_manager")
    text = told["iblinkinfo"].stdout.replace(" Active/", " Initialize/")
    found = run(planned, {**told, "iblinkinfo": replace(told["iblinkinfo"], stdout=text)})
    assert found.causes == [("one_master_manager", "ib0")]
    assert len(found.of("link_active")) == 64


def test_a_node_without_a_lid_is_unmanaged(planned: Site) -> None:
    told = changed(recorded("healthy"), "ibnetdiscover", "# lid 9 lmc 0", "# lid 0 lmc 0")
    assert run(planned, told).causes == [("node_managed", "ib0/gpu0003 mlx5_0")]


@pytest.mark.parametrize(
    ("command", "told", "rule", "metric"),
    [
        ("ibnetdiscover", Told(""), "unit_has_rows", "rows"),
        ("ibnetdiscover", Told("<html>login</html>"), "unit_has_rows", "rows"),
        ("ibnetdiscover", Told("x", status=CommandStatus.TRUNCATED, exit_code=None), "unit_has_rows", "rows"),
        ("iblinkinfo", Told(""), "answer_readable", "iblinkinfo"),
        ("iblinkinfo", Told("", status=CommandStatus.NOT_INSTALLED, exit_code=127), "answer_readable", "iblinkinfo"),
        ("ibqueryerrors", Told("", stderr="Segmentation fault", exit_code=-11), "answer_readable", "ibqueryerrors"),
        ("ibqueryerrors", Told("", exit_code=139), "answer_readable", "ibqueryerrors"),
        ("ibqueryerrors", Told(""), "answer_readable", "ibqueryerrors"),
        ("ibqueryerrors_counters", Told(""), "answer_readable", "ibqueryerrors_counters"),
        ("sminfo", Told("", status=CommandStatus.TIMEOUT, exit_code=None), "answer_readable", "sminfo"),
        ("sminfo", Told("something else"), "answer_readable", "sminfo"),
    ],
)
def test_an_answer_that_cannot_be_read_is_never_a_pass(
    planned: Site, healthy: Run, command: str, told: Told, rule: str, metric: str
) -> None:
    found = run(planned, {**recorded("healthy"), command: told}, healthy)
    assert (rule, metric, "not_judged") in {(f.rule, f.metric, f.kind) for f in found.findings}


def test_counters_cut_before_their_summary_give_no_zero(planned: Site) -> None:
    told = recorded("errors")
    text = told["ibqueryerrors"].stdout
    cut = {**told, "ibqueryerrors": replace(told["ibqueryerrors"], stdout=text[: text.index("## Summary")])}
    found = run(planned, cut)
    ports = {(p.node, p.port): p for p in found.rows.of(FabricPort)}
    assert ports["leaf001", 3].symbol_error == 5000
    assert ports["leaf001", 4].symbol_error is None
    assert [f.metric for f in found.of("answer_readable")] == ["ibqueryerrors"]


def test_counters_of_fewer_nodes_than_discovered_are_told_of(planned: Site) -> None:
    told = changed(recorded("healthy"), "ibqueryerrors", "38 nodes checked", "37 nodes checked")
    assert "37 nodes of the 38" in run(planned, told).of("answer_readable")[0].summary


def test_counters_are_rates_between_runs_and_old_errors_are_not_judged(planned: Site) -> None:
    first = run(planned, recorded("errors"))
    assert [f.rule for f in first.findings] == ["counters_before"]
    assert first.findings[0].severity == "info"
    assert run(planned, recorded("errors"), first).findings == []


def test_a_window_begins_when_the_counters_were_read(planned: Site) -> None:
    late = timedelta(minutes=12)  # discovery of a large fabric takes that long
    (unit,) = FABRIC_LINKS.fabrics(planned) if FABRIC_LINKS.fabrics else ()
    results = evidence(recorded("errors"), AT).results
    asked = [replace(r, started_at=AT + late) if r.name.startswith("ibqueryerrors") else r for r in results]
    rows = FABRIC_LINKS.parse(unit, replace(evidence({}, AT), results=tuple(asked)), planned)
    assert {r.collected_at for r in rows if isinstance(r, FabricPort)} == {AT + late}
    second = run(planned, recorded("errors"), Run(RowSet.gather(rows), [], AT))
    windows = second.rows.of(FabricWindow)
    assert {(w.since, w.window_s) for w in windows} == {(AT + late, (timedelta(days=1) - late).total_seconds())}


def test_a_counter_that_went_back_says_nothing(planned: Site) -> None:
    before = run(planned, recorded("errors"))
    told = changed(recorded("errors"), "ibqueryerrors", "[LinkDownedCounter == 20]", "[LinkDownedCounter == 3]")
    found = run(planned, told, before)
    window = next(w for w in found.rows.of(FabricWindow) if (w.node, w.port) == ("leaf001", 3))
    assert (window.reset, window.link_downed, window.symbol_error) == (True, None, None)
    assert found.of("port_errors", "port_flaps") == []


def test_a_counter_at_its_end_counts_up_to_there_once_and_is_then_not_judged(planned: Site, healthy: Run) -> None:
    told = changed(recorded("errors"), "ibqueryerrors", "SymbolErrorCounter == 5000", "SymbolErrorCounter == 65535")
    first = run(planned, told, healthy)
    assert "65,535 symbol errors" in first.of("port_errors")[0].summary
    second = run(planned, told, first)
    assert second.of("port_errors") == []
    assert [f.kind for f in second.of("counters_count")] == ["not_judged"]


@pytest.mark.parametrize(("losses", "flaps"), [(4, 0), (5, 1)])
def test_as_many_link_losses_as_the_limit_are_too_many(planned: Site, healthy: Run, losses: int, flaps: int) -> None:
    told = changed(recorded("errors"), "ibqueryerrors", "[LinkDownedCounter == 20]", f"[LinkDownedCounter == {losses}]")
    assert len(run(planned, told, healthy).of("port_flaps")) == flaps


def test_a_short_window_is_not_scaled_up_to_a_day(planned: Site, healthy: Run) -> None:
    told = changed(recorded("errors"), "ibqueryerrors", "[LinkDownedCounter == 20]", "[LinkDownedCounter == 4]")
    assert run(planned, told, healthy, at=healthy.at + timedelta(minutes=5)).of("port_flaps") == []


def test_an_unknown_speed_is_not_judged_and_never_a_pass(planned: Site) -> None:
    line = next(x for x in recorded("healthy")["iblinkinfo"].stdout.splitlines() if x.startswith(LEAF) and "   3[" in x)
    told = changed(recorded("healthy"), "iblinkinfo", line, line.replace("53.125 Gbps", "XXDR 500 Gbps"))
    # The host's end names the speed, and so is not in doubt; the switch's is what the finding is about.
    found = run(planned, told)
    assert [(f.rule, f.kind) for f in found.findings] == [("link_speed_known", "not_judged")]


def test_a_speed_that_the_simulator_shows_as_sdr_is_a_finding(planned: Site) -> None:
    text = recorded("healthy")["iblinkinfo"].stdout.replace("53.125 Gbps", "2.5 Gbps")
    found = run(planned, {**recorded("healthy"), "iblinkinfo": Told(text)})
    assert len(found.of("link_speed")) == 64
    assert "SDR" in found.of("link_speed")[0].summary


def test_without_expectations_width_and_speed_are_said_not_to_be_judged(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("silent")
    site = load(folder)
    path = folder / "ib.yaml"
    lines = [x for x in path.read_text().splitlines() if "hosts: {" not in x and "trunks: {" not in x]
    path.write_text("\n".join(lines))
    from fabric_health.site import load_site

    found = run(load_site(path), recorded("degraded"))
    assert site.name == "ib"
    assert [(f.rule, f.severity, f.kind) for f in found.findings] == [("link_expectation", "info", "not_judged")]


def test_the_log_of_ibdiagnet_is_read_where_there_is_one(tmp_path_factory: pytest.TempPathFactory) -> None:
    site = load(tmp_path_factory.mktemp("diagnet"), more="ibdiagnet_log: /var/tmp/ibdiagnet2/ibdiagnet2.log")
    log = "-I- Discovering ...\n-W- lid: 3: port 3 retries\n-E- Duplicated node description\x1b[31m\n"
    found = run(site, {**recorded("healthy"), "ibdiagnet_log": Told(log)})
    assert [(f.metric, f.severity) for f in found.findings] == [
        ("ibdiagnet_errors", "warning"),
        ("ibdiagnet_warnings", "info"),
    ]
    assert "\x1b" not in (found.findings[0].actual or "")
    rubbish = run(site, {**recorded("healthy"), "ibdiagnet_log": Told("nothing of the kind")})
    assert [(f.rule, f.kind) for f in rubbish.findings] == [("answer_readable", "not_judged")]
