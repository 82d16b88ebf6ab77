"""The verdict on the page: its word, what moved, what settles nothing, and which recorded change fits."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ClusterShell.NodeSet import NodeSet

from fabric_health import answer
from fabric_health.datasets.verdict_tables import Attribution, Verdict
from fabric_health.report.data import ReportData, Trend, VerdictResults
from fabric_health.verdict.comparability import fields_of, label
from fabric_health.verdict.outcome import Outcome

MOVED_SHOWN = 50
OPEN_SHOWN = 20
PASSED_SHOWN = 100
DIFFERING_SHOWN = 20
CHANGES_SHOWN = 10
# Lines of the plot; units that passed only give the picture of what stayed.
PLOTTED = 40
PASSED_PLOTTED = 12
SET, RUN = "set", "run"
# Verdicts on quantised models beside their base of the same run are told where the models are.
_WITHIN_RUN = "base"
_TOGETHER = (SET, "fleet")
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_.-]{1,100}")
_SYMBOLS = {
    Outcome.PASS.value: "✓",
    Outcome.REGRESSED.value: "▼",
    Outcome.IMPROVED.value: "▲",
    Outcome.INCONCLUSIVE.value: "?",
    Outcome.NOT_COMPARABLE.value: "≠",
    answer.NO_VERDICT: "–",
}
_RANK = {Outcome.REGRESSED.value: 0, Outcome.IMPROVED.value: 1, Outcome.INCONCLUSIVE.value: 2, Outcome.PASS.value: 3}
KINDS = {"node": ", single nodes", "rail": ", single rails", "benchmark": ", all nodes in one job", "link": ", links"}
_SETS = {"touched": "all that was touched", "controls": "all controls"}


@dataclass(frozen=True)
class Badge:
    """A verdict's word with its sign, so that its colour is never all that tells."""

    outcome: str

    @property
    def word(self) -> str:
        """The word as it is read."""
        return self.outcome.replace("_", " ") if self.outcome != answer.NO_VERDICT else "no verdict"

    @property
    def symbol(self) -> str:
        """The sign before the word."""
        return _SYMBOLS.get(self.outcome, "–")


@dataclass(frozen=True)
class Line:
    """One judgement: ``name`` of the unit or set, ``label`` of the metric, ``kind`` of the units measured.

    ``setting`` is what tells it from others of the same metric.
    """

    row: Verdict
    name: str
    label: str
    kind: str = ""
    setting: str = ""
    anchor: str | None = None

    @property
    def badge(self) -> Badge:
        """Its verdict."""
        return Badge(self.row.outcome)

    @property
    def is_set(self) -> bool:
        """Whether it is of several units together."""
        return self.row.subject_kind in _TOGETHER


@dataclass(frozen=True)
class Reason:
    """Why several judgements came out alike: lines of one metric, with the first one's reason."""

    label: str
    lines: tuple[Line, ...]

    @property
    def first(self) -> Verdict:
        """The judgement whose reason stands for all."""
        return self.lines[0].row


@dataclass(frozen=True)
class Differing:
    """What was not measured in the same way before: the fields that differ, and how much of what has them."""

    reason: str
    metrics: tuple[str, ...]
    units: int


@dataclass(frozen=True)
class Units:
    """Units of a change: how many, and their names as ranges."""

    count: int
    ranges: str


@dataclass(frozen=True)
class Section:
    """Everything that the page says of a run's verdict. ``plotted``: lines of the plot; ``unplotted``: units left out.

    ``compared_with`` says in words what the run was compared with. ``touched`` and ``controls`` are None without a
    declared change.
    """

    badge: Badge
    sentence: str
    settle: str | None
    compared_with: str | None
    explanation: str | None
    kind: str | None
    touched: Units | None
    controls: Units | None
    sets: tuple[Line, ...]
    moved: tuple[Line, ...]
    open: tuple[Reason, ...]
    passed: tuple[Line, ...]
    differing: tuple[Differing, ...]
    new: int
    attributions: tuple[Attribution, ...]
    plotted: tuple[Line, ...]
    unplotted: int
    trends: tuple[Trend, ...]

    @property
    def in_short(self) -> str:
        """The first sentence of which change fits, for the head of the page."""
        first, end, _ = (self.explanation or "").partition(". ")
        return first + end.rstrip()


def section(data: ReportData, linked: frozenset[str]) -> Section | None:
    """Return what the page says of the run's verdict, None when it was not compared. ``linked``: findings on the page.

    Regressions come first, the largest loss before the others, then improvements.
    """
    results = data.verdict
    whole = next((r for r in results.rows if r.subject_kind == RUN), None) if results else None
    if results is None or whole is None:
        return None
    lines = _lines(data, results, linked)
    single = [x for x in lines if not x.is_set]
    change = results.change
    plotted = _plotted(lines)
    drawable = sum(x.row.loss is not None for x in lines)
    return Section(
        badge=Badge(answer.verdict_word(results.rows)),
        sentence=whole.reason,
        settle=whole.settle,
        compared_with=_compared_with(whole),
        explanation=whole.explanation,
        kind=change.kind.replace("_", " ") if change else None,
        touched=_units(change.touched) if change else None,
        controls=_units(change.controls) if change else None,
        sets=tuple(x for x in lines if x.is_set),
        moved=tuple(x for x in single if x.row.outcome in (Outcome.REGRESSED, Outcome.IMPROVED)),
        open=tuple(_reasons(x for x in single if x.row.outcome == Outcome.INCONCLUSIVE)),
        passed=tuple(x for x in single if x.row.outcome == Outcome.PASS),
        differing=tuple(_differing(results.rows)),
        new=sum(r.units or 1 for r in results.rows if _is_new(r)),
        attributions=tuple(sorted(results.attributions, key=lambda a: a.rank)),
        plotted=plotted,
        unplotted=drawable - len(plotted),
        trends=results.trends,
    )


def _lines(data: ReportData, results: VerdictResults, linked: frozenset[str]) -> list[Line]:
    """Return every judgement, worst first."""
    rows = [r for r in results.rows if r.subject_kind != RUN and r.outcome in _RANK and r.against != _WITHIN_RUN]
    anchors = {(f.unit, f.metric): f.finding for f in data.findings if f.finding in linked}
    settings = _settings(rows)
    kinds = {r.comparability: r.subject_kind for r in rows if r.subject_kind not in _TOGETHER}
    out = []
    for r in rows:
        what, kind = label(r.metric, r.comparability), kinds.get(r.comparability, "")
        # What was measured of nodes and of rails has a heading of its own, and needs no more to be told apart.
        setting = "" if kind in KINDS else settings[r.metric, r.comparability]
        out.append(Line(r, _name(r), what, kind, setting, anchors.get((r.subject, what))))
    return sorted(out, key=lambda x: (_RANK[x.row.outcome], -(x.row.loss or 0.0), x.label, x.row.subject))


def _name(r: Verdict) -> str:
    if r.subject_kind == "fleet":
        return "all units together"
    return _SETS.get(r.subject, r.subject) if r.subject_kind == SET else r.subject


def _settings(rows: Sequence[Verdict]) -> dict[tuple[str, str], str]:
    """Name what tells comparability keys of one metric apart: nothing where there is one key of it."""
    keys: dict[str, dict[str, None]] = defaultdict(dict)
    for r in rows:
        keys[label(r.metric, r.comparability)].setdefault(r.comparability)
    out = {}
    for r in rows:
        alike = [fields_of(k) for k in keys[label(r.metric, r.comparability)]]
        own = fields_of(r.comparability)
        odd = [n for n in own if len({a.get(n) for a in alike}) > 1 and not n.endswith(("sha", "sha256"))]
        out[r.metric, r.comparability] = ", ".join(f"{n} {own[n]}" for n in odd[:3])
    return out


def _compared_with(whole: Verdict) -> str | None:
    if whole.compared_with is not None:
        return whole.compared_with
    return "earlier runs of this site" if whole.against == "history" else f"run {whole.against}"


def _units(names: Sequence[str]) -> Units:
    """Return names as ranges, one after the other where some is no plain name."""
    plain = all(map(_PLAIN_NAME.fullmatch, names))
    return Units(len(names), str(NodeSet.fromlist(names)) if plain else ", ".join(names))


def _reasons(lines: Iterator[Line]) -> Iterator[Reason]:
    found: dict[str, list[Line]] = defaultdict(list)
    for x in lines:
        found[x.label + KINDS.get(x.kind, "")].append(x)
    for what, of in found.items():
        yield Reason(what, tuple(of))


def _is_new(row: Verdict) -> bool:
    return row.outcome == Outcome.NOT_COMPARABLE and row.reason == answer.NEVER_MEASURED


def _differing(rows: Sequence[Verdict]) -> Iterator[Differing]:
    found: dict[str, list[Verdict]] = defaultdict(list)
    for r in rows:
        if r.outcome == Outcome.NOT_COMPARABLE and r.subject_kind != RUN and not _is_new(r):
            found[r.reason].append(r)
    for reason, of in found.items():
        metrics = tuple(dict.fromkeys(label(r.metric, r.comparability) for r in of))
        yield Differing(reason, metrics, sum(r.units or 1 for r in of))


def _plotted(lines: Sequence[Line]) -> tuple[Line, ...]:
    """Return the lines of the plot: sets, then units worst first; of those that passed only some."""
    drawable = [x for x in lines if x.row.loss is not None]
    passed = [x for x in drawable if not x.is_set and x.row.outcome == Outcome.PASS]
    left = set(map(id, passed[PASSED_PLOTTED:]))
    sets = [x for x in drawable if x.is_set]
    single = [x for x in drawable if not x.is_set and id(x) not in left]
    return tuple([*sets[: PLOTTED // 2], *single][:PLOTTED])


def panels(lines: Sequence[Line]) -> Mapping[str, list[Line]]:
    """Return lines by what they measure, in their order: what shares a margin and a heading of the plot."""
    out: dict[str, list[Line]] = defaultdict(list)
    for x in lines:
        of = KINDS.get(x.kind, f" ({x.setting})" if x.setting else "")
        out[x.label + of].append(x)
    return out
