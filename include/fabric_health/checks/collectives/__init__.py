"""Collective benchmarks: nccl-tests on GPUs, gloo on CPUs; is it the measurement asked for, and who is slow."""

from __future__ import annotations

from fabric_health.checks.check import Check, Unit
from fabric_health.checks.collectives.judge import judge
from fabric_health.checks.collectives.launches import launches
from fabric_health.checks.collectives.parse import parse
from fabric_health.checks.collectives.tables import (
    Collective,
    CollectiveLaunch,
    CollectiveSample,
    Isolation,
    LaunchProblem,
    PointToPoint,
)
from fabric_health.datasets.contracts import Row
from fabric_health.evidence import Command
from fabric_health.site import Site

__all__ = ["COLLECTIVES"]


def _no_commands(_unit: Unit, _site: Site) -> tuple[Command, ...]:
    return ()


def _unit_of(row: Row) -> str:
    if isinstance(row, (Collective, CollectiveLaunch, CollectiveSample, LaunchProblem, PointToPoint)):
        return row.launch
    if isinstance(row, Isolation):
        return row.unit or row.case
    raise TypeError(f"{type(row).__name__} is no row of the check collectives")


COLLECTIVES = Check(
    name="collectives",
    title="Collective benchmarks",
    unit_kind="launch",
    tables=(CollectiveLaunch, LaunchProblem, Collective, CollectiveSample, PointToPoint, Isolation),
    commands=_no_commands,
    parse=parse,
    judge=judge,
    unit_of=_unit_of,
    launches=launches,
    results=(Collective, PointToPoint),
    doc=(
        "Runs collectives in independent launches, proves that each is the measurement asked for (hosts, ranks, sizes, "
        "values, transport, arithmetic), holds bus bandwidth against floors where a site sets them, and compares nodes "
        "with nodes and rails with rails of the same run."
    ),
)
