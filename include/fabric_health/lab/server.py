"""The lab's server: one process that plays every unit of a lab site over real SSH on loopback.

``python -m fabric_health.lab.server --site FILE --home DIR --port N`` listens on each unit's own address. Started and
stopped by :mod:`fabric_health.lab.lab`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import errno
import logging
import os
import re
import shlex
import signal
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import asyncssh

from fabric_health.checks.fabric_links.settings import settings as fabric_settings
from fabric_health.errors import FabricHealthError
from fabric_health.lab import infiniband, keys, nodes, shell, switches
from fabric_health.lab.answer import Answer
from fabric_health.lab.place import EXIT_PORT_TAKEN, USER, Place, ServerRecord, raise_descriptor_limit
from fabric_health.lab.state import LabState, load, now
from fabric_health.processes import Started
from fabric_health.reach import probe
from fabric_health.reach.frames import ProbeRequest, read_script
from fabric_health.site import Node, Site, Switch, load_site

log = logging.getLogger("fabric_health.lab")

WATCH_S = 0.1
MAX_PAYLOAD = 1 << 20
# The state file is the lab's life line: once it is gone (someone removed the directory), so is the server.
ORPHANED_AFTER_S = 2.0
_PROBE_EXEC = re.compile(r"^\S+ -I -$")


@dataclass
class StateFile:
    """The lab's state, read again whenever its file was replaced."""

    path: Path
    _seen: tuple[int, int] | None = None
    _state: LabState | None = None

    def current(self) -> LabState:
        """Return the state as the file has it now. Raises FileNotFoundError when it is gone."""
        stat = self.path.stat()
        mark = (stat.st_mtime_ns, stat.st_ino)
        if self._state is None or mark != self._seen:
            self._state, self._seen = load(self.path), mark
        return self._state


class _Gate(asyncssh.SSHServer):
    """Lets the lab's user in with the lab's key and nobody else."""

    def __init__(self, key: asyncssh.SSHKey) -> None:
        self._accepted = key.public_data

    def begin_auth(self, username: str) -> bool:
        return True

    def public_key_auth_supported(self) -> bool:
        return True

    def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:
        return username == USER and key.public_data == self._accepted


@dataclass
class LabServer:
    """Plays the units of ``site``: a listener each, present unless the unit is to be unreachable."""

    site: Site
    place: Place
    port: int
    _listeners: dict[str, asyncssh.SSHAcceptor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._state = StateFile(self.place.state)
        self._client_key = keys.client_key(self.place)
        self._host_keys = keys.host_keys(self.site, self.place)
        self._units = {u.name: u for u in self.site.select(None)}
        # Nodes from which an InfiniBand fabric is asked: its tools are not played, they run on the simulated fabric.
        self._on_fabric = {f.via for f in fabric_settings(self.site).fabrics}

    async def start(self) -> None:
        """Listen on every unit's address. Raises OSError when one cannot be bound."""
        keys.write_known_hosts(self.site, self.place, self.port, self._host_keys)
        await self._reconcile(self._state.current())

    async def watch(self) -> None:
        """Follow the state file until it is gone: open and close listeners as faults come and go."""
        gone_at: float | None = None
        while gone_at is None or time.monotonic() - gone_at < ORPHANED_AFTER_S:
            try:
                await self._reconcile(self._state.current())
                gone_at = None
            except FileNotFoundError:
                gone_at = gone_at or time.monotonic()
            except (OSError, ValueError, KeyError) as error:
                log.error("state not applied: %s", error)
            await asyncio.sleep(WATCH_S)
        log.warning("the state file is gone: stopping")

    async def close(self) -> None:
        """Stop listening."""
        for listener in self._listeners.values():
            listener.close()
        self._listeners.clear()

    async def _reconcile(self, state: LabState) -> None:
        refused = {f.unit for f in state.faults if f.kind == "node-unreachable"}
        for name in self._listeners.keys() & refused:
            self._listeners.pop(name).close()
            log.info("%s stopped listening", name)
        for name in self._units.keys() - refused - self._listeners.keys():
            self._listeners[name] = await self._listen(self._units[name])

    async def _listen(self, unit: Node | Switch) -> asyncssh.SSHAcceptor:
        async def play(process: asyncssh.SSHServerProcess[str]) -> None:
            await self._play(unit, process)

        return await asyncssh.listen(
            unit.address,
            self.port,
            server_factory=lambda: _Gate(self._client_key),
            server_host_keys=[self._host_keys[unit.name]],
            process_factory=play,
            config=None,
            backlog=512,
            encoding="utf-8",
            errors="replace",
            allow_scp=False,
            x11_forwarding=False,
            agent_forwarding=False,
            gss_host=None,
            compression_algs=["none"],
        )

    async def _play(self, unit: Node | Switch, process: asyncssh.SSHServerProcess[str]) -> None:
        try:
            if self._state.current().on(unit.name, "node-hanging"):
                await process.channel.wait_closed()
                return
            if process.command is None:
                await self._interact(unit, process)
            elif isinstance(unit, Node) and _PROBE_EXEC.match(process.command):
                await self._probe(unit, process)
            else:
                answer = self._answer(unit, process.command)
                process.stdout.write(answer.stdout)
                process.stderr.write(answer.stderr)
                process.exit(answer.exit_code)
        except (asyncssh.Error, asyncssh.BreakReceived, asyncssh.TerminalSizeChanged, OSError) as error:
            log.debug("%s: session ended: %s", unit.name, error)
        except Exception:
            log.exception("%s: no answer to %r", unit.name, process.command)
            process.exit(255)

    def _answer(self, unit: Node | Switch, command: str | tuple[str, ...]) -> Answer:
        state = self._state.current()
        if isinstance(unit, Switch):
            line = command if isinstance(command, str) else " ".join(command)
            return switches.answer(unit, self.site, state, line, now())
        try:
            argv = tuple(shlex.split(command)) if isinstance(command, str) else command
        except ValueError as error:
            return Answer(stderr=f"bash: {error}\n", exit_code=2)
        return nodes.answer(unit, self.site, state, argv, now()) if argv else Answer()

    async def _probe(self, node: Node, process: asyncssh.SSHServerProcess[str]) -> None:
        """Answer the probe as it would answer itself, command by command."""
        payload = ""
        while len(payload) <= MAX_PAYLOAD and (text := await process.stdin.read(1 << 16)):
            payload += text
        request = read_script(payload.encode("utf-8"))
        if request is None:
            process.stderr.write("this node is played by the lab: it answers fabric-health's probe, nothing else\n")
            process.exit(1)
            return
        begun = time.monotonic()
        _frame(process, request, "begin", {"commands": len(request.commands)})
        for index, (argv, limit) in enumerate(zip(request.commands, request.max_bytes, strict=True)):
            t0 = time.monotonic() - begun
            if node.name in self._on_fabric and argv and argv[0] in infiniband.READ_ONLY:
                answer = await asyncio.to_thread(infiniband.answer, self.place.home, argv)
            else:
                answer = self._answer(node, argv)
            status = "not_installed" if answer.exit_code == 127 else "exited"
            code: int | None = answer.exit_code
            if len(answer.stdout.encode()) > limit:
                status, code = "truncated", None
            texts = (answer.stdout.encode()[:limit].decode("utf-8", "ignore"), answer.stderr)
            body = probe.result(index, status, code, texts, (t0, time.monotonic() - begun))
            _frame(process, request, "result", body)
            await process.stdout.drain()
            await asyncio.sleep(0)  # let the other units speak
        _frame(process, request, "end", {"commands": len(request.commands)})
        process.exit(0)

    async def _interact(self, unit: Node | Switch, process: asyncssh.SSHServerProcess[str]) -> None:
        if isinstance(unit, Node):
            process.stderr.write("no interactive shell on lab nodes; give a command\n")
            process.exit(1)
            return

        async def say(text: str) -> None:
            process.stdout.write(text)
            await process.stdout.drain()

        await shell.converse(unit, aiter(process.stdin), say, lambda command: self._answer(unit, command))
        process.exit(0)


def _frame(process: asyncssh.SSHServerProcess[str], request: ProbeRequest, kind: str, body: object) -> None:
    process.stdout.write(probe.frame(request.nonce, kind, body).decode("ascii"))


async def serve(site: Site, place: Place, port: int, ready_fd: int | None = None) -> None:
    """Play ``site`` until SIGTERM or until the state file is gone; tell ``ready_fd`` once every unit listens."""
    server = LabServer(site, place, port)
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    await server.start()
    here = Started.here()
    ServerRecord(here.pid, here.started, port, str(site.path.resolve()), site.sha256).save(place.server)
    log.info("playing %d nodes and %d switches on port %d", len(site.nodes), len(site.switches), port)
    if ready_fd is not None:
        os.write(ready_fd, b"ready\n")
        os.close(ready_fd)
    watching = asyncio.ensure_future(server.watch())
    stopping = asyncio.ensure_future(stopped.wait())
    await asyncio.wait({watching, stopping}, return_when=asyncio.FIRST_COMPLETED)
    for task in (watching, stopping):
        task.cancel()
    await server.close()


def main(arguments: list[str] | None = None) -> int:
    """Run the server in the foreground."""
    parser = argparse.ArgumentParser(prog="fabric_health.lab.server", description=__doc__)
    parser.add_argument("--site", type=Path, required=True, help="site file")
    parser.add_argument("--home", type=Path, required=True, help="directory of local state")
    parser.add_argument("--port", type=int, required=True, help="port on each unit's address")
    parser.add_argument("--ready-fd", type=int, default=None, help="file descriptor told once every unit listens")
    options = parser.parse_args(arguments)
    logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("asyncssh").setLevel(logging.ERROR)
    raise_descriptor_limit()
    try:
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(serve(load_site(options.site), Place(options.home.resolve()), options.port, options.ready_fd))
    except (FabricHealthError, OSError) as error:
        log.error("%s", error)
        taken = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
        return EXIT_PORT_TAKEN if taken else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
