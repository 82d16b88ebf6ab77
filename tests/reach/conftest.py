"""Real SSH servers that misbehave, one behaviour each, and requests to them."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import asyncssh
import pytest

from fabric_health.connections import Connection
from fabric_health.evidence import Command, UnitEvidence
from fabric_health.reach import UnitRequest, collect_async
from fabric_health.site import Node, ReachProfile, Sku, Switch

SKU = Sku(gpu_model="none", gpus=0, link_layer="Ethernet", nic_rate_gbps=1)
Handler = Callable[[asyncssh.SSHServerProcess[bytes]], Awaitable[None]]


class _Open(asyncssh.SSHServer):
    def begin_auth(self, username: str) -> bool:
        return True

    def password_auth_supported(self) -> bool:
        return True

    def validate_password(self, username: str, password: str) -> bool:
        return (username, password) == ("fabric", "correct horse")

    def connection_requested(self, *_where: object) -> bool:
        return True


@dataclass
class Bench:
    """Starts servers on loopback addresses of their own and builds requests to them."""

    folder: Path
    port: int
    password: str = "correct horse"

    def __post_init__(self) -> None:
        self.key = asyncssh.generate_private_key("ssh-ed25519")
        self.known_hosts = self.folder / "known_hosts"
        self.known_hosts.write_text("")

    def trust(self, address: str, key: asyncssh.SSHKey | None = None) -> None:
        public = (key or self.key).export_public_key("openssh").decode().split()
        with self.known_hosts.open("a") as f:
            f.write(f"[{address}]:{self.port} {public[0]} {public[1]}\n")

    @asynccontextmanager
    async def server(self, address: str, handler: Handler, trusted: bool = True):
        if trusted:
            self.trust(address)
        listener = await asyncssh.listen(
            address,
            self.port,
            server_factory=_Open,
            server_host_keys=[self.key],
            process_factory=handler,
            encoding=None,
            config=None,
        )
        try:
            yield
        finally:
            listener.close()

    def source(self, conn_id: str) -> Connection:
        extra = {"known_hosts": str(self.known_hosts)}
        return Connection(conn_id, "127.30.9.9", self.port, "fabric", self.password, extra)

    def profile(self, **changes: object) -> ReachProfile:
        defaults: dict[str, object] = {
            "kind": "ssh",
            "connection": "bench",
            "connect_timeout_s": 2,
            "unit_timeout_s": 4,
        }
        return ReachProfile.model_validate({**defaults, **changes})

    def switch(self, address: str, commands: tuple[Command, ...] | None = None, **changes: object) -> UnitRequest:
        unit = Switch(f"sw-{address}", "eos", "leaf", None, address, self.profile(**changes), None)
        return UnitRequest(unit, "switch_config", commands or (Command("version", ("show version",)),))

    def node(self, address: str, commands: tuple[Command, ...] | None = None, **changes: object) -> UnitRequest:
        unit = Node(f"node-{address}", "sku", SKU, "r1", address, self.profile(**changes))
        return UnitRequest(unit, "driver_firmware", commands or (Command("hello", ("echo", "hello")),))

    async def ask(self, *requests: UnitRequest) -> dict[str, UnitEvidence]:
        got: list[UnitEvidence] = []
        await collect_async(requests, self.source, got.append)
        assert sorted(e.unit for e in got) == sorted(r.unit.name for r in requests), "one evidence for each request"
        return {e.unit: e for e in got}

    async def ask_one(self, request: UnitRequest) -> UnitEvidence:
        return (await self.ask(request))[request.unit.name]


def says(text: bytes, code: int | None = 0) -> Handler:
    """Answer every command with ``text``; ``code`` None sends no exit status."""

    async def handler(process: asyncssh.SSHServerProcess[bytes]) -> None:
        process.stdout.write(text)
        if code is None:
            process.channel.write_eof()
            process.channel.close()
        else:
            process.exit(code)

    return handler


async def hangs(process: asyncssh.SSHServerProcess[bytes]) -> None:
    """Accept the command and never answer."""
    await process.channel.wait_closed()


async def really_runs(process: asyncssh.SSHServerProcess[bytes]) -> None:
    """Do what a node does: run the command with what comes on standard input."""
    child = await asyncio.create_subprocess_shell(
        str(process.command),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    await process.redirect(child.stdin, child.stdout, child.stderr)
    process.exit(await child.wait())


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    return Bench(tmp_path, port)


@pytest.fixture
def behaviours() -> dict[str, Handler]:
    return {"hangs": hangs, "really_runs": really_runs}


@pytest.fixture
def answering() -> Callable[..., Handler]:
    return says
