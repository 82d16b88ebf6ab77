"""Sites, launches and the files that healthy launches leave; tests change them one by one."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fabric_health.checks.check import Context, Launch, RowSet
from fabric_health.checks.model_eval import MODEL_EVAL
from fabric_health.checks.model_eval.asked import Prepare, Quantise, Serve, asked
from fabric_health.checks.model_eval.schemes import SCHEMES
from fabric_health.datasets.arrow import split
from fabric_health.datasets.contracts import Row
from fabric_health.datasets.run import RunKey
from fabric_health.datasets.tables import Finding
from fabric_health.evidence import CommandResult, CommandStatus, ReachStatus, StoredEvidence, UnitEvidence
from fabric_health.site import Site, Storage, Thresholds

NOW = datetime(2026, 11, 30, 5, 0, tzinfo=UTC)
Files = dict[str, str]
Change = Callable[[Launch, Files], None]
SMALL: dict[str, Any] = {
    "models": [{"name": "tiny-qwen3", "schemes": ["w8a8-gptq", "w4a16-gptq"], "serve": ["base", "w8a8-gptq"]}],
    "serving": {
        "launches": 2, "concurrency": [1, 4], "prompts": 24, "input_tokens": 64, "output_tokens": 32, "repeats": 1,
    },
    "quality": {"items": 20, "windows": 4, "window_tokens": 256, "greedy_tokens": 4},
}  # fmt: skip
EMBED: dict[str, Any] = {
    "models": [{"name": "tiny-embed", "source": "tiny-embed", "kind": "embed", "schemes": [], "serve": ["base"]}],
    "serving": {"launches": 2, "concurrency": [2], "prompts": 24, "input_tokens": 64, "output_tokens": 1},
}


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def make_site(**settings: Any) -> Site:
    return Site(
        name="s",
        title="",
        origin="measured",
        coverage_floor=0.9,
        nodes=(),
        switches=(),
        cables=(),
        storage=Storage(),
        thresholds=Thresholds(),
        sha256="0" * 64,
        path=Path("site.yaml"),
        checks={"model_eval": settings},
    )


def make_evidence(
    launch: str, files: Files, *, stdout: str = "", exit_code: int | None = 0,
    status: CommandStatus = CommandStatus.EXITED, cut: tuple[str, ...] = (), detail: str = "",
) -> UnitEvidence:  # fmt: skip
    def one(name: str, text: str, state: CommandStatus, code: int | None) -> CommandResult:
        return CommandResult(name, ("x",), state, code, text, "", NOW, NOW)

    results = [one("job", stdout, status, exit_code)]
    for name, text in files.items():
        state = CommandStatus.TRUNCATED if name in cut else CommandStatus.EXITED
        results.append(one(f"artefact:{name}", text, state, 0))
    return UnitEvidence(launch, "launch", "model_eval", ReachStatus.OK, detail, NOW, NOW, tuple(results))


def healthy(launch: Launch) -> Files:
    """Return the files that a launch leaves where nothing is wrong."""
    want = asked(launch)
    if isinstance(want, Prepare):
        return {"model.json": json.dumps(model_report(want))}
    if isinstance(want, Quantise):
        return {"quantise.json": json.dumps(quantise_report(want))}
    files = {"server.json": json.dumps(server_report(want)), "metrics.txt": metrics(), "server.log": "INFO ready\n"}
    for c in want.concurrency:
        for r in range(1, want.repeats + 1):
            files[f"bench-c{c}-r{r}.json"] = json.dumps(bench_report(want, c))
    if want.kind == "embed":
        return {**files, "embeddings.json": json.dumps(embeddings_report())}
    if want.tasks:
        results, items = lm_eval_reports(want)
        files["lm-eval.json"] = json.dumps(results)
        files["lm-eval-samples-continuation.jsonl"] = "".join(json.dumps(i) + "\n" for i in items)
    if want.windows:
        files["perplexity.json"] = json.dumps(perplexity_report(want))
    files["fingerprint.json"] = json.dumps(fingerprint_report(want))
    return files


def model_report(want: Prepare) -> dict[str, Any]:
    return {
        "program": "tiny_model", "cached": True, "recipe_sha256": digest("recipe"), "weights_sha256": digest(want.unit),
        "files": {"model.safetensors": digest("x")}, "parameters": 655_872, "bytes": 1_313_000, "duration_s": 0.4,
        "steps": want.steps, "loss_first": 6.9, "loss_last": 3.6, "perplexity": 36.4, "peak_memory_mib": 310.5,
        "corpus": {"source": "docstrings", "licence": "PSF-2.0", "sha256": digest("c")},
        "versions": {"torch": "2.13.0", "transformers": "5.24.0", "python": "3.11.7"},
    }  # fmt: skip


def quantise_report(want: Quantise) -> dict[str, Any]:
    scheme = SCHEMES[want.scheme]  # type: ignore[index]
    calibration = {"sha256": digest("cal"), "samples": want.samples, "max_length": want.max_length, "seed": want.seed}
    return {
        "program": "quantise", "scheme": want.scheme,
        "recipe": [{"modifier": "GPTQModifier", "targets": "Linear", "scheme": "W8A8", "ignore": ["lm_head"]}],
        "source": {"weights_sha256": digest(want.model), "bytes": 1_313_000},
        "result": {
            "weights_sha256": digest(want.unit), "files": {"model.safetensors": digest("y")},
            "bytes": 750_000, "format": scheme.format, "quant_method": "compressed-tensors",
        },
        "calibration": calibration, "load_s": 0.5, "quantise_s": 2.5, "save_s": 0.1, "duration_s": 7.5,
        "peak_memory_mib": 900.0, "device": "cpu",
        "versions": {"llmcompressor": "0.14.0.1", "compressed_tensors": "0.19.0", "torch": "2.13.0"},
    }  # fmt: skip


def server_report(want: Serve) -> dict[str, Any]:
    return {
        "program": "measure", "kind": want.kind, "asked": want.unit, "served": [want.unit],
        "weights_sha256": digest(want.unit), "files": {}, "version": "0.32.0", "argv": ["x"],
        "flags": list(want.flags), "device": "cpu: EPYC avx512", "start_s": 28.0, "stop_s": 2.5,
        "peak_memory_mib": 3000.0, "left": [], "problem": "",
        "manifest": manifest(want),
        "steps": [{"name": n, "exit_code": 0, "duration_s": 1.0, "problem": ""} for n in ("start", "bench-c1-r1")],
    }  # fmt: skip


def manifest(want: Serve) -> dict[str, Any]:
    """Return what a folder says of itself: one of a model, or one that quantising wrote."""
    if want.unit == want.model:
        return {"program": "tiny_model", "weights_sha256": digest(want.unit), "recipe_sha256": digest("recipe")}
    return {"source": {"weights_sha256": digest(want.model)}, "result": {"weights_sha256": digest(want.unit)}}


def bench_report(want: Serve, concurrency: int, rate: float = 30.0) -> dict[str, Any]:
    duration = want.prompts / rate
    times = {
        f"{name}_{metric}_ms": value
        for metric, value in (("ttft", 40.0), ("tpot", 5.0), ("itl", 5.0), ("e2el", 200.0))
        for name in ("mean", "median", "std", "p50", "p90", "p99")
    }
    out = {
        "date": "20261130-050000", "backend": "openai", "model_id": want.unit, "tokenizer_id": "x",
        "num_prompts": want.prompts, "request_rate": "inf", "burstiness": 1.0, "max_concurrency": concurrency,
        "duration": duration, "completed": want.prompts, "failed": 0,
        "total_input_tokens": want.prompts * want.input_tokens,
        "total_output_tokens": want.prompts * want.output_tokens,
        "request_throughput": rate, "request_goodput": None, "output_throughput": rate * want.output_tokens,
        "total_token_throughput": rate * (want.output_tokens + want.input_tokens), **times,
    }  # fmt: skip
    if want.kind == "embed":
        keep = ("ttft", "tpot", "itl", "output")
        return {k: v for k, v in out.items() if not any(w in k for w in keep)}
    return out


def metrics(requests: int = 500, hits: int = 0) -> str:
    return (
        f'vllm:request_success_total{{finished_reason="length"}} {float(requests)}\n'
        f'vllm:prefix_cache_hits_total{{engine="0"}} {float(hits)}\n'
    )


def lm_eval_reports(want: Serve, right: int = 12) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    number = want.items or 20
    items = [
        {
            "doc_id": i, "target": "1", "filter": "none", "doc_hash": digest(str(i)), "acc": float(i < right),
            "arguments": {"gen_args_0": {"arg_0": "a", "arg_1": " b"}},
            "resps": [[["-12.5", "False"]], [["-10.25", "True"]]],
            "filtered_resps": [["-12.5", "False"], ["-10.25", "True"]],
        }
        for i in range(number)
    ]  # fmt: skip
    results = {
        "results": {"continuation": {"alias": "continuation", "acc,none": right / number, "acc_stderr,none": 0.11}},
        "versions": {"continuation": 1.0}, "n-samples": {"continuation": {"original": 200, "effective": number}},
        "higher_is_better": {"continuation": {"acc": True}}, "config": {"limit": float(number)},
        "lm_eval_version": "0.4.13", "total_evaluation_time_seconds": "12.5",
    }  # fmt: skip
    return results, items


def perplexity_report(want: Serve) -> dict[str, Any]:
    windows = [{"id": f"window-{i}", "tokens": 256, "logprob": -900.0 - i} for i in range(want.windows)]
    return {"window_tokens": want.window_tokens, "windows": windows}


def fingerprint_report(want: Serve) -> dict[str, Any]:
    prompts = [
        {
            "id": f"prompt-{i}", "prompt_sha256": digest(f"p{i}"), "text": "x",
            "token_ids": [7, 8 + i, 9, 10], "logprobs": [-0.5, -0.25, -1.0, -0.125],
        }
        for i in range(3)
    ]  # fmt: skip
    return {"greedy_tokens": want.greedy_tokens, "prompts": prompts}


def embeddings_report() -> dict[str, Any]:
    texts = [{"id": f"text-{i}", "vector": [0.5, -0.25 * (i + 1), 1.0]} for i in range(3)]
    return {"dimension": 3, "duration_s": 0.5, "tokens": 60, "texts": texts}


def edited(files: Files, name: str, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change a JSON file of a launch."""
    body = json.loads(files[name])
    change(body)
    files[name] = json.dumps(body)


class Run:
    """A run of the check whose launches left healthy files, changed by ``change`` where it wants."""

    def __init__(self, change: Change | None = None, settings: dict[str, Any] | None = None, **evidence: Any) -> None:
        self.site = make_site(**(SMALL if settings is None else settings))
        assert MODEL_EVAL.launches is not None
        self.launches = MODEL_EVAL.launches(self.site, (), "run-1")
        self.rows: list[Row] = []
        for launch in self.launches:
            files = healthy(launch)
            if change is not None:
                change(launch, files)
            self.rows += MODEL_EVAL.parse(launch, make_evidence(launch.name, files, **evidence), self.site)

    def of(self, row_type: type[Any]) -> list[Any]:
        return RowSet.gather(self.rows).of(row_type)

    def findings(self) -> list[Finding]:
        reach = {x.name: StoredEvidence(x.name, "k", "h", ReachStatus.OK) for x in self.launches}
        return MODEL_EVAL.judge(RowSet.gather(self.rows), Context(self.site, "run-1", NOW, self.launches, reach))

    def rules(self) -> list[str]:
        return sorted({f.rule for f in self.findings()})

    def quarantined(self) -> list[str]:
        """Return why rows broke their contract; a parser's own rows never do."""
        key = RunKey("s", "run-1", NOW, "measured")
        reasons: list[str] = []
        for row_type, rows in RowSet.gather(self.rows).rows.items():
            _, broken = split(row_type, [(r, None) for r in rows], key, "model_eval")
            reasons += [b.reason for b in broken]
            names = [n for n in row_type.KEY if n != "run"]
            keys = [tuple(getattr(r, n) for n in names) for r in rows]
            reasons += [f"{row_type.TABLE}: key twice"] * (len(keys) - len(set(keys)))
        return reasons
