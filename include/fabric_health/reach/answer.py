"""What a probe's answer amounts to once the connection or the process has ended."""

from __future__ import annotations

from fabric_health.evidence import MIB, ReachStatus
from fabric_health.reach.frames import FrameReader, excerpt
from fabric_health.reach.transcript import UnitFaultError

# A unit that says more than this is not answering, it is flooding. An 8-GPU node's whole answer is below 4 MiB.
MAX_UNIT_BYTES = 64 * MIB
# Shells answer 126/127 when the interpreter cannot be run; an interpreter that is too old says these words.
_NO_PROGRAM = (126, 127)
_TOO_OLD = ("SyntaxError", "Unknown option: -I", "Python 3.6 or newer")


def probe_deadline_s(remaining_s: float) -> float:
    """Return the probe's own deadline: a little before ours, so that a stuck command ends in an answer, not a hang."""
    return max(0.5 * remaining_s, remaining_s - 3.0)


def probe_outcome(reader: FrameReader, exit_code: int | None, stderr: bytes, python: str) -> None:
    """Return silently for a whole answer; raise UnitFaultError that says what is wrong with any other."""
    if reader.problem:
        raise UnitFaultError(ReachStatus.MALFORMED, reader.problem)
    if reader.ended:
        return
    said = excerpt(stderr)
    if reader.begun:
        raise UnitFaultError(ReachStatus.CLOSED_EARLY, "the answer ended in the middle" + (f": {said}" if said else ""))
    if exit_code in _NO_PROGRAM or any(w in said for w in _TOO_OLD):
        raise UnitFaultError(
            ReachStatus.NO_INTERPRETER, f"{python} cannot run the probe: {said or f'exit {exit_code}'}"
        )
    if reader.excerpt.strip():
        raise UnitFaultError(ReachStatus.MALFORMED, f"not a probe's answer: {excerpt(reader.excerpt)}")
    if said or exit_code:
        raise UnitFaultError(ReachStatus.MALFORMED, f"no answer, exit {exit_code}: {said or 'no message'}")
    raise UnitFaultError(ReachStatus.EMPTY, "the unit accepted the probe and answered nothing")
