"""What a probe pod's log amounts to: the log is judged, never the pod's own "Succeeded"."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fabric_health.evidence import MIB, ReachStatus
from fabric_health.jobs.kubernetes.reasons import of_pod
from fabric_health.reach.answer import probe_outcome
from fabric_health.reach.frames import FrameReader, excerpt
from fabric_health.reach.transcript import Transcript, UnitFaultError

# Packed lines of the largest answer (64 MiB of what packs badly) are larger; a kubelet keeps 10 MiB unless told.
MAX_LOG_BYTES = 32 * MIB


@dataclass(frozen=True)
class PodAnswer:
    """A pod as last seen and its log, None where there is none; ``over`` is False when its time ran out before."""

    pod: Mapping[str, Any]
    log: bytes | None
    over: bool


def take(transcript: Transcript, nonce: str, answer: PodAnswer) -> None:
    """Read the log into ``transcript``. Raises UnitFaultError when it is not a whole answer.

    Commands whose results are in the log count, however it ended.
    """
    reader = FrameReader(transcript, nonce, packed=True)
    reader.feed(answer.log or b"")
    reader.close()
    if reader.ended and not reader.problem:
        return
    if len(answer.log or b"") >= MAX_LOG_BYTES:
        raise UnitFaultError(ReachStatus.FLOODED, f"its pod's log is larger than {MAX_LOG_BYTES} bytes")
    if not answer.over:
        limit_s = transcript.request.unit.reach.unit_timeout_s
        raise UnitFaultError(ReachStatus.HUNG, f"its pod did not end within {limit_s:g} s; it was deleted")
    raise _fault(reader, answer)


def _fault(reader: FrameReader, answer: PodAnswer) -> UnitFaultError:
    """Return what is wrong with the answer of a pod that is over."""
    status = answer.pod.get("status") or {}
    trouble = of_pod(answer.pod)
    said = trouble.text if trouble else "the pod ended well"
    if status.get("reason") == "DeadlineExceeded":
        return UnitFaultError(ReachStatus.HUNG, said)
    if trouble and trouble.infrastructure:
        return UnitFaultError(ReachStatus.CLOSED_EARLY, said)
    if answer.log is None:
        return UnitFaultError(ReachStatus.MALFORMED, f"{said}, but there is no log of it (lost or rotated away)")
    if reader.problem and not reader.begun:
        hint = "rotated away? see containerLogMaxSize of the kubelet"
        return UnitFaultError(ReachStatus.MALFORMED, f"the beginning of its pod's log is missing ({hint})")
    if reader.problem:
        return UnitFaultError(ReachStatus.MALFORMED, reader.problem)
    if reader.begun:
        return UnitFaultError(ReachStatus.CLOSED_EARLY, f"its pod's log stops in the middle of the answer; {said}")
    if trouble:
        heard = excerpt(reader.excerpt)
        return UnitFaultError(ReachStatus.MALFORMED, said + (f"; it said: {heard}" if heard else ""))
    try:
        probe_outcome(reader, 0, b"", "python3")
    except UnitFaultError as fault:
        return fault
    return UnitFaultError(ReachStatus.MALFORMED, "not a probe's answer")
