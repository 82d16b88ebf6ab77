"""A small InfiniBand fabric for the lab, simulated by ibsim and managed by opensm: the real tools run on it."""

from __future__ import annotations

from fabric_health.lab.infiniband.faults import KINDS, InfinibandFault
from fabric_health.lab.infiniband.simulator import InfinibandFabric, answer, directory, down, fault, heal, status, up
from fabric_health.lab.infiniband.tools import PACKAGES, READ_ONLY, run

__all__ = [
    "KINDS",
    "PACKAGES",
    "READ_ONLY",
    "InfinibandFabric",
    "InfinibandFault",
    "answer",
    "directory",
    "down",
    "fault",
    "heal",
    "run",
    "status",
    "up",
]
