"""HTTP for the SDK with little between it and the socket: a kept connection a thread, heads read without a mail parser.

What a request costs the client is taken from the store where both share a machine, and limits what one client machine
can ask for elsewhere: for 4 KiB objects urllib3 spends more than half of it. The SDK still builds, signs and judges
every request; only its ``http_client`` is replaced, which it provides for. Proxies, redirects and retries are left out:
each of them would measure something else than the store asked for.
"""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any

import urllib3
from urllib3._collections import HTTPHeaderDict
from urllib3.exceptions import ProtocolError
from urllib3.util.wait import wait_for_read

# A body up to this size goes out with its head, in one system call.
TOGETHER_BYTES = 64 << 10
CONNECT_S = 10.0
# An answer kept whole: a list of a thousand names is far below.
MAX_KEPT_BYTES = 16 << 20
MAX_LINE_BYTES, MAX_HEADERS = 1 << 16, 100


class Reply(HTTPResponse):
    """An answer as the SDK reads it: ``status``, ``headers``, ``data``. Malformed ones raise ProtocolError."""

    data: bytes = b""

    def __init__(self, sock: socket.socket, method: str) -> None:
        super().__init__(sock, method=method)
        self._bodiless = method == "HEAD"

    def begin(self) -> None:
        """Read status and headers."""
        status = 100
        while 100 <= status < 200:
            line = self._line()
            protocol, _, rest = line.partition(b" ")
            if not protocol.startswith(b"HTTP/1.") or not rest[:3].isdigit():
                raise HTTPException("the connection was closed" if not line else f"not HTTP: {line[:80]!r}")
            status = int(rest[:3])
            found = self._headers()
        self.code = self.status = status
        self.reason, self.version = rest[4:].strip().decode("latin-1"), 11 if protocol == b"HTTP/1.1" else 10
        self.headers = self.msg = found  # type: ignore[assignment]
        self.chunked = found.get("transfer-encoding", "").lower() == "chunked"
        self.chunk_left = None
        options = found.get("connection", "").lower()
        self.will_close = "close" in options or (self.version == 10 and "keep-alive" not in options)
        length = found.get("content-length", "")
        self.length = int(length) if length.isdecimal() and not self.chunked else None
        if status in (204, 304) or self._bodiless:
            self.length = 0
        elif self.length is None and not self.chunked:
            self.will_close = True

    def _line(self) -> bytes:
        line = self.fp.readline(MAX_LINE_BYTES + 1)
        if len(line) > MAX_LINE_BYTES:
            raise HTTPException("a line of the head is too long")
        return line

    def _headers(self) -> HTTPHeaderDict:
        found = HTTPHeaderDict()
        for _ in range(MAX_HEADERS):
            line = self._line()
            if line in (b"\r\n", b"\n"):
                return found
            name, colon, value = line.partition(b":")
            if not colon:
                raise HTTPException(f"not a header: {line[:80]!r}")
            found.add(name.decode("latin-1"), value.strip().decode("latin-1"))
        raise HTTPException("too many headers")

    def read(self, amt: int | None = None, cache_content: bool = False) -> bytes:
        """Return the next ``amt`` bytes, all by default; with ``cache_content`` bounded and kept as ``data``."""
        try:
            got = super().read(MAX_KEPT_BYTES if cache_content and amt is None else amt)
        except (HTTPException, ValueError) as error:
            raise ProtocolError(f"the answer was cut: {error}") from error
        if cache_content:
            self.data += got
        return got

    def at_hand(self, most: int) -> bytes:
        """Return up to ``most`` of the next bytes as soon as there are any; nothing at the end."""
        try:
            return self.read1(most)
        except (HTTPException, ValueError) as error:
            raise ProtocolError(f"the answer was cut: {error}") from error

    def into(self, buffer: memoryview) -> int:
        """Read the next bytes into ``buffer``; return how many, 0 at the end."""
        try:
            return self.readinto(buffer)
        except (HTTPException, ValueError) as error:
            raise ProtocolError(f"the answer was cut: {error}") from error

    def release_conn(self) -> None:
        """Do nothing: the connection is its thread's, which uses it again when the answer was read to its end."""


class _Kept:
    """The connection of one thread."""

    def __init__(self, connection: HTTPConnection, timeout_s: float) -> None:
        self.connection, self.timeout_s = connection, timeout_s
        self.reply: Reply | None = None

    def ready(self) -> socket.socket:
        """Return the socket, connected anew unless the last answer was read to its end and the store is still there."""
        if self.connection.sock is not None:
            last = self.reply
            unread = last is not None and (last.will_close or not last.isclosed() or bool(last.length))
            # With nothing asked, all there can be to read is that the store has closed.
            if unread or wait_for_read(self.connection.sock, 0):
                self.drop()
        if self.connection.sock is None:
            self.connection.connect()
        sock: socket.socket = self.connection.sock
        sock.settimeout(self.timeout_s)
        return sock

    def drop(self) -> None:
        if self.reply is not None:
            self.reply.close()
        self.reply = None
        self.connection.close()


class Wire(urllib3.PoolManager):
    """Connections to one store, ``host:port``. ``timeout_s`` is of each wait for the network, in s."""

    def __init__(self, endpoint: str, tls: bool, timeout_s: float) -> None:
        super().__init__(num_pools=1)
        self._endpoint, self._timeout_s = endpoint, timeout_s
        self._tls = ssl.create_default_context() if tls else None
        self._own = threading.local()

    def urlopen(  # type: ignore[override]
        self,
        method: str,
        url: str,
        redirect: bool = True,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        preload_content: bool = True,
        **_: Any,
    ) -> Reply:
        """Make one request on this thread's connection.

        Raises OSError or ProtocolError when there is no whole answer.
        """
        kept: _Kept | None = getattr(self._own, "kept", None)
        if kept is None:
            kept = self._own.kept = _Kept(self._connection(), self._timeout_s)
        sock = kept.ready()
        try:
            _send(sock, _head(method, url, body, headers or {}), body)
            kept.reply = reply = Reply(sock, method=method)
            reply.begin()
            if preload_content:
                reply.read(cache_content=True)
                if reply.length:
                    raise HTTPException(f"the answer was cut: {reply.length} bytes are missing")
        except HTTPException as error:
            kept.drop()
            raise ProtocolError(str(error)) from error
        except BaseException:
            kept.drop()
            raise
        return reply

    def _connection(self) -> HTTPConnection:
        limit = min(CONNECT_S, self._timeout_s)
        if self._tls is not None:
            return HTTPSConnection(self._endpoint, timeout=limit, context=self._tls)
        return HTTPConnection(self._endpoint, timeout=limit)


def _head(method: str, url: str, body: bytes | None, headers: Mapping[str, str]) -> bytes:
    target = url.split("/", 3)[3]
    lines = [f"{method} /{target} HTTP/1.1", "Accept-Encoding: identity"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    if not body and method in ("PUT", "POST"):
        lines.append("Content-Length: 0")
    return "\r\n".join([*lines, "\r\n"]).encode("latin-1")


def _send(sock: socket.socket, head: bytes, body: bytes | None) -> None:
    try:
        if body is not None and len(body) > TOGETHER_BYTES:
            sock.sendall(head)
            sock.sendall(body)
        else:
            sock.sendall(head + (body or b""))
    except (BrokenPipeError, ConnectionResetError):
        # A store that refuses answers before it has read everything; what it says is worth more than the broken pipe.
        return
