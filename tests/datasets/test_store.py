"""The store against the real embedded server: what works, what is refused, and what is retried."""

from __future__ import annotations

import dataclasses
import logging
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from fabric_health import connections
from fabric_health.connections import Connection
from fabric_health.datasets import embedded
from fabric_health.datasets.store import ObjectMissing, ObjectStore
from fabric_health.errors import ConnectionSettingError, StoreError

KEYS = Connection("s3", "127.0.0.1", 1, "access", "canary-secret", {"bucket": "bucket"})


def test_objects_are_written_read_listed_and_removed(store: ObjectStore) -> None:
    store.put("a/x y+ü.txt", b"one")
    store.put("a/x y+ü.txt", b"two")
    store.put("a/b/empty", b"")
    assert store.get("a/x y+ü.txt") == b"two"
    assert store.get("a/b/empty") == b""
    assert store.list("a/") == ["a/b/empty", "a/x y+ü.txt"]
    assert store.folders("a/") == ["b"]
    assert store.exists("a/b/empty")
    assert not store.exists("a/b")
    store.delete("a/b/empty")
    store.delete("a/b/empty")
    assert store.list("a/") == ["a/x y+ü.txt"]
    assert store.uri("k") == f"s3://{store.bucket}/k"


def test_many_objects_side_by_side_keep_their_order_and_lists_have_no_thousand_limit(store: ObjectStore) -> None:
    items = [(f"many/{i:04}", str(i).encode()) for i in range(1100)]
    store.put_many(items, threads=32)
    assert store.list("many/") == [k for k, _ in items]
    assert store.get_many([k for k, _ in items[:50]]) == [d for _, d in items[:50]]
    assert store.get_many([]) == []


def test_a_missing_object_says_so_at_once(store: ObjectStore) -> None:
    started = time.monotonic()
    with pytest.raises(ObjectMissing, match="cannot read nope: no such object"):
        store.get("nope")
    with pytest.raises(ObjectMissing):
        store.get_many(["nope"])
    assert time.monotonic() - started < 5


def test_an_object_larger_than_asked_for_is_refused(store: ObjectStore) -> None:
    store.put("big", b"x" * 100)
    with pytest.raises(StoreError, match="larger than 99 bytes"):
        store.get("big", max_bytes=99)
    assert store.get("big", max_bytes=100) == b"x" * 100


def test_pyarrow_reads_the_same_objects(store: ObjectStore) -> None:
    store.put("a/b", b"data")
    with store.filesystem().open_input_file(f"{store.bucket}/a/b") as f:
        assert f.read() == b"data"


def test_the_analyst_reads_and_cannot_write_and_wrong_keys_are_refused(s3_home: Path) -> None:
    path = s3_home / "connections.json"
    saved = {k: connections.parse(k, str(path), v) for k, v in connections._json("f", path.read_text()).items()}
    pipeline = ObjectStore.connect(saved[embedded.CONNECTION_ID])
    analyst = ObjectStore.connect(saved[embedded.ANALYST_CONNECTION_ID])
    pipeline.ensure_bucket()
    pipeline.put("shared/x", b"1")
    assert analyst.get("shared/x") == b"1"
    assert "shared/x" in analyst.list("shared/")
    for refused in (
        lambda: analyst.put("shared/y", b"2"),
        lambda: analyst.put("shared/x", b"2"),
        lambda: analyst.delete("shared/x"),
    ):
        with pytest.raises(StoreError, match=r"AccessDenied.*what the policy"):
            refused()
    assert pipeline.get("shared/x") == b"1"
    other = dataclasses.replace(saved[embedded.CONNECTION_ID], extra={"bucket": "not-ours"})
    with pytest.raises(StoreError, match="AccessDenied"):
        ObjectStore.connect(other).put("x", b"1")
    for change, code in (({"password": "wrong"}, "SignatureDoesNotMatch"), ({"login": "who"}, "InvalidAccessKeyId")):
        with pytest.raises(StoreError, match=code):
            ObjectStore.connect(dataclasses.replace(saved[embedded.CONNECTION_ID], **change)).get("shared/x")
    assert oct(path.stat().st_mode & 0o777) == "0o600"


def test_a_store_that_is_away_fails_clearly_and_without_secrets(caplog: pytest.LogCaptureFixture) -> None:
    away = ObjectStore.connect(KEYS, retry_s=0.5)
    with caplog.at_level(logging.DEBUG), pytest.raises(StoreError) as error:
        away.get("x")
    assert "127.0.0.1:1: cannot read x: [Errno 111] Connection refused; tried for 0 s" in str(error.value)
    assert "repeat the run" in str(error.value)
    assert "canary" not in caplog.text + str(error.value) + repr(away) + repr(error.value)


def test_an_incomplete_connection_says_what_is_missing() -> None:
    with pytest.raises(ConnectionSettingError, match="'s3': host, password missing"):
        ObjectStore.connect(Connection("s3", None, 1, "access", None, {}))


class _Answers(BaseHTTPRequestHandler):
    """Answers each request with the next status of ``plan``, the last one forever."""

    plan: ClassVar[list[int]] = []

    def do_GET(self) -> None:
        plan = type(self).plan
        status = plan.pop(0) if len(plan) > 1 else plan[0]
        codes = {503: "SlowDown", 403: "AccessDenied", 500: "InternalError", 404: "NoSuchBucket"}
        body = b"data" if status == 200 else f"<Error><Code>{codes.get(status)}</Code></Error>".encode()
        if status == 0:
            self.connection.close()
            return
        html = status == 418
        self.send_response(200 if html else status)
        self.send_header("Content-Type", "text/html" if html else "application/xml")
        self.send_header("Content-Length", str(len(body) + (10 if html else 0)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_args: object) -> None:
        return


@pytest.fixture
def server() -> Iterator[ObjectStore]:
    httpd = ThreadingHTTPServer(("127.0.0.1", 0), type("Answers", (_Answers,), {}))
    threading.Thread(target=httpd.serve_forever, daemon=True).start()
    made = ObjectStore.connect(dataclasses.replace(KEYS, port=httpd.server_address[1]), retry_s=8)
    object.__setattr__(made, "_test_handler", httpd.RequestHandlerClass)
    yield made
    httpd.shutdown()
    httpd.server_close()


@pytest.mark.parametrize("first", [503, 500, 0, 418], ids=["slow down", "internal", "reset", "cut off"])
def test_what_may_pass_is_tried_again(server: ObjectStore, first: int) -> None:
    server._test_handler.plan = [first, first, 200]  # type: ignore[attr-defined]
    assert server.get("x") == b"data"


@pytest.mark.parametrize(("status", "code"), [(403, "AccessDenied"), (404, "NoSuchBucket")])
def test_what_will_not_pass_fails_at_once(server: ObjectStore, status: int, code: str) -> None:
    server._test_handler.plan = [status]  # type: ignore[attr-defined]
    started = time.monotonic()
    with pytest.raises(StoreError, match=code):
        server.get("x")
    assert time.monotonic() - started < 2
