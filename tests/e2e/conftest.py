"""One embedded lab and store for all end-to-end tests; runs are made in process, stage by stage."""

from __future__ import annotations

import dataclasses
import json
import shutil
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import fabric_health
from fabric_health import connections, pipeline
from fabric_health.connections import Connection, ConnectionSource
from fabric_health.datasets import embedded
from fabric_health.datasets.store import ObjectStore
from fabric_health.datasets.tables import Coverage, Finding
from fabric_health.lab import lab
from fabric_health.landed import Landed, report_data
from fabric_health.report.data import ReportData
from fabric_health.site import Site, load_site

SITES = Path(fabric_health.__file__).parents[1] / "sites"
BOTH = ("driver_firmware", "switch_config")


@dataclass(frozen=True)
class LabHome:
    """A home directory whose store and lab run; ``faults`` come and go with :mod:`fabric_health.lab.lab`."""

    home: Path
    site_path: Path

    def connections(self) -> ConnectionSource:
        entries = json.loads((self.home / "connections.json").read_text())
        return lambda conn_id: connections.parse(conn_id, "test", entries[conn_id])

    def bucket(self) -> Connection:
        """Return a connection to a bucket of its own, as the user that may do everything in it."""
        operator = embedded.operator(self.home)
        return dataclasses.replace(operator, extra={**operator.extra, "bucket": f"e2e-{uuid.uuid4().hex[:12]}"})

    def chain(self, store: Connection | None = None, site: Site | None = None) -> Chain:
        """Return a chain on an empty bucket."""
        made = ObjectStore.connect(store or self.bucket(), retry_s=20)
        made.ensure_bucket()
        return Chain(pipeline.Rooms(made, site or load_site(self.site_path), self.connections()))


@dataclass
class Chain:
    """Makes runs on one bucket, a second apart at least: runs are ordered by their start in whole seconds."""

    rooms: pipeline.Rooms
    _last: datetime = field(default=datetime(2026, 1, 1, tzinfo=UTC))

    def open(self, checks: Sequence[str] = BOTH, scope: str | None = None) -> str:
        self._last = max(datetime.now(UTC).replace(microsecond=0), self._last + timedelta(seconds=1))
        return pipeline.open_run(
            self.rooms,
            dag="e2e",
            scheduler_run_id=uuid.uuid4().hex,
            started_at=self._last,
            checks=checks,
            scope=scope,
        )

    def judge(self, checks: Sequence[str] = BOTH, scope: str | None = None) -> str:
        """Run the stages up to and including explain; such a run is no reference for later ones."""
        ref = self.open(checks, scope)
        for check in checks:
            pipeline.collect(self.rooms, ref, check)
            pipeline.land(self.rooms, ref, check)
            pipeline.judge(self.rooms, ref, check)
        pipeline.compare(self.rooms, ref)
        pipeline.explain(self.rooms, ref)
        return ref

    def conclude(self, checks: Sequence[str] = BOTH, scope: str | None = None) -> str:
        """Run all stages but data quality and the page."""
        ref = self.judge(checks, scope)
        pipeline.conclude(self.rooms, ref)
        return ref

    def landed(self, ref: str) -> Landed:
        return Landed(self.rooms.store, pipeline.load_run(self.rooms, ref))

    def findings(self, ref: str) -> list[Finding]:
        return self.landed(ref).of(Finding)

    def coverage(self, ref: str) -> list[Coverage]:
        return self.landed(ref).of(Coverage)

    def report(self, ref: str) -> ReportData:
        """Gather the page's data of a concluded run."""
        return report_data(self.rooms.store, self.rooms.site, pipeline.load_run(self.rooms, ref))


def copy_of_lab_site(folder: Path, *changes: tuple[str, str]) -> Path:
    """Copy the lab's site with its golden configs and change its text."""
    shutil.copytree(SITES / "golden", folder / "golden")
    text = (SITES / "lab.yaml").read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (folder / "lab.yaml").write_text(text)
    return folder / "lab.yaml"


@pytest.fixture(scope="session")
def lab_site(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Make copies of the lab's site file with changes."""
    return lambda *changes: copy_of_lab_site(tmp_path_factory.mktemp("site"), *changes)


@pytest.fixture(scope="session")
def lab_home(tmp_path_factory: pytest.TempPathFactory, lab_site: Callable[..., Path]) -> Iterator[LabHome]:
    """A running store and lab. The unit limit is raised: a loaded test machine is no hung node."""
    home = tmp_path_factory.mktemp("lab-home")
    site_path = lab_site(("unit_timeout_s: 20", "unit_timeout_s: 90"))
    embedded.start(home)
    try:
        lab.up(site_path, home)
        yield LabHome(home, site_path)
    finally:
        lab.down(home)
        embedded.stop(home)


@pytest.fixture
def healthy(lab_home: LabHome) -> Iterator[LabHome]:
    """The lab without a fault, before and after the test."""
    lab.heal(lab_home.home)
    yield lab_home
    lab.heal(lab_home.home)
