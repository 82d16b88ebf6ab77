"""Rules on the state of a MinIO cluster: drives, erasure sets, versions, network, capacity."""

from __future__ import annotations

from collections.abc import Iterator

from fabric_health.checks.object_store.erasure import usable_ratio
from fabric_health.checks.object_store.rules import (
    ERASURE,
    MC_ADMIN_INFO,
    SITE_FILE,
    STORAGE_CLASS,
    deviation,
    not_judged,
)
from fabric_health.checks.object_store.settings import Settings
from fabric_health.checks.object_store.tables import ObjectStoreCluster
from fabric_health.datasets.tables import Finding, Severity


def cluster_findings(row: ObjectStoreCluster, wanted: Settings) -> Iterator[Finding]:
    """Judge one cluster."""
    yield from _drives(row, wanted)
    yield from _erasure(row, wanted)
    yield from _versions(row, wanted)
    yield from _servers(row)
    yield from _capacity(row, wanted)


def _drives(row: ObjectStoreCluster, wanted: Settings) -> Iterator[Finding]:
    expected = wanted.expected.drives if wanted.expected.drives is not None else row.drives
    if row.drives_online < expected:
        # One drive fewer than writing needs, and the set turns read-only: say how far away that is.
        spare = (
            None
            if row.worst_set_online is None or row.write_quorum is None
            else row.worst_set_online - row.write_quorum
        )
        margin = "" if spare is None else f"; the worst set can lose {max(spare, 0)} more before writes stop"
        yield deviation(
            "drives_online",
            row.store,
            "drives_online",
            Severity.CRITICAL,
            f"{row.drives_online} of {expected} drives are online{margin}",
            expected=f"{expected} online",
            actual=f"{row.drives_online} online, {row.drives_offline} not",
            action="Find the drive with `mc admin info`, check it on its server, replace it and let it heal.",
            source=MC_ADMIN_INFO,
        )
    elif wanted.expected.drives is not None and row.drives > expected:
        yield deviation(
            "drives_online",
            row.store,
            "drives_online",
            Severity.WARNING,
            f"The cluster has {row.drives} drives, more than the site file says",
            expected=f"{expected} drives",
            actual=f"{row.drives} drives",
            action="Correct checks.object_store.expected.drives in the site file if the cluster was extended.",
            source=SITE_FILE,
        )
    if row.drives_healing:
        yield deviation(
            "drives_not_healing",
            row.store,
            "drives_healing",
            Severity.WARNING,
            f"{row.drives_healing} drives are being healed: the cluster is short of redundancy and slower",
            expected="0 healing",
            actual=f"{row.drives_healing} healing",
            action="Wait for healing to end (`mc admin heal`) before results are compared.",
            source=MC_ADMIN_INFO,
        )


def _erasure(row: ObjectStoreCluster, wanted: Settings) -> Iterator[Finding]:
    pairs = (
        ("erasure_parity", "parity", row.parity, wanted.expected.parity, STORAGE_CLASS),
        ("erasure_set_size", "drives_per_set", row.drives_per_set, wanted.expected.drives_per_set, ERASURE),
    )
    for rule, metric, actual, expected, source in pairs:
        if expected is None or actual == expected:
            continue
        if actual is None:
            yield not_judged(
                rule,
                row.store,
                metric,
                f"The cluster does not say its {metric.replace('_', ' ')}, or its pools differ",
                unit_kind="object_store",
                action="Look at `mc admin info --json` of the cluster.",
            )
            continue
        yield deviation(
            rule,
            row.store,
            metric,
            Severity.CRITICAL,
            f"{metric.replace('_', ' ')} is {actual}, the site file says {expected}: durability, capacity and speed "
            "differ from what was planned",
            expected=str(expected),
            actual=str(actual),
            action="Correct the storage class or the site file; objects written so far keep the parity they have.",
            source=source,
        )


def _versions(row: ObjectStoreCluster, wanted: Settings) -> Iterator[Finding]:
    versions = [v for v in row.versions.split(", ") if v]
    if not versions:
        yield not_judged(
            "same_version",
            row.store,
            "version",
            "No server says its version",
            unit_kind="object_store",
            action="Look at `mc admin info --json` of the cluster.",
        )
    if len(versions) > 1:
        yield deviation(
            "same_version",
            row.store,
            "version",
            Severity.CRITICAL,
            f"Servers run {len(versions)} versions: {row.versions}",
            expected="one version",
            actual=row.versions,
            action="Bring all servers to one release; MinIO does not support mixed clusters beyond an upgrade.",
            source=MC_ADMIN_INFO,
        )
    elif versions and wanted.expected.version not in (None, versions[0]):
        yield deviation(
            "version_as_expected",
            row.store,
            "version",
            Severity.WARNING,
            f"Servers run {versions[0]}",
            expected=wanted.expected.version or "",
            actual=versions[0],
            action="Upgrade the cluster or correct the site file.",
            source=SITE_FILE,
        )


def _servers(row: ObjectStoreCluster) -> Iterator[Finding]:
    if row.servers_online < row.servers:
        yield deviation(
            "servers_online",
            row.store,
            "servers_online",
            Severity.CRITICAL,
            f"{row.servers_online} of {row.servers} servers are online",
            expected=f"{row.servers} online",
            actual=f"{row.servers_online} online",
            action="Check the server and its log.",
            source=MC_ADMIN_INFO,
        )
    if row.links_online < row.links:
        yield deviation(
            "network_online",
            row.store,
            "links_online",
            Severity.CRITICAL,
            f"{row.links - row.links_online} of {row.links} connections between servers are down",
            expected=f"{row.links} online",
            actual=f"{row.links_online} online",
            action="Check names, routes and firewalls between the servers; one direction may fail alone.",
            source=MC_ADMIN_INFO,
        )
    elif row.links == 0 and row.servers > 1:
        yield not_judged(
            "network_online",
            row.store,
            "links_online",
            "No server reports its connections to the others",
            unit_kind="object_store",
            action="Look at `mc admin info --json` of the cluster.",
        )


def _capacity(row: ObjectStoreCluster, wanted: Settings) -> Iterator[Finding]:
    if row.usable_ratio is None or row.drives_per_set is None or row.parity is None:
        return
    expected = usable_ratio(row.drives_per_set, row.parity)
    if abs(row.usable_ratio - expected) > wanted.capacity_tolerance * expected:
        yield deviation(
            "usable_capacity",
            row.store,
            "usable_ratio",
            Severity.WARNING,
            f"{100 * row.usable_ratio:.1f} % of the raw capacity can be used where EC:{row.parity} on "
            f"{row.drives_per_set} drives leaves {100 * expected:.1f} %: drives of a set differ in size",
            expected=f"{100 * expected:.1f} %",
            actual=f"{100 * row.usable_ratio:.1f} %",
            action="Use drives of one size within a set; the smallest one decides.",
            source=ERASURE,
        )
