"""Settings that are refused, the plan of launches, quantities, and the arithmetic of erasure sets."""

from __future__ import annotations

import pytest
from object_store_samples import WARP, make_site

from fabric_health.checks.object_store.erasure import default_parity, read_quorum, usable_ratio, write_quorum
from fabric_health.checks.object_store.launches import CLUSTER_LAUNCH, launches
from fabric_health.checks.object_store.quantities import endpoint, millis, rate_mib, seconds, size_bytes, size_text
from fabric_health.checks.object_store.settings import settings
from fabric_health.errors import SiteError


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"bucket": "fabric-health", "results_bucket": "fabric-health"}, "holds the results"),
        ({"bucket": "bench-results", "results_bucket": "bench-results"}, "holds the results"),
        ({"bucket": "data"}, "a name with `bench` in it"),
        ({"bucket": "Bench_X"}, "checks.object_store.bucket"),
        ({"engine": "warp"}, "hosts is empty"),
        ({"engine": "fio"}, "checks.object_store.engine"),
        ({"object_sizes": ["4 apples"]}, "expected a size such as 4KiB"),
        ({"object_sizes": []}, "checks.object_store.object_sizes"),
        ({"loads": ["list"]}, "checks.object_store.loads"),
        ({"hosts": ["a:1", "b:1"]}, "expected the engine warp"),
        ({"processes": 9, "concurrency": 8}, "9 processes"),
        ({"expected": {"drives_per_set": 4, "parity": 4}}, "at most half"),
        ({**WARP, "hosts": ["a:9000", "http://A:9000/"]}, "every host once"),
        ({**WARP, "hosts": ["a:9000,b:9000"]}, "one an entry"),
        ({"secret_key": "x"}, "checks.object_store.secret_key"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused_by_their_key(given: dict[str, object], said: str) -> None:
    with pytest.raises(SiteError) as caught:
        settings(make_site(**given))
    assert said in str(caught.value)
    assert str(caught.value).startswith("site.yaml: checks.object_store")


def test_defaults_need_nothing() -> None:
    assert settings(make_site()).engine == "embedded"


def test_launches_are_blocks_shuffled_by_the_name_of_the_run() -> None:
    site = make_site(**{**WARP, "loads": ["get", "put"], "object_sizes": ["4KiB", "4MiB"], "launches": 3})
    names = [x.name for x in launches(site, (), "run-1")]
    assert len(set(names)) == 12
    assert [n[-2:] for n in names] == ["-1"] * 4 + ["-2"] * 4 + ["-3"] * 4
    assert names == [x.name for x in launches(site, (), "run-1")]
    orders = {tuple(x.name for x in launches(site, (), f"run-{n}")) for n in range(20)}
    assert len(orders) > 10
    assert all(len(n) <= 40 and n.replace("-", "").isalnum() and n == n.lower() for n in names)


def test_no_key_is_on_a_command_line() -> None:
    site = make_site(**WARP, cluster_info=True, session_token=True)
    planned = launches(site, (), "r")
    assert planned[0].name == CLUSTER_LAUNCH
    for launch in planned:
        assert not any("key" in a or "token" in a for a in launch.spec.argv)
        assert launch.units == ("object-store",)
    assert {"WARP_ACCESS_KEY", "WARP_SECRET_KEY", "WARP_SESSION_TOKEN"} == set(planned[1].spec.secrets)
    assert "--host-select=roundrobin" in planned[1].spec.argv
    embedded = launches(make_site(), (), "r")[0].spec
    assert {"S3_ACCESS_KEY", "S3_SECRET_KEY", "S3_ENDPOINT"} == set(embedded.secrets)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("4MiB", 4 << 20), ("4 KiB", 4096), ("4MB", 4_000_000), ("100", 100), ("1GiB", 1 << 30), ("1.5KiB", 1536),
        ("4i", None), ("", None), ("0", None), ("-4MiB", None), ("4MiBs", None), ("9" * 40, None), ("0.3B", None),
    ],
)  # fmt: skip
def test_sizes(text: str, expected: int | None) -> None:
    assert size_bytes(text) == expected
    if expected is not None:
        assert size_bytes(size_text(expected)) == expected


def test_rates_and_durations() -> None:
    assert rate_mib("1GiB/s") == 1024
    assert rate_mib("512KiB/s") == 0.5
    assert rate_mib("1048576B/s") == 1
    assert rate_mib("8 MB/s") == pytest.approx(7.629, abs=1e-3)
    assert [rate_mib(t) for t in ("12 Gb", "1GiB", "7/s", "MiB/s", "1e3MiB/s")] == [None] * 5
    assert seconds("1h2m3.5s") == 3723.5
    assert [millis(t) for t in ("17.1ms", "1.05s", "900µs", "0s")] == pytest.approx([17.1, 1050, 0.9, 0])
    assert [seconds(t) for t in ("", "5", "1m ", "s", "1 s", "-1s")] == [None, None, 60, None, None, None]


def test_endpoints_are_compared_without_scheme_and_case() -> None:
    assert endpoint("http://MinioIB1:9000/") == endpoint("minioib1:9000") == "minioib1:9000"
    assert endpoint("https://s3.example.org") == "s3.example.org:443"
    assert endpoint("http://[fd00::1]:9000") == "[fd00::1]:9000"
    assert endpoint("http://fd00::1") == "[fd00::1]:80"


def test_default_parity_and_quorums() -> None:
    assert [default_parity(n) for n in (1, 2, 3, 4, 5, 6, 7, 8, 16)] == [0, 1, 1, 2, 2, 3, 3, 4, 4]
    assert [usable_ratio(16, m) for m in (4, 6, 8)] == [0.75, 0.625, 0.5]
    assert usable_ratio(4, 2) == 0.5
    assert (read_quorum(16, 4), write_quorum(16, 4)) == (12, 12)
    assert (read_quorum(16, 8), write_quorum(16, 8)) == (8, 9)
    assert write_quorum(1, 0) == 1
    for impossible in ((0, 0), (4, 3), (4, -1)):
        with pytest.raises(ValueError, match="EC:"):
            usable_ratio(*impossible)
