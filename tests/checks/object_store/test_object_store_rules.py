"""Every rule of the check both ways, and launches that are refused because they did not measure what was asked."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from object_store_samples import HOSTS, MIB, WARP, Run, make_evidence, make_site, mc_info, warp_document, warp_json

from fabric_health.checks.object_store import OBJECT_STORE
from fabric_health.checks.object_store.launches import CLUSTER_LAUNCH
from fabric_health.checks.object_store.tables import ObjectStoreCluster, ObjectStoreHost, ObjectStoreResult
from fabric_health.datasets.tables import Fact
from fabric_health.evidence import CommandStatus, Redactor

OTHER_NETWORK = tuple(f"minio{n}:9000" for n in range(1, 5))
THREE = {**WARP, "launches": 3}


def numbers(row: ObjectStoreResult) -> list[object]:
    return [v for k, v in row.__dict__.items() if k.endswith(("_s", "_ms")) or k.startswith("segment")]


def test_a_healthy_run_has_no_finding() -> None:
    run = Run(make_site(**THREE), warp_json())
    assert run.rules() == []
    assert len(run.of(ObjectStoreResult)) == 3


def test_a_put_that_ran_on_the_other_network_is_refused() -> None:
    # 1,170 MiB/s of an 8+8 cluster: measured over 10 Gb/s names instead of the InfiniBand ones, and published so.
    settings = {**WARP, "loads": ["put"]}
    run = Run(make_site(**settings), warp_json(1170.79, op="PUT", hosts=OTHER_NETWORK))
    (row,) = run.of(ObjectStoreResult)
    assert "ran on other hosts than asked: minio1:9000" in (row.problem or "")
    assert numbers(row) == [None] * len(numbers(row))
    assert run.of(ObjectStoreHost) == []
    found = {f.rule: f for f in run.findings()}
    assert set(found) == {"hosts_as_requested", "launches_complete"}
    assert found["hosts_as_requested"].severity == "critical"
    assert found["launches_complete"].explained_by == found["hosts_as_requested"].finding


def test_a_host_that_served_nothing_is_missed() -> None:
    run = Run(make_site(**WARP), warp_json(hosts=HOSTS[:3]))
    assert run.rules() == ["hosts_as_requested", "launches_complete"]


@pytest.mark.parametrize(
    ("document", "said"),
    [
        (warp_document(concurrency=16), "concurrency 16 instead of 32"),
        (warp_document(size=4096), "4096 bytes instead of 4MiB"),
        (warp_document(seconds=60.0, segments=60), "ran 60 s instead of 300 s"),
        (warp_document(segments=1), "too few samples"),
    ],
)
def test_what_was_not_asked_is_no_measurement(document: dict[str, Any], said: str) -> None:
    run = Run(make_site(**WARP), json.dumps(document))
    (row,) = run.of(ObjectStoreResult)
    assert said in (row.problem or "")
    assert numbers(row) == [None] * len(numbers(row))
    assert run.rules() == ["launches_complete", "result_as_asked"]


def test_warp_clients_that_did_not_take_part_are_missed() -> None:
    settings = {**WARP, "clients": ["warp-0", "warp-1"], "concurrency": 16}
    run = Run(make_site(**settings), warp_json(concurrency=32))
    assert "1 warp clients instead of 2" in run.of(ObjectStoreResult)[0].problem
    assert "s3-get-4mib-c32-1" in {x.name for x in run.launches}


def test_errors_within_exit_code_0_are_critical() -> None:
    run = Run(make_site(**THREE), warp_json(errors=4))
    (found,) = run.findings()
    assert (found.rule, found.severity, found.actual) == ("no_request_errors", "critical", "12 errors")
    assert "503 SlowDown" in found.summary


def test_uneven_hosts_are_named() -> None:
    assert Run(make_site(**WARP), warp_json(shares=(0.23, 0.25, 0.26, 0.26))).rules() == []
    run = Run(make_site(**WARP), warp_json(shares=(0.29, 0.13, 0.29, 0.29)))
    (found,) = run.findings()
    assert (found.rule, found.unit, found.severity) == ("host_skew", "object-store/minioib2:9000", "warning")


def test_segments_tell_an_unstable_store() -> None:
    assert Run(make_site(**WARP), warp_json(slowest=0.72)).rules() == []
    assert Run(make_site(**WARP), warp_json(slowest=0.65)).rules() == ["segments_stable"]
    short = {**WARP, "duration_s": 9}
    assert Run(make_site(**short), warp_json(slowest=0.1, seconds=9.0, segments=9)).rules() == []
    assert Run(make_site(**short), warp_json(slowest=0.1, seconds=10.0, segments=10)).rules() == ["segments_stable"]
    assert Run(make_site(**WARP), warp_json(median=1.08, fastest=1.2)).rules() == []
    assert Run(make_site(**WARP), warp_json(median=1.15, fastest=1.2)).rules() == ["segments_typical"]


def test_more_than_the_network_carries_was_not_carried_by_it() -> None:
    # One client at 100 Gb/s: 11,921 MiB/s. MiB/s are not Gb/s: 7,500 MiB/s are 62.9 Gb/s.
    assert Run(make_site(**WARP, line_rate_gbps=100), warp_json(7500.64)).rules() == []
    assert Run(make_site(**WARP, line_rate_gbps=60), warp_json(7500.64)).rules() == ["within_line_rate"]


def test_too_few_launches_are_no_result() -> None:
    site = make_site(**THREE)
    names = [f"s3-get-4mib-c32-{n}" for n in (1, 2, 3)]
    run = Run(site, {names[0]: warp_json(), names[1]: warp_json(), names[2]: "warp: <ERROR> no such host\n"})
    assert run.rules() == ["launches_complete", "result_readable"]


def test_a_job_that_failed_or_was_cut_is_no_result() -> None:
    site = make_site(**WARP)
    failed = Run(site, "", exit_code=1, stderr="warp: <ERROR> Error preparing server: Access Denied.\n")
    (fact,) = failed.of(Fact)
    assert "exit code 1: warp: <ERROR> Error preparing server" in fact.detail
    timed_out = Run(site, warp_json(), status=CommandStatus.TIMEOUT, exit_code=None)
    assert timed_out.of(ObjectStoreResult) == []
    cut = Run(site, warp_json()[:2000])
    assert cut.of(ObjectStoreResult) == []
    assert "no result of warp" in cut.of(Fact)[0].detail


def test_a_mixed_load_gives_a_row_for_every_operation(text_of: Callable[[str], str]) -> None:
    settings = {
        **WARP, "loads": ["mixed"], "hosts": ["minio1:9000", "minio2:9000"], "duration_s": 60,
    }  # fmt: skip
    text = text_of("warp-mixed.txt")
    run = Run(make_site(**settings), text.replace("Concurrency: 32.", "Size: 4194304 bytes. Concurrency: 32."))
    assert {r.op: r.problem for r in run.of(ObjectStoreResult)} == dict.fromkeys(
        ("GET", "PUT", "DELETE", "STAT", "MIXED")
    )
    assert run.rules() == []
    without_size = Run(make_site(**settings), text)
    assert {r.op for r in without_size.of(ObjectStoreResult) if r.problem} == {"GET", "PUT"}
    missing = Run(make_site(**settings), text[: text.index("Report: STAT")])
    assert "no STAT in the result" in missing.of(Fact)[0].detail
    assert "launches_complete" in missing.rules()


def test_a_result_of_another_load_is_refused() -> None:
    run = Run(make_site(**WARP), warp_json(op="PUT"))
    assert run.of(ObjectStoreResult) == []
    assert len(run.of(Fact)) == 2


def test_no_secret_of_the_command_line_is_kept() -> None:
    evidence = make_evidence("x", warp_json())
    kept = Redactor(()).evidence(evidence).results[0].stdout
    assert "sesame" not in kept
    assert json.loads(kept)["by_op_type"]


def cluster(info: dict[str, Any] | str, **expected: Any) -> Run:
    site = make_site(**{**WARP, "cluster_info": True, "expected": expected})
    text = info if isinstance(info, str) else json.dumps(info)
    return Run(site, {CLUSTER_LAUNCH: text, "s3-get-4mib-c32-1": warp_json()})


GOLDEN = {"drives": 16, "drives_per_set": 16, "parity": 4, "version": "2025-04-22T22:12:26Z"}


def test_a_healthy_cluster_passes_and_its_arithmetic_is_right() -> None:
    run = cluster(mc_info(), **GOLDEN)
    (row,) = run.of(ObjectStoreCluster)
    assert (row.drives_online, row.drives_per_set, row.parity, row.read_quorum, row.write_quorum) == (16, 16, 4, 12, 12)
    assert (row.links, row.links_online, row.versions) == (16, 16, "2025-04-22T22:12:26Z")
    assert row.raw_bytes == 16 * 800_166_076_416
    assert row.usable_ratio == pytest.approx(0.75)
    assert row.usable_bytes is not None
    assert row.usable_bytes / 2**40 == pytest.approx(8.7, abs=0.05)
    assert run.rules() == []
    facts = {(f.unit, f.attribute): f.value for f in run.of(Fact)}
    assert facts["object-store", "erasure_parity"] == "4"
    assert facts["object-store/minioib3:9000", "minio_version"] == "2025-04-22T22:12:26Z"
    assert {OBJECT_STORE.unit_of(r) for r in run.of(Fact)} == {CLUSTER_LAUNCH}


def broken(change: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    info = mc_info()
    change(info["info"])
    return info


@pytest.mark.parametrize(
    ("change", "rules"),
    [
        (lambda i: i["servers"][1]["drives"][2].update(state="offline"), ["drives_online"]),
        (lambda i: i["servers"][1]["drives"].pop(), ["drives_online"]),
        (lambda i: i["servers"][1]["drives"][2].update(healing=True), ["drives_not_healing"]),
        (lambda i: i["backend"].update(standardSCParity=2), ["erasure_parity"]),
        (lambda i: i["backend"].pop("standardSCParity"), ["erasure_parity"]),
        (lambda i: i["backend"].update(totalDrivesPerSet=[8]), ["erasure_set_size"]),
        (lambda i: i["servers"][3].update(version="2024-01-01T00:00:00Z"), ["same_version"]),
        (lambda i: [s.update(version="2024-01-01T00:00:00Z") for s in i["servers"]], ["version_as_expected"]),
        (lambda i: [s.pop("version") for s in i["servers"]], ["same_version"]),
        (lambda i: i["servers"][0]["network"].update({"minioib2:9000": "offline"}), ["network_online"]),
        (lambda i: [s.pop("network") for s in i["servers"]], ["network_online"]),
        (lambda i: i["servers"][0].update(state="offline"), ["servers_online"]),
        (lambda i: i["servers"][0]["drives"][0].update(totalspace=400_000_000_000), ["usable_capacity"]),
    ],
)
def test_each_fault_of_a_cluster_is_found_by_its_rule(change: Callable[[Any], object], rules: list[str]) -> None:
    assert cluster(broken(change), **GOLDEN).rules() == rules


def test_a_set_says_how_far_it_is_from_its_write_quorum() -> None:
    run = cluster(broken(lambda i: [d.update(state="offline") for d in i["servers"][1]["drives"][:3]]), **GOLDEN)
    (found,) = run.findings()
    assert "13 of 16 drives are online; the worst set can lose 1 more before writes stop" in found.summary


@pytest.mark.parametrize(
    ("output", "said"),
    [
        ("", "no JSON"),
        ("●  minioib1:9000\n   Uptime: 2 minutes\n", "no JSON"),
        ('{"status":"error","error":{"message":"The Access Key Id you provided does not exist"}}', "Access Key"),
        ('{"status":"success","info":{"servers":[]}}', "no server"),
        ('{"status":"success","info":{"servers":[{"endpoint":"a:1"}]}}', "no drive"),
        (json.dumps(mc_info())[:900], "no JSON"),
    ],
)
def test_a_cluster_that_could_not_be_read_is_not_judged(output: str, said: str) -> None:
    run = cluster(output)
    assert run.of(ObjectStoreCluster) == []
    assert said in run.of(Fact)[0].detail
    assert [f.kind for f in run.findings()] == ["not_judged"]


def test_throughput_without_payload_is_in_objects() -> None:
    settings = {**WARP, "loads": ["stat"]}
    document = warp_document(op="STAT")
    live = document["by_op_type"]["STAT"]
    live["total_bytes"] = 0
    for through in (live["throughput"], *live["throughput_by_host"].values()):
        through["bytes"] = 0
        for key in ("fastest_bps", "median_bps", "slowest_bps"):
            if through["segmented"]:
                through["segmented"][key] = 0
    run = Run(make_site(**settings), json.dumps(document))
    (row,) = run.of(ObjectStoreResult)
    assert (row.problem, row.mib_per_s) == (None, None)
    assert row.objects_per_s == pytest.approx(7500.64 * MIB / (4 * MIB), rel=1e-3)
    assert row.segment_median == pytest.approx(row.objects_per_s, rel=1e-3)
    assert run.rules() == []
