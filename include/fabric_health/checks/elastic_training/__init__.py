"""Elastic training: does training go on after a lost worker, from where, how soon, and with how many."""

from __future__ import annotations

from fabric_health.checks.check import Check, Unit
from fabric_health.checks.elastic_training.judge import judge
from fabric_health.checks.elastic_training.launches import launches
from fabric_health.checks.elastic_training.parse import parse
from fabric_health.checks.elastic_training.tables import ElasticEvent, ElasticNodeCheck, ElasticRecovery, ElasticRun
from fabric_health.datasets.contracts import Row
from fabric_health.evidence import Command
from fabric_health.site import Site

__all__ = ["ELASTIC_TRAINING"]


def _no_commands(_unit: Unit, _site: Site) -> tuple[Command, ...]:
    return ()


def _unit_of(row: Row) -> str:
    if isinstance(row, (ElasticEvent, ElasticNodeCheck, ElasticRecovery, ElasticRun)):
        return row.launch
    raise TypeError(f"{type(row).__name__} is no row of the check elastic_training")


def _is_result(row: Row) -> bool:
    """Tell whether a launch could be judged: one with a problem gave no result."""
    return isinstance(row, ElasticRun) and row.problem is None


ELASTIC_TRAINING = Check(
    name="elastic_training",
    title="Elastic training",
    unit_kind="launch",
    tables=(ElasticRun, ElasticRecovery, ElasticNodeCheck, ElasticEvent),
    commands=_no_commands,
    parse=parse,
    judge=judge,
    unit_of=_unit_of,
    launches=launches,
    results=(ElasticRun,),
    counts=_is_result,
    doc=(
        "Trains a small model under DLRover, takes workers away while it trains, and times how it goes on: detection, "
        "rendezvous, first step, lost steps, world size. Judges the start, the node check, each recovery and the end."
    ),
)
