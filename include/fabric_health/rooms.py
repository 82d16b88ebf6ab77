"""Builds the rooms that stages need from a site file and connection ids."""

from __future__ import annotations

import os
from pathlib import Path

from fabric_health.connections import ConnectionSource, connection
from fabric_health.datasets.store import ObjectStore
from fabric_health.errors import UsageError
from fabric_health.pipeline import Progress, Rooms
from fabric_health.site import load_site

STORE_CONNECTION = "fabric_health_s3"
ANALYST_CONNECTION = "fabric_health_s3_analyst"


def default_site_file() -> Path:
    """Return the site file to use when none is named: ``$FABRIC_HEALTH_SITE``, else the lab's."""
    named = os.environ.get("FABRIC_HEALTH_SITE")
    if named:
        return Path(named)
    lab = Path(__file__).resolve().parents[1] / "sites" / "lab.yaml"
    if lab.is_file():
        return lab
    raise UsageError("no site file: give --site FILE or set FABRIC_HEALTH_SITE (see include/sites/example.yaml)")


def open_rooms(site_file: Path, tell: Progress, connections: ConnectionSource = connection) -> Rooms:
    """Load the site and connect the store. Raises SiteError, ConnectionSettingError or StoreError."""
    site = load_site(site_file)
    return Rooms(ObjectStore.connect(connections(STORE_CONNECTION)), site, connections, tell)
