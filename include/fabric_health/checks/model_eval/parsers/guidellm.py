"""Reports of guidellm: those of 0.7 and later (``config``), and earlier ones (``args``, ``run_stats``).

A metric has one distribution for each outcome of requests; those of successful ones count. ``request_latency`` is in
seconds, times to and between tokens in ms.
"""

from __future__ import annotations

from typing import Any

from fabric_health.checks.model_eval.parsers.bench import Bench, Times
from fabric_health.checks.model_eval.parsers.reading import document, first, text
from fabric_health.checks.untrusted import count, listing, mapping, number

_MAX_BENCHMARKS = 200
_TIMES = {
    "ttft": ("time_to_first_token_ms", 1.0),
    "tpot": ("time_per_output_token_ms", 1.0),
    "itl": ("inter_token_latency_ms", 1.0),
    "e2el": ("request_latency", 1000.0),
}


def read_guidellm(report: str) -> tuple[str | None, list[Bench]]:
    """Return guidellm's version, where the report says it, and its benchmarks; none where it is no such report."""
    whole = document(report)
    if whole is None:
        return None, []
    version = text(first(mapping(whole.get("metadata")), "guidellm_version"), 40)
    entries = listing(whole.get("benchmarks"))[:_MAX_BENCHMARKS]
    found = [_bench(e) for e in entries if isinstance(e, dict) and isinstance(e.get("metrics"), dict)]
    return version, found if len(found) == len(entries) else []


def _bench(raw: dict[str, Any]) -> Bench:
    metrics = mapping(raw.get("metrics"))
    made = mapping(mapping(first(raw, "scheduler_metrics", "run_stats")).get("requests_made"))
    totals = made or mapping(metrics.get("request_totals"))
    strategy = mapping(mapping(first(raw, "config", "args")).get("strategy"))
    duration = number(raw.get("duration"))
    if duration is None:
        start, end = number(raw.get("start_time")), number(raw.get("end_time"))
        duration = end - start if start is not None and end is not None and end > start else None
    return Bench(
        layout="guidellm json",
        completed=count(totals.get("successful")),
        failed=count(totals.get("errored")),
        incomplete=count(totals.get("incomplete")),
        concurrency=_level(strategy),
        duration_s=duration,
        requests_per_s=_of(metrics, "requests_per_second"),
        output_tokens_per_s=_of(metrics, "output_tokens_per_second"),
        total_tokens_per_s=_of(metrics, "tokens_per_second"),
        input_tokens=_total(metrics, "prompt_token_count"),
        output_tokens=_total(metrics, "output_token_count"),
        times={name: _times(metrics, key, scale) for name, (key, scale) in _TIMES.items()},
    )


def _level(strategy: dict[str, Any]) -> int | None:
    kind = text(first(strategy, "type_", "kind", "type"))
    if kind != "concurrent":
        return None
    return count(first(strategy, "streams", "max_concurrency", "worker_count"))


def _successful(metrics: dict[str, Any], key: str) -> dict[str, Any]:
    return mapping(mapping(metrics.get(key)).get("successful"))


def _of(metrics: dict[str, Any], key: str) -> float | None:
    return number(_successful(metrics, key).get("mean"))


def _total(metrics: dict[str, Any], key: str) -> int | None:
    return count(_successful(metrics, key).get("total_sum"))


def _times(metrics: dict[str, Any], key: str, scale: float) -> Times:
    found = _successful(metrics, key)
    if not number(found.get("count")) and "count" in found:
        return Times()
    shares = mapping(found.get("percentiles"))
    p50 = first(shares, "p50") if "p50" in shares else found.get("median")
    values = [number(v) for v in (found.get("mean"), p50, shares.get("p90"), shares.get("p99"))]
    return Times(*(None if v is None else v * scale for v in values))
