"""A lab switch at one moment, as the platforms' show commands read it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from fabric_health.lab.state import LabState
from fabric_health.lab.switches.device import Counters, Device, Port, counters, uptime


@dataclass(frozen=True)
class View:
    """``config`` renders the running configuration when it is asked for."""

    device: Device
    state: LabState
    now: datetime
    config: Callable[[], str]

    def counters(self, port: Port) -> Counters:
        """Return the counters of ``port`` at this moment."""
        return counters(port, self.state, self.now)

    @property
    def uptime(self) -> timedelta:
        """For how long the switch has been up."""
        return uptime(self.state, self.now)


def clock(span: timedelta) -> str:
    """Return ``H:MM:SS`` within the last day of ``span``."""
    hours, rest = divmod(span.seconds, 3600)
    return f"{hours}:{rest // 60:02d}:{rest % 60:02d}"
