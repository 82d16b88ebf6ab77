"""The embedded Airflow's port may be another program's, before it starts or by the time it does. Needs no Airflow."""

from __future__ import annotations

import json
import socket
import stat
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from fabric_health.airflow import embedded
from fabric_health.errors import FabricHealthError

HEALTHY = json.dumps(
    {p: {"status": "healthy"} for p in ("metadatabase", "scheduler", "dag_processor", "triggerer")}
).encode()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FABRIC_HEALTH_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def stranger() -> Iterator[Callable[[bytes], int]]:
    """Another program: it answers every GET with a given body and knows no password of ours. Gives its port."""
    servers = []

    def start(body: bytes) -> int:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.end_headers()
                self.wfile.write(body)

            def do_POST(self) -> None:
                self.send_error(401)

            def log_message(self, format: str, *args: object) -> None:
                return

        server = ThreadingHTTPServer((embedded.HOST, 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return int(server.server_address[1])

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def settle(home: Path, port: int) -> embedded.Embedded:
    """Return settings that have ``port``, as kept by an earlier start."""
    kept = {"port": port, "password": "kept", "jwt_secret": "kept too"}
    (home / "airflow").mkdir(exist_ok=True)
    (home / "airflow" / "settings.json").write_text(json.dumps(kept))
    return embedded.settings()


def test_a_port_that_is_taken_is_left_and_the_login_stays(home: Path) -> None:
    with socket.create_server((embedded.HOST, 0)) as other:
        port = other.getsockname()[1]
        found = settle(home, port)
        assert found.port != port
        assert (found.password, found.jwt_secret) == ("kept", "kept too")
    assert embedded.settings() == found


def test_login_and_secret_are_made_once_and_private(home: Path) -> None:
    first = embedded.settings()
    assert embedded.settings() == first
    assert len(first.password) >= 12
    assert len(first.jwt_secret) >= 32
    for name in ("settings.json", "passwords.json"):
        assert stat.S_IMODE((home / "airflow" / name).stat().st_mode) == 0o600


@pytest.mark.parametrize("body", [HEALTHY, b"<html>not JSON</html>"], ids=["another Airflow", "no Airflow"])
def test_another_programs_answer_is_not_taken_for_ours(
    home: Path, stranger: Callable[[bytes], int], body: bytes
) -> None:
    port = stranger(body)
    ours = embedded.Embedded(home / "airflow", port, "ours", "secret")
    ours.background.start(["sleep", "60"], env=dict([ours.background.mark]))
    try:
        with pytest.raises(FabricHealthError, match=f"another program answers at http://127.0.0.1:{port}"):
            embedded._wait_until_healthy(ours, lambda _: None)
    finally:
        assert ours.background.stop()


def test_an_airflow_that_ends_while_starting_is_reported_with_its_log(home: Path) -> None:
    ours = settle(home, embedded._free_port())
    ours.background.start(["sh", "-c", "echo database is locked"])
    with pytest.raises(
        FabricHealthError, match=r"ended while starting; the end of its log:\n(.|\n)*database is locked"
    ):
        embedded._wait_until_healthy(ours, lambda _: None)
