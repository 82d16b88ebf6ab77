"""Tables of the object store benchmark: results per launch and operation, shares of hosts, state of the cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fabric_health.datasets.contracts import Row, column, optional


@dataclass(frozen=True)
class ObjectStoreResult(Row):
    TABLE: ClassVar[str] = "object_store"
    KEY: ClassVar[tuple[str, ...]] = ("run", "launch", "op")
    DESCRIPTION: ClassVar[str] = (
        "One operation of one launch of the object store benchmark. Where `problem` is set the launch did not measure "
        "what was asked, and its numbers are null."
    )

    launch: str = column("launch, an independent repetition")
    store: str = column("object store, as the site names it")
    op: str = column("`GET`, `PUT`, `DELETE`, `STAT`, or `MIXED` for all operations of a mixed load together")
    load: str = column("load the launch was asked for: `get`, `put`, `mixed`, `delete` or `stat`")
    asked_object_bytes: int = column("object size that was asked for", unit="B", minimum=0)
    asked_concurrency: int = column("concurrent requests that were asked for, all clients together", minimum=1)
    engine: str = column("`warp` or `embedded`")
    hosts: str = column("endpoints that the requests went to, as the tool names them, ascending, comma separated")
    comparability: str = column("what must be equal for two results to be compared")
    problem: str | None = optional("why this is no measurement of what was asked; null when it is one")
    tool_version: str | None = optional("version of the tool")
    server: str | None = optional("what the store calls itself in its answers")
    layout: str | None = optional("layout the result was read from, e.g. `warp json`, `warp csv`, `warp text`")
    clients: int | None = optional("benchmark clients (hosts that send requests)", minimum=0)
    object_bytes: int | None = optional("object size as measured: bytes / objects", unit="B", minimum=0)
    concurrency: int | None = optional("concurrent requests as measured", minimum=0)
    duration_s: float | None = optional("length of the measured window", unit="s", minimum=0)
    requests: int | None = optional("requests, failed ones included", unit="requests", minimum=0)
    errors: int | None = optional(
        "failed requests; the tools end with exit code 0 all the same", unit="requests", minimum=0
    )
    first_error: str | None = optional("first error message, untrusted text")
    mib_per_s: float | None = optional(
        "payload throughput, 2^20 bytes; null for operations without payload", unit="MiB/s", minimum=0
    )
    objects_per_s: float | None = optional("objects per second: what counts for small objects", unit="1/s", minimum=0)
    ttfb_avg_ms: float | None = optional("time to first byte, mean; GET only", unit="ms", minimum=0)
    ttfb_p50_ms: float | None = optional("time to first byte, median", unit="ms", minimum=0)
    ttfb_p90_ms: float | None = optional("time to first byte, 90th percentile", unit="ms", minimum=0)
    ttfb_p99_ms: float | None = optional("time to first byte, 99th percentile", unit="ms", minimum=0)
    ttfb_max_ms: float | None = optional("time to first byte, worst", unit="ms", minimum=0)
    latency_avg_ms: float | None = optional("request time, mean", unit="ms", minimum=0)
    latency_p50_ms: float | None = optional("request time, median", unit="ms", minimum=0)
    latency_p90_ms: float | None = optional("request time, 90th percentile", unit="ms", minimum=0)
    latency_p99_ms: float | None = optional("request time, 99th percentile", unit="ms", minimum=0)
    latency_max_ms: float | None = optional("request time, worst", unit="ms", minimum=0)
    percentiles: str | None = optional(
        "`samples`: of all requests; `segment_means`: mean of the percentiles of short segments, which is not the same"
    )
    segments: int | None = optional("time segments the window was split into", minimum=0)
    segment_s: float | None = optional("length of a segment", unit="s", minimum=0)
    segment_fastest: float | None = optional(
        "fastest segment: MiB/s, or objects/s where there is no payload", minimum=0
    )
    segment_median: float | None = optional("median segment, same unit", minimum=0)
    segment_slowest: float | None = optional("slowest segment, same unit", minimum=0)


@dataclass(frozen=True)
class ObjectStoreHost(Row):
    TABLE: ClassVar[str] = "object_store_hosts"
    KEY: ClassVar[tuple[str, ...]] = ("run", "launch", "op", "host")
    DESCRIPTION: ClassVar[str] = "What each host of the object store contributed to one operation of one launch."

    launch: str = column("launch")
    store: str = column("object store")
    op: str = column("operation")
    host: str = column("endpoint, `host:port`")
    mib_per_s: float | None = optional("payload throughput, 2^20 bytes", unit="MiB/s", minimum=0)
    objects_per_s: float | None = optional("objects per second", unit="1/s", minimum=0)
    requests: int | None = optional("requests", unit="requests", minimum=0)
    errors: int | None = optional("failed requests", unit="requests", minimum=0)


@dataclass(frozen=True)
class ObjectStoreCluster(Row):
    TABLE: ClassVar[str] = "object_store_clusters"
    KEY: ClassVar[tuple[str, ...]] = ("run", "store")
    DESCRIPTION: ClassVar[str] = "State of a MinIO cluster: drives, erasure sets, versions, network, capacity."

    launch: str = column("launch whose output was read")
    store: str = column("object store")
    servers: int = column("servers the cluster lists", minimum=0)
    servers_online: int = column("servers in state `online`", minimum=0)
    drives: int = column("drives the cluster lists", minimum=0)
    drives_online: int = column("drives in state `ok`", minimum=0)
    drives_offline: int = column("drives in any other state", minimum=0)
    drives_healing: int = column("drives that are being healed", minimum=0)
    versions: str = column("distinct server versions, ascending, comma separated; empty when none was given")
    links: int = column("connections between servers that they report", minimum=0)
    links_online: int = column("of them, in state `online`", minimum=0)
    pools: int | None = optional("server pools", minimum=0)
    erasure_sets: int | None = optional("erasure sets of all pools", minimum=0)
    drives_per_set: int | None = optional("drives of an erasure set (N), null when pools differ", minimum=1)
    parity: int | None = optional("parity drives of a set (M of EC:M), standard storage class", minimum=0)
    read_quorum: int | None = optional("drives of a set that reading needs: N - M", minimum=0)
    write_quorum: int | None = optional("drives of a set that writing needs: N - M, one more where M = N/2", minimum=0)
    worst_set_online: int | None = optional("drives online in the set that has the fewest", minimum=0)
    raw_bytes: int | None = optional("capacity of all drives that report one", unit="B", minimum=0)
    usable_bytes: int | None = optional("capacity for data: smallest drive of each set x (N - M)", unit="B", minimum=0)
    usable_ratio: float | None = optional("usable / raw", unit="1", minimum=0, maximum=1)
    used_bytes: int | None = optional("stored data", unit="B", minimum=0)
