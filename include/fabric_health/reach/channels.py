"""Ask a unit over an SSH connection: nodes through the probe in one channel, switches a channel for each command."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

import asyncssh

from fabric_health.evidence import Command, CommandStatus, ReachStatus
from fabric_health.reach.answer import MAX_UNIT_BYTES, probe_deadline_s, probe_outcome
from fabric_health.reach.frames import FrameReader, decoded, new_nonce, script
from fabric_health.reach.transcript import Transcript, UnitFaultError

READ_BYTES = 1 << 16
STDERR_BYTES = 1 << 14
# An answer may end without the channel being closed; what is missing then is only the exit status.
STATUS_GRACE_S = 2.0


class _Session(asyncssh.SSHClientProcess[bytes]):
    """An exec channel that remembers whether the peer ended its output or the output just stopped."""

    said_eof = False
    lost = False

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        super().connection_lost(exc)

    def eof_received(self) -> bool:
        self.said_eof = self.said_eof or not self.lost
        return super().eof_received()


async def _session(connection: asyncssh.SSHClientConnection, command: str) -> _Session:
    _channel, session = await connection.create_session(_Session, command, encoding=None)
    return cast(_Session, session)


async def ask_node(
    connection: asyncssh.SSHClientConnection, transcript: Transcript, until: float, moved: Callable[[], None]
) -> None:
    """Send the probe: one exec, one round trip."""
    python = transcript.request.unit.reach.python
    nonce = new_nonce()
    session = await _session(connection, f"{shlex.quote(python)} -I -")
    remaining_s = until - asyncio.get_running_loop().time()
    reader = FrameReader(transcript, nonce)
    errors = asyncio.ensure_future(_head(session))
    try:
        with contextlib.suppress(OSError):  # the interpreter may be gone already; its message says why
            request, deadline_s = transcript.request, probe_deadline_s(remaining_s)
            session.stdin.write(script(request.commands, deadline_s, nonce, at_once=request.side_by_side))
            session.stdin.write_eof()
        total = 0
        while data := await session.stdout.read(READ_BYTES):
            moved()
            total += len(data)
            if total > MAX_UNIT_BYTES:
                raise UnitFaultError(ReachStatus.FLOODED, f"more than {MAX_UNIT_BYTES} bytes came back")
            reader.feed(data)
        reader.close()
        stderr = await errors
    finally:
        errors.cancel()
    whole = reader.ended or await _ended(session, connection)
    if not whole and not reader.begun:
        raise UnitFaultError(ReachStatus.CLOSED_EARLY, "the connection was closed before any answer")
    probe_outcome(reader, session.exit_status, stderr, python)


async def _head(session: _Session) -> bytes:
    kept = b""
    while data := await session.stderr.read(READ_BYTES):
        kept += data[: max(0, STDERR_BYTES - len(kept))]
    return kept


async def _ended(session: _Session, connection: asyncssh.SSHClientConnection) -> bool:
    """Return whether the peer ended the command itself; False when the connection went away under it."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(STATUS_GRACE_S):
            await session.wait_closed()
    await asyncio.sleep(0)
    known = session.exit_status is not None or session.exit_signal is not None
    return known or session.said_eof or not connection.is_closed()


async def ask_switch(
    connection: asyncssh.SSHClientConnection, transcript: Transcript, moved: Callable[[], None]
) -> None:
    """Run the commands one after the other, an exec channel each."""
    budget = MAX_UNIT_BYTES
    for command in transcript.request.commands:
        transcript.start_next()
        line = " ".join(command.argv)
        if not line.isprintable():
            transcript.notes.append(f"{command.name}: not sent, it holds control characters")
            transcript.finish(CommandStatus.NOT_RUN, None, "", "")
            continue
        outcome = await _exec(connection, command, line, transcript, moved)
        if outcome.empty:
            # Slow devices answer "success" and nothing: ask once more before believing it.
            outcome = await _exec(connection, command, line, transcript, moved)
            if outcome.empty:
                transcript.notes.append(f"{command.name}: succeeded twice with an empty answer")
                transcript.suspect = transcript.suspect or not command.optional
        result = transcript.finish(outcome.status, outcome.exit_code, outcome.stdout, outcome.stderr)
        budget -= len(result.stdout) + len(result.stderr)
        if outcome.flooded or budget < 0:
            limit = command.max_bytes if outcome.flooded else MAX_UNIT_BYTES
            raise UnitFaultError(ReachStatus.FLOODED, f"{command.name}: more than {limit} bytes; reading was stopped")


@dataclass
class _Exec:
    """How one exec channel ended."""

    status: CommandStatus = CommandStatus.EXITED
    exit_code: int | None = None
    stdout: str = ""
    stderr: str = ""
    flooded: bool = False

    @property
    def empty(self) -> bool:
        return self.status is CommandStatus.EXITED and self.exit_code in (0, None) and not self.stdout.strip()


@dataclass
class _Buffers:
    """What a command has said, bounded."""

    limit: int
    stdout: bytearray = field(default_factory=bytearray)
    stderr: bytearray = field(default_factory=bytearray)

    @property
    def over(self) -> bool:
        return len(self.stdout) > self.limit or len(self.stderr) > self.limit

    def texts(self) -> tuple[str, str]:
        return decoded(bytes(self.stdout[: self.limit])), decoded(bytes(self.stderr[: self.limit]))


async def _exec(
    connection: asyncssh.SSHClientConnection,
    command: Command,
    line: str,
    transcript: Transcript,
    moved: Callable[[], None],
) -> _Exec:
    session: _Session | None = None
    buffers = _Buffers(command.max_bytes)
    try:
        async with asyncio.timeout(command.timeout_s):
            session = await _session(connection, line)
            session.stdin.write_eof()
            await _drain(session, buffers, moved)
            whole = buffers.over or await _ended(session, connection)
    except TimeoutError:
        stdout, stderr = buffers.texts()
        return _Exec(CommandStatus.TIMEOUT, None, stdout, stderr)
    finally:
        # Also when the unit's whole time is over: what was said so far is kept.
        transcript.so_far(*buffers.texts())
        if session is not None:
            session.close()
    stdout, stderr = buffers.texts()
    if buffers.over:
        return _Exec(CommandStatus.TRUNCATED, None, stdout, stderr, flooded=True)
    if not whole:
        raise UnitFaultError(ReachStatus.CLOSED_EARLY, f"the connection was closed during {command.name}")
    code = session.exit_status
    if session.exit_signal is not None:
        code = None
        stderr += f"\n(ended by signal {session.exit_signal[0]})\n"
    missing = code == 127 and "not found" in stderr
    return _Exec(CommandStatus.NOT_INSTALLED if missing else CommandStatus.EXITED, code, stdout, stderr)


async def _drain(session: _Session, buffers: _Buffers, moved: Callable[[], None]) -> None:
    """Read both streams to their end, or until one is over its bound."""

    async def fill(stream: asyncssh.SSHReader[bytes], buffer: bytearray) -> None:
        while not buffers.over and (data := await stream.read(READ_BYTES)):
            moved()
            buffer += data

    both = ((session.stdout, buffers.stdout), (session.stderr, buffers.stderr))
    open_streams = {asyncio.create_task(fill(stream, buffer)) for stream, buffer in both}
    try:
        while open_streams and not buffers.over:
            done, open_streams = await asyncio.wait(open_streams, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
    finally:
        for task in open_streams:
            task.cancel()
        await asyncio.gather(*open_streams, return_exceptions=True)
