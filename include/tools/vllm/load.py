"""Load on the server: ``vllm bench serve`` for each concurrency and repetition, and guidellm where it is asked for."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import api
from steps import Steps, take

PERCENTILES = "50,90,99"
METRICS = "ttft,tpot,itl,e2el"


@dataclass(frozen=True)
class Load:
    """One run of load: ``prompts`` requests of random tokens, at most ``concurrency`` at once."""

    concurrency: int
    repeat: int
    prompts: int
    input_tokens: int
    output_tokens: int
    seed: int
    goodput: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The step, and the report without its suffix."""
        return f"bench-c{self.concurrency}-r{self.repeat}"

    def own_seed(self) -> int:
        """Seed of this run: no prompt comes twice in a measurement, and the same ones come in the next."""
        return self.seed + 1000 * self.concurrency + self.repeat


def bench_argv(load: Load, kind: str, model: Path, name: str, port: int, folder: Path) -> list[str]:
    """Return the words after ``vllm`` that run one load. Every request is sent at once, as far as concurrency lets it.

    Every answer has exactly ``output_tokens`` tokens (ignore_eos): rates of answers of other lengths do not compare.
    """
    embed = kind == "embed"
    return [
        *("bench", "serve", "--backend", "openai-embeddings" if embed else "openai"),
        *("--base-url", f"http://{api.HOST}:{port}", "--endpoint", "/v1/embeddings" if embed else "/v1/completions"),
        *("--model", name, "--tokenizer", str(model), "--dataset-name", "random"),
        *("--random-input-len", str(load.input_tokens), "--random-output-len", str(load.output_tokens)),
        *("--num-prompts", str(load.prompts), "--max-concurrency", str(load.concurrency), "--request-rate", "inf"),
        *("--num-warmups", str(load.concurrency), "--seed", str(load.own_seed())),
        *([] if embed else ["--ignore-eos", "--temperature", "0"]),
        *("--percentile-metrics", "e2el" if embed else METRICS, "--metric-percentiles", PERCENTILES),
        *(["--goodput", *load.goodput] if load.goodput else []),
        *("--save-result", "--result-dir", str(folder), "--result-filename", f"{load.name}.json", "--disable-tqdm"),
    ]


def guidellm(steps: Steps, target: Path, port: int, model: Path, name: str, load: Load, env: Mapping[str, str]) -> None:
    """Run guidellm at one concurrency for as many seconds as ``load.repeat`` says, as the step "guidellm"."""
    report = steps.scratch / "guidellm" / "guidellm.json"
    report.parent.mkdir(exist_ok=True)
    argv = [
        *(sys.executable, "-m", "guidellm", "run"),
        *("--backend", f"kind=openai_http,target=http://{api.HOST}:{port},model={name}"),
        *("--profile", f"kind=concurrent,streams={load.concurrency}"),
        *("--constraint", f"kind=max_duration,seconds={load.repeat}"),
        *("--tokenizer", f"kind=huggingface_auto,model={model}"),
        *("--data", f"kind=synthetic_text,prompt_tokens={load.input_tokens},output_tokens={load.output_tokens}"),
        *("--output", f"kind=json,path={report}"),
    ]
    steps.program("guidellm", lambda log: steps.run(argv, env, log), lambda: take(report, target))
