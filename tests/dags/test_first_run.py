"""What ``make run`` says and how it ends, without bringing anything up."""

from __future__ import annotations

import pytest

from fabric_health.airflow import first_run
from fabric_health.errors import LabError, UsageError


@pytest.mark.parametrize(
    ("error", "code"), [(LabError("no port"), 2), (UsageError("no such site"), 64), (RuntimeError("boom"), 2)]
)
def test_a_run_that_did_not_complete_never_ends_with_0_or_1(error, code, monkeypatch, capfd) -> None:
    def broken(_home: object) -> None:
        raise error

    monkeypatch.setattr(first_run.store_server, "start", broken)
    assert first_run.main(["run"]) == code
    assert str(error) in capfd.readouterr().err


def test_an_interrupt_says_how_to_stop(monkeypatch, capfd) -> None:
    def interrupted(_home: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(first_run.store_server, "start", interrupted)
    assert first_run.main(["run"]) == 130
    assert "make stop" in capfd.readouterr().err


def test_an_unknown_command_is_wrong_usage(capfd) -> None:
    assert first_run.main(["walk"]) == 64
    assert "run, stop, status" in capfd.readouterr().err
