"""Reach a unit over SSH: connect and log in to it, directly or through a jump host."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import asyncssh

from fabric_health.evidence import ReachStatus
from fabric_health.reach.channels import ask_node, ask_switch
from fabric_health.reach.faults import fault_of
from fabric_health.reach.settings import ProfileSettings, SshSettings
from fabric_health.reach.transcript import Transcript, UnitFaultError

READ_BYTES = 1 << 16
STDERR_BYTES = 1 << 14
CLOSE_GRACE_S = 1.0
# An answer may end without the channel being closed; what is missing then is only the exit status.
STATUS_GRACE_S = 2.0


@dataclass
class SshLink:
    """Everything the units of one profile share: settings, the jump host's connection, name look-ups."""

    settings: ProfileSettings
    lookups: ThreadPoolExecutor
    _jump: asyncssh.SSHClientConnection | None = None
    _jump_lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def ask(self, transcript: Transcript, until: float, moved: Callable[[], None]) -> None:
        """Ask one unit and fill ``transcript``. Raises UnitFaultError when it does not answer as asked.

        ``until`` is the unit's time limit on the event loop's clock; ``moved`` is called at every sign of progress.
        """
        connection = await self._login(transcript, moved)
        finished = False
        try:
            if transcript.request.unit.kind != "switch":
                await ask_node(connection, transcript, until, moved)
            else:
                await ask_switch(connection, transcript, moved)
            finished = True
        except (asyncssh.Error, OSError) as error:
            raise fault_of(error, str(self._unit_settings().known_hosts_path)) from error
        finally:
            await _leave(connection, politely=finished)

    async def close(self) -> None:
        """Close the jump host's connection."""
        if self._jump is not None:
            await _leave(self._jump, politely=True)

    def _unit_settings(self) -> SshSettings:
        assert self.settings.unit is not None
        return self.settings.unit

    async def _login(self, transcript: Transcript, moved: Callable[[], None]) -> asyncssh.SSHClientConnection:
        settings = self._unit_settings()
        address = transcript.request.unit.address
        limit_s = self.settings.profile.connect_timeout_s
        if self.settings.jump is not None:
            jump = await self._jump_host()
            moved()
            return await _through(jump, address, settings, limit_s)
        sock = await self._tcp(address, settings.port, limit_s)
        moved()
        return await _over(sock, address, settings, limit_s)

    async def _tcp(self, host: str, port: int, limit_s: float) -> socket.socket:
        try:
            async with asyncio.timeout(limit_s):
                return await _connected(await self._addresses(host, port), port)
        except ConnectionRefusedError:
            raise UnitFaultError(ReachStatus.REFUSED, f"{host} port {port}: connection refused") from None
        except TimeoutError:
            what = f"{host} port {port}: no connection within {limit_s:g} s"
            raise UnitFaultError(ReachStatus.UNREACHABLE, what) from None
        except OSError as error:
            raise UnitFaultError(ReachStatus.UNREACHABLE, f"{host} port {port}: {error.strerror or error}") from None

    async def _addresses(self, host: str, port: int) -> list[tuple[socket.AddressFamily, str]]:
        with contextlib.suppress(ValueError):
            version = ipaddress.ip_address(host).version
            return [(socket.AF_INET if version == 4 else socket.AF_INET6, host)]
        # Own threads: a name server that does not answer must not block the loop's few default ones.
        found = await asyncio.get_running_loop().run_in_executor(
            self.lookups, lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        )
        return [(info[0], str(info[4][0])) for info in found]

    async def _jump_host(self) -> asyncssh.SSHClientConnection:
        """Return the connection to the jump host, which all units of the profile share, opened when needed."""
        settings = self.settings.jump
        assert settings is not None
        assert settings.host is not None
        limit_s = self.settings.profile.connect_timeout_s
        async with self._jump_lock:
            if self._jump is None or self._jump.is_closed():
                try:
                    sock = await self._tcp(settings.host, settings.port, limit_s)
                    self._jump = await _over(sock, settings.host, settings, limit_s)
                except UnitFaultError as fault:
                    what = f"jump host {settings.host}: {fault.detail} ({fault.status.value})"
                    raise UnitFaultError(ReachStatus.UNREACHABLE, what) from None
            return self._jump


async def _connected(addresses: list[tuple[socket.AddressFamily, str]], port: int) -> socket.socket:
    """Return a socket connected to the first address that answers. Raises the last error."""
    loop = asyncio.get_running_loop()
    last: OSError = OSError("the name has no address")
    for family, address in addresses:
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            await loop.sock_connect(sock, (address, port))
            return sock
        except OSError as error:
            sock.close()
            last = error
        except BaseException:
            sock.close()
            raise
    raise last


async def _over(sock: socket.socket, host: str, settings: SshSettings, limit_s: float) -> asyncssh.SSHClientConnection:
    """Log in over a connected socket."""
    try:
        async with asyncio.timeout(limit_s):
            return await asyncssh.connect(host, settings.port, sock=sock, options=settings.options)
    except TimeoutError:
        what = f"{host} port {settings.port}: connected, but SSH login did not end within {limit_s:g} s"
        raise UnitFaultError(ReachStatus.HUNG, what) from None
    except (asyncssh.Error, OSError, ValueError) as error:
        raise fault_of(error, str(settings.known_hosts_path)) from None


async def _through(
    jump: asyncssh.SSHClientConnection, host: str, settings: SshSettings, limit_s: float
) -> asyncssh.SSHClientConnection:
    """Log in through the jump host."""
    try:
        async with asyncio.timeout(2 * limit_s):
            return await asyncssh.connect(host, settings.port, tunnel=jump, options=settings.options)
    except TimeoutError:
        what = f"{host} port {settings.port}: no login through the jump host within {2 * limit_s:g} s"
        raise UnitFaultError(ReachStatus.UNREACHABLE, what) from None
    except asyncssh.ChannelOpenError as error:
        refused = "refused" in error.reason.lower()
        status = ReachStatus.REFUSED if refused else ReachStatus.UNREACHABLE
        raise UnitFaultError(
            status, f"{host} port {settings.port}, through the jump host: {error.reason[:200]}"
        ) from None
    except (asyncssh.Error, OSError, ValueError) as error:
        raise fault_of(error, str(settings.known_hosts_path)) from None


async def _leave(connection: asyncssh.SSHClientConnection, *, politely: bool) -> None:
    if politely:
        connection.close()
        with contextlib.suppress(TimeoutError, asyncssh.Error, OSError):
            async with asyncio.timeout(CLOSE_GRACE_S):
                await connection.wait_closed()
    if not connection.is_closed():
        connection.abort()
