"""Kernel log rules: Xids by the catalogue, NVSwitch SXids by their own words, links that flap."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta

from fabric_health.checks.driver_firmware.rules.rule import AZURE_NHC, FABRIC_MANAGER, deviation
from fabric_health.checks.driver_firmware.tables import KernelEvent
from fabric_health.checks.driver_firmware.view import NodeView, Part, PartKind
from fabric_health.checks.driver_firmware.xids import Xid, catalogue, fatality, judge_message
from fabric_health.datasets.tables import Finding, Severity

_RANK = {Severity.INFO: 0, Severity.WARNING: 1, Severity.CRITICAL: 2}
_DAY_S = 86_400.0


def event_findings(view: NodeView) -> Iterator[Finding]:
    """Judge the kernel log of a node: one finding per unit and number, however often it was logged."""
    # No lines are good news only where there was a log to read.
    view.text(view.part, "kernel_log_source")
    grouped: dict[tuple[str, int], list[KernelEvent]] = {}
    for event in view.events:
        if event.kind in ("xid", "sxid") and event.code is not None:
            grouped.setdefault((event.kind, event.code), []).append(event)
        elif event.kind in ("xid", "sxid"):
            view.gap(_part(view, event), "", event.kind, "a line without a number")
    for (kind, code), events in sorted(grouped.items()):
        by_unit: dict[str, list[KernelEvent]] = {}
        for event in events:
            by_unit.setdefault(event.unit, []).append(event)
        for _, same in sorted(by_unit.items()):
            part = _part(view, same[0])
            yield _xid(part, code, same) if kind == "xid" else _sxid(part, code, same)
    yield from _flaps(view)


def _part(view: NodeView, event: KernelEvent) -> Part:
    kind: PartKind = "gpu" if event.unit_kind == "gpu" else "nic" if event.unit_kind == "nic" else "node"
    return Part(event.unit, kind) if event.unit != view.node.name else view.part


def _ordered(events: Sequence[KernelEvent]) -> list[KernelEvent]:
    return sorted(events, key=lambda e: (e.sequence, e.message))


def _xid(part: Part, code: int, events: Sequence[KernelEvent]) -> Finding:
    ordered = _ordered(events)
    entry = catalogue().get(code)
    if entry is None:
        return deviation(
            part,
            "xid",
            f"xid_{code}",
            Severity.WARNING,
            f"Xid {code} on {part.unit}, which is not in the catalogue{_times(ordered)}",
            expected="no Xid",
            actual=ordered[-1].message,
            action="Look the number up in NVIDIA's catalogue and add it to xids.yaml.",
            source="https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html",
            command="journal",
        )
    worst, shown = _worst(entry, ordered)
    return deviation(
        part,
        "xid",
        f"xid_{code}",
        worst.severity,
        f"Xid {code} on {part.unit}: {worst.name}{_times(ordered)}",
        expected="no Xid" if worst.severity is not Severity.INFO else None,
        actual=shown.message,
        action=worst.action,
        source=worst.source,
        command="journal",
    )


def _worst(entry: Xid, ordered: Sequence[KernelEvent]) -> tuple[Xid, KernelEvent]:
    """Return what counts of several messages: the last recovery action that was set, else the worst message."""
    if entry.by_text == "recovery":
        return judge_message(entry, ordered[-1].message), ordered[-1]
    judged = [(judge_message(entry, e.message), e) for e in ordered]
    return max(judged, key=lambda pair: _RANK[pair[0].severity])


def _times(ordered: Sequence[KernelEvent]) -> str:
    last = max((e.at for e in ordered if e.at is not None), default=None)
    times = f", {len(ordered)} times" if len(ordered) > 1 else ""
    return times + (f", last at {last:%Y-%m-%d %H:%M} UTC" if last else "")


def _sxid(part: Part, code: int, events: Sequence[KernelEvent]) -> Finding:
    ordered = _ordered(events)
    # Several lines make one event; only one of them says whether it is fatal.
    said = [fatality(e.message) for e in ordered]
    if True in said:
        severity, word = Severity.CRITICAL, "fatal"
        action = "Drain the node; reset all GPUs and NVSwitches together (stop fabric manager first), or reboot."
    elif False in said:
        severity, word, action = Severity.INFO, "non-fatal", "Nothing to do unless it repeats or jobs slow down."
    else:
        severity, word = Severity.WARNING, "of unknown severity"
        action = "Look the number up in the fabric manager guide."
    return deviation(
        part,
        "sxid",
        f"sxid_{code}",
        severity,
        f"NVSwitch error SXid {code} ({word}) on {part.unit}{_times(ordered)}",
        expected="no SXid" if severity is not Severity.INFO else None,
        actual=ordered[0].message,
        action=action,
        source=FABRIC_MANAGER,
        command="journal",
    )


def _flaps(view: NodeView) -> Iterator[Finding]:
    limit = view.thresholds.link_flaps_per_day
    lost: dict[str, list[KernelEvent]] = {}
    for event in view.events:
        if event.kind == "lost_carrier":
            lost.setdefault(event.unit, []).append(event)
    judged = {view.node.nic_unit(n.name) for n in view.node.sku.nics}
    for unit in sorted(judged | set(lost)):
        events = lost.get(unit, [])
        logged = most_in_a_day(events)
        undated = sum(e.at is None for e in events)
        part = Part(unit, "nic") if unit != view.node.name else view.part
        counted = _counted(view, unit)
        if logged < limit <= logged + undated:
            view.gap(part, "journal", "link flaps", f"{undated} lost-carrier lines without a time")
        if max(logged, counted) < limit:
            continue
        many, how = (logged, "within 24 h") if logged >= limit else (counted, "a day since the previous run")
        yield deviation(
            part,
            "link_flaps",
            "lost_carrier",
            Severity.WARNING,
            f"Link of {unit} lost carrier {many} times {how}",
            expected=f"fewer than {limit} within 24 h",
            actual=f"{many} {how}",
            action="Clean and reseat the cable and optics; swap the cable if it goes on; check the peer port.",
            source=f"{AZURE_NHC}/blob/main/customTests/azure_ib_link_flapping.nhc",
            command="journal" if logged >= limit else None,
        )


def most_in_a_day(events: Sequence[KernelEvent]) -> int:
    """Return the largest number of events that fall into any 24 hours."""
    times = sorted(e.at for e in events if e.at is not None)
    most = first = 0
    for last, at in enumerate(times):
        while at - times[first] >= timedelta(days=1):
            first += 1
        most = max(most, last - first + 1)
    return most


def _counted(view: NodeView, unit: str) -> int:
    """Return lost carriers a day by the device's own counter, two changes each; 0 when it is not known."""
    if view.elapsed_s is None:
        return 0
    changes = 0
    for link in view.links.get(unit, ()):
        before = view.earlier_links.get((link.nic, link.port))
        now, then = link.carrier_changes, before.carrier_changes if before else None
        if now is not None and then is not None and now >= then:
            changes = max(changes, now - then)
    return int(changes / 2 / max(1.0, view.elapsed_s / _DAY_S))
