"""The benches of fleet verdicts: their simulation keeps to the lab's fleet model, and a few of their runs hold."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from fabric_health.lab.fleet.model import SPREAD, Fleet
from fabric_health.site import load_site
from fabric_health.verdict.settings import DEFAULTS

BENCH = Path(__file__).parents[2] / "bench"
NAMES = ("verdicts_fleet", "verdicts_rivals", "verdicts", "verdict_attribution", "verdicts_why", "verdict_speed")


@pytest.fixture(scope="module")
def bench() -> Iterator[SimpleNamespace]:
    before = {n: sys.modules.get(n) for n in NAMES}
    sys.path.insert(0, str(BENCH))
    try:
        yield SimpleNamespace(**{n: importlib.import_module(n) for n in NAMES})
    finally:
        sys.path.remove(str(BENCH))
        for name, module in before.items():
            sys.modules.pop(name, None)
            if module is not None:
                sys.modules[name] = module


def parts(performance: np.ndarray) -> tuple[float, float, float]:
    """Return what launches, runs and units differ by: medians, so that tails do not count."""
    cell = np.median(performance, axis=1)
    run = np.median(cell - np.median(cell, axis=0), axis=1)
    launch = 1.4826 * np.median(np.abs(performance - np.mean(performance, axis=1, keepdims=True))) / np.sqrt(2 / 3)
    return float(launch), float(np.std(run)), float(np.std(np.median(cell - run[:, None], axis=0)))


def test_its_laws_are_those_of_the_labs_fleet_model(bench: SimpleNamespace) -> None:
    site = load_site(Path(__file__).parents[2] / "include" / "sites" / "lab.yaml")
    fleet = Fleet.of_site(site)
    nodes = fleet.fabric.nodes
    groups = [
        fleet.group([nodes[i], nodes[i + 1]], [r]) for i in range(0, len(nodes) - 1, 2) for r in fleet.fabric.rails
    ]
    simulated = np.log(fleet.simulate(groups, 8 << 30, 60, ring_only=True))
    noise = bench.verdicts_fleet.NOISES["1 %"]
    drawn = [
        bench.verdicts_fleet.draw(bench.verdicts_fleet.Case(16, noise, rails=True), 0, s).regular for s in range(8)
    ]
    launch, run, _ = parts(simulated)
    ours = np.array([parts(d) for d in drawn])
    # A launch of the model is the mean of 20 iterations, that the bench leaves out: 0.3 % beside 1 %.
    assert ours[:, 0].mean() == pytest.approx(launch, rel=0.12)
    assert np.sqrt((ours[:, 1] ** 2).mean()) == pytest.approx(run, rel=0.5)
    assert ours[:, 2].mean() == pytest.approx(np.hypot(SPREAD.node, SPREAD.rail), rel=0.35)
    slow = [float(np.mean(np.median(p, axis=1, keepdims=True) - p > 0.05)) for p in (simulated, np.concatenate(drawn))]
    assert slow[0] == pytest.approx(slow[1], abs=0.006)


def test_every_rule_gets_the_same_draw_and_what_is_hit_is_what_is_named(bench: SimpleNamespace) -> None:
    fleet = bench.verdicts_fleet
    for kind in ("one unit", "one switch", "one rail", "whole fleet"):
        case = fleet.Case(16, fleet.NOISES["2 %"], kind, 0.5, rails=True)
        one, again = fleet.draw(case, 3, 1), fleet.draw(case, 3, 1)
        assert np.array_equal(one.regular, again.regular)
        fell = np.median(one.regular[:-1], axis=(0, 1)) - np.median(one.regular[-1], axis=0) > 0.2
        assert {u for u, f in zip(one.units, fell, strict=True) if f} == one.hit
        assert one.subject in {*one.units, *one.groups["rack"], *one.groups["rail"], "fleet"}
    with pytest.raises(ValueError, match="a loss on"):
        fleet.draw(fleet.Case(16, fleet.NOISES["2 %"], "nothing", 0.1), 3, 1)


def test_a_few_runs_of_the_bench_hold(bench: SimpleNamespace) -> None:
    fleet, verdicts = bench.verdicts_fleet, bench.verdicts
    healthy = verdicts.measure(fleet.Case(16, fleet.NOISES["2 %"]), 20, 100, True)
    assert healthy[verdicts.OURS].false <= 3
    assert np.mean(healthy[verdicts.OURS].more) < 0.35
    assert healthy["one launch against one, 5 %"].false >= 5
    lost = verdicts.measure(fleet.Case(64, fleet.NOISES["1 %"], "one unit", 0.05), 8, 100, False)
    assert lost[verdicts.OURS].found == 8
    assert verdicts.failures(fleet.Case(64, fleet.NOISES["1 %"], "one unit", 0.05), lost[verdicts.OURS]) == []
    assert "| 64 | 1 % | one unit, 5 % | fabric-health |" in verdicts.row(
        fleet.Case(64, fleet.NOISES["1 %"], "one unit", 0.05), verdicts.OURS, lost[verdicts.OURS]
    )
    weeks = bench.verdicts_why.simulate(16, 1, 1, 4, 100)
    assert weeks["first"] + weeks["tied"] >= 2


def test_missed_targets_are_told(bench: SimpleNamespace) -> None:
    fleet, verdicts = bench.verdicts_fleet, bench.verdicts
    poor = verdicts.Tally(runs=100, false=20, found=50, passed=[0.5], more=[0.3])
    healthy = verdicts.failures(fleet.Case(16, fleet.NOISES["2 %"]), poor)
    assert healthy == ["16, 2 %, healthy: false alarms in 20.0 %", "16, 2 %, healthy: 30 % more launches"]
    lost = verdicts.failures(fleet.Case(16, fleet.NOISES["2 %"], "one unit", 0.05), poor)
    assert lost == ["16, 2 %, one unit, 5 %: found in 50.0 %", "16, 2 %, one unit, 5 %: passed"]


def test_years_of_runs_are_judged(bench: SimpleNamespace) -> None:
    panel = bench.verdict_speed.panel_of(8, 60)
    judged = bench.verdict_speed.judge_changes(panel)
    assert panel.units[bench.verdict_speed.SLOW_SINCE] in {j.subject for j in judged}
    assert panel.units[bench.verdict_speed.SLOW] in bench.verdict_speed.suspects(panel, DEFAULTS)
