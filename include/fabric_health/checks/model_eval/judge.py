"""Findings of a run: launches that broke a rule, forms that are not as their scheme says, answers that vary.

Quality against the base and against earlier runs is the comparison's to judge: it needs paired tests.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from fabric_health.checks.check import Context, Launch, RowSet
from fabric_health.checks.model_eval.form_rules import form_findings
from fabric_health.checks.model_eval.rules import CHECK, KIND, RULES, Rule, named, not_judged
from fabric_health.checks.model_eval.schemes import model_of
from fabric_health.checks.model_eval.settings import settings
from fabric_health.checks.model_eval.steady_rules import steady_findings
from fabric_health.checks.model_eval.tables import (
    ModelBuild,
    ModelLaunchProblem,
    ModelServer,
    Quantization,
)
from fabric_health.datasets.tables import Finding, FindingKind, Severity, finding
from fabric_health.evidence import ReachStatus

_UNKNOWN = Rule(Severity.CRITICAL, FindingKind.NOT_JUDGED, "See the evidence.")


def judge(rows: RowSet, context: Context) -> list[Finding]:
    """Return the findings of a run. Raises SiteError for settings that cannot be used."""
    wanted = settings(context.site)
    broken = list(_problems(rows.of(ModelLaunchProblem), context))
    causes = _causes(broken)
    return [
        *_explained(broken, causes),
        *_complete(rows, context, causes),
        *(_linked(f, causes) for f in form_findings(rows, wanted)),
        *steady_findings(rows),
    ]


def _problems(problems: Iterable[ModelLaunchProblem], context: Context) -> Iterator[Finding]:
    """Yield one finding per form, rule and subject. A launch that was not answered at all has its finding already."""
    grouped: dict[tuple[str, str, str], list[ModelLaunchProblem]] = defaultdict(list)
    for p in sorted(problems, key=lambda p: (p.unit, p.rule, p.subject, p.launch)):
        stored = context.reach.get(p.launch)
        if stored is None or stored.status is ReachStatus.OK:
            grouped[p.unit, p.rule, p.subject].append(p)
    for (unit, rule, subject), found in grouped.items():
        first, told = found[0], RULES.get(rule, _UNKNOWN)
        others = named([p.launch for p in found[1:]])
        yield finding(
            check=CHECK,
            rule=rule,
            unit=unit,
            unit_kind=KIND,
            metric=subject,
            severity=told.severity,
            kind=told.kind,
            summary=f"{unit}, launch {first.launch}: {first.detail}" + (f" (the same in {others})" if others else ""),
            expected=first.expected,
            actual=first.actual,
            action=told.action,
            source=told.source,
            command="job",
            evidence_unit=first.launch,
        )


def _causes(broken: Iterable[Finding]) -> dict[tuple[str, str], str]:
    """Return the finding of each broken rule by unit and rule; of several subjects the first."""
    out: dict[tuple[str, str], str] = {}
    for f in broken:
        out.setdefault((f.unit, f.rule), f.finding)
    return out


_MAKES_NONE = ("model_prepared", "model_quantised", "report_readable", "launch_completes")


def _explained(broken: Iterable[Finding], causes: Mapping[tuple[str, str], str]) -> Iterator[Finding]:
    """Link what follows from something else: a form that was not made cannot be served."""
    for f in broken:
        within = [causes.get((f.unit, rule)) for rule in RULES.get(f.rule, _UNKNOWN).causes]
        model = model_of(f.unit)
        above = [causes.get((model, rule)) for rule in _MAKES_NONE] if model != f.unit else []
        made = [causes.get((f.unit, rule)) for rule in ("model_prepared", "model_quantised")]
        made = made if f.rule in ("server_starts", "launch_completes", "report_readable") else []
        cause = next((c for c in (*within, *made, *above) if c is not None and c != f.finding), None)
        yield f if cause is None else replace(f, explained_by=cause)


def _complete(rows: RowSet, context: Context, causes: Mapping[tuple[str, str], str]) -> Iterator[Finding]:
    """Yield a finding for every form that has fewer launches with results than planned."""
    planned: dict[str, list[str]] = defaultdict(list)
    for unit in context.scope:
        if isinstance(unit, Launch) and unit.units:
            planned[unit.units[0]].append(unit.name)
    if not planned:
        yield not_judged(
            "launches_planned",
            CHECK,
            "launches",
            "No model was launched: none of the nodes that launches may take is fit or in scope",
            action="See which nodes were left out and why; or name others under checks.model_eval.nodes.",
        )
    usable = {r.launch for r in rows.of(ModelBuild) if r.problem is None}
    usable |= {r.launch for r in rows.of(Quantization) if r.problem is None}
    usable |= {r.launch for r in rows.of(ModelServer) if r.problem is None}
    for form, names in sorted(planned.items()):
        lost = [n for n in names if n not in usable]
        if lost:
            yield not_judged(
                "launches_complete",
                form,
                "launches",
                f"{form}: {len(names) - len(lost)} of {len(names)} launches gave a result; without {named(lost)}",
                action="Read the launches' own findings; what is missing is never taken for good.",
                explained_by=_cause(form, causes),
            )


def _linked(f: Finding, causes: Mapping[tuple[str, str], str]) -> Finding:
    """Link what could not be judged to the launch that gave nothing."""
    return replace(f, explained_by=_cause(f.unit, causes)) if f.kind == FindingKind.NOT_JUDGED else f


def _cause(form: str, causes: Mapping[tuple[str, str], str]) -> str | None:
    """Return a finding that says why a form has no result: its own, or else its base's."""
    return next((i for unit in (form, model_of(form)) for (u, _), i in causes.items() if u == unit), None)
