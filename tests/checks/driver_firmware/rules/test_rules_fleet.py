"""The judge as a whole: a healthy fleet is silent, order does not matter, what was not read is not a pass."""

from __future__ import annotations

import random
from dataclasses import fields, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fabric_health.checks.check import RowSet
from fabric_health.checks.driver_firmware import DRIVER_FIRMWARE
from fabric_health.checks.driver_firmware.judge import judge
from fabric_health.checks.driver_firmware.tables import KernelEvent, Link
from fabric_health.datasets.tables import FactState, FindingKind
from fabric_health.evidence import ReachStatus


def keys(findings):
    return [(f.rule, f.unit, f.metric) for f in findings]


def test_a_healthy_fleet_gives_no_finding(fleet):
    fleet.remember()
    assert fleet.judge() == []


def test_a_healthy_infiniband_fleet_gives_no_finding(make_fleet):
    fleet = make_fleet(link_layer="InfiniBand", netdev_mtu_bytes=None)
    for unit in fleet.links:
        fleet.link(unit, netdev=None, netdev_mtu_bytes=2044)
    assert fleet.judge() == []


def test_findings_do_not_depend_on_the_order_of_rows(fleet):
    fleet.remember()
    fleet.set("gpu-002", "driver_version", "570.148.08")
    fleet.set("gpu-003/mlx5_1", "fw_version", "28.39.1002")
    fleet.link("gpu-004/mlx5_0", state="DOWN", phys_state="DISABLED")
    fleet.set("gpu-005", "bios_version", "1.0.0")
    fleet.event("gpu-001/gpu2", "xid", code=79)
    fleet.event("gpu-001/gpu2", "xid", "to 0x2 (x)", code=154)
    expected = fleet.judge()
    assert len(expected) == 7  # the driver differs from what is pinned, and from its own kernel module
    rows, previous = fleet.rows(), list(fleet.earlier)
    for seed in range(5):
        random.Random(seed).shuffle(rows)
        random.Random(seed).shuffle(previous)
        context = replace(fleet.context(), previous=RowSet.gather(previous))
        assert judge(RowSet.gather(rows), context) == expected


def test_conflicting_duplicates_are_judged_the_same_in_any_order(fleet):
    fleet.set("gpu-002", "bios_version", "9.9.9")
    twice = replace(fleet.facts["gpu-002", "bios_version"], value="1.1.1")
    context = fleet.context()
    one = judge(RowSet.gather([*fleet.rows(), twice]), context)
    assert one == judge(RowSet.gather([twice, *fleet.rows()]), context)


@pytest.mark.parametrize("status", [s for s in ReachStatus if s not in (ReachStatus.OK, ReachStatus.PARTIAL)])
def test_a_node_that_did_not_answer_gives_nothing_and_breaks_no_vote(fleet, status):
    fleet.reach["gpu-001"] = status
    for unit in {u for u, _ in fleet.facts if u.startswith("gpu-001")}:
        fleet.drop(unit)
    assert fleet.judge() == []
    fleet.set("gpu-002", "bios_version", "0.1")
    assert keys(fleet.judge()) == [("equal_across_sku", "gpu-002", "bios_version")]


def test_a_partly_read_node_says_what_was_not_judged(fleet):
    fleet.reach["gpu-001"] = ReachStatus.PARTIAL
    fleet.error("gpu-001", "bios_version", "not run: the unit's time was up")
    found = fleet.judge()
    assert keys(found) == [("readable", "gpu-001", "bios")]
    assert found[0].kind == FindingKind.NOT_JUDGED


def test_one_finding_for_a_tool_that_failed_on_all_gpus(fleet):
    for (unit, attribute), fact in list(fleet.facts.items()):
        if unit.startswith("gpu-002") and fact.command in ("nvidia_smi", "nvlink"):
            fleet.error(unit, attribute, "timeout after 60 s")
    found = fleet.judge()
    assert sorted(keys(found)) == [("readable", "gpu-002", "nvidia_smi"), ("readable", "gpu-002", "nvlink")]
    assert {f.kind for f in found} == {FindingKind.NOT_JUDGED}
    assert "timeout after 60 s" in found[0].summary


def test_a_cell_that_is_garbled_on_one_gpu_is_that_gpus(fleet):
    fleet.error("gpu-002/gpu1", "remap_pending", "'banana'; expected one of Yes, No")
    fleet.set("gpu-002/gpu1", "pcie_width", "wide")
    found = fleet.judge()
    assert keys(found) == [("readable", "gpu-002/gpu1", "nvidia_smi")]
    assert "remap_pending" in found[0].summary
    assert "pcie_width" in found[0].summary


def test_a_fact_that_is_not_there_is_not_a_pass(fleet):
    fleet.drop("gpu-003/gpu0", "remap_failure")
    found = fleet.judge()
    assert keys(found) == [("readable", "gpu-003/gpu0", "rows")]
    assert found[0].kind == FindingKind.NOT_JUDGED


def test_unsupported_is_listed_only_where_the_sku_expects_it(fleet):
    fleet.error("gpu-001/gpu0", "ecc_sram_correctable", "N/A", FactState.UNSUPPORTED)
    assert fleet.judge() == []
    fleet.error("gpu-001/gpu0", "nvlinks_active", "no links are listed", FactState.UNSUPPORTED)
    found = fleet.judge()
    assert [(f.rule, f.unit, f.severity) for f in found] == [("supported", "gpu-001/gpu0", "info")]


def test_a_kernel_log_that_could_not_be_read_is_not_a_clean_log(fleet):
    fleet.error("gpu-001", "kernel_log_source", "permission: exit code 1")
    assert [(f.metric, f.kind) for f in fleet.judge()] == [("journal", "not_judged")]


def test_every_finding_has_what_a_person_needs(fleet):
    fleet.remember()
    fleet.set("gpu-002", "driver_version", "570.148.08")
    fleet.set("gpu-002/gpu1", "remap_failure", "yes")
    fleet.link("gpu-003/mlx5_0", state="DOWN", phys_state="POLLING")
    fleet.drop("gpu-004/mlx5_0")
    fleet.event("gpu-001", "sxid", "Fatal, Link 32", code=12028)
    for f in fleet.judge():
        assert f.summary
        assert f.action
        assert f.source
        assert f.expected is not None
        assert f.actual is not None


def test_hostile_text_is_cut_to_one_line_without_escapes(fleet):
    fleet.set("gpu-001", "bios_version", "\x1b[31m<script>alert(1)</script>\n" + "A" * 100_000)
    found = fleet.judge()
    assert len(found) == 1
    for text in (found[0].summary, found[0].actual):
        assert len(text) <= 400
        assert "\n" not in text
        assert "\x1b" not in text


def test_unit_of_gives_the_node_of_every_kind_of_row(fleet):
    fleet.event("gpu-001/mlx5_0", "lost_carrier")
    names = {n.name for n in fleet.site.nodes}
    assert {DRIVER_FIRMWARE.unit_of(row) for row in fleet.rows()} == names


_TEXT = st.one_of(
    st.sampled_from(["", "0", "-1", "N/A", "yes", "16", "99999999999999999999999", "٣", "1e3", "active", "DOWN"]),
    st.text(max_size=30),
)


@settings(max_examples=settings().max_examples // 2)
@given(data=st.data())
def test_no_rows_crash_the_judge_and_errors_never_pass(fleet, data):
    changed = replace_some(fleet, data)
    found = judge(RowSet.gather(changed), fleet.context())
    assert len({f.finding for f in found}) == len(found), "one finding per id"


def replace_some(fleet, data):
    rows = fleet.rows()
    for index in data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=12)):
        row = rows[index]
        if isinstance(row, Link):
            name = data.draw(st.sampled_from([f.name for f in fields(Link) if f.name not in ("node", "nic", "port")]))
            old = getattr(row, name)
            new = data.draw(_TEXT) if isinstance(old, str) else data.draw(st.one_of(st.none(), st.integers(0, 2**62)))
            rows[index] = replace(row, **{name: new})
        else:
            state = data.draw(st.sampled_from(list(FactState)))
            value = data.draw(_TEXT) if state is FactState.VALUE else None
            rows[index] = replace(row, state=state, value=value, detail=None if value else data.draw(_TEXT))
    unit = data.draw(st.sampled_from(["gpu-001", "gpu-001/gpu0", "gpu-001/mlx5_0", "elsewhere"]))
    rows.append(
        KernelEvent(unit, data.draw(_TEXT), data.draw(st.sampled_from(["xid", "sxid", "lost_carrier", "odd"])), 0,
                    data.draw(_TEXT), data.draw(st.one_of(st.none(), st.integers(0, 200))), None)
    )  # fmt: skip
    return rows


@pytest.mark.parametrize("attribute", ["remap_failure", "pcie_width", "recovery_action", "ecc_mode", "vbios_version"])
@pytest.mark.parametrize("detail", ["GPU is lost", "Insufficient Permissions", "garbled", ""])
def test_an_error_on_an_attribute_that_a_rule_needs_is_a_finding(fleet, attribute, detail):
    fleet.error("gpu-001/gpu0", attribute, detail)
    assert fleet.judge()
