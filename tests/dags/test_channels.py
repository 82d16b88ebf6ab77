"""Webhooks and mail through Airflow's connections: real servers, that are away, wrong, or hostile."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes
from email.header import decode_header, make_header
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

SECRET = "T000/B000/canaryCanaryCanary"

DELIVER = """
import json, logging, os, sys
logging.basicConfig(stream=sys.stdout, level=logging.DEBUG)
from fabric_health.airflow import channels
from fabric_health.errors import UsageError
from fabric_health.notice import Notice
channels.PAUSES_S, channels.TIMEOUT_S = (0.01, 0.01), 1.0
notice = Notice(**json.loads(os.environ["NOTICE"]))
done = channels.deliver(tuple(os.environ["CHANNELS"].split()), notice)
print("RESULT", json.dumps({d.connection: d.problem for d in done}))
for ids, when in json.loads(os.environ["CASES"]):
    os.environ["FABRIC_HEALTH_NOTIFY"], os.environ["FABRIC_HEALTH_NOTIFY_WHEN"] = ids, when
    try:
        print("RESULT", json.dumps([channels.channel_ids(), channels.when_to_tell()]))
    except UsageError as error:
        print("RESULT", json.dumps(str(error)))
"""

NOTICE = {
    "site": "lab",
    "run": "run-1",
    "dag": "weekly",
    "origin": "measured",
    "answer": "FINDINGS",
    "headline": "1 finding: <!channel> & friends.",
    "verdict": "REGRESSED",
    "ticket": "CHG\r\nBcc: everyone@example.org",
}


SETTINGS = [
    ("", ""),
    (" slack, ,mail,slack ", "always"),
    ("https://hooks.example.org/x", ""),
    (",".join(f"c{n}" for n in range(9)), ""),
    ("slack", "now and then"),
]


@dataclass
class Servers:
    """What the servers were sent: (path, body) of each POST, and (sender, recipients, message) of each mail."""

    http: int = 0
    smtp: int = 0
    posts: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    mails: list[tuple[str, list[str], bytes]] = field(default_factory=list)
    asked: dict[str, int] = field(default_factory=dict)


class Handler(BaseHTTPRequestHandler):
    """Answers by the first part of the path: a code, `flaky` (503 once, then 200), or `silent` (nothing for long)."""

    servers: Servers
    done: threading.Event

    def do_POST(self) -> None:
        how = self.path.split("/")[1]
        seen = self.servers.asked[how] = self.servers.asked.get(how, 0) + 1
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if how == "silent":
            self.done.wait(10)
            return
        code = (503 if seen == 1 else 200) if how == "flaky" else int(how)
        if code == 200:
            self.servers.posts.append((self.path, body))
        self.send_response(code, "no thanks" if code >= 400 else "ok")
        if code == 302:
            self.send_header("Location", f"http://127.0.0.1:{self.server.server_port}/200/{SECRET}")
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_GET = do_POST

    def log_message(self, *args: object) -> None:
        pass


async def _smtp(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, servers: Servers) -> None:
    """Speak as much SMTP (RFC 5321) as one mail takes; `refused@` is no recipient here, `later@` not now."""
    sender, to = "", []
    writer.write(b"220 test\r\n")
    while line := await reader.readline():
        verb, rest = line[:4].upper(), line.decode().strip()
        reply = b"250 ok"
        if verb == b"MAIL":
            sender, to = rest[10:].split(">")[0].strip("<"), []
        elif verb == b"RCPT":
            to.append(rest[8:].strip("<>"))
            if to[-1].startswith("refused@"):
                reply = b"550 no such user"
        elif verb == b"DATA":
            writer.write(b"354 go on\r\n")
            body = b""
            while (part := await reader.readline()) != b".\r\n":
                body += part
            if to[0].startswith("later@"):
                reply = b"451 try again later"
            else:
                servers.mails.append((sender, to, body))
        elif verb == b"QUIT":
            reply = b"221 bye"
        writer.write(reply + b"\r\n")
        await writer.drain()
    writer.close()


@contextmanager
def _serving_mail(servers: Servers) -> Iterator[None]:
    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(asyncio.start_server(lambda r, w: _smtp(r, w, servers), "127.0.0.1", 0))
    servers.smtp = server.sockets[0].getsockname()[1]
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        server.close()
        loop.close()


@contextmanager
def _serving_http(servers: Servers) -> Iterator[None]:
    done = threading.Event()
    handler = type("Bound", (Handler,), {"servers": servers, "done": done})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    servers.http = server.server_port
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield
    finally:
        done.set()
        server.shutdown()
        thread.join()
        server.server_close()


def _closed_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def webhook(path: str, port: int, **more: object) -> dict[str, object]:
    entry: dict[str, object] = {
        "conn_type": "http",
        "schema": "http",
        "host": f"127.0.0.1/{path}",
        "port": port,
        "password": SECRET,
    }
    return {**entry, **more}


def mail(port: int, to: object, **extra: object) -> dict[str, object]:
    settings = {"from_email": "fabric-health@example.org", "to": to, "disable_ssl": True, "disable_tls": True, **extra}
    return {"conn_type": "smtp", "host": "127.0.0.1", "port": port, "extra": settings}


def entries(servers: Servers) -> dict[str, dict[str, object]]:
    http, smtp, closed = servers.http, servers.smtp, _closed_port()
    return {
        "takes": webhook("200", http),
        "slack": webhook("200", 1, conn_type="slackwebhook", host=f"http://127.0.0.1:{http}/200"),
        "flaky": webhook("flaky", http),
        "missing": webhook("404", http),
        "broken": webhook("500", http),
        "moved": webhook("302", http),
        "silent": webhook("silent", http),
        "closed": webhook("200", closed),
        "no_host": webhook("200", http, host=""),
        "odd_host": webhook("200", http, host="http://[::1/" + SECRET),
        "odd_path": webhook("200", http, password=SECRET + "\r\nX-Injected: 1"),
        "other_kind": webhook("200", http, conn_type="ftp"),
        "mails": mail(smtp, "ops@example.org; net@example.org"),
        "mails_list": mail(smtp, ["list@example.org"]),
        "refused": mail(smtp, "refused@example.org"),
        "later": mail(smtp, "later@example.org"),
        "no_to": mail(smtp, ""),
        "odd_to": mail(smtp, "ops@example.org\r\nBcc: x@example.org"),
        "no_from": mail(smtp, "ops@example.org", from_email=""),
        "mail_closed": mail(closed, "ops@example.org"),
        "mail_no_tls": mail(smtp, "ops@example.org", disable_ssl=False),
    }


@dataclass
class Delivered:
    servers: Servers
    problems: dict[str, str | None]
    settings: list[object]
    printed: str


@pytest.fixture(scope="module")
def delivered(python_in, migrated) -> Delivered:
    """One notice to twenty channels and one that does not exist, in one real Airflow process."""
    servers = Servers()
    with _serving_mail(servers), _serving_http(servers):
        made = entries(servers)
        out = python_in(
            DELIVER,
            NOTICE=json.dumps(NOTICE),
            CASES=json.dumps(SETTINGS),
            CHANNELS=" ".join([*made, "undefined"]),
            NO_PROXY="127.0.0.1",
            **{f"AIRFLOW_CONN_{name.upper()}": json.dumps(entry) for name, entry in made.items()},
        )
    results = [json.loads(x.removeprefix("RESULT ")) for x in out.splitlines() if x.startswith("RESULT ")]
    return Delivered(servers, results[0], results[1:], out)


PROBLEMS = {
    "takes": None,
    "slack": None,
    "flaky": None,
    "missing": "the webhook answers with HTTP 404",
    "broken": "the webhook answers with HTTP 500",
    "moved": "the webhook answers with HTTP 302",
    "silent": "no answer from the webhook: none within 1 s",
    "closed": "no answer from the webhook: Connection refused",
    "no_host": "connection 'no_host' has no usable address; expected a host such as",
    "odd_host": "connection 'odd_host' has no usable address; expected a host such as",
    "odd_path": "connection 'odd_path': characters that no URL may hold",
    "other_kind": "connection 'other_kind' is of type 'ftp'; expected http or slackwebhook for a webhook, smtp",
    "mails": None,
    "mails_list": None,
    "refused": "the mail server refuses the recipients",
    "later": "the mail server answers 451",
    "no_to": "connection 'no_to': extra.to; expected mail addresses",
    "odd_to": "connection 'odd_to': extra.to; expected mail addresses",
    "no_from": "connection 'no_from': extra.from_email; expected the sender's address",
    "mail_closed": "no answer from the mail server: Connection refused",
    "mail_no_tls": "no answer from the mail server: ",
    "undefined": "Airflow has no connection 'undefined'",
}


@pytest.mark.parametrize("channel", PROBLEMS)
def test_each_channel_is_told_or_says_why_not(delivered: Delivered, channel: str) -> None:
    problem, expected = delivered.problems[channel], PROBLEMS[channel]
    assert problem is None if expected is None else str(problem).startswith(expected)


def test_every_channel_was_tried(delivered: Delivered) -> None:
    assert set(delivered.problems) == set(PROBLEMS)


def test_only_what_may_pass_is_tried_again(delivered: Delivered) -> None:
    asked = delivered.servers.asked
    assert asked == {"200": 2, "flaky": 2, "404": 1, "500": 3, "302": 1, "silent": 3}


def test_a_webhook_gets_escaped_text_at_its_secret_address(delivered: Delivered) -> None:
    (path, body), *others = delivered.servers.posts
    assert path == f"/200/{SECRET}"
    assert set(body) == {"text"}
    assert body["text"].startswith("lab: REGRESSED (FINDINGS) · CHG Bcc: everyone@example.org\n")
    assert "&lt;!channel&gt; &amp; friends" in body["text"]
    assert [p for p, _ in others] == [f"/200/{SECRET}", f"/flaky/{SECRET}"]


def test_a_mail_has_one_subject_and_the_recipients_of_the_connection(delivered: Delivered) -> None:
    (sender, to, body), (_, listed, _) = delivered.servers.mails
    assert (sender, to) == ("fabric-health@example.org", ["ops@example.org", "net@example.org"])
    assert listed == ["list@example.org"]
    message = message_from_bytes(body)
    assert message["Bcc"] is None
    subject = str(make_header(decode_header(message["Subject"])))
    assert " ".join(subject.split()) == "[fabric-health] lab: REGRESSED (FINDINGS) · CHG Bcc: everyone@example.org"
    html = message.get_payload()[0].get_payload(decode=True).decode()
    assert "&lt;!channel&gt; &amp; friends" in html


def test_nothing_secret_is_printed(delivered: Delivered) -> None:
    assert "not told: missing: the webhook answers with HTTP 404" in delivered.printed
    assert "canary" not in delivered.printed.lower()


def test_settings(delivered: Delivered) -> None:
    none, two, url, many, when = delivered.settings
    assert none == [[], "not_healthy"]
    assert two == [["slack", "mail"], "always"]
    assert url == "FABRIC_HEALTH_NOTIFY: expected ids of Airflow connections, separated by commas"
    assert many == "FABRIC_HEALTH_NOTIFY: 9 connections; expected 8 at most"
    assert str(when).startswith("FABRIC_HEALTH_NOTIFY_WHEN: 'now and then'; expected one of always")
