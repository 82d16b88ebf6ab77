"""Benchmarks of one launch to rows: each is held against the load that was asked for before its numbers count."""

from __future__ import annotations

from dataclasses import dataclass

from fabric_health.checks.model_eval.asked import Serve
from fabric_health.checks.model_eval.comparability import Served
from fabric_health.checks.model_eval.launches import GUIDELLM_FILE, bench_file
from fabric_health.checks.model_eval.outcome import Outcome
from fabric_health.checks.model_eval.parsers.bench import Bench, Times
from fabric_health.checks.model_eval.parsers.guidellm import read_guidellm
from fabric_health.checks.model_eval.parsers.vllm_bench import TEXT_LAYOUT, read_bench, read_bench_text
from fabric_health.checks.model_eval.tables import ModelServing
from fabric_health.datasets.contracts import Row

VLLM, GUIDELLM = "vllm bench", "guidellm"
# Random prompts are cut from a vocabulary, and a tokenizer may join or split tokens at their ends.
INPUT_TOLERANCE = 0.10
# Every answer is as long as asked for: the end of a text is ignored.
OUTPUT_TOLERANCE = 0.02
# Rates against counts and duration; those printed for people have two decimals.
ARITHMETIC_TOLERANCE = 0.02


@dataclass(frozen=True)
class Load:
    """The load that was asked for. ``counted`` are the requests that the server counted; ``cached`` refuses all."""

    want: Serve
    keys: Served
    counted: int | None
    cached: str | None


def serving_rows(load: Load, output: str, out: Outcome) -> list[Row]:
    """Return a row for each benchmark that was asked for; one that is missing or not as asked says why."""
    rows: list[Row] = []
    printed: list[Bench] | None = None
    answered = 0
    for concurrency in load.want.concurrency:
        for repeat in range(1, load.want.repeats + 1):
            name = bench_file(concurrency, repeat)
            file = out.file(name)
            found = read_bench(file.stdout)[-1:] if file else []
            if file is None:
                # A result that could not be saved is only warned of; what was printed is a result all the same.
                printed = read_bench_text(output) if printed is None else printed
                found = [b for b in printed if b.concurrency == concurrency][repeat - 1 : repeat]
            problem = _vllm_problem(load, concurrency, repeat, found, name, out)
            answered += found[0].completed or 0 if found else 0
            bench = found[0] if found else Bench("none")
            rows.append(_row(load, out.launch, (VLLM, None), (concurrency, repeat), bench, problem))
    if load.want.guidellm_s:
        rows.append(_guidellm(load, out))
    if load.want.kind == "generate" and load.counted is not None and load.counted < answered:
        out.broken(
            "requests_counted",
            f"the clients say that {answered} requests were answered, the server counted {load.counted}",
            subject="serving",
            refuses=False,
            expected=f">= {answered}",
            actual=str(load.counted),
        )
    return rows


def _vllm_problem(load: Load, concurrency: int, repeat: int, found: list[Bench], name: str, out: Outcome) -> str | None:
    subject = f"c{concurrency}-r{repeat}"
    if not found:
        if out.file(name):
            return out.broken("result_readable", f"{name} is no result of vllm bench serve", subject=name)
        return out.broken("result_written", out.why_missing(name), subject=name)
    bench, want = found[0], load.want
    failed = _failed(bench, want.prompts)
    if failed:
        return out.broken(
            "requests_complete",
            f"concurrency {concurrency}: {failed}",
            subject=subject,
            expected=f"{want.prompts} of {want.prompts} requests",
            actual=f"{bench.completed} of {want.prompts} requests",
        )
    other = _other_load(bench, want, concurrency)
    if other:
        return out.broken("load_as_asked", f"concurrency {concurrency}: {other}", subject=subject)
    odd = _arithmetic(bench, want.kind)
    if odd:
        return out.broken("arithmetic_holds", f"concurrency {concurrency}: {odd}", subject=subject)
    return load.cached


def _failed(bench: Bench, prompts: int) -> str | None:
    if bench.completed is None:
        return "the result does not say how many requests were answered"
    if bench.completed != prompts or bench.failed:
        failed = "an unknown number" if bench.failed is None else str(bench.failed)
        return f"{bench.completed} of {prompts} requests were answered, {failed} failed"
    return None


def _other_load(bench: Bench, want: Serve, concurrency: int) -> str | None:
    if bench.model is not None and bench.model != want.unit:
        return f"the result is of model {bench.model}"
    if bench.concurrency != concurrency:
        return f"the result is of concurrency {bench.concurrency or 'unknown'}"
    if bench.prompts is not None and bench.prompts != want.prompts:
        return f"the result is of {bench.prompts} requests instead of {want.prompts}"
    read, written = want.prompts * want.input_tokens, want.prompts * want.output_tokens
    if bench.input_tokens is None or abs(bench.input_tokens - read) > INPUT_TOLERANCE * read:
        return f"prompts had {bench.input_tokens} tokens together instead of about {read}"
    if want.kind == "embed":
        return None
    if bench.output_tokens is None or abs(bench.output_tokens - written) > OUTPUT_TOLERANCE * written:
        return f"answers had {bench.output_tokens} tokens together instead of {written}"
    return None


def _arithmetic(bench: Bench, kind: str) -> str | None:
    """Say which rate does not follow from count and duration, None where all do."""
    if not bench.duration_s or not bench.requests_per_s:
        return "it has no duration or no rate of requests"
    pairs = [("requests", bench.completed, bench.requests_per_s)]
    if kind == "generate":
        if bench.output_tokens_per_s is None or bench.times["ttft"].mean is None:
            return "it has no rate of tokens or no time to the first token"
        pairs.append(("output tokens", bench.output_tokens, bench.output_tokens_per_s))
    rounding = 0.005 if bench.layout == TEXT_LAYOUT else 0.0
    for what, number, rate in pairs:
        slack = ARITHMETIC_TOLERANCE + rounding / bench.duration_s + (rounding / rate if rate else 0.0)
        if number is None or abs(rate * bench.duration_s - number) > slack * max(number, 1):
            return f"{rate:.5g} {what}/s in {bench.duration_s:.5g} s are not {number}"
    return None


def _guidellm(load: Load, out: Outcome) -> ModelServing:
    file = out.file(GUIDELLM_FILE)
    version, found = read_guidellm(file.stdout) if file else (None, [])
    refused = None
    if file is None:
        refused = out.broken("result_written", out.why_missing(GUIDELLM_FILE), subject=GUIDELLM_FILE)
    elif not found:
        what = f"{GUIDELLM_FILE} is no report of guidellm"
        refused = out.broken("result_readable", what, subject=GUIDELLM_FILE)
    concurrency = max(load.want.concurrency)
    bench = next((b for b in found if b.concurrency == concurrency), None)
    problem = refused or _guidellm_problem(load, concurrency, bench, out)
    return _row(load, out.launch, (GUIDELLM, version), (concurrency, 1), bench or Bench("none"), problem)


def _guidellm_problem(load: Load, concurrency: int, bench: Bench | None, out: Outcome) -> str | None:
    subject = f"guidellm-c{concurrency}"
    if bench is None:
        return out.broken("load_as_asked", f"guidellm has no result at concurrency {concurrency}", subject=subject)
    if not bench.completed or bench.failed is None or bench.failed:
        failed = "an unknown number" if bench.failed is None else str(bench.failed)
        return out.broken(
            "requests_complete",
            f"guidellm, concurrency {concurrency}: {bench.completed or 0} requests were answered, {failed} failed",
            subject=subject,
            expected="requests, none failed",
            actual=f"{failed} failed",
        )
    if bench.requests_per_s is None or (load.want.kind == "generate" and bench.output_tokens_per_s is None):
        return out.broken("arithmetic_holds", "guidellm: a result without rates", subject=subject)
    return load.cached


def _row(
    load: Load, launch: str, client: tuple[str, str | None], level: tuple[int, int], bench: Bench, problem: str | None
) -> ModelServing:
    """Return a row of one benchmark: ``client`` with its version, ``level``: concurrency and repeat."""
    name, version = client
    concurrency, repeat = level
    want = load.want
    key = load.keys.key(
        client=name if version is None else f"{name} {version}",
        concurrency=concurrency,
        prompts=want.prompts if name == VLLM else f"{want.guidellm_s} s",
        input_tokens=want.input_tokens,
        output_tokens=want.output_tokens,
        goodput=want.goodput or "none",
    )
    row = ModelServing(
        launch=launch,
        unit=want.unit,
        client=name,
        concurrency=concurrency,
        repeat=repeat,
        comparability=key,
        prompts=want.prompts if name == VLLM else None,
        completed=bench.completed,
        failed=bench.failed,
        problem=problem,
    )
    return row if problem is not None else _measured(row, bench)


def _measured(row: ModelServing, bench: Bench) -> ModelServing:
    times = {
        f"{metric}_{name}_ms": value
        for metric, of in bench.times.items()
        for name, value in zip(("mean", "p50", "p90", "p99"), _values(of), strict=True)
    }
    return ModelServing(
        **{
            **row.__dict__,
            **times,
            "duration_s": bench.duration_s,
            "requests_per_s": bench.requests_per_s,
            "output_tokens_per_s": bench.output_tokens_per_s,
            "total_tokens_per_s": bench.total_tokens_per_s,
            "goodput_per_s": bench.goodput_per_s,
            "input_tokens": bench.input_tokens,
            "output_tokens": bench.output_tokens,
        }
    )


def _values(times: Times) -> tuple[float | None, ...]:
    return times.mean, times.p50, times.p90, times.p99
