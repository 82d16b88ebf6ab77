"""The gloo engine: what its sweep prints, what is refused, and the program's own arguments."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from fabric_health.checks.check import Launch, RowSet
from fabric_health.checks.collectives.launches import gloo_spec
from fabric_health.checks.collectives.settings import GlooSettings
from fabric_health.checks.collectives.tables import Collective, CollectiveLaunch, CollectiveSample, LaunchProblem

PROGRAM = Path(__file__).parents[3] / "include" / "tools" / "collectives" / "gloo_sweep.py"
RECORDED = Path(__file__).parents[2] / "fixtures" / "collectives" / "gloo_sweep.json"
SETTINGS = GlooSettings(min_bytes=65536, max_bytes=1048576, factor=4, iterations=3)
RowsOf = Callable[..., RowSet]


@pytest.fixture(scope="module")
def launch() -> Launch:
    return Launch("gloo-1", gloo_spec(SETTINGS, "gloo-1"), ("localhost",))


@pytest.fixture(scope="module")
def recorded() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(RECORDED.read_text(encoding="utf-8"))
    return document


@pytest.fixture(scope="module")
def sweep() -> ModuleType:
    spec = importlib.util.spec_from_file_location("gloo_sweep", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["gloo_sweep"] = module
    spec.loader.exec_module(module)
    return module


def broken(rows: RowSet) -> set[str]:
    return {p.rule for p in rows.of(LaunchProblem)}


def test_recorded_sweep(launch: Launch, recorded: dict[str, Any], rows_of: RowsOf) -> None:
    rows = rows_of(launch, "a banner of some library\n" + json.dumps(recorded) + "\n")
    assert broken(rows) == set()
    (outcome,) = rows.of(CollectiveLaunch)
    assert (outcome.engine, outcome.workload, outcome.usable, outcome.transport) == ("gloo", "sweep", True, "TCP")
    found = rows.of(Collective)
    assert {r.collective for r in found} == set(SETTINGS.collectives)
    assert len(found) == 6 * 3
    assert {(r.ranks, r.nodes, r.timing, r.sku) for r in found} == {(2, 1, "best", None)}
    assert len(rows.of(CollectiveSample)) == 6 * 3 * 3


def test_what_is_not_the_sweep_asked_for(launch: Launch, recorded: dict[str, Any], rows_of: RowsOf) -> None:
    def but(**changes: Any) -> set[str]:
        return broken(rows_of(launch, json.dumps({**recorded, **changes})))

    assert but(complete=False) == {"output_complete"}
    assert but(ranks=[recorded["ranks"][0]]) >= {"ranks_as_asked"}
    assert but(ranks=[]) >= {"hosts_as_asked"}
    assert but(ranks=[recorded["ranks"][0], {**recorded["ranks"][1], "host": "other"}]) == {"hosts_as_asked"}
    assert but(results=recorded["results"][:-1]) == {"sizes_reached"}
    assert but(results=[{**r, "nwrong": 2} for r in recorded["results"]]) == {"no_wrong_results"}
    assert but(results=[{**r, "bus_bw": 3 * r["bus_bw"]} for r in recorded["results"]]) == {"arithmetic_holds"}
    assert but(results=[{**recorded["results"][0], "time_us": "x"}]) >= {"output_readable"}
    assert but(format=99) >= {"output_readable"}
    text = json.dumps(recorded)
    assert broken(rows_of(launch, text[: len(text) // 2])) >= {"output_readable", "output_complete"}
    assert broken(rows_of(launch, text, exit_code=1)) == {"launch_completes"}


def test_subset_of_ranks() -> None:
    spec = gloo_spec(GlooSettings(ranks=4), "pair", (1, 3))
    assert spec.argv[-2:] == ("--members", "1,3")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--collectives", "all_reduce,scatter_all"], "no collective 'scatter_all'"),
        (["--members", "1"], "two or more different ranks"),
        (["--members", "1,1"], "two or more different ranks"),
        (["--factor", "1"], "a factor of 2 or more"),
    ],
)
def test_arguments_at_fault(
    sweep: ModuleType, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        sweep.main(arguments)
    assert message in capsys.readouterr().err


def test_rank_that_fails_ends_the_others(tmp_path: Path) -> None:
    """Without torch every rank fails; the sweep ends at once, says which, and leaves no process."""
    (tmp_path / "torch.py").write_text("raise ImportError('no torch here')\n", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(PROGRAM), "--timeout", "60"],
        env={"PYTHONPATH": str(tmp_path), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 1
    assert "ended with exit code 1" in done.stderr
    assert done.stdout == ""


def test_factors_are_those_of_the_check(sweep: ModuleType) -> None:
    from fabric_health.checks.collectives.arithmetic import bus_factor

    for name, kind in sweep.KINDS.items():
        assert kind.factor(6) == pytest.approx(bus_factor(name, 6))
