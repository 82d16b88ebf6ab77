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
from hypothesis import HealthCheck, given
from hypothesis import settings as examples
from hypothesis import strategies as st

from fabric_health.checks.check import Launch, RowSet
from fabric_health.checks.collectives.judge import judge
from fabric_health.checks.collectives.launches import gloo_spec, ranks_spec
from fabric_health.checks.collectives.settings import GlooSettings
from fabric_health.checks.collectives.tables import Collective, CollectiveLaunch, CollectiveSample, LaunchProblem
from fabric_health.site import Site

PROGRAM = Path(__file__).parents[3] / "include" / "tools" / "collectives" / "gloo_sweep.py"
RECORDED = Path(__file__).parents[2] / "fixtures" / "collectives" / "gloo_sweep.json"
SETTINGS = GlooSettings(min_bytes=65536, max_bytes=1048576, factor=4, iterations=3)
RowsOf = Callable[..., RowSet]
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
quick = examples(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))


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


PAIRS = Launch("gloo-pairs-1", ranks_spec(GlooSettings(pairs=3), "gloo-pairs-1", ((0, 1), (2, 3), (4, 5))), ("here",))


def of_pairs(*times_us: float, members: tuple[tuple[int, ...], ...] = ((0, 1), (2, 3), (4, 5))) -> dict[str, Any]:
    """What a launch of pairs prints; each pair's fastest all_reduce took so long."""
    order = [(number, member) for number, group in enumerate(members) for member in group]
    line = {"collective": "all_reduce", "size": 65536, "dtype": "float", "redop": "sum", "root": -1, "in_place": True}
    return {
        "tool": "gloo_sweep",
        "format": 1,
        "torch": "2.13.0+cpu",
        "ranks": [{"rank": i, "member": m, "host": "node-a", "group": g} for i, (g, m) in enumerate(order)],
        "results": [
            {
                **line,
                "time_us": t,
                "alg_bw": 65.536 / t,
                "bus_bw": 65.536 / t,
                "nwrong": 0,
                "times_us": [t, 2 * t],
                "group": g,
            }
            for g, t in enumerate(times_us)
        ],
        "complete": True,
    }


def test_pairs_of_ranks_are_measured_by_themselves(rows_of: RowsOf) -> None:
    assert PAIRS.spec.argv[-2:] == ("--groups", "0,1/2,3/4,5")
    rows = rows_of(PAIRS, json.dumps(of_pairs(230.0, 2400.0, 250.0)))
    assert broken(rows) == set()
    assert {(r.group, r.group_kind, r.ranks, round(r.busbw_gbps, 3)) for r in rows.of(Collective)} == {
        ("ranks-0-1", "ranks", 2, 0.285),
        ("ranks-2-3", "ranks", 2, 0.027),
        ("ranks-4-5", "ranks", 2, 0.262),
    }
    assert {r.transport for r in rows.of(Collective)} == {"TCP"}
    assert len({r.comparability for r in rows.of(Collective)}) == 1


def test_pairs_that_are_not_those_asked_for(rows_of: RowsOf) -> None:
    def broken_by(document: dict[str, Any]) -> set[str]:
        return broken(rows_of(PAIRS, json.dumps(document)))

    assert broken_by(of_pairs(230.0, 240.0)) == {"sizes_reached"}
    assert broken_by(of_pairs(1.0, 1.0, 1.0, members=((0, 1), (2, 4), (3, 5)))) == {"groups_as_asked"}
    assert broken_by(of_pairs(1.0, 1.0, members=((0, 1), (2, 3)))) >= {"groups_as_asked", "ranks_as_asked"}
    assert broken_by(of_pairs(1.0, 1.0, 1.0, 1.0)) == {"output_readable"}  # of a group that no rank is in
    unnamed = of_pairs(1.0, 1.0, 1.0)
    del unnamed["ranks"][2]["member"]
    assert broken_by(unnamed) == {"groups_as_asked"}


@quick
@given(st.data())
def test_any_value_in_the_result_of_pairs(rows_of: RowsOf, data: st.DataObject) -> None:
    document = of_pairs(230.0, 240.0, 250.0)
    place = data.draw(st.sampled_from([document, document["ranks"][1], document["results"][1]]))
    place[data.draw(st.sampled_from(sorted(place)))] = data.draw(VALUES)
    rows_of(PAIRS, json.dumps(document))


@pytest.mark.parametrize(
    ("values", "slow"),
    [
        ((0.29, 0.027, 0.39), ["ranks-2-3"]),
        ((0.29, 0.31, 0.28), []),
        ((0.29, 0.17, 0.39), []),  # 41 % below: not beyond what shared CPUs do
        ((0.29, 0.15, 0.30), ["ranks-2-3"]),
        ((0.027, 0.029, 0.30), []),  # of three, two say what is usual
        ((0.29, 0.027), None),
    ],
)
def test_a_pair_far_below_the_others_is_slow(
    fleet: Site, rows_of: RowsOf, context_of: Callable[..., Any], values: tuple[float, ...], slow: list[str] | None
) -> None:
    members = ((0, 1), (2, 3), (4, 5))[: len(values)]
    spec = ranks_spec(GlooSettings(pairs=3), "gloo-pairs-1", members)
    launch = Launch("gloo-pairs-1", spec, ("localhost",), unit_kind="machine")
    rows = rows_of(launch, json.dumps(of_pairs(*(65.536 / v for v in values), members=members)))
    found = [f for f in judge(rows, context_of(fleet, [launch])) if f.rule == "ranks_as_fast_as_peers"]
    if slow is None:
        assert [(f.kind, f.severity) for f in found] == [("not_judged", "info")]
    else:
        assert [f.unit for f in found] == slow
        assert {f.severity for f in found} <= {"warning"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--collectives", "all_reduce,scatter_all"], "no collective 'scatter_all'"),
        (["--groups", "1"], "two or more different ranks"),
        (["--groups", "0,1/2,2"], "two or more different ranks"),
        (["--groups", "0,x"], "expected numbers"),
        (["--factor", "1"], "a factor of 2 or more"),
    ],
)
def test_arguments_at_fault(
    sweep: ModuleType, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        sweep.main(arguments)
    assert message in capsys.readouterr().err


def test_a_sweep_without_torch_says_so(tmp_path: Path) -> None:
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
    assert done.stderr == "torch cannot be loaded: no torch here\n"
    assert done.stdout == ""


def test_rank_that_fails_ends_the_others(tmp_path: Path) -> None:
    """Rank 1 of the second group fails, rank 0 of it waits: the sweep ends at once, says which, and prints nothing."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("__version__ = 'none'\n")
    (tmp_path / "torch" / "distributed.py").touch()
    program = f"""
import importlib.util, pathlib, sys, time
spec = importlib.util.spec_from_file_location("gloo_sweep", {str(PROGRAM)!r})
sweep = sys.modules["gloo_sweep"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sweep)
def part(options, group, member, folder):
    (folder / ("-".join(map(str, group)) + ".json")).write_text('{{"ranks": [], "results": []}}')
    if group == [2, 3]:
        pathlib.Path({str(tmp_path)!r}, f"{{member}}.pid").write_text(str(__import__("os").getpid()))
        if member == 2:
            time.sleep(60)
        return 1
    return 0
sweep.sweep = part
sys.exit(sweep.main(["--groups", "0,1/2,3"]))
"""
    environment = {"PYTHONPATH": str(tmp_path), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=30, check=False
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert "rank 3 ended with exit code 1" in done.stderr
    waiting = tmp_path / "2.pid"
    assert not waiting.exists() or not Path("/proc", waiting.read_text()).exists()


def test_factors_are_those_of_the_check(sweep: ModuleType) -> None:
    from fabric_health.checks.collectives.arithmetic import bus_factor

    for name, kind in sweep.KINDS.items():
        assert kind.factor(6) == pytest.approx(bus_factor(name, 6))
