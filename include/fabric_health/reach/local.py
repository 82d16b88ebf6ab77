"""Reach the machine we run on: the same probe as over SSH, in a subprocess."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable

from fabric_health.evidence import ReachStatus
from fabric_health.reach.answer import MAX_UNIT_BYTES, probe_deadline_s, probe_outcome
from fabric_health.reach.frames import FrameReader, new_nonce, script
from fabric_health.reach.transcript import Transcript, UnitFaultError

READ_BYTES = 1 << 16
STDERR_BYTES = 1 << 14
# The probe kills its command's process group when it is told to stop; only then is it killed itself.
STOP_GRACE_S = 2.0


async def ask_local(transcript: Transcript, remaining_s: float, moved: Callable[[], None]) -> None:
    """Run the probe here and fill ``transcript``. Raises UnitFaultError when its answer is not whole.

    ``remaining_s`` is what is left of the unit's time in seconds; ``moved`` is called whenever bytes arrive.
    """
    request = transcript.request
    profile = request.unit.reach
    # Unless the site names one: the interpreter that runs this is there, and is new enough.
    python = profile.python if "python" in profile.model_fields_set else sys.executable
    nonce = new_nonce()
    payload = script(request.commands, probe_deadline_s(remaining_s), nonce, at_once=request.side_by_side)
    try:
        # Without `site`: what is installed beside the interpreter is nothing to the probe, and takes time to look up.
        process = await asyncio.create_subprocess_exec(
            python, "-I", "-S", "-", stdin=PIPE, stdout=PIPE, stderr=PIPE, start_new_session=True
        )
    except OSError as error:
        raise UnitFaultError(ReachStatus.NO_INTERPRETER, f"{python}: {error.strerror or error}") from None
    reader = FrameReader(transcript, nonce)
    try:
        stderr = await _converse(process, payload, reader, moved)
        code = await process.wait()
    finally:
        await _stop(process)
    probe_outcome(reader, code, stderr, python)


async def _converse(process: Process, payload: bytes, reader: FrameReader, moved: Callable[[], None]) -> bytes:
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    errors = asyncio.ensure_future(_head(process.stderr))
    try:
        with contextlib.suppress(OSError):  # the interpreter may be gone before it has read everything
            process.stdin.write(payload)
            process.stdin.close()
        total = 0
        while data := await process.stdout.read(READ_BYTES):
            moved()
            total += len(data)
            if total > MAX_UNIT_BYTES:
                raise UnitFaultError(ReachStatus.FLOODED, f"more than {MAX_UNIT_BYTES} bytes came back")
            reader.feed(data)
        reader.close()
        return await errors
    finally:
        errors.cancel()


async def _head(stream: asyncio.StreamReader) -> bytes:
    kept = b""
    while data := await stream.read(READ_BYTES):
        kept += data[: max(0, STDERR_BYTES - len(kept))]
    return kept


async def _stop(process: Process) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.returncode is not None:
            return
        with contextlib.suppress(OSError):
            os.killpg(process.pid, number)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOP_GRACE_S):
                await process.wait()
