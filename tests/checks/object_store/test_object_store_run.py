"""The whole check on the embedded store: planned, run as jobs of this machine, read, judged."""

from __future__ import annotations

import json
from pathlib import Path

from object_store_samples import NOW, make_site

from fabric_health import connections
from fabric_health.checks.check import Context, RowSet
from fabric_health.checks.object_store import OBJECT_STORE
from fabric_health.checks.object_store.launches import launches
from fabric_health.checks.object_store.tables import ObjectStoreHost, ObjectStoreResult
from fabric_health.connections import Connection
from fabric_health.datasets import embedded
from fabric_health.evidence import ReachStatus, Redactor, StoredEvidence
from fabric_health.jobs.local import LocalBackend
from fabric_health.jobs.references import secrets_of
from fabric_health.launching import evidence_of

SITE = make_site(
    loads=["put", "get"], object_sizes=["64KiB"], concurrency=4, duration_s=2, warmup_s=0.2, objects=16, launches=1
)  # fmt: skip


def test_a_run_on_the_embedded_store_measures_and_passes(s3_home: Path, tmp_path: Path) -> None:
    raw = json.loads((s3_home / "connections.json").read_text())

    def source(conn_id: str) -> Connection:
        return connections.parse(conn_id, "connections.json", raw[conn_id])

    planned = launches(SITE, (), "run-1")
    backend = LocalBackend(home=tmp_path, run_name="run-1", tools=tmp_path, connections=source)
    rows = []
    for launch in planned:
        result = backend.run(launch.spec, lambda _: None)
        backend.release(launch.spec.name)
        assert result.exit_code == 0, result
        evidence = Redactor(secrets_of(launch.spec, source)).evidence(evidence_of(launch, "object_store", result))
        assert source(embedded.BENCHMARK_CONNECTION_ID).password not in repr(evidence)
        rows += OBJECT_STORE.parse(launch, evidence, SITE)
    found = {r.op: r for r in rows if isinstance(r, ObjectStoreResult)}
    assert set(found) == {"GET", "PUT"}
    for row in found.values():
        assert (row.problem, row.errors, row.object_bytes, row.concurrency) == (None, 0, 64 << 10, 4)
        assert row.mib_per_s is not None
        assert row.mib_per_s > 0
        assert row.hosts == source(embedded.BENCHMARK_CONNECTION_ID).extra["endpoint"]
        assert row.percentiles == "samples"
        assert "hosts=1;" in row.comparability
    assert found["GET"].ttfb_p99_ms is not None
    assert found["PUT"].ttfb_p99_ms is None
    assert len([r for r in rows if isinstance(r, ObjectStoreHost)]) == 2
    reach = {x.name: StoredEvidence(x.name, "k", "h", ReachStatus.OK) for x in planned}
    assert OBJECT_STORE.judge(RowSet.gather(rows), Context(SITE, "run-1", NOW, planned, reach)) == []
