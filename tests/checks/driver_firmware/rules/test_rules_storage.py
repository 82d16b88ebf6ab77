"""Drive rules."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize(
    ("attribute", "value", "rule", "severity"),
    [
        ("smart_passed", "no", "drive_not_failing", "critical"),
        ("critical_warning", "4", "drive_not_failing", "critical"),
        ("percentage_used", "90", "drive_endurance", "warning"),
        ("percentage_used", "130", "drive_endurance", "warning"),
        ("available_spare", "9", "drive_spare", "critical"),
        ("temperature_c", "75", "drive_temperature", "warning"),
        ("media_errors", "5", "drive_media_errors", "warning"),
    ],
)
def test_must_fail(fleet, attribute, value, rule, severity):
    fleet.remember()
    fleet.set("gpu-001/nvme0", attribute, value)
    f = fleet.only()
    assert (f.rule, f.unit, f.unit_kind, f.severity) == (rule, "gpu-001/nvme0", "drive", severity)
    assert f.command == "smartctl:nvme0"


@pytest.mark.parametrize(
    ("attribute", "value"),
    [("percentage_used", "89"), ("available_spare", "10"), ("temperature_c", "74"), ("media_errors", "0")],
)
def test_must_pass(fleet, attribute, value):
    fleet.remember()
    fleet.set("gpu-001/nvme0", attribute, value)
    assert fleet.judge() == []


def test_old_media_errors_without_a_previous_run_are_unknown(fleet):
    fleet.set("gpu-001/nvme0", "media_errors", "50")
    assert fleet.judge() == []


def test_a_drive_that_is_not_there(fleet):
    for attribute in ("smart_passed", "critical_warning", "percentage_used", "media_errors"):
        detail = "exit code 2: Smartctl open device: /dev/nvme0 failed: No such device"
        fleet.error("gpu-001/nvme0", attribute, detail)
    found = fleet.judge()
    assert [(f.rule, f.unit) for f in found if f.explained_by is None] == [("drive_present", "gpu-001/nvme0")]


def test_a_drive_of_which_nothing_is_known_is_not_a_pass(fleet):
    fleet.drop("gpu-001/nvme0")
    assert (fleet.only().kind, fleet.only().unit) == ("not_judged", "gpu-001/nvme0")


def test_smartctl_missing_is_not_a_pass(fleet):
    for (unit, attribute), fact in list(fleet.facts.items()):
        if unit == "gpu-001/nvme0" and (fact.command or "").startswith("smartctl"):
            fleet.error(unit, attribute, "not installed")
    f = fleet.only()
    assert (f.rule, f.metric, f.kind) == ("readable", "smartctl", "not_judged")


def test_media_errors_of_another_drive_are_not_new_ones(fleet):
    fleet.set("gpu-001/nvme0", "serial", "S1")
    fleet.remember()
    fleet.set("gpu-001/nvme0", "serial", "S2")
    fleet.set("gpu-001/nvme0", "media_errors", "500")
    assert fleet.judge() == []
