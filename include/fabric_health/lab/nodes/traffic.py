"""Counters of a lab NIC: they grow with time since boot, stand still while the link is down, and count its losses."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from fabric_health.lab.nodes.hardware import Hardware, LabNic, moments, spread

FLAPS_WITHOUT_VALUE = 7


@dataclass(frozen=True)
class Counters:
    """Cumulative counters of one NIC since boot. ``losses`` are the times it lost its link."""

    rx_packets: int
    tx_packets: int
    rx_bytes: int
    tx_bytes: int
    losses: int
    carrier_changes: int


def counters(hardware: Hardware, nic: LabNic, now: datetime) -> Counters:
    """Return the counters of ``nic`` at ``now`` (UTC)."""
    down = down_at(nic)
    until = now if down is None else max(hardware.booted_at, min(now, down))
    seconds = hardware.seconds_up(until)
    rx, tx = (seconds * spread(nic.unit, way, 900, 2_400) for way in ("rx", "tx"))
    losses = len(carrier_losses(hardware, nic, now))
    return Counters(
        rx_packets=rx,
        tx_packets=tx,
        rx_bytes=rx * spread(nic.unit, "rx size", 900, 4_100),
        tx_bytes=tx * spread(nic.unit, "tx size", 900, 4_100),
        losses=losses,
        # One change when the link came up after boot; each loss is a change, and so is each return.
        carrier_changes=1 + 2 * losses - (0 if nic.link_up else 1),
    )


def down_at(nic: LabNic) -> datetime | None:
    """Return when the link went down and stayed down (UTC), None while it is up."""
    causes = [f.since for f in (nic.disabled, nic.remote_down) if f is not None]
    return min(causes, default=None)


def carrier_losses(hardware: Hardware, nic: LabNic, now: datetime) -> tuple[datetime, ...]:
    """Return every moment since boot at which the NIC lost its link (UTC), oldest first."""
    down = down_at(nic)
    flaps: tuple[datetime, ...] = ()
    if nic.flap is not None:
        value = nic.flap.value or ""
        count = min(int(value), 1_000) if value.isdecimal() else FLAPS_WITHOUT_VALUE
        flaps = moments(nic.flap, count, hardware.booted_at, now if down is None else min(now, down))
    return flaps if down is None else (*flaps, down)
