"""Expected changes in a site file: what is refused, with which words, and what is told."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fabric_health.cli.sites import app
from fabric_health.errors import SiteError
from fabric_health.site import Site, load_site

EXAMPLE = Path(__file__).parents[2] / "include" / "sites" / "example.yaml"
HEAD = EXAMPLE.read_text(encoding="utf-8").split("# Differences that are wanted")[0]
GOOD = {
    "units": '"gpu-[001-002]"',
    "attribute": "driver_version",
    "owner": "jane",
    "reason": "canary",
    "expires": "2027-03-31",
}


def load(folder: Path, **more: str | None) -> Site:
    keys = {k: v for k, v in {**GOOD, **more}.items() if v is not None}
    entry = ", ".join(f"{k}: {v}" for k, v in keys.items())
    path = folder / "site.yaml"
    path.write_text(f"{HEAD}\nexpected_changes:\n  - {{{entry}}}\n", encoding="utf-8")
    return load_site(path)


def test_the_example_has_one() -> None:
    [entry] = load_site(EXAMPLE).expected_changes
    assert entry.units == {"gpu-001", "gpu-002"}
    assert (entry.value, entry.ticket, entry.expires) == ("590.*", "CHG-1234", date(2027, 3, 31))


@pytest.mark.parametrize(
    "units",
    [
        "gpu-001/mlx5_0",
        "gpu-001/gpu7",
        "gpu-001/nvme0",
        "leaf-1",
        "leaf-1/Ethernet9/1",
        "rail-1",
        "object-store",
        "qwen3-8b/w8a8-gptq",
        "elastic",
    ],
)
def test_units_of_every_kind(tmp_path: Path, units: str) -> None:
    assert load(tmp_path, units=units).expected_changes[0].units == {units}


def test_skus_and_ranges(tmp_path: Path) -> None:
    assert load(tmp_path, units='"h100-8x400-ib,leaf-[1-2]"').expected_changes[0].units == {
        "h100-8x400-ib",
        "leaf-1",
        "leaf-2",
    }


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"units": '"gpu-[001-009]"'}, "expected_changes.0.units: no unit 'gpu-007'; expected one of: gpu-00"),
        ({"units": "laef-1"}, "no unit 'laef-1'; expected one of: leaf-1"),
        ({"units": "gpu-001/mlx5_7"}, "gpu-001 has no part 'mlx5_7'; expected one of: mlx5_"),
        ({"units": '"gpu-[001"'}, "expected_changes.0.units"),
        ({"owner": None}, "expected_changes.0.owner: required key is missing"),
        ({"owner": '" "'}, "expected_changes.0.owner"),
        ({"reason": None}, "expected_changes.0.reason: required key is missing"),
        ({"expires": None}, "expected_changes.0.expires: required key is missing"),
        ({"expires": "soon"}, "expected_changes.0.expires"),
        ({"attribute": None}, "expected one of attribute, metric and rule"),
        ({"rule": "as_expected"}, "expected one of attribute, metric and rule"),
        ({"onwer": "x"}, "expected_changes.0.onwer: unknown key; did you mean 'owner'?"),
    ],
)
def test_what_is_refused(tmp_path: Path, more: dict[str, str | None], message: str) -> None:
    with pytest.raises(SiteError, match=r"site\.yaml:\d+: ") as told:
        load(tmp_path, **more)
    assert message in str(told.value)


def test_a_day_in_the_past_is_allowed_and_told(tmp_path: Path) -> None:
    load(tmp_path, expires="2020-01-31")
    said = CliRunner().invoke(app, ["validate", str(tmp_path / "site.yaml")])
    assert said.exit_code == 0
    assert (
        "expected_changes.0: driver_version: jane expired since 2020-01-31: canary; what it names is news"
        in said.output
    )
