"""The tasks of DAG ``housekeeping``: steps of ``fabric_health.housekeeping``, on one site or on this machine."""

from __future__ import annotations

import logging
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow.sdk import Param, get_current_context, task

from fabric_health.airflow.sites import SiteEntry, site_entry

if TYPE_CHECKING:
    from fabric_health.housekeeping import Tidied
    from fabric_health.site import Site

log = logging.getLogger(__name__)


def tidying_params() -> dict[str, Param]:
    """Return the form of a run by hand."""
    return {
        "dry_run": Param(
            False,
            type="boolean",
            title="Dry run",
            description="Only count what would be deleted, and name it in the log.",
        )
    }


def tidy(entries: tuple[SiteEntry, ...]) -> None:
    """Wire the tasks of every site, and those of this machine, into the DAG that is being defined.

    They do not wait for each other: a cluster that is away does not keep the store from being tidied.
    """
    for entry in entries:
        expire_evidence.override(task_id=f"expire_evidence_{entry.name}")(entry.name)
        delete_orphans.override(task_id=f"delete_orphans_{entry.name}")(entry.name)
        sweep_cluster.override(task_id=f"sweep_cluster_{entry.name}")(entry.name)
    tidy_machine()


@task
def expire_evidence(site: str) -> dict[str, Any]:
    """Delete a site's evidence that is past its retention."""
    from fabric_health import housekeeping

    return _told(housekeeping.expire_evidence(*_store_of(site), _now(), dry_run=_dry_run()))


@task
def delete_orphans(site: str) -> dict[str, Any]:
    """Delete a site's evidence that no manifest names."""
    from fabric_health import housekeeping

    return _told(housekeeping.delete_orphans(*_store_of(site), _now(), dry_run=_dry_run()))


@task
def sweep_cluster(site: str) -> dict[str, Any]:
    """Delete what a site's jobs left on its cluster."""
    from fabric_health import housekeeping
    from fabric_health.airflow.connections import airflow_connection

    return _told(housekeeping.sweep_cluster(_loaded(site), airflow_connection, _now(), dry_run=_dry_run()))


@task
def tidy_machine() -> list[dict[str, Any]]:
    """Delete old files of the machine that this task runs on."""
    from fabric_health import housekeeping
    from fabric_health.connections import home

    return [asdict(t) for t in housekeeping.tidy_machine(home(), _now(), log.info, dry_run=_dry_run())]


def _told(done: Tidied) -> dict[str, Any]:
    log.info(done.sentence(_dry_run()))
    return asdict(done)


def _dry_run() -> bool:
    return bool(get_current_context()["params"]["dry_run"])


def _now() -> datetime:
    # The clock, not the run's date: a run that is repeated later may not delete less, and never more, than is due now.
    return datetime.now(UTC)


def _loaded(site: str) -> Site:
    from fabric_health.site import load_site

    return load_site(site_entry(site).file)


def _store_of(site: str) -> tuple[Any, Site]:
    from fabric_health.airflow.connections import airflow_connection
    from fabric_health.datasets.store import ObjectStore
    from fabric_health.rooms import STORE_CONNECTION

    return ObjectStore.connect(airflow_connection(STORE_CONNECTION)), _loaded(site)
