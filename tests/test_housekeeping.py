"""Housekeeping deletes what is due and nothing else, on a real object store; repeated or interrupted, it goes on."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from landed_samples import MONDAY

from fabric_health import housekeeping, run_document
from fabric_health.connections import Connection
from fabric_health.datasets import evidence as kept
from fabric_health.datasets.run import RunKey, run_name
from fabric_health.datasets.store import ObjectMissing, ObjectStore
from fabric_health.errors import ConnectionSettingError, SiteError
from fabric_health.evidence import ReachStatus, Redactor, StoredEvidence, UnitEvidence
from fabric_health.housekeeping import Tidied
from fabric_health.run_document import RunDocument
from fabric_health.site import Retention, Site, load_site

NOW = MONDAY + timedelta(days=4)
ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def site() -> Site:
    return replace(load_site(ROOT / "include" / "sites" / "lab.yaml"), retention=Retention(evidence_days=30))


def key_of(days_ago: float, site: str = "lab") -> RunKey:
    started = NOW - timedelta(days=days_ago)
    return RunKey(site, run_name("weekly", f"x{days_ago}", started), started, "lab")


@pytest.fixture
def a_run(store: ObjectStore) -> Callable[..., list[str]]:
    """Store a run of three units and return the keys of its evidence; a manifest names all but ``orphans`` of them."""

    def make(key: RunKey, *, orphans: int = 0, manifest: bool = True, document: bool = True) -> list[str]:
        refs: list[StoredEvidence] = []
        for i in range(3):
            unit = UnitEvidence(
                f"gpu-00{i}", "node", "driver_firmware", ReachStatus.OK, "", key.started_at, key.started_at, ()
            )
            refs.append(kept.put_evidence(store, key, unit, Redactor()))
        if manifest:
            kept.write_manifest(store, key, "driver_firmware", refs[orphans:])
        if document:
            opened = RunDocument(key, "weekly", "x", ("driver_firmware",), (), "", "0")
            store.put(run_document.document_key(key.site, key.week, key.run), run_document.encode(opened))
        for table in ("facts", "findings"):
            store.put(f"tables/{table}/v=1/site={key.site}/week={key.week}/{key.run}__driver_firmware.parquet", b"x")
        store.put(f"reports/site={key.site}/week={key.week}/{key.run}/index.html", b"x")
        return [r.key for r in refs]

    return make


def test_evidence_past_its_retention_goes_and_nothing_else(store, site, a_run):
    old, boundary, young = key_of(60), key_of(30.5), key_of(29.5)
    assert boundary.week == young.week, "both are in the week of the limit"
    gone = [*a_run(old), *a_run(boundary)]
    a_run(young)
    other = a_run(replace(key_of(60), site="lab2"))
    store.put("evidence/site=lab/week=nonsense/x/y.json.zst", b"x")
    store.put("evidence/site=lab/readme.txt", b"x")
    before = set(store.list(""))
    counted = housekeeping.expire_evidence(store, site, NOW, dry_run=True)
    assert counted == Tidied("evidence past its retention", deleted=6)
    assert set(store.list("")) == before
    assert housekeeping.expire_evidence(store, site, NOW) == counted
    assert before - set(store.list("")) == set(gone)
    assert set(other) <= set(store.list(""))
    assert housekeeping.expire_evidence(store, site, NOW).deleted == 0


def test_a_run_without_a_document_goes_with_its_whole_week(store, site, a_run):
    key = key_of(30.5)
    a_run(key, document=False)
    assert housekeeping.expire_evidence(store, site, NOW).deleted == 0
    assert housekeeping.expire_evidence(store, site, NOW + timedelta(days=7)).deleted == 3


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"key": 1}', '{"key": {"started_at": "2001-01-01T00:00:00"}}'])
def test_a_damaged_document_lets_nothing_go_early(store, site, a_run, text):
    key = key_of(30.5)
    a_run(key)
    store.put(run_document.document_key(key.site, key.week, key.run), text.encode())
    assert housekeeping.expire_evidence(store, site, NOW).deleted == 0


def test_a_document_that_names_a_time_outside_its_week_lets_nothing_go_early(store, site, a_run):
    key = key_of(29.5)
    a_run(key, document=False)
    lying = RunDocument(replace(key, started_at=NOW - timedelta(days=900)), "weekly", "x", (), (), "", "0")
    store.put(run_document.document_key(key.site, key.week, key.run), run_document.encode(lying))
    assert housekeeping.expire_evidence(store, site, NOW).deleted == 0


def test_work_is_bounded_oldest_first_and_goes_on(store, site, a_run):
    oldest, old = a_run(key_of(80)), a_run(key_of(60))
    assert housekeeping.expire_evidence(store, site, NOW, most=4) == Tidied("evidence past its retention", 4, 2)
    left = store.list("evidence/")
    assert not set(left) & set(oldest)
    assert set(left) < set(old)
    assert housekeeping.expire_evidence(store, site, NOW, most=4) == Tidied("evidence past its retention", 2, 0)


def test_evidence_that_is_gone_says_why(store, site, a_run):
    key = key_of(60)
    a_run(key)
    (ref, *_) = kept.read_manifest(store, key, "driver_firmware") or ()
    housekeeping.expire_evidence(store, site, NOW)
    with pytest.raises(ObjectMissing, match=r"is gone: .* retention\.evidence_days"):
        kept.get_evidence(store, ref)


def test_orphans_go_once_they_are_old(store, site, a_run):
    """Age is that of the object: a collection that is repeated today, in a run of last month, is not in the way."""
    now = datetime.now(UTC)
    named, unfinished = a_run(key_of(12), orphans=1), a_run(key_of(13), manifest=False)
    assert housekeeping.delete_orphans(store, site, now).deleted == 0
    later = now + timedelta(days=7, minutes=5)
    before = set(store.list(""))
    counted = housekeeping.delete_orphans(store, site, later, dry_run=True)
    assert counted == Tidied("evidence that no manifest names", deleted=4)
    assert housekeeping.delete_orphans(store, site, later) == counted
    assert before - set(store.list("")) == {named[0], *unfinished}
    assert housekeeping.delete_orphans(store, site, later).deleted == 0


@pytest.mark.parametrize("damage", [b"", b"{", b'{"version": 2, "evidence": []}', b'{"version": 1}'])
def test_a_manifest_that_cannot_be_read_keeps_the_evidence_of_its_run(store, site, a_run, damage):
    key = key_of(12)
    a_run(key, orphans=1)
    store.put(kept.manifest_key(key, "switch_config"), damage)
    assert housekeeping.delete_orphans(store, site, datetime.now(UTC) + timedelta(days=8)).deleted == 0
    assert len(store.list("evidence/")) == 3


def aged(path: Path, days: float) -> Path:
    at = NOW.timestamp() - days * 86_400
    os.utime(path, (at, at))
    return path


def test_copies_of_pages_go_after_a_month(tmp_path):
    reports = tmp_path / "reports"
    for name, days in ((key_of(60).run, 40), (key_of(20).run, 20), ("mine", 400)):
        (reports / name).mkdir(parents=True)
        (reports / name / "index.html").write_text("x")
        aged(reports / name, days)
    outside = tmp_path / "outside"
    outside.mkdir()
    (reports / key_of(70).run).symlink_to(outside)
    assert housekeeping.delete_reports(tmp_path, NOW, dry_run=True).deleted == 1
    assert (reports / key_of(60).run).exists()
    assert housekeeping.delete_reports(tmp_path, NOW).deleted == 1
    assert sorted(p.name for p in reports.iterdir()) == sorted(["mine", key_of(20).run, key_of(70).run])
    assert outside.is_dir()
    assert housekeeping.delete_reports(tmp_path / "nowhere", NOW).deleted == 0


def test_a_site_without_a_cluster_is_passed_over(site):
    def no_connections(name: str) -> Connection:
        raise AssertionError(name)

    told = housekeeping.sweep_cluster(site, no_connections, NOW)
    assert (told.deleted, told.skipped) == (0, "neither jobs nor node probes of site lab run on Kubernetes")
    assert (
        told.sentence(False)
        == "objects on the cluster: skipped, neither jobs nor node probes of site lab run on Kubernetes"
    )


def test_a_cluster_that_is_not_described_is_told(site):
    described = {"backend": "kubernetes", "kubernetes": {"namespace": "x", "images": {}, "connection": "none"}}

    def missing(name: str) -> Connection:
        raise ConnectionSettingError(f"no connection {name}")

    with pytest.raises(ConnectionSettingError, match="no connection none"):
        housekeeping.sweep_cluster(replace(site, jobs=described), missing, NOW)
    with pytest.raises(SiteError, match=r"jobs\.backend"):
        housekeeping.sweep_cluster(replace(site, jobs={"backend": "slurm"}), missing, NOW)


def test_the_retention_of_a_site_file(tmp_path):
    text = (ROOT / "include" / "sites" / "example.yaml").read_text()
    (tmp_path / "golden").symlink_to(ROOT / "include" / "sites" / "golden")
    given = tmp_path / "site.yaml"
    start = text.replace("retention:\n  evidence_days: 400", "")
    given.write_text(start)
    assert load_site(given).retention.evidence_days == 400
    given.write_text(f"{start}\nretention: {{evidence_days: 90}}\n")
    assert load_site(given).retention.evidence_days == 90
    for wrong, told in (
        ("evidence_days: 7", "14"),
        ("evidence_dayz: 90", "did you mean 'evidence_days'"),
        ("tables_days: 1", "unknown key"),
    ):
        given.write_text(f"{start}\nretention: {{{wrong}}}\n")
        with pytest.raises(SiteError, match=told):
            load_site(given)


def test_the_command_counts_and_deletes(s3_home, site, tmp_path, monkeypatch, capsys):
    from fabric_health.cli.main import main
    from fabric_health.datasets import embedded

    monkeypatch.setenv("FABRIC_HEALTH_HOME", str(s3_home))
    monkeypatch.setenv("FABRIC_HEALTH_SITE", str(ROOT / "include" / "sites" / "lab.yaml"))
    operator = embedded.operator(s3_home)
    monkeypatch.setenv(
        "AIRFLOW_CONN_FABRIC_HEALTH_S3",
        json.dumps({"host": operator.host, "port": operator.port, "login": operator.login,
                    "password": operator.password, "extra": dict(operator.extra)}),
    )  # fmt: skip
    store = ObjectStore.connect(operator)
    store.ensure_bucket()
    old = "evidence/site=lab/week=2001-01-01/x/driver_firmware/gpu-001/0.json.zst"
    store.put(old, b"x")
    assert main(["housekeeping", "--dry-run"]) == 0
    assert store.exists(old)
    assert "evidence past its retention: 1 would be deleted" in capsys.readouterr().err
    assert main(["housekeeping"]) == 0
    assert not store.exists(old)
    assert "evidence past its retention: 1 deleted" in capsys.readouterr().err
