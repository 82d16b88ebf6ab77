"""State of a MinIO cluster from ``mc admin info --json``."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import Any

from fabric_health.checks.object_store.documents import documents, text
from fabric_health.checks.object_store.erasure import read_quorum, usable_ratio, write_quorum
from fabric_health.checks.object_store.launches import CLUSTER_LAUNCH
from fabric_health.checks.object_store.quantities import endpoint
from fabric_health.checks.object_store.tables import ObjectStoreCluster
from fabric_health.checks.untrusted import clip, count, listing, mapping
from fabric_health.datasets.contracts import Row
from fabric_health.datasets.tables import Fact, FactState

MAX_SERVERS = 4096


def read_cluster(output: str, store: str) -> tuple[list[Row], str | None]:
    """Return rows and facts of the cluster, or no row and what is wrong with ``output``."""
    found = [d for d in documents(output) if "status" in d or "info" in d or "error" in d]
    if not found:
        return [], "no JSON of `mc admin info`"
    document = found[-1]
    info = mapping(document.get("info"))
    if document.get("status") != "success" or not info:
        error = mapping(document.get("error"))
        said = text(error.get("message")) or text(document.get("error")) or "it did not succeed"
        return [], f"mc admin info: {clip(said)}"
    servers = [mapping(s) for s in listing(info.get("servers"))[:MAX_SERVERS]]
    if not servers:
        return [], "mc admin info lists no server"
    drives = [mapping(d) for s in servers for d in listing(s.get("drives"))]
    if not drives:
        return [], "mc admin info lists no drive"
    return [_row(store, info, servers, drives), *_facts(store, info, servers)], None


@dataclass(frozen=True)
class _Shape:
    """How the drives are arranged; None where the cluster does not say, or pools differ."""

    pools: int | None
    sets: int | None
    drives_per_set: int | None
    parity: int | None


def _shape(info: dict[str, Any]) -> _Shape:
    backend = mapping(info.get("backend"))
    sets = [count(n) for n in listing(backend.get("totalSets"))]
    sizes = {count(n) for n in listing(backend.get("totalDrivesPerSet"))}
    size = sizes.pop() if len(sizes) == 1 else None
    parity = count(backend.get("standardSCParity"))
    if parity is None:
        parities = {count(n) for n in listing(backend.get("standardSCParities"))}
        parity = parities.pop() if len(parities) == 1 else None
    if size is not None and (size < 1 or (parity is not None and 2 * parity > size)):
        size, parity = None, None
    known = [n for n in sets if n is not None]
    return _Shape(len(sets) or None, sum(known) if known and len(known) == len(sets) else None, size, parity)


def _row(
    store: str, info: dict[str, Any], servers: list[dict[str, Any]], drives: list[dict[str, Any]]
) -> ObjectStoreCluster:
    shape = _shape(info)
    links = [v for s in servers for v in mapping(s.get("network")).values()]
    online = sum(d.get("state") == "ok" for d in drives)
    size, parity = shape.drives_per_set, shape.parity
    whole = size is not None and parity is not None
    raw, usable = _capacity(drives, size, parity)
    return ObjectStoreCluster(
        launch=CLUSTER_LAUNCH,
        store=store,
        servers=len(servers),
        servers_online=sum(s.get("state") == "online" for s in servers),
        drives=len(drives),
        drives_online=online,
        drives_offline=len(drives) - online,
        drives_healing=sum(d.get("healing") is True for d in drives),
        versions=", ".join(sorted({clip(v, 60) for s in servers if (v := text(s.get("version")))})),
        links=len(links),
        links_online=sum(v == "online" for v in links),
        pools=shape.pools,
        erasure_sets=shape.sets,
        drives_per_set=size,
        parity=parity,
        read_quorum=read_quorum(size, parity) if whole and size and parity is not None else None,
        write_quorum=write_quorum(size, parity) if whole and size and parity is not None else None,
        worst_set_online=_worst_set(drives),
        raw_bytes=raw,
        usable_bytes=usable,
        usable_ratio=usable / raw if raw and usable is not None else None,
        used_bytes=count(mapping(info.get("usage")).get("size")),
    )


def _sets(drives: list[dict[str, Any]]) -> dict[tuple[int, int], list[dict[str, Any]]] | None:
    """Return drives by (pool, set), None when a drive does not say where it belongs."""
    sets: dict[tuple[int, int], list[dict[str, Any]]] = defaultdict(list)
    for drive in drives:
        pool, number = drive.get("pool_index"), drive.get("set_index")
        if not isinstance(pool, int) or not isinstance(number, int) or pool < 0 or number < 0:
            return None
        sets[pool, number].append(drive)
    return sets


def _worst_set(drives: list[dict[str, Any]]) -> int | None:
    sets = _sets(drives)
    return min(sum(d.get("state") == "ok" for d in s) for s in sets.values()) if sets else None


def _capacity(drives: list[dict[str, Any]], size: int | None, parity: int | None) -> tuple[int | None, int | None]:
    """Return raw and usable bytes. A set is filled no further than its smallest drive allows."""
    spaces = [count(d.get("totalspace")) for d in drives]
    if None in spaces or not all(spaces):
        return None, None
    raw = sum(s for s in spaces if s)
    sets = _sets(drives)
    if sets is None or size is None or parity is None or any(len(s) != size for s in sets.values()):
        return raw, None
    smallest = [min(count(d.get("totalspace")) or 0 for d in s) for s in sets.values()]
    return raw, round(sum(n * size * usable_ratio(size, parity) for n in smallest))


def _facts(store: str, info: dict[str, Any], servers: list[dict[str, Any]]) -> list[Fact]:
    shape = _shape(info)
    facts = []
    attributes = {
        "erasure_parity": shape.parity,
        "erasure_drives_per_set": shape.drives_per_set,
        "erasure_sets": shape.sets,
        "server_pools": shape.pools,
        "deployment_id": text(info.get("deploymentID")),
    }
    for attribute, value in attributes.items():
        if value is not None:
            facts.append(_fact(store, attribute, str(value)))
        else:
            facts.append(_missing(store, attribute))
    names = Counter(endpoint(text(s.get("endpoint")) or "") for s in servers)
    for server in servers:
        name = endpoint(text(server.get("endpoint")) or "")
        # A server without a name, or two of one name, cannot be told apart between runs.
        if not name or names[name] > 1:
            continue
        version = text(server.get("version"))
        unit = f"{store}/{clip(name, 120)}"
        facts.append(_fact(unit, "minio_version", version) if version else _missing(unit, "minio_version"))
    return facts


def _fact(unit: str, attribute: str, value: str) -> Fact:
    return Fact(unit, "object_store", attribute, FactState.VALUE.value, clip(value, 120), command="job")


def _missing(unit: str, attribute: str) -> Fact:
    return Fact(unit, "object_store", attribute, FactState.ERROR.value, detail="not in its answer", command="job")
