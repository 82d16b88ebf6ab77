"""What one unit has answered so far, and what that amounts to once it is over."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from fabric_health.evidence import Command, CommandResult, CommandStatus, ReachStatus, UnitEvidence
from fabric_health.reach.request import UnitRequest

_UNFINISHED = (CommandStatus.TIMEOUT, CommandStatus.TRUNCATED, CommandStatus.NOT_RUN)
# What becomes of a command that was running when the unit's answer ended.
_INTERRUPTED: Mapping[ReachStatus, CommandStatus] = {ReachStatus.HUNG: CommandStatus.TIMEOUT}


class UnitFaultError(Exception):
    """A unit did not answer as asked: how, and in plain words what was seen."""

    def __init__(self, status: ReachStatus, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail


def utc_now() -> datetime:
    """Return the current time, UTC."""
    return datetime.now(UTC)


@dataclass
class Transcript:
    """Results of one unit in the order of its commands, filled while it answers, in the order in which they end.

    ``notes`` are remarks on single commands that belong into the detail of the evidence.
    """

    request: UnitRequest
    started_at: datetime = field(default_factory=utc_now)
    notes: list[str] = field(default_factory=list)
    suspect: bool = False
    _results: dict[int, CommandResult] = field(default_factory=dict)
    _running: dict[int, datetime] = field(default_factory=dict)
    _partial: tuple[str, str] = ("", "")

    @property
    def results(self) -> list[CommandResult]:
        """Return what has ended so far, in the order of the commands."""
        return [self._results[i] for i in sorted(self._results)]

    @property
    def running(self) -> frozenset[int]:
        """Return the places, in the order of the commands, of those that have begun and not ended."""
        return frozenset(self._running)

    @property
    def complete(self) -> bool:
        """True once every command has a result."""
        return len(self._results) == len(self.request.commands)

    @property
    def progress(self) -> str:
        """``3 of 12 commands had ended``, for details."""
        return f"{len(self._results)} of {len(self.request.commands)} commands had ended"

    def start_next(self) -> None:
        """Note that the next command began now: as many as there is room for, none when all have begun."""
        now, begun = utc_now(), len(self._results) + len(self._running)
        room = self.request.side_by_side - len(self._running)
        for index in range(begun, min(begun + room, len(self.request.commands))):
            self._running[index] = now
        self._partial = ("", "")

    def so_far(self, stdout: str, stderr: str) -> None:
        """Keep what the running command has said, for the case that it is cut short."""
        self._partial = (stdout, stderr)

    def finish(
        self,
        status: CommandStatus,
        exit_code: int | None,
        stdout: str,
        stderr: str,
        offsets: tuple[object, object] | None = None,
        index: int | None = None,
    ) -> CommandResult:
        """Record the result of the running command at ``index``; default the first of those that have not ended.

        ``offsets`` are the seconds at which a remote clock saw it begin and end, counted from the start of the
        answer; what is not a time between our own start and now is not believed.
        """
        if index is None:
            index = min(self._running, default=len(self._results))
        command = self.request.commands[index]
        ended = utc_now()
        started = min(self._running.pop(index, ended), ended)
        if offsets is not None:
            begin, end = (self._at(o) for o in offsets)
            if begin is not None and end is not None and begin <= end <= ended:
                started, ended = begin, end
        result = CommandResult(command.name, command.argv, status, exit_code, stdout, stderr, started, ended)
        self._results[index] = result
        self._partial = ("", "")
        return result

    def _at(self, offset: object) -> datetime | None:
        if isinstance(offset, bool) or not isinstance(offset, int | float):
            return None
        if not math.isfinite(offset) or not 0 <= offset <= 86_400:
            return None
        return self.started_at + timedelta(seconds=float(offset))

    def evidence(self, status: ReachStatus, detail: str = "") -> UnitEvidence:
        """Close the transcript: commands without a result are listed as not run, those interrupted as such."""
        for index in sorted(self._running):
            self.finish(_INTERRUPTED.get(status, CommandStatus.TRUNCATED), None, *self._partial, index=index)
        ended = utc_now()
        results = tuple(self._results.get(i) or _not_run(c, ended) for i, c in enumerate(self.request.commands))
        if status is ReachStatus.OK:
            status, detail = self._verdict(results, detail)
        unit = self.request.unit
        told = "; ".join(p for p in (detail, *self.notes) if p)
        return UnitEvidence(
            unit.name, unit.kind, self.request.check, status, told, self.started_at, ended, tuple(results)
        )

    def _verdict(self, results: tuple[CommandResult, ...], detail: str) -> tuple[ReachStatus, str]:
        if results and all(r.ran and r.exit_code in (0, None) and not r.stdout and not r.stderr for r in results):
            return ReachStatus.EMPTY, detail or f"all {len(results)} commands succeeded and answered nothing"
        unfinished = [f"{r.name} ({r.status.value})" for r in results if r.status in _UNFINISHED]
        if unfinished:
            shown = ", ".join(unfinished[:8]) + (f" and {len(unfinished) - 8} more" if len(unfinished) > 8 else "")
            return ReachStatus.PARTIAL, detail or f"{len(unfinished)} of {len(results)} commands did not end: {shown}"
        return (ReachStatus.PARTIAL if self.suspect else ReachStatus.OK), detail


def _not_run(command: Command, now: datetime) -> CommandResult:
    return CommandResult(command.name, command.argv, CommandStatus.NOT_RUN, None, "", "", now, now)
