"""Every layout of warp's results: what is read, and what is left out because the layout does not say it."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from object_store_samples import MIB, WARP, Run, make_site, single, warp_document, warp_json

from fabric_health.checks.object_store.engine_json import read_engine_json
from fabric_health.checks.object_store.reading import SAMPLES, SEGMENT_MEANS
from fabric_health.checks.object_store.tables import ObjectStoreHost, ObjectStoreResult
from fabric_health.checks.object_store.warp_json import read_warp_json
from fabric_health.checks.object_store.warp_requests import read_warp_requests, read_warp_segments
from fabric_health.checks.object_store.warp_text import read_warp_text
from fabric_health.datasets.tables import Fact

Texts = Callable[[str], str]


def test_json_gives_rates_hosts_and_times_over_all_segments() -> None:
    reading = read_warp_json("warp: Benchmark data written to x\n" + warp_json())
    assert reading is not None
    assert (reading.tool_version, reading.problems) == ("1.1.4", ())
    (get,) = reading.operations
    assert get.op == "GET"
    assert get.mib_per_s == pytest.approx(7500.64, rel=1e-6)
    assert get.objects_per_s == pytest.approx(7500.64 / 4, rel=1e-6)
    assert (get.object_bytes, get.concurrency, get.errors, get.clients) == (4 * MIB, 32, 0, 1)
    assert len(get.by_host) == 4
    # 3000 requests at 40 ms and 1000 at 60 ms, the latter as a sum over three merged segments.
    assert get.latency.p99_ms == pytest.approx(45.0)
    assert get.latency.avg_ms == pytest.approx(17.1)
    assert get.latency.max_ms == 281.4
    assert get.ttfb.p99_ms == pytest.approx(22.0)
    assert get.percentiles == SEGMENT_MEANS
    assert get.segments.slowest == pytest.approx(7500.64 * 0.92)


def test_json_of_put_has_no_time_to_first_byte() -> None:
    reading = read_warp_json(warp_json(op="PUT"))
    assert reading is not None
    assert reading.operations[0].ttfb.avg_ms is None
    assert reading.operations[0].latency.avg_ms is not None


def test_the_final_json_is_taken_among_several_and_an_unfinished_one_refused() -> None:
    live = warp_document(100.0) | {"final": False}
    both = json.dumps(live) + "\n" + warp_json()
    reading = read_warp_json(both)
    assert reading is not None
    assert reading.operations[0].mib_per_s == pytest.approx(7500.64)
    unfinished = read_warp_json(json.dumps(live))
    assert unfinished is not None
    assert "intermediate" in unfinished.problems[0]


def test_mixed_json_has_a_total_of_its_own() -> None:
    document = warp_document()
    for op in ("PUT", "STAT", "DELETE"):
        document["by_op_type"][op] = warp_document(10.0, op=op)["by_op_type"][op]
    reading = read_warp_json(json.dumps(document))
    assert reading is not None
    assert [o.op for o in reading.operations] == ["DELETE", "GET", "PUT", "STAT", "MIXED"]
    assert reading.operations[-1].latency.avg_ms is None


def test_times_of_a_part_of_the_requests_do_not_pass_for_all() -> None:
    document = warp_document()
    segments = document["by_op_type"]["GET"]["requests_by_client"]["Qx7a"]
    broken = single(500, 1.0)
    del broken["dur_99_millis"]
    segments.append({"single_sized_requests": broken})
    reading = read_warp_json(json.dumps(document))
    assert reading is not None
    assert reading.operations[0].latency.p99_ms is None


def test_full_json_of_earlier_releases() -> None:
    document = {
        "type": "single",
        "mixed": False,
        "operations": [
            {
                "type": "GET", "skipped": False, "n": 4000, "objects_per_operation": 1, "concurrency": 32, "clients": 1,
                "hosts": 1, "host_names": ["http://minioib1:9000"], "errors": 2, "first_errors": ["503"],
                "throughput": {
                    "errors": 2, "measure_duration_millis": 10000, "average_bps": 100.0 * MIB, "average_ops": 25.0,
                    "segmented": {
                        "segment_duration_millis": 1000, "segments": [{}, {}, {}], "fastest_bps": 110.0 * MIB,
                        "median_bps": 100.0 * MIB, "slowest_bps": 90.0 * MIB,
                    },
                },
                "throughput_by_host": {"http://minioib1:9000": {"errors": 2, "average_bps": 100.0 * MIB}},
                "single_sized_requests": single(4000, 48.0),
            }
        ],
    }  # fmt: skip
    reading = read_warp_json(json.dumps(document))
    assert reading is not None
    (get,) = reading.operations
    assert (get.mib_per_s, get.objects_per_s, get.errors, get.percentiles) == (100.0, 25.0, 2, SAMPLES)
    assert (get.latency.p99_ms, get.ttfb.p50_ms, get.object_bytes) == (48.0, 6.0, 4 * MIB)
    document["operations"][0]["skipped"] = True  # type: ignore[index]
    skipped = read_warp_json(json.dumps(document))
    assert skipped is not None
    assert skipped.operations[0].mib_per_s is None
    assert skipped.operations[0].problem is not None


def test_text_of_a_put_has_hosts_and_segments_in_their_own_units(text_of: Texts) -> None:
    reading = read_warp_text(text_of("warp-put-12+4.txt"))
    assert reading is not None
    (put,) = reading.operations
    assert (put.mib_per_s, put.objects_per_s, put.duration_s, put.errors) == (2805.38, 701.35, 297.0, 0)
    assert [h.host for h in put.by_host] == [f"http://minioib{n}:9000" for n in range(1, 5)]
    assert put.segments.fastest == pytest.approx(3.1 * 1024)
    assert (put.segments.count, put.segments.seconds, put.segments.slowest) == (297, 1.0, 2204.0)
    assert (put.latency.p99_ms, put.latency.max_ms) == pytest.approx((1050.0, 2481.3))
    assert put.ttfb.avg_ms is None


def test_text_of_a_get_has_the_time_to_first_byte(text_of: Texts) -> None:
    reading = read_warp_text(text_of("warp-get-12+4.txt"))
    assert reading is not None
    (get,) = reading.operations
    assert get.mib_per_s == 7500.64
    assert (get.ttfb.avg_ms, get.ttfb.p50_ms, get.ttfb.p90_ms, get.ttfb.p99_ms, get.ttfb.max_ms) == pytest.approx(
        (7, 6, 11, 22, 219)
    )
    assert (get.latency.p50_ms, get.percentiles) == (15.5, SEGMENT_MEANS)


def test_detailed_text_says_errors_size_and_clients(text_of: Texts) -> None:
    reading = read_warp_text(text_of("warp-put-detailed-errors.txt"))
    assert reading is not None
    (put,) = reading.operations
    assert (put.errors, put.object_bytes, put.clients, put.concurrency, put.requests) == (12, 4096, 4, 200, 17750)
    assert put.mib_per_s == pytest.approx(980.5 / 1024)
    assert (put.duration_s, put.latency.p99_ms) == (118.0, 62500.0)
    assert put.segments.slowest == pytest.approx(102.1 / 1024)
    assert all(h.errors is None for h in put.by_host)


def test_colours_are_taken_out_of_text(text_of: Texts) -> None:
    reading = read_warp_text(text_of("warp-get-ansi.txt"))
    assert reading is not None
    (get,) = reading.operations
    assert get.mib_per_s == pytest.approx(1.22 * 1024)
    assert (get.concurrency, get.duration_s, get.segments.slowest) == (32, 57.0, 1100.0)


def test_mixed_text_is_split_into_its_operations(text_of: Texts) -> None:
    reading = read_warp_text(text_of("warp-mixed.txt"))
    assert reading is not None
    rates = {o.op: (o.mib_per_s, o.objects_per_s) for o in reading.operations}
    assert rates == {
        "DELETE": (None, 150.31),
        "GET": (2704.8, 676.2),
        "PUT": (901.6, 225.4),
        "STAT": (None, 450.8),
        "MIXED": (3606.4, 1502.71),
    }
    assert reading.operations[0].segments.median == 150.5


def test_earlier_text_layouts(text_of: Texts) -> None:
    reading = read_warp_text(text_of("warp-old.txt"))
    assert reading is not None
    (get,) = reading.operations
    assert (get.requests, get.duration_s, get.concurrency) == (386413, 60.0, 20)
    assert get.mib_per_s == pytest.approx(6.37 * 1024)
    assert (get.latency.p99_ms, get.ttfb.p99_ms, get.percentiles) == (8.0, 8.0, SAMPLES)
    assert len(get.by_host) == 2
    older = read_warp_text(text_of("warp-2020.txt"))
    assert older is not None
    (put,) = older.operations
    # "MB/s" of that time is MiB/s.
    assert put.mib_per_s == 39.5
    assert put.duration_s == pytest.approx(62.244)
    assert put.segments.slowest == 25.38


def test_too_few_samples_is_no_number(text_of: Texts) -> None:
    reading = read_warp_text(text_of("warp-skipped.txt"))
    assert reading is not None
    (put,) = reading.operations
    assert (put.op, put.mib_per_s, put.errors) == ("PUT", None, 3)
    assert put.problem is not None
    document = warp_document()
    document["by_op_type"]["GET"]["throughput"]["segmented"] = None
    few = read_warp_json(json.dumps(document))
    assert few is not None
    assert (few.operations[0].mib_per_s, few.operations[0].problem is None) == (None, False)


def test_a_block_that_was_pasted_in_makes_the_text_useless(text_of: Texts) -> None:
    reading = read_warp_text(text_of("warp-mixed.txt") + "\n" + text_of("warp-put-12+4.txt"))
    assert reading is not None
    assert "several results of PUT" in reading.problems[0]


@pytest.mark.parametrize("share", [0.2, 0.5, 0.8, 0.95])
def test_cut_text_gives_no_number(text_of: Texts, share: float) -> None:
    whole = text_of("warp-get-12+4.txt")
    reading = read_warp_text(whole[: int(len(whole) * share)])
    assert reading is not None
    assert [(o.mib_per_s, o.problem is None) for o in reading.operations] == [(None, False)]


def test_all_requests_give_true_percentiles(text_of: Texts) -> None:
    reading = read_warp_requests(text_of("warp-get-full.csv"))
    assert reading is not None
    assert reading.problems == ()
    (get,) = reading.operations
    assert (get.errors, get.concurrency, get.clients, get.object_bytes) == (1, 4, 1, 4 * MIB)
    assert get.first_error is not None
    assert "connection reset" in get.first_error
    assert get.hosts == ("http://minioib1:9000", "http://minioib2:9000")
    assert get.percentiles == SAMPLES
    assert get.latency.p50_ms == pytest.approx(40, abs=4)
    assert get.latency.max_ms == pytest.approx(60, abs=1)
    assert get.ttfb.p50_ms == pytest.approx(0.4 * (get.latency.p50_ms or 0), abs=0.1)
    assert get.mib_per_s == pytest.approx(4 / 0.04 * 4, rel=0.05)
    assert sum(h.mib_per_s or 0 for h in get.by_host) == pytest.approx(get.mib_per_s)
    assert get.segments.median == pytest.approx(get.mib_per_s, rel=0.1)


def test_columns_are_found_by_name_in_the_first_release_too(text_of: Texts) -> None:
    reading = read_warp_requests(text_of("warp-put-2019.csv"))
    assert reading is not None
    (put,) = reading.operations
    assert (put.concurrency, put.errors, put.object_bytes, put.hosts) == (2, 0, MIB, ())
    assert put.ttfb.avg_ms is None
    assert put.latency.p50_ms == pytest.approx(100, abs=15)


def test_a_cut_line_among_requests_is_a_problem(text_of: Texts) -> None:
    text = text_of("warp-get-full.csv")
    reading = read_warp_requests(text[: len(text) // 2])
    assert reading is not None
    assert reading.problems == ("1 lines that are no requests",)


def test_segment_table(text_of: Texts) -> None:
    reading = read_warp_segments(text_of("warp-segments.tsv"))
    assert reading is not None
    (get,) = reading.operations
    assert (get.mib_per_s, get.errors, get.duration_s) == (pytest.approx(1045.0), 1, 10.0)
    assert [h.mib_per_s for h in get.by_host] == pytest.approx([418.0, 627.0])
    assert (get.segments.fastest, get.segments.slowest) == (1090.0, 1000.0)
    earliest = text_of("warp-segments.tsv").replace("\tobjs_per_sec\t", "\tx\t")
    reading = read_warp_segments(earliest)
    assert reading is not None
    assert reading.operations[0].objects_per_s == pytest.approx(1045.0 / 4)


def test_rows_hold_what_was_read_and_what_it_may_be_compared_with() -> None:
    run = Run(make_site(**WARP), warp_json())
    (row,) = run.of(ObjectStoreResult)
    assert (row.problem, row.op, row.launch, row.mib_per_s) == (
        None,
        "GET",
        "s3-get-4mib-c32-1",
        pytest.approx(7500.64),
    )
    assert row.hosts == "minioib1:9000, minioib2:9000, minioib3:9000, minioib4:9000"
    assert "hosts=minioib1:9000,minioib2:9000" in row.comparability
    assert len(run.of(ObjectStoreHost)) == 4
    assert run.rules() == []
    assert "sesame" not in repr(run.rows)


def test_an_artefact_is_read_when_the_output_has_no_result() -> None:
    run = Run(make_site(**WARP), "warp: done\n", artefacts={"warp.json.zst": warp_json()})
    assert [r.problem for r in run.of(ObjectStoreResult)] == [None]


def test_engine_json_of_another_version_is_refused() -> None:
    reading = read_engine_json('{"format": "fabric-health/s3-bench", "v": 2, "operations": []}')
    assert reading is not None
    assert len(reading.problems) == 2
    run = Run(make_site(), '{"format": "fabric-health/s3-bench", "v": 2, "operations": []}')
    assert {f.state for f in run.of(Fact)} == {"error"}
    assert run.of(ObjectStoreResult) == []
