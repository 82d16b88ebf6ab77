"""The embedded store's life: started once, found again, stopped whole, back with its data."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import psutil
import pytest

from fabric_health import connections
from fabric_health.connections import Connection
from fabric_health.datasets import embedded
from fabric_health.datasets.store import ObjectStore
from fabric_health.errors import StoreError


def processes_of(home: Path) -> list[int]:
    found = psutil.process_iter(["cmdline"])
    return [p.pid for p in found if str(home) in " ".join(p.info["cmdline"] or ()) and p.pid != os.getpid()]


def test_stopped_and_started_again_it_has_its_address_users_and_data(tmp_path: Path) -> None:
    other = Connection("lab_ssh", None, 22, "root", "secret", {"conn_type": "ssh", "known_hosts": "/k"})
    connections.save(tmp_path / "connections.json", {other.id: other})
    assert embedded.status(tmp_path) is None
    assert embedded.stop(tmp_path) is False
    first = embedded.start(tmp_path)
    try:
        saved = json.loads((tmp_path / "connections.json").read_text())
        assert saved["lab_ssh"]["conn_type"] == "ssh"
        assert saved["lab_ssh"]["password"] == "secret"
        raw = saved[embedded.CONNECTION_ID]
        store = ObjectStore.connect(connections.parse(embedded.CONNECTION_ID, "f", raw))
        store.put("kept", b"data")
        assert embedded.start(tmp_path) == first == embedded.status(tmp_path)
        with socket.socket() as s, pytest.raises(OSError, match="in use"):
            s.bind((embedded.HOST, first.port))
        assert embedded.stop(tmp_path) is True
        assert (embedded.status(tmp_path), processes_of(tmp_path)) == (None, [])
        again = embedded.start(tmp_path)
        assert again == first
        assert store.get("kept") == b"data"
        assert json.loads((tmp_path / "connections.json").read_text()) == saved
    finally:
        embedded.stop(tmp_path)
    assert processes_of(tmp_path) == []
    for name in ("s3/s3.json", "s3/server.log", "s3/server.json", "connections.json"):
        assert (tmp_path / name).stat().st_mode & 0o077 == 0, name


def test_a_port_that_is_taken_is_refused_at_once(tmp_path: Path) -> None:
    with socket.socket() as s:
        s.bind((embedded.HOST, 0))
        s.listen()
        with pytest.raises(StoreError, match="is taken"):
            embedded.start(tmp_path, port=s.getsockname()[1])
    assert processes_of(tmp_path) == []


def test_a_server_that_ends_while_starting_shows_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = tmp_path / "weed"
    fake.write_text("#!/bin/sh\necho no room left; exit 3\n")
    fake.chmod(0o755)
    monkeypatch.setattr(embedded, "binary", lambda: str(fake))
    with pytest.raises(StoreError, match="no room left"):
        embedded.start(tmp_path)
    assert embedded.status(tmp_path) is None


def test_a_record_of_a_process_that_is_gone_is_not_believed(tmp_path: Path) -> None:
    (tmp_path / "s3").mkdir()
    (tmp_path / "s3" / "process.json").write_text(json.dumps({"pid": os.getpid(), "started": 1.0}))
    assert embedded.status(tmp_path) is None
    assert embedded.stop(tmp_path) is False
