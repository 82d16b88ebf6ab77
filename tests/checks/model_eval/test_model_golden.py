"""What is read from each recorded-style file, as a file beside it; ``--update`` writes them anew."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fabric_health.checks.model_eval.parsers.answers import read_embeddings, read_fingerprint, read_perplexity
from fabric_health.checks.model_eval.parsers.guidellm import read_guidellm
from fabric_health.checks.model_eval.parsers.lm_eval import read_items, read_results
from fabric_health.checks.model_eval.parsers.reports import read_metrics, read_model, read_quantise, read_server
from fabric_health.checks.model_eval.parsers.vllm_bench import read_bench, read_bench_text
from fabric_health.evidence import Redactor

FOLDER = Path(__file__).parents[2] / "fixtures" / "model_eval"
# The longest beginning of a file's name that is here says what it is.
READERS: dict[str, Callable[[str], Any]] = {
    "bench-": read_bench,
    "vllm-bench": read_bench,
    "guidellm": read_guidellm,
    "lm-eval": read_results,
    "lm-eval-samples": read_items,
    "metrics": read_metrics,
    "model": read_model,
    "quantise": read_quantise,
    "server": read_server,
    "perplexity": read_perplexity,
    "fingerprint": read_fingerprint,
    "embeddings": read_embeddings,
}


def reader_of(path: Path) -> Callable[[str], Any] | None:
    if path.suffix == ".txt" and path.name.startswith("vllm-bench"):
        return read_bench_text
    found = [p for p in READERS if path.name.startswith(p)]
    return READERS[max(found, key=len)] if found and path.suffix in (".json", ".jsonl", ".txt") else None


CASES = sorted(
    str(p.relative_to(FOLDER)) for p in FOLDER.rglob("*") if ".golden" not in p.name and reader_of(p) is not None
)


def plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, (frozenset, set)):
        return sorted(value)
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    return [plain(v) for v in value] if isinstance(value, (list, tuple)) else value


@pytest.mark.parametrize("case", CASES)
def test_file(case: str, request: pytest.FixtureRequest) -> None:
    path = FOLDER / case
    reader = reader_of(path)
    assert reader is not None
    reading = plain(reader(path.read_text(encoding="utf-8")))
    assert reading not in (None, [], [None, []])
    found = json.dumps(reading, indent=1) + "\n"
    golden = path.with_name(f"{path.name}.golden.json")
    if request.config.getoption("--update") and path.parent == FOLDER:
        golden.write_text(found, encoding="utf-8")
    # Whole outputs of a run, below `real`, need none: they are read, and what is read of them is large.
    if golden.is_file() or path.parent == FOLDER:
        assert golden.is_file(), "no golden file; look at the result with --update, then commit it"
        assert found == golden.read_text(encoding="utf-8")


@pytest.mark.parametrize("case", CASES)
def test_redaction_leaves_results_alone(case: str) -> None:
    text = (FOLDER / case).read_text(encoding="utf-8")
    reader = reader_of(FOLDER / case)
    assert reader is not None
    assert plain(reader(Redactor(("sesame",)).text(text))) == plain(reader(text))


def test_there_are_cases_of_every_format() -> None:
    assert {"guidellm-0.6.json", "guidellm-0.8.json", "vllm-bench-0.9.txt", "vllm-bench-0.9-old-keys.json"} <= {*CASES}
    assert len(CASES) >= 16
