"""Stages may be repeated, killed and left without a store: a re-run ends in the same objects, none lost, none twice."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from fabric_health import pipeline
from fabric_health.checks import registry
from fabric_health.datasets import embedded
from fabric_health.datasets.evidence import read_manifest
from fabric_health.datasets.store import ObjectStore
from fabric_health.errors import StoreError
from fabric_health.lab import lab

pytestmark = pytest.mark.e2e

SCOPE = "gpu-[001-003],leaf-[1-2]"
BOTH = ("driver_firmware", "switch_config")
PER_CHECK = {"collect": pipeline.collect, "land": pipeline.land, "judge": pipeline.judge}
WHOLE = {
    "compare": pipeline.compare,
    "explain": pipeline.explain,
    "quality": pipeline.check_quality,
    "conclude": pipeline.conclude,
    "publish": pipeline.publish,
}
STAGES = (*(f"{s}:{c}" for c in BOTH for s in PER_CHECK), *WHOLE)
FAULTS = (("nic-firmware", "gpu-002/mlx5_3"), ("switch-mtu", "leaf-2/Ethernet8"), ("node-unreachable", "gpu-003"))


def repeat(rooms: pipeline.Rooms, ref: str, stages=STAGES) -> None:
    for stage in stages:
        name, _, check = stage.partition(":")
        if check:
            PER_CHECK[name](rooms, ref, check)
        else:
            WHOLE[name](rooms, ref)


def objects(store: ObjectStore) -> dict[str, bytes]:
    keys = store.list("")
    return dict(zip(keys, store.get_many(keys), strict=True))


def referenced(rooms: pipeline.Rooms, ref: str) -> set[str]:
    """Return the evidence that the run's manifests refer to, having seen that each unit is there once."""
    run = pipeline.load_run(rooms, ref)
    keys = set()
    for check in run.checks:
        refs = read_manifest(rooms.store, run.key, check)
        assert refs is not None
        assert len({r.unit for r in refs}) == len(refs)
        assert {r.unit for r in refs} == {n for n in run.scope if n.startswith("gpu") == (check == BOTH[0])}
        keys |= {r.key for r in refs}
    return keys


def same_as_undisturbed(lab_home, chain, ref: str) -> None:
    """Make the run again from the same evidence on another bucket, in one go, and compare every object."""
    mine = objects(chain.rooms.store)
    kept = referenced(chain.rooms, ref)
    folder = ref.rsplit("/", 1)[0]
    run_name = folder.rsplit("/", 1)[1]
    inputs = {k for k in mine if k == ref or (k.startswith(f"{folder}/") and k.endswith(".manifest.json"))}
    earlier = {k for k in mine if run_name not in k and not k.endswith("latest.json")}
    other = lab_home.chain()
    other.rooms.store.put_many([(k, mine[k]) for k in (*earlier, *inputs, *kept)])
    checks = pipeline.load_run(chain.rooms, ref).checks
    later = [s for s in STAGES if not s.startswith("collect")]
    repeat(other.rooms, ref, [s for s in later if ":" not in s or s.split(":")[1] in checks])
    undisturbed = objects(other.rooms.store)
    orphans = {k for k in mine if k.startswith("evidence/") and run_name in k} - kept
    assert {k for k in mine if k not in orphans} == set(undisturbed)
    assert [k for k, data in undisturbed.items() if mine[k] != data] == []


@pytest.fixture(scope="module")
def baseline(lab_home):
    """A concluded healthy run, and faults since then: later runs have a history and something to say."""
    lab.heal(lab_home.home)
    chain = lab_home.chain()
    chain.conclude(scope=SCOPE)
    for kind, unit in FAULTS:
        lab.add_fault(lab_home.home, kind, unit)
    yield objects(chain.rooms.store)
    lab.heal(lab_home.home)


@pytest.fixture
def chain(lab_home, baseline):
    """A chain on a bucket of its own that starts with the baseline."""
    made = lab_home.chain(lab_home.bucket())
    made.rooms.store.put_many(list(baseline.items()))
    return made


def environment(lab_home, store: ObjectStore) -> dict[str, str]:
    """Return the environment in which another process works on the same bucket."""
    operator = embedded.operator(lab_home.home)
    entry = {
        "host": operator.host,
        "port": operator.port,
        "login": operator.login,
        "password": operator.password,
        "extra": {**operator.extra, "bucket": store.bucket},
    }
    package = str(Path(pipeline.__file__).parents[1])
    return {
        **os.environ,
        "FABRIC_HEALTH_HOME": str(lab_home.home),
        "FABRIC_HEALTH_SITE": str(lab_home.site_path),
        "AIRFLOW_CONN_FABRIC_HEALTH_S3": json.dumps(entry),
        "PYTHONPATH": os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH")))),
    }


def in_another_process(lab_home, chain, ref: str, *stages: str) -> int:
    driver = Path(__file__).with_name("stages.py")
    done = subprocess.run(
        [sys.executable, str(driver), str(lab_home.site_path), ref, *stages],
        env=environment(lab_home, chain.rooms.store),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stdout
    return done.returncode


def test_repeating_every_stage_of_a_finished_run_changes_no_byte(chain) -> None:
    ref = chain.open(scope=SCOPE)
    repeat(chain.rooms, ref)
    first = objects(chain.rooms.store)
    assert {k.split("/", 1)[0] for k in first} == {"evidence", "quality", "reports", "runs", "tables"}
    repeat(chain.rooms, ref)
    again = objects(chain.rooms.store)
    assert set(again) == set(first)
    assert [k for k in first if again[k] != first[k]] == []


def test_repeating_the_page_of_an_older_run_leaves_the_latest_one_latest(chain) -> None:
    # Runs of everything, since only those are the state of the site; what they found is of no matter here.
    older, newer = (chain.open([e.name for e in registry.ENTRIES]) for _ in range(2))
    for ref in (older, newer):
        repeat(chain.rooms, ref, ("explain", "conclude", "publish"))
    latest = f"reports/site={chain.rooms.site.name}/latest.json"
    told = chain.rooms.store.get(latest)
    assert newer.split("/")[-2] in json.loads(told)["report"]
    pipeline.publish(chain.rooms, older)
    assert chain.rooms.store.get(latest) == told


def test_a_worker_killed_in_the_middle_of_every_stage_loses_and_doubles_nothing(lab_home, chain) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    # Which of the stage's writes the worker dies before, or right after (+).
    moments = {
        "collect:driver_firmware": f"@{chance.randint(1, 3)}",
        "collect:switch_config": "@3+",
        "land:driver_firmware": f"@{chance.randint(1, 4)}",
        "land:switch_config": f"@{chance.randint(1, 3)}+",
        "judge:driver_firmware": "@1",
        "judge:switch_config": "@1+",
        "compare": "@2",
        "explain": "@4",
        "quality": "@2",
        "conclude": "@1+",
        "publish": "@2",
    }
    ref = chain.open(scope=SCOPE)
    survived: list[str] = []
    for stage in STAGES:
        # The stage that the last worker died in is run whole, and the next worker dies in the stage after it.
        assert in_another_process(lab_home, chain, ref, *survived, stage + moments[stage]) == -signal.SIGKILL
        survived = [stage]
    assert in_another_process(lab_home, chain, ref, *(s for s in STAGES if s != "quality")) == 0
    same_as_undisturbed(lab_home, chain, ref)


def test_a_run_killed_from_outside_at_any_moment_can_be_finished(lab_home, chain) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    store = chain.rooms.store
    before = set(store.list("runs/"))
    argv = [sys.executable, "-m", "fabric_health.cli.main", "run", "switch_config", "--scope", SCOPE]
    worker = subprocess.Popen(
        argv, env=environment(lab_home, store), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        opened: list[str] = []
        while not opened and worker.poll() is None:
            time.sleep(0.02)
            opened = [k for k in store.list("runs/") if k.endswith("/run.json") and k not in before]
        time.sleep(random.Random(seed).uniform(0, 6))
    finally:
        worker.kill()
        worker.wait()
    repeat(chain.rooms, opened[0], [s for s in STAGES if not s.endswith(":driver_firmware")])
    same_as_undisturbed(lab_home, chain, opened[0])


@pytest.fixture
def own_store(tmp_path: Path):
    """A store that this test may stop."""
    embedded.start(tmp_path)
    yield tmp_path
    embedded.stop(tmp_path)


def test_a_store_that_is_away_for_half_a_minute_only_delays_the_run(lab_home, own_store, monkeypatch) -> None:
    lab.heal(lab_home.home)
    operator = embedded.operator(own_store)
    chain = lab_home.chain(operator)
    # As the product connects: the default patience.
    rooms = pipeline.Rooms(ObjectStore.connect(operator), chain.rooms.site, chain.rooms.connections)
    ref = chain.open(scope=SCOPE)
    put, away = ObjectStore.put, threading.Event()
    back: list[threading.Timer] = []

    def lose_the_store_after_the_first_evidence(self, key, data, content_type=None):
        put(self, key, data, content_type)
        if key.startswith("evidence/") and not away.is_set():
            away.set()
            embedded.stop(own_store)
            back.append(threading.Timer(30, embedded.start, [own_store]))
            back[0].start()

    monkeypatch.setattr(ObjectStore, "put", lose_the_store_after_the_first_evidence)
    began = time.monotonic()
    assert pipeline.collect(rooms, ref, "driver_firmware") == {"ok": 3}
    assert time.monotonic() - began > 29
    back[0].join()
    repeat(rooms, ref, [s for s in STAGES if s not in ("collect:driver_firmware", "quality", "publish")])
    assert chain.report(ref).record.answer == "HEALTHY"
    assert referenced(chain.rooms, ref) == set(rooms.store.list("evidence/"))


def test_a_store_that_stays_away_is_a_clear_error_and_a_rerun_completes(lab_home, own_store) -> None:
    lab.heal(lab_home.home)
    operator = embedded.operator(own_store)
    chain = lab_home.chain(operator)
    impatient = pipeline.Rooms(ObjectStore.connect(operator, retry_s=1), chain.rooms.site, chain.rooms.connections)
    ref = chain.open(("switch_config",), "leaf-[1-2]")
    pipeline.collect(impatient, ref, "switch_config")
    embedded.stop(own_store)
    for stage in (pipeline.collect, pipeline.land, pipeline.judge):
        with pytest.raises(StoreError) as caught:
            stage(impatient, ref, "switch_config")
        for word in (f"object store {operator.host}:{operator.port}", "tried for 1 s", "Check that the store runs"):
            assert word in str(caught.value)
        assert operator.password not in str(caught.value)
    embedded.start(own_store)
    repeat(
        impatient, ref, ["collect:switch_config", "land:switch_config", "judge:switch_config", "explain", "conclude"]
    )
    assert chain.report(ref).record.answer == "HEALTHY"
