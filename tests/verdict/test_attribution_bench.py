"""The published rates of attribution, on a few of the bench's weeks."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    path = Path(__file__).parents[2] / "bench" / "verdict_attribution.py"
    spec = importlib.util.spec_from_file_location("verdict_attribution", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("nodes", "changed"), [(16, 4), (64, 1), (64, 16)])
def test_a_single_change_is_named_first(bench: ModuleType, nodes: int, changed: int) -> None:
    got = bench.simulate(bench.Case(nodes, changed), 40, seed=7)
    assert got["first"] >= 0.95 * (1 - got["tied"])
    assert got["tied"] <= 0.2


@pytest.mark.parametrize(("nodes", "changed"), [(16, 1), (16, 4), (64, 16)])
def test_two_changes_on_the_same_nodes_are_always_inseparable(bench: ModuleType, nodes: int, changed: int) -> None:
    assert bench.simulate(bench.Case(nodes, changed, changes=2), 25, seed=7)["tied"] == 1.0
