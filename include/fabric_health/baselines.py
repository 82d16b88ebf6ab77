"""Which earlier run a run is compared with, and the explicit act of accepting one as what is normal."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from fabric_health.datasets import arrow, landing, reading
from fabric_health.datasets.reading import ConcludedRun
from fabric_health.datasets.run import RunKey
from fabric_health.datasets.store import ObjectStore
from fabric_health.datasets.tables import Answer
from fabric_health.datasets.verdict_tables import Baseline
from fabric_health.errors import UsageError
from fabric_health.verdict.outcome import Outcome

MAX_TEXT = 2000
# Runs that may serve as history, and how many runs that measured the same are looked at for them and the accepted one.
HISTORY_RUNS = 8
MAX_RUNS_BACK = 60
_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,62}")


@dataclass(frozen=True)
class Accepted:
    """An acceptance with the run it is of."""

    run: str
    row: Baseline


@dataclass(frozen=True)
class Reference:
    """What a run is compared with: ``run`` before the change, and ``history``, comparable runs, oldest first.

    ``why`` says how the run was chosen, for a person. ``run`` None: the site has no earlier run that will do.
    """

    run: ConcludedRun | None
    history: tuple[ConcludedRun, ...]
    why: str


def accept(
    store: ObjectStore,
    site: str,
    run: str,
    *,
    by: str,
    reason: str,
    now: datetime,
    pinned_as: str | None = None,
    resets_history: bool = False,
    origin: str = "measured",
) -> Baseline:
    """Record that ``run`` is accepted as normal, by whom and why. ``resets_history`` says that a new level begins.

    Raises UsageError for a run that is not concluded, or that could not be judged; an empty name or reason; a name to
    pin it under that is no short lower-case word.
    """
    held = find_run(store, site, run)
    if held.row.answer == Answer.NOT_JUDGED:
        raise UsageError(f"run {run} could not be judged ({held.row.headline}); it cannot be what is normal")
    for what, text in (("who accepts it", by), ("why", reason)):
        if not text.strip() or len(text) > MAX_TEXT:
            raise UsageError(f"a baseline needs {what}: 1 to {MAX_TEXT} characters")
    if pinned_as is not None and not _NAME.fullmatch(pinned_as):
        raise UsageError(f"{pinned_as!r} cannot name a baseline; expected a short lower-case word such as `driver-580`")
    now = now.astimezone(UTC).replace(microsecond=0)
    row = Baseline(now, by.strip(), reason.strip(), resets_history, pinned_as)
    # What was named may be a name that a run is pinned under.
    key = RunKey(site, held.run, held.started_at, origin)
    landing.land(store, key, f"baseline-{now:%Y%m%dt%H%M%S}", [(row, None)], (Baseline,))
    return row


def accepted(store: ObjectStore, site: str) -> list[Accepted]:
    """Return all acceptances of a site, newest first."""
    table = reading.table(store, Baseline, site)
    runs: Sequence[str] = table.column("run").to_pylist()
    pairs = [Accepted(run, row) for run, row in zip(runs, arrow.rows(Baseline, table), strict=True)]
    return sorted(pairs, key=lambda a: (a.row.accepted_at, a.run), reverse=True)


def find_run(store: ObjectStore, site: str, name: str) -> ConcludedRun:
    """Return a concluded run by its name, or by the name it is pinned under.

    Raises UsageError with the nearest names.
    """
    pinned = {a.row.pinned_as: a.run for a in reversed(accepted(store, site)) if a.row.pinned_as}
    wanted = pinned.get(name, name)
    names: list[str] = []
    for held in reading.concluded(store, site, max_weeks=10_000):
        if held.run == wanted:
            return held
        names.append(held.run)
    near = difflib.get_close_matches(name, [*pinned, *names], n=3, cutoff=0.4) or names[:3]
    raise UsageError(f"site {site!r} has no concluded run {name!r}; nearest: {', '.join(near) or '(none at all)'}")


def named(store: ObjectStore, site: str, baseline: str, before: datetime) -> ConcludedRun:
    """Return the run that is asked for as baseline of one that starts at ``before``, by its name or a pinned one.

    Raises UsageError for one that does not exist, with the nearest names, or that is not earlier.
    """
    try:
        held = find_run(store, site, baseline)
    except UsageError as error:
        raise UsageError(f"baseline: {error}") from None
    if held.started_at >= before:
        raise UsageError(f"baseline {baseline!r} started at {held.started_at:%Y-%m-%d %H:%M} UTC, not before the run")
    return held


def reference(
    store: ObjectStore, site: str, *, checks: Sequence[str], before: datetime, baseline: str | None = None
) -> Reference:
    """Return what a run that starts at ``before`` is compared with.

    Without ``baseline`` (the name of a run or of a pinned one) it is the run that was accepted last; where none was,
    the latest concluded run that did not regress. A run that measured none of ``checks`` will not do. History are the
    last runs up to and including that one, none from before an acceptance that began a new level; where these are few,
    it goes on with the first runs after the accepted one that did not regress.
    Raises UsageError for a baseline that does not exist, or that is not earlier.
    """
    acts = [a for a in accepted(store, site) if a.row.accepted_at < before]
    wanted = set(checks)
    past: list[ConcludedRun] = []
    for held in reading.concluded(store, site, before=before):
        if len(past) >= MAX_RUNS_BACK:
            break
        if wanted & held.checks:
            past.append(held)
    chosen, why = _chosen(store, site, past, acts, before, baseline)
    if chosen is None:
        return Reference(None, (), why)
    at = {held.run: held.started_at for held in past}
    levels = [at[a.run] for a in acts if a.row.resets_history and a.run in at and at[a.run] <= chosen.started_at]
    since = max(levels, default=None)
    history = [h for h in past if h.started_at <= chosen.started_at and (since is None or h.started_at >= since)]
    if chosen.run not in at:
        history = [chosen]
    history = list(reversed(history[:HISTORY_RUNS]))
    if baseline is None:
        history += _later(past, chosen, HISTORY_RUNS - len(history))
    return Reference(chosen, tuple(history), why)


def _later(past: Sequence[ConcludedRun], chosen: ConcludedRun, count: int) -> list[ConcludedRun]:
    """Return the first ``count`` runs after an accepted one: a level that was accepted early has a past of its own.

    The first ones, so that a slow decline does not become what is normal; none that is known to have regressed.
    """
    sound = [h for h in reversed(past) if h.started_at > chosen.started_at and h.row.verdict != Outcome.REGRESSED]
    return sound[: max(0, count)]


def _chosen(
    store: ObjectStore,
    site: str,
    past: Sequence[ConcludedRun],
    acts: Sequence[Accepted],
    before: datetime,
    baseline: str | None,
) -> tuple[ConcludedRun | None, str]:
    if baseline is not None:
        return named(store, site, baseline, before), f"baseline {baseline}"
    by_name = {held.run: held for held in past}
    for act in acts:
        if act.run in by_name:
            who = f"accepted by {act.row.accepted_by} on {act.row.accepted_at:%Y-%m-%d}"
            return by_name[act.run], f"the last accepted run ({who})"
    if past:
        lately = f" of the last {len(past)}" if acts else ""
        # A loss that nobody accepted is nothing to compare with: what was repeated after it would pass.
        good = next((held for held in past if held.row.verdict != Outcome.REGRESSED), past[-1])
        which = "the latest earlier run" + (" that did not regress" if good is not past[0] else "")
        return good, f"{which} (none{lately} was accepted as baseline)"
    return None, "no earlier run measured any of this"
