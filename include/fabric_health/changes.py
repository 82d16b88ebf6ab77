"""What changed between a unit's previous run and this one: pure comparison of rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from fabric_health.datasets.tables import Fact, FactState

# Attributes that move by themselves. They are kept as facts, but a difference in them is no change.
VOLATILE = frozenset(
    {
        "temperature_c",
        "throttle_reasons",
        "pcie_gen",
        "percentage_used",
        "available_spare",
        "ecc_sram_correctable",
        "ecc_dram_correctable",
        "ecc_sram_uncorrectable_volatile",
        "lost_queries",
    }
)


@dataclass(frozen=True)
class Change:
    """One attribute of one unit that is not what it was. ``before``/``after`` None: the unit had or has no value."""

    unit: str
    unit_kind: str
    attribute: str
    before: str | None
    after: str | None
    before_at: datetime


def fact_changes(now: Iterable[Fact], before: Iterable[Fact], before_at: Mapping[str, datetime]) -> list[Change]:
    """Return the changes of facts, ordered by attribute, values and unit so that equal changes stand together.

    ``before_at`` says, per node or switch, when its previous run started; units without one are new and no change.
    A fact that could not be read (state ``error``) in either run is not compared: that is a finding, not a change.
    """
    old = {(f.unit, f.attribute): f for f in before if f.attribute not in VOLATILE}
    new = {(f.unit, f.attribute): f for f in now if f.attribute not in VOLATILE}
    out = []
    for unit, attribute in old.keys() | new.keys():
        was, now_is = old.get((unit, attribute)), new.get((unit, attribute))
        since = before_at.get(unit.split("/", 1)[0])
        if since is None or _unreadable(was) or _unreadable(now_is):
            continue
        a, b = was.value if was else None, now_is.value if now_is else None
        if a != b:
            kind = (now_is or was).unit_kind  # type: ignore[union-attr]  # one of the two is there
            out.append(Change(unit, kind, attribute, a, b, since))
    return sorted(out, key=lambda c: (c.attribute, c.before or "", c.after or "", c.unit))


def _unreadable(fact: Fact | None) -> bool:
    return fact is not None and fact.state == FactState.ERROR
