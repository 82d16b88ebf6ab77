"""Runs perftest between the two ranks of a job, one RDMA device after the other, and prints what the client saw.

mpirun starts this on two nodes. Rank 0 serves, rank 1 is the client and the only one that prints, so that nothing of
the two is ever mixed. They talk over a TCP connection of their own: perftest's server takes the first connection it
gets, so nothing may knock at its port to see whether it is there. The server rank looks in /proc/net/tcp instead.

Lines of the runner start with ``FHPAIR1`` and are JSON; what is between ``test`` and ``result`` is the tool's own text.
A test that fails is a result; the exit code tells only whether the two ranks came together and went through all tests.
Standard library alone, Python 3.10 or later.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

MAGIC = "FHPAIR1"
MAX_TEXT = 64 << 10
MAX_LINE = 256 << 10
TAIL = 400
LISTEN_LIMIT_S = 20.0
# rdma_cm listens in the kernel's own tables, which an unprivileged process cannot see.
RDMA_CM_SETTLE_S = 2.0
GRACE_S = 10.0
RANKS = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK")
_SIOCGIFADDR = 0x8915
_LISTEN = "0A"


class PairError(Exception):
    """The two ranks did not come together, or lost each other."""


@dataclass(frozen=True)
class Test:
    """One run of the tool: the device of either end, the GPU whose memory is used (None: host memory), the size."""

    device: str
    gpu: int | None
    size: int


@dataclass
class Tool:
    """The tool's process group and its output, which goes to a file: nobody has to read it while it runs."""

    process: subprocess.Popen[bytes]
    output: IO[bytes]

    @classmethod
    def start(cls, argv: list[str], folder: str) -> Tool:
        """Start it. Raises PairError when the program cannot be started."""
        output = tempfile.TemporaryFile()  # noqa: SIM115  read after this returns
        try:
            process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=folder,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            output.close()
            raise PairError(f"{argv[0]}: {error}") from None
        return cls(process, output)

    def wait(self, limit_s: float) -> int | None:
        """Return the exit code, None when it had to be killed at the limit."""
        try:
            return self.process.wait(max(0.0, limit_s))
        except subprocess.TimeoutExpired:
            self.kill()
            return None

    def kill(self) -> None:
        """End it and all that it started."""
        with contextlib.suppress(OSError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def text(self) -> str:
        """Return what it printed so far, up to a bound."""
        self.output.seek(0)
        return self.output.read(MAX_TEXT).decode("utf-8", "replace")


@dataclass
class Channel:
    """Lines of JSON between the two ranks."""

    peer: socket.socket
    pending: bytes = b""
    closed: bool = False

    def send(self, message: dict[str, Any]) -> None:
        """Send one message. Raises PairError when the other rank is gone."""
        try:
            self.peer.settimeout(GRACE_S)
            self.peer.sendall(json.dumps(message).encode() + b"\n")
        except OSError as error:
            raise PairError(f"the other rank is gone: {error}") from None

    def receive(self, limit_s: float) -> dict[str, Any] | None:
        """Return the next message, None when there is none in time. Raises PairError when the other rank is gone."""
        until = time.monotonic() + max(0.0, limit_s)
        while b"\n" not in self.pending:
            left = until - time.monotonic()
            if not select.select([self.peer], [], [], max(0.0, left))[0]:
                return None
            try:
                data = self.peer.recv(1 << 16)
            except OSError as error:
                raise PairError(f"the other rank is gone: {error}") from None
            if not data or len(self.pending) > MAX_LINE:
                raise PairError("the other rank is gone")
            self.pending += data
        line, _, self.pending = self.pending.partition(b"\n")
        try:
            message = json.loads(line)
        except ValueError:
            message = None
        if not isinstance(message, dict):
            raise PairError("the other end of the connection is no rank of this job")
        return message


@dataclass
class Pair:
    """What both ranks were asked to do."""

    hosts: list[str]
    token: str
    tests: list[Test]
    command: list[str]
    port: int
    until: float
    test_limit_s: float
    folder: str
    running: list[Tool] = field(default_factory=list)

    @property
    def rdma_cm(self) -> bool:
        """Whether connections are made by rdma_cm, to the address of the server's device."""
        return "-R" in self.command or "--rdma_cm" in self.command

    def left(self, most: float) -> float:
        """Return ``most`` seconds or what is left of the job's time. Raises PairError when nothing is."""
        left = self.until - time.monotonic()
        if left <= 0:
            raise PairError("the time of the job is over")
        return min(most, left)

    def argv(self, test: Test) -> list[str]:
        """Return the tool's command line of one test, without the server's address."""
        memory = [] if test.gpu is None else [f"--use_cuda={test.gpu}"]
        return [*self.command, "-d", test.device, "-s", str(test.size), "-p", str(self.port), *memory]

    def start(self, argv: list[str]) -> Tool:
        """Start the tool; it is ended with this program in any case."""
        self.running = [Tool.start(argv, self.folder)]
        return self.running[0]

    def end(self) -> None:
        """End what still runs."""
        for tool in self.running:
            tool.kill()
        self.running = []


def serve(pair: Pair) -> int:
    """Be rank 0: wait for the client of this job, then start a server for each test that it asks for."""
    with socket.create_server(("", pair.port + 1), reuse_port=False) as listener:
        channel = _client(pair, listener)
    for test in pair.tests:
        asked = channel.receive(pair.left(pair.test_limit_s + 2 * GRACE_S))
        if asked is None or asked.get("device") != test.device or asked.get("size") != test.size:
            raise PairError("the client did not ask for the next test")
        _serve_one(pair, channel, test)
    return 0


def _client(pair: Pair, listener: socket.socket) -> Channel:
    """Return the connection of this job's client; any other is closed."""
    while True:
        listener.settimeout(pair.left(pair.test_limit_s))
        try:
            peer, _ = listener.accept()
        except TimeoutError:
            raise PairError("no client came") from None
        channel = Channel(peer)
        with contextlib.suppress(PairError):
            hello = channel.receive(pair.left(GRACE_S))
            if hello is not None and hello.get("token") == pair.token:
                channel.send({"host": socket.gethostname()})
                return channel
        peer.close()


def _serve_one(pair: Pair, channel: Channel, test: Test) -> None:
    address = address_of(test.device) if pair.rdma_cm else pair.hosts[0]
    if address is None:
        channel.send({"ready": False, "problem": f"{test.device} has no IPv4 address, which rdma_cm needs"})
        return
    tool = pair.start(pair.argv(test))
    if not _listens(pair, tool):
        pair.end()
        channel.send({"ready": False, "problem": f"the server did not start: {_tail(tool)}"})
        return
    channel.send({"ready": True, "address": address})
    if channel.receive(pair.left(pair.test_limit_s + GRACE_S)) is None:
        raise PairError("the client did not end its test in time")
    code = tool.wait(GRACE_S)
    pair.running = []
    channel.send({"exit": code, "tail": "" if code == 0 else _tail(tool)})


def _listens(pair: Pair, tool: Tool) -> bool:
    until = time.monotonic() + pair.left(LISTEN_LIMIT_S)
    started = time.monotonic()
    while time.monotonic() < until:
        if tool.process.poll() is not None:
            return False
        if time.monotonic() - started > RDMA_CM_SETTLE_S if pair.rdma_cm else listening(pair.port):
            return True
        time.sleep(0.05)
    return False


def listening(port: int) -> bool:
    """Tell whether anything of this network namespace listens on a TCP port, without connecting to it."""
    for name in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(OSError):
            for line in Path(name).read_text(encoding="ascii", errors="replace").splitlines()[1:]:
                words = line.split()
                if len(words) > 3 and words[3] == _LISTEN and int(words[1].rpartition(":")[2], 16) == port:
                    return True
    return False


def address_of(device: str) -> str | None:
    """Return the IPv4 address of a device's network interface, None when it has none."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for interface in sorted(Path(f"/sys/class/infiniband/{device}/device/net").iterdir()):
            with contextlib.suppress(OSError):
                request = struct.pack("256s", interface.name.encode()[:15])
                return socket.inet_ntoa(fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, request)[20:24])
    return None


def drive(pair: Pair) -> int:
    """Be rank 1: run each test against the server rank and print it."""
    channel = _server(pair)
    channel.send({"token": pair.token})
    hello = channel.receive(pair.left(GRACE_S))
    if hello is None:
        raise PairError(f"{pair.hosts[0]} does not answer as this job's server")
    say({"event": "pair", "server": str(hello.get("host", "")), "client": socket.gethostname()})
    for test in pair.tests:
        say({"event": "test", "device": test.device, "size": test.size, "gpu": test.gpu})
        result, text = _drive_one(pair, channel, test)
        # A line of the tool is never one of ours.
        lines = "".join((" " if x.startswith(MAGIC) else "") + x + "\n" for x in text.splitlines())
        say({"event": "result", "device": test.device, "size": test.size, **result}, lines)
    say({"event": "end", "tests": len(pair.tests)})
    return 0


def _server(pair: Pair) -> Channel:
    until = time.monotonic() + pair.left(pair.test_limit_s)
    while True:
        try:
            return Channel(socket.create_connection((pair.hosts[0], pair.port + 1), timeout=5.0))
        except OSError as error:
            if time.monotonic() > until:
                raise PairError(f"no server at {pair.hosts[0]} port {pair.port + 1}: {error}") from None
            time.sleep(0.2)


def _drive_one(pair: Pair, channel: Channel, test: Test) -> tuple[dict[str, Any], str]:
    channel.send({"device": test.device, "size": test.size})
    ready = channel.receive(pair.left(LISTEN_LIMIT_S + GRACE_S))
    if ready is None:
        raise PairError("the server rank does not answer")
    if not ready.get("ready"):
        return {"client": None, "server": None, "problem": str(ready.get("problem", ""))[:TAIL]}, ""
    file = Path(pair.folder) / "perftest.json"
    file.unlink(missing_ok=True)
    tool = pair.start(
        [*pair.argv(test), "--out_json", f"--out_json_file={file}", str(ready.get("address", pair.hosts[0]))]
    )
    until = time.monotonic() + pair.left(pair.test_limit_s)
    while tool.process.poll() is None and time.monotonic() < until:
        channel.receive(0.1)  # says nothing now, and raises when the server rank is gone
    code = tool.wait(0.0)
    pair.running = []
    channel.send({"done": True})
    served = channel.receive(pair.left(2 * GRACE_S)) or {}
    problem = "" if code == 0 else "ended at its time limit" if code is None else f"exit code {code}: {_tail(tool)}"
    if not problem and served.get("exit") != 0:
        problem = f"server: exit code {served.get('exit')}: {served.get('tail', '')}"
    found = file.read_text(encoding="utf-8", errors="replace")[:MAX_TEXT] if file.is_file() else None
    told = {"client": code, "server": served.get("exit"), "problem": problem[:TAIL], "json": found}
    return told, tool.text()


def _tail(tool: Tool) -> str:
    lines = [x.strip() for x in tool.text().splitlines() if x.strip()]
    return " | ".join(lines[-2:])[-TAIL:] or "no output"


def say(message: dict[str, Any], before: str = "") -> None:
    """Print one line of ours, and the tool's text before it, at once."""
    sys.stdout.write(f"{before}{MAGIC} {json.dumps(message)}\n")
    sys.stdout.flush()


def read(words: list[str]) -> tuple[int, Pair]:
    """Return the rank and what to do. Exits with a message for a command line at fault."""
    parser = argparse.ArgumentParser(description="perftest between the two ranks of a job")
    parser.add_argument("--hosts", required=True, help="server,client")
    parser.add_argument("--token", required=True, help="name of the launch, the same on both ranks")
    parser.add_argument("--devices", required=True, help="mlx5_0,mlx5_1: the same device is used on either end")
    parser.add_argument("--gpus", default="", help="0,1: GPU of each device, whose memory is used")
    parser.add_argument("--sizes", required=True, help="message sizes in bytes")
    parser.add_argument("--port", type=int, required=True, help="perftest's TCP port; the next one is ours")
    parser.add_argument("--limit", type=float, required=True, help="seconds for everything")
    parser.add_argument("--test-limit", type=float, required=True, help="seconds for one test")
    parser.add_argument("--rank", type=int, default=None, help="0 serves, 1 is the client; MPI's own if left out")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="-- ib_write_bw OPTIONS")
    asked = parser.parse_args(words)
    command = asked.command[1:] if asked.command[:1] == ["--"] else asked.command
    hosts, devices = asked.hosts.split(","), asked.devices.split(",")
    rank = asked.rank if asked.rank is not None else next((int(os.environ[k]) for k in RANKS if k in os.environ), -1)
    try:
        gpus = [int(g) for g in asked.gpus.split(",")] if asked.gpus else [None] * len(devices)
        sizes = [int(s) for s in asked.sizes.split(",")]
    except ValueError as error:
        parser.error(str(error))
    if len(hosts) != 2 or rank not in (0, 1) or not command or len(gpus) != len(devices):
        parser.error("two hosts, rank 0 or 1, a command, and a GPU for each device or none are needed")
    tests = [Test(d, g, s) for d, g in zip(devices, gpus, strict=True) for s in sizes]
    until = time.monotonic() + asked.limit
    return rank, Pair(hosts, asked.token, tests, command, asked.port, until, asked.test_limit, "")


def main(words: list[str]) -> int:
    """Run one rank and return its exit code: 0 when all tests were gone through, 3 when the pair fell apart."""
    rank, pair = read(words)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda n, _frame: sys.exit(128 + n))
    with tempfile.TemporaryDirectory() as folder:
        pair.folder = folder
        try:
            return serve(pair) if rank == 0 else drive(pair)
        except (PairError, OSError) as error:
            sys.stderr.write(f"perftest_pair: {'server' if rank == 0 else 'client'}: {error}\n")
            return 3
        finally:
            pair.end()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
