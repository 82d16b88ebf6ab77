"""The real thing on this machine's processors: train a little, quantise, be cancelled. Its environment is made once."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).parents[3]
TOOLS = ROOT / "include" / "tools"
TOOL = TOOLS / "llm-compressor"


@pytest.fixture(scope="module")
def python(tool_python: Callable[[str], Path]) -> Path:
    return tool_python("llm-compressor")


@pytest.fixture(scope="module")
def base(python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    models = tmp_path_factory.mktemp("models")
    report = made(python, models, "first.json")
    assert (report["cached"], report["found"], report["problem"]) == (False, "absent", "")
    assert report["loss_last"] < report["loss_first"]
    return models


def made(python: Path, models: Path, report: str) -> dict[str, Any]:
    argv = [python, TOOL / "tiny_model.py", "--out", models / "tiny", "--steps", "20", "--report", models / report]
    subprocess.run([str(a) for a in argv], check=True, timeout=300)
    content: dict[str, Any] = json.loads((models / report).read_text())
    return content


def quantising(python: Path, models: Path, scheme: str) -> list[str]:
    source = models / "tiny"
    argv = [python, TOOL / "quantise.py", "--model", source, "--scheme", scheme, "--out", models / f"tiny.{scheme}"]
    argv += ["--calibration", source / "calibration.jsonl", "--samples", "8", "--max-length", "64"]
    return [str(a) for a in [*argv, "--report", models / f"{scheme}.json"]]


def test_a_damaged_model_is_made_again_the_same(python: Path, base: Path) -> None:
    first = json.loads((base / "first.json").read_text())
    weights = base / "tiny" / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 0x40
    weights.write_bytes(content)
    again = made(python, base, "again.json")
    assert (again["cached"], again["found"]) == (False, "damaged: model.safetensors")
    assert again["weights_sha256"] == first["weights_sha256"]
    kept = made(python, base, "kept.json")
    assert (kept["cached"], kept["files"]) == (True, first["files"])


def test_a_scheme_is_quantised_and_a_cancelled_one_leaves_nothing(python: Path, base: Path) -> None:
    subprocess.run(quantising(python, base, "w4a16-awq"), check=True, timeout=300)
    report = json.loads((base / "w4a16-awq.json").read_text())
    source = json.loads((base / "first.json").read_text())
    assert report["source"]["weights_sha256"] == source["weights_sha256"]
    assert (report["result"]["format"], report["problem"]) == ("pack-quantized", "")
    assert report["result"]["bytes"] < 0.7 * source["bytes"]
    assert not (base / "tiny.w4a16-awq" / "tasks").exists()
    before = sorted(p.name for p in base.iterdir())

    with subprocess.Popen(quantising(python, base, "fp8-dynamic")) as process:
        started = time.monotonic()
        while not list(base.glob(".tiny.fp8-dynamic.part-*")) and time.monotonic() - started < 120:
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 128 + signal.SIGTERM
    left = {p.name for p in base.iterdir()} - set(before)
    assert left == {".tiny.fp8-dynamic.lock", "fp8-dynamic.json"}
