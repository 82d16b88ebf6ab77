"""Kernel log rules: the Xid catalogue, SXids, flapping links."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from fabric_health.checks.driver_firmware.rules.events import most_in_a_day
from fabric_health.checks.driver_firmware.tables import KernelEvent
from fabric_health.checks.driver_firmware.xids import CLASSES, catalogue, read

NOW = datetime(2026, 11, 30, 3, 0, tzinfo=UTC)
GPU, NIC = "gpu-001/gpu2", "gpu-001/mlx5_1"

# The list for which Azure's node health checks take a node out, less those that NVIDIA calls informational or minor.
FATAL = (46, 48, 57, 58, 62, 64, 74, 79, 95, 109, 110, 119, 120, 136, 140, 143, 155, 158)


@pytest.mark.parametrize("code", FATAL)
def test_a_fatal_xid_is_critical(fleet, code):
    fleet.event(GPU, "xid", code=code)
    f = fleet.only()
    assert (f.rule, f.unit, f.metric, f.severity) == ("xid", GPU, f"xid_{code}", "critical")
    assert f.action


@pytest.mark.parametrize("code", [13, 31, 43, 45, 63])
def test_an_xid_of_applications_or_for_the_record_is_info(fleet, code):
    fleet.event(GPU, "xid", code=code)
    assert fleet.only().severity == "info"


@pytest.mark.parametrize("code", [92, 94, 56, 65, 68, 69, 73, 80, 81])
def test_an_xid_to_look_into_is_a_warning(fleet, code):
    fleet.event(GPU, "xid", code=code)
    assert fleet.only().severity == "warning"


def test_a_number_that_is_not_in_the_catalogue_is_a_warning(fleet):
    fleet.event(GPU, "xid", code=999)
    assert fleet.only().severity == "warning"
    assert "not in the catalogue" in fleet.only().summary


def test_an_xid_storm_is_one_finding_with_a_count(fleet):
    for minutes in range(300):
        fleet.event(GPU, "xid", code=79, at=NOW - timedelta(minutes=minutes))
    assert "300 times, last at 2026-11-30 03:00 UTC" in fleet.only().summary


@pytest.mark.parametrize("code", range(144, 151))
@pytest.mark.parametrize(
    ("message", "severity"),
    [
        ("NETIR_LINK_EVT  Fatal   XC0 i0 Link 01 (0x4 0x6)", "critical"),
        ("NETIR_LINK_EVT  Nonfatal   XC0 i0 Link 01 (0x4 0x6)", "info"),
        ("NETIR_LINK_EVT  Non-fatal XC0", "info"),
        ("cut off before it said", "critical"),
    ],
)
def test_nvlink5_xids_are_judged_by_their_words(fleet, code, message, severity):
    fleet.event(GPU, "xid", message, code)
    assert fleet.only().severity == severity


@pytest.mark.parametrize(
    ("to", "severity"), [("0x0", "info"), ("0x1", "critical"), ("0x2", "critical"), ("0x3", "warning"),
                         ("0x4", "critical"), ("0x77", "critical")]
)  # fmt: skip
def test_the_recovery_action_goes_by_its_number(fleet, to, severity):
    fleet.event(GPU, "xid", f"GPU recovery action changed from 0x0 (None) to {to} (some words)", 154)
    assert fleet.only().severity == severity


def test_the_last_recovery_action_counts(fleet):
    fleet.event(GPU, "xid", "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)", 154)
    fleet.event(GPU, "xid", "GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)", 154)
    assert fleet.only().severity == "info"


def test_what_follows_from_an_xid_points_at_it(fleet):
    fleet.event(GPU, "xid", code=45)
    fleet.event(GPU, "xid", code=95)
    fleet.event(GPU, "xid", "to 0x1 (GPU Reset Required)", code=154)
    found = {f.metric: f for f in fleet.judge()}
    assert found["xid_95"].explained_by is None
    assert found["xid_45"].explained_by == found["xid_154"].explained_by == found["xid_95"].finding


def test_a_recorded_remap_points_at_the_pending_one(fleet):
    fleet.event(GPU, "xid", code=63)
    fleet.set(GPU, "remap_pending", "yes")
    found = {f.rule: f for f in fleet.judge()}
    assert found["xid"].explained_by == found["remap_pending"].finding


def test_a_gpu_that_fell_off_the_bus_and_is_missing_is_one_primary_finding(fleet):
    fleet.event(GPU, "xid", code=79)
    fleet.drop(GPU)
    fleet.set("gpu-001", "gpu_count", "3")
    found = fleet.judge()
    assert [f.metric for f in found if f.explained_by is None] == ["xid_79"]
    assert {f.rule for f in found} == {"xid", "gpu_present"}


def test_the_reset_that_an_xid_asks_for_points_at_it(fleet):
    fleet.event(GPU, "xid", code=95)
    fleet.event(GPU, "xid", "to 0x1 (GPU Reset Required)", code=154)
    fleet.set(GPU, "recovery_action", "Reset")
    assert [f.metric for f in fleet.judge() if f.explained_by is None] == ["xid_95"]


def test_links_that_are_down_tell_their_xid_again(fleet):
    fleet.event(GPU, "xid", code=74)
    fleet.set(GPU, "nvlinks_active", "17")
    assert [f.rule for f in fleet.judge() if f.explained_by is None] == ["nvlinks"]


def test_a_critical_xid_is_never_hidden_behind_a_warning(fleet):
    fleet.event(GPU, "xid", "to 0x2 (Node Reboot Required)", code=154)
    fleet.event(GPU, "xid", code=94)
    assert {f.metric for f in fleet.judge() if f.explained_by is None} == {"xid_94", "xid_154"}


@pytest.mark.parametrize(
    ("messages", "severity"),
    [
        (["Fatal, Link 32 egress packet error"], "critical"),
        (["Non-fatal, Link 32 egress packet error"], "info"),
        (["Severity 1 Engine instance 12", "Fatal, Link 12"], "critical"),
        (["Severity 1 Engine instance 12"], "warning"),
    ],
)
def test_sxids_go_by_their_own_words(fleet, messages, severity):
    for message in messages:
        fleet.event("gpu-001", "sxid", message, 24007)
    f = fleet.only()
    assert (f.rule, f.unit, f.metric, f.severity) == ("sxid", "gpu-001", "sxid_24007", severity)


def test_an_xid_line_without_a_number_is_not_a_pass(fleet):
    fleet.event(GPU, "xid", "garbled", None)
    assert fleet.only().kind == "not_judged"


def test_a_link_that_flaps(fleet):
    for hour in range(5):
        fleet.event(NIC, "lost_carrier", at=NOW - timedelta(days=3, hours=hour))
    f = fleet.only()
    assert (f.rule, f.unit, f.metric, f.severity) == ("link_flaps", NIC, "lost_carrier", "warning")
    assert f.actual == "5 within 24 h"


def test_as_many_losses_over_a_week_are_no_flapping(fleet):
    for day in range(6):
        fleet.event(NIC, "lost_carrier", at=NOW - timedelta(days=day, minutes=1))
    assert fleet.judge() == []


def test_losses_without_a_time_cannot_be_judged(fleet):
    for _ in range(6):
        fleet.event(NIC, "lost_carrier", at=None)
    assert (fleet.only().kind, fleet.only().unit) == ("not_judged", NIC)


def test_log_and_counter_of_one_flapping_link_are_one_primary_finding(fleet):
    fleet.remember()
    for hour in range(7):
        fleet.event(NIC, "lost_carrier", at=NOW - timedelta(hours=hour))
    fleet.link(NIC, carrier_changes=200, link_downed=8)
    found = fleet.judge()
    assert [f.rule for f in found if f.explained_by is None] == ["link_flaps"]
    assert {f.rule for f in found} == {"link_flaps", "link_downed"}


def test_most_in_a_day_slides():
    def at(hours):
        return KernelEvent("n", "nic", "lost_carrier", 0, "m", None, NOW + timedelta(hours=hours))

    assert most_in_a_day([]) == 0
    assert most_in_a_day([at(h) for h in (0, 23, 24, 25, 46)]) == 4
    assert most_in_a_day([at(h) for h in (0, 24, 48)]) == 1


def test_the_catalogue_covers_what_others_watch_and_is_well_formed():
    entries = catalogue()
    azure = {48, 56, 57, 58, 62, 63, 64, 65, 68, 69, 73, 74, 79, 80, 81, 92, 119, 120}
    assert azure | {13, 31, 43, 45, 94, 95, 140, *range(144, 151), 154, 160, 171, 172} <= set(entries)
    for entry in entries.values():
        assert entry.cause in CLASSES
        assert entry.source.startswith("https://")
        assert entry.name
        assert entry.action


@pytest.mark.parametrize(
    "entries",
    [
        [{"number": 1, "name": "a", "class": "nonsense", "severity": "info", "action": "none"}],
        [{"number": 1, "name": "a", "class": "info", "severity": "info", "action": "unheard of"}],
        [{"number": 1, "name": "a", "class": "info", "severity": "loud", "action": "none"}],
        [{"number": [1, 3], "name": "a", "class": "info", "severity": "info", "action": "none"}] * 2,
    ],
)
def test_a_malformed_catalogue_is_refused(entries):
    with pytest.raises(ValueError, match=r"."):
        read({"source": "https://x", "actions": {"none": "-"}, "xids": entries})
