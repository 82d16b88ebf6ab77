"""Deletes what nobody needs any more: left objects on the cluster, old evidence, old files of this machine.

Every step may be repeated and interrupted at any time, does a bounded amount of work (``left`` says what the next call
is for), and with ``dry_run`` only counts. Tables, run documents and pages in the store are never deleted.
"""

from __future__ import annotations

import logging
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path

from fabric_health import run_document
from fabric_health.connections import ConnectionSource
from fabric_health.datasets.evidence import evidence_prefix, named_evidence
from fabric_health.datasets.store import ObjectMissing, ObjectStore
from fabric_health.jobs import environments, local
from fabric_health.jobs.settings import settings
from fabric_health.site import Site

log = logging.getLogger(__name__)
Tell = Callable[[str], None]
# Evidence that no manifest names, for as long, belongs to a collection that was given up.
ORPHAN_AGE = timedelta(days=7)
# Files of this machine that can be made again or that nobody came back for: environments, left jobs, copies of pages.
LOCAL_AGE = timedelta(days=30)
# Objects that one call deletes at most: minutes of a store that takes 50 ms each.
MAX_OBJECTS = 100_000
_BATCH = 1_000
_RUN = re.compile(r"[a-z0-9_]{1,48}-\d{8}T\d{6}-[0-9a-f]{8}\Z")


@dataclass(frozen=True)
class Tidied:
    """What a step deleted (``dry_run``: would delete), how much is left for the next call, or why it was skipped."""

    step: str
    deleted: int = 0
    left: int = 0
    skipped: str = ""

    def sentence(self, dry_run: bool) -> str:
        """Say it in a few words."""
        if self.skipped:
            return f"{self.step}: skipped, {self.skipped}"
        left = f", {self.left} left for the next time" if self.left else ""
        return f"{self.step}: {self.deleted} {'would be ' if dry_run else ''}deleted{left}"


def sweep_cluster(site: Site, connections: ConnectionSource, now: datetime, *, dry_run: bool = False) -> Tidied:
    """Delete jobs and pods of ours that have outlived their deadline, in the namespaces of jobs and of node probes.

    Raises SiteError, ConnectionSettingError, ClusterRefusedError or ClusterAwayError.
    """
    step = "objects on the cluster"
    chosen = settings(site)
    # Each place with whether only pods are made there.
    places = {(n.reach.connection, n.reach.kubernetes.namespace): True for n in site.nodes if n.reach.kubernetes}
    if chosen.backend == "kubernetes":
        places[chosen.in_cluster.connection, chosen.in_cluster.namespace] = False
    if not places:
        return Tidied(step, skipped=f"neither jobs nor node probes of site {site.name} run on Kubernetes")
    # Imported here: the client is heavy, and a site without a cluster does not need it.
    from fabric_health.jobs.kubernetes.api import Cluster
    from fabric_health.jobs.kubernetes.kinds import KINDS, POD
    from fabric_health.jobs.kubernetes.sweep import sweep

    swept: list[str] = []
    for (connection, namespace), only_pods in places.items():
        cluster = Cluster.connect(connection, namespace, connections)
        swept += sweep(cluster, now, (POD,) if only_pods else tuple(KINDS.values()), dry_run=dry_run)
    for name in swept:
        log.info("%s is past its deadline", name)
    return Tidied(step, len(swept))


def expire_evidence(
    store: ObjectStore, site: Site, now: datetime, *, dry_run: bool = False, most: int = MAX_OBJECTS
) -> Tidied:
    """Delete the evidence of runs that started longer ago than the site's ``retention.evidence_days``, oldest first.

    In the week of the limit a run's document says when it started; a run without one goes with its whole week.
    """
    limit = now - timedelta(days=site.retention.evidence_days)

    def due() -> Iterator[str]:
        for week, monday in _weeks(store, site.name):
            if monday + timedelta(days=7) <= limit:
                yield from store.list(_week_prefix(site.name, week))
            elif monday < limit:
                prefix = _week_prefix(site.name, week)
                for run in store.folders(prefix):
                    started = _started_at(store, site.name, week, run)
                    if started is not None and monday <= started < limit:
                        yield from store.list(f"{prefix}{run}/")

    return _delete(store, "evidence past its retention", due(), dry_run, most)


def delete_orphans(
    store: ObjectStore, site: Site, now: datetime, *, dry_run: bool = False, most: int = MAX_OBJECTS
) -> Tidied:
    """Delete evidence that was written over 7 days ago and that no manifest of its run names.

    A run one of whose manifests cannot be read keeps all it has.
    """

    def due() -> Iterator[str]:
        for week, monday in _weeks(store, site.name):
            if monday > now - ORPHAN_AGE:
                continue
            # Looked at before the manifests: what is stored meanwhile is not old.
            old = {k for k, at in store.written(_week_prefix(site.name, week)).items() if at < now - ORPHAN_AGE}
            if not old:
                continue
            named, unknown = named_evidence(store, site.name, week)
            for run in sorted(unknown):
                log.warning("run %s has a manifest that cannot be read; its evidence is left alone", run)
            yield from sorted(k for k in old - named if _run_of(k) not in unknown)

    return _delete(store, "evidence that no manifest names", due(), dry_run, most)


def delete_environments(home: Path, now: datetime, *, dry_run: bool = False) -> Tidied:
    """Delete this machine's tool environments that no job was started in for 30 days; a job makes its own again."""
    gone = environments.delete_unused(home, now - LOCAL_AGE, dry_run=dry_run)
    return Tidied("tool environments of this machine", sum(p.suffix != ".log" for p in gone))


def delete_jobs(home: Path, now: datetime, *, dry_run: bool = False) -> Tidied:
    """Delete this machine's folders of jobs whose task was killed over 30 days ago and not repeated since."""
    return Tidied(
        "folders of left jobs on this machine", len(local.delete_left(home, now - LOCAL_AGE, dry_run=dry_run))
    )


def delete_reports(home: Path, now: datetime, *, dry_run: bool = False) -> Tidied:
    """Delete this machine's copies of pages that are older than 30 days; the pages themselves are in the store."""
    old = [
        p
        for p in sorted((home / "reports").glob("*"))
        if _RUN.match(p.name)
        and p.is_dir()
        and not p.is_symlink()
        and p.stat().st_mtime < (now - LOCAL_AGE).timestamp()
    ]
    for folder in () if dry_run else old:
        shutil.rmtree(folder, ignore_errors=True)
    return Tidied("copies of pages on this machine", len(old) if dry_run else sum(not p.exists() for p in old))


def tidy_site(
    store: ObjectStore, site: Site, connections: ConnectionSource, now: datetime, tell: Tell, *, dry_run: bool = False
) -> list[Tidied]:
    """Do every step of a site and tell each. A cluster that is away does not keep evidence from being expired."""
    done = [expire_evidence(store, site, now, dry_run=dry_run), delete_orphans(store, site, now, dry_run=dry_run)]
    for one in done:
        tell(one.sentence(dry_run))
    done.append(sweep_cluster(site, connections, now, dry_run=dry_run))
    tell(done[-1].sentence(dry_run))
    return done


def tidy_machine(home: Path, now: datetime, tell: Tell, *, dry_run: bool = False) -> list[Tidied]:
    """Do every step of this machine and tell each."""
    done = [step(home, now, dry_run=dry_run) for step in (delete_environments, delete_jobs, delete_reports)]
    for one in done:
        tell(one.sentence(dry_run))
    return done


def _weeks(store: ObjectStore, site: str) -> Iterator[tuple[str, datetime]]:
    """Yield the weeks that hold evidence, oldest first, each with its Monday 00:00 UTC."""
    for folder in store.folders(evidence_prefix(site)):
        week = folder.removeprefix("week=")
        try:
            day = date.fromisoformat(week)
        except ValueError:
            continue
        if folder == f"week={day.isoformat()}" and day.weekday() == 0:
            yield week, datetime.combine(day, time(), UTC)


def _week_prefix(site: str, week: str) -> str:
    return f"{evidence_prefix(site)}week={week}/"


def _started_at(store: ObjectStore, site: str, week: str, run: str) -> datetime | None:
    try:
        started = run_document.decode(store.get(run_document.document_key(site, week, run))).key.started_at
    except (ObjectMissing, AttributeError, KeyError, TypeError, ValueError):
        return None
    return started if started.tzinfo else None


def _run_of(key: str) -> str:
    return key.split("/")[3]


def _delete(store: ObjectStore, step: str, keys: Iterable[str], dry_run: bool, most: int) -> Tidied:
    deleted, left = 0, 0
    batch: list[str] = []

    def flush() -> None:
        nonlocal deleted
        if not dry_run:
            store.delete_many(batch)
        deleted += len(batch)
        batch.clear()

    for key in keys:
        if deleted + len(batch) >= most:
            left += 1
            continue
        batch.append(key)
        if len(batch) >= _BATCH:
            flush()
    flush()
    return Tidied(step, deleted, left)


__all__ = [
    "Tidied",
    "delete_environments",
    "delete_jobs",
    "delete_orphans",
    "delete_reports",
    "expire_evidence",
    "sweep_cluster",
    "tidy_machine",
    "tidy_site",
]
