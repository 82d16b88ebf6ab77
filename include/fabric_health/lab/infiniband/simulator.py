"""Start, stop and change the simulated InfiniBand fabric: ibsim and opensm, no root, no device."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import stat
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path

from fabric_health.errors import LabError, UsageError
from fabric_health.lab.answer import Answer, not_installed
from fabric_health.lab.infiniband import tools
from fabric_health.lab.infiniband.faults import IN_TOPOLOGY, InfinibandFault, checked, console_lines, worn
from fabric_health.lab.infiniband.topology import HOSTS, fat_tree, topology_file
from fabric_health.lab.place import Place, own_environment
from fabric_health.lab.state import now
from fabric_health.processes import Background

START_S = 20.0
# opensm brings up 32 hosts in 0.2 s, 4,096 in some 7 s.
MANAGER_S = 60.0
# How often the manager looks at the fabric again: a link that comes back is active this much later.
SWEEP_S = 2
_READY = "simulator ready"
# What ibsim must make room for: nodes, switches, ports. Its defaults end at some thousand hosts.
_ROOM = ("-N", "8192", "-S", "1024", "-P", "65536")


@dataclass(frozen=True)
class InfinibandFabric:
    """A running fabric."""

    home: Path
    hosts: int
    faults: tuple[InfinibandFault, ...]
    managed: bool


@dataclass(frozen=True)
class _Rooms:
    """Paths and processes of one fabric below the lab's directory."""

    home: Path

    @property
    def root(self) -> Path:
        return Place(self.home).root / "infiniband"

    @property
    def state(self) -> Path:
        return self.root / "state.json"

    @property
    def pipe(self) -> Path:
        return self.root / "console"

    @property
    def ibsim(self) -> Background:
        return self._background("ibsim")

    @property
    def opensm(self) -> Background:
        return self._background("opensm")

    def _background(self, name: str) -> Background:
        return Background(name, self.root / f"{name}.json", self.root / f"{name}.log")


def up(home: Path | str, hosts: int = 32) -> InfinibandFabric:
    """Start the fabric, or leave one of this size alone. Returns once a subnet manager has brought it up.

    Faults of an earlier fabric in the same home are kept. Raises LabError when a system package is missing (it names
    them) or something does not start (with the end of its log).
    """
    if hosts not in HOSTS:
        raise UsageError(f"{hosts} hosts; expected one of {', '.join(map(str, HOSTS))}")
    for needed in ("ibsim", "opensm", "sminfo"):
        tools.program(needed)
    rooms = _Rooms(Path(home).resolve())
    with _alone(rooms):
        before = _load(rooms)
        faults = before.faults if before else ()
        managed = rooms.opensm.running() is not None or any(f.kind == "ib-no-manager" for f in faults)
        if not (before and before.hosts == hosts and managed and rooms.ibsim.running()):
            _start(rooms, InfinibandFabric(rooms.home, hosts, faults, True))
    return _running(rooms.home)[1]


def down(home: Path | str) -> bool:
    """Stop the fabric and remove what it kept. False when there was nothing."""
    rooms = _Rooms(Path(home).resolve())
    if not rooms.root.exists():
        return False
    with _alone(rooms):
        _stop(rooms)
        shutil.rmtree(rooms.root, ignore_errors=True)
    return True


def status(home: Path | str) -> InfinibandFabric | None:
    """Return what runs, None when no fabric does."""
    rooms = _Rooms(Path(home).resolve())
    fabric = _load(rooms)
    if fabric is None or not rooms.ibsim.running():
        return None
    return replace(fabric, managed=rooms.opensm.running() is not None)


def fault(home: Path | str, kind: str, target: str | None = None) -> InfinibandFault:
    """Plant a fault and return once it shows. Kinds: ``faults.KINDS``; targets: ``leaf001/3``, ``gpu0008``.

    A link that trains lower is a restart of the simulator, so that all its counters begin again.
    Raises UsageError for a fault that makes no sense, LabError when no fabric is running.
    """
    rooms, fabric = _running(home)
    with _alone(rooms):
        added = checked(fat_tree(fabric.hosts), kind, target, now())
        others = tuple(f for f in fabric.faults if (f.kind, f.target) != (added.kind, added.target))
        changed = replace(fabric, faults=(*others, added))
        if added.kind in IN_TOPOLOGY:
            _start(rooms, changed)
        else:
            _save(rooms, changed)
            _plant(rooms, changed, (added,))
    return added


def heal(home: Path | str, target: str | None = None, kind: str | None = None) -> int:
    """Remove faults: all, those on a port or node, those of ``kind``. Returns how many went.

    The fabric starts afresh with the faults that are left, so that counters begin again, too.
    """
    rooms, fabric = _running(home)
    gone = [
        f
        for f in fabric.faults
        if (kind is None or f.kind == kind) and (target is None or f.target in (target, f"{target}/1"))
    ]
    if gone:
        with _alone(rooms):
            _start(rooms, replace(fabric, faults=tuple(f for f in fabric.faults if f not in gone)))
    return len(gone)


def directory(home: Path | str) -> Path:
    """Return where the fabric of a home keeps its files: what :func:`tools.run` needs."""
    return _Rooms(Path(home).resolve()).root


def answer(home: Path | str, argv: tuple[str, ...]) -> Answer:
    """Return what a tool answers on a node of the fabric: real output, or that there is no device when none runs.

    Without the simulator the tools would wait for it for ever.
    """
    rooms = _Rooms(Path(home).resolve())
    if rooms.ibsim.running() is None:
        try:
            tools.program(argv[0])
        except LabError:
            return not_installed(argv[0])
        return Answer(stderr=f"{argv[0]}: can't open UMAD port: no InfiniBand fabric is running here\n", exit_code=255)
    return tools.run(rooms.root, argv)


def _start(rooms: _Rooms, fabric: InfinibandFabric) -> None:
    """Start afresh, with the fabric's faults; what does not come up whole is stopped again."""
    _stop(rooms)
    try:
        _bring_up(rooms, fabric)
    except BaseException:
        _stop(rooms)
        raise


def _bring_up(rooms: _Rooms, fabric: InfinibandFabric) -> None:
    rooms.root.mkdir(mode=0o700, parents=True, exist_ok=True)
    tree = fat_tree(fabric.hosts)
    tree = replace(tree, cables=tuple(worn(c, fabric.faults) for c in tree.cables))
    net = rooms.root / "net"
    net.write_text(topology_file(tree), encoding="utf-8")
    if rooms.pipe.exists():
        rooms.pipe.unlink()
    os.mkfifo(rooms.pipe, 0o600)
    _save(rooms, fabric)
    env = {**own_environment(), "IBSIM_SOCKNAME": tools.socket_name(rooms.root)}
    argv = [sys.executable, "-m", "fabric_health.lab.infiniband.console", str(rooms.pipe), tools.program("ibsim")]
    rooms.ibsim.start([*argv, "-s", *_ROOM, str(net)], env=env, cwd=rooms.root)
    _until(lambda: _READY in _text(rooms.ibsim.log), rooms.ibsim, START_S, "the simulator does not get ready")
    if not any(f.kind == "ib-no-manager" for f in fabric.faults):
        _manage(rooms)
    _plant(rooms, fabric, tuple(f for f in fabric.faults if f.kind != "ib-no-manager"))


def _manage(rooms: _Rooms) -> None:
    argv = [tools.program("opensm"), "-s", str(SWEEP_S), "-D", "0x01", "-L", "10", "-f", str(rooms.root / "events.log")]
    rooms.opensm.start(argv, env=tools.environment(rooms.root), cwd=rooms.root)
    _until(lambda: _is_up(rooms), rooms.opensm, MANAGER_S, "the subnet does not come up")


def _is_up(rooms: _Rooms) -> bool:
    """Tell whether a master answers, with its administration, and every link that has two ends is active."""
    if "SMINFO_MASTER" not in tools.run(rooms.root, ("sminfo",)).stdout:
        return False
    if tools.run(rooms.root, ("saquery", "-s")).exit_code != 0:
        return False
    links = tools.run(rooms.root, ("iblinkinfo", "--line")).stdout
    return "Active/" in links and not any(f" {state}/" in links for state in ("Initialize", "Armed"))


def _plant(rooms: _Rooms, fabric: InfinibandFabric, faults: tuple[InfinibandFault, ...]) -> None:
    """Tell the console, and wait until the simulator has done all it was told."""
    tree = fat_tree(fabric.hosts)
    for one in faults:
        if one.kind == "ib-no-manager":
            rooms.opensm.stop(5.0)
        lines = console_lines(tree, one)
        if lines:
            _tell(rooms, lines)


def _tell(rooms: _Rooms, lines: list[str]) -> None:
    """Write to the simulator's console and wait for its answer: an unknown mark, which it names as it stands."""
    mark = f"mark{time.monotonic_ns()}"
    try:
        if not stat.S_ISFIFO(rooms.pipe.stat().st_mode):
            raise LabError(f"{rooms.pipe} is not the simulator's console; stop the lab and start it again")
        with open(os.open(rooms.pipe, os.O_WRONLY | os.O_NONBLOCK), "w", encoding="ascii") as console:
            console.write("\n".join([*lines, f'Dump "{mark}"']) + "\n")
    except OSError as error:
        raise LabError(f"the simulator's console cannot be written: {error.strerror or error}") from None
    _until(lambda: mark in _text(rooms.ibsim.log), rooms.ibsim, 10.0, "the simulator does not take commands")


def _stop(rooms: _Rooms) -> None:
    for background in (rooms.opensm, rooms.ibsim):
        background.stop(5.0)


def _text(log: Path) -> str:
    try:
        return log.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _until(done: Callable[[], bool], background: Background, limit_s: float, what: str) -> None:
    end = time.monotonic() + limit_s
    while not done():
        if background.running() is None or time.monotonic() > end:
            # It may have got there in its last moment.
            if done():
                return
            raise LabError(f"{what}; the end of {background.log}:\n{background.tail()}")
        time.sleep(0.02)


def _running(home: Path | str) -> tuple[_Rooms, InfinibandFabric]:
    fabric = status(home)
    if fabric is None:
        raise LabError(f"no InfiniBand fabric is running in {home}; start the lab: fabric-health lab up")
    return _Rooms(Path(home).resolve()), fabric


def _save(rooms: _Rooms, fabric: InfinibandFabric) -> None:
    body = {"hosts": fabric.hosts, "faults": [{**asdict(f), "since": f.since.isoformat()} for f in fabric.faults]}
    temporary = rooms.state.with_suffix(".tmp")
    temporary.write_text(json.dumps(body), encoding="utf-8")
    temporary.replace(rooms.state)


def _load(rooms: _Rooms) -> InfinibandFabric | None:
    try:
        raw = json.loads(rooms.state.read_text(encoding="utf-8"))
        faults = tuple(
            InfinibandFault(f["kind"], f["target"], datetime.fromisoformat(f["since"])) for f in raw["faults"]
        )
        return InfinibandFabric(rooms.home, int(raw["hosts"]), faults, managed=False)
    except (OSError, ValueError, KeyError, TypeError):
        return None


@contextlib.contextmanager
def _alone(rooms: _Rooms) -> Iterator[None]:
    import fcntl

    rooms.home.mkdir(parents=True, exist_ok=True)
    with open(rooms.home / ".infiniband.lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
