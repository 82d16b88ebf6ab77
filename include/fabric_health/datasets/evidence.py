"""Store raw evidence: redacted, content-addressed, compressed; and the manifest that says a check has collected.

A unit's evidence is one object named by the SHA-256 of its uncompressed bytes. The manifest is written last: a run
has evidence for a check once its manifest is there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, replace
from urllib.parse import quote, unquote

import zstandard

from fabric_health.datasets.run import RunKey
from fabric_health.datasets.store import ObjectMissing, ObjectStore
from fabric_health.errors import StoreError
from fabric_health.evidence import (
    ReachStatus,
    Redactor,
    StoredEvidence,
    UnitEvidence,
    content_hash,
    from_bytes,
    to_bytes,
)

# A unit's commands answer at most a few MiB each; more than this is an attack or a bug.
MAX_EVIDENCE_BYTES = 512 << 20
_LEVEL = 9
_SHA256 = re.compile(r"[0-9a-f]{64}")


def evidence_key(key: RunKey, check: str, unit: str, sha256: str) -> str:
    """Return the object key of a unit's evidence; whatever is unsafe in ``unit`` is percent-encoded."""
    safe = quote(unit, safe="").replace(".", "%2E") if unit in {".", ".."} else quote(unit, safe="")
    return f"evidence/site={key.site}/week={key.week}/{key.run}/{check}/{safe}/{sha256}.json.zst"


def put_evidence(store: ObjectStore, key: RunKey, evidence: UnitEvidence, redactor: Redactor) -> StoredEvidence:
    """Redact and store one unit's evidence. Equal evidence is stored under the same key with the same bytes."""
    clean = _encodable(redactor.evidence(evidence))
    data = to_bytes(clean)
    digest = content_hash(data)
    target = evidence_key(key, clean.check, clean.unit, digest)
    # No checksum or dictionary id: the compressed bytes depend on nothing but the content and the library's version.
    store.put(target, zstandard.ZstdCompressor(level=_LEVEL).compress(data), "application/zstd")
    return StoredEvidence(clean.unit, target, digest, clean.status, clean.detail, len(clean.results))


def get_evidence(store: ObjectStore, ref: StoredEvidence) -> UnitEvidence:
    """Read evidence back. Raises StoreError when it is not what was stored, or grows beyond 512 MiB.

    Raises ObjectMissing when it is gone, as after its retention.
    """
    try:
        packed = store.get(ref.key, max_bytes=MAX_EVIDENCE_BYTES)
    except ObjectMissing:
        raise ObjectMissing(
            f"{store.uri(ref.key)} is gone: evidence is deleted after the site's retention.evidence_days; tables stay"
        ) from None
    try:
        with zstandard.ZstdDecompressor().stream_reader(packed) as reader:
            data = reader.read(MAX_EVIDENCE_BYTES + 1)
    except zstandard.ZstdError as error:
        raise StoreError(f"{store.uri(ref.key)} is not zstd ({error}); collect the evidence again") from None
    if len(data) > MAX_EVIDENCE_BYTES:
        raise StoreError(f"{store.uri(ref.key)} holds more than {MAX_EVIDENCE_BYTES} bytes; it was not written by us")
    if content_hash(data) != ref.sha256:
        raise StoreError(
            f"{store.uri(ref.key)} does not have the SHA-256 {ref.sha256}; it was changed after it was stored"
        )
    try:
        return from_bytes(data)
    except ValueError as error:
        raise StoreError(f"{store.uri(ref.key)}: {error}") from None


def kept_keys(store: ObjectStore, key: RunKey, check: str, beginning: str = "") -> dict[str, str]:
    """Return the object key of the evidence of each unit of a run whose name begins so, manifest or not.

    A unit that was asked twice has two; which one is returned is then the same each time.
    """
    folder = evidence_key(key, check, "-", "").rsplit("/", 2)[0]
    keys = store.list(f"{folder}/{quote(beginning, safe='')}")
    return {unquote(k.split("/")[-2]): k for k in sorted(keys, reverse=True)}


def read_kept(store: ObjectStore, unit: str, target: str) -> tuple[StoredEvidence, UnitEvidence]:
    """Read back the evidence of a unit by its object key. Raises as :func:`get_evidence`."""
    ref = StoredEvidence(unit, target, target.rsplit("/", 1)[1].split(".", 1)[0], ReachStatus.OK)
    evidence = get_evidence(store, ref)
    return replace(ref, status=evidence.status, detail=evidence.detail, commands=len(evidence.results)), evidence


def manifest_key(key: RunKey, check: str) -> str:
    """Return the object key of a check's manifest within a run."""
    return f"runs/site={key.site}/week={key.week}/{key.run}/{check}.manifest.json"


def write_manifest(store: ObjectStore, key: RunKey, check: str, refs: Sequence[StoredEvidence]) -> str:
    """Write the list of a check's evidence, sorted by unit, and return its key. Write it after the evidence."""
    body = {
        "check": check,
        "evidence": [asdict(r) for r in sorted(refs, key=lambda r: (r.unit, r.sha256))],
        "origin": key.origin,
        "run": key.run,
        "site": key.site,
        "started_at": key.started_at.isoformat(),
        "version": 1,
    }
    target = manifest_key(key, check)
    store.put(target, json.dumps(body, indent=1, sort_keys=True).encode(), "application/json")
    return target


def read_manifest(store: ObjectStore, key: RunKey, check: str) -> list[StoredEvidence] | None:
    """Return the evidence of a check in a run, None when it has not been collected to the end.

    Raises StoreError when the manifest is damaged.
    """
    target = manifest_key(key, check)
    try:
        data = store.get(target)
    except ObjectMissing:
        return None
    return _references(store, target, data)


def _references(store: ObjectStore, target: str, data: bytes) -> list[StoredEvidence]:
    try:
        body = json.loads(data)
        if body["version"] != 1:
            raise ValueError(f"version {body['version']}")
        return [_reference(raw) for raw in body["evidence"]]
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{store.uri(target)} is not a manifest of version 1 ({error!r}); collect again") from None


def find_evidence(store: ObjectStore, run: str, unit: str) -> list[UnitEvidence]:
    """Return what ``unit`` answered in ``run``, one per check that asked it, in the order of checks.

    ``unit`` may be a part of a node or switch (``gpu-001/mlx5_3``): evidence is kept by the whole. Only checks
    whose manifest is there count.
    """
    owner = unit.split("/", 1)[0]
    manifests = [k for k in store.list("runs/") if k.endswith(".manifest.json") and k.split("/")[-2] == run]
    refs = [r for k in manifests for r in _references(store, k, store.get(k)) if r.unit == owner]
    return [get_evidence(store, r) for r in refs]


def evidence_prefix(site: str) -> str:
    """Return the prefix that all evidence of a site is kept under; the weeks are folders below it."""
    return f"evidence/site={site}/"


def named_evidence(store: ObjectStore, site: str, week: str) -> tuple[set[str], set[str]]:
    """Return the keys of all evidence that the manifests of a week name, and the runs with a manifest that is damaged.

    What such a run has as evidence is not known.
    """
    manifests = [k for k in store.list(f"runs/site={site}/week={week}/") if k.endswith(".manifest.json")]
    named: set[str] = set()
    unknown: set[str] = set()
    for target, data in zip(manifests, store.get_many(manifests), strict=True):
        try:
            named.update(r.key for r in _references(store, target, data))
        except StoreError:
            unknown.add(target.split("/")[-2])
    return named, unknown


def _encodable(evidence: UnitEvidence) -> UnitEvidence:
    """Spell out lone surrogates, which a unit can send as JSON escapes and which UTF-8 cannot hold."""
    try:
        to_bytes(evidence)
    except UnicodeEncodeError:
        results = tuple(
            replace(r, argv=tuple(map(_spelt, r.argv)), stdout=_spelt(r.stdout), stderr=_spelt(r.stderr))
            for r in evidence.results
        )
        return replace(evidence, detail=_spelt(evidence.detail), results=results)
    return evidence


def _spelt(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _reference(raw: dict[str, object]) -> StoredEvidence:
    ref = StoredEvidence(**{**raw, "status": ReachStatus(str(raw["status"]))})  # type: ignore[arg-type]
    if not _SHA256.fullmatch(ref.sha256):
        raise ValueError(f"{ref.sha256!r} is not a SHA-256")
    return ref
