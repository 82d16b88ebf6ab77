"""Sites, launches, evidence and outputs that the tests of this check build on."""

from __future__ import annotations

import copy
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fabric_health.checks.check import Context, Launch, RowSet
from fabric_health.checks.object_store import OBJECT_STORE
from fabric_health.datasets.arrow import split
from fabric_health.datasets.contracts import Row
from fabric_health.datasets.run import RunKey
from fabric_health.datasets.tables import Finding
from fabric_health.evidence import CommandResult, CommandStatus, ReachStatus, StoredEvidence, UnitEvidence
from fabric_health.site import Site, Storage, Thresholds

NOW = datetime(2026, 11, 30, 5, 0, tzinfo=UTC)
HOSTS = tuple(f"minioib{n}:9000" for n in range(1, 5))
WARP: dict[str, Any] = {
    "engine": "warp",
    "hosts": list(HOSTS),
    "loads": ["get"],
    "object_sizes": ["4MiB"],
    "concurrency": 32,
    "duration_s": 300,
    "launches": 1,
}
MIB = 1 << 20


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
        checks={"object_store": settings},
    )


def make_evidence(
    launch: str, stdout: str, *, exit_code: int | None = 0, stderr: str = "", artefacts: dict[str, str] | None = None,
    status: CommandStatus = CommandStatus.EXITED,
) -> UnitEvidence:  # fmt: skip
    def one(name: str, text: str, state: CommandStatus = CommandStatus.EXITED, err: str = "") -> CommandResult:
        return CommandResult(name, ("x",), state, exit_code, text, err, NOW, NOW)

    files = tuple(one(f"artefact:{n}", t) for n, t in (artefacts or {}).items())
    results = (one("job", stdout, status, stderr), *files)
    return UnitEvidence(launch, "launch", "object_store", ReachStatus.OK, "", NOW, NOW, results)


class Run:
    """A run of the check on given outputs, by launch name; one output stands for every launch."""

    def __init__(self, site: Site, output: str | dict[str, str], **evidence: Any) -> None:
        self.site = site
        assert OBJECT_STORE.launches is not None
        self.launches: tuple[Launch, ...] = OBJECT_STORE.launches(site, (), "run-1")
        self.rows: list[Row] = []
        for launch in self.launches:
            text = output if isinstance(output, str) else output[launch.name]
            self.rows += OBJECT_STORE.parse(launch, make_evidence(launch.name, text, **evidence), site)

    def of(self, row_type: type[Any]) -> list[Any]:
        return RowSet.gather(self.rows).of(row_type)

    def findings(self) -> list[Finding]:
        reach = {x.name: StoredEvidence(x.name, "k", "h", ReachStatus.OK) for x in self.launches}
        context = Context(self.site, "run-1", NOW, self.launches, reach)
        return OBJECT_STORE.judge(RowSet.gather(self.rows), context)

    def quarantined(self) -> list[str]:
        """Return why rows broke their contract; a parser's own rows never do."""
        key = RunKey("s", "run-1", NOW, "measured")
        reasons = []
        for row_type, rows in RowSet.gather(self.rows).rows.items():
            _, broken = split(row_type, [(r, None) for r in rows], key, "object_store")
            reasons += [b.reason for b in broken]
        return reasons

    def rules(self) -> list[str]:
        return sorted({f.rule for f in self.findings()})


def throughput(mib: float, size: int, seconds: float = 297.0, segments: int = 297, **parts: float) -> dict[str, Any]:
    fast, slow = parts.get("fastest", 1.05), parts.get("slowest", 0.92)
    bps = mib * MIB
    return {
        "start_time": "2025-05-06T07:08:09.123456789Z",
        "end_time": "2025-05-06T07:13:06.123456789Z",
        "segmented": {
            "segments": [
                {"start": "2025-05-06T07:08:09Z", "bytes_per_sec": bps, "obj_per_sec": bps / size, "errors": 0}
            ]
            * segments,
            "segment_duration_millis": 1000,
            "sorted_by": "bps",
            "fastest_bps": bps * fast,
            "fastest_ops": bps / size * fast,
            "median_bps": bps * parts.get("median", 1.0),
            "median_ops": bps / size,
            "slowest_bps": bps * slow,
            "slowest_ops": bps / size * slow,
        },
        "errors": 0,
        "measure_duration_millis": int(seconds * 1000),
        "bytes": int(bps * seconds),
        "objects": bps * seconds / size,
        "ops": int(bps * seconds / size),
        "op_type": "GET",
    }


def single(requests: int, p99: float, merged: int = 0, ttfb: bool = True) -> dict[str, Any]:
    n = max(merged, 1)
    first = {
        "average_millis": 7.0 * n, "fastest_millis": 1.0, "p25_millis": 5.0 * n, "median_millis": 6.0 * n,
        "p75_millis": 8.0 * n, "p90_millis": 11.0 * n, "p99_millis": 22.0 * n, "slowest_millis": 219.0,
    }  # fmt: skip
    return {
        "by_host": {}, "HostNames": [], "dur_avg_millis": 17.1 * n, "dur_median_millis": 15.5 * n,
        "dur_90_millis": 27.0 * n, "dur_99_millis": p99 * n, "fastest_millis": 3.9, "slowest_millis": 281.4,
        "std_dev_millis": 8.9 * n, "requests": requests, "obj_size": (4 * MIB) * n, "skipped": False,
        "merged_entries": merged, **({"first_byte": first} if ttfb else {}),
    }  # fmt: skip


def warp_document(
    mib: float = 7500.64, *, op: str = "GET", hosts: tuple[str, ...] = HOSTS, size: int = 4 * MIB, errors: int = 0,
    shares: tuple[float, ...] | None = None, concurrency: int = 32, **parts: float,
) -> dict[str, Any]:  # fmt: skip
    """Return warp's aggregate of one operation, as `--json` prints it."""
    each = shares or tuple(1 / len(hosts) for _ in hosts)
    total = throughput(mib, size, **parts)
    live = {
        "Title": f"{op} (Final)",
        "total_requests": total["ops"] + errors,
        "total_objects": total["ops"],
        "total_errors": errors,
        "total_bytes": total["ops"] * size,
        "concurrency": concurrency,
        "start_time": "2025-05-06T07:08:08Z",
        "end_time": "2025-05-06T07:13:08Z",
        "first_errors": ["http://minioib2:9000: 503 SlowDown"] if errors else None,
        "hosts": [f"http://{h}" for h in hosts],
        "clients": ["Qx7a"],
        "throughput": total,
        "throughput_by_host": {
            f"http://{h}": throughput(mib * s, size) | {"segmented": None} for h, s in zip(hosts, each, strict=True)
        },
        "throughput_by_client": {},
        "requests_by_client": {
            "Qx7a": [
                {"start_time": "a", "end_time": "b", "single_sized_requests": single(3000, 40.0, 0, op == "GET")},
                {"start_time": "a", "end_time": "b", "single_sized_requests": single(1000, 60.0, 3, op == "GET")},
            ]
        },
    }
    return {
        "v": 2,
        "commandline": "warp get --access-key=*REDACTED* --session-token=sesame --host=minioib1:9000",
        "final": True,
        "warp_version": "1.1.4",
        "warp_commit": "abc",
        "total": copy.deepcopy(live),
        "by_op_type": {op: live},
        "by_host": {},
        "by_obj_log_2_size": {"22": {}},
    }


def warp_json(*args: Any, **kwargs: Any) -> str:
    return json.dumps(warp_document(*args, **kwargs), indent=2) + "\n"


def mc_info(servers: int = 4, drives: int = 4, parity: int = 4) -> dict[str, Any]:
    """Return `mc admin info --json` of a healthy cluster of one pool and one set."""
    names = [f"minioib{n}:9000" for n in range(1, servers + 1)]
    return {
        "status": "success",
        "info": {
            "mode": "online",
            "deploymentID": "6faeded5-5cf3-4133-8a37-07c5d500207c",
            "buckets": {"count": 2},
            "objects": {"count": 12},
            "usage": {"size": 48 * MIB},
            "backend": {
                "backendType": "Erasure",
                "onlineDisks": servers * drives,
                "offlineDisks": 0,
                "standardSCParity": parity,
                "rrSCParity": 1,
                "totalSets": [1],
                "totalDrivesPerSet": [servers * drives],
            },
            "servers": [
                {
                    "state": "online",
                    "endpoint": name,
                    "uptime": 120,
                    "version": "2025-04-22T22:12:26Z",
                    "commitID": "0d7408fc9969caf07de6a8c3a84f9fbb10fc0d11",
                    "network": dict.fromkeys(names, "online"),
                    "drives": [
                        {
                            "endpoint": f"http://{name}/mnt/data{d}",
                            "path": f"/mnt/data{d}",
                            "state": "ok",
                            "uuid": f"{s}-{d}",
                            "totalspace": 800_166_076_416,
                            "usedspace": 5_000_000_000,
                            "availspace": 795_166_076_416,
                            "pool_index": 0,
                            "set_index": 0,
                            "disk_index": s * drives + d,
                        }
                        for d in range(drives)
                    ],
                    "poolNumber": 1,
                    "minio_env_vars": {"MINIO_ROOT_PASSWORD": "*redacted*"},
                }
                for s, name in enumerate(names)
            ],
        },
    }
