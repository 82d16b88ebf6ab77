"""Results of ``vllm bench serve``: the file of ``--save-result`` of any release, and the block printed for people.

Until mid-2025 the file had ``request_goodput:`` with its colon for a key and neither ``failed`` nor ``max_*``
(https://github.com/vllm-project/vllm/issues/20274); arrays, there with ``--save-detailed`` only, are in seconds.
``--append-result`` writes one object after the other into one file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from fabric_health.checks.model_eval.parsers.bench import METRICS, Bench, Times
from fabric_health.checks.model_eval.parsers.reading import documents, first, text
from fabric_health.checks.untrusted import count, listing, number, real

LAYOUT, TEXT_LAYOUT = "vllm bench json", "vllm bench text"
_HEADER = re.compile(r"^=+ Serving Benchmark Result =+\s*$")
_END = re.compile(r"^=+\s*$")
_LINE = re.compile(r"^([A-Za-z][\w ()/.+-]{1,60}):\s+(\S{1,40})\s*$")
_MAX_SAMPLES = 5_000_000
_MAX_BLOCKS = 200
_LABELS = {
    "successful requests": "completed",
    "failed requests": "failed",
    "maximum request concurrency": "concurrency",
    "benchmark duration (s)": "duration_s",
    "total input tokens": "input_tokens",
    "total generated tokens": "output_tokens",
    "request throughput (req/s)": "requests_per_s",
    "request goodput (req/s)": "goodput_per_s",
    "output token throughput (tok/s)": "output_tokens_per_s",
    # `Total Token throughput` before 2025-10.
    "total token throughput (tok/s)": "total_tokens_per_s",
}
_WHOLE = frozenset({"completed", "failed", "concurrency", "input_tokens", "output_tokens"})


def read_bench(file: str) -> list[Bench]:
    """Return the results of a file, in the order they were appended; none where it is not such a file."""
    found = documents(file)
    return [_bench(d) for d in found] if all("completed" in d and "duration" in d for d in found) else []


def _bench(d: dict[str, Any]) -> Bench:
    return Bench(
        layout=LAYOUT,
        model=text(d.get("model_id"), 120),
        completed=count(d.get("completed")),
        failed=count(d.get("failed")),
        prompts=count(d.get("num_prompts")),
        concurrency=count(d.get("max_concurrency")),
        duration_s=number(d.get("duration")),
        requests_per_s=number(d.get("request_throughput")),
        output_tokens_per_s=number(d.get("output_throughput")),
        total_tokens_per_s=number(d.get("total_token_throughput")),
        goodput_per_s=number(first(d, "request_goodput", "request_goodput:")),
        input_tokens=count(first(d, "total_input_tokens", "total_input")),
        output_tokens=count(first(d, "total_output_tokens", "total_output")),
        times={m: _times(d, m) for m in METRICS},
    )


def _times(d: dict[str, Any], metric: str) -> Times:
    def of(name: str) -> float | None:
        return number(d.get(f"{name}_{metric}_ms"))

    p50 = of("p50")
    found = Times(of("mean"), of("median") if p50 is None else p50, of("p90"), of("p99"))
    samples = _samples(d.get(f"{metric}s")) if None in (found.mean, found.p50, found.p90, found.p99) else []
    if not samples:
        return found
    samples.sort()
    return Times(
        sum(samples) / len(samples) if found.mean is None else found.mean,
        _percentile(samples, 0.5) if found.p50 is None else found.p50,
        _percentile(samples, 0.9) if found.p90 is None else found.p90,
        _percentile(samples, 0.99) if found.p99 is None else found.p99,
    )


def _samples(value: Any) -> list[float]:
    """Return the times of an array (seconds, also one array a request) in ms; none when one of them is no time."""
    out: list[float] = []
    for entry in listing(value):
        for x in entry if isinstance(entry, list) else (entry,):
            seconds = number(x)
            if seconds is None or len(out) >= _MAX_SAMPLES:
                return []
            out.append(seconds * 1000)
    return out


def _percentile(ordered: Sequence[float], share: float) -> float:
    """Return a percentile with linear interpolation, as numpy's default has it."""
    at = share * (len(ordered) - 1)
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (at - low) * (ordered[high] - ordered[low])


def read_bench_text(output: str) -> list[Bench]:
    """Return the results of the blocks in an output; a block without its end was cut and gives none."""
    return [b for block in _blocks(output) if (b := _of_block(block)) is not None]


def _blocks(output: str) -> Iterator[list[str]]:
    block: list[str] | None = None
    found = 0
    for line in output.splitlines():
        if _HEADER.match(line.strip()):
            block = []
        elif block is not None and _END.match(line.strip()):
            yield block
            block, found = None, found + 1
            if found >= _MAX_BLOCKS:
                return
        elif block is not None and len(block) < 200:
            block.append(line.strip())


def _of_block(block: list[str]) -> Bench | None:
    held: dict[str, float] = {}
    for line in block:
        found = _LINE.match(line)
        if found is None:
            continue
        try:
            value = real(float(found[2]))
        except ValueError:
            continue
        if value is not None and value >= 0:
            held.setdefault(found[1].strip().lower(), value)
    named = {name: held[label] for label, name in _LABELS.items() if label in held}
    if "completed" not in named or "duration_s" not in named:
        return None
    whole = {n: count(v) if n in _WHOLE else v for n, v in named.items()}
    times = {m: _printed(held, m) for m in METRICS}
    return Bench(layout=TEXT_LAYOUT, times=times, **whole)  # type: ignore[arg-type]


def _printed(held: dict[str, float], metric: str) -> Times:
    median = held.get(f"median {metric} (ms)")
    p50 = held.get(f"p50 {metric} (ms)", median)
    return Times(held.get(f"mean {metric} (ms)"), p50, held.get(f"p90 {metric} (ms)"), held.get(f"p99 {metric} (ms)"))
