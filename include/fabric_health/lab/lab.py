"""Start, stop and change the lab. Nothing here needs Airflow or a store; the CLI and tests call it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from fabric_health import connections
from fabric_health.checks.fabric_links.settings import settings as fabric_settings
from fabric_health.errors import LabError
from fabric_health.lab import infiniband
from fabric_health.lab.place import CONNECTION_ID, EXIT_PORT_TAKEN, USER, Place, ServerRecord, own_environment
from fabric_health.lab.state import Fault, LabState, load, now, save
from fabric_health.lab.validation import check_site, checked_fault
from fabric_health.site import Site, load_site

DEFAULT_PORT = 2222
PORTS_TRIED = 100
START_S = 20.0
STOP_S = 5.0
BANNER = b"SSH-"


@dataclass(frozen=True)
class LabInfo:
    """A running lab: what it plays, where, and what is wrong in it on purpose."""

    site_path: Path
    site_name: str
    home: Path
    port: int
    pid: int
    up_since: datetime
    units: int
    faults: tuple[Fault, ...]
    connection_id: str = CONNECTION_ID
    # Why the InfiniBand fabric that the site has is not there; None where it is, or where the site has none.
    no_fabric: str | None = None

    @property
    def key_file(self) -> Path:
        """Private key of the lab's user."""
        return Place(self.home).client_key

    @property
    def known_hosts(self) -> Path:
        """Host keys of the lab's units."""
        return Place(self.home).known_hosts


def up(site_path: Path | str, home: Path | str, port: int | None = None) -> LabInfo:
    """Start the lab, or leave it alone when it already plays this site; return once every unit answers.

    Faults of an earlier lab in the same home are kept. ``port`` defaults to 2222 or the next one that is free on the
    units' addresses. Writes the connection ``lab_ssh`` into ``<home>/connections.json``.

    Raises SiteError for a bad site file, LabError when the lab cannot start (with the end of its log) or another
    site's lab is running in this home. A site's InfiniBand fabric is started, too; where its system packages are
    missing the lab is up without it, and ``no_fabric`` says what to install.
    """
    site = load_site(site_path)
    check_site(site)
    place = Place(Path(home).resolve())
    with place.alone():
        record = _alive(place)
        if record is not None and record.site_path != str(site.path.resolve()):
            raise LabError(
                f"a lab of {record.site_path} is running in {place.home}; stop it first: fabric-health lab down"
            )
        if record is not None and (record.site_sha256 != site.sha256 or port not in (None, record.port)):
            _stop(record)
            record = None
        if record is None:
            record = _start(site, place, port)
        _wait_until_answering(site, place, record)
        _write_connection(place, record.port)
        no_fabric = _fabric_up(site, place)
        return replace(_info(site, place, record), no_fabric=no_fabric)


def down(home: Path | str) -> bool:
    """Stop the lab and remove everything it kept: state, keys, log, connection. False when there was nothing."""
    place = Place(Path(home).resolve())
    if not place.root.exists():
        return False
    with place.alone():
        infiniband.down(place.home)
        record = _alive(place)
        if record is not None:
            _stop(record)
        shutil.rmtree(place.root, ignore_errors=True)
        _drop_connection(place)
    (place.home / ".lab.lock").unlink(missing_ok=True)
    return True


def status(home: Path | str) -> LabInfo | None:
    """Return what runs, None when no lab does."""
    place = Place(Path(home).resolve())
    record = _alive(place)
    return None if record is None else _info(load_site(record.site_path), place, record)


def add_fault(home: Path | str, kind: str, unit: str, value: str | None = None) -> Fault:
    """Make ``unit`` faulty; the same kind on the same unit is replaced. Returns when the fault shows.

    Raises UsageError for an unknown kind or unit or an impossible value, LabError when no lab is running.
    """
    place, record, site = _running(home)
    if kind in infiniband.KINDS:
        return _fabric_fault(infiniband.fault(place.home, kind, _target(site, unit)), site)
    fault = checked_fault(site, kind, unit, value, now())
    _change(
        place,
        lambda state: replace(
            state, faults=(*(f for f in state.faults if (f.kind, f.unit) != (fault.kind, fault.unit)), fault)
        ),
    )
    _settle(site, place, record)
    return fault


def heal(home: Path | str, unit: str | None = None, kind: str | None = None) -> int:
    """Remove faults: all, those on ``unit`` or a part of it, those of ``kind``. Returns how many went."""
    place, record, site = _running(home)
    removed = 0

    def without(state: LabState) -> LabState:
        nonlocal removed
        on_unit = state.faults if unit is None else state.under(unit)
        gone = {f for f in on_unit if kind is None or f.kind == kind}
        removed = len(gone)
        return replace(state, faults=tuple(f for f in state.faults if f not in gone))

    _change(place, without)
    _settle(site, place, record)
    if infiniband.status(place.home) is not None:
        name = _fabric(site)
        target = None if unit in (None, name) else _target(site, unit or "")
        removed += infiniband.heal(place.home, target, kind)
    return removed


def _fabric(site: Site) -> str | None:
    """Return the name of the site's fabric that is asked from one of its nodes; None when it has none."""
    names = {n.name for n in site.nodes}
    return next((f.name for f in fabric_settings(site).fabrics if f.via in names), None)


def _target(site: Site, unit: str) -> str:
    """Return the port or node within the fabric: ``leaf001/3`` of ``ib0/leaf001/3``."""
    return unit.removeprefix(f"{_fabric(site)}/")


def _fabric_fault(fault: infiniband.InfinibandFault, site: Site) -> Fault:
    return Fault(fault.kind, "/".join(p for p in (_fabric(site), fault.target) if p), None, fault.since)


def _fabric_up(site: Site, place: Place) -> str | None:
    if _fabric(site) is None:
        return None
    try:
        infiniband.up(place.home)
    except LabError as error:
        return str(error)
    return None


def _running(home: Path | str) -> tuple[Place, ServerRecord, Site]:
    place = Place(Path(home).resolve())
    record = _alive(place)
    if record is None:
        raise LabError(f"no lab is running in {place.home}; start one: fabric-health lab up")
    return place, record, load_site(record.site_path)


def _alive(place: Place) -> ServerRecord | None:
    record = ServerRecord.load(place.server)
    return record if record is not None and record.alive else None


def _info(site: Site, place: Place, record: ServerRecord) -> LabInfo:
    state = load(place.state)
    units = len(site.nodes) + len(site.switches)
    fabric = infiniband.status(place.home) if _fabric(site) else None
    faults = (*state.faults, *(_fabric_fault(f, site) for f in (fabric.faults if fabric else ())))
    return LabInfo(site.path, site.name, place.home, record.port, record.pid, state.up_since, units, faults)


def _change(place: Place, change: Callable[[LabState], LabState]) -> None:
    with place.alone():
        save(place.state, change(load(place.state)))


def _start(site: Site, place: Place, port: int | None) -> ServerRecord:
    place.root.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not place.state.is_file():
        save(place.state, LabState(now()))
    candidates = [port] if port is not None else list(range(DEFAULT_PORT, DEFAULT_PORT + PORTS_TRIED))
    addresses = [u.address for u in site.select(None)]
    taken = "none was tried"
    for candidate in candidates:
        in_use = _taken(addresses, candidate)
        if in_use is None:
            started = _launch(site, place, candidate)
            if started is not None:
                return started
            in_use = "taken while the server was starting"
        taken = f"{candidate} on {in_use}"
    tried = f"port {port}" if port is not None else f"no port from {candidates[0]} to {candidates[-1]}"
    raise LabError(f"{tried} is free on the lab's addresses ({taken}); end what listens there")


def _launch(site: Site, place: Place, port: int) -> ServerRecord | None:
    """Start the server on ``port`` and wait until it listens; None when another program took the port meanwhile."""
    ours, theirs = os.pipe()
    with open(place.log, "ab") as log, open(ours, "rb") as ready:
        try:
            process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "fabric_health.lab.server", "--site", str(site.path.resolve())),
                    *("--home", str(place.home), "--port", str(port), "--ready-fd", str(theirs)),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                env=own_environment(),
                start_new_session=True,
                pass_fds=(theirs,),
            )
        finally:
            os.close(theirs)
        # The pipe's end comes with the word "ready" or with the process's death, whichever is first.
        said = _read_within(ready.fileno(), START_S)
    record = ServerRecord.load(place.server)
    if said.strip() == b"ready" and record is not None and record.pid == process.pid and record.alive:
        return record
    # A pipe that ended without a word means that the server is ending by itself.
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(1.0)
    process.kill()
    if process.wait() == EXIT_PORT_TAKEN:
        return None
    raise LabError(f"the lab's server did not get ready; the end of {place.log}:\n{_tail(place.log)}")


def _read_within(fd: int, limit_s: float) -> bytes:
    import select

    readable, _, _ = select.select([fd], [], [], limit_s)
    return os.read(fd, 64) if readable else b""


def _tail(log: Path, size: int = 2000) -> str:
    try:
        return log.read_bytes()[-size:].decode("utf-8", "replace").strip()
    except OSError as error:
        return f"({error})"


def _stop(record: ServerRecord) -> None:
    """End the server and wait for it; only the process that the record names is touched."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if not record.alive:
            break
        with contextlib.suppress(ProcessLookupError):
            os.kill(record.pid, number)
        _until(lambda: not record.alive, STOP_S)
    # When we are its parent it is a zombie until it is waited for.
    with contextlib.suppress(ChildProcessError):
        os.waitpid(record.pid, os.WNOHANG)


def _until(true: Callable[[], bool], limit_s: float) -> bool:
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        if true():
            return True
        time.sleep(0.02)
    return true()


def _taken(addresses: Sequence[str], port: int) -> str | None:
    for address in addresses:
        with socket.socket() as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                s.bind((address, port))
            except OSError as error:
                return f"{address}: {error.strerror}"
    return None


def _greets(address: str, port: int) -> bool | None:
    """Return True when an SSH server greets there, None when the connection is refused, else False."""
    try:
        with socket.create_connection((address, port), timeout=5) as s:
            return s.recv(len(BANNER), socket.MSG_WAITALL) == BANNER
    except ConnectionRefusedError:
        return None
    except OSError:
        return False


def _wait_until_answering(site: Site, place: Place, record: ServerRecord) -> None:
    refused = {f.unit for f in load(place.state).faults if f.kind == "node-unreachable"}
    units = [u for u in site.select(None) if u.name not in refused]
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda u: _until(lambda: _greets(u.address, record.port) is True, 5), units))
    silent = [u.name for u, ok in zip(units, answers, strict=True) if not ok]
    if silent:
        shown = ", ".join(silent[:5])
        raise LabError(f"{len(silent)} units do not answer ({shown}); the end of {place.log}:\n{_tail(place.log)}")


def _settle(site: Site, place: Place, record: ServerRecord) -> None:
    """Wait until exactly the nodes that are to be unreachable refuse connections."""
    refused = {f.unit for f in load(place.state).faults if f.kind == "node-unreachable"}
    for node in site.nodes:
        wanted = None if node.name in refused else True
        if not _until(lambda n=node, w=wanted: _greets(n.address, record.port) is w, STOP_S):  # type: ignore[misc]
            raise LabError(f"{node.name} does not follow the lab's state; the end of {place.log}:\n{_tail(place.log)}")


def _write_connection(place: Place, port: int) -> None:
    extra = {"conn_type": "ssh", "key_file": str(place.client_key), "known_hosts": str(place.known_hosts)}
    entries = _connections(place)
    entries[CONNECTION_ID] = connections.Connection(CONNECTION_ID, None, port, USER, None, extra)
    connections.save(place.home / "connections.json", entries)


def _drop_connection(place: Place) -> None:
    entries = _connections(place)
    if entries.pop(CONNECTION_ID, None) is None:
        return
    if entries:
        connections.save(place.home / "connections.json", entries)
    else:
        (place.home / "connections.json").unlink(missing_ok=True)


def _connections(place: Place) -> dict[str, connections.Connection]:
    path = place.home / "connections.json"
    if not path.is_file():
        return {}
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise LabError(f"{path}: {error}; expected JSON") from None
    entries = {}
    for conn_id, entry in raw.items():
        parsed = connections.parse(conn_id, str(path), entry)
        kind = entry.get("conn_type", "generic")
        entries[conn_id] = replace(parsed, extra={**parsed.extra, "conn_type": kind})
    return entries
