"""Every check: one line each. Names, DAG ids and budgets are light; the check itself is imported when it is used."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Literal

from fabric_health.errors import UsageError

if TYPE_CHECKING:
    from fabric_health.checks.check import Check


@dataclass(frozen=True)
class Entry:
    """What a scheduler needs to know of a check without importing it. ``budget_minutes`` bounds its collection.

    Benchmarks run after the audits, one after the other, on the nodes that the audits found fit. ``isolates`` says that
    what the check finds slow is looked into by launches of its own, after all benchmarks.
    """

    name: str
    dag_id: str
    title: str
    unit_kind: Literal["node", "switch", "launch"]
    pool: str
    budget_minutes: int
    isolates: bool = False

    @property
    def parts(self) -> tuple[str, ...]:
        """The names under which a run keeps what the check lands and its evidence."""
        return (self.name, f"{self.name}.isolation", f"{self.name}.confirm") if self.isolates else (self.name,)

    @property
    def is_benchmark(self) -> bool:
        """Tell whether the check measures by jobs, rather than asks units."""
        return self.unit_kind == "launch"


ENTRIES: tuple[Entry, ...] = (
    Entry("driver_firmware", "driver_firmware_audit", "Driver and firmware audit", "node", "node_reach", 30),
    Entry("switch_config", "switch_config_drift", "Switch config drift", "switch", "switch_reach", 30),
    Entry("fabric_links", "fabric_links", "InfiniBand fabric", "node", "switch_reach", 15),
    Entry("collectives", "nccl_benchmark", "Collective benchmarks", "launch", "gpu_fabric", 60, True),
    Entry("object_store", "minio_benchmark", "Object store benchmark", "launch", "object_store", 60),
    Entry("model_eval", "model_quantization_eval", "Model quantisation and evaluation", "launch", "models", 120),
    Entry("elastic_training", "elastic_training_smoke", "Elastic training", "launch", "gpu_fabric", 45),
)


def entry(name: str) -> Entry:
    """Return the entry of the check called ``name``, by its name or its DAG id. Raises UsageError with the names."""
    for e in ENTRIES:
        if name in (e.name, e.dag_id):
            return e
    raise UsageError(f"no check is called {name!r}; known: {', '.join(e.name for e in ENTRIES)}")


def check(name: str) -> Check:
    """Return the check called ``name``. Raises UsageError that lists the known names."""
    found = entry(name).name
    implementation: Check = getattr(import_module(f"fabric_health.checks.{found}"), found.upper())
    return implementation
