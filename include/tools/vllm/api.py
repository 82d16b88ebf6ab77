"""Calls to the server on this machine: every one bounded in time and in bytes."""

from __future__ import annotations

import http.client
import json
import socket
import time
from typing import Any

HOST = "127.0.0.1"
MAX_BYTES = 64 * 1024 * 1024


class ApiError(Exception):
    """The server did not answer as it should; the message says what was asked and what came back."""


def get(port: int, path: str, limit_s: float) -> bytes:
    """Return the body of ``GET path``. Raises ApiError."""
    return _call(port, "GET", path, None, limit_s)


def get_json(port: int, path: str, limit_s: float) -> Any:
    """Return what ``GET path`` answers in JSON. Raises ApiError."""
    return _decoded(path, get(port, path, limit_s))


def post(port: int, path: str, body: dict[str, Any], limit_s: float) -> Any:
    """Return what ``POST path`` answers in JSON to ``body``. Raises ApiError."""
    return _decoded(path, _call(port, "POST", path, json.dumps(body).encode(), limit_s))


def listening(port: int) -> bool:
    """Tell whether anything accepts connections on ``port`` of this machine."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as s:
        s.settimeout(1.0)
        return s.connect_ex((HOST, port)) == 0


def free_port() -> int:
    """Return a port that nobody listens on at this moment."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as s:
        s.bind((HOST, 0))
        return int(s.getsockname()[1])


def _call(port: int, method: str, path: str, body: bytes | None, limit_s: float) -> bytes:
    until = time.monotonic() + limit_s
    connection = http.client.HTTPConnection(HOST, port, timeout=max(0.01, limit_s))
    try:
        headers = {"Content-Type": "application/json", "Connection": "close"}
        connection.request(method, path, body=body, headers=headers)
        answer = connection.getresponse()
        got = _read(answer, until, path)
    except (OSError, http.client.HTTPException) as error:
        raise ApiError(f"{method} {path}: {type(error).__name__}: {error}") from None
    finally:
        connection.close()
    if answer.status != 200:
        raise ApiError(f"{method} {path}: HTTP {answer.status}: {got[:300].decode('utf-8', 'replace')}")
    return got


def _read(answer: http.client.HTTPResponse, until: float, path: str) -> bytes:
    """Read a body to its end. A server that sends a byte now and then is stopped by the clock all the same."""
    parts, size = [], 0
    while part := answer.read1(1 << 16):
        parts.append(part)
        size += len(part)
        if size > MAX_BYTES:
            raise ApiError(f"{path}: the answer is longer than {MAX_BYTES} bytes")
        if time.monotonic() > until:
            raise ApiError(f"{path}: no complete answer in time")
    return b"".join(parts)


def _decoded(path: str, body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise ApiError(f"{path}: the answer is not JSON: {body[:200].decode('utf-8', 'replace')}") from None
