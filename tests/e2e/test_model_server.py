"""A tiny model of the real architecture, served by the real vLLM on CPUs and measured as a launch of the check does."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from fabric_health.lab import served_model

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(3600)]

ROOT = Path(__file__).parents[2]
TOOLS = ROOT / "include" / "tools"
NAME = "tiny-qwen3"
# Weights as they are drawn: nothing is asked of what the model says, only that it says it again.
MAKE = """
import json, sys, torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM
folder, texts = sys.argv[1], [json.loads(line)["text"] for line in open(sys.argv[2])]
torch.manual_seed(0)
bpe = Tokenizer(models.BPE())
bpe.pre_tokenizer, bpe.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
alphabet = pre_tokenizers.ByteLevel.alphabet()
bpe.train_from_iterator(texts, trainers.BpeTrainer(
    vocab_size=512, special_tokens=["<|endoftext|>"], initial_alphabet=alphabet, show_progress=False))
end = "<|endoftext|>"
tokenizer = PreTrainedTokenizerFast(tokenizer_object=bpe, eos_token=end, pad_token=end, model_max_length=512)
config = Qwen3Config(
    vocab_size=len(tokenizer), hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, head_dim=32, max_position_embeddings=512, eos_token_id=tokenizer.eos_token_id)
Qwen3ForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
tokenizer.save_pretrained(folder)
"""


@pytest.fixture(scope="module")
def python(tool_python: Callable[[str], Path]) -> Path:
    return tool_python("vllm")


@pytest.fixture(scope="module")
def model(python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / NAME
    folder.mkdir()
    pages = sorted((ROOT / "docs").glob("*.md"))[:6]
    texts = [{"text": page.read_text(encoding="utf-8")[:1000]} for page in pages]
    (folder / "evaluation.jsonl").write_text("".join(json.dumps(t) + "\n" for t in texts))
    prompts = [{"id": f"p{n}", "prompt": t["text"][:80]} for n, t in enumerate(texts[:3])]
    (folder / "prompts.jsonl").write_text("".join(json.dumps(p) + "\n" for p in prompts))
    subprocess.run([str(python), "-c", MAKE, str(folder), str(folder / "evaluation.jsonl")], check=True, timeout=300)
    return folder


@pytest.fixture
def measured(python: Path, model: Path, tmp_path: Path) -> Callable[..., tuple[int, Path]]:
    def measure(program: Path, *more: str) -> tuple[int, Path]:
        out = tmp_path / "job" / "artefacts"
        argv = [
            *(str(python), str(program), "--model", str(model), "--name", NAME, "--out", str(out)),
            *("--prompts-file", str(model / "prompts.jsonl"), "--greedy-tokens", "8"),
            *("--evaluation", str(model / "evaluation.jsonl"), "--windows", "2", "--window-tokens", "64"),
            *("--start-limit", "600", "--step-limit", "300", *more),
            *("--", "--enforce-eager", "--max-model-len", "512"),
        ]
        environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "FABRIC_HEALTH_HOME": str(tmp_path)}
        done = subprocess.run(argv, env=environment, cwd=tmp_path, timeout=1500, check=False)
        return done.returncode, out

    return measure


def test_a_served_model_is_measured_and_nothing_is_left(measured, tmp_path: Path) -> None:
    before = set(os.listdir("/dev/shm"))
    code, out = measured(TOOLS / "vllm" / "measure.py", "--concurrency", "2", "--prompts", "4", "--output-tokens", "8")
    server = json.loads((out / "server.json").read_text())
    assert code == 0, [s for s in server["steps"] if s["exit_code"]]
    assert (server["served"], server["version"], server["left"]) == ([NAME], "0.32.0", [])
    assert server["server_peak_memory_mib"] > 500
    bench = json.loads((out / "bench-c2-r1.json").read_text())
    assert (bench["completed"], bench["failed"], bench["total_output_tokens"]) == (4, 0, 32)
    assert {"p99_ttft_ms", "p50_tpot_ms", "p90_itl_ms", "p99_e2el_ms"} <= set(bench)
    windows = json.loads((out / "perplexity.json").read_text())["windows"]
    assert [w["tokens"] for w in windows] == [64, 64]
    # A model that has learned nothing: every token as likely as any other of about 512.
    assert all(-64 * 7.5 < w["logprob"] < -64 * 5 for w in windows)
    assert [len(p["token_ids"]) for p in json.loads((out / "fingerprint.json").read_text())["prompts"]] == [8, 8, 8]
    assert "vllm:" in (out / "metrics.txt").read_text()
    assert [p.name for p in (tmp_path / "job").iterdir()] == ["artefacts"]
    assert not {n for n in os.listdir("/dev/shm") if n.startswith("psm_")} - before


@pytest.mark.soak
def test_a_server_that_errs_under_load_ends_with_exit_code_0_and_failed_requests(measured, tmp_path: Path) -> None:
    (tmp_path / "lab").mkdir()
    fault = {"kind": "server-errors", "unit": NAME, "value": "3", "since": "2026-11-30T00:00:00+00:00"}
    (tmp_path / "lab" / "state.json").write_text(json.dumps({"up_since": fault["since"], "faults": [fault]}))
    load = ("--concurrency", "2", "--prompts", "9", "--output-tokens", "8")
    code, out = measured(Path(served_model.__file__), *load)
    server = json.loads((out / "server.json").read_text())
    steps = {s["name"]: s for s in server["steps"]}
    bench = json.loads((out / "bench-c2-r1.json").read_text())
    assert steps["bench-c2-r1"]["exit_code"] == 0
    assert bench["failed"] >= 2
    assert bench["completed"] + bench["failed"] == 9
    assert "planted by the lab" in steps["fingerprint"]["problem"]
    assert (code, server["left"]) == (1, [])
