"""The load's own HTTP: well-formed answers in every shape, and that no other one passes for an answer."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from urllib3.exceptions import ProtocolError

from fabric_health.workloads.s3_bench.client import FAILURES, Store, WrongContentError, mark
from fabric_health.workloads.s3_bench.options import read
from fabric_health.workloads.s3_bench.wire import MAX_HEADERS, MAX_LINE_BYTES, Reply, Wire

OK = b"HTTP/1.1 200 OK\r\n"


class Peer:
    """A server that answers each request, whatever it is, with the next of its answers; None closes."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.answers: list[bytes | None] = []
        self.asked: list[bytes] = []
        self.connections = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                line, _ = self.listener.accept()
            except OSError:
                return
            self.connections += 1
            with line:
                self._serve(line)

    def _serve(self, line: socket.socket) -> None:
        try:
            while head := line.recv(1 << 16):
                self.asked.append(head)
                answer = self.answers.pop(0)
                if answer is None:
                    return
                line.sendall(answer)
                if b"cut" in answer or b"onnection: close" in answer or answer.startswith(b"HTTP/1.0"):
                    return
        except (OSError, IndexError):
            return


@pytest.fixture
def peer() -> Iterator[Peer]:
    server = Peer()
    yield server
    server.listener.close()


def ask(wire: Wire, peer: Peer, method: str = "GET", body: bytes | None = None) -> Reply:
    return wire.urlopen(method, f"http://{peer.endpoint}/b/o?x=1", body=body, headers={"Host": "h", "A": "1"})


def test_one_connection_serves_all_requests_of_a_thread(peer: Peer) -> None:
    chunked = b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n"
    peer.answers = [
        OK + b"Content-Length: 5\r\nX-A: 1\r\nx-a: 2\r\n\r\nabcde",
        OK + chunked,
        b"HTTP/1.1 100 Continue\r\n\r\n" + OK + b"content-length: 5\n\nabcde",
        b"HTTP/1.1 204 No Content\r\n\r\n",
        OK + b"Content-Length: 1234\r\n\r\n",
    ]
    wire = Wire(peer.endpoint, tls=False, timeout_s=5)
    first = ask(wire, peer)
    assert (first.status, first.data, first.headers["X-a"]) == (200, b"abcde", "1, 2")
    assert ask(wire, peer).data == b"abcde"
    assert ask(wire, peer, "PUT", b"body").data == b"abcde"
    assert ask(wire, peer, "DELETE").status == 204
    head = ask(wire, peer, "HEAD")
    assert (head.data, head.headers["content-length"]) == (b"", "1234")
    assert peer.connections == 1
    assert peer.asked[0] == b"GET /b/o?x=1 HTTP/1.1\r\nAccept-Encoding: identity\r\nHost: h\r\nA: 1\r\n\r\n"


def test_a_connection_that_cannot_be_used_again_is_not(peer: Peer) -> None:
    whole = OK + b"Content-Length: 2\r\n\r\nok"
    peer.answers = [
        OK + b"Content-Length: 2\r\nConnection: close\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\n\r\nok",
        OK + b"Content-Length: 100000\r\n\r\n" + bytes(100000),
        whole,
    ]
    wire = Wire(peer.endpoint, tls=False, timeout_s=5)
    assert ask(wire, peer).data == b"ok"
    assert ask(wire, peer).data == b"ok"
    unread = wire.urlopen("GET", f"http://{peer.endpoint}/", preload_content=False)
    assert unread.at_hand(1) == b"\0"
    unread.close()  # so that the peer need not send the rest
    assert ask(wire, peer).data == b"ok"
    assert peer.connections == 4


def test_an_empty_body_says_its_length(peer: Peer) -> None:
    peer.answers = [OK + b"Content-Length: 0\r\n\r\n"] * 2
    wire = Wire(peer.endpoint, tls=False, timeout_s=5)
    ask(wire, peer, "POST")
    ask(wire, peer, "GET")
    assert [b"Content-Length: 0" in head for head in peer.asked] == [True, False]


@pytest.mark.parametrize(
    "answer",
    [
        None,
        b"cut",
        b"SSH-2.0-cut\r\n",
        b"HTTP/1.1 2xx cut\r\n\r\n",
        b"HTTP/1.1 200 cut\r\nContent-Length: 10\r\n\r\nshort",
        b"HTTP/1.1 200 cut\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 cut\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 cut\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
        b"HTTP/1.1 200 cut\r\n" + b"A: " + b"x" * MAX_LINE_BYTES + b"\r\n\r\n",
        b"HTTP/1.1 200 cut\r\n" + b"A: b\r\n" * (MAX_HEADERS + 1) + b"\r\n",
    ],
)
def test_what_is_no_whole_answer_is_a_failure_and_the_next_request_is_not_harmed(
    peer: Peer, answer: bytes | None
) -> None:
    peer.answers = [answer, OK + b"Content-Length: 2\r\n\r\nok"]
    wire = Wire(peer.endpoint, tls=False, timeout_s=5)
    with pytest.raises((ProtocolError, OSError)):
        ask(wire, peer)
    assert ask(wire, peer).data == b"ok"


def test_a_store_that_does_not_answer_is_given_up(peer: Peer) -> None:
    peer.answers = [b"HTTP/1.1 200 OK\r\n"]
    with pytest.raises(TimeoutError):
        ask(Wire(peer.endpoint, tls=False, timeout_s=0.2), peer)


def store(peer: Peer, size: int = 1000) -> Store:
    argv = ["--load=get", f"--object-bytes={size}", "--bucket=bbb", "--name=n", "--region=us-east-1", "--timeout-s=5"]
    return Store(read(argv, {"S3_ACCESS_KEY": "a", "S3_SECRET_KEY": "s", "S3_ENDPOINT": peer.endpoint}))


def test_the_first_byte_is_the_first_and_not_the_first_buffer(peer: Peer) -> None:
    body = (mark("o") + bytes(1000))[:1000]
    peer.answers = [OK + b"Content-Length: 1000\r\n\r\n" + body]
    found = store(peer).get("o")
    assert (found.moved, found.first_byte is not None) == (1000, True)
    slow = Reply(_trickle(), "GET")
    slow.begin()
    assert slow.at_hand(32) == b"a"


def _trickle() -> socket.socket:
    """Return a connection on which one byte of a body of 1000 has come, and no more will."""
    ours, theirs = socket.socketpair()
    theirs.sendall(OK + b"Content-Length: 1000\r\n\r\na")
    ours.settimeout(5)
    _open.append(theirs)
    return ours


_open: list[socket.socket] = []


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (OK + b"Content-Length: 999\r\n\r\n" + (mark("o") + bytes(1000))[:999], WrongContentError),
        (OK + b"Content-Length: 1000\r\n\r\n" + bytes(1000), WrongContentError),
        (OK + b"Content-Length: 0\r\n\r\n", WrongContentError),
        (OK.replace(b"OK", b"cut") + b"Content-Length: 1000\r\n\r\n" + mark("o"), WrongContentError),
        (b"HTTP/1.1 500 No\r\nContent-Type: application/xml\r\nContent-Length: 8\r\n\r\n<not off", FAILURES),
        (b"HTTP/1.1 503 No\r\nContent-Type: text/html\r\nContent-Length: 4\r\n\r\nbusy", FAILURES),
    ],
)
def test_a_bad_read_is_one_failure(
    peer: Peer, answer: bytes, error: type[Exception] | tuple[type[Exception], ...]
) -> None:
    peer.answers = [answer, OK + b"Content-Length: 1000\r\n\r\n" + (mark("o") + bytes(1000))[:1000]]
    client = store(peer)
    with pytest.raises(error):
        client.get("o")
    assert client.get("o").moved == 1000


PIECES = st.sampled_from([
    b"HTTP/1.1 ", b"HTTP/1.0 200\r\n", b"200 OK\r\n", b"500 x\r\n", b"100 \r\n\r\n", b"Content-Length: 5\r\n", b"\r\n",
    b"Content-Length: -1\r\n", b"Transfer-Encoding: chunked\r\n", b"5\r\nabcde\r\n0\r\n\r\n", b"abcde", b":", b"-5\r\n",
    b"Content-Length: \xb2\r\n", b"Content-Type: application/xml\r\n", b"<Error/>",
])  # fmt: skip
ANSWERS = st.one_of(st.binary(max_size=200), st.lists(PIECES, max_size=8).map(b"".join))
READS: list[Callable[[Store], object]] = [
    lambda s: s.get("o"), lambda s: s.stat("o"), lambda s: s.put("o"), lambda s: s.delete("o"),
]  # fmt: skip


@settings(max_examples=60)
@given(ANSWERS, st.sampled_from(READS))
def test_no_answer_ends_a_thread(answer: bytes, make: Callable[[Store], object]) -> None:
    peer = Peer()
    peer.answers = [answer + b"\r\nConnection: close\r\n"]
    try:
        make(store(peer, 5))
    except FAILURES:
        pass
    finally:
        peer.listener.close()
