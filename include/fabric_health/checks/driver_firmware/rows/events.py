"""Kernel events of one node, each on the unit it is about."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from fabric_health.checks.driver_firmware.parsers import cells, kernel_log
from fabric_health.checks.driver_firmware.parsers.cells import Cell
from fabric_health.checks.driver_firmware.parsers.kernel_log import Log, LogEvent
from fabric_health.checks.driver_firmware.parsers.text import one_line
from fabric_health.checks.driver_firmware.rows.fact import fact
from fabric_health.checks.driver_firmware.rows.gpu import Gpus
from fabric_health.checks.driver_firmware.tables import KernelEvent
from fabric_health.datasets.contracts import Row
from fabric_health.evidence import CommandResult, CommandStatus, UnitEvidence
from fabric_health.site import Node, Site

# An Xid storm writes thousands of equal lines; the newest are kept, per unit, kind and code.
MAX_EQUAL_EVENTS = 200
# The driver and systemd-networkd both log one loss of carrier, moments apart.
SAME_LOSS = timedelta(seconds=5)


def event_rows(node: Node, evidence: UnitEvidence, site: Site, gpus: Gpus, nics: Mapping[str, str]) -> list[Row]:
    """Return the events of the site's time window, and the fact that says which log they were read from.

    ``nics`` gives the unit id of a NIC by network device and by PCI address. A lost carrier of any other network device
    (management, containers) is not an event.
    """
    log, source, command = _log(evidence)
    since = evidence.started_at - timedelta(hours=site.thresholds.kernel_log_window_h)
    placed: list[tuple[str, str, LogEvent]] = []
    for event in log.events:
        if event.at is not None and event.at < since:
            continue
        where = _unit(node, event, gpus, nics)
        if where is not None:
            placed.append((*where, event))
    # Sorting is stable: lines without a time keep the order of the log, before all others.
    placed.sort(key=lambda p: (p[0], p[2].kind, p[2].at.timestamp() if p[2].at else float("-inf")))
    rows: list[Row] = [fact(node.name, "node", "kernel_log_source", source, command)]
    rows.extend(_numbered(_newest(_without_echoes(placed))))
    return rows


def _log(evidence: UnitEvidence) -> tuple[Log, Cell, str]:
    """Return the journal where it can be read, else dmesg, which knows this boot only."""
    journal, dmesg = evidence.result("journal"), evidence.result("dmesg")
    truncated = journal is not None and journal.status is CommandStatus.TRUNCATED
    problem = cells.failure(journal)
    if journal is not None and (problem is None or truncated):
        log = kernel_log.parse_journal(journal.stdout)
        log = Log(log.events[::-1], log.entries, log.unreadable)
        if truncated and log.entries:
            return log, cells.error("output truncated at its size limit: the oldest lines are missing"), "journal"
        if log.entries:
            return log, _readable(log, "journal", tolerated=0), "journal"
        problem = problem or cells.error(_no_entries(journal))
    if dmesg is not None and cells.failure(dmesg) is None:
        log = kernel_log.parse_dmesg(dmesg.stdout)
        if log.entries:
            # Messages of several lines have their time on the first line only.
            return log, _readable(log, "dmesg", tolerated=log.entries // 10), "dmesg"
    return Log((), 0, 0), problem or cells.error("not run"), "journal"


def _readable(log: Log, name: str, tolerated: int) -> Cell:
    if log.unreadable > tolerated:
        total = log.entries + log.unreadable
        return cells.error(f"{log.unreadable} of {total} lines are not log entries")
    return cells.value(name)


def _no_entries(journal: CommandResult) -> str:
    said = one_line(journal.stderr) or one_line(journal.stdout)
    return f"no kernel message is shown: {said or 'empty'}"


def _unit(node: Node, event: LogEvent, gpus: Gpus, nics: Mapping[str, str]) -> tuple[str, str] | None:
    if event.kind == "lost_carrier":
        nic = nics.get(event.netdev or "") or nics.get(event.pci or "")
        return (nic, "nic") if nic else None
    gpu = gpus.unit(node, event.pci) if event.kind == "xid" else None
    return (gpu, "gpu") if gpu else (node.name, "node")


def _without_echoes(placed: Iterable[tuple[str, str, LogEvent]]) -> list[tuple[str, str, LogEvent]]:
    """Drop the second report of one loss of carrier: same NIC, another writer, moments later."""
    out: list[tuple[str, str, LogEvent]] = []
    for unit, kind, event in placed:
        last = out[-1] if out else None
        if last and event.kind == "lost_carrier" and last[0] == unit and last[2].kind == event.kind:
            echo = last[2].writer != event.writer and _close(last[2].at, event.at)
            if echo:
                continue
        out.append((unit, kind, event))
    return out


def _close(earlier: datetime | None, later: datetime | None) -> bool:
    return earlier is not None and later is not None and later - earlier <= SAME_LOSS


def _newest(placed: list[tuple[str, str, LogEvent]]) -> list[tuple[str, str, LogEvent]]:
    left = Counter[tuple[str, str, int | None]]()
    out = []
    for unit, kind, event in reversed(placed):
        left[unit, event.kind, event.code] += 1
        if left[unit, event.kind, event.code] <= MAX_EQUAL_EVENTS:
            out.append((unit, kind, event))
    return out[::-1]


def _numbered(placed: Iterable[tuple[str, str, LogEvent]]) -> list[KernelEvent]:
    number = Counter[tuple[str, str]]()
    out = []
    for unit, unit_kind, event in placed:
        sequence = number[unit, event.kind]
        number[unit, event.kind] += 1
        out.append(KernelEvent(unit, unit_kind, event.kind, sequence, event.message, event.code, event.at))
    return out
