"""Rows of the view ``measurements`` arranged as panels."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa

import fabric_health
from fabric_health.measured import Measurements, arrange, groups_of
from fabric_health.site import load_site

START = datetime(2026, 11, 2, tzinfo=UTC)
KEY = "engine=nccl-tests;collective=all_reduce;size_bytes={size};in_place={place};library_version={nccl}"


def key(size: int = 1024, place: str = "false", nccl: str = "2.27") -> str:
    return KEY.format(size=size, place=place, nccl=nccl)


def row(
    run: int, unit: str, value: float, launch: int = 1, comparability: str = "", kind: str = "node"
) -> dict[str, object]:
    return {
        "run": f"run-{run}",
        "produced_at": START + timedelta(weeks=run),
        "launch": launch,
        "check": "collectives",
        "unit": unit,
        "unit_kind": kind,
        "metric": "busbw_gbps",
        "value": value,
        "unit_of_measure": "GB/s",
        "comparability": comparability or key(),
        "origin": "lab",
    }


def arranged(*rows: dict[str, object], run: int = 1) -> Measurements:
    return arrange(pa.Table.from_pylist(list(rows)), f"run-{run}")


def test_runs_launches_and_units_become_a_panel() -> None:
    got = arranged(row(0, "b", 100), row(1, "a", 90, 2), row(1, "a", 80, 1), row(1, "b", 100), row(0, "a", 100))
    (m,) = got.panels
    assert (m.check, m.unit_of_measure, m.origin) == ("collectives", "GB/s", "lab")
    assert (m.panel.runs, m.panel.units) == (("run-0", "run-1"), ("a", "b"))
    assert np.exp(m.panel.performance[1, :, 0]).round(6).tolist() == [80, 90]
    assert np.isnan(m.panel.performance[0, 1]).all()
    assert got.incomparable == ()


def test_the_largest_size_out_of_place_is_judged() -> None:
    sizes = [row(1, "a", 1.0, comparability=key(s, p)) for s in (8, 1024, 64) for p in ("true", "false")]
    got = arranged(*sizes, row(0, "a", 1.0))
    assert [m.panel.comparability for m in got.panels] == [key(1024, "false")]


def test_what_no_earlier_run_measured_in_the_same_way_names_the_closest() -> None:
    got = arranged(
        row(0, "a", 1.0, comparability=key(nccl="2.26")),
        row(0, "a", 1.0, comparability=key(8, nccl="2.20")),
        row(1, "a", 1.0),
    )
    (odd,) = got.incomparable
    assert odd.closest == key(nccl="2.26")
    assert odd.units == ("a",)
    assert got.panels[0].panel.runs == ("run-1",)


def test_a_first_run_has_nothing_to_be_compared_with() -> None:
    (odd,) = arranged(row(1, "a", 1.0)).incomparable
    assert odd.closest is None


def test_what_is_no_positive_number_is_not_measured() -> None:
    (m,) = arranged(row(0, "a", 1.0), row(1, "a", 0.0, 1), row(1, "a", math.inf, 2), row(1, "a", 5.0, 3)).panels
    assert np.isnan(m.panel.performance[1, :2, 0]).all()
    assert m.panel.performance[1, 2, 0] == math.log(5.0)


def test_kinds_of_units_stay_apart() -> None:
    got = arranged(
        row(0, "a", 1.0), row(1, "a", 1.0), row(1, "rail-0", 2.0, kind="rail"), row(0, "rail-0", 2.0, kind="rail")
    )
    assert sorted(m.panel.unit_kind for m in got.panels) == ["node", "rail"]


def test_nothing_measured_is_no_panel() -> None:
    assert arrange(pa.Table.from_pylist([row(0, "a", 1.0)]), "run-9") == Measurements()


def test_groups_of_a_site_are_racks_skus_and_the_leaves_of_rails() -> None:
    site = load_site(Path(fabric_health.__file__).parents[1] / "sites" / "lab.yaml")
    groups = groups_of(site)
    assert groups["rack"]["gpu-009"] == "r2"
    assert groups["leaf"]["rail-3"] == "leaf-2"
    assert groups["sku"]["gpu-001"] == "h100-8x400-roce"
