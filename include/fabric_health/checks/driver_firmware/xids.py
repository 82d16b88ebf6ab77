"""The Xid catalogue: what each number of the NVIDIA driver's kernel messages means, read from ``data/xids.yaml``."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from typing import Any

import yaml

from fabric_health.datasets.tables import Severity

CLASSES = ("hardware", "application", "driver", "info")


@dataclass(frozen=True)
class Xid:
    """One catalogue entry. ``by_text`` is ``fatal`` or ``recovery`` where the message, not the number, decides."""

    number: int
    name: str
    cause: str
    severity: Severity
    action: str
    source: str
    by_text: str | None = None


# Recovery actions of Xid 154, by the hex number that the line gives: the words differ between driver branches.
# https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceEnumvs.html (nvmlDeviceGpuRecoveryAction_t)
_RECOVERY: dict[int, tuple[Severity, str, str]] = {
    0: (Severity.INFO, "recovery action: none", "Nothing to do."),
    1: (Severity.CRITICAL, "recovery action: reset the GPU", "Drain the node and reset the GPU."),
    2: (Severity.CRITICAL, "recovery action: reboot the node", "Drain and reboot the node."),
    3: (
        Severity.WARNING,
        "recovery action: drain peer-to-peer traffic",
        "Stop jobs that use peer-to-peer on this GPU.",
    ),
    4: (Severity.CRITICAL, "recovery action: drain and reset", "Drain the node, then reset the GPU."),
}
_TO_HEX = re.compile(r"\bto 0x([0-9a-fA-F]{1,8})\b")
_NONFATAL = re.compile(r"\bnon-?\s?fatal\b", re.I)
_FATAL = re.compile(r"\bfatal\b", re.I)


@cache
def catalogue() -> dict[int, Xid]:
    """Return the catalogue by number. Raises ValueError when the shipped file is malformed."""
    text = resources.files(__package__).joinpath("data", "xids.yaml").read_text(encoding="utf-8")
    return read(yaml.safe_load(text))


def read(raw: Any) -> dict[int, Xid]:
    """Build the catalogue from its YAML form. Raises ValueError naming the entry at fault."""
    out: dict[int, Xid] = {}
    for entry in raw["xids"]:
        first, last = entry["number"] if isinstance(entry["number"], list) else (entry["number"], entry["number"])
        if entry["class"] not in CLASSES or entry["action"] not in raw["actions"]:
            raise ValueError(f"Xid {first}: unknown class or action")
        for number in range(first, last + 1):
            if number in out:
                raise ValueError(f"Xid {number} is listed twice")
            out[number] = Xid(
                number=number,
                name=entry["name"],
                cause=entry["class"],
                severity=Severity(entry["severity"]),
                action=raw["actions"][entry["action"]],
                source=entry.get("source", raw["source"]),
                by_text=entry.get("by_text"),
            )
    return out


def judge_message(xid: Xid, message: str) -> Xid:
    """Return the entry with severity and action as this message has them; the entry itself where the number decides.

    A message that does not say what it should keeps the entry's (worse) severity.
    """
    if xid.by_text == "recovery":
        found = _TO_HEX.search(message)
        known = _RECOVERY.get(int(found[1], 16)) if found else None
        if known:
            return replace(xid, severity=known[0], name=known[1], action=known[2])
        return replace(xid, name=f"{xid.name} to one this catalogue does not know")
    if xid.by_text == "fatal" and fatality(message) is False:
        return replace(xid, severity=Severity.INFO, name=f"{xid.name} (non-fatal)", action="Nothing to do.")
    return xid


def fatality(message: str) -> bool | None:
    """Return whether the message calls itself fatal or non-fatal; None when it says neither."""
    if _NONFATAL.search(message):
        return False
    return True if _FATAL.search(message) else None
