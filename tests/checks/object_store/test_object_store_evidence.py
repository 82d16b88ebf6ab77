"""From a job's result to rows, through redaction, as the pipeline takes it."""

from __future__ import annotations

from dataclasses import replace

import zstandard
from object_store_samples import NOW, WARP, make_site, warp_json

from fabric_health.checks.object_store import OBJECT_STORE
from fabric_health.checks.object_store.launches import WARP_FILE, launches
from fabric_health.checks.object_store.tables import ObjectStoreResult
from fabric_health.connections import Connection
from fabric_health.evidence import CommandStatus, Redactor
from fabric_health.jobs.references import secrets_of, value_of
from fabric_health.jobs.spec import JobResult, JobStatus
from fabric_health.launching import evidence_of

SITE = make_site(**WARP)
(LAUNCH,) = launches(SITE, (), "r")


def job(artefact: bytes) -> JobResult:
    return JobResult(
        LAUNCH.name,
        JobStatus.EXITED,
        0,
        "warp: Benchmark data written\n",
        "",
        NOW,
        NOW,
        artefacts={WARP_FILE: artefact},
    )


def test_a_compressed_artefact_is_unpacked_redacted_and_read() -> None:
    evidence = evidence_of(LAUNCH, "object_store", job(zstandard.ZstdCompressor().compress(warp_json().encode())))
    kept = Redactor(()).evidence(evidence)
    assert "sesame" not in repr(kept)
    rows = [r for r in OBJECT_STORE.parse(LAUNCH, kept, SITE) if isinstance(r, ObjectStoreResult)]
    assert [r.problem for r in rows] == [None]


def test_a_cut_artefact_is_not_read() -> None:
    whole = zstandard.ZstdCompressor(level=1).compress(warp_json().encode())
    evidence = evidence_of(LAUNCH, "object_store", job(whole[:-20]))
    (file,) = [r for r in evidence.results if r.name.startswith("artefact:")]
    assert file.status is CommandStatus.TRUNCATED
    assert not any(isinstance(r, ObjectStoreResult) for r in OBJECT_STORE.parse(LAUNCH, evidence, SITE))
    bomb = zstandard.ZstdCompressor().compress(bytes(64 << 20))
    small = replace(LAUNCH, spec=replace(LAUNCH.spec, artefact_max_bytes=1 << 20))
    (file,) = [r for r in evidence_of(small, "object_store", job(bomb)).results if r.name.startswith("artefact:")]
    assert (file.status, len(file.stdout)) == (CommandStatus.TRUNCATED, 4 << 20)


def test_the_stores_address_is_looked_up_but_no_secret() -> None:
    connection = Connection("c", "h", 1, "access", "secret-key", {"endpoint": "127.0.0.1:8333"})
    (launch, *_) = launches(make_site(), (), "r")
    assert launch.spec.tool == "self"
    assert value_of(launch.spec.secrets["S3_ENDPOINT"], lambda _: connection) == "127.0.0.1:8333"
    assert set(secrets_of(launch.spec, lambda _: connection)) == {"access", "secret-key"}
