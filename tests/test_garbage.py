"""Cycles are looked for less often within a stage, and as before after it, however it ends."""

from __future__ import annotations

import gc

import pytest

from fabric_health.garbage import YOUNGEST, seldom_collected


def test_less_often_within_and_as_before_afterwards() -> None:
    before = gc.get_threshold()
    with seldom_collected(), seldom_collected():
        assert gc.get_threshold() == (YOUNGEST, *before[1:])
    assert gc.get_threshold() == before


def test_as_before_after_an_error_in_a_function_it_decorates() -> None:
    before = gc.get_threshold()

    @seldom_collected()
    def fails() -> None:
        raise ValueError(str(gc.get_threshold()[0]))

    for _ in range(2):
        with pytest.raises(ValueError, match=str(YOUNGEST)):
            fails()
        assert gc.get_threshold() == before


def test_a_collector_that_is_switched_off_stays_off() -> None:
    before = gc.get_threshold()
    gc.set_threshold(0, *before[1:])
    try:
        with seldom_collected():
            assert gc.get_threshold()[0] == 0
    finally:
        gc.set_threshold(*before)
