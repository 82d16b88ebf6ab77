"""What one unit has answered so far, and what that amounts to once it is over."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from fabric_health.evidence import Command, CommandResult, CommandStatus, ReachStatus, UnitEvidence
from fabric_health.reach.request import UnitRequest

_UNFINISHED = (CommandStatus.TIMEOUT, CommandStatus.TRUNCATED, CommandStatus.NOT_RUN)
# What becomes of the command that was running when the unit's answer ended.
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
    """Results of one unit in the order of its commands, filled while it answers.

    ``notes`` are remarks on single commands that belong into the detail of the evidence.
    """

    request: UnitRequest
    started_at: datetime = field(default_factory=utc_now)
    results: list[CommandResult] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    suspect: bool = False
    _begun_at: datetime | None = None
    _partial: tuple[str, str] = ("", "")

    @property
    def complete(self) -> bool:
        """True once every command has a result."""
        return len(self.results) == len(self.request.commands)

    @property
    def progress(self) -> str:
        """``3 of 12 commands had ended``, for details."""
        return f"{len(self.results)} of {len(self.request.commands)} commands had ended"

    def start_next(self) -> None:
        """Note that the next command began now (nothing when all have ended)."""
        self._begun_at = None if self.complete else utc_now()
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
    ) -> CommandResult:
        """Record the result of the next command.

        ``offsets`` are the seconds at which a remote clock saw it begin and end, counted from the start of the
        answer; what is not a time between our own start and now is not believed.
        """
        command = self.request.commands[len(self.results)]
        ended = utc_now()
        started = min(self._begun_at or ended, ended)
        if offsets is not None:
            begin, end = (self._at(o) for o in offsets)
            if begin is not None and end is not None and begin <= end <= ended:
                started, ended = begin, end
        result = CommandResult(command.name, command.argv, status, exit_code, stdout, stderr, started, ended)
        self.results.append(result)
        self._begun_at, self._partial = None, ("", "")
        return result

    def _at(self, offset: object) -> datetime | None:
        if isinstance(offset, bool) or not isinstance(offset, int | float):
            return None
        if not math.isfinite(offset) or not 0 <= offset <= 86_400:
            return None
        return self.started_at + timedelta(seconds=float(offset))

    def evidence(self, status: ReachStatus, detail: str = "") -> UnitEvidence:
        """Close the transcript: commands without a result are listed as not run, the interrupted one as such."""
        if not self.complete and self._begun_at is not None:
            self.finish(_INTERRUPTED.get(status, CommandStatus.TRUNCATED), None, *self._partial)
        ended = utc_now()
        unasked = tuple(_not_run(c, ended) for c in self.request.commands[len(self.results) :])
        results = (*self.results, *unasked)
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
