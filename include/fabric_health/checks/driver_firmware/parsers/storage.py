"""NVMe drives: ``smartctl -j -a``, whose exit status is a bit mask beside a complete JSON document."""

from __future__ import annotations

from typing import Any

from fabric_health.checks.driver_firmware.parsers import cells
from fabric_health.checks.driver_firmware.parsers.cells import Cell
from fabric_health.checks.driver_firmware.parsers.text import json_value

# smartctl(8): bit 0 command line, bit 1 device did not open. From bit 2 up there is something to read.
NO_DATA_BITS = 0b11
_TEXTS = {
    "drive_model": ("model_name",),
    "serial": ("serial_number",),
    "firmware_version": ("firmware_version",),
}
_HEALTH = "nvme_smart_health_information_log"
_COUNTS = {
    "critical_warning": (_HEALTH, "critical_warning"),
    "percentage_used": (_HEALTH, "percentage_used"),
    "media_errors": (_HEALTH, "media_errors"),
    "temperature_c": (_HEALTH, "temperature"),
    "available_spare": (_HEALTH, "available_spare"),
    "available_spare_threshold": (_HEALTH, "available_spare_threshold"),
}
DRIVE_ATTRIBUTES: tuple[str, ...] = (*_TEXTS, "smart_passed", *_COUNTS)


def parse_smartctl(text: str, exit_code: int | None) -> dict[str, Cell]:
    """Return a cell for every attribute in ``DRIVE_ATTRIBUTES``."""
    try:
        document = json_value(text)
    except ValueError as problem:
        return all_cells(cells.error(f"not JSON: {problem}"))
    if not isinstance(document, dict):
        return all_cells(cells.error("JSON is not an object"))
    bits = _at(document, "smartctl", "exit_status")
    mask = (bits if isinstance(bits, int) else 0) | (exit_code or 0)
    if mask & NO_DATA_BITS:
        return all_cells(cells.error(f"exit code {mask}: {_messages(document) or 'no data'}"))
    out = {a: _text(document, path) for a, path in _TEXTS.items()}
    out["smart_passed"] = cells.yes_no(_at(document, "smart_status", "passed"))
    out.update({a: _count(document, path) for a, path in _COUNTS.items()})
    return out


def all_cells(cell: Cell) -> dict[str, Cell]:
    """Return ``cell`` for every attribute of a drive."""
    return dict.fromkeys(DRIVE_ATTRIBUTES, cell)


def _at(document: Any, *path: str) -> Any:
    for key in path:
        document = document.get(key) if isinstance(document, dict) else None
    return document


def _messages(document: Any) -> str:
    messages = _at(document, "smartctl", "messages")
    texts = [m.get("string") for m in messages if isinstance(m, dict)] if isinstance(messages, list) else []
    return "; ".join(t for t in texts if isinstance(t, str))


def _text(document: Any, path: tuple[str, ...]) -> Cell:
    found = _at(document, *path)
    if found is None:
        return cells.error(f"no {'.'.join(path)}")
    return cells.phrase(found if isinstance(found, str) else None, path[-1])


def _count(document: Any, path: tuple[str, ...]) -> Cell:
    found = _at(document, *path)
    if isinstance(found, bool) or not isinstance(found, int) or not 0 <= found < 1 << 63:
        return cells.error(f"no {'.'.join(path)}" if found is None else f"{'.'.join(path)} is not a count")
    return cells.value(str(found))
