"""The lab's slow ranks: those that a fault names are late in every collective, nobody else is."""

from __future__ import annotations

import importlib.util
import sys
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import fabric_health
from fabric_health.errors import UsageError
from fabric_health.lab import delayed_rank
from fabric_health.lab.state import Fault, LabState, now, save
from fabric_health.lab.validation import checked_fault
from fabric_health.site import Site, load_site

LATE_S = 0.05


@pytest.fixture(scope="module")
def site() -> Site:
    return load_site(Path(fabric_health.__file__).parents[1] / "sites" / "lab.yaml")


@pytest.fixture
def sweep(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The real program, whose ranks tell how long an all_reduce took them."""
    spec = importlib.util.spec_from_file_location("gloo_sweep_delayed", delayed_rank.SWEEP)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "gloo_sweep_delayed", module)
    spec.loader.exec_module(module)
    torch = SimpleNamespace(empty=lambda _: object())
    distributed = SimpleNamespace(all_reduce=lambda _: None)

    def part(*_: Any) -> int:
        buffers = module.KINDS["all_reduce"].prepare(torch, distributed, 4, 0, 2)
        start = time.perf_counter()
        buffers.run()
        return int((time.perf_counter() - start) >= LATE_S)

    module.sweep = part  # type: ignore[attr-defined]
    return module


@pytest.mark.parametrize(("member", "late"), [(3, True), (2, False)])
def test_only_the_named_rank_is_late(sweep: Any, tmp_path: Path, member: int, late: bool) -> None:
    delayed_rank.delay(sweep, {3: LATE_S, 7: LATE_S})
    assert sweep.sweep(None, [2, 3], member, tmp_path) == int(late)


def test_the_labs_faults_say_who_is_late_and_by_how_much(site: Site, tmp_path: Path) -> None:
    faults = (
        checked_fault(site, "delayed-rank", "localhost/rank-3", None, now()),
        checked_fault(site, "delayed-rank", "localhost/rank-0", "150.5", now()),
        checked_fault(site, "slow-node", "gpu-005", None, now()),
    )
    save(tmp_path / "lab" / "state.json", LabState(now(), faults))
    assert delayed_rank.delays(str(tmp_path)) == pytest.approx({3: 2e-3, 0: 150.5e-6})


def test_without_a_lab_nobody_is_late(tmp_path: Path) -> None:
    assert delayed_rank.delays(None) == {}
    assert delayed_rank.delays(str(tmp_path)) == {}


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"faults": 3}', '{"faults": [{"kind": "delayed-rank", "unit": "x", "value": 1}]}']
)
def test_a_state_that_cannot_be_read_ends_the_launch(tmp_path: Path, text: str) -> None:
    (tmp_path / "lab").mkdir()
    (tmp_path / "lab" / "state.json").write_text(text)
    with pytest.raises(SystemExit, match="expected the lab's state"):
        delayed_rank.delays(str(tmp_path))


@pytest.mark.parametrize(
    ("unit", "value", "message"),
    [
        ("localhost/rank-6", None, "sits on a rank of gloo"),
        ("localhost", None, "one from localhost/rank-0 to localhost/rank-5"),
        ("gpu-001", None, "sits on a rank of gloo"),
        ("localhost/rank-3", "-1", "delay in us"),
        ("localhost/rank-3", "soon", "delay in us"),
    ],
)
def test_a_fault_that_fits_no_rank(site: Site, unit: str, value: str | None, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        checked_fault(site, "delayed-rank", unit, value, now())


def test_such_a_fault_costs_the_model_fleet_nothing(site: Site) -> None:
    from fabric_health.lab.fleet.model import Fleet

    state = LabState(now(), (Fault("delayed-rank", "localhost/rank-3", "2000", now()),))
    Fleet.of_site(site, state)
