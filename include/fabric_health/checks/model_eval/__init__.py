"""Models: quantised, served, loaded and asked; are they what was asked for, as fast, and are their answers the same."""

from __future__ import annotations

from fabric_health.checks.check import Check, Unit
from fabric_health.checks.model_eval.judge import judge
from fabric_health.checks.model_eval.launches import launches
from fabric_health.checks.model_eval.parse import parse
from fabric_health.checks.model_eval.tables import (
    Fingerprint,
    ModelBuild,
    ModelEmbedding,
    ModelLaunchProblem,
    ModelQuality,
    ModelServer,
    ModelServing,
    PerItem,
    Quantization,
)
from fabric_health.datasets.contracts import Row
from fabric_health.evidence import Command
from fabric_health.site import Site

__all__ = ["MODEL_EVAL"]

_ROWS = (
    ModelBuild,
    Quantization,
    ModelServer,
    ModelServing,
    ModelQuality,
    PerItem,
    Fingerprint,
    ModelEmbedding,
    ModelLaunchProblem,
)


def _no_commands(_unit: Unit, _site: Site) -> tuple[Command, ...]:
    return ()


def _unit_of(row: Row) -> str:
    if isinstance(row, _ROWS):
        return row.launch
    raise TypeError(f"{type(row).__name__} is no row of the check model_eval")


def _counts(row: Row) -> bool:
    return getattr(row, "problem", None) is None


MODEL_EVAL = Check(
    name="model_eval",
    title="Model quantisation and evaluation",
    unit_kind="launch",
    tables=_ROWS,
    commands=_no_commands,
    parse=parse,
    judge=judge,
    unit_of=_unit_of,
    launches=launches,
    # A server that started and measured nothing is no result.
    results=(ModelBuild, Quantization, ModelServing, ModelQuality, Fingerprint, ModelEmbedding),
    counts=_counts,
    doc=(
        "Quantises models, serves base and quantised forms, and measures them: speed under load, quality item by item, "
        "greedy answers and vectors of fixed texts. Shows first that each launch is what was asked for: the model, its "
        "weights by hash, the load, every request answered. Quality is compared with the base and with earlier runs by "
        "paired tests."
    ),
)
