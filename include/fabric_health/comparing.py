"""The stage that compares a run with what was before: did it hurt, where, how sure are we, and which change fits.

A run without a declared change is held against the site's history; one with a change also against the run before it,
with the units that the change left alone as controls. Everything is read from the tables, so that a repeated stage says
the same again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from ClusterShell.NodeSet import NodeSet

from fabric_health import answered, baselines, compared, measured, recorded_changes
from fabric_health.answered_before import BASE, Answers, compare_answers
from fabric_health.beside import in_the_light_of
from fabric_health.checks import registry
from fabric_health.checks.model_eval.settings import settings as model_settings
from fabric_health.compared import Judged, Whole
from fabric_health.confirming import confirm
from fabric_health.datasets import landing
from fabric_health.datasets.contracts import Row
from fabric_health.datasets.run import RunKey
from fabric_health.datasets.store import ObjectStore
from fabric_health.datasets.verdict_tables import Attribution, Verdict
from fabric_health.jobs.settings import settings as job_settings
from fabric_health.judged import write_findings
from fabric_health.maintenance import Change, role_of
from fabric_health.measured import Incomparable, Measured, Measurements
from fabric_health.site import Site
from fabric_health.topology import reach_of
from fabric_health.verdict import attribution, fleet, paired
from fabric_health.verdict.attribution_words import candidate_sentence, sentence
from fabric_health.verdict.metrics import MARGINS
from fabric_health.verdict.multiple import over_metrics
from fabric_health.verdict.noise import noise_of
from fabric_health.verdict.outcome import Outcome

if TYPE_CHECKING:
    from fabric_health.baselines import Reference
    from fabric_health.pipeline import Rooms
    from fabric_health.run_document import RunDocument

CANDIDATES_KEPT = 20
# No part of what a change of nodes or switches touches: the machine that starts jobs and its ranks, the store.
_OUTSIDE = ("machine", "object_store", "ranks")


@dataclass(frozen=True)
class Comparison:
    """What a comparison of one run gave. ``against``: the run, or ``history``; ``why``: how that was chosen.

    ``judged`` has what models answered, too; ``answers`` also holds quantised forms beside their base of this run.
    ``latest``: the newest run that it was compared with, None where there was none.
    """

    against: str
    why: str
    whole: Whole
    judged: tuple[Judged, ...]
    measurements: Measurements
    attribution: attribution.Attribution | None
    explanation: str | None
    latest: str | None
    answers: Answers = field(default_factory=Answers)

    @property
    def incomparable(self) -> tuple[Incomparable, ...]:
        """What no earlier run measured or evaluated in the same way."""
        return (*self.measurements.incomparable, *self.answers.incomparable)

    def rows(self) -> list[Verdict]:
        """Return the rows of table ``verdicts``, that of the run as a whole first."""
        odd = [compared.incomparable_row(o, self.against, MARGINS[o.metric]) for o in self.incomparable]
        return [
            compared.run_row(self.whole, self.against, self._compared_with(), self.explanation),
            *(compared.row(j, self.against) for j in self.judged),
            *(compared.row(j, BASE) for j in self.answers.with_base),
            *odd,
        ]

    def _compared_with(self) -> str:
        return self.why if self.latest is None else f"{self.why}: {self.latest}"


def compare(rooms: Rooms, run: RunDocument) -> dict[str, Any]:
    """Compare a run with what was before; keep verdicts, attributions and findings. Return outcome, reason and counts.

    Costs nothing but a word when the run measured nothing.
    """
    benchmarks = [name for name in run.checks if registry.entry(name).is_benchmark]
    baseline = run.change.baseline if run.change else None
    reference = baselines.reference(
        rooms.store, rooms.site.name, checks=benchmarks, before=run.key.started_at, baseline=baseline
    )
    past, found = _past(reference), Measurements()
    if benchmarks:
        found = confirm(rooms, run, lambda: measured.read(rooms.store, rooms.site, run.key, past))
    compared_with = conclude(rooms.store, rooms.site, run.key, reference, found, run.change)
    return _keep(rooms, run, compared_with)


def _keep(rooms: Rooms, run: RunDocument, found: Comparison) -> dict[str, Any]:
    """Land a comparison and keep its findings, these last: with them, comparing has finished."""
    rows: list[tuple[Row, str | None]] = [(r, None) for r in (*found.rows(), *attributions(found))]
    landing.land(rooms.store, run.key, compared.PART, rows, (Verdict, Attribution))
    told = compared.findings(found.judged, found.incomparable, found.why)
    told += answered.findings(found.judged, found.answers.with_base, found.why)
    told += answered.remade(found.answers.remade, found.why)
    write_findings(rooms.store, run, compared.PART, told)
    rooms.tell(f"verdict: {found.whole.outcome}: {found.whole.reason}")
    if found.explanation:
        rooms.tell(f"verdict: {found.explanation}")
    return {
        "outcome": found.whole.outcome.value,
        "reason": found.whole.reason[:500],
        "against": found.against,
        "judged": len(found.judged),
        "regressed": [j.judgement.subject for j in found.judged if j.judgement.outcome is Outcome.REGRESSED][:20],
    }


def between(
    store: ObjectStore, site: Site, key: RunKey, reference: Reference, change: Change | None = None
) -> Comparison:
    """Compare a run with a reference, without writing or launching anything."""
    return conclude(store, site, key, reference, measured.read(store, site, key, _past(reference)), change)


def _past(reference: Reference) -> list[str]:
    return sorted({h.run for h in reference.history} | ({reference.run.run} if reference.run else set()))


def conclude(
    store: ObjectStore,
    site: Site,
    key: RunKey,
    reference: Reference,
    found: Measurements,
    change: Change | None = None,
) -> Comparison:
    """Judge measurements that are read; the store is asked for what models answered, and for recorded changes."""
    against, why = compared.HISTORY, reference.why
    if change is not None and reference.run is not None:
        against = reference.run.run
    elif len(reference.history) > 1:
        up_to = reference.run is None or reference.history[-1].started_at <= reference.run.started_at
        why = f"the {len(reference.history)} runs {'up to' if up_to else 'around'} {reference.why}"
    judged: list[Judged] = []
    # What no earlier run measured in the same way has no past; its peers are the business of the check that measured.
    for m in found.with_past:
        judged += _judge(m, site, change, reference, len(found.with_past), found.controls)
    judged = _over_benchmarks(judged)
    answers = compare_answers(store, site, key, reference)
    judged += [replace(x, role=_role(x.judgement.subject, answered.KIND, change, site)) for x in answers.with_before]
    odd = (*found.incomparable, *answers.incomparable)
    whole = compared.whole(judged, odd, change=change is not None, why=why)
    named, explanation = _attribute(store, site, key, reference, judged)
    latest = reference.run.run if reference.run is not None else None
    return Comparison(against, why, whole, tuple(judged), found, named, explanation, latest, answers)


def _judge(
    m: Measured, site: Site, change: Change | None, reference: Reference, panels: int, beside: Sequence[Measured]
) -> list[Judged]:
    """Judge one panel: every unit against its past and its peers; after a change also what it touched, as a set."""
    settings = fleet.Settings(panels=panels)
    alone = list(fleet.judge_fleet(m.panel, settings))
    roles = {u: _role(u, m.panel.unit_kind, change, site) for u in m.panel.units}
    together: list[Judged] = []
    if change is not None and reference.run is not None and reference.run.run in m.panel.runs[:-1]:
        touched = [u for u, role in roles.items() if role == "touched"]
        controls = [u for u, role in roles.items() if role == "control"]
        before = m.panel.of_runs((reference.run.run,))
        after = m.panel.of_runs(m.panel.runs[-1:])
        known = paired.PairedSettings(noise=noise_of(m.panel.of_runs(m.panel.runs[:-1])))
        # One unit with nothing beside it, as a benchmark of all nodes is, is no set: its own past judges it better.
        if len(touched) > 1 or (touched and controls):
            found = paired.assess_panels(before, after, changed=touched, controls=controls, settings=known)
            judgement = found.judgement if controls else in_the_light_of(found.judgement, m, beside)
            of_touched = replace(judgement, subject=compared.TOUCHED, subject_kind="set")
            together = [Judged(of_touched, m, "touched", tuple(touched))]
            if found.controls is not None:
                of_controls = replace(found.controls, subject=compared.CONTROLS, subject_kind="set")
                together.append(Judged(of_controls, m, "control", tuple(controls)))
            if len(m.panel.runs) - 1 < settings.min_history:
                # Too few runs for a past of each unit: launches before and after, beside the controls, say more.
                paired_units = {j.subject: j for j in found.units}
                alone = [paired_units.get(j.subject, j) for j in alone]
    groups: dict[tuple[str, str], list[str]] = {}
    for kind, names in m.panel.groups.items():
        for unit, name in zip(m.panel.units, names, strict=True):
            groups.setdefault((kind, name), []).append(unit)
    out = []
    for j in alone:
        known_role = j.subject_kind == m.panel.unit_kind and j.subject in roles
        role = roles[j.subject] if known_role else _role(j.subject, j.subject_kind, change, site)
        out.append(Judged(j, m, role, tuple(groups.get((j.subject_kind, j.subject), ()))))
    return out + together


def _over_benchmarks(judged: Sequence[Judged]) -> list[Judged]:
    """Correct what is said of the touched units together for the number of benchmarks that it is said of."""
    sets = [x for x in judged if x.judgement.subject == compared.TOUCHED]
    corrected = dict(zip(map(id, sets), over_metrics([x.judgement for x in sets]), strict=True))
    return [replace(x, judgement=corrected.get(id(x), x.judgement)) for x in judged]


def _role(unit: str, kind: str, change: Change | None, site: Site) -> Literal["touched", "control"] | None:
    if change is None or kind in _OUTSIDE or (kind == "benchmark" and unit == "gloo"):
        return None
    if kind == answered.KIND:
        return None if job_settings(site).backend == "local" else _role_of_model(change, site)
    return role_of(unit, kind, change, site)


def _role_of_model(change: Change, site: Site) -> Literal["touched", "control"] | None:
    """Return the role of models: that of the nodes that the site names for them, in scope.

    Where it names none, the cluster places them anywhere: what the change touched cannot be ruled out.
    """
    named = model_settings(site).nodes
    if not named:
        return "touched"
    roles = {role_of(n, "node", change, site) for n in named}
    return "touched" if "touched" in roles else "control" if "control" in roles else None


def _attribute(
    store: ObjectStore, site: Site, key: RunKey, reference: Reference, judged: Sequence[Judged]
) -> tuple[attribution.Attribution | None, str | None]:
    """Ask which recorded change separates what moved, of the kind of unit that says most: nodes, else rails."""
    if reference.run is None:
        return None, None
    for kind in ("node", "rail", "link"):
        moved: dict[str, float] = {}
        for j in judged:
            loss = j.judgement.loss
            if j.judgement.outcome is Outcome.REGRESSED and loss and loss > 0:
                for unit in _members(j, kind):
                    moved[unit] = max(loss, moved.get(unit, 0.0))
        if not moved:
            continue
        sound = {
            j.judgement.subject
            for j in judged
            if j.judgement.subject_kind == kind and j.judgement.outcome in (Outcome.PASS, Outcome.IMPROVED)
        }
        before = RunKey(site.name, reference.run.run, reference.run.started_at, key.origin)
        changes = recorded_changes.between(store, site, before, key)
        found = attribution.rank(changes, moved, sound - moved.keys(), reach_of(site))
        return found, sentence(found)
    return None, None


def _members(j: Judged, kind: str) -> tuple[str, ...]:
    """Return the units of a kind that a judgement is about: one unit, or those of a group that moved as one."""
    if j.judgement.subject_kind == kind:
        return (j.judgement.subject,)
    grouped = j.measured.panel.unit_kind == kind and j.judgement.subject_kind in j.measured.panel.groups
    return j.members if grouped else ()


def attributions(found: Comparison) -> list[Attribution]:
    """Return the rows of table ``attributions``."""
    if found.attribution is None:
        return []
    same = {c.name for c in found.attribution.inseparable}
    first = found.attribution.first
    out = []
    for number, c in enumerate(found.attribution.candidates[:CANDIDATES_KEPT], 1):
        others = sorted((same | ({first.name} if first else set())) - {c.name}) if c.name in same or c == first else []
        out.append(
            Attribution(
                against=found.against,
                rank=number,
                attribute=c.group.attribute,
                changed_units=str(NodeSet.fromlist(u.split("/", 1)[0] for u in c.changed_units))[:2000],
                moved_with=len(c.moved_with),
                moved_without=len(c.moved_without),
                unmoved_with=len(c.unmoved_with),
                unmoved_without=c.unmoved_without,
                score=c.score,
                summary=candidate_sentence(c),
                before=c.group.before,
                after=c.group.after,
                p_value=c.p_value,
                inseparable_from=", ".join(others) if same and others else None,
            )
        )
    return out
