"""The store as the load sees it: an SDK client for one process, and timed requests."""

from __future__ import annotations

import hashlib
import io
import os
import time
from dataclasses import dataclass

import urllib3
from minio import Minio
from minio.error import MinioException
from urllib3.exceptions import HTTPError

from fabric_health.workloads.s3_bench.options import Options

READ_BYTES = 1 << 18
# Payload that does not compress and differs between objects: each takes it from another place in this block.
BLOCK_BYTES = 4 << 20
MARK_BYTES = 32
FAILURES = (MinioException, HTTPError, OSError, ValueError)


class WrongContentError(ValueError):
    """An object came back with other content or another length than was written."""


def connect(options: Options, connections: int) -> Minio:
    """Return a client with ``connections`` kept open and no silent retries: a failed request is a result."""
    timeout = urllib3.Timeout(connect=min(10.0, options.timeout_s), read=options.timeout_s)
    pool = urllib3.PoolManager(num_pools=2, maxsize=connections, timeout=timeout, retries=False)
    return Minio(
        endpoint=options.endpoint,
        access_key=options.access_key,
        secret_key=options.secret_key,
        session_token=options.session_token,
        secure=options.tls,
        region=options.region,
        http_client=pool,
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
        want = self._left if n < 0 else min(n, self._left)
        parts: list[bytes] = []
        if want and self._left == self._size:
            parts.append(self._mark[:want])
            self._left -= len(parts[0])
            want -= len(parts[0])
        while want:
            piece = self._block[self._at : self._at + want]
            parts.append(piece)
            self._at = (self._at + len(piece)) % len(self._block)
            self._left -= len(piece)
            want -= len(piece)
        return b"".join(parts)


def mark(name: str) -> bytes:
    """Return the first bytes of the object called ``name``, by which reading it back knows it."""
    return hashlib.sha256(name.encode()).digest()


class Store:
    """Requests of one process. Each method makes one request and raises one of FAILURES when it fails."""

    def __init__(self, options: Options, connections: int) -> None:
        self.options = options
        self.client = connect(options, connections)
        self._block = os.urandom(BLOCK_BYTES)

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
        expected, read, first = mark(name)[: self.options.object_bytes], 0, None
        response = self.client.get_object(self.options.bucket, name)
        try:
            for chunk in response.stream(READ_BYTES):
                if first is None:
                    first = time.monotonic()
                    if not chunk.startswith(expected[: len(chunk)]):
                        raise WrongContentError(f"{name}: another object's content")
                read += len(chunk)
            server = response.headers.get("Server")
        finally:
            # Read to its end a connection can be used again; cut short it is dropped.
            response.close() if read != self.options.object_bytes else None
            response.release_conn()
        if read != self.options.object_bytes:
            raise WrongContentError(f"{name}: {read} bytes instead of {self.options.object_bytes}")
        return Done(read, first, server)

    def stat(self, name: str) -> Done:
        found = self.client.stat_object(self.options.bucket, name)
        if found.size != self.options.object_bytes:
            raise WrongContentError(f"{name}: {found.size} bytes instead of {self.options.object_bytes}")
        return Done(server=(found.metadata or {}).get("Server"))

    def delete(self, name: str) -> Done:
        self.client.remove_object(self.options.bucket, name)
        return Done()
