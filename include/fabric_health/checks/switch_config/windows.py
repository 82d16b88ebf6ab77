"""Counters between two runs: what each port counted since the last one, and the rules on it.

A counter that went back (cleared, or the switch restarted) makes the whole window unknown; so do zero packets for a
ratio, and a missing previous run. Unknown is never a finding and never a pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fabric_health.checks.check import Context, RowSet
from fabric_health.checks.switch_config.tables import PortWindow, SwitchPort
from fabric_health.datasets.tables import Finding, Severity, finding
from fabric_health.site import Thresholds

COUNTERS = (
    "rx_packets",
    "tx_packets",
    "rx_errors",
    "tx_errors",
    "rx_discards",
    "tx_discards",
    "rx_pause_frames",
    "tx_pause_frames",
    "carrier_transitions",
)
_DAY_S = 86_400.0


def port_windows(rows: RowSet, context: Context) -> list[PortWindow]:
    """Return a window for every port that an earlier run has seen."""
    before = {(p.switch, p.port): p for p in context.previous.of(SwitchPort)}
    out = []
    for port in rows.of(SwitchPort):
        old = before.get((port.switch, port.port))
        window = context.window(port.switch, SwitchPort, old.collected_at, port.collected_at) if old else None
        if old is None or window is None:
            continue
        deltas = _deltas(old, port)
        reset = any(d < 0 for d in deltas.values())
        out.append(PortWindow(port.switch, port.port, window[0], window[1], reset, **({} if reset else deltas)))
    return out


def _deltas(old: SwitchPort, new: SwitchPort) -> dict[str, int]:
    pairs = ((name, getattr(old, name), getattr(new, name)) for name in COUNTERS)
    return {name: now - then for name, then, now in pairs if then is not None and now is not None}


def window_findings(
    window: PortWindow, last: PortWindow | None, limits: Thresholds, commands: Sequence[str]
) -> Iterator[Finding]:
    """Judge one port's window. ``last`` is the window before it, None when there is none.

    ``commands`` are those that counters are read from: packets and errors first, pause frames last.
    """
    for side, verb in (("rx", "received"), ("tx", "sent")):
        yield from _errors(window, side, verb, limits, commands[0])
        yield from _pause(window, last, side, verb, limits, commands[-1])
    yield from _flaps(window, limits, commands[0])


def _errors(window: PortWindow, side: str, verb: str, limits: Thresholds, command: str) -> Iterator[Finding]:
    errors, packets = getattr(window, f"{side}_errors"), getattr(window, f"{side}_packets")
    if not packets or errors is None or errors / packets <= limits.error_packet_ratio:
        return
    unit = f"{window.switch}/{window.port}"
    yield finding(
        check="switch_config",
        rule="port_error_ratio",
        unit=unit,
        unit_kind="port",
        metric=f"{side}_errors",
        severity=Severity.WARNING,
        summary=f"{unit} counted {errors:,} errors in {packets:,} packets {verb} since the last run.",
        expected=f"<= {limits.error_packet_ratio:.1e} errors per packet",
        actual=f"{errors / packets:.1e} errors per packet",
        action="Clean or reseat the cable and transceiver on both ends, then compare the optical power of its lanes.",
        source="site file: thresholds.error_packet_ratio",
        command=command,
    )


def _pause(
    window: PortWindow, last: PortWindow | None, side: str, verb: str, limits: Thresholds, command: str
) -> Iterator[Finding]:
    name = f"{side}_pause_frames"
    frames = getattr(window, name)
    before = getattr(last, name) if last is not None and not last.reset else None
    if last is None or before is None or frames is None or frames < limits.pause_surge_min_frames:
        return
    rate, rate_before = frames / window.window_s, before / last.window_s if last.window_s > 0 else 0.0
    if rate <= limits.pause_surge_factor * rate_before:
        return
    unit = f"{window.switch}/{window.port}"
    times = f"{rate / rate_before:.1f} times the rate of" if rate_before else "none in"
    yield finding(
        check="switch_config",
        rule="port_pause_surge",
        unit=unit,
        unit_kind="port",
        metric=name,
        severity=Severity.WARNING,
        summary=f"{unit} {verb} {frames:,} PFC frames since the last run, {times} the window before.",
        expected=f"<= {limits.pause_surge_factor:g} x {rate_before:.3g} frames/s",
        actual=f"{rate:.3g} frames/s",
        action="Look for a slow receiver or congestion behind the port: pauses spread from the end that sends them.",
        source="site file: thresholds.pause_surge_factor, thresholds.pause_surge_min_frames",
        command=command,
    )


def _flaps(window: PortWindow, limits: Thresholds, command: str) -> Iterator[Finding]:
    changes = window.carrier_transitions
    # A window shorter than a day is not scaled up: two changes within a minute are no five in a day.
    per_day = None if changes is None else changes / max(window.window_s / _DAY_S, 1.0)
    if per_day is None or per_day < limits.link_flaps_per_day:
        return
    unit = f"{window.switch}/{window.port}"
    yield finding(
        check="switch_config",
        rule="port_flaps",
        unit=unit,
        unit_kind="port",
        metric="carrier_transitions",
        severity=Severity.WARNING,
        summary=f"The link of {unit} changed state {changes:,} times since the last run.",
        expected=f"< {limits.link_flaps_per_day} changes a day",
        actual=f"{per_day:.1f} changes a day",
        action="Reseat or replace the cable or transceiver; look at the NIC's log for the same times.",
        source="site file: thresholds.link_flaps_per_day",
        command=command,
    )
