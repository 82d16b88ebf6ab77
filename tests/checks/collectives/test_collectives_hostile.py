"""No text crashes a reader, and no text that is not a whole result of what was asked becomes a number."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as examples
from hypothesis import strategies as st
from nccl_output import Run, as_json, connection_log, text

from fabric_health.checks.check import Launch, RowSet
from fabric_health.checks.collectives.launches import gloo_spec
from fabric_health.checks.collectives.parsers.gloo_json import read_gloo
from fabric_health.checks.collectives.parsers.nccl_json import read_json
from fabric_health.checks.collectives.parsers.nccl_log import read_log, split
from fabric_health.checks.collectives.parsers.nccl_text import read_text
from fabric_health.checks.collectives.parsers.pair_log import read_pair_log
from fabric_health.checks.collectives.parsers.perftest import read_perftest, read_perftest_json
from fabric_health.checks.collectives.settings import GlooSettings
from fabric_health.checks.collectives.tables import Collective, CollectiveLaunch, PointToPoint

WHOLE = "\n".join(connection_log(Run())) + "\n" + text(Run())
HOSTILE = ["\x1b[31mred\x1b[0m", "<script>alert(1)</script>", "9" * 5000, "#" * 100_000, "1e999999999", "\x00", "٣٤"]
WORDS = st.sampled_from(
    ["#", "size", "time", "algbw", "busbw", "#wrong", "error", "8388608", "-1", "sum", "float", "0.08", "1e+09", "N/A",
     "nan", "inf", "\n", "\n# ", " ", "Rank", "Group", "Pid", "on", "device", "[0x0]",
     "gpu-001:1:2 [0] NCCL INFO via NET/IB/0",
     "# Out of bounds values : 0 OK", "# Avg bus bandwidth    : 1",
     "9" * 400, "#bytes", "BW peak[Gb/sec]", *HOSTILE[:2]]
)  # fmt: skip
anything = st.one_of(st.text(), st.lists(WORDS, max_size=60).map(" ".join))
values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
quick = examples(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))


@quick
@given(anything)
def test_readers_never_raise(output: str) -> None:
    lines, entries = split(output, frozenset({"gpu-001"}))
    read_log(entries).transports()
    read_text(lines)
    read_json(output)
    read_gloo(output)
    read_perftest(output)
    read_perftest_json(output, gbits=True)
    read_pair_log(output, gbits=True)


@quick
@given(anything)
def test_nothing_becomes_a_number_by_accident(
    launch_of: Callable[..., Launch], pair_of: Callable[..., Launch], rows_of: Callable[..., RowSet], output: str
) -> None:
    gloo = Launch("gloo-1", gloo_spec(GlooSettings(), "gloo-1"), ("localhost",))
    for launch in (launch_of(), gloo, pair_of()):
        rows = rows_of(launch, output, nccl_tests__json=output)
        assert rows.of(Collective) == []
        assert rows.of(PointToPoint) == []
        assert [r.usable for r in rows.of(CollectiveLaunch)] == [False]


@quick
@given(st.integers(0, len(WHOLE)), st.integers(0, 400))
def test_a_hole_in_the_output_never_makes_another_number(
    launch_of: Callable[..., Launch], rows_of: Callable[..., RowSet], start: int, length: int
) -> None:
    """Lost bytes may cost rows or the launch; what is left is a row that the whole output has too, but for rounding."""
    launch = launch_of(per_iteration=False)

    def numbers(rows: RowSet) -> dict[tuple[int, bool], tuple[float, float]]:
        return {(r.size_bytes, r.in_place): (r.time_us, r.busbw_gbps) for r in rows.of(Collective)}

    whole = numbers(rows_of(launch, WHOLE))
    for key, found in numbers(rows_of(launch, WHOLE[:start] + WHOLE[start + length :])).items():
        assert found == pytest.approx(whole[key], rel=5e-3)


@quick
@given(st.data())
def test_any_value_in_the_file(
    launch_of: Callable[..., Launch], rows_of: Callable[..., RowSet], data: st.DataObject
) -> None:
    document = json.loads(as_json(Run()))
    places = [document, document["config"], document["results"][0], document["results"][0]["in_place"],
              document["config"]["devices"][0], document["results"][0]["in_place_per_iter"]]  # fmt: skip
    place = data.draw(st.sampled_from(places))
    place[data.draw(st.sampled_from(sorted(place)))] = data.draw(values)
    rows_of(launch_of(), WHOLE, nccl_tests__json=json.dumps(document))


@pytest.mark.parametrize("hostile", HOSTILE)
def test_hostile_text_around_a_good_result(
    launch_of: Callable[..., Launch], rows_of: Callable[..., RowSet], hostile: str
) -> None:
    rows = rows_of(launch_of(), f"{hostile}\n{WHOLE}{hostile}\n", nccl_tests__json=as_json(Run()))
    assert len(rows.of(Collective)) == 6
