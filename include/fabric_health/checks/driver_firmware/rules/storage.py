"""Drive rules: what an NVMe drive says about its own health, and media errors that increase between runs."""

from __future__ import annotations

from collections.abc import Iterator

from fabric_health.checks.driver_firmware.rules.rule import NVME, SMARTCTL, deviation
from fabric_health.checks.driver_firmware.view import NodeView, Part
from fabric_health.datasets.tables import Finding, Severity

REPLACE = "Plan to replace the drive; move its data first."


def drive_findings(view: NodeView) -> Iterator[Finding]:
    """Judge every NVMe drive that the node showed."""
    for drive in view.drives:
        yield from _failing(view, drive)
        yield from _wear(view, drive)
        yield from _media_errors(view, drive)
        yield from _temperature(view, drive)


def _failing(view: NodeView, drive: Part) -> Iterator[Finding]:
    passed = view.text(drive, "smart_passed")
    warning = view.number(drive, "critical_warning")
    signs = []
    if passed == "no":
        signs.append("SMART self-assessment failed")
    if warning:
        signs.append(f"critical_warning 0x{warning:02x}: {', '.join(_bits(warning))}")
    if signs:
        yield deviation(
            drive,
            "drive_not_failing",
            "critical_warning",
            Severity.CRITICAL,
            f"Drive {drive.unit} reports that it is failing: {'; '.join(signs)}",
            expected="SMART passed, critical_warning 0x00",
            actual="; ".join(signs),
            action=REPLACE,
            source=NVME,
            command=view.command(drive, "critical_warning"),
        )


def _bits(warning: int) -> list[str]:
    """Name the bits of the critical warning field (NVMe base specification, SMART / Health Information)."""
    names = ("spare below threshold", "temperature", "reliability degraded", "read-only", "backup failed", "PMR")
    return [name for bit, name in enumerate(names) if warning & (1 << bit)] or ["reserved bit"]


def _wear(view: NodeView, drive: Part) -> Iterator[Finding]:
    used = view.number(drive, "percentage_used")
    limit = view.thresholds.drive_percentage_used
    if used is not None and used >= limit:
        yield deviation(
            drive,
            "drive_endurance",
            "percentage_used",
            Severity.WARNING,
            f"Drive {drive.unit} has used {used} % of its rated endurance",
            expected=f"< {limit} %",
            actual=f"{used} %",
            action=REPLACE,
            source=SMARTCTL,
            command=view.command(drive, "percentage_used"),
        )
    spare, threshold = view.number(drive, "available_spare"), view.number(drive, "available_spare_threshold")
    if spare is not None and threshold is not None and spare < threshold:
        yield deviation(
            drive,
            "drive_spare",
            "available_spare",
            Severity.CRITICAL,
            f"Drive {drive.unit} has {spare} % of its spare blocks left, its own limit is {threshold} %",
            expected=f">= {threshold} %",
            actual=f"{spare} %",
            action=REPLACE,
            source=NVME,
            command=view.command(drive, "available_spare"),
        )


def _media_errors(view: NodeView, drive: Part) -> Iterator[Finding]:
    now, before = view.number(drive, "media_errors"), view.earlier_number(drive, "media_errors")
    if now is None or before is None or now <= before or view.replaced(drive):
        return
    yield deviation(
        drive,
        "drive_media_errors",
        "media_errors",
        Severity.WARNING,
        f"Drive {drive.unit} counted {now - before} new media errors since the previous run",
        expected="no new media errors",
        actual=f"{before} -> {now}",
        action=REPLACE,
        source=NVME,
        command=view.command(drive, "media_errors"),
    )


def _temperature(view: NodeView, drive: Part) -> Iterator[Finding]:
    celsius, limit = view.number(drive, "temperature_c"), view.thresholds.drive_temperature_c
    if celsius is not None and celsius >= limit:
        yield deviation(
            drive,
            "drive_temperature",
            "temperature_c",
            Severity.WARNING,
            f"Drive {drive.unit} is at {celsius} degrees C",
            expected=f"< {limit} degrees C",
            actual=f"{celsius} degrees C",
            action="Check airflow and fans of the drive bay.",
            source=SMARTCTL,
            command=view.command(drive, "temperature_c"),
        )
