"""The lab's slow rank: the named one is late in every collective, nobody else is, and the sweep is not changed."""

from __future__ import annotations

import sys
import time
from typing import Any

import pytest

from fabric_health.lab import delayed_rank

LATE_S = 0.05


def _duration(sweep: Any, name: str) -> float:
    class Distributed:
        @staticmethod
        def all_reduce(_buffer: object) -> None:
            return None

    class Torch:
        @staticmethod
        def empty(_elements: int) -> object:
            return object()

    buffers = sweep.KINDS[name].prepare(Torch, Distributed, 4, 0, 2)
    start = time.perf_counter()
    buffers.run()
    return time.perf_counter() - start


@pytest.mark.parametrize(("member", "late"), [("2", True), ("0", False), (None, False)])
def test_only_the_named_rank_is_late(monkeypatch: pytest.MonkeyPatch, member: str | None, late: bool) -> None:
    monkeypatch.setenv(delayed_rank.VARIABLE, f"2:{LATE_S * 1e3:g}")
    given = ["--member", member, "--members", "0,2"] if member else ["--members", "0,2"]
    monkeypatch.setattr(sys, "argv", ["delayed_rank.py", *given])
    seen: list[float] = []

    def started(*_: object) -> int:
        seen.append(_duration(sys.modules["gloo_sweep"], "all_reduce"))
        return 0

    # Whatever main() calls in the end is replaced: what counts is how the collectives are prepared by then.
    real = delayed_rank.importlib.util.module_from_spec

    def loaded(spec: Any) -> Any:
        module = real(spec)
        execute = spec.loader.exec_module

        def then_replace(m: Any) -> None:
            execute(m)
            m.main = started

        spec.loader.exec_module = then_replace
        return module

    monkeypatch.setattr(delayed_rank.importlib.util, "module_from_spec", loaded)
    assert delayed_rank.main() == 0
    assert (seen[0] >= LATE_S) is late
