"""Which metrics get a verdict, which way is better, and what loss matters."""

from __future__ import annotations

from typing import Final

from fabric_health.verdict.outcome import Metric

# Margins are ours: above what a healthy launch varies by, below what operators act on (3.5 % is the smallest published
# warning band for collectives: Azure's guide to GB300 health checks). A metric that is derived from another one of the
# same row (algorithm bandwidth, time, objects per second) is left out: it would be the same verdict twice.
JUDGED: Final = {
    m.name: m
    for m in (
        Metric("busbw_gbps", higher_is_better=True, margin=0.03),
        Metric("bw_average_gbitps", higher_is_better=True, margin=0.03),
        Metric("latency_typical_us", higher_is_better=False, margin=0.10),
        Metric("mib_per_s", higher_is_better=True, margin=0.05),
        Metric("ttfb_p50_ms", higher_is_better=False, margin=0.15),
        # Of servers of models: published gates act on 10 % of the throughput and on half as much again of a latency.
        Metric("output_tokens_per_s", higher_is_better=True, margin=0.10),
        Metric("ttft_p50_ms", higher_is_better=False, margin=0.20),
    )
}

# What models answer, item by item; not in the view ``measurements``. The margin of an accuracy is in shares of all
# items, that of a perplexity in shares of the likelihood of a token.
ACCURACY: Final = Metric("accuracy", higher_is_better=True, margin=0.03)
PERPLEXITY: Final = Metric("perplexity", higher_is_better=False, margin=0.02)
SAME_ANSWERS: Final = Metric("same_answers", higher_is_better=True, margin=0.01)
SAME_VECTORS: Final = Metric("same_vectors", higher_is_better=True, margin=0.01)
MARGINS: Final = {m.name: m.margin for m in (*JUDGED.values(), ACCURACY, PERPLEXITY, SAME_ANSWERS, SAME_VECTORS)}
