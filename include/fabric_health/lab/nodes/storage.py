"""Answers of smartctl for the node's NVMe drives."""

from __future__ import annotations

import json
from datetime import datetime

from fabric_health.lab.answer import Answer
from fabric_health.lab.nodes.hardware import Drive, Hardware, spread

_BYTES = 3_840_755_982_336


def answer(hardware: Hardware, arguments: tuple[str, ...], now: datetime) -> Answer:
    """Answer `smartctl -j -a DEVICE`. The exit status is a bit mask; 2 says that the device could not be opened."""
    device = arguments[-1] if arguments else ""
    if arguments[:-1] != ("-j", "-a"):
        return Answer(stderr="smartctl: expected -j -a DEVICE\n", exit_code=1)
    drive = next((d for d in hardware.drives if d.device == device), None)
    if drive is None:
        message = {"string": f"Smartctl open device: {device} failed: No such device", "severity": "error"}
        head = _head(device, 2) | {"messages": [message]}
        return Answer(json.dumps({"json_format_version": [1, 0], "smartctl": head}, indent=2) + "\n", exit_code=2)
    return Answer(json.dumps(_report(drive, hardware, now), indent=2) + "\n")


def _head(device: str, exit_status: int) -> dict[str, object]:
    return {
        "version": [7, 2],
        "svn_revision": "5155",
        "platform_info": "x86_64-linux-5.15.0-151-generic",
        "build_info": "(local build)",
        "argv": ["smartctl", "-j", "-a", device],
        "exit_status": exit_status,
    }


def _report(drive: Drive, hardware: Hardware, now: datetime) -> dict[str, object]:
    up = hardware.seconds_up(now)
    hours = drive.power_on_hours + up // 3_600
    # One data unit is 1000 blocks of 512 bytes.
    read = hours * spread(drive.unit, "read", 2_000, 9_000) + up // 7
    written = hours * spread(drive.unit, "written", 500, 3_000) + up // 31
    log = {
        "critical_warning": 0,
        "temperature": drive.temperature_c,
        "available_spare": 100,
        "available_spare_threshold": 10,
        "percentage_used": drive.percentage_used,
        "data_units_read": read,
        "data_units_written": written,
        "host_reads": read * 9,
        "host_writes": written * 11,
        "controller_busy_time": hours // 9,
        "power_cycles": spread(drive.unit, "cycles", 20, 60),
        "power_on_hours": hours,
        "unsafe_shutdowns": spread(drive.unit, "unsafe", 2, 14),
        "media_errors": 0,
        "num_err_log_entries": 0,
        "warning_temp_time": 0,
        "critical_comp_time": 0,
        "temperature_sensors": [drive.temperature_c, drive.temperature_c + 7],
    }
    return {
        "json_format_version": [1, 0],
        "smartctl": _head(drive.device, 0),
        "device": {"name": drive.device, "info_name": drive.device, "type": "nvme", "protocol": "NVMe"},
        "model_name": drive.model,
        "serial_number": drive.serial,
        "firmware_version": drive.firmware,
        "nvme_pci_vendor": {"id": 5197, "subsystem_id": 5197},
        "nvme_ieee_oui_identifier": 9528,
        "nvme_total_capacity": _BYTES,
        "nvme_unallocated_capacity": 0,
        "nvme_controller_id": 6,
        "nvme_version": {"string": "1.4", "value": 66560},
        "nvme_number_of_namespaces": 32,
        "local_time": {"time_t": int(now.timestamp()), "asctime": f"{now:%a %b %e %H:%M:%S %Y} UTC"},
        "smart_status": {"passed": True, "nvme": {"value": 0}},
        "nvme_smart_health_information_log": log,
        "temperature": {"current": drive.temperature_c},
        "power_cycle_count": log["power_cycles"],
        "power_on_time": {"hours": hours},
    }
