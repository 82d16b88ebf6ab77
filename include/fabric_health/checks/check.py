"""What a check is: which commands, how to parse them, which tables, how to judge.

All functions of a check are pure: plain data in, plain data out, no I/O and no clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, TypeVar

from fabric_health.datasets.contracts import Row
from fabric_health.datasets.tables import Finding
from fabric_health.evidence import Command, StoredEvidence, UnitEvidence
from fabric_health.jobs.spec import JobSpec
from fabric_health.site import Fabric, Node, Site, Switch

R = TypeVar("R", bound=Row)


@dataclass(frozen=True)
class Launch:
    """One launch of a benchmark: an independent repetition. Iterations within it are not independent samples.

    ``units`` are the nodes (or the object store) it measures; ``name`` is unique within a run. ``origin`` is given
    where it is not the site's: a lab, too, measures the machine it runs on. ``unit_kind`` is the kind of ``units``; of
    a ``pair`` these are two nodes, and what lies between them is measured as well.
    """

    name: str
    spec: JobSpec
    units: tuple[str, ...]
    origin: Literal["measured", "lab"] | None = None
    unit_kind: Literal["node", "pair", "machine", "object_store", "model", "job"] = "node"
    kind: Literal["launch"] = "launch"


Unit = Node | Switch | Fabric | Launch


@dataclass(frozen=True)
class RowSet:
    """Rows by table. ``of`` gives the rows of one type; an absent table is an empty list."""

    rows: Mapping[type[Row], Sequence[Row]] = field(default_factory=dict)

    def of(self, row_type: type[R]) -> list[R]:
        """Return the rows of ``row_type``."""
        return [r for r in self.rows.get(row_type, ()) if isinstance(r, row_type)]

    @classmethod
    def gather(cls, rows: Iterable[Row]) -> RowSet:
        """Group rows by their type."""
        grouped: dict[type[Row], list[Row]] = {}
        for row in rows:
            grouped.setdefault(type(row), []).append(row)
        return cls(grouped)


@dataclass(frozen=True)
class Context:
    """What deriving and judging may know besides the rows of this run.

    ``previous`` holds, per unit, the rows of the latest earlier run that has any for it; ``previous_at`` says, per
    unit (node or switch name), when that was (UTC), and ``carried_at``, by unit and table, where rows are older than
    that: the run judged the unit in part and read none of them. ``reach`` says how each unit in scope answered in this
    run.
    """

    site: Site
    run: str
    started_at: datetime
    scope: tuple[Unit, ...]
    reach: Mapping[str, StoredEvidence]
    previous: RowSet = field(default_factory=RowSet)
    previous_at: Mapping[str, datetime] = field(default_factory=dict)
    carried_at: Mapping[tuple[str, str], datetime] = field(default_factory=dict)

    def seen_at(self, unit: str, row_type: type[Row]) -> datetime | None:
        """Return the start of the run that a unit's previous rows of one type are of, None when there is none."""
        return self.carried_at.get((unit, row_type.TABLE), self.previous_at.get(unit))

    def window(
        self, unit: str, row_type: type[Row], then: datetime | None, now: datetime | None
    ) -> tuple[datetime, float] | None:
        """Return start (UTC) and length (s) of the window between two readings of a unit's counters, None without one.

        ``then`` and ``now`` are when they were read. Where either is not known, as in rows of an earlier release, the
        starts of the two runs stand in for both.
        """
        if then is None or now is None:
            then, now = self.seen_at(unit, row_type), self.started_at
        length = 0.0 if then is None else (now - then).total_seconds()
        return None if then is None or length <= 0 else (then, length)


def read_at(evidence: UnitEvidence, commands: Iterable[str] = ()) -> datetime:
    """Return when a unit was first asked for one of ``commands`` (or a ``command:item``), else for anything (UTC)."""
    names = tuple(commands)
    asked = [
        r.started_at for r in evidence.results if r.name in names or r.name.startswith(tuple(f"{n}:" for n in names))
    ]
    return min(asked, default=evidence.started_at)


def _nothing_to_derive(_rows: RowSet, _context: Context) -> list[Row]:
    return []


def _is_result(_row: Row) -> bool:
    return True


@dataclass(frozen=True)
class Check:
    """One check.

    ``commands(unit, site)`` lists what to run on a unit. ``parse(unit, evidence, site)`` reads one unit's evidence
    into rows; it must cope with any text and never raise. ``derive(rows, context)`` makes rows that need several
    units or the previous run. ``judge(rows, context)`` turns rows into findings. ``tables`` names every row type
    that parse and derive may return; ``unit_of(row)`` tells which node, switch or launch a row belongs to.

    A benchmark has ``unit_kind`` "launch": ``launches(site, nodes, run)`` plans its jobs on the nodes that are fit (the
    run's name seeds the order), each job's output and artefacts become the evidence of one launch (commands named
    ``job`` and ``artefact:<file>``), and ``commands`` is empty. A launch counts as judged when it gave rows of
    ``results`` that ``counts`` takes: what explains a refused launch is no result.

    A check with ``unit_kind`` "fabric" asks what ``fabrics(site)`` names, whatever the scope: a fabric is one thing.
    ``at_once`` of a unit's commands may run at the same time, where they do not depend on each other and load the unit
    little; switches are asked one after the other all the same.
    """

    name: str
    title: str
    unit_kind: Literal["node", "switch", "fabric", "launch"]
    tables: tuple[type[Row], ...]
    commands: Callable[[Unit, Site], tuple[Command, ...]]
    parse: Callable[[Unit, UnitEvidence, Site], list[Row]]
    judge: Callable[[RowSet, Context], list[Finding]]
    unit_of: Callable[[Row], str]
    derive: Callable[[RowSet, Context], list[Row]] = _nothing_to_derive
    launches: Callable[[Site, tuple[Node, ...], str], tuple[Launch, ...]] | None = None
    results: tuple[type[Row], ...] = ()
    counts: Callable[[Row], bool] = _is_result
    fabrics: Callable[[Site], tuple[Fabric, ...]] | None = None
    at_once: int = 1
    doc: str = ""
