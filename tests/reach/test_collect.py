"""Many units at once: nobody waits for those that hang, and one evidence comes for each."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
import time
from pathlib import Path

import pytest

from fabric_health.errors import ConnectionSettingError
from fabric_health.evidence import Command, ReachStatus, UnitEvidence
from fabric_health.reach import UnitRequest, collect, collect_async
from fabric_health.reach.slots import Slots
from fabric_health.site import Node, ReachProfile, Sku, Switch

SKU = Sku(gpu_model="none", gpus=0, link_layer="Ethernet", nic_rate_gbps=1)


def here(name: str, *commands: Command, **changes: object) -> UnitRequest:
    profile = ReachProfile.model_validate({"kind": "local", "python": sys.executable, **changes})
    return UnitRequest(Node(name, "sku", SKU, "r1", "127.0.0.1", profile), "driver_firmware", commands)


def no_connections(conn_id: str):
    raise ConnectionSettingError(f"no connection {conn_id}")


def test_this_machine_answers_through_the_same_probe() -> None:
    got: list[UnitEvidence] = []
    request = here("n1", Command("uname", ("uname", "-s")), Command("false", ("false",)))
    collect([request], no_connections, got.append)
    assert [e.status for e in got] == [ReachStatus.OK]
    assert [(r.stdout, r.exit_code) for r in got[0].results] == [("Linux\n", 0), ("", 1)]


def test_this_machine_without_the_interpreter() -> None:
    got: list[UnitEvidence] = []
    collect([here("n1", Command("x", ("true",)), python="/no/such/python")], no_connections, got.append)
    assert got[0].status is ReachStatus.NO_INTERPRETER


def test_this_machine_is_asked_by_the_interpreter_that_runs_us_unless_the_site_names_one(monkeypatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    node = Node("n1", "sku", SKU, "r1", "127.0.0.1", ReachProfile(kind="local"))
    got: list[UnitEvidence] = []
    collect([UnitRequest(node, "driver_firmware", (Command("true", ("true",)),))], no_connections, got.append)
    assert got[0].results[0].exit_code == 0


def test_this_machine_hanging_leaves_no_process(tmp_path) -> None:
    pid_file = tmp_path / "pid"
    stuck = Command("stuck", ("sh", "-c", f"echo $$ > {pid_file}; exec sleep 60"), 60)
    fake = tmp_path / "python"
    fake.write_text(f"#!/bin/sh\ncat >/dev/null\necho $$ > {pid_file}\nexec sleep 60\n")
    fake.chmod(0o755)
    got: list[UnitEvidence] = []
    collect([here("n1", stuck, python=str(fake), unit_timeout_s=1)], no_connections, got.append)
    assert got[0].status is ReachStatus.HUNG
    assert not Path(f"/proc/{pid_file.read_text().strip()}").exists()


def test_nothing_to_ask() -> None:
    collect([], no_connections, lambda _e: pytest.fail("nobody was asked"))


def test_a_bad_connection_stops_everything_before_it_starts() -> None:
    profile = ReachProfile(connection="missing")
    remote = UnitRequest(Switch("sw", "eos", "leaf", None, "127.0.0.1", profile, None), "switch_config", ())
    with pytest.raises(ConnectionSettingError, match="no connection missing"):
        collect([here("n1", Command("x", ("true",))), remote], no_connections, lambda _e: pytest.fail("it started"))


def test_a_switch_is_never_this_machine() -> None:
    profile = ReachProfile(kind="local")
    request = UnitRequest(Switch("sw", "eos", "leaf", None, "127.0.0.1", profile, None), "switch_config", ())
    with pytest.raises(ConnectionSettingError, match="sw: a switch"):
        collect([request], no_connections, lambda _e: None)


async def test_fifty_units_of_which_ten_hang(bench, answering, behaviours) -> None:
    addresses = [f"127.30.2.{i}" for i in range(1, 51)]
    hanging = set(addresses[::5])
    ended: dict[str, float] = {}
    async with contextlib.AsyncExitStack() as stack:
        for a in addresses:
            handler = behaviours["hangs"] if a in hanging else answering(b"fine")
            await stack.enter_async_context(bench.server(a, handler))
        commands = (Command("version", ("show version",), 60.0),)
        began = time.monotonic()
        await collect_async(
            [bench.switch(a, commands, unit_timeout_s=5, concurrency=16) for a in addresses],
            bench.source,
            lambda e: ended.update({e.unit: time.monotonic() - began}),
        )
        wall = time.monotonic() - began
    healthy = [t for u, t in ended.items() if u.removeprefix("sw-") not in hanging]
    assert len(ended) == 50
    assert wall <= max(healthy) + 5 + 1.0, "the slowest healthy unit plus the limit of a unit"
    assert max(healthy) < 5, "no healthy unit waited for a hanging one"


async def test_more_hanging_units_than_places_do_not_block_the_rest(bench, answering, behaviours, monkeypatch) -> None:
    monkeypatch.setattr("fabric_health.reach.collection.QUIET_S", 0.3)
    addresses = [f"127.30.3.{i}" for i in range(1, 9)]
    ended: dict[str, float] = {}
    async with contextlib.AsyncExitStack() as stack:
        for a in addresses:
            handler = answering(b"fine") if a == addresses[-1] else behaviours["hangs"]
            await stack.enter_async_context(bench.server(a, handler))
        commands = (Command("version", ("show version",), 60.0),)
        began = time.monotonic()
        await collect_async(
            [bench.switch(a, commands, unit_timeout_s=4, concurrency=2) for a in addresses],
            bench.source,
            lambda e: ended.update({e.unit: time.monotonic() - began}),
        )
    assert ended[f"sw-{addresses[-1]}"] < 3.5, "seven hanging units before it, two places, limit 4 s each"


async def test_slow_storage_does_not_stop_the_clocks_and_is_never_called_twice_at_once(bench, answering) -> None:
    addresses = [f"127.30.4.{i}" for i in range(1, 4)]
    busy = threading.Lock()

    def store(_evidence: UnitEvidence) -> None:
        assert busy.acquire(blocking=False)
        time.sleep(0.5)
        busy.release()

    async with contextlib.AsyncExitStack() as stack:
        for a in addresses:
            await stack.enter_async_context(bench.server(a, answering(b"fine")))
        ticks = asyncio.ensure_future(_ticks())
        await collect_async([bench.switch(a) for a in addresses], bench.source, store)
        ticks.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await ticks


async def _ticks() -> None:
    while True:
        before = time.monotonic()
        await asyncio.sleep(0.01)
        assert time.monotonic() - before < 0.4, "the event loop was held up"


async def test_what_storage_raises_ends_the_collection(bench, answering, behaviours) -> None:
    def store(_evidence: UnitEvidence) -> None:
        raise OSError("the store is gone")

    async with bench.server("127.30.5.1", answering(b"x")), bench.server("127.30.5.2", behaviours["hangs"]):
        began = time.monotonic()
        requests = [bench.switch("127.30.5.1"), bench.switch("127.30.5.2")]
        with pytest.raises(OSError, match="the store is gone"):
            await collect_async(requests, bench.source, store)
        assert time.monotonic() - began < 3


async def test_a_quiet_unit_keeps_its_place_when_too_many_are_quiet_already() -> None:
    slots = Slots(concurrency=1, quiet_limit=0, quiet_s=0.05)
    order: list[str] = []

    async def one(name: str, seconds: float) -> None:
        async with slots.one():
            await asyncio.sleep(seconds)
            order.append(name)

    await asyncio.gather(one("slow", 0.3), one("fast", 0))
    assert order == ["slow", "fast"]


async def test_a_unit_that_moves_keeps_its_place() -> None:
    slots = Slots(concurrency=1, quiet_limit=9, quiet_s=0.2)
    order: list[str] = []

    async def busy() -> None:
        async with slots.one() as moved:
            for _ in range(20):
                await asyncio.sleep(0.03)
                moved()
            order.append("busy")

    async def fast() -> None:
        async with slots.one():
            order.append("fast")

    await asyncio.gather(busy(), fast())
    assert order == ["busy", "fast"]
