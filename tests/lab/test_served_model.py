"""The lab's faults of a served model: what is changed, where, and that the model's own folder stays as it is."""

from __future__ import annotations

import http.client
import importlib.util
import json
import math
import socket
import struct
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fabric_health
from fabric_health.errors import UsageError
from fabric_health.lab import served_model
from fabric_health.lab.state import LabState, now, save
from fabric_health.lab.validation import checked_fault
from fabric_health.site import Site, load_site

BF16 = served_model.FLOATS["BF16"]
VALUES = (0.25, -0.5, 0.03125, 1.0)


@pytest.fixture(scope="module")
def site() -> Site:
    return load_site(Path(fabric_health.__file__).parents[1] / "sites" / "lab.yaml")


def shard(path: Path, **of: tuple[str, bytes]) -> None:
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, (kind, raw) in of.items():
        shape = [len(raw) // {"BF16": 2, "I8": 1, "F32": 4}[kind]]
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}  # type: ignore[dict-item]
        data += raw
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def bf16(*values: float) -> bytes:
    return b"".join(struct.pack("<f", v)[2:] for v in values)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "models" / "tiny"
    folder.mkdir(parents=True)
    weights = {
        "model.embed_tokens.weight": ("BF16", bf16(*VALUES)),
        "model.layers.0.norm.weight": ("BF16", bf16(*VALUES)),
        "model.layers.1.mlp.weight": ("I8", bytes(range(8))),
        "model.layers.1.norm.weight": ("BF16", bf16(*VALUES)),
        "model.layers.2.norm.weight": ("BF16", bf16(*VALUES)),
    }
    shard(folder / "model.safetensors", **weights)
    (folder / "config.json").write_text("{}")
    (folder / "prompts.jsonl").write_text("{}")
    return folder


@pytest.fixture
def measure(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(served_model.PROGRAM.parent))
    spec = importlib.util.spec_from_file_location("measure_of_served_model", served_model.PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "measure_of_served_model", module)
    spec.loader.exec_module(module)
    return module


def planted(measure: ModuleType, model: Path, tmp_path: Path, *kinds: str) -> Any:
    options = SimpleNamespace(model=model, name="tiny/w8")
    scratch = tmp_path / "scratch"
    scratch.mkdir(exist_ok=True)
    return served_model.placed(measure, dict.fromkeys(kinds, ""), options, scratch)


def different(one: Path, other: Path) -> list[int]:
    a, b = one.read_bytes(), other.read_bytes()
    assert len(a) == len(b)
    return [i for i, (x, y) in enumerate(zip(a, b, strict=True)) if x != y]


def test_a_corrupt_shard_is_hashed_as_it_is_served(measure: ModuleType, model: Path, tmp_path: Path) -> None:
    before = (model / "model.safetensors").read_bytes()
    placement = planted(measure, model, tmp_path, "corrupt-shard")
    assert placement.hashed == placement.served != model
    assert placement.name == "tiny/w8"
    assert len(different(model / "model.safetensors", placement.served / "model.safetensors")) == 1
    assert (model / "model.safetensors").read_bytes() == before
    assert sorted(p.name for p in placement.served.iterdir()) == ["config.json", "model.safetensors"]


def test_a_flipped_bit_is_one_exponent_bit_of_the_middle_layer_after_hashing(measure, model, tmp_path, capsys) -> None:
    placement = planted(measure, model, tmp_path, "flipped-bit")
    assert (placement.hashed, placement.name) == (model, "tiny/w8")
    (at,) = different(model / "model.safetensors", placement.served / "model.safetensors")
    begin, tensors = served_model.tensors(placement.served / "model.safetensors")
    start, end = tensors["model.layers.1.norm.weight"]["data_offsets"]
    assert begin + start <= at < begin + end
    bits = (model / "model.safetensors").read_bytes()[at] ^ (placement.served / "model.safetensors").read_bytes()[at]
    assert bits.bit_count() == 1
    assert "model.layers.1.norm.weight[3]: 1 became" in capsys.readouterr().err


def test_another_model_is_served_under_its_own_name(measure: ModuleType, model: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no other model than tiny"):
        planted(measure, model, tmp_path, "wrong-model")
    unfinished = model.parent / ".tiny.part-1"
    unfinished.mkdir()
    (unfinished / "config.json").write_text("{}")
    other = model.parent / "tiny.w4"
    other.mkdir()
    (other / "config.json").write_text("{}")
    placement = planted(measure, model, tmp_path, "wrong-model")
    assert (placement.hashed, placement.served, placement.name) == (other, other, "tiny.w4")


def test_without_a_fault_nothing_is_changed(measure: ModuleType, model: Path, tmp_path: Path) -> None:
    placement = planted(measure, model, tmp_path)
    assert (placement.hashed, placement.served, placement.name) == (model, model, "tiny/w8")
    served_model.plant(measure, "tiny/w8", None)
    with measure.reached(8123) as port:
        assert port == 8123


@given(st.floats(width=16, allow_nan=False, allow_infinity=False))
def test_the_value_of_bits_is_that_of_the_number(value: float) -> None:
    for kind, form in (("F32", "<f"), ("F16", "<e")):
        word = int.from_bytes(struct.pack(form, value), "little")
        assert served_model.number(word, *served_model.FLOATS[kind]) == value


@given(st.integers(0, 0xFFFF))
def test_one_bit_of_the_exponent_changes_and_no_infinity_comes_of_a_weight(word: int) -> None:
    changed = served_model.flipped(word, *BF16)
    assert (word ^ changed).bit_count() == 1
    assert (word ^ changed) & 0x7F80
    if abs(served_model.number(word, *BF16)) < served_model.LARGEST:
        assert math.isfinite(served_model.number(changed, *BF16))


@pytest.mark.parametrize("body", [b"", b"\xff" * 8, b"\x02\0\0\0\0\0\0\0{]", b"\x02\0\0\0\0\0\0\0{}"])
def test_a_shard_that_is_none(tmp_path: Path, body: bytes) -> None:
    (tmp_path / "model.safetensors").write_bytes(body)
    with pytest.raises(ValueError):  # noqa: PT011  whatever is wrong with it
        served_model.flip(tmp_path)


class Server(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self._answer(b"metrics")

    def do_POST(self) -> None:
        self._answer(self.rfile.read(int(self.headers["Content-Length"])))

    def _answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[int]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Server) as made:
        made.daemon_threads = True
        threading.Thread(target=made.serve_forever, args=(0.05,), daemon=True).start()
        yield made.server_address[1]
        made.shutdown()


def test_every_third_completion_fails_and_all_else_is_the_servers(server: int) -> None:
    with served_model.erring(server, 3) as port:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        got = []
        for n in range(7):
            connection.request("POST", "/v1/completions", f"body {n}")
            answer = connection.getresponse()
            got.append((answer.status, answer.read()))
        connection.request("GET", "/metrics")
        assert connection.getresponse().read() == b"metrics"
        connection.close()
    assert [status for status, _ in got] == [200, 200, 500, 200, 200, 500, 200]
    assert got[3] == (200, b"body 3")
    with pytest.raises(OSError):  # noqa: PT011  nobody listens any more
        http.client.HTTPConnection("127.0.0.1", port, timeout=5).request("GET", "/")


def test_a_server_that_has_gone_is_seen_by_whoever_asks() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # nobody listens
        with served_model.erring(taken.getsockname()[1], 1000) as port:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            connection.request("POST", "/v1/completions", "body")
            with pytest.raises(http.client.RemoteDisconnected):
                connection.getresponse()
            connection.close()


def test_faults_are_read_for_the_form_that_is_served(site: Site, tmp_path: Path) -> None:
    made = (
        checked_fault(site, "server-errors", "tiny-qwen3", None, now()),
        checked_fault(site, "flipped-bit", "tiny-qwen3/w8a8-gptq", None, now()),
        checked_fault(site, "slow-node", "gpu-005", None, now()),
    )
    save(tmp_path / "lab" / "state.json", LabState(now(), made))
    assert served_model.faults_on("tiny-qwen3", str(tmp_path)) == {"server-errors": "5"}
    assert served_model.faults_on("tiny-qwen3/w8a8-gptq", str(tmp_path)) == {"flipped-bit": ""}
    assert served_model.faults_on("tiny-qwen3/w4a16-awq", str(tmp_path)) == {}
    assert served_model.faults_on("tiny-qwen3", None) == {}


@pytest.mark.parametrize("text", ["", "{", "[]", '{"faults": 3}', '{"faults": [{"unit": "tiny-qwen3"}]}'])
def test_a_state_that_cannot_be_read_ends_the_measurement(tmp_path: Path, text: str) -> None:
    (tmp_path / "lab").mkdir()
    (tmp_path / "lab" / "state.json").write_text(text)
    with pytest.raises(SystemExit, match="expected the lab's state"):
        served_model.faults_on("tiny-qwen3", str(tmp_path))


@pytest.mark.parametrize(
    ("unit", "value", "message"),
    [
        ("tiny-qwen4", None, "sits on a form of a model that is served, not on tiny-qwen4; nearest: tiny-qwen3"),
        ("gpu-001", None, "expected one of: tiny-qwen3"),
        ("tiny-qwen3", "1", "every n-th"),
        ("tiny-qwen3", "often", "every n-th"),
    ],
)
def test_a_fault_that_fits_no_model(site: Site, unit: str, value: str | None, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        checked_fault(site, "server-errors", unit, value, now())
