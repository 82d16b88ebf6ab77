"""Every check by name, in the order a run takes them."""

from __future__ import annotations

from fabric_health.checks.check import Check
from fabric_health.checks.driver_firmware import DRIVER_FIRMWARE
from fabric_health.checks.switch_config import SWITCH_CONFIG
from fabric_health.errors import UsageError

CHECKS: dict[str, Check] = {c.name: c for c in (DRIVER_FIRMWARE, SWITCH_CONFIG)}


def check(name: str) -> Check:
    """Return the check called ``name``. Raises UsageError that lists the known names."""
    try:
        return CHECKS[name]
    except KeyError:
        raise UsageError(f"no check is called {name!r}; known: {', '.join(CHECKS)}") from None
