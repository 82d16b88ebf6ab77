"""What people are told of a run: the answer, the verdict and its cause, the first units to look at, and the page."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from fabric_health import answer
from fabric_health.datasets.store import ObjectStore
from fabric_health.datasets.tables import Answer, Finding, Run
from fabric_health.errors import UsageError
from fabric_health.history import load_part
from fabric_health.landed import Landed
from fabric_health.run_document import RunDocument
from fabric_health.verdict.outcome import Outcome

UNITS_TOLD = 5


class When(StrEnum):
    """Which runs people are told of."""

    ALWAYS = "always"
    NOT_HEALTHY = "not_healthy"
    REGRESSED = "regressed"

    @classmethod
    def parse(cls, text: str, where: str) -> When:
        """Return what ``text`` names, ``NOT_HEALTHY`` when it is empty. Raises UsageError that lists the choices."""
        try:
            return cls(text.strip() or cls.NOT_HEALTHY)
        except ValueError:
            raise UsageError(f"{where}: {text[:60]!r}; expected one of {', '.join(cls)}") from None


@dataclass(frozen=True)
class Notice:
    """What people are told of one run. ``answer`` is None for a run that was not concluded.

    ``change``: it judged a declared change. ``units``: first units to look at, each with what is wrong; ``more``: how
    many others there are. ``address`` is that of the page, or of whatever stands for it. ``asks``: somebody is to say
    whether it becomes the baseline. Texts may hold what devices said: they are escaped where they are shown.
    """

    site: str
    run: str
    dag: str
    origin: str
    answer: str | None
    headline: str
    verdict: str | None = None
    reason: str | None = None
    settle: str | None = None
    cause: str | None = None
    ticket: str | None = None
    change: bool = False
    units: tuple[tuple[str, str], ...] = ()
    more: int = 0
    address: str | None = None
    asks: str | None = None

    def due(self, when: When) -> bool:
        """Tell whether people are to be told.

        A run that was not concluded, and one that waits for a decision, are always told. ``NOT_HEALTHY`` are all runs
        but healthy ones that did not regress; after a declared change, healthy also takes PASS or IMPROVED.
        """
        if self.answer is None or self.asks is not None or when is When.ALWAYS:
            return True
        regressed = self.verdict == Outcome.REGRESSED
        if when is When.REGRESSED:
            return regressed
        unsettled = self.change and self.verdict not in (Outcome.PASS, Outcome.IMPROVED)
        return self.answer != Answer.HEALTHY or regressed or unsettled


def unfinished(site: str, run: str, dag: str, origin: str, why: str, address: str | None) -> Notice:
    """Return what is told of a run that was not concluded."""
    return Notice(site, run, dag, origin, None, why, address=address)


def gather(store: ObjectStore, run: RunDocument, address: str | None, asks: str | None = None) -> Notice:
    """Read from the tables what people are told of a run. Raises StoreError when they cannot be read."""
    landed = Landed(store, run)
    key = run.key
    record = next(iter(load_part(store, Run, key, "run")), None)
    if record is None:
        return unfinished(key.site, key.run, run.dag, key.origin, "The run was not concluded: a stage failed.", address)
    told: dict[str, str] = {}
    for finding in answer.news(landed.of(Finding)):
        told.setdefault(finding.unit, finding.summary)
    verdict = landed.verdict()
    return Notice(
        site=key.site,
        run=key.run,
        dag=run.dag,
        origin=key.origin,
        answer=record.answer,
        headline=record.headline,
        verdict=verdict.outcome if verdict else None,
        reason=verdict.reason if verdict else None,
        settle=verdict.settle if verdict else None,
        cause=verdict.explanation if verdict else None,
        ticket=run.change.ticket if run.change else None,
        change=run.change is not None,
        units=tuple(told.items())[:UNITS_TOLD],
        more=max(0, len(told) - UNITS_TOLD),
        address=address,
        asks=asks,
    )
