"""The store as the load sees it: an SDK client for one process, and timed requests."""

from __future__ import annotations

import hashlib
import io
import os
import threading
import time
from dataclasses import dataclass
from typing import cast
from xml.etree.ElementTree import ParseError

from minio import Minio
from minio.error import MinioException
from urllib3.exceptions import HTTPError

from fabric_health.workloads.s3_bench.options import Options
from fabric_health.workloads.s3_bench.wire import Reply, Wire

READ_BYTES = 1 << 18
# Payload that does not compress and differs between objects: each takes it from another place in this block.
BLOCK_BYTES = 4 << 20
MARK_BYTES = 32
# ParseError: what a store says of an error need not be XML, and the SDK does not catch it.
FAILURES = (MinioException, HTTPError, OSError, ValueError, ParseError)


class WrongContentError(ValueError):
    """An object came back with other content or another length than was written."""


def connect(options: Options) -> Minio:
    """Return a client that keeps a connection a thread and retries nothing: a failed request is a result."""
    return Minio(
        endpoint=options.endpoint,
        access_key=options.access_key,
        secret_key=options.secret_key,
        session_token=options.session_token,
        secure=options.tls,
        region=options.region,
        http_client=Wire(options.endpoint, options.tls, options.timeout_s),
    )


@dataclass(frozen=True)
class Done:
    """A finished request: bytes moved and, for GET, when the first byte was there (monotonic seconds)."""

    moved: int = 0
    first_byte: float | None = None
    server: str | None = None


class _Payload(io.RawIOBase):
    """Content of one object: a mark of its name, then bytes of the block from a place that the name decides."""

    def __init__(self, block: bytes, name: str, size: int) -> None:
        self._mark = mark(name)[:size]
        self._block, self._left, self._size = block, size, size
        self._at = int.from_bytes(self._mark[:4], "big") % len(block)

    def read(self, n: int = -1, /) -> bytes:
        left = self._left if n < 0 else min(n, self._left)
        parts: list[bytes | memoryview] = []
        if self._left == self._size:
            parts.append(self._mark[:left])
        want = left - sum(map(len, parts))
        while want:
            # Views: what goes out is copied once.
            piece = memoryview(self._block)[self._at : self._at + want]
            parts.append(piece)
            self._at = (self._at + len(piece)) % len(self._block)
            want -= len(piece)
        self._left -= left
        return b"".join(parts)


def mark(name: str) -> bytes:
    """Return the first bytes of the object called ``name``, by which reading it back knows it."""
    return hashlib.sha256(name.encode()).digest()


def _start_of(reply: Reply, want: int) -> tuple[bytes, float | None]:
    """Return the first ``want`` bytes, or fewer at the end, and when the first of them was there."""
    start, first = reply.at_hand(want), time.monotonic()
    while len(start) < want and (more := reply.at_hand(want - len(start))):
        start += more
    return start, first if start else None


class Store:
    """Requests of one process. Each method makes one request and raises one of FAILURES when it fails."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.client = connect(options)
        self._block = os.urandom(BLOCK_BYTES)
        self._own = threading.local()

    def _buffer(self) -> memoryview:
        """Return what this thread reads into: what was read is looked at and dropped."""
        found: memoryview | None = getattr(self._own, "buffer", None)
        if found is None:
            found = self._own.buffer = memoryview(bytearray(min(READ_BYTES, self.options.object_bytes)))
        return found

    def put(self, name: str) -> Done:
        size = self.options.object_bytes
        written = self.client.put_object(
            self.options.bucket,
            name,
            _Payload(self._block, name, size),
            size,
            part_size=self.options.part_bytes,
            num_parallel_uploads=1,
        )
        headers = written.http_headers or {}
        return Done(size, server=headers.get("Server"))

    def get(self, name: str) -> Done:
        size = self.options.object_bytes
        reply = cast("Reply", self.client.get_object(self.options.bucket, name))
        start, first = _start_of(reply, min(size, MARK_BYTES))
        if start != mark(name)[: len(start)]:
            raise WrongContentError(f"{name}: another object's content")
        read, buffer = len(start), self._buffer()
        while got := reply.into(buffer):
            read += got
        if read != size:
            raise WrongContentError(f"{name}: {read} bytes instead of {size}")
        return Done(read, first, reply.headers.get("Server"))

    def stat(self, name: str) -> Done:
        found = self.client.stat_object(self.options.bucket, name)
        if found.size != self.options.object_bytes:
            raise WrongContentError(f"{name}: {found.size} bytes instead of {self.options.object_bytes}")
        return Done(server=(found.metadata or {}).get("Server"))

    def delete(self, name: str) -> Done:
        self.client.remove_object(self.options.bucket, name)
        return Done()
