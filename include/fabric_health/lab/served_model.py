"""The measurement of a served model with the faults that the lab plants: real faults, kept out of what measures.

Runs in the environment of the tool ``vllm``, by path and without this package: ``python served_model.py <arguments of
measure.py>``. Faults are read from the lab's state below ``FABRIC_HEALTH_HOME`` when a launch starts, and hold for the
form of the model whose name the fault has as its unit (``tiny-qwen3/w8a8-gptq``); without a lab nothing is changed.

- ``corrupt-shard``: a bit of the first shard is wrong on the way to the server. What is hashed is what is served.
- ``flipped-bit``: an exponent bit of one weight of one layer flips after the weights were hashed, as memory that is not
  protected would do it.
- ``wrong-model``: another folder is served, under its own name.
- ``server-errors``: something between client and server answers every n-th request for tokens with HTTP 500.

Copies are made in the launch's own temporary folder: the model's folder stays as it is.
"""

from __future__ import annotations

import contextlib
import http.client
import importlib.util
import itertools
import json
import math
import os
import shutil
import sys
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any

KINDS = ("corrupt-shard", "flipped-bit", "wrong-model", "server-errors")
PROGRAM = Path(__file__).resolve().parents[2] / "tools" / "vllm" / "measure.py"
MAX_BODY = 16 << 20
# Bytes of an element, bits of its mantissa and of its exponent.
FLOATS = {"BF16": (2, 7, 8), "F16": (2, 10, 5), "F32": (4, 23, 8)}
# A larger value would end in "not a number", which no test of drift is needed for.
LARGEST = 1024.0


def faults_on(name: str, home: str | None) -> dict[str, str]:
    """Return the faults on the served form ``name``, kind to value. Raises SystemExit for a state that is none.

    A measurement that silently leaves out its fault would be a wrong one.
    """
    path = Path(home or "") / "lab" / "state.json"
    if not home or not path.is_file():
        return {}
    try:
        faults = json.loads(path.read_text(encoding="utf-8"))["faults"]
        return {f["kind"]: str(f["value"] or "") for f in faults if f["kind"] in KINDS and f["unit"] == name}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise SystemExit(f"{path}: {error!r}; expected the lab's state") from None


def tensors(shard: Path) -> tuple[int, dict[str, dict[str, Any]]]:
    """Return where a shard's data begins, and its tensors: dtype, shape and data_offsets. Raises ValueError.

    The format: https://huggingface.co/docs/safetensors/index#format
    """
    with open(shard, "rb") as file:
        size = int.from_bytes(file.read(8), "little")
        if size > 100_000_000:
            raise ValueError(f"{shard}: no safetensors file")
        header = json.loads(file.read(size))
    return 8 + size, {name: t for name, t in header.items() if name != "__metadata__"}


def corrupt(model: Path) -> str:
    """Flip the lowest bit of the byte in the middle of the first shard's data. Return which, for a person."""
    shard = min(model.glob("*.safetensors"))
    begin, _ = tensors(shard)
    at = begin + (shard.stat().st_size - begin) // 2
    _write(shard, at, bytes([_read(shard, at, 1)[0] ^ 1]))
    return f"{shard.name}, byte {at}"


def flip(model: Path) -> str:
    """Flip one exponent bit of one weight in the middle layer. Return which, for a person. Raises ValueError.

    Taken are the first tensor of floating-point numbers of that layer (quantised forms have some left) and its largest
    weight; of its exponent's bits the one that changes it most without exceeding what a weight may be.
    """
    for shard in sorted(model.glob("*.safetensors")):
        begin, found = tensors(shard)
        layers = sorted({int(n.split("layers.")[1].split(".")[0]) for n in found if "layers." in n})
        wanted = f"layers.{layers[len(layers) // 2]}." if layers else ""
        for name in sorted(n for n in found if wanted in n and n.endswith("weight") and found[n]["dtype"] in FLOATS):
            start, end = found[name]["data_offsets"]
            size, mantissa, exponent = FLOATS[found[name]["dtype"]]
            raw = _read(shard, begin + start, end - start)
            words = [int.from_bytes(raw[i : i + size], "little") for i in range(0, len(raw), size)]
            bits = (size, mantissa, exponent)
            place = max(range(len(words)), key=lambda i: abs(number(words[i], *bits)))
            changed = flipped(words[place], *bits)
            _write(shard, begin + start + place * size, changed.to_bytes(size, "little"))
            return f"{name}[{place}]: {number(words[place], *bits):g} became {number(changed, *bits):g}"
    raise ValueError(f"{model}: no floating-point weight of a layer in it")


def number(word: int, size: int, mantissa: int, exponent: int) -> float:
    """Return the value of a floating-point number by its bits; not a number counts as 0."""
    bias = (1 << (exponent - 1)) - 1
    sign = -1.0 if word >> (8 * size - 1) else 1.0
    power = (word >> mantissa) & ((1 << exponent) - 1)
    rest = word & ((1 << mantissa) - 1)
    if power == (1 << exponent) - 1:
        return 0.0 if rest else sign * math.inf
    if power == 0:
        return sign * rest * 2.0 ** (1 - bias - mantissa)
    return sign * (1 + rest / (1 << mantissa)) * 2.0 ** (power - bias)


def flipped(word: int, size: int, mantissa: int, exponent: int) -> int:
    """Return ``word`` with one bit of its exponent flipped: the one that changes its value most, up to LARGEST."""
    old = number(word, size, mantissa, exponent)
    others = [word ^ (1 << (mantissa + bit)) for bit in range(exponent)]
    fitting = [w for w in others if abs(number(w, size, mantissa, exponent)) <= LARGEST]
    return max(fitting or others, key=lambda w: abs(number(w, size, mantissa, exponent) - old))


def _read(path: Path, at: int, size: int) -> bytes:
    with open(path, "rb") as file:
        file.seek(at)
        return file.read(size)


def _write(path: Path, at: int, data: bytes) -> None:
    with open(path, "r+b") as file:
        file.seek(at)
        file.write(data)


def copy_of(model: Path, scratch: Path) -> Path:
    """Return a copy of what a server needs of a model's folder, below the launch's temporary folder."""
    target = scratch / "model"
    shutil.copytree(model, target, ignore=shutil.ignore_patterns("tasks", "*.jsonl", ".*"))
    return target


def another(model: Path) -> Path:
    """Return another model's folder beside this one. Raises ValueError when there is none."""
    folders = (p.parent for p in model.parent.glob("*/config.json"))
    others = sorted(f for f in folders if f != model and not f.name.startswith("."))
    if not others:
        raise ValueError(f"{model.parent}: no other model than {model.name} in it, so none can be served in its place")
    return others[0]


def placed(measure: ModuleType, faults: Mapping[str, str], options: Any, scratch: Path) -> Any:
    """Return which folder is hashed, which is served and under which name, as the faults have it."""
    real = measure.Placement(options.model, options.model, options.name)
    if "wrong-model" in faults:
        other = another(options.model)
        return _told(f"wrong-model: {other.name}", measure.Placement(other, other, other.name))
    if "corrupt-shard" in faults:
        copy = copy_of(options.model, scratch)
        return _told(f"corrupt-shard: {corrupt(copy)}", measure.Placement(copy, copy, options.name))
    if "flipped-bit" in faults:
        copy = copy_of(options.model, scratch)
        return _told(f"flipped-bit: {flip(copy)}", measure.Placement(options.model, copy, options.name))
    return real


def _told(what: str, placement: Any) -> Any:
    sys.stderr.write(f"planted by the lab: {what}\n")
    return placement


class _Between(BaseHTTPRequestHandler):
    """Hands a request on to the server and its answer back, piece by piece; every n-th gets HTTP 500 instead."""

    protocol_version = "HTTP/1.1"
    port, every = 0, 1
    count: Iterator[int] = itertools.count(1)

    def do_GET(self) -> None:
        """Hand on a question."""
        self._hand_on(b"")

    def do_POST(self) -> None:
        """Hand on a request with a body, or fail it."""
        size = self.headers.get("Content-Length", "0")
        body = self.rfile.read(min(int(size), MAX_BODY) if size.isdigit() else 0)
        if "completions" in self.path and next(self.count) % self.every == 0:
            self._begin(500, "application/json")
            self._piece(b'{"error": {"message": "planted by the lab", "code": 500}}')
            self._piece(b"")
            return
        self._hand_on(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing of a request."""

    def _hand_on(self, body: bytes) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        try:
            with contextlib.closing(connection):
                headers = {k: v for k in ("Content-Type", "Accept", "Authorization") if (v := self.headers.get(k))}
                connection.request(self.command, self.path, body or None, headers)
                answer = connection.getresponse()
                self._begin(answer.status, answer.getheader("Content-Type", "text/plain"))
                while part := answer.read1(1 << 16):
                    self._piece(part)
                self._piece(b"")
        except (OSError, http.client.HTTPException):
            self.close_connection = True  # the server has gone: whoever asks must see that, not wait

    def _begin(self, status: int, content: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def _piece(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()


class _Patient(ThreadingHTTPServer):
    """Says nothing of a client that goes away: it is what clients do whose request has failed."""

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Leave the connection."""


@contextlib.contextmanager
def erring(port: int, every: int) -> Iterator[int]:
    """Give a port at which every ``every``-th completion fails, and all else is the server's at ``port``."""
    handler = type("Between", (_Between,), {"port": port, "every": every, "count": itertools.count(1)})
    with _Patient(("127.0.0.1", 0), handler) as between:
        between.daemon_threads = True
        between.block_on_close = False
        threading.Thread(target=between.serve_forever, args=(0.1,), daemon=True).start()
        try:
            yield between.server_address[1]
        finally:
            between.shutdown()


def plant(measure: ModuleType, name: str, home: str | None) -> None:
    """Make the program place the model, and reach the server, as the lab's faults on ``name`` have it."""
    faults = faults_on(name, home)
    measure.place = lambda options, scratch: placed(measure, faults, options, scratch)  # type: ignore[attr-defined]
    if "server-errors" in faults:
        every = int(faults["server-errors"])
        measure.reached = lambda port: erring(port, every)  # type: ignore[attr-defined]


def main(argv: list[str]) -> int:
    """Measure, with the faults that the lab has planted. Returns the program's exit code."""
    sys.path.insert(0, str(PROGRAM.parent))
    spec = importlib.util.spec_from_file_location("measure", PROGRAM)
    if spec is None or spec.loader is None:
        raise SystemExit(f"{PROGRAM} is missing")
    measure = importlib.util.module_from_spec(spec)
    sys.modules["measure"] = measure
    spec.loader.exec_module(measure)
    plant(measure, measure.parsed(argv).name, os.environ.get("FABRIC_HEALTH_HOME"))
    return int(measure.main(argv))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
