"""What ``make run`` says and how it ends, without bringing anything up."""

from __future__ import annotations

import pytest

from fabric_health.airflow import first_run
from fabric_health.cli.terminal import Clock
from fabric_health.errors import LabError, UsageError
from fabric_health.jobs.environments import ToolEnvironmentError
from fabric_health.rooms import default_site_file
from fabric_health.site import load_site


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


def test_the_tools_of_every_benchmark_are_made_before_it_runs() -> None:
    site = load_site(default_site_file())
    assert first_run.tools_of(site) == ["collectives", "llm-compressor", "vllm", "dlrover"]


def test_a_tool_that_cannot_be_made_keeps_nothing_from_running(monkeypatch, capfd) -> None:
    def broken(tool: str, *_: object) -> None:
        raise ToolEnvironmentError(f"{tool}: no such package")

    monkeypatch.setattr(first_run, "ensure", broken)
    first_run._make_tools(Clock(), load_site(default_site_file()))
    assert "vllm: no such package; what needs it will not be judged" in capfd.readouterr().err
