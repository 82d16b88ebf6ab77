"""Secrets reach no object, page or log; hostile text is inert; strangers are refused. Over real SSH and the real store.

The units are played in this process, so that what they answer can be spiked.
"""

from __future__ import annotations

import asyncio
import dataclasses
import io
import json
import logging
import threading
from html.parser import HTMLParser

import asyncssh
import pyarrow.parquet as pq
import pytest
import zstandard

from fabric_health import connections, pipeline
from fabric_health.connections import Connection
from fabric_health.datasets import embedded, sql
from fabric_health.datasets.evidence import find_evidence
from fabric_health.datasets.store import ObjectStore
from fabric_health.datasets.tables import CoverageState
from fabric_health.errors import StoreError
from fabric_health.lab import lab, server
from fabric_health.lab.place import USER, Place
from fabric_health.lab.state import LabState, now, save
from fabric_health.site import load_site

pytestmark = pytest.mark.e2e

SCOPE = "gpu-[001-002],leaf-[2-4]"
CANARY = "cAnArY7f3e"
PASSWORD = f"{CANARY}-ssh-password"
MARKUP = f'"><script>alert("{CANARY[:3]}")</script><img src=x onerror=alert(1)><svg onload=alert(2)>'
# What devices print that must never be kept, as they print it.
NODE_SECRETS = (
    f"nfs: mount with password={CANARY}-mount failed",
    f"agent[812]: posting with Authorization: Bearer {CANARY}-bearer",
    f"agent[813]: retry https://svc:{CANARY}-url@10.0.0.9/push",
    f"agent[814]: AWS_SECRET_ACCESS_KEY={CANARY}-aws api_key: {CANARY}-api token={CANARY}-token",
    f"login from 10.0.0.1 with {PASSWORD}",
)
EOS_SECRETS = (
    f"snmp-server community {CANARY}-snmp ro",
    f"username audit secret sha512 $6${CANARY}$hash{CANARY}",
    "router bgp 65001",
    f"   neighbor 10.9.9.9 password 7 {CANARY}-seven",
    f"tacacs-server host 10.0.0.3 key 7 {CANARY}-tacacs",
    f"ip ssh key {PASSWORD}",
)
NXOS_SECRETS = (
    f"snmp-server user audit network-admin auth md5 0x{CANARY.encode().hex()}aabbccdd localizedkey",
    f"radius-server key {CANARY}-radius",
)


def spiked(answer):
    """Return a node's answers with secrets in its kernel log and command line."""

    def play(node, site, state, argv, at):
        said = answer(node, site, state, argv, at)
        out = said.stdout
        if "journalctl" in argv[0]:
            stamp = str(int(at.timestamp() * 1e6))
            entries = [
                {"__REALTIME_TIMESTAMP": stamp, "MESSAGE": m, "SYSLOG_IDENTIFIER": "kernel"} for m in NODE_SECRETS
            ]
            out += "".join(json.dumps(e) + "\n" for e in entries)
        elif "/proc/cmdline" in argv:
            out = out.rstrip("\n") + f" ip=dhcp root_password={CANARY}-cmdline note={PASSWORD}\n"
        return dataclasses.replace(said, stdout=out)

    return play


def spiked_switch(answer):
    """Return a switch's answers with secrets in its configuration and markup in a port's description."""

    def play(switch, site, state, line, at):
        said = answer(switch, site, state, line, at)
        out = said.stdout
        if "running-config" in line and switch.platform == "eos":
            out = out.replace("interface Ethernet3/1\n", f"interface Ethernet3/1\n   description {MARKUP}\n", 1)
            out = out.rstrip().removesuffix("end").rstrip("!\n") + "\n" + "\n".join(EOS_SECRETS) + "\nend\n"
        elif "running-config" in line and switch.platform == "nxos":
            out = out.rstrip() + "\n" + "\n".join(NXOS_SECRETS) + "\n"
        elif "sonic-cfggen" in line:
            config = json.loads(out)
            config["SNMP_COMMUNITY"] = {f"{CANARY}-sonic": {"TYPE": "RO"}}
            config["TACPLUS"] = {"global": {"passkey": f"{CANARY}-tacplus"}}
            port = next(iter(config["PORT"]))
            config["PORT"][port]["description"] = MARKUP
            out = json.dumps(config, indent=4)
        return dataclasses.replace(said, stdout=out)

    return play


class Units:
    """The lab's units, played by a thread of this process."""

    def __init__(self, site, place: Place, port: int) -> None:
        self.site, self.place, self.port = site, place, port
        save(place.state, LabState(now()))
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)

    def __enter__(self) -> Units:
        self._thread.start()

        async def start() -> server.LabServer:
            playing = server.LabServer(self.site, self.place, self.port)
            await playing.start()
            return playing

        self._server = asyncio.run_coroutine_threadsafe(start(), self._loop).result(30)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._server.close(), self._loop).result(30)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)
        self._loop.close()

    def connection(self, **extra: str) -> Connection:
        """Return a connection that holds both of its secrets itself."""
        key = self.place.client_key.read_text()
        inside = {"private_key": key, "known_hosts": str(self.place.known_hosts), **extra}
        return Connection("lab_ssh", None, self.port, USER, PASSWORD, inside)


@pytest.fixture(scope="module")
def told():
    """Every line of progress and of logging while the spiked run was made."""
    return io.StringIO()


@pytest.fixture(scope="module")
def spiked_run(lab_home, tmp_path_factory, told):
    """A whole run, as the pipeline's own user of the store, over units that print secrets and markup."""
    info = lab.status(lab_home.home)
    assert info is not None
    site = load_site(lab_home.site_path)
    place = Place(tmp_path_factory.mktemp("spiked"))
    saved = lab_home.connections()
    handler = logging.StreamHandler(told)
    root = logging.getLogger()
    level = root.level
    with pytest.MonkeyPatch.context() as patch, Units(site, place, info.port + 50) as units:
        patch.setattr(server.nodes, "answer", spiked(server.nodes.answer))
        patch.setattr(server.switches, "answer", spiked_switch(server.switches.answer))
        root.addHandler(handler)
        root.setLevel(logging.DEBUG)
        try:
            store = ObjectStore.connect(saved(embedded.CONNECTION_ID))
            rooms = pipeline.Rooms(store, site, lambda _id: units.connection(), lambda text: print(text, file=told))
            done = pipeline.run_all(
                rooms, dag="spiked", scheduler_run_id="1", checks=("driver_firmware", "switch_config"), scope=SCOPE
            )
        finally:
            root.removeHandler(handler)
            root.setLevel(level)
        key = place.client_key.read_text()
    return rooms, done, key


def plain(key: str, data: bytes) -> str:
    """Return what an object says, decompressed and decoded."""
    if key.endswith(".zst"):
        data = zstandard.ZstdDecompressor().decompressobj().decompress(data)
    elif key.endswith(".parquet"):
        table = pq.read_table(io.BytesIO(data))
        return repr(table.to_pylist()) + repr(table.schema.metadata)
    return data.decode("utf-8", "backslashreplace")


def everything(store: ObjectStore) -> dict[str, str]:
    keys = store.list("")
    return {k: plain(k, data) for k, data in zip(keys, store.get_many(keys), strict=True)}


def test_the_units_did_say_the_secrets_and_they_were_taken_out(spiked_run) -> None:
    rooms, done, _ = spiked_run
    run = done.ref.split("/")[-2]
    node = find_evidence(rooms.store, run, "gpu-001")[0]
    log = next(r for r in node.results if "journalctl" in r.argv[0]).stdout
    assert "nfs: mount with password=" in log
    assert log.count("<redacted") >= 6
    switch = find_evidence(rooms.store, run, "leaf-3")[0]
    config = next(r for r in switch.results if "running-config" in " ".join(r.argv)).stdout
    assert "snmp-server community <redacted> ro" in config
    assert "neighbor 10.9.9.9 password 7 <redacted>" in config


def test_no_secret_is_in_any_object(spiked_run) -> None:
    rooms, _done, key = spiked_run
    held = everything(rooms.store)
    assert {k.split("/", 1)[0] for k in held} == {"evidence", "quality", "reports", "runs", "tables"}
    secrets = (CANARY, CANARY.encode().hex(), *key.split("\n")[1:4])
    assert [(k, s) for k, text in held.items() for s in secrets if s in text] == []


def test_no_secret_is_in_progress_or_logs(lab_home, spiked_run, told) -> None:
    key = spiked_run[2]
    lines = told.getvalue()
    assert "driver_firmware: 2 ok" in lines
    saved = json.loads((lab_home.home / "connections.json").read_text())
    of_the_store = [e["password"] for e in saved.values() if e["password"]]
    assert len(of_the_store) >= 2
    for secret in (CANARY, *key.split("\n")[1:4], *of_the_store):
        assert secret not in lines


class Elements(HTMLParser):
    """Collects what a browser would make of a page."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: set[str] = set()
        self.handlers: set[str] = set()
        self.links: set[str] = set()
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.handlers |= {name for name, _ in attrs if name.startswith("on")}
        self.links |= {value or "" for name, value in attrs if name in ("href", "src", "xlink:href", "action")}

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def test_markup_from_a_device_is_text_on_the_page(spiked_run) -> None:
    rooms, done, _ = spiked_run
    pages = {k: rooms.store.get(k).decode() for k in rooms.store.list(done.page["prefix"]) if k.endswith(".html")}
    assert len(pages) >= 2, "the page, and the evidence of the switches that drifted"
    seen = ""
    for key, html in pages.items():
        page = Elements()
        page.feed(html)
        seen += "".join(page.text)
        assert page.tags & {"script", "img", "iframe", "object", "embed", "form", "base", "link"} == set(), key
        assert page.handlers == set(), key
        assert [x for x in page.links if not x.startswith(("#", "evidence/", "../"))] == [], key
    # It is there to be read: as drift on two platforms, and in the evidence.
    assert seen.count("<script>alert(") >= 4
    index = Elements()
    index.feed(pages[done.page["prefix"] + "index.html"])
    assert MARKUP in "".join(index.text)


def test_a_unit_with_another_host_key_is_refused_and_the_others_are_judged(healthy, tmp_path) -> None:
    chain = healthy.chain()
    saved = healthy.connections()("lab_ssh")
    known = Place(healthy.home).known_hosts.read_text().splitlines()
    address = chain.rooms.site.unit("gpu-002").address
    impostor = asyncssh.generate_private_key("ssh-ed25519").export_public_key("openssh").decode().split()[1]
    changed = [f"{x.split()[0]} ssh-ed25519 {impostor}" if x.startswith(f"[{address}]") else x for x in known]
    assert changed != known
    file = tmp_path / "known_hosts"
    file.write_text("\n".join(changed) + "\n")
    suspicious = dataclasses.replace(saved, extra={**saved.extra, "known_hosts": str(file)})
    chain.rooms = dataclasses.replace(chain.rooms, connections=lambda _id: suspicious)
    ref = chain.judge(("driver_firmware",), "gpu-[001-003]")
    assert [(f.unit, f.rule, f.actual, f.kind) for f in chain.findings(ref)] == [
        ("gpu-002", "unit_answers", "host_key_mismatch", "not_judged")
    ]
    found = chain.findings(ref)[0]
    assert "host key" in found.summary
    assert str(file) in found.summary
    assert "before trusting it" in (found.action or "")
    states = {c.unit: c.state for c in chain.coverage(ref)}
    assert states == {"gpu-001": CoverageState.JUDGED, "gpu-002": "not_judged", "gpu-003": CoverageState.JUDGED}


def test_the_analyst_reads_and_queries_and_cannot_write(lab_home, spiked_run) -> None:
    _rooms, done, _ = spiked_run
    analyst = ObjectStore.connect(lab_home.connections()(embedded.ANALYST_CONNECTION_ID))
    assert json.loads(analyst.get(done.ref))["dag"] == "spiked"
    answered = sql.query(analyst, "select count(*) as n from findings where \"check\" = 'switch_config'").to_pylist()
    assert answered[0]["n"] > 0
    for key in ("tables/new", done.ref):
        with pytest.raises(StoreError, match="AccessDenied"):
            analyst.put(key, b"x")
    with pytest.raises(StoreError, match="AccessDenied"):
        analyst.delete(done.ref)
    assert json.loads(analyst.get(done.ref))["dag"] == "spiked"


def test_a_wrong_store_key_is_refused_before_any_unit_is_asked(lab_home) -> None:
    good = lab_home.connections()(embedded.CONNECTION_ID)
    wrong = ObjectStore.connect(dataclasses.replace(good, password="not-the-key"), retry_s=5)

    def never(conn_id: str) -> connections.Connection:
        raise AssertionError(f"{conn_id} was asked for")

    rooms = pipeline.Rooms(wrong, load_site(lab_home.site_path), never)
    with pytest.raises(StoreError, match="check login and password") as caught:
        pipeline.run_all(rooms, dag="d", scheduler_run_id="1", checks=("switch_config",), scope=None)
    assert "not-the-key" not in str(caught.value)
