"""No output makes a parser raise, and none that is not a whole result gives a number."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from object_store_samples import WARP, Run, make_site, mc_info, warp_json

from fabric_health.checks.object_store.cluster import read_cluster
from fabric_health.checks.object_store.engine_json import read_engine_json
from fabric_health.checks.object_store.launches import CLUSTER_LAUNCH
from fabric_health.checks.object_store.parse import WARP_READERS
from fabric_health.checks.object_store.tables import ObjectStoreResult
from fabric_health.datasets.tables import Fact

FIXTURES = Path(__file__).parents[2] / "fixtures" / "object_store"
SITE, ENGINE_SITE = make_site(**WARP), make_site(launches=1, loads=["get"])
CLUSTER_SITE = make_site(**WARP, cluster_info=True)
TEXTS = {p.name: p.read_text(encoding="utf-8") for p in sorted(FIXTURES.iterdir()) if "golden" not in p.name}
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(st.text())
@example("{" * 5000)
@example('{"by_op_type": ' * 2000)
@example('{"total": {}, "x": ' + "9" * 5000 + "}")
@example("<html><body>502 Bad Gateway</body></html>")
@example("\x1b[2J\x1b[31mReport: GET. Concurrency: 9999999999999999999. Ran: 99999h\n * Average: 1e999 MiB/s, 5 obj/s")
@example("Report: GET" * 10_000)
@example("idx\tthread\top\tbytes\terror\tstart\tend\tduration_ns\n1\t1\tGET\t1\t\t9999-99-99T\t\t\n")
def test_no_text_is_taken_for_a_result(text: str) -> None:
    for site in (SITE, ENGINE_SITE):
        run = Run(site, text)
        assert [r for r in run.of(ObjectStoreResult) if r.problem is None] == []
        assert run.rules() != []
    rows, problem = read_cluster(text, "s")
    assert (rows == []) == (problem is not None)


@given(st.sampled_from(sorted(TEXTS)), st.integers(0, 200_000), st.integers(0, 400), st.text(max_size=30))
def test_damaged_recordings_never_raise(name: str, at: int, length: int, instead: str) -> None:
    text = TEXTS[name]
    at %= len(text)
    damaged = text[:at] + instead + text[at + length :]
    for reader in WARP_READERS:
        reader(damaged)


@given(st.data())
def test_json_with_any_value_anywhere_never_raises_and_fits_the_contract(data: st.DataObject) -> None:
    document = json.loads(warp_json(segments=3))
    node: object = document
    for _ in range(data.draw(st.integers(1, 7))):
        if isinstance(node, dict) and node:
            key = data.draw(st.sampled_from(sorted(node)))
            if data.draw(st.booleans()):
                node[key] = data.draw(JSON_VALUES)
                break
            node = node[key]
        elif isinstance(node, list) and node:
            node = node[0]
    run = Run(SITE, json.dumps(document))
    run.findings()
    assert run.quarantined() == []


@given(st.dictionaries(st.sampled_from(["servers", "backend", "usage", "deploymentID"]), JSON_VALUES), st.data())
def test_cluster_json_with_any_value_never_raises(change: dict[str, object], data: st.DataObject) -> None:
    document = mc_info(2, 2, 1)
    document["info"].update(change)
    if change.get("servers") is None and data.draw(st.booleans()):
        drive = document["info"].get("servers") or mc_info()["info"]["servers"]
        drive[0]["drives"][0] = data.draw(JSON_VALUES)
        document["info"]["servers"] = drive
    text = json.dumps(document)
    rows, problem = read_cluster(text, "s")
    assert (rows == []) == (problem is not None)
    run = Run(CLUSTER_SITE, {CLUSTER_LAUNCH: text, "s3-get-4mib-c32-1": warp_json(segments=3)})
    run.findings()
    assert run.quarantined() == []


@given(st.lists(JSON_VALUES, max_size=3), JSON_VALUES)
def test_engine_json_with_any_value_never_raises(operations: list[object], other: object) -> None:
    text = json.dumps({"format": "fabric-health/s3-bench", "v": 1, "operations": operations, "server": other})
    read_engine_json(text)
    assert [r for r in Run(ENGINE_SITE, text).of(ObjectStoreResult) if r.problem is None] == []


def test_an_object_name_cannot_forge_a_line(text_of: Callable[[str], str]) -> None:
    text = text_of("warp-get-12+4.txt").replace("http://minioib1:9000", "http://minioib1:9000\x1b]0;x\x07")
    run = Run(SITE, text)
    assert [r for r in run.of(ObjectStoreResult) if r.problem is None] == []
    assert all("\x1b" not in str(f) for f in run.findings())
    assert all("\x1b" not in str(v) for r in run.rows for v in r.__dict__.values())


@pytest.mark.parametrize(
    "piece", ["{", "Report: GET. Concurrency: 1. Ran: 1s\n", "{\n", " * http://a:1: Avg: \n", "\t"]
)
def test_megabytes_of_rubbish_are_read_in_time(piece: str) -> None:
    text = piece * (4_000_000 // len(piece))
    begin = time.process_time()
    run = Run(SITE, text)
    assert [f.state for f in run.of(Fact)] == ["error"]
    assert time.process_time() - begin < 5
