"""From what the SSH library raises to how the unit answered, in plain words."""

from __future__ import annotations

import asyncssh

from fabric_health.evidence import ReachStatus
from fabric_health.reach.frames import excerpt
from fabric_health.reach.transcript import UnitFaultError


def fault_of(error: Exception, known_hosts: str) -> UnitFaultError:
    """Return the fault that an exception of a connection stands for; the peer's words are quoted, bounded."""
    said = excerpt(getattr(error, "reason", None) or str(error) or type(error).__name__)
    match error:
        case asyncssh.HostKeyNotVerifiable():
            return UnitFaultError(
                ReachStatus.HOST_KEY_MISMATCH,
                f"its host key is not the one in {known_hosts} ({said}); find out why before you change that file",
            )
        case asyncssh.PermissionDenied():
            return UnitFaultError(ReachStatus.AUTH_FAILED, f"login was refused: {said}")
        case asyncssh.ConnectionLost() | ConnectionError() | BrokenPipeError():
            return UnitFaultError(ReachStatus.CLOSED_EARLY, f"the connection was closed: {said}")
        case asyncssh.ChannelOpenError():
            return UnitFaultError(ReachStatus.CLOSED_EARLY, f"no session was opened: {said}")
        case asyncssh.KeyExchangeFailed() | asyncssh.ProtocolNotSupported():
            return UnitFaultError(ReachStatus.MALFORMED, f"no SSH protocol or algorithm in common: {said}")
        case asyncssh.DisconnectError(code=asyncssh.DISC_BY_APPLICATION | asyncssh.DISC_TOO_MANY_CONNECTIONS):
            return UnitFaultError(ReachStatus.CLOSED_EARLY, f"the unit closed the connection: {said}")
        case asyncssh.DisconnectError() | asyncssh.Error() | ValueError():
            return UnitFaultError(ReachStatus.MALFORMED, f"does not speak SSH as expected: {said}")
        case OSError():
            return UnitFaultError(ReachStatus.CLOSED_EARLY, f"the connection broke: {said}")
        case _:
            return UnitFaultError(ReachStatus.MALFORMED, f"{type(error).__name__}: {said}")
