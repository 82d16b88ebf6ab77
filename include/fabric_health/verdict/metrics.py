"""Which metrics of the view ``measurements`` get a verdict, which way is better, and what loss matters."""

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
    )
}
