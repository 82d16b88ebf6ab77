"""The least a client of S3 can do: requests signed ahead of time, over bare sockets, of whose answers only status and
length are looked at. What it reaches is what the store's S3 gateway leaves to any client on the same machine.

    S3_ACCESS_KEY=... S3_SECRET_KEY=... python bench/s3_floor.py ENDPOINT BUCKET SIZE REQUESTS CONCURRENCY PROCESSES

Part of bench/object_store.py. Writes objects, reads them, removes them; prints one JSON object. The payload is the same
for all objects of a process and is no part of the signature, so neither side hashes it with SHA-256.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import resource
import socket
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from minio import Minio

MIB = 1 << 20
PREFIX = "s3-bench/floor"
HEAD_END = b"\r\n\r\n"
START_DELAY_S = 0.3


@dataclass(frozen=True)
class Part:
    """What one process is to do: requests ready to be sent, starting at ``begin`` (monotonic s)."""

    endpoint: str
    heads: list[bytes]
    body_bytes: int
    expected_bytes: int
    threads: int
    begin: float


class Line:
    """A connection, and the buffer its answers are read into."""

    def __init__(self, endpoint: str) -> None:
        host, port = endpoint.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=60)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = memoryview(bytearray(256 << 10))

    def ask(self, head: bytes, body: bytes) -> int:
        """Send a request, read its answer to the end, return the body's length. Raises OSError for a bad one."""
        if len(body) < 64 << 10:
            self.socket.sendall(head + body)
        else:
            self.socket.sendall(head)
            self.socket.sendall(body)
        have, end = 0, -1
        while end < 0:
            have += self._receive(have, len(self.buffer))
            end = bytes(self.buffer[:have]).find(HEAD_END)
        text = bytes(self.buffer[:end])
        if text[9:12] not in (b"200", b"204"):
            raise OSError(f"the store answered {text[:60]!r}")
        found = re.search(rb"(?i)\r\ncontent-length: *(\d+)", text)
        length = int(found[1]) if found else 0
        left = length - (have - end - len(HEAD_END))
        while left > 0:
            left -= self._receive(0, left)
        return length

    def _receive(self, at: int, most: int) -> int:
        got = self.socket.recv_into(self.buffer[at : at + most])
        if not got:
            raise OSError("the store closed the connection")
        return got


def work(part: Part, answer: Any) -> None:
    """Make the requests of one process; send when the last ended, processor time and peak memory."""
    faults: list[str] = []
    body, lock = os.urandom(part.body_bytes), threading.Lock()
    todo = iter(part.heads)

    def some() -> None:
        try:
            line = Line(part.endpoint)
            time.sleep(max(0.0, part.begin - time.monotonic()))
            while not faults:
                with lock:
                    head = next(todo, None)
                if head is None:
                    return
                if (got := line.ask(head, body)) != part.expected_bytes:
                    raise OSError(f"{got} bytes instead of {part.expected_bytes}")
        except OSError as error:
            faults.append(str(error))

    threads = [threading.Thread(target=some) for _ in range(part.threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    peak = re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text(encoding="ascii"))
    spent = resource.getrusage(resource.RUSAGE_SELF)
    answer.send((faults, time.monotonic(), spent.ru_utime + spent.ru_stime, int(peak[1]) * 1024 if peak else 0))


def sign(client: Minio, verb: str, bucket: str, requests: int, size: int) -> Iterator[bytes]:
    """Yield the head of each request."""
    for n in range(requests):
        url = urlsplit(client.get_presigned_url(verb, bucket, f"{PREFIX}/{n}"))
        length = f"Content-Length: {size}\r\n" if verb == "PUT" else ""
        yield f"{verb} {url.path}?{url.query} HTTP/1.1\r\nHost: {url.netloc}\r\n{length}\r\n".encode()


def measure(endpoint: str, heads: list[bytes], size: int, concurrency: int, processes: int) -> dict[str, float]:
    """Make all requests on several processes and return MiB/s, processor time and the processes' memory."""
    context = multiprocessing.get_context("fork")
    reads, begin = heads[0].startswith(b"GET"), time.monotonic() + START_DELAY_S
    pipes, started = [], []
    for n in range(processes):
        ours, theirs = context.Pipe()
        part = Part(
            endpoint, heads[n::processes], size if heads[0].startswith(b"PUT") else 0, size if reads else 0,
            concurrency // processes + (n < concurrency % processes), begin,
        )  # fmt: skip
        started.append(context.Process(target=work, args=(part, theirs), daemon=True))
        started[-1].start()
        pipes.append(ours)
    answers = [pipe.recv() for pipe in pipes]
    for process in started:
        process.join()
    if faults := [fault for answer in answers for fault in answer[0]]:
        sys.exit(f"bare HTTP: {faults[0]}")
    seconds = max(answer[1] for answer in answers) - begin
    return {
        "mib_per_s": len(heads) * size / MIB / seconds,
        "cpu_s": sum(answer[2] for answer in answers),
        "rss_bytes": sum(answer[3] for answer in answers),
    }


def main() -> None:
    """Measure writing and reading, remove the objects, print both."""
    endpoint, bucket = sys.argv[1:3]
    size, requests, concurrency, processes = map(int, sys.argv[3:7])
    keys = os.environ["S3_ACCESS_KEY"], os.environ["S3_SECRET_KEY"]
    client = Minio(endpoint, access_key=keys[0], secret_key=keys[1], secure=False, region="us-east-1")
    found = {}
    for verb in ("PUT", "GET", "DELETE"):
        heads = list(sign(client, verb, bucket, requests, size))
        found[verb.lower()] = measure(endpoint, heads, size, concurrency, processes)
    del found["delete"]
    print(json.dumps(found))


if __name__ == "__main__":
    main()
