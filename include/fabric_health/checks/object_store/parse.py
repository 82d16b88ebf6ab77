"""From the evidence of one launch to rows: the result is read, then held against what the launch was asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from fabric_health.checks.check import Launch, Unit
from fabric_health.checks.object_store.cluster import read_cluster
from fabric_health.checks.object_store.engine_json import read_engine_json
from fabric_health.checks.object_store.launches import CLUSTER_LAUNCH, Asked, plan
from fabric_health.checks.object_store.quantities import endpoint, size_text
from fabric_health.checks.object_store.reading import Operation, Reading
from fabric_health.checks.object_store.settings import Settings, settings
from fabric_health.checks.object_store.tables import ObjectStoreHost, ObjectStoreResult
from fabric_health.checks.object_store.warp_json import read_warp_json
from fabric_health.checks.object_store.warp_requests import read_warp_requests, read_warp_segments
from fabric_health.checks.object_store.warp_text import read_warp_text
from fabric_health.checks.untrusted import clip
from fabric_health.datasets.contracts import Row
from fabric_health.datasets.tables import Fact, FactState
from fabric_health.errors import SiteError
from fabric_health.evidence import UnitEvidence
from fabric_health.site import Site

# Most telling first: true percentiles, then what warp aggregates, then what it prints for people.
WARP_READERS: tuple[Callable[[str], Reading | None], ...] = (
    read_warp_requests,
    read_warp_json,
    read_warp_text,
    read_warp_segments,
)
OPERATIONS: dict[str, frozenset[str]] = {
    "get": frozenset({"GET"}),
    "put": frozenset({"PUT"}),
    "delete": frozenset({"DELETE"}),
    "stat": frozenset({"STAT"}),
    "mixed": frozenset({"GET", "PUT", "DELETE", "STAT", "MIXED"}),
}
# A launch that ended this much before its time did not measure what was asked; warp itself drops the first and the
# last segment, and leaves out the time in which not every thread was at work.
DURATION_MIN_SHARE = 0.7
DURATION_SLACK_S = 3.0
# Objects that warp was asked to give one size have it; the mean may be off by rounding alone.
SIZE_TOLERANCE = 0.001


def parse(unit: Unit, evidence: UnitEvidence, site: Site) -> list[Row]:
    """Return the rows of one launch; what could not be read is a fact in state ``error``. Never raises."""
    if not isinstance(unit, Launch):
        return []
    try:
        wanted = settings(site)
    except SiteError as error:
        return [_unread(unit.name, clip(str(error)))]
    job = evidence.result("job")
    if job is None:
        return [_unread(unit.name, clip(evidence.detail) or "the job gave no output")]
    if not job.ran:
        return [_unread(unit.name, f"the job did not end by itself ({job.status}): {clip(evidence.detail)}")]
    if unit.name == CLUSTER_LAUNCH:
        rows, problem = read_cluster(job.stdout, wanted.store)
        return rows if problem is None else [_unread(unit.name, problem)]
    asked = plan(wanted).get(unit.name)
    if asked is None:
        return [_unread(unit.name, "the site file no longer asks for this launch")]
    if job.exit_code != 0:
        last = next((x for x in reversed((job.stderr or job.stdout).splitlines()) if x.strip()), "")
        return [_unread(unit.name, f"exit code {job.exit_code}: {clip(last)}")]
    reading = _read(evidence, wanted)
    if reading is None:
        return [_unread(unit.name, f"no result of {wanted.engine} in its output")]
    if reading.problems:
        return [_unread(unit.name, "; ".join(clip(p) for p in reading.problems))]
    return list(_rows(unit.name, reading, asked, wanted))


def _unread(launch: str, why: str) -> Fact:
    return Fact(launch, "launch", "result", FactState.ERROR.value, detail=why, command="job")


def _read(evidence: UnitEvidence, wanted: Settings) -> Reading | None:
    """Return the reading of the job's own output, else of an artefact."""
    texts = [r.stdout for r in evidence.results if r.name == "job"]
    texts += [r.stdout for r in evidence.results if r.name.startswith("artefact:") and r.ran]
    readers = (read_engine_json,) if wanted.engine == "embedded" else WARP_READERS
    for text in texts:
        for reader in readers:
            reading = reader(text)
            if reading is not None:
                return reading
    return None


def _rows(launch: str, reading: Reading, asked: Asked, wanted: Settings) -> Iterator[Row]:
    expected = OPERATIONS[asked.load]
    seen = {o.op for o in reading.operations}
    # The total over all operations is printed by some layouts only.
    missing = sorted(expected - seen - {"MIXED"})
    if missing:
        yield _unread(launch, f"no {' and '.join(missing)} in the result of a {asked.load} load")
    for operation in reading.operations:
        if operation.op not in expected:
            # A pasted or left-over result of another load.
            yield _unread(f"{launch}/{operation.op}", f"{operation.op} in the result of a {asked.load} load")
            continue
        problem = _mismatch(operation, reading, asked, wanted)
        yield _row(launch, operation, reading, asked, wanted, problem)
        if problem is None and operation.op != "MIXED":
            for share in operation.by_host:
                yield ObjectStoreHost(
                    launch=launch,
                    store=wanted.store,
                    op=operation.op,
                    host=endpoint(share.host),
                    mib_per_s=share.mib_per_s,
                    objects_per_s=share.objects_per_s,
                    requests=share.requests,
                    errors=share.errors,
                )


def _mismatch(found: Operation, reading: Reading, asked: Asked, wanted: Settings) -> str | None:
    """Say how a result is not what was asked for, None when it is. What a layout does not say is not confirmed."""
    if found.problem:
        return found.problem
    hosts = tuple(sorted({endpoint(h) for h in found.hosts}))
    names = ", ".join(clip(h, 80) for h in hosts) or "none named"
    if wanted.endpoints and hosts != wanted.endpoints:
        return f"ran on other hosts than asked: {names} instead of {', '.join(wanted.endpoints)}"
    if not wanted.endpoints and len(hosts) != 1:
        return f"ran on {len(hosts)} hosts, expected one: {names}"
    if found.concurrency is None:
        return f"{reading.layout} does not say the concurrency"
    # In a mixed load a rare operation need not have come up on every thread.
    part = asked.load == "mixed" and found.op != "MIXED"
    if found.concurrency > asked.concurrency or (found.concurrency < asked.concurrency and not part):
        return f"ran with concurrency {found.concurrency} instead of {asked.concurrency}"
    if wanted.clients and found.clients != len(wanted.clients):
        return f"ran on {found.clients or 'an unknown number of'} warp clients instead of {len(wanted.clients)}"
    if found.op in ("GET", "PUT"):
        if found.object_bytes is None:
            return f"{reading.layout} does not say the object size"
        if abs(found.object_bytes - asked.object_bytes) > SIZE_TOLERANCE * asked.object_bytes:
            return f"moved objects of {found.object_bytes} bytes instead of {size_text(asked.object_bytes)}"
        if found.mib_per_s is None:
            return "no throughput in the result"
    if found.errors is None:
        return f"{reading.layout} does not say how many requests failed"
    least = DURATION_MIN_SHARE * wanted.duration_s - DURATION_SLACK_S
    if found.duration_s is not None and asked.load != "delete" and found.duration_s < least:
        return f"ran {found.duration_s:.0f} s instead of {wanted.duration_s} s"
    return None


def _row(
    launch: str, found: Operation, reading: Reading, asked: Asked, wanted: Settings, problem: str | None
) -> ObjectStoreResult:
    hosts = ", ".join(sorted({clip(endpoint(h), 120) for h in found.hosts}))
    row = ObjectStoreResult(
        launch=launch,
        store=wanted.store,
        op=found.op,
        load=asked.load,
        asked_object_bytes=asked.object_bytes,
        asked_concurrency=asked.concurrency,
        engine=wanted.engine,
        hosts=hosts,
        comparability=_comparability(found, reading, asked, wanted, hosts),
        problem=problem,
        tool_version=reading.tool_version,
        server=reading.server,
        layout=reading.layout,
        clients=found.clients,
        object_bytes=found.object_bytes,
        concurrency=found.concurrency,
        requests=found.requests,
        errors=found.errors,
        first_error=found.first_error,
    )
    if problem is not None:
        return row
    return ObjectStoreResult(
        **{
            **row.__dict__,
            "duration_s": found.duration_s,
            "mib_per_s": found.mib_per_s,
            "objects_per_s": found.objects_per_s,
            **{f"ttfb_{k}": v for k, v in found.ttfb.__dict__.items()},
            **{f"latency_{k}": v for k, v in found.latency.__dict__.items()},
            "percentiles": found.percentiles,
            "segments": found.segments.count,
            "segment_s": found.segments.seconds,
            "segment_fastest": found.segments.fastest,
            "segment_median": found.segments.median,
            "segment_slowest": found.segments.slowest,
        }
    )


def _comparability(found: Operation, reading: Reading, asked: Asked, wanted: Settings, hosts: str) -> str:
    parts = {
        "op": found.op,
        "load": asked.load,
        "object_bytes": asked.object_bytes,
        "concurrency": asked.concurrency,
        # A port that the lab's store was given at random is no difference; named hosts are.
        "hosts": hosts.replace(", ", ",") if wanted.endpoints else "1",
        "clients": max(1, len(wanted.clients)),
        "engine": wanted.engine,
        "tool_version": reading.tool_version or "?",
        "server": reading.server or "?",
        "tls": "yes" if wanted.tls else "no",
        "percentiles": found.percentiles or "none",
    }
    return ";".join(f"{k}={v}" for k, v in parts.items())
