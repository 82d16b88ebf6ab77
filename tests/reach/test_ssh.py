"""Real SSH servers, one misbehaviour each: the evidence says exactly that."""

from __future__ import annotations

import asyncio
import socket
import sys
import time

import asyncssh
import pytest

from fabric_health.evidence import Command, CommandStatus, ReachStatus
from fabric_health.reach import frames, probe

ADDRESS = "127.30.1.1"
TWO = (Command("first", ("show first",), 1.0, 2000), Command("second", ("show second",), 1.0, 2000))


async def test_a_switch_answers_each_command_on_its_own_channel(bench) -> None:
    seen = []

    async def handler(process) -> None:
        seen.append(process.command)
        process.stdout.write(b"answer to " + process.command.encode())
        process.stderr.write(b"note")
        process.exit(len(seen) - 1)

    async with bench.server(ADDRESS, handler):
        got = await bench.ask_one(bench.switch(ADDRESS, (*TWO, Command("third", ("show", "port", "1")))))
    assert (got.status, got.detail, got.unit_kind) == (ReachStatus.OK, "", "switch")
    assert seen == ["show first", "show second", "show port 1"]
    assert [(r.stdout, r.stderr, r.exit_code) for r in got.results] == [
        ("answer to show first", "note", 0),
        ("answer to show second", "note", 1),
        ("answer to show port 1", "note", 2),
    ]
    assert got.started_at <= got.results[0].started_at <= got.results[0].ended_at <= got.ended_at


async def test_a_node_answers_through_the_probe_in_one_round_trip(bench, behaviours) -> None:
    sessions = []

    async def handler(process) -> None:
        sessions.append(process.command)
        await behaviours["really_runs"](process)

    commands = (Command("hello", ("echo", "hello")), Command("none", ("no-such-tool",)), Command("w", ("wc", "-c")))
    async with bench.server(ADDRESS, handler):
        got = await bench.ask_one(bench.node(ADDRESS, commands, python=sys.executable, unit_timeout_s=20))
    assert got.status is ReachStatus.OK, got.detail
    assert len(sessions) == 1
    assert [r.status for r in got.results] == [
        CommandStatus.EXITED,
        CommandStatus.NOT_INSTALLED,
        CommandStatus.EXITED,
    ]
    assert got.results[0].stdout == "hello\n"
    assert got.started_at <= got.results[0].started_at <= got.results[2].ended_at <= got.ended_at


async def test_a_stuck_command_on_a_node_is_partial_and_the_others_are_kept(bench, behaviours) -> None:
    commands = (Command("a", ("echo", "1")), Command("stuck", ("sleep", "60"), 0.5), Command("b", ("echo", "2")))
    async with bench.server(ADDRESS, behaviours["really_runs"]):
        got = await bench.ask_one(bench.node(ADDRESS, commands, python=sys.executable, unit_timeout_s=20))
    assert got.status is ReachStatus.PARTIAL
    assert "stuck (timeout)" in got.detail
    assert [r.stdout for r in got.results] == ["1\n", "", "2\n"]


async def test_hanging_after_login(bench, behaviours) -> None:
    async with bench.server(ADDRESS, behaviours["hangs"]):
        began = time.monotonic()
        both = await bench.ask(bench.node(ADDRESS, unit_timeout_s=2), bench.switch(ADDRESS, TWO, unit_timeout_s=1.5))
        assert time.monotonic() - began < 6
    node, switch = both[f"node-{ADDRESS}"], both[f"sw-{ADDRESS}"]
    assert node.status is ReachStatus.HUNG
    assert "within 2 s; 0 of 1 commands had ended" in node.detail
    assert node.results[0].status is CommandStatus.NOT_RUN
    assert switch.status is ReachStatus.HUNG
    assert [r.status for r in switch.results] == [CommandStatus.TIMEOUT, CommandStatus.TIMEOUT]


async def test_one_hanging_command_of_a_switch_keeps_the_others(bench) -> None:
    async def handler(process) -> None:
        process.stdout.write(b"some text")
        if process.command == "show first":
            await process.channel.wait_closed()
        else:
            process.exit(0)

    async with bench.server(ADDRESS, handler):
        got = await bench.ask_one(bench.switch(ADDRESS, TWO))
    assert got.status is ReachStatus.PARTIAL
    assert [(r.status, r.stdout) for r in got.results] == [
        (CommandStatus.TIMEOUT, "some text"),
        (CommandStatus.EXITED, "some text"),
    ]


async def test_refusing(bench) -> None:
    got = await bench.ask_one(bench.switch(ADDRESS, TWO))
    assert got.status is ReachStatus.REFUSED
    assert f"{ADDRESS} port {bench.port}" in got.detail
    assert [r.status for r in got.results] == [CommandStatus.NOT_RUN] * 2


async def test_a_name_that_does_not_resolve_is_unreachable(bench) -> None:
    got = await bench.ask_one(bench.switch("no-such-host.invalid"))
    assert got.status is ReachStatus.UNREACHABLE


async def test_a_port_that_never_speaks_ssh_is_hung(bench) -> None:
    server = await asyncio.start_server(lambda r, w: None, ADDRESS, bench.port)
    async with server:
        got = await bench.ask_one(bench.switch(ADDRESS, connect_timeout_s=0.5))
    assert got.status is ReachStatus.HUNG
    assert "SSH login did not end" in got.detail


@pytest.mark.parametrize("greeting", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0" * 5000, b"SSH-1.5-old\r\n"])
async def test_a_port_that_speaks_something_else(bench, greeting: bytes) -> None:
    async def talk(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(greeting)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(talk, ADDRESS, bench.port):
        got = await bench.ask_one(bench.switch(ADDRESS, connect_timeout_s=1))
    assert got.status in (ReachStatus.MALFORMED, ReachStatus.CLOSED_EARLY)
    assert got.detail


async def test_a_wrong_host_key_is_refused_before_the_password_is_sent(bench, answering) -> None:
    asked = []

    class Curious(asyncssh.SSHServer):
        def begin_auth(self, username: str) -> bool:
            asked.append(username)
            return True

        def password_auth_supported(self) -> bool:
            return True

    bench.trust(ADDRESS, asyncssh.generate_private_key("ssh-ed25519"))
    listener = await asyncssh.listen(ADDRESS, bench.port, server_factory=Curious, server_host_keys=[bench.key])
    got = await bench.ask_one(bench.switch(ADDRESS))
    listener.close()
    assert got.status is ReachStatus.HOST_KEY_MISMATCH
    assert str(bench.known_hosts) in got.detail
    assert asked == []


async def test_an_unknown_host_is_not_added(bench, answering) -> None:
    async with bench.server(ADDRESS, answering(b"x"), trusted=False):
        got = await bench.ask_one(bench.switch(ADDRESS))
    assert got.status is ReachStatus.HOST_KEY_MISMATCH
    assert bench.known_hosts.read_text() == ""


async def test_a_wrong_password(bench, answering) -> None:
    bench.password = "wrong pony"
    async with bench.server(ADDRESS, answering(b"x")):
        got = await bench.ask_one(bench.switch(ADDRESS))
    assert got.status is ReachStatus.AUTH_FAILED
    assert "wrong pony" not in got.detail


async def test_a_connection_closed_in_the_middle(bench) -> None:
    async def handler(process) -> None:
        process.stdout.write(b"half an ans")
        await process.stdout.drain()
        process.channel.get_connection().abort()

    async with bench.server(ADDRESS, handler):
        both = await bench.ask(bench.switch(ADDRESS, TWO), bench.node(ADDRESS))
    switch, node = both[f"sw-{ADDRESS}"], both[f"node-{ADDRESS}"]
    assert switch.status is ReachStatus.CLOSED_EARLY
    assert [(r.status, r.stdout) for r in switch.results] == [
        (CommandStatus.TRUNCATED, "half an ans"),
        (CommandStatus.NOT_RUN, ""),
    ]
    assert node.status is ReachStatus.CLOSED_EARLY


async def test_a_polite_disconnect_in_the_middle_is_no_whole_answer(bench) -> None:
    async def handler(process) -> None:
        process.stdout.write(b"half an ans")
        await process.stdout.drain()
        process.channel.get_connection().disconnect(11, "going down")

    async with bench.server(ADDRESS, handler):
        got = await bench.ask_one(bench.switch(ADDRESS, TWO))
    assert got.status is ReachStatus.CLOSED_EARLY


async def test_half_a_frame(bench) -> None:
    async def handler(process) -> None:
        request = frames.read_script(await process.stdin.read())
        process.stdout.write(probe.frame(request.nonce, "begin", {}))
        done = probe.result(0, "exited", 0, ("kept", ""), (0, 0))
        process.stdout.write(probe.frame(request.nonce, "result", done))
        process.stdout.write(probe.frame(request.nonce, "result", done)[:40])
        process.exit(0)

    commands = tuple(Command(n, (n,)) for n in "abc")
    async with bench.server(ADDRESS, handler):
        got = await bench.ask_one(bench.node(ADDRESS, commands))
    assert got.status is ReachStatus.CLOSED_EARLY
    assert "1 of 3" in got.detail
    assert [r.status for r in got.results] == [CommandStatus.EXITED, CommandStatus.TRUNCATED, CommandStatus.NOT_RUN]
    assert got.results[0].stdout == "kept"


async def test_a_flood_is_not_read_to_its_end(bench) -> None:
    sent = 0

    async def handler(process) -> None:
        nonlocal sent
        while not process.channel.is_closing():
            process.stdout.write(b"x" * 65536)
            sent += 65536
            await process.stdout.drain()

    async with bench.server(ADDRESS, handler):
        got = await bench.ask_one(bench.switch(ADDRESS, TWO))
    assert got.status is ReachStatus.FLOODED
    assert got.results[0].status is CommandStatus.TRUNCATED
    assert len(got.results[0].stdout) == 2000
    assert got.results[1].status is CommandStatus.NOT_RUN
    assert sent < 64 << 20


async def test_a_flooding_node(bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fabric_health.reach.channels.MAX_UNIT_BYTES", 100_000)

    async def handler(process) -> None:
        while not process.channel.is_closing():
            process.stdout.write(b"no line break " * 5000)
            await process.stdout.drain()

    async with bench.server(ADDRESS, handler):
        got = await bench.ask_one(bench.node(ADDRESS))
    assert got.status is ReachStatus.FLOODED


async def test_empty_answers_are_asked_twice_and_then_said(bench) -> None:
    asked = []

    async def handler(process) -> None:
        asked.append(process.command)
        if asked.count(process.command) == 2 and process.command == "show second":
            process.stdout.write(b"now it speaks")
        process.exit(0)

    third = Command("third", ("show third",), optional=True)
    async with bench.server(ADDRESS, handler):
        both = await bench.ask_one(bench.switch(ADDRESS, (*TWO, third)))
        only = await bench.ask_one(bench.switch(ADDRESS, TWO[:1]))
    assert both.status is ReachStatus.PARTIAL
    assert both.detail == ("first: succeeded twice with an empty answer; third: succeeded twice with an empty answer")
    assert [r.stdout for r in both.results] == ["", "now it speaks", ""]
    assert only.status is ReachStatus.EMPTY


async def test_no_interpreter(bench, answering) -> None:
    async def handler(process) -> None:
        process.stderr.write(b"bash: line 1: python3: command not found\n")
        process.exit(127)

    async with bench.server(ADDRESS, handler):
        got = await bench.ask_one(bench.node(ADDRESS))
    assert got.status is ReachStatus.NO_INTERPRETER
    assert "python3" in got.detail


async def test_a_node_that_answers_nothing_is_empty(bench, answering) -> None:
    async with bench.server(ADDRESS, answering(b"")):
        got = await bench.ask_one(bench.node(ADDRESS))
    assert got.status is ReachStatus.EMPTY


async def test_a_missing_exit_status_is_no_fault(bench, answering) -> None:
    async with bench.server(ADDRESS, answering(b"fine", code=None)):
        got = await bench.ask_one(bench.switch(ADDRESS, TWO))
    assert got.status is ReachStatus.OK
    assert [(r.status, r.exit_code, r.stdout) for r in got.results] == [(CommandStatus.EXITED, None, "fine")] * 2


async def test_control_characters_are_never_sent(bench, answering) -> None:
    sneaky = Command("sneaky", ("show", "version\nreload"))
    async with bench.server(ADDRESS, answering(b"fine")):
        got = await bench.ask_one(bench.switch(ADDRESS, (sneaky, *TWO)))
    assert got.status is ReachStatus.PARTIAL
    assert "control characters" in got.detail
    assert [r.status for r in got.results] == [CommandStatus.NOT_RUN, CommandStatus.EXITED, CommandStatus.EXITED]


async def test_sessions_that_are_refused(bench) -> None:
    class NoSessions(asyncssh.SSHServer):
        def begin_auth(self, username: str) -> bool:
            return False

        def session_requested(self) -> bool:
            return False

    bench.trust(ADDRESS)
    listener = await asyncssh.listen(ADDRESS, bench.port, server_factory=NoSessions, server_host_keys=[bench.key])
    got = await bench.ask_one(bench.switch(ADDRESS))
    listener.close()
    assert got.status is ReachStatus.CLOSED_EARLY
    assert "no session" in got.detail


async def test_through_a_jump_host(bench, answering) -> None:
    jump = "127.30.9.9"
    async with bench.server(jump, answering(b"")), bench.server(ADDRESS, answering(b"behind the wall")):
        both = await bench.ask(
            bench.switch(ADDRESS, jump="jump"), bench.switch("127.30.1.2", jump="jump", connect_timeout_s=1)
        )
    assert both[f"sw-{ADDRESS}"].status is ReachStatus.OK
    assert both[f"sw-{ADDRESS}"].results[0].stdout == "behind the wall"
    assert both["sw-127.30.1.2"].status in (ReachStatus.REFUSED, ReachStatus.UNREACHABLE)
    assert "jump host" in both["sw-127.30.1.2"].detail


async def test_a_jump_host_that_is_down_is_named(bench) -> None:
    got = await bench.ask_one(bench.switch(ADDRESS, jump="jump"))
    assert got.status is ReachStatus.UNREACHABLE
    assert "jump host 127.30.9.9" in got.detail


async def test_a_peer_that_vanishes_without_a_word_is_noticed(bench) -> None:
    """A proxy that stops forwarding stands for a machine whose power went."""
    frozen = asyncio.Event()

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(4096):
            if frozen.is_set():
                await asyncio.sleep(30)
            writer.write(data)

    async def splice(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.30.1.3", bench.port)
        await asyncio.wait(
            [asyncio.ensure_future(forward(reader, far_writer)), asyncio.ensure_future(forward(far_reader, writer))],
            return_when=asyncio.FIRST_COMPLETED,
        )

    async def handler(process) -> None:
        frozen.set()
        await process.channel.wait_closed()

    bench.trust(ADDRESS)
    slow = (Command("slow", ("show slow",), 60.0),)
    async with bench.server("127.30.1.3", handler), await asyncio.start_server(splice, ADDRESS, bench.port):
        began = time.monotonic()
        got = await bench.ask_one(bench.switch(ADDRESS, slow, unit_timeout_s=6))
        assert time.monotonic() - began < 5.5, "noticed before the unit's time was over"
        frozen.clear()
    assert got.status is ReachStatus.CLOSED_EARLY
    assert got.results[0].status is CommandStatus.TRUNCATED


def test_the_bench_port_is_ours(bench) -> None:
    with socket.socket() as s:
        s.bind((ADDRESS, bench.port))
