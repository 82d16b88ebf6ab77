"""The S3 load against the real embedded store: its numbers, what it leaves behind, and what it refuses."""

from __future__ import annotations

import io
import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import psutil
import pytest
from minio import Minio

from fabric_health import connections
from fabric_health.datasets import embedded
from fabric_health.workloads.s3_bench.client import WrongContentError, _Payload, mark
from fabric_health.workloads.s3_bench.options import WrongUsageError, read, share
from fabric_health.workloads.s3_bench.samples import MIB, Samples, segments, tally, times

BUCKET = embedded.BENCHMARK_BUCKET
KEYS = {"S3_ACCESS_KEY": "a", "S3_SECRET_KEY": "s", "S3_ENDPOINT": "127.0.0.1:1"}


@pytest.fixture(scope="module")
def environment(s3_home: Path) -> dict[str, str]:
    raw = json.loads((s3_home / "connections.json").read_text())[embedded.BENCHMARK_CONNECTION_ID]
    found = connections.parse("c", "f", raw)
    assert found.login
    assert found.password
    keys = {"S3_ACCESS_KEY": found.login, "S3_SECRET_KEY": found.password, "S3_ENDPOINT": found.extra["endpoint"]}
    return {"PATH": os.environ["PATH"], **keys}


def argv(load: str, **more: Any) -> list[str]:
    options = {
        "object-bytes": 256 << 10, "concurrency": 4, "processes": 2, "duration-s": 2, "warmup-s": 0.2, "objects": 24,
        "bucket": BUCKET, "name": f"t-{load}", **{k.replace("_", "-"): v for k, v in more.items()},
    }  # fmt: skip
    program = [sys.executable, "-m", "fabric_health.workloads.s3_bench", f"--load={load}"]
    return program + [f"--{k}={v}" for k, v in options.items()]


def run(environment: dict[str, str], load: str, **more: Any) -> dict[str, Any]:
    done = subprocess.run(argv(load, **more), env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def client(environment: dict[str, str]) -> Minio:
    return Minio(
        environment["S3_ENDPOINT"], environment["S3_ACCESS_KEY"], environment["S3_SECRET_KEY"], secure=False,
        region="us-east-1",
    )  # fmt: skip


def left(environment: dict[str, str]) -> list[str]:
    return [str(o.object_name) for o in client(environment).list_objects(BUCKET, recursive=True)]


def test_get_is_measured_from_true_samples_and_leaves_nothing(environment: dict[str, str]) -> None:
    result = run(environment, "get")
    (get,) = result["operations"]
    assert (get["op"], get["errors"], get["object_bytes"], get["concurrency"]) == ("GET", 0, 256 << 10, 4)
    assert get["hosts"] == [environment["S3_ENDPOINT"]]
    assert get["duration_s"] == 2
    assert result["server"].startswith("SeaweedFS")
    # Little's law ties rate and mean time to the number of requests under way.
    assert get["objects_per_s"] * get["latency"]["avg_ms"] / 1000 == pytest.approx(4, rel=0.2)
    assert get["mib_per_s"] == pytest.approx(get["objects_per_s"] / 4, rel=0.01)
    assert 0 < get["ttfb"]["p50_ms"] <= get["latency"]["p50_ms"]
    ordered = [get["latency"][k] for k in ("p50_ms", "p90_ms", "p99_ms", "max_ms")]
    assert ordered == sorted(ordered)
    assert get["segments"]["count"] == 2
    assert result["peak_rss_bytes"] < 400 * MIB
    assert left(environment) == []


def test_a_count_of_requests_ends_the_load(environment: dict[str, str]) -> None:
    (put,) = run(environment, "put", requests=16, object_bytes=1000)["operations"]
    assert (put["op"], put["requests"], put["errors"], put["ttfb"]) == ("PUT", 16, 0, None)
    (delete,) = run(environment, "delete", object_bytes=1000)["operations"]
    assert (delete["op"], delete["errors"], delete["mib_per_s"]) == ("DELETE", 0, None)
    assert 0 < delete["requests"] <= 24
    assert left(environment) == []


def test_a_mixed_load_has_every_operation_and_their_total(environment: dict[str, str]) -> None:
    result = run(environment, "mixed", object_bytes=4096)
    found = {o["op"]: o for o in result["operations"]}
    assert set(found) == {"GET", "PUT", "STAT", "DELETE", "MIXED"}
    parts = sum(o["objects_per_s"] for n, o in found.items() if n != "MIXED")
    assert found["MIXED"]["objects_per_s"] == pytest.approx(parts, rel=0.01)
    assert all(o["errors"] == 0 for o in found.values())
    assert left(environment) == []


def test_objects_larger_than_a_part_are_sent_in_parts(environment: dict[str, str]) -> None:
    result = run(environment, "get", object_bytes=40 << 20, concurrency=1, processes=1, objects=1, duration_s=1)
    (get,) = result["operations"]
    assert (get["errors"], get["object_bytes"]) == (0, 40 << 20)
    assert result["peak_rss_bytes"] < 300 * MIB


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_told_to_end_it_removes_what_it_wrote(environment: dict[str, str], number: int) -> None:
    process = subprocess.Popen(argv("get", duration_s=60), env=environment, stdout=subprocess.PIPE)
    until = time.monotonic() + 30
    while len(left(environment)) < 24:
        assert time.monotonic() < until
        time.sleep(0.1)
    children = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(number)
    out, _ = process.communicate(timeout=30)
    assert (process.returncode, out) == (128 + number, b"")
    assert left(environment) == []
    assert not any(c.is_running() and c.status() != psutil.STATUS_ZOMBIE for c in children)


def test_killed_its_processes_end_and_the_next_try_clears_up(environment: dict[str, str]) -> None:
    process = subprocess.Popen(argv("get", duration_s=60), env=environment)
    until = time.monotonic() + 30
    while len(left(environment)) < 24:
        assert time.monotonic() < until
        time.sleep(0.1)
    children = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.wait()
    _, alive = psutil.wait_procs(children, timeout=10)
    assert alive == []
    assert left(environment) != []
    run(environment, "get", duration_s=1)
    assert left(environment) == []


def test_a_bucket_with_other_data_is_left_alone(environment: dict[str, str]) -> None:
    store = client(environment)
    store.put_object(BUCKET, "tables/facts/x.parquet", io.BytesIO(b"x"), 1)
    try:
        done = subprocess.run(argv("get"), env=environment, capture_output=True, text=True, timeout=60)
        assert done.returncode == 64
        assert "holds other data ('tables/')" in done.stderr
        assert left(environment) == ["tables/facts/x.parquet"]
    finally:
        store.remove_object(BUCKET, "tables/facts/x.parquet")


def test_its_user_cannot_touch_the_results(environment: dict[str, str]) -> None:
    done = subprocess.run(
        argv("get", bucket="fabric-health"), env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 69
    assert "AccessDenied" in done.stderr


@pytest.mark.parametrize(
    ("change", "said"),
    [({"S3_SECRET_KEY": "no-such-key"}, "Signature"), ({"S3_ENDPOINT": "127.0.0.1:9"}, "127.0.0.1:9")],
)
def test_a_store_that_cannot_be_used_is_said_and_no_key(
    environment: dict[str, str], change: dict[str, str], said: str
) -> None:
    done = subprocess.run(argv("get"), env=environment | change, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (69, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert "no-such-key" not in done.stderr


EMPTY_LIST = b"<ListBucketResult><Name>b</Name><IsTruncated>false</IsTruncated></ListBucketResult>"
LOCATION = b"<LocationConstraint/>"


class _Broken(BaseHTTPRequestHandler):
    """A store that takes everything, gives back the wrong bytes for every second object and fails every fifth."""

    protocol_version = "HTTP/1.1"
    asked = 0

    def _answer(self, status: int, body: bytes = b"", length: int | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.send_header("ETag", '"0"')
        self.send_header("Last-Modified", "Mon, 30 Nov 2026 05:00:00 GMT")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_HEAD(self) -> None:
        self._answer(200)

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(200)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(200, b"<DeleteResult/>")

    def do_GET(self) -> None:
        path = self.path.split("?")[0]
        if path.count("/") < 3:
            self._answer(200, LOCATION if "location" in self.path else EMPTY_LIST)
            return
        type(self).asked += 1
        name = path.split("/", 2)[2]
        if self.asked % 5 == 0:
            self._answer(503, b"<Error><Code>SlowDown</Code><Message>slow</Message></Error>")
        elif self.asked % 2:
            self._answer(200, (mark(name) + bytes(1000))[:1000])
        else:
            self._answer(200, bytes(1000))

    def log_message(self, *_: object) -> None:
        return


@pytest.fixture
def broken_store() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Broken)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_failed_requests_and_wrong_content_are_counted_and_end_with_exit_code_0(broken_store: str) -> None:
    environment = {**KEYS, "S3_ENDPOINT": broken_store, "PATH": os.environ["PATH"]}
    (get,) = run(environment, "get", object_bytes=1000, duration_s=1, warmup_s=0)["operations"]
    assert get["errors"] > 10
    assert get["requests"] > get["errors"]
    said = " ".join(get["first_errors"])
    assert "another object's content" in said
    assert "SlowDown" in said


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"--processes": "9"}, "--processes"),
        ({"--object-bytes": "0"}, "--object-bytes"),
        ({"--objects": "2"}, "--objects"),
        ({"--requests": "2"}, "--requests"),
        ({"--name": "../x"}, "--name"),
        ({"--endpoint": "http://x"}, "--endpoint"),
    ],
)
def test_options_that_cannot_be_meant_are_refused(change: dict[str, str], said: str) -> None:
    given = {"--load": "get", "--object-bytes": "1", "--bucket": "b", "--name": "n", "--concurrency": "4"} | change
    with pytest.raises(WrongUsageError, match=said):
        read([f"{k}={v}" for k, v in given.items()], KEYS)


def test_keys_come_from_the_environment_and_stay_out_of_repr() -> None:
    line = ["--load=put", "--object-bytes=1", "--bucket=b", "--name=n"]
    with pytest.raises(WrongUsageError, match="S3_SECRET_KEY not set"):
        read(line, {k: v for k, v in KEYS.items() if k != "S3_SECRET_KEY"})
    options = read(line, {**KEYS, "S3_SECRET_KEY": "sesame"})
    assert "sesame" not in repr(options)


def test_shares_add_up() -> None:
    for total, parts in ((8, 2), (7, 3), (1, 1), (5, 4)):
        each = [share(total, parts, n) for n in range(parts)]
        assert sum(each) == total
        assert max(each) - min(each) <= 1


def test_payload_is_the_objects_own_and_of_its_size() -> None:
    block = os.urandom(5000)
    for size in (1, 31, 32, 33, 5000, 12_345):
        whole = _Payload(block, "a", size).read()
        assert len(whole) == size
        assert whole.startswith(mark("a")[:size])
        stream, pieces = _Payload(block, "a", size), []
        while piece := stream.read(700):
            pieces.append(piece)
        assert b"".join(pieces) == whole
    assert _Payload(block, "b", 5000).read() != _Payload(block, "a", 5000).read()
    assert issubclass(WrongContentError, ValueError)


def test_throughput_counts_the_part_of_a_request_within_the_window() -> None:
    one = Samples()
    one.add(-1.0, 1.0, 0.0, 2 * MIB, False)  # half of it lies before the window, and it did not start in it
    one.add(1.0, 2.0, 1.25, MIB, False)
    one.add(2.0, 4.0, 3.0, 4 * MIB, False)  # half of it lies behind the window
    one.add(2.5, 2.6, None, 0, True)
    found = tally([[one]], 0.0, 3.0, True)
    assert found.moved / MIB == pytest.approx(1 + 1 + 2)
    assert found.parts == pytest.approx([1.0, 1.0, 2.0])
    assert (found.requests, found.errors, found.threads) == (3, 1, 1)
    assert found.latencies == pytest.approx([1000.0, 2000.0])
    assert found.ttfbs == pytest.approx([250.0, 1000.0])


def test_percentiles_are_ranks_of_samples() -> None:
    found = times([float(n) for n in range(1, 101)])
    assert found == {"avg_ms": 50.5, "p50_ms": 50.0, "p90_ms": 90.0, "p99_ms": 99.0, "max_ms": 100.0}
    assert times([]) is None
    assert segments([3.0]) is None
    assert segments([3.0, 1.0]) == {"count": 2, "seconds": 1.0, "fastest": 3.0, "median": 2.0, "slowest": 1.0}
    assert not math.isnan(times([1.0])["avg_ms"])  # type: ignore[index]
